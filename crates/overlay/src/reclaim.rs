//! Giving space back: what is alive in a mostly dead segment is copied to the head, and the
//! segment is removed once a checkpoint no longer needs it.

use std::sync::Arc;

use acstor_types::DiskId;

use crate::OverlayError;
use crate::extent_map::{Extent, Place};
use crate::log::{AppendError, LocalLog};
use crate::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, RecordKind, SECTOR};
use crate::segment::Segment;

/// Share of a segment that may be alive for it to be worth copying, per cent.
const LIVE_PERCENT_EAGER: u64 = 50;
const LIVE_PERCENT_URGENT: u64 = 90;

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
        self.start_writeback();
        let _turn = self.keep_turn.lock();
        let mut is_due = self.head.lock().since_checkpoint >= checkpoint_bytes;
        while self.is_mostly_dead() && self.reclaim_one(LIVE_PERCENT_EAGER)? {
            is_due = true;
        }
        is_due |= self.dead_segments() >= 2;
        if is_due {
            self.checkpoint_in_turn(volume, epoch)?;
        }
        Ok(())
    }

    /// Frees segments for a writer that found no room; false when there is nothing to free.
    pub(crate) fn make_room(&self, volume: DiskId, epoch: u32) -> Result<bool, OverlayError> {
        let _turn = self.keep_turn.lock();
        if self.has_room() {
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
            let dead: Vec<_> =
                self.map.read().segments.values().filter(is_dead).map(|s| s.number).collect();
            dead.into_iter().try_for_each(|number| self.retire(number))?;
        }
        Ok(())
    }

    /// A log may be twice as long as what is alive in it, and four segments.
    fn is_mostly_dead(&self) -> bool {
        let (segments, live) = self.segments_and_live();
        segments * self.config.segment_bytes > 2 * live + 4 * self.config.segment_bytes
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

    fn dead_segments(&self) -> usize {
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
                segment.set_damaged();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn copy_live(&self, segment: &Arc<Segment>) -> Result<(), OverlayError> {
        let io = |error| OverlayError::io("read a segment of the local log", error);
        let mut offset = RECORDS_OFFSET;
        let mut bytes = [0; HEADER_LEN];
        while offset + HEADER_LEN as u64 <= segment.size_bytes && segment.live() > 0 {
            segment.file.read_exact_at(&mut bytes, offset).map_err(io)?;
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
        let read = segment.file.read_exact_at(&mut payload, offset);
        read.map_err(|error| OverlayError::io("read a segment of the local log", error))?;
        if crc32fast::hash(&payload) != record.payload_crc {
            return Err(damaged(segment, offset));
        }
        // Writers wait while one record is copied, and no longer.
        let mut head = self.head.lock();
        for extent in live() {
            let (from, to) = (extent.start - start, extent.end - start);
            let part = &payload[(from * SECTOR) as usize..(to * SECTOR) as usize];
            self.append(&mut head, RecordKind::Data, true, extent.start, to - from, part)
                .map_err(append_error)?;
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
        AppendError::Failed | AppendError::Frozen => OverlayError::Unavailable(error.to_string()),
    }
}
