//! The compaction thread of a volume: keeps its local log short, looks up partitions, and tells of
//! requests that wait for long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::core::{Core, TABLE_LOOK};
use crate::limits;
use crate::log::LocalLog;
use crate::volume_threads::LOOK_AROUND;

/// Time after which content is read again that a push had to leave out.
const DAMAGED_AGAIN: Duration = Duration::from_secs(60);

/// Signals to the compaction thread of a volume, and the locks that keep it from beginning anything
/// long.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    queue: Mutex<()>,
    wake: Condvar,
    /// Held from the look whether it is to be quiet to the end of what is done.
    round: Mutex<()>,
    /// Releases at hand: nothing long begins meanwhile.
    releases: AtomicU32,
}

impl Compaction {
    /// Wakes the thread up, however short before it is to wait: what it is to see was stored before.
    pub(crate) fn wake(&self) {
        drop(self.queue.lock());
        self.wake.notify_all();
    }

    /// Wakes the thread up where it waits, without a lock: for what it sees by itself soon.
    pub(crate) fn nudge(&self) {
        self.wake.notify_all();
    }

    /// Waits for a wake-up, `pause` at most, if `is_idle` says so once nobody can miss the thread.
    fn rest(&self, is_idle: impl FnOnce() -> bool, pause: impl FnOnce() -> Duration) {
        let mut queue = self.queue.lock();
        if is_idle() {
            self.wake.wait_for(&mut queue, pause());
        }
    }

    /// Begins a time in which nothing long begins; blocks until what is under way has ended.
    pub(crate) fn begin_quiet(&self, log: &LocalLog) {
        self.releases.fetch_add(1, Ordering::AcqRel);
        drop(self.round.lock());
        log.wait_for_upkeep();
    }

    /// Ends what [`Compaction::begin_quiet`] has begun.
    pub(crate) fn end_quiet(&self) {
        self.releases.fetch_sub(1, Ordering::AcqRel);
        self.wake.notify_all();
    }

    fn is_quiet(&self) -> bool {
        self.releases.load(Ordering::Acquire) > 0
    }
}

/// Keeps the local log short, until the volume is closed.
pub(crate) fn compact_until_closed(core: &Core) {
    while !core.is_closed() {
        core.fail_waiters_with_log();
        core.tell_of_waiting();
        if let Some(until) = Instant::now().checked_sub(DAMAGED_AGAIN)
            && !core.log.map().undelivered().is_empty()
        {
            core.log.map_mut().retry_undelivered(until);
        }
        let mut look_again = TABLE_LOOK;
        if core.regions.take_due()
            && let Err(error) = core.learn_partitions()
        {
            tracing::warn!(volume = %core.volume, %error, "cannot read partitions");
            core.note_trouble(Some(format!("partitions: {error}")));
            core.regions.set_due();
            look_again = LOOK_AROUND;
        }
        compact(core);
        let is_wanted = || core.log.wants_keep() && !core.compaction.is_quiet();
        core.compaction.rest(
            || !core.is_closed() && !is_wanted(),
            || if core.regions.is_due() { look_again } else { LOOK_AROUND },
        );
    }
}

/// Does what keeps the local log short and is due, unless requests are about to wait for the disk.
pub(crate) fn compact(core: &Core) {
    let _round = core.compaction.round.lock();
    if core.compaction.is_quiet() {
        return;
    }
    let checkpoint_bytes = limits::CHECKPOINT_BYTES.min(core.config.segment_bytes * 16);
    if core.log.take_wants_keep()
        && let Err(error) = core.log.keep(core.volume, core.epoch, checkpoint_bytes)
    {
        tracing::warn!(volume = %core.volume, %error, "cannot keep the local log short");
        core.note_trouble(Some(format!("local log: {error}")));
    }
    if let Err(error) = core.log.ease(core.volume, core.epoch) {
        tracing::warn!(volume = %core.volume, %error, "cannot give space back");
    }
}
