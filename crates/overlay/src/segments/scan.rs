//! The scan of a local log: every record from the checkpoint on, up to the first that may be torn.
//!
//! A record that is not what was written was torn by a crash, or was whole and has rotted since. What
//! was appended after it tells: each record says up to where the log was synced by then. So at the first
//! bad record all later headers are looked at. What was flushed is never dropped: where the header is
//! intact the record counts, and whoever reads its content finds the damage; where it is not nobody
//! knows what was written over, and the log stays closed.
//!
//! Must never: take for flushed what may be torn, drop what was flushed, or change anything.

use std::io;
use std::sync::Arc;

use crate::OverlayError;
use crate::error::GIVE_UP;
use crate::limits;
use crate::segments::disk::LogFile;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, RecordKind};
use crate::segments::record_index::{Window, visit_headers};
use crate::segments::segment::Segment;

/// Bytes without any header after which a segment is taken for ended: the next one after a record lies
/// within 1 MiB. Where a log ends as it should each opening reads as many.
const AHEAD_BYTES: u64 = 8 * limits::RECORD_BYTES_MAX;

/// A file of the log's directory whose own header is damaged: maybe a segment of which the checkpoint
/// knows nothing yet.
#[derive(Debug)]
pub(crate) struct Headless {
    pub number: u32,
    pub file: Arc<dyn LogFile>,
    pub size_bytes: u64,
}

/// Result of a scan.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// The number that comes next.
    pub next_sequence: u64,
    /// Records that were flushed, and whose content is not what was written.
    pub rotten: Vec<Extent>,
}

/// Calls `visit` with every record of `segments` from `offset` of the first on whose sequence number
/// follows the one before, and whose content is what was written or was flushed.
pub(crate) fn scan(
    segments: &[Arc<Segment>],
    headless: &[Headless],
    offset: u64,
    next_sequence: u64,
    visit: impl FnMut(&RecordHeader, Place),
) -> Result<Scanned, OverlayError> {
    let payload = vec![0; limits::RECORD_BYTES_MAX as usize];
    let (flushed_before, rotten) = (None, Vec::new());
    let mut scan =
        Scan { segments, headless, next_sequence, flushed_before, rotten, payload, visit };
    let (mut number, mut from) = (0, offset);
    while number < segments.len() {
        let stop = scan.scan_segment(number, from)?;
        let Some(next) = scan.goes_on_in(number + 1)? else {
            scan.check_end(number, stop)?;
            break;
        };
        (number, from) = (next, RECORDS_OFFSET);
    }
    Ok(Scanned { next_sequence: scan.next_sequence, rotten: scan.rotten })
}

struct Scan<'a, V> {
    segments: &'a [Arc<Segment>],
    headless: &'a [Headless],
    next_sequence: u64,
    /// Every record before this one was flushed; looked for once there is a reason.
    flushed_before: Option<u64>,
    rotten: Vec<Extent>,
    payload: Vec<u8>,
    visit: V,
}

/// End of a segment's records, with the error where it cannot be read further.
struct Stop {
    offset: u64,
    error: Option<io::Error>,
}

/// Records ahead of a place in the log.
struct Ahead {
    flushed_before: u64,
    /// Offset and segment of the first record there that is later than the one that is expected.
    later: Option<(u64, u32)>,
}

impl<V: FnMut(&RecordHeader, Place)> Scan<'_, V> {
    fn scan_segment(&mut self, number: usize, from: u64) -> Result<Stop, OverlayError> {
        let segment = &self.segments[number];
        let mut offset = from;
        let error = loop {
            let record = match header_at(segment, offset, self.next_sequence) {
                Ok(Some(record)) => record,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let at = offset + HEADER_LEN as u64;
            let place = match record.kind {
                RecordKind::Zeroes => Place::Zero,
                RecordKind::Data => Place::Log { segment: segment.number, offset: at },
            };
            match self.compare(segment, &record, at) {
                Ok(true) => {}
                _ if self.is_flushed(number, offset) => {
                    let (start, end) = (record.first_sector, record.end_sector());
                    self.rotten.push(Extent { start, end, place });
                }
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
            (self.visit)(&record, place);
            self.next_sequence += 1;
            offset = at + record.payload_len();
        };
        Ok(Stop { offset, error })
    }

    /// Returns whether the content of a record is what was written.
    fn compare(&mut self, segment: &Segment, record: &RecordHeader, at: u64) -> io::Result<bool> {
        if record.kind == RecordKind::Zeroes {
            return Ok(true);
        }
        let payload = &mut self.payload[..record.payload_len() as usize];
        segment.file.read_exact_at(payload, at)?;
        Ok(crc32fast::hash(payload) == record.payload_crc)
    }

    /// Returns the segment, from `first` on, that begins with the record that is expected.
    fn goes_on_in(&self, first: usize) -> Result<Option<usize>, OverlayError> {
        for (number, segment) in self.segments.iter().enumerate().skip(first) {
            let found = header_at(segment, RECORDS_OFFSET, self.next_sequence);
            if found.map_err(|error| unreadable(segment, RECORDS_OFFSET, error))?.is_some() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Checks that nothing that was flushed is missing where the log ends.
    fn check_end(&mut self, number: usize, stop: Stop) -> Result<(), OverlayError> {
        let segment = &self.segments[number];
        if let Some(error) = stop.error {
            return Err(unreadable(segment, stop.offset, error));
        }
        if !self.is_flushed(number, stop.offset) {
            return Ok(());
        }
        let until = match self.look_ahead(number, stop.offset).later {
            Some((offset, of)) => format!("byte {offset} of {}", Segment::file_name(of)),
            None => "the end".to_owned(),
        };
        Err(OverlayError::Corrupt(format!(
            "the local log is damaged between byte {from} of {name} and {until}: writes that were \
             flushed cannot be found there; nothing was changed. Check the disk and restore the \
             files, or {GIVE_UP}",
            from = stop.offset,
            name = Segment::file_name(segment.number),
        )))
    }

    /// Returns whether the record that is expected, at a place in the log, was flushed.
    fn is_flushed(&mut self, number: usize, offset: u64) -> bool {
        let flushed_before = match self.flushed_before {
            Some(sequence) => sequence,
            None => self.look_ahead(number, offset).flushed_before,
        };
        self.flushed_before = Some(flushed_before);
        self.next_sequence < flushed_before
    }

    /// Looks at all headers from a place in the log on. What cannot be read is left out: it lies behind
    /// a record that is bad, and others say the same.
    fn look_ahead(&self, number: usize, offset: u64) -> Ahead {
        let mut ahead = Ahead { flushed_before: 0, later: None };
        let mut from = offset;
        for segment in &self.segments[number..] {
            let mut window = Window::new(&*segment.file, segment.size_bytes);
            ahead.look(&mut window, segment.number, segment.salt, from, self.next_sequence);
            from = RECORDS_OFFSET;
        }
        let first = self.segments[number].number;
        for one in self.headless.iter().filter(|one| one.number > first) {
            let Some(salt) = salt_of(&*one.file) else { continue };
            let mut window = Window::new(&*one.file, one.size_bytes);
            // It may begin with the record that is expected.
            let sequence = self.next_sequence.saturating_sub(1);
            ahead.look(&mut window, one.number, salt, RECORDS_OFFSET, sequence);
        }
        ahead
    }
}

impl Ahead {
    fn look(&mut self, window: &mut Window<'_>, number: u32, salt: u64, from: u64, sequence: u64) {
        let mut next = Some(from);
        while let Some(from) = next.take() {
            visit_headers(window, salt, from, from + AHEAD_BYTES, |offset, found| {
                let Ok(record) = found else { return };
                next = Some(offset + HEADER_LEN as u64 + record.payload_len());
                self.flushed_before = self.flushed_before.max(record.durable);
                if record.sequence > sequence && self.later.is_none_or(|(_, of)| number < of) {
                    self.later = Some((offset, number));
                }
            });
        }
    }
}

/// Returns the record at an offset of a segment if it is the one that is expected.
fn header_at(segment: &Segment, offset: u64, sequence: u64) -> io::Result<Option<RecordHeader>> {
    let at = offset + HEADER_LEN as u64;
    if at > segment.size_bytes {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_LEN];
    segment.file.read_exact_at(&mut bytes, offset)?;
    Ok(RecordHeader::parse(&bytes).filter(|record| {
        let is_inside = record.payload_len() <= segment.size_bytes - at;
        record.sequence == sequence && record.salt == segment.salt && is_inside
    }))
}

/// The salt of a segment's first record, for one that does not say it itself.
pub(crate) fn salt_of(file: &dyn LogFile) -> Option<u64> {
    let mut bytes = [0; HEADER_LEN];
    file.read_exact_at(&mut bytes, RECORDS_OFFSET).ok()?;
    RecordHeader::parse(&bytes).map(|record| record.salt)
}

fn unreadable(segment: &Segment, offset: u64, error: io::Error) -> OverlayError {
    let name = Segment::file_name(segment.number);
    let action =
        format!("read {name} of the local log at byte {offset} (if that stays so, {GIVE_UP})");
    OverlayError::io(action, error)
}
