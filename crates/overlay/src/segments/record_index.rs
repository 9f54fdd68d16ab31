//! Checksums of a segment's records by the place of their payload, and of which records memory has
//! what was written.
//!
//! That a page is in memory says nothing: an index, a neighbour, the writer or a hint may have brought
//! it there from a disk on which it has rotted. So a record is *known* from the moment on that this
//! process wrote it, or compared it with its checksum, and until somebody reads a page of it from the
//! disk again without comparing it. Whoever reads says so before and after.
//!
//! The index of a segment that this process has written grows with it. That of one that was found is
//! made at the first question, by reading the segment once; a header that is damaged hides its own
//! record only, and a page that cannot be read is tried again at the next question that it may answer.
//!
//! Must never: call a record known of which a page may have been read anew since.

use std::io;

use crate::segments::disk::LogFile;
use crate::segments::extent_map::UNIT;
use crate::segments::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, RecordKind, SECTOR};

/// Bytes read at a time.
const STEP: usize = 1 << 20;
/// Bytes that are left out where they cannot be read, and that memory has or lacks together.
pub(crate) const PAGE: u64 = 4096;

/// The payload of one record: 12 bytes each, or 0.3 % of a log of records of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    /// Offset in the segment, in units of [`UNIT`].
    units: u32,
    sectors: u16,
    /// It was read, and is not what was written.
    pub is_bad: bool,
    /// Whatever memory has of it is what was written.
    is_known: bool,
    pub crc: u32,
}

impl IndexEntry {
    pub(crate) fn new(offset: u64, bytes: u64, crc: u32) -> IndexEntry {
        let (units, sectors) = ((offset / UNIT) as u32, (bytes / SECTOR) as u16);
        IndexEntry { units, sectors, is_bad: false, is_known: false, crc }
    }

    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.units) * UNIT
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.sectors) * SECTOR as usize
    }

    fn end(&self) -> u64 {
        self.offset() + self.len() as u64
    }
}

/// Pages of a segment that somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    first: u64,
    /// One behind the last.
    end: u64,
}

impl Pages {
    pub(crate) fn of(offset: u64, len: u64) -> Pages {
        Pages { first: offset / PAGE, end: (offset + len).div_ceil(PAGE) }
    }

    fn overlaps(&self, other: &Pages) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// A read that is under way.
#[derive(Debug)]
struct Reading {
    id: u64,
    pages: Pages,
    /// Another one has read some of its pages from the disk meanwhile.
    is_disturbed: bool,
}

/// The records of a segment.
#[derive(Debug)]
pub(crate) struct RecordIndex {
    /// In order.
    entries: Vec<IndexEntry>,
    /// Ranges in which headers are yet to be looked for: from, until.
    unread: Vec<(u64, u64)>,
    readings: Vec<Reading>,
    next_reading: u64,
}

impl RecordIndex {
    /// Index of a segment that nobody has written to.
    pub(crate) fn empty() -> RecordIndex {
        RecordIndex {
            entries: Vec::new(),
            unread: Vec::new(),
            readings: Vec::new(),
            next_reading: 0,
        }
    }

    /// Index of a segment that may have records.
    pub(crate) fn found(size_bytes: u64) -> RecordIndex {
        RecordIndex { unread: vec![(RECORDS_OFFSET, size_bytes)], ..RecordIndex::empty() }
    }

    /// Adds a record that was appended.
    pub(crate) fn push(&mut self, entry: IndexEntry) {
        self.entries.push(IndexEntry { is_known: true, ..entry });
    }

    /// Returns the entry whose payload has the byte at `offset`.
    pub(crate) fn find(&self, offset: u64) -> Option<&IndexEntry> {
        let after = self.entries.partition_point(|entry| entry.offset() <= offset);
        self.entries[..after].last().filter(|entry| offset < entry.end())
    }

    pub(crate) fn find_mut(&mut self, offset: u64) -> Option<&mut IndexEntry> {
        let after = self.entries.partition_point(|entry| entry.offset() <= offset);
        self.entries[..after].last_mut().filter(|entry| offset < entry.end())
    }

    /// Returns the ranges in which headers are yet to be looked for.
    pub(crate) fn unread(&self) -> &[(u64, u64)] {
        &self.unread
    }

    /// Takes over what was found of what was unread; what was appended meanwhile stays as it is.
    pub(crate) fn found_more(&mut self, found: Found) {
        self.unread = found.unread;
        // The later of two with one offset goes.
        self.entries.extend(found.entries);
        self.entries.sort_by_key(IndexEntry::offset);
        self.entries.dedup_by_key(|entry| entry.offset());
    }

    /// Returns whether memory has nothing of a record but what was written.
    pub(crate) fn is_known(&self, offset: u64) -> bool {
        self.find(offset).is_some_and(|entry| {
            let pages = Pages::of(entry.offset(), entry.len() as u64);
            entry.is_known && !self.readings.iter().any(|reading| reading.pages.overlaps(&pages))
        })
    }

    /// Notes that pages are going to be read, maybe from the disk.
    pub(crate) fn begin_reading(&mut self, pages: Pages) -> u64 {
        let id = self.next_reading;
        self.next_reading += 1;
        self.readings.push(Reading { id, pages, is_disturbed: false });
        id
    }

    /// Notes that pages were read: `was_cached`, all of them out of memory; `compared`: the offset of a
    /// record that was read whole and is what was written.
    pub(crate) fn end_reading(&mut self, id: u64, was_cached: bool, compared: Option<u64>) {
        let Some(at) = self.readings.iter().position(|reading| reading.id == id) else { return };
        let reading = self.readings.swap_remove(at);
        if !was_cached {
            self.forget(reading.pages);
        }
        // Who is under way still keeps it from being known meanwhile, and ends that if need be.
        if let Some(entry) = compared.and_then(|offset| self.find_mut(offset)) {
            entry.is_known |= !reading.is_disturbed;
        }
    }

    /// Notes that pages may have been read from the disk by nobody who compares them. Of a read that is to
    /// come [`RecordIndex::begin_reading`] and [`RecordIndex::end_reading`] tell, around it.
    pub(crate) fn forget(&mut self, pages: Pages) {
        for other in &mut self.readings {
            other.is_disturbed |= other.pages.overlaps(&pages);
        }
        let (from, until) = (pages.first * PAGE, pages.end * PAGE);
        let first = self.entries.partition_point(|entry| entry.end() <= from);
        let touched = self.entries[first..].iter_mut().take_while(|entry| entry.offset() < until);
        touched.for_each(|entry| entry.is_known = false);
    }
}

/// Result of a search for headers.
#[derive(Debug, Default)]
pub(crate) struct Found {
    entries: Vec<IndexEntry>,
    /// Ranges that it could not read.
    unread: Vec<(u64, u64)>,
    /// Error of the last failed read.
    pub error: Option<io::Error>,
}

impl Found {
    /// Looks for the headers of records that begin in one of the ranges `unread`.
    pub(crate) fn in_ranges(
        file: &dyn LogFile,
        salt: u64,
        size_bytes: u64,
        unread: &[(u64, u64)],
    ) -> Found {
        let mut found = Found::default();
        let mut window = Window::new(file, size_bytes);
        for (from, until) in unread {
            visit_headers(&mut window, salt, *from, *until, |offset, header| {
                found.note(offset, header);
            });
        }
        found
    }

    fn note(&mut self, offset: u64, header: Result<RecordHeader, Unread>) {
        match header {
            Ok(record) if record.kind == RecordKind::Data => {
                let (at, len) = (offset + HEADER_LEN as u64, record.payload_len());
                self.entries.push(IndexEntry::new(at, len, record.payload_crc));
            }
            Ok(_) => {}
            Err(Unread { until, error }) => {
                self.unread.push((offset, until));
                self.error = Some(error);
            }
        }
    }
}

/// Bytes that cannot be read.
#[derive(Debug)]
pub(crate) struct Unread {
    pub until: u64,
    pub error: io::Error,
}

/// Calls `visit` with every header of a segment that begins between two offsets, and with every page
/// there that cannot be read. A header that is damaged hides its own record only.
pub(crate) fn visit_headers(
    window: &mut Window<'_>,
    salt: u64,
    from: u64,
    until: u64,
    mut visit: impl FnMut(u64, Result<RecordHeader, Unread>),
) {
    let until = until.min(window.size_bytes);
    let mut offset = from;
    while offset < until && offset + HEADER_LEN as u64 <= window.size_bytes {
        let bytes = match window.header(offset) {
            Ok(bytes) => bytes,
            Err(error) => {
                let next = (offset + 1).next_multiple_of(PAGE);
                visit(offset, Err(Unread { until: next, error }));
                offset = next;
                continue;
            }
        };
        let at = offset;
        offset += HEADER_LEN as u64;
        if let Some(record) = RecordHeader::parse(&bytes).filter(|record| record.salt == salt) {
            offset += record.payload_len();
            visit(at, Ok(record));
        }
    }
}

/// A part of a segment in memory.
pub(crate) struct Window<'a> {
    file: &'a dyn LogFile,
    size_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(crate) fn new(file: &'a dyn LogFile, size_bytes: u64) -> Window<'a> {
        Window { file, size_bytes, start: 0, bytes: Vec::new() }
    }

    /// Returns the bytes of a header.
    fn header(&mut self, offset: u64) -> io::Result<[u8; HEADER_LEN]> {
        let end = self.start + self.bytes.len() as u64;
        let is_there = self.start <= offset && offset + HEADER_LEN as u64 <= end;
        if !is_there && self.fill(offset, STEP).is_err() {
            let page = PAGE as usize - (offset % PAGE) as usize;
            self.fill(offset, page)?;
        }
        let at = (offset - self.start) as usize;
        let bytes = self.bytes.get(at..at + HEADER_LEN).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.try_into().map_err(io::Error::other)
    }

    fn fill(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let len = len.min((self.size_bytes - offset) as usize).max(HEADER_LEN);
        self.start = offset;
        self.bytes.resize(len, 0);
        let read = self.file.read_exact_at(&mut self.bytes, offset);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records that share the second of three pages.
    fn index() -> RecordIndex {
        let mut index = RecordIndex::empty();
        index.push(IndexEntry::new(4096, 4160 - 64, 1));
        index.push(IndexEntry::new(8256, 4096, 2));
        index.push(IndexEntry::new(20480, 512, 3));
        index
    }

    fn pages(offset: u64) -> Pages {
        let index = index();
        let entry = index.find(offset).unwrap();
        Pages::of(entry.offset(), entry.len() as u64)
    }

    const FIRST: u64 = 4096;
    const SECOND: u64 = 8256;
    const THIRD: u64 = 20480;

    fn known(index: &RecordIndex) -> [bool; 3] {
        [FIRST, SECOND, THIRD].map(|offset| index.is_known(offset))
    }

    #[test]
    fn what_is_being_read_is_not_known() {
        let mut index = index();
        let shared = Pages::of(4096, 4097);
        assert_eq!(known(&index), [true; 3]);
        let id = index.begin_reading(shared);
        assert_eq!(known(&index), [false, false, true]);
        index.end_reading(id, true, None);
        assert_eq!(known(&index), [true; 3], "it came out of memory");
        let id = index.begin_reading(shared);
        index.end_reading(id, false, Some(FIRST));
        assert_eq!(known(&index), [true, false, true], "one was compared, the other was not");
    }

    #[test]
    fn what_others_read_meanwhile_is_not_known_by_a_comparison() {
        for was_cached in [true, false] {
            // Begun before and ended before, during, or after.
            let mut index = index();
            let other = index.begin_reading(Pages::of(8200, 1));
            let id = index.begin_reading(pages(SECOND));
            index.end_reading(other, was_cached, None);
            index.end_reading(id, false, Some(SECOND));
            assert_eq!(known(&index), [true, was_cached, true]);

            let mut index = self::index();
            let other = index.begin_reading(Pages::of(8200, 1));
            let id = index.begin_reading(pages(SECOND));
            index.end_reading(id, false, Some(SECOND));
            assert!(!index.is_known(SECOND), "what is under way may have read the disk");
            index.end_reading(other, was_cached, None);
            assert_eq!(index.is_known(SECOND), was_cached);
        }
        let mut index = index();
        let id = index.begin_reading(pages(SECOND));
        index.forget(Pages::of(8200, 1));
        index.end_reading(id, true, Some(SECOND));
        assert_eq!(known(&index), [true, false, true]);
    }
}
