//! Giving space back: what is alive in a mostly dead segment is copied to the head, and the
//! segment is removed once a checkpoint no longer needs it.

use std::io;
use std::sync::Arc;

use crate::OverlayError;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::record::{
    HEADER_LEN, NewRecord, RECORDS_OFFSET, RecordHeader, RecordKind, SECTOR,
};
use crate::segments::record_log::{AppendError, RecordLog, append_error};
use crate::segments::segment::Segment;

/// Copies what is alive of a log to its head.
pub(crate) struct Reclaimer<'a>(pub(crate) &'a RecordLog);

impl Reclaimer<'_> {
    /// Empties the segment with the least alive, if that is at most `live_percent_max` of it.
    pub(crate) fn one(&self, live_percent_max: u64) -> Result<bool, OverlayError> {
        let head = self.0.head().segment.number;
        let candidate = {
            let map = self.0.map();
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
        let step = self.0.files.quota.sizes.record_bytes();
        let mut sectors = 0;
        if !self.0.has_room() {
            // The segment that copies may use is kept for those that give space back.
            return Err(AppendError::NoSpace);
        }
        let mut head = self.0.head();
        let unchanged = self.0.map().unchanged(damaged);
        for extent in unchanged {
            let (from, to) = (extent.start - damaged.start, extent.end - damaged.start);
            let part = &content[(from * SECTOR) as usize..(to * SECTOR) as usize];
            for (bytes, number) in part.chunks(step).zip(0..) {
                let first = extent.start + number * step as u64 / SECTOR;
                self.0.append(&mut head, &NewRecord::data(true, first, bytes))?;
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
            let map = self.0.map();
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
        let mut head = self.0.head();
        for extent in live() {
            let (from, to) = (extent.start - start, extent.end - start);
            let part = &payload[(from * SECTOR) as usize..(to * SECTOR) as usize];
            let copy = NewRecord::data(true, extent.start, part);
            self.0.append(&mut head, &copy).map_err(append_error)?;
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
