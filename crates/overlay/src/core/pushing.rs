//! Order in which parts of a volume are pushed, and the callers that wait for each.

use std::time::{Duration, Instant};

use crate::core::Core;
use crate::push::origin_log_size::LogSize;
use crate::push::{PushError, Wanted};
use crate::regions::RegionMap;
use crate::regions::durability::DurabilityClass;
use crate::{DeviceErrorKind, OverlayError, limits};

/// Batches that are pushed ahead of a moment of all groups, at most.
const ROUNDS_AHEAD: u32 = 4;
/// Times that what was written meanwhile is pushed before a release, at most.
const ROUNDS_BEFORE_RELEASE: u32 = 16;
/// Bytes that a release may have to push, requests waiting for it: 34 ms at 1 Gbit/s.
const RELEASE_BYTES: u64 = 4 << 20;
/// Attempts in a row at one object, and the pause after the first of them, which doubles.
const ATTEMPTS_MAX: u32 = 4;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest time for which a guest is held back for a release that does not come.
const CONVERGE_TIME: Duration = Duration::from_secs(60);

impl Core {
    /// Returns what must be pushed now, and the time of the next check.
    pub(crate) fn wanted(&self, now: Instant) -> (Wanted, Option<Instant>) {
        let asked = self.queue.requested();
        let map = self.log.map();
        let mut due = 0;
        let mut next = None;
        for (number, group) in map.regions.groups().iter().enumerate() {
            if let Some(oldest) = map.dirty[number].oldest {
                // What is left of a write that nobody waits for any more goes at once, too.
                let after = match group.class {
                    DurabilityClass::WriteBack if !self.load.hold_back.is_holding() => {
                        self.cadence.cut_after(group.period)
                    }
                    _ => Duration::ZERO,
                };
                let at = oldest + after;
                if at <= now {
                    due |= 1 << number;
                } else {
                    next = Some(next.map_or(at, |other: Instant| other.min(at)));
                }
            }
        }
        (Wanted { asked, due, ..Wanted::default() }, next)
    }

    /// Pushes one object of what is wanted or under way; returns its bytes if nobody waits for it.
    pub(crate) fn push_one(&self, wanted: Wanted) -> Result<u64, PushError> {
        if self.are_partitions_unknown() {
            let cause = "partitions of the volume could not be read yet: is its base reachable?";
            return Err(PushError::Retry(OverlayError::Unavailable(cause.to_owned())));
        }
        let mut pusher = self.pusher.lock();
        let before = (pusher.stored_bytes, pusher.stored_objects);
        let sent = pusher.sent_bytes;
        let wanted = Wanted { is_hurried: self.load.hold_back.is_holding(), ..wanted };
        self.load.hold_back.begin(Instant::now());
        // Asked again where the cut begins: what was written after a part of a new table is judged by
        // the whole of it.
        let result = pusher.step(&self.log, wanted, &|| !self.are_partitions_unknown());
        let taken = result.is_ok().then(|| pusher.sent_bytes - sent);
        self.load.hold_back.end(Instant::now(), taken);
        let (bytes, objects) = (pusher.stored_bytes - before.0, pusher.stored_objects - before.1);
        self.origin_log.add(LogSize { bytes, objects });
        self.note_pushed(&pusher);
        if self.load.hold_back.is_holding() || bytes > 0 {
            self.look_at_load();
        }
        if bytes > 0 {
            self.origin_wait.stored();
        }
        if result.is_ok() {
            self.answer_waiters(&pusher);
        }
        drop(pusher);
        if bytes > 0 && self.log.is_push_untold(Instant::now()) {
            // The next process may be killed soon, too.
            self.compaction.wake();
        }
        result
    }

    /// Pushes everything that was acknowledged before the call, as it is at one moment; returns the
    /// last object of it, with which the origin holds no batch in part, and nothing of a later moment.
    ///
    /// A moment of all groups is one batch, and a write that goes through would wait for all of
    /// it. What others have written is therefore pushed ahead, in batches that it overtakes, until
    /// little is left for the moment itself (as a live migration copies memory ahead).
    pub(crate) fn push_all(&self) -> Result<u64, OverlayError> {
        self.settle_partitions()?;
        for _ in 0..ROUNDS_AHEAD {
            if !self.is_much_left() {
                break;
            }
            self.push_until(self.log.appended(), write_back_groups, false)?;
        }
        self.push_until(self.log.appended(), RegionMap::pushed_groups, true)
    }

    /// Pushes, while requests go on, until what is left is pushed in a moment. A guest that writes as
    /// fast as the origin takes it is held back for that, for a time.
    pub(crate) fn push_ahead(&self) -> Result<(), OverlayError> {
        self.settle_partitions()?;
        for round in 0..ROUNDS_BEFORE_RELEASE {
            if self.bytes_to_push() <= RELEASE_BYTES {
                break;
            }
            if round > 0 {
                self.load.hold_back.converge(Some(Instant::now() + CONVERGE_TIME));
                self.look_at_load();
            }
            self.push_until(self.log.appended(), RegionMap::pushed_groups, false)?;
        }
        Ok(())
    }

    /// Bytes that a push of everything has to send, those of a batch under way included: it begins
    /// while somebody sends an object, and only a look between two objects sees all of it.
    pub(crate) fn bytes_to_push(&self) -> u64 {
        let pusher = self.pusher.lock();
        pusher.left_bytes() + self.log.map().uncut_bytes()
    }

    /// Pushes everything that was acknowledged before the call, each group as it is at a moment.
    pub(crate) fn push_groups(&self) -> Result<(), OverlayError> {
        self.settle_partitions()?;
        self.push_until(self.log.appended(), RegionMap::pushed_groups, false).map(drop)
    }

    /// Ends the batch that is under way, if any.
    pub(crate) fn finish_push(&self) -> Result<(), OverlayError> {
        self.settle_partitions()?;
        self.push_until(0, |_| 0, false).map(drop)
    }

    /// Returns whether a moment of all groups would be so large that somebody has to wait for it.
    fn is_much_left(&self) -> bool {
        self.regions.has_write_through()
            && self.log.map().dirty_sectors() * crate::SECTOR_BYTES > limits::MOMENT_BYTES
    }

    /// Pushes until groups are on the origin up to `target`, and no batch is there in part; `is_whole`:
    /// as they were at one moment. Returns the last slot of then, whatever others have stored since.
    pub(crate) fn push_until(
        &self,
        target: u64,
        groups: impl Fn(&RegionMap) -> u32,
        is_whole: bool,
    ) -> Result<u64, OverlayError> {
        let mut failures = 0;
        loop {
            self.check_open()?;
            let mut asked = {
                let pusher = self.pusher.lock();
                let asked = groups(&self.log.map().regions);
                let whole = pusher.whole(asked, target).filter(|_| is_whole);
                let settled = pusher.settled(asked, target);
                if let Some(last) = whole.or(settled.filter(|_| !is_whole)) {
                    return Ok(last);
                }
                if settled.is_some() {
                    // All was tried, and what was left out makes it no moment.
                    self.check_delivered()?;
                }
                asked | pusher.groups_under_way()
            };
            if !is_whole {
                // They overtake, and are not to wait for the push thread's turn.
                asked |= self.queue.requested();
            }
            match self.push_one(Wanted { asked, is_whole, ..Wanted::default() }) {
                Ok(_) => {}
                Err(error @ (PushError::Fenced(_) | PushError::Local(_))) => {
                    return Err(self.push_failed(error));
                }
                Err(_) if self.are_partitions_unknown() => self.settle_partitions()?,
                Err(error) => {
                    if failures == ATTEMPTS_MAX - 1 {
                        return Err(self.push_failed(error));
                    }
                    let until = Instant::now() + ATTEMPT_PAUSE * 2_u32.pow(failures);
                    self.queue.wait_for_close(&self.life, until);
                    failures += 1;
                }
            }
        }
    }

    fn check_open(&self) -> Result<(), OverlayError> {
        match self.check_writable() {
            Ok(()) => Ok(()),
            Err(error) if error.kind == DeviceErrorKind::Fenced => {
                Err(OverlayError::Fenced(self.volume))
            }
            Err(error) => Err(OverlayError::Unavailable(error.message)),
        }
    }

    /// Notes why a push failed.
    pub(crate) fn push_failed(&self, error: PushError) -> OverlayError {
        match error {
            PushError::Fenced(why) => {
                self.fence(&why);
                OverlayError::Fenced(self.volume)
            }
            PushError::Retry(error) => {
                self.note_trouble(Some(format!("push: {error}")));
                error
            }
            PushError::Local(why) => {
                self.note_trouble(Some(why.clone()));
                self.fail_waiters_with_log();
                OverlayError::Unavailable(why)
            }
        }
    }
}

/// Bits of the groups that are pushed every period.
fn write_back_groups(regions: &RegionMap) -> u32 {
    let groups = regions.groups().iter().enumerate();
    let groups = groups.filter(|(_, group)| group.class == DurabilityClass::WriteBack);
    groups.map(|(number, _)| 1 << number).sum()
}
