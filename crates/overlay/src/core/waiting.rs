//! Requests that wait for the origin: what each needs there, and who answers it.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::core::requests::append_error;
use crate::core::{Core, undelivered_text};
use crate::push::Pusher;
use crate::regions::RegionMap;
use crate::regions::durability::DurabilityClass;
use crate::segments::flusher::closed;
use crate::segments::record_log::AppendError;
use crate::{DeviceError, DeviceErrorKind, DeviceFuture};

/// One who waits for the origin.
pub(crate) struct PushWaiter {
    what: Awaited,
    /// Bit per group.
    pub groups: u32,
    through: u64,
    sender: oneshot::Sender<Result<(), DeviceError>>,
}

/// Condition that a caller waits for.
#[derive(Clone, Copy)]
pub(crate) enum Awaited {
    /// A write of these sectors; `to_origin`: in regions of write-back, too.
    Write { start: u64, end: u64, to_origin: bool },
    /// Everything that travels.
    All,
}

impl Awaited {
    /// Bits of the groups that must be on the origin.
    pub(crate) fn groups(self, regions: &RegionMap) -> u32 {
        let Awaited::Write { start, end, to_origin } = self else {
            return regions.pushed_groups();
        };
        let mut groups = 0;
        regions.split(start, end, |_, _, group| {
            let class = regions.class(group);
            if class == DurabilityClass::WriteThrough || to_origin && class != DurabilityClass::None
            {
                groups |= 1 << group;
            }
        });
        groups
    }
}

impl Core {
    /// Waits until the origin has what was appended up to `through`.
    pub(crate) fn wait_for_origin(&self, what: Awaited, through: u64) -> DeviceFuture<()> {
        let (sender, receiver) = oneshot::channel();
        {
            // In the queue's lock: a change of regions reviews all who are in it.
            let mut queue = self.queue.lock();
            if let Err(error) = self.check_log() {
                return Box::pin(async move { Err(error) });
            }
            let groups = what.groups(&Arc::clone(&self.log.map().regions));
            if groups == 0 && !self.are_partitions_unknown() {
                // Regions have changed since somebody looked.
                drop(queue);
                return self.wait_for_disk(through).unwrap_or_else(|| Box::pin(async { Ok(()) }));
            }
            queue.waiters.push(PushWaiter { what, groups, through, sender });
            queue.arrivals += 1;
        }
        self.queue.wake();
        let wait = Arc::clone(&self.origin_wait);
        Box::pin(async move { wait.answer(receiver).await })
    }

    /// Answers those whose writes the origin has.
    pub(crate) fn answer_waiters(&self, pusher: &Pusher) {
        let is_there = |waiter: &PushWaiter| {
            let mut groups = (0..32_u8).filter(|group| waiter.groups & 1 << group != 0);
            groups.all(|group| pusher.through(group) >= waiter.through)
        };
        let mut queue = self.queue.lock();
        let waiters = std::mem::take(&mut queue.waiters);
        let (done, rest) = waiters.into_iter().partition(|waiter| is_there(waiter));
        queue.waiters = rest;
        drop(queue);
        for waiter in done {
            drop(waiter.sender.send(self.delivered(waiter.what)));
        }
    }

    /// Returns whether the origin has what somebody waits for, once the rest of its batch is there.
    fn delivered(&self, what: Awaited) -> Result<(), DeviceError> {
        let map = self.log.map();
        let is_left_out = match what {
            Awaited::Write { start, end, .. } => map.undelivered().overlaps(start, end),
            Awaited::All => !map.undelivered().is_empty(),
        };
        match is_left_out {
            false => Ok(()),
            true => Err(DeviceError::new(DeviceErrorKind::Io, undelivered_text(&map))),
        }
    }

    /// Takes over for those who wait what the regions ask for now.
    pub(crate) fn review_waiters(&self) {
        let regions = Arc::clone(&self.log.map().regions);
        let mut queue = self.queue.lock();
        let (rest, done): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiters)
            .into_iter()
            .map(|waiter| PushWaiter { groups: waiter.what.groups(&regions), ..waiter })
            .partition(|waiter| waiter.groups != 0);
        queue.waiters = rest;
        drop(queue);
        for waiter in done {
            // It need not travel any more; what was to be on the origin is to be durable here.
            match self.wait_for_disk(waiter.through) {
                None => drop(waiter.sender.send(Ok(()))),
                Some(synced) => drop(self.runtime.spawn(async move {
                    drop(waiter.sender.send(synced.await));
                })),
            }
        }
    }

    /// Fails all who wait.
    pub(crate) fn fail_waiters(&self) {
        let waiters = std::mem::take(&mut self.queue.lock().waiters);
        let error = self.check_writable().and_then(|()| self.check_log());
        let error = error.err().unwrap_or_else(closed);
        for waiter in waiters {
            drop(waiter.sender.send(Err(error.clone())));
        }
        self.queue.wake();
    }

    /// Fails once the local log has: nothing that is not durable here may leave, and nothing will be.
    fn check_log(&self) -> Result<(), DeviceError> {
        match self.log.is_failed() {
            false => Ok(()),
            true => Err(append_error(&AppendError::Failed)),
        }
    }

    /// Notes what goes wrong in the background, or that it goes well again. A failed local log stays the
    /// reason, whatever fails because of it.
    pub(crate) fn note_trouble(&self, why: Option<String>) {
        let mut error = self.error.lock();
        if !self.log.is_failed() {
            *error = why;
        }
    }

    /// Fails those who wait for the origin where the local log has failed: however well the origin is,
    /// what they wait for does not leave any more. Whoever comes later is not taken in.
    pub(crate) fn fail_waiters_with_log(&self) {
        let Err(why) = self.check_log() else { return };
        *self.error.lock() = Some(why.message);
        if !self.queue.lock().waiters.is_empty() {
            self.fail_waiters();
        }
    }
}
