//! Giving space back: what is alive in a mostly dead segment is copied to the head, and the
//! segment is removed once a checkpoint no longer needs it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use acstor_types::DiskId;

use crate::log::{AppendError, LocalLog};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::pool::DEAD_MIN;
use crate::segments::record::{
    HEADER_LEN, NewRecord, RECORDS_OFFSET, RecordHeader, RecordKind, SECTOR,
};
use crate::segments::segment::Segment;
use crate::{OverlayError, limits};

/// Share of a segment that may be alive for it to be worth copying, per cent.
const LIVE_PERCENT_EAGER: u64 = 50;
const LIVE_PERCENT_URGENT: u64 = 90;
/// Time after which less is worth a checkpoint, and as little as there is where nothing more comes; what is older than half of it is on its way to the
/// disk.
const LATE: Duration = Duration::from_secs(10);

impl LocalLog {
    /// Does what keeps the log short: a spare segment, a checkpoint when `checkpoint_bytes` were
    /// appended since the last, reclaiming when a large part of the log is dead.
    pub(crate) fn keep(
        &self,
        volume: DiskId,
        epoch: u32,
        checkpoint_bytes: u64,
    ) -> Result<(), OverlayError> {
        self.prepare_spare().map_err(append_error)?;
        let _turn = self.keep_turn.lock();
        while self.is_mostly_dead() && self.reclaim_one(LIVE_PERCENT_EAGER)? {}
        if self.is_checkpoint_due(checkpoint_bytes) {
            self.checkpoint_in_turn(volume, epoch)?;
        }
        Ok(())
    }

    /// Returns whether as much was appended as pays for a checkpoint, or segments are dead that are
    /// worth one.
    fn is_checkpoint_due(&self, checkpoint_bytes: u64) -> bool {
        let (appended, apart, _) = self.since_checkpoint();
        appended >= checkpoint_bytes.max(apart) || self.dead_segments() as u64 >= self.dead_max()
    }

    /// Returns whether much of a recovery is a scan of what was written some time ago: a checkpoint
    /// syncs little more then, and none of it was overwritten quickly.
    pub(crate) fn is_checkpoint_late(&self, now: Instant) -> bool {
        let (appended, apart, at) = self.since_checkpoint();
        let late_bytes = limits::CHECKPOINT_LATE_BYTES.min(self.config.segment_bytes * 4);
        appended >= late_bytes.max(apart) && now.duration_since(at) >= LATE
    }

    /// Returns whether everything was flushed some time ago, and no record has come since that says so:
    /// what of it rots would be taken for torn. A checkpoint says so, where it is worth it.
    pub(crate) fn is_flush_untold(&self, now: Instant) -> bool {
        let (appended, apart, _) = self.since_checkpoint();
        let last = self.appended();
        let mut seen = self.seen.lock();
        if seen.0 != last {
            *seen = (last, now);
        }
        let is_flushed = self.synced() >= last && appended > 0;
        let is_worth_it = appended >= apart && now.duration_since(seen.1) >= LATE;
        if is_flushed && is_worth_it {
            seen.1 = now; // and, where it fails, later again
        }
        is_flushed && is_worth_it
    }

    /// Returns whether the origin has what the newest checkpoint calls dirty: opened again, all that would
    /// be pushed once more. Each byte pays for one such checkpoint, and an opening for one, whatever it
    /// costs: a host that is killed again and again would push the same each time.
    pub(crate) fn is_push_untold(&self, now: Instant) -> bool {
        let (_, apart, at) = self.since_checkpoint();
        let (is_as_opened, (dirty_bytes, last)) = {
            let head = self.head.lock();
            (head.is_as_opened, head.checkpoint_dirty)
        };
        let is_worth_it = dirty_bytes >= apart && now.duration_since(at) >= LATE;
        dirty_bytes > 0
            && self.pushed.load(Ordering::Acquire) >= last
            && (is_as_opened || is_worth_it)
    }

    /// Notes that the origin has everything up to a sequence number that is to travel.
    pub(crate) fn note_pushed(&self, sequence: u64) {
        self.pushed.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Bytes appended since the newest checkpoint, how many there are to be before the next, and when
    /// that one was begun.
    fn since_checkpoint(&self) -> (u64, u64, Instant) {
        let head = self.head.lock();
        let apart = head.checkpoint_bytes * limits::CHECKPOINT_SHARE;
        let apart = apart.min(limits::CHECKPOINT_APART_MAX);
        (head.since_checkpoint, apart, head.checkpoint_at)
    }

    /// Most dead segments before a checkpoint takes them out: as many as the pool has room for. Fewer
    /// where the quota comes near, or the file system, since a writer would wait for them.
    fn dead_max(&self) -> u64 {
        let in_use = self.map.read().segments.len() as u64 + self.pool.len() as u64;
        let room = self.segments_max().saturating_sub(in_use) / 2;
        room.min(self.pool_max()).max(DEAD_MIN)
    }

    /// Lets another one have the directory, once nobody frees anything in it; who is to, later, does not.
    pub(crate) fn close(&self) {
        let _turn = self.keep_turn.lock();
        self.head.lock().is_closed = true;
        self.disk.unlock();
    }

    /// Frees segments for a writer that found no room; false when there is nothing to free. In a log
    /// that was closed meanwhile nothing is done: the writer finds that out when it tries again.
    pub(crate) fn make_room(&self, volume: DiskId, epoch: u32) -> Result<bool, OverlayError> {
        let _turn = self.keep_turn.lock();
        if self.head.lock().is_closed || self.has_room() {
            return Ok(true);
        }
        self.give_spare_back()?;
        if self.dead_segments() == 0 {
            self.reclaim_one(LIVE_PERCENT_URGENT)?;
        }
        if self.dead_segments() == 0 {
            return Ok(false);
        }
        self.checkpoint_in_turn(volume, epoch)?;
        Ok(self.has_room())
    }

    /// Frees segments of a log that has no checkpoint yet: nobody recovers from it, so what is dead
    /// goes at once. There may be no room after it.
    pub(crate) fn make_room_unsaved(&self) -> Result<(), OverlayError> {
        if self.has_room() {
            return Ok(());
        }
        let _turn = self.keep_turn.lock();
        while !self.has_room() {
            if self.dead_segments() == 0 && !self.reclaim_one(LIVE_PERCENT_URGENT)? {
                break;
            }
            let head = self.head.lock().segment.number;
            let is_dead = |s: &&Arc<Segment>| s.number < head && s.live() == 0;
            let dead: Vec<u32> =
                self.map.read().segments.values().filter(is_dead).map(|s| s.number).collect();
            // Nothing of them is to be synced; who waits for that holds their space.
            self.head.lock().unsynced.retain(|segment| !dead.contains(&segment.number));
            dead.into_iter().try_for_each(|number| self.retire(number))?;
        }
        Ok(())
    }

    /// Whether the log is longer than it may be for what is alive in it. What is dead altogether needs
    /// no copying.
    fn is_mostly_dead(&self) -> bool {
        let (segments, live) = self.segments_and_live();
        let segments = segments.saturating_sub(self.dead_segments() as u64);
        let (factor, more) = (limits::COMPACTION_FACTOR, limits::COMPACTION_SEGMENTS);
        segments * self.config.segment_bytes > factor * live + more * self.config.segment_bytes
    }

    fn has_room(&self) -> bool {
        let is_in_quota = (self.map.read().segments.len() as u64) < self.segments_max() - 1;
        is_in_quota && self.can_make_segment()
    }

    /// On a full file system what is kept ready is what a checkpoint can be written in.
    fn give_spare_back(&self) -> Result<(), OverlayError> {
        self.drain_pool()?;
        let Some(spare) = self.head.lock().spare.take() else { return Ok(()) };
        self.remove_segment(spare.number)
    }

    /// Bytes of the segments, those that are kept for reuse included, and bytes that are alive.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let kept = self.pool.len() as u64 + u64::from(self.head.lock().spare.is_some());
        let (segments, live) = self.segments_and_live();
        ((segments + kept) * self.config.segment_bytes, live)
    }

    /// Number of segments that are in use, and bytes of them that are alive.
    fn segments_and_live(&self) -> (u64, u64) {
        let map = self.map.read();
        let live = map.segments.values().map(|segment| segment.live()).sum();
        (map.segments.len() as u64, live)
    }

    pub(crate) fn dead_segments(&self) -> usize {
        let head = self.head.lock().segment.number;
        let map = self.map.read();
        map.segments.values().filter(|s| s.number < head && s.live() == 0).count()
    }

    /// Empties the segment with the least alive, if that is at most `live_percent_max` of it.
    pub(crate) fn reclaim_one(&self, live_percent_max: u64) -> Result<bool, OverlayError> {
        let head = self.head.lock().segment.number;
        let candidate = {
            let map = self.map.read();
            let is_full = |s: &&Arc<Segment>| s.number < head && s.live() > 0 && !s.is_damaged();
            map.segments.values().filter(is_full).min_by_key(|segment| segment.live()).cloned()
        };
        let Some(segment) = candidate else { return Ok(false) };
        if segment.live() * 100 > segment.size_bytes * live_percent_max {
            return Ok(false);
        }
        match self.copy_live(&segment) {
            Ok(()) => Ok(segment.live() == 0),
            Err(OverlayError::NoSpace(_)) => Ok(false),
            Err(error @ OverlayError::Corrupt(_)) => {
                // What is damaged stays as it is; the next look takes another segment.
                segment.set_damaged(true);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts content that the origin has over a damaged extent, where the map still refers to that;
    /// returns how many sectors that were.
    pub(crate) fn put_back(&self, damaged: &Extent, content: &[u8]) -> Result<u64, AppendError> {
        let step = self.config.record_bytes();
        let mut sectors = 0;
        if !self.has_room() {
            // The segment that copies may use is kept for those that give space back.
            return Err(AppendError::NoSpace);
        }
        let mut head = self.head.lock();
        let unchanged = self.map.read().unchanged(damaged);
        for extent in unchanged {
            let (from, to) = (extent.start - damaged.start, extent.end - damaged.start);
            let part = &content[(from * SECTOR) as usize..(to * SECTOR) as usize];
            for (bytes, number) in part.chunks(step).zip(0..) {
                let first = extent.start + number * step as u64 / SECTOR;
                self.append(&mut head, &NewRecord::data(true, first, bytes))?;
                sectors += bytes.len() as u64 / SECTOR;
            }
        }
        Ok(sectors)
    }

    fn copy_live(&self, segment: &Arc<Segment>) -> Result<(), OverlayError> {
        let io = |error| OverlayError::io("read a segment of the local log", error);
        let mut offset = RECORDS_OFFSET;
        let mut bytes = [0; HEADER_LEN];
        while offset + HEADER_LEN as u64 <= segment.size_bytes && segment.live() > 0 {
            segment.read_raw(offset, &mut bytes).map_err(io)?;
            let record = RecordHeader::parse(&bytes).filter(|r| r.salt == segment.salt);
            let Some(record) = record else { break };
            offset += HEADER_LEN as u64;
            if record.kind == RecordKind::Data {
                self.copy_record(segment, &record, offset)?;
            }
            offset += record.payload_len();
        }
        if segment.live() > 0 {
            return Err(damaged(segment, offset));
        }
        Ok(())
    }

    /// Copies what is alive of the record whose payload is at `offset`.
    fn copy_record(
        &self,
        segment: &Arc<Segment>,
        record: &RecordHeader,
        offset: u64,
    ) -> Result<(), OverlayError> {
        let (start, end) = (record.first_sector, record.end_sector());
        let here = Place::Log { segment: segment.number, offset };
        let live = || -> Vec<Extent> {
            let map = self.map.read();
            let is_here = |e: &Extent| e.place == here.advance(e.start - start);
            map.extents.range(start, end).filter(is_here).collect()
        };
        if live().is_empty() {
            return Ok(());
        }
        let mut payload = vec![0; record.payload_len() as usize];
        segment.read_checked(offset, &mut payload).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(segment, offset),
            _ => OverlayError::io("read a segment of the local log", error),
        })?;
        // Writers wait while one record is copied, and no longer.
        let mut head = self.head.lock();
        for extent in live() {
            let (from, to) = (extent.start - start, extent.end - start);
            let part = &payload[(from * SECTOR) as usize..(to * SECTOR) as usize];
            let copy = NewRecord::data(true, extent.start, part);
            self.append(&mut head, &copy).map_err(append_error)?;
        }
        Ok(())
    }
}

fn damaged(segment: &Segment, offset: u64) -> OverlayError {
    let name = Segment::file_name(segment.number);
    OverlayError::Corrupt(format!(
        "{name} of the local log is damaged at byte {offset}: check the disk"
    ))
}

pub(crate) fn append_error(error: AppendError) -> OverlayError {
    match error {
        AppendError::NoSpace => OverlayError::NoSpace("the local log of a volume".into()),
        AppendError::Io(source) => OverlayError::io("write the local log", source),
        AppendError::Failed | AppendError::Frozen | AppendError::TooManyExtents => {
            OverlayError::Unavailable(error.to_string())
        }
    }
}
