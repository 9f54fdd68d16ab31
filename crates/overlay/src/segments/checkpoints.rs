//! The checkpoints of a local log: when one is due, and writing it while writes go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_types::DiskId;
use parking_lot::Mutex;

use crate::segments::checkpoint::{CHECKPOINT, CHECKPOINT_NEW, CheckpointHeader, Writer};
use crate::segments::record_log::RecordLog;
use crate::segments::segment::Segment;
use crate::{OverlayError, limits};

/// Dead segments that are worth a checkpoint wherever room is short.
pub(crate) const DEAD_MIN: u64 = 2;
/// Time after which less is worth a checkpoint, and as little as there is where nothing more comes; what
/// is older than half of it is on its way to the disk.
const LATE: Duration = Duration::from_secs(10);

/// Facts that decide on checkpoints, beside the records themselves.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Everything up to this sequence number that is to travel is on the origin.
    pushed: AtomicU64,
    /// The last sequence number that was seen, and since when.
    pub(crate) seen: Mutex<(u64, Instant)>,
}

impl Checkpoints {
    /// Those of a log whose last sequence number is `last`.
    pub(crate) fn new(last: u64) -> Checkpoints {
        Checkpoints { pushed: AtomicU64::new(0), seen: Mutex::new((last, Instant::now())) }
    }

    /// Notes that the origin has everything up to a sequence number that is to travel.
    pub(crate) fn note_pushed(&self, sequence: u64) {
        self.pushed.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Returns whether as much was appended as pays for a checkpoint, or segments are dead that are
    /// worth one.
    pub(crate) fn is_due(&self, records: &RecordLog, checkpoint_bytes: u64) -> bool {
        let (appended, apart, _) = since_checkpoint(records);
        appended >= checkpoint_bytes.max(apart)
            || records.dead_segments() as u64 >= dead_max(records)
    }

    /// Returns whether much of a recovery is a scan of what was written some time ago: a checkpoint
    /// syncs little more then, and none of it was overwritten quickly.
    pub(crate) fn is_late(&self, records: &RecordLog, now: Instant) -> bool {
        let (appended, apart, at) = since_checkpoint(records);
        let late_bytes =
            limits::CHECKPOINT_LATE_BYTES.min(records.files.quota.sizes.segment_bytes * 4);
        appended >= late_bytes.max(apart) && now.duration_since(at) >= LATE
    }

    /// Returns whether everything was flushed some time ago, and no record has come since that says so:
    /// what of it rots would be taken for torn. A checkpoint says so, where it is worth it.
    pub(crate) fn is_flush_untold(&self, records: &RecordLog, now: Instant) -> bool {
        let (appended, apart, _) = since_checkpoint(records);
        let last = records.appended();
        let mut seen = self.seen.lock();
        if seen.0 != last {
            *seen = (last, now);
        }
        let is_flushed = records.synced() >= last && appended > 0;
        let is_worth_it = appended >= apart && now.duration_since(seen.1) >= LATE;
        if is_flushed && is_worth_it {
            seen.1 = now; // and, where it fails, later again
        }
        is_flushed && is_worth_it
    }

    /// Returns whether the origin has what the newest checkpoint calls dirty: opened again, all that would
    /// be pushed once more. Each byte pays for one such checkpoint, and an opening for one, whatever it
    /// costs: a host that is killed again and again would push the same each time.
    pub(crate) fn is_push_untold(&self, records: &RecordLog, now: Instant) -> bool {
        let (_, apart, at) = since_checkpoint(records);
        let (is_as_opened, (dirty_bytes, last)) = {
            let head = records.head();
            (head.is_as_opened, head.checkpoint_dirty)
        };
        let is_worth_it = dirty_bytes >= apart && now.duration_since(at) >= LATE;
        dirty_bytes > 0
            && self.pushed.load(Ordering::Acquire) >= last
            && (is_as_opened || is_worth_it)
    }

    /// Writes a checkpoint, then takes out the segments that it makes superfluous. One at a time.
    pub(crate) fn write(
        &self,
        records: &RecordLog,
        volume: DiskId,
        epoch: u32,
    ) -> Result<(), OverlayError> {
        let (header, dead, appended) = {
            let mut head = records.head();
            let map = records.map();
            let header = CheckpointHeader {
                log_id: records.files.log_id,
                volume,
                epoch,
                segment: head.segment.number,
                offset: head.offset,
                next_sequence: head.next_sequence,
            };
            // What dies later may still be named by an extent that was copied before.
            let is_dead = |s: &&Arc<Segment>| s.number < header.segment && s.live() == 0;
            let dead: Vec<_> = map.segments.values().filter(is_dead).map(|s| s.number).collect();
            let appended = std::mem::take(&mut head.since_checkpoint);
            head.checkpoint_at = Instant::now();
            (header, dead, appended)
        };
        let written = write_file(records, &header, &dead);
        match written {
            Ok((bytes, dirty_bytes)) => {
                let mut head = records.head();
                head.checkpoint_bytes = bytes;
                head.checkpoint_dirty = (dirty_bytes, header.next_sequence - 1);
            }
            Err(error) => {
                records.head().since_checkpoint += appended;
                return Err(error);
            }
        }
        dead.into_iter().try_for_each(|number| records.retire(number))
    }
}

/// Writes the file and what it refers to; returns its length and how many bytes it calls dirty.
/// `dead`: segments that no extent refers to, nor a scan from the position on. What only they hold
/// need not reach the disk.
fn write_file(
    records: &RecordLog,
    header: &CheckpointHeader,
    dead: &[u32],
) -> Result<(u64, u64), OverlayError> {
    let io = |error| OverlayError::io("write the checkpoint", error);
    let file = records.files.disk.create(CHECKPOINT_NEW, 0).map_err(io)?;
    let mut writer = Writer::begin(&*file, header).map_err(io)?;
    let mut after = None;
    loop {
        let step = records.map().extents.after(after, limits::CHECKPOINT_STEP);
        let Some(last) = step.last() else { break };
        after = Some(last.start);
        for extent in &step {
            writer.extent(extent).map_err(io)?;
        }
        if writer.extents > limits::CHECKPOINT_EXTENTS_MAX {
            return Err(OverlayError::NoSpace("more extents in one checkpoint".into()));
        }
    }
    // What becomes dirty from now on lies behind the position in the log.
    let (mut at, mut dirty_bytes) = (0, 0);
    loop {
        let step = records.map().dirty_from(at, limits::CHECKPOINT_STEP);
        let Some((_, end)) = step.last() else { break };
        at = *end;
        for (start, end) in step {
            dirty_bytes += (end - start) * crate::SECTOR_BYTES;
            writer.range(start, end).map_err(io)?;
        }
    }
    // Everything that an extent may refer to must outlive what the file outlives.
    let synced = records.sync_but(dead).map_err(|e| OverlayError::Unavailable(e.to_string()))?;
    let len = writer.end().map_err(io)?;
    records.files.disk.rename(CHECKPOINT_NEW, CHECKPOINT).map_err(io)?;
    records.files.disk.sync().map_err(io)?;
    records.checkpoint_covers(synced, dead);
    Ok((len, dirty_bytes))
}

/// Bytes appended since the newest checkpoint, how many there are to be before the next, and when
/// that one was begun.
fn since_checkpoint(records: &RecordLog) -> (u64, u64, Instant) {
    let head = records.head();
    let apart = head.checkpoint_bytes * limits::CHECKPOINT_SHARE;
    let apart = apart.min(limits::CHECKPOINT_APART_MAX);
    (head.since_checkpoint, apart, head.checkpoint_at)
}

/// Most dead segments before a checkpoint takes them out: as many as the pool has room for. Fewer
/// where the quota comes near, or the file system, since a writer would wait for them.
fn dead_max(records: &RecordLog) -> u64 {
    let in_use = records.map().segments.len() as u64 + records.files.pool.len() as u64;
    let room = records.files.quota.segments_max().saturating_sub(in_use) / 2;
    room.min(records.files.kept_max()).max(DEAD_MIN)
}
