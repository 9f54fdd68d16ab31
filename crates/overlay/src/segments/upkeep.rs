//! Upkeep of a local log: what keeps it short, and gives its space back.

use std::sync::Arc;
use std::time::Instant;

use acstor_types::DiskId;
use parking_lot::Mutex;

use crate::segments::checkpoints::{Checkpoints, DEAD_MIN};
use crate::segments::reclaim::Reclaimer;
use crate::segments::record_log::{RecordLog, append_error};
use crate::segments::segment::Segment;
use crate::segments::writeback::Writeback;
use crate::{OverlayError, limits};

/// Share of a segment that may be alive for it to be worth copying, per cent.
const LIVE_PERCENT_EAGER: u64 = 50;
const LIVE_PERCENT_URGENT: u64 = 90;

/// The upkeep of one log.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// One checkpoint or reclaiming at a time.
    turn: Mutex<()>,
    pub(crate) writeback: Writeback,
    pub(crate) checkpoints: Checkpoints,
}

impl Upkeep {
    /// That of a log whose last sequence number is `last`.
    pub(crate) fn new(last: u64) -> Upkeep {
        let (writeback, checkpoints) = (Writeback::default(), Checkpoints::new(last));
        Upkeep { turn: Mutex::new(()), writeback, checkpoints }
    }

    /// Returns once what is under way has ended.
    pub(crate) fn wait(&self) {
        drop(self.turn.lock());
    }

    /// Writes a checkpoint, then takes out the segments that it makes superfluous.
    pub(crate) fn checkpoint(
        &self,
        records: &RecordLog,
        volume: DiskId,
        epoch: u32,
    ) -> Result<(), OverlayError> {
        let _turn = self.turn.lock();
        self.checkpoints.write(records, volume, epoch)
    }

    /// Makes a spare segment, reclaims when a large part of the log is dead, writes a checkpoint when
    /// `checkpoint_bytes` were appended since the last.
    pub(crate) fn keep(
        &self,
        records: &RecordLog,
        (volume, epoch): (DiskId, u32),
        checkpoint_bytes: u64,
    ) -> Result<(), OverlayError> {
        records.prepare_spare().map_err(append_error)?;
        let _turn = self.turn.lock();
        while is_mostly_dead(records) && Reclaimer(records).one(LIVE_PERCENT_EAGER)? {}
        if self.checkpoints.is_due(records, checkpoint_bytes) {
            self.checkpoints.write(records, volume, epoch)?;
        }
        Ok(())
    }

    /// Starts writing what is old, writes a checkpoint that is late, and gives dead segments back when
    /// nobody needs them, or somebody else does.
    pub(crate) fn ease(
        &self,
        records: &RecordLog,
        volume: DiskId,
        epoch: u32,
    ) -> Result<(), OverlayError> {
        let now = Instant::now();
        self.writeback.start(records, now);
        let checkpoints = &self.checkpoints;
        let is_wanted = records.files.pool.is_idle(now) || !records.files.has_plenty();
        let is_push_untold = checkpoints.is_push_untold(records, now);
        let is_untold = checkpoints.is_flush_untold(records, now) || is_push_untold;
        if records.is_failed() || !is_wanted && !is_untold && !checkpoints.is_late(records, now) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        if is_push_untold {
            // Whether it comes about or not: a disk that is full is not tried at each look.
            records.head().is_as_opened = false;
        }
        let is_due = is_untold || checkpoints.is_late(records, now);
        if is_due || records.dead_segments() as u64 >= DEAD_MIN {
            checkpoints.write(records, volume, epoch)?;
        }
        if is_wanted { records.files.drain() } else { Ok(()) }
    }

    /// Lets another one have the directory, once nobody frees anything in it; who is to, later, does not.
    pub(crate) fn close(&self, records: &RecordLog) {
        let _turn = self.turn.lock();
        records.head().is_closed = true;
        records.files.disk.unlock();
    }

    /// Frees segments for a writer that found no room; false when there is nothing to free. In a log
    /// that was closed meanwhile nothing is done: the writer finds that out when it tries again.
    pub(crate) fn make_room(
        &self,
        records: &RecordLog,
        volume: DiskId,
        epoch: u32,
    ) -> Result<bool, OverlayError> {
        let _turn = self.turn.lock();
        if records.head().is_closed || records.has_room() {
            return Ok(true);
        }
        records.give_spare_back()?;
        if records.dead_segments() == 0 {
            Reclaimer(records).one(LIVE_PERCENT_URGENT)?;
        }
        if records.dead_segments() == 0 {
            return Ok(false);
        }
        self.checkpoints.write(records, volume, epoch)?;
        Ok(records.has_room())
    }

    /// Frees segments of a log that has no checkpoint yet: nobody recovers from it, so what is dead
    /// goes at once. There may be no room after it.
    pub(crate) fn make_room_unsaved(&self, records: &RecordLog) -> Result<(), OverlayError> {
        if records.has_room() {
            return Ok(());
        }
        let _turn = self.turn.lock();
        while !records.has_room() {
            if records.dead_segments() == 0 && !Reclaimer(records).one(LIVE_PERCENT_URGENT)? {
                break;
            }
            let head = records.head().segment.number;
            let is_dead = |s: &&Arc<Segment>| s.number < head && s.live() == 0;
            let dead: Vec<u32> =
                records.map().segments.values().filter(is_dead).map(|s| s.number).collect();
            // Nothing of them is to be synced; who waits for that holds their space.
            records.head().unsynced.retain(|segment| !dead.contains(&segment.number));
            dead.into_iter().try_for_each(|number| records.retire(number))?;
        }
        Ok(())
    }
}

/// Returns whether the log is longer than it may be for what is alive in it. What is dead
/// altogether needs no copying.
fn is_mostly_dead(records: &RecordLog) -> bool {
    let (segments, live) = records.segments_and_live();
    let segments = segments.saturating_sub(records.dead_segments() as u64);
    let segment_bytes = records.files.quota.sizes.segment_bytes;
    let (factor, more) = (limits::COMPACTION_FACTOR, limits::COMPACTION_SEGMENTS);
    segments * segment_bytes > factor * live + more * segment_bytes
}
