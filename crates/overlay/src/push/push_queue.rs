//! Those who wait for the origin, and waiting for what has the push go on.
//!
//! Whatever a thread waits for here is stored before the wake-up, and looked at in the queue's lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::OverlayError;
use crate::core::waiting::PushWaiter;
use crate::life::Life;
use crate::regions::region_state::RegionState;

/// Those who wait for the origin.
#[derive(Default)]
pub(crate) struct Waiters {
    pub waiters: Vec<PushWaiter>,
    /// Number of requests so far.
    pub arrivals: u64,
}

/// Those who wait for the origin, and the threads that wait for them.
#[derive(Default)]
pub(crate) struct PushQueue {
    state: Mutex<Waiters>,
    wake: Condvar,
    /// A fold is to be given up.
    is_fold_unwanted: AtomicBool,
}

impl PushQueue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.state.lock()
    }

    /// Has everybody who waits here look again.
    pub(crate) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Bits of the groups that somebody waits for.
    pub(crate) fn requested(&self) -> u32 {
        self.lock().waiters.iter().fold(0, |groups, waiter| groups | waiter.groups)
    }

    /// Returns the number of requests that have waited for the origin so far.
    pub(crate) fn arrivals(&self) -> u64 {
        self.lock().arrivals
    }

    /// Waits for partitions to be known, the volume to be closed, or `until`.
    pub(crate) fn wait_for_partitions(&self, life: &Life, regions: &RegionState, until: Instant) {
        let mut queue = self.lock();
        while !life.is_closed()
            && regions.are_partitions_unknown()
            && !self.wake.wait_until(&mut queue, until).timed_out()
        {}
    }

    /// Waits until something is to be pushed, the volume is closed, or `until`.
    pub(crate) fn wait_for_push(&self, life: &Life, until: Instant) {
        let mut queue = self.lock();
        if queue.waiters.is_empty() && !life.is_closed() {
            self.wake.wait_until(&mut queue, until);
        }
    }

    /// Waits until the origin is to be tried again: `until`, or from `earliest` on when somebody
    /// waits who did not when there had been `arrivals`; or for the volume to be closed.
    pub(crate) fn wait_for_retry(
        &self,
        life: &Life,
        arrivals: u64,
        earliest: Instant,
        until: Instant,
    ) {
        let mut queue = self.lock();
        while !life.is_closed() {
            let until = if queue.arrivals == arrivals { until } else { until.min(earliest) };
            if Instant::now() >= until || self.wake.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// Waits until a fold goes on.
    ///
    /// # Errors
    /// [`OverlayError::Unavailable`] when the fold is to be given up, or the volume is closed.
    pub(crate) fn wait_for_fold(&self, life: &Life, until: Instant) -> Result<(), OverlayError> {
        let mut queue = self.lock();
        loop {
            if life.is_closed() || self.is_fold_unwanted.load(Ordering::Acquire) {
                return Err(OverlayError::Unavailable("the fold was given up".to_owned()));
            }
            if Instant::now() >= until {
                return Ok(());
            }
            self.wake.wait_until(&mut queue, until);
        }
    }

    /// Has a fold that is under way given up, or no longer.
    pub(crate) fn set_fold_unwanted(&self, is_unwanted: bool) {
        let _queue = self.lock();
        self.is_fold_unwanted.store(is_unwanted, Ordering::Release);
        self.wake.notify_all();
    }

    /// Waits for the volume to be closed, or `until`.
    pub(crate) fn wait_for_close(&self, life: &Life, until: Instant) {
        let mut queue = self.lock();
        while !life.is_closed() && !self.wake.wait_until(&mut queue, until).timed_out() {}
    }
}
