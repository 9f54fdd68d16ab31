//! A cut on its way to the origin: what of it is in an object already, and the content of the next one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;

use crate::OverlayError;
use crate::limits;
use crate::push::cadence::Pace;
use crate::push::origin_log::ObjectBody;
use crate::segments::checked_read::CheckedReader;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::record::SECTOR;
use crate::segments::segment::Segment;

/// Times that content is read before a batch goes on without it.
const READS_MAX: u32 = 3;

/// One cut on its way.
pub(crate) struct Batch {
    /// `None`: regions have changed since, so it counts for no group and may overlap any.
    pub(crate) groups: Option<u32>,
    pub(crate) through: u64,
    pub(crate) extents: Vec<Extent>,
    pub(crate) segments: HashMap<u32, Arc<Segment>>,
    /// First extent that is not in an object yet, and how many of its sectors are.
    pub(crate) position: (usize, u64),
    /// The object that must go into the next slot, whatever happens.
    pub(crate) object: Option<BatchObject>,
    /// Pace of the next object, if nobody waits for it.
    pub(crate) pace: Option<Pace>,
    /// Bytes that are in no object yet.
    pub(crate) left: u64,
    pub(crate) reader: CheckedReader,
    /// Attempts in a row at an object that a read has failed.
    pub(crate) failures: u32,
    /// Time of the first failed read.
    pub(crate) failing_since: Option<Instant>,
    /// Ranges that are left out: they cannot be read, or are not what was written.
    pub(crate) left_out: Vec<(u64, u64)>,
}

/// An object of a batch, ready to be stored.
pub(crate) struct BatchObject {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) is_last: bool,
    /// Bytes of the batch that it holds, before compression.
    pub(crate) content_bytes: u64,
}

impl Batch {
    /// Returns the next object's records, and whether they are the last. After an error the batch is
    /// where it was: what was collected for an object that did not come about is collected again.
    pub(crate) fn next_body(
        &mut self,
        object_bytes: usize,
        unreadable_time: Duration,
    ) -> Result<(ObjectBody, bool), OverlayError> {
        let before = (self.position, self.pace, self.left, self.left_out.len());
        let body = self.collect(object_bytes, unreadable_time);
        if body.is_err() {
            (self.position, self.pace, self.left, _) = before;
            self.left_out.truncate(before.3);
            self.failures += 1;
            self.failing_since.get_or_insert_with(Instant::now);
        } else {
            self.failures = 0;
            if self.left_out.len() == before.3 {
                self.failing_since = None;
            }
        }
        body
    }

    fn collect(
        &mut self,
        object_bytes: usize,
        unreadable_time: Duration,
    ) -> Result<(ObjectBody, bool), OverlayError> {
        let mut body = ObjectBody::default();
        // A long run in an object that is to be small is several records.
        let record_bytes_max =
            object_bytes.clamp(limits::LOG_RECORD_BYTES_MAX / 16, limits::LOG_RECORD_BYTES_MAX);
        let mut run = Vec::new();
        while let Some(extent) = self.extents.get(self.position.0).copied() {
            if body.is_full(object_bytes) {
                return Ok((body, false));
            }
            let start = extent.start + self.position.1;
            if extent.place == Place::Zero {
                body.push_zeroes(start * SECTOR, (extent.end - start) * SECTOR);
                self.position = (self.position.0 + 1, 0);
                self.note(record_bytes(&extent));
                continue;
            }
            match self.fill_run(start, record_bytes_max, &mut run) {
                Ok(()) => {
                    body.push_data(start * SECTOR, &run);
                    self.note(run.len() as u64);
                }
                Err(error)
                    if error.kind() != io::ErrorKind::InvalidData
                        && !self.is_given_up(unreadable_time) =>
                {
                    return Err(OverlayError::io("read the local log", error));
                }
                Err(error) => self.leave_out(start, extent.end, &error),
            }
        }
        Ok((body, true))
    }

    /// Returns whether reads have failed so often, and for so long, that the others are to wait no
    /// more.
    fn is_given_up(&self, unreadable_time: Duration) -> bool {
        self.failures + 1 >= READS_MAX
            && self.failing_since.is_some_and(|since| since.elapsed() >= unreadable_time)
    }

    /// Goes on without a range that is not what was written, or that cannot be read.
    fn leave_out(&mut self, start: u64, end: u64, error: &io::Error) {
        let (offset, len) = (start * SECTOR, (end - start) * SECTOR);
        tracing::error!(offset, len, %error, "a range of the volume is not pushed");
        self.left_out.push((start, end));
        self.position = (self.position.0 + 1, 0);
        self.note(len);
    }

    fn note(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        if let Some(pace) = &mut self.pace {
            pace.note(bytes);
        }
    }

    /// Collects content that is contiguous on the disk, as much as one record takes; up to what cannot
    /// be read.
    fn fill_run(&mut self, start: u64, bytes_max: usize, run: &mut Vec<u8>) -> io::Result<()> {
        run.clear();
        let mut end = start;
        while let Some(extent) = self.extents.get(self.position.0) {
            let from = extent.start + self.position.1;
            let room = (bytes_max - run.len()) as u64 / SECTOR;
            if from != end || extent.place == Place::Zero || room == 0 {
                break;
            }
            let to = extent.end.min(from + room);
            let at = run.len();
            run.resize(at + ((to - from) * SECTOR) as usize, 0);
            let part = extent.clip(from, to);
            if let Err(error) = self.reader.read(&self.segments, &part, &mut run[at..]) {
                run.truncate(at);
                // What was collected is a record; the next one begins with what failed.
                return if run.is_empty() { Err(error) } else { Ok(()) };
            }
            end = to;
            self.position = if to == extent.end {
                (self.position.0 + 1, 0)
            } else {
                (self.position.0, to - extent.start)
            };
        }
        Ok(())
    }
}

/// Returns the bytes that an extent counts in a batch that is spread over time.
pub(crate) fn record_bytes(extent: &Extent) -> u64 {
    match extent.place {
        Place::Zero => SECTOR,
        Place::Log { .. } => extent.bytes(),
    }
}
