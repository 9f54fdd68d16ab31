//! One segment file of the local log, and pieces of it in answers.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acstor_diskio::residency;
use memmap2::MmapRaw;
use parking_lot::Mutex;

use crate::segments::disk::LogFile;
use crate::segments::record_index::{Found, IndexEntry, PAGE, Pages, RecordIndex};

/// An open segment. While somebody holds it its bytes can be read, even after it was reclaimed: its
/// file is not used again before that.
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) salt: u64,
    pub(crate) file: Arc<dyn LogFile>,
    pub(crate) size_bytes: u64,
    /// Its blocks were written in an earlier life.
    pub(crate) is_written: bool,
    /// Bytes of payload that the extent map refers to.
    pub(crate) live_bytes: AtomicU64,
    /// A record of it was found damaged: it is not reclaimed.
    is_damaged: AtomicBool,
    mapping: Option<MmapRaw>,
    /// Held for moments only, never over a read.
    index: Mutex<RecordIndex>,
    /// Slot of the thread that looks for the records of a segment that was found.
    look_turn: Mutex<()>,
    /// Slot of the thread that compares a long record of which a part is wanted: others then find
    /// it known.
    compare_turn: Mutex<()>,
    /// Bytes of records that were read and are not what was written.
    bad_bytes: AtomicU64,
    /// Offsets from which a guest's read has failed last.
    failed_reads: Mutex<BTreeSet<u64>>,
}

impl Segment {
    /// A segment with whatever its file has.
    pub(crate) fn new(number: u32, salt: u64, file: Arc<dyn LogFile>, size_bytes: u64) -> Segment {
        let mapping = file.map(size_bytes as usize);
        Segment {
            number,
            salt,
            file,
            size_bytes,
            is_written: false,
            live_bytes: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
            mapping,
            index: Mutex::new(RecordIndex::found(size_bytes)),
            look_turn: Mutex::new(()),
            compare_turn: Mutex::new(()),
            bad_bytes: AtomicU64::new(0),
            failed_reads: Mutex::default(),
        }
    }

    /// A segment without records.
    pub(crate) fn empty(
        number: u32,
        salt: u64,
        file: Arc<dyn LogFile>,
        size_bytes: u64,
    ) -> Segment {
        let index = Mutex::new(RecordIndex::empty());
        Segment { index, ..Segment::new(number, salt, file, size_bytes) }
    }

    /// The same file as segment `number`, with another salt, and nothing alive.
    pub(crate) fn again(self, number: u32, salt: u64) -> Segment {
        Segment {
            number,
            salt,
            is_written: true,
            live_bytes: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
            index: Mutex::new(RecordIndex::empty()),
            bad_bytes: AtomicU64::new(0),
            failed_reads: Mutex::default(),
            ..self
        }
    }

    /// Name of segment `number`'s file.
    pub(crate) fn file_name(number: u32) -> String {
        format!("segment-{number:08x}")
    }

    /// Returns the number in a segment file's name.
    pub(crate) fn number_of(name: &str) -> Option<u32> {
        let digits = name.strip_prefix("segment-")?;
        (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }

    pub(crate) fn add_live(&self, bytes: u64) {
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_live(&self, bytes: u64) {
        let before = self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "segment {} has less than nothing alive", self.number);
    }

    /// Notes that something is being appended at `offset`, in whose page a record may end that memory
    /// has no more: the kernel reads that page first. To be ended by [`Segment::end_append`].
    pub(crate) fn begin_append(&self, offset: u64) -> Option<u64> {
        let page = offset / PAGE * PAGE;
        let is_in_memory = |mapping: &MmapRaw| {
            residency::is_resident(mapping.as_ptr().wrapping_add(page as usize), PAGE as usize)
        };
        let is_read = offset != page && !self.mapping.as_ref().is_some_and(is_in_memory);
        is_read.then(|| self.begin_reading(page, PAGE as usize))
    }

    /// Notes that what [`Segment::begin_append`] has begun was written, or failed.
    pub(crate) fn end_append(&self, reading: Option<u64>) {
        if let Some(id) = reading {
            self.index.lock().end_reading(id, false, None);
        }
    }

    /// Notes a record that was appended.
    pub(crate) fn note_record(&self, payload_offset: u64, bytes: u64, crc: u32) {
        self.index.lock().push(IndexEntry::new(payload_offset, bytes, crc));
    }

    /// Bytes of records that were read and are not what was written.
    pub(crate) fn bad_bytes(&self) -> u64 {
        self.bad_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the content at an offset was read before, and is not what was written.
    pub(crate) fn is_bad(&self, offset: u64) -> bool {
        self.bad_bytes() > 0 && self.index.lock().find(offset).is_some_and(|entry| entry.is_bad)
    }

    /// Returns whether a read of content in a range has failed, as far as it is known.
    pub(crate) fn has_failed(&self, offset: u64, len: u64) -> bool {
        self.is_bad(offset) || self.failed_reads.lock().range(offset..offset + len).next().is_some()
    }

    /// Notes how a guest's read has ended.
    fn note_read(&self, offset: u64, has_failed: bool) {
        let mut failed_reads = self.failed_reads.lock();
        match has_failed {
            true => drop(failed_reads.insert(offset)),
            false => drop(failed_reads.remove(&offset)),
        }
    }

    /// Returns whether memory has nothing of the record at `offset` but what was written.
    #[cfg(test)]
    pub(crate) fn is_known(&self, offset: u64) -> bool {
        self.index.lock().is_known(offset)
    }

    /// Returns the record that has the byte at `offset`, if it was found.
    pub(crate) fn record_at(&self, offset: u64) -> Option<IndexEntry> {
        self.index.lock().find(offset).copied()
    }

    /// Fills `buffer` with content of one record, and compares the record with its checksum.
    ///
    /// # Errors
    /// `InvalidData` when it is not what was written, else the kernel's error.
    pub(crate) fn read_checked(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let entry = self.entry(offset, buffer.len())?;
        if entry.offset() == offset && entry.len() == buffer.len() {
            return self.read_compared(&entry, buffer);
        }
        let _turn = self.compare_turn.lock();
        if self.copy_known(offset, buffer) {
            return Ok(());
        }
        let payload = self.read_record(offset)?.1;
        let at = (offset - entry.offset()) as usize;
        buffer.copy_from_slice(&payload[at..at + buffer.len()]);
        Ok(())
    }

    /// Fills `buffer` out of memory with content of a record that is known; false: it is not, or not in
    /// memory.
    fn copy_known(&self, offset: u64, buffer: &mut [u8]) -> bool {
        if !self.index.lock().is_known(offset) {
            return false;
        }
        let id = self.begin_reading(offset, buffer.len());
        let was_cached = self.file.read_cached(buffer, offset);
        let mut index = self.index.lock();
        index.end_reading(id, was_cached, None);
        was_cached && index.is_known(offset)
    }

    /// Returns whether `len` bytes at an offset are known as the payload of one record.
    pub(crate) fn is_record(&self, offset: u64, len: usize) -> bool {
        let index = self.index.lock();
        index.find(offset).is_some_and(|entry| entry.offset() == offset && entry.len() == len)
    }

    /// Reads the record that has the byte at `offset`; returns where its payload begins, and it.
    ///
    /// # Errors
    /// As [`Segment::read_checked`].
    pub(crate) fn read_record(&self, offset: u64) -> io::Result<(u64, Vec<u8>)> {
        let entry = self.entry(offset, 1)?;
        let mut payload = vec![0; entry.len()];
        self.read_compared(&entry, &mut payload)?;
        Ok((entry.offset(), payload))
    }

    /// Fills `buffer` with bytes that have a checksum of their own.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn read_raw(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_noted(offset, buffer, |_| None)
    }

    /// Fills `buffer`, out of memory where that has it; `compared` says of which record it is all, and
    /// what was written.
    fn read_noted(
        &self,
        offset: u64,
        buffer: &mut [u8],
        compared: impl FnOnce(&[u8]) -> Option<u64>,
    ) -> io::Result<()> {
        let id = self.begin_reading(offset, buffer.len());
        let was_cached = self.file.read_cached(buffer, offset);
        let read = if was_cached { Ok(()) } else { self.file.read_exact_at(buffer, offset) };
        let compared = if read.is_ok() { compared(buffer) } else { None };
        self.index.lock().end_reading(id, was_cached, compared);
        read
    }

    fn begin_reading(&self, offset: u64, len: usize) -> u64 {
        self.index.lock().begin_reading(Pages::of(offset, len as u64))
    }

    /// Returns the record that `len` bytes from `offset` on belong to.
    fn entry(&self, offset: u64, len: usize) -> io::Result<IndexEntry> {
        let is_inside =
            |entry: &IndexEntry| offset + len as u64 <= entry.offset() + entry.len() as u64;
        let mut found = self.index.lock().find(offset).copied();
        if found.is_none() {
            self.look_for_records(offset)?;
            found = self.index.lock().find(offset).copied();
        }
        found.filter(is_inside).ok_or_else(|| self.damaged(offset))
    }

    /// Looks for the records that are yet to be found, of which one may be at `offset`.
    fn look_for_records(&self, offset: u64) -> io::Result<()> {
        let _turn = self.look_turn.lock();
        let unread = {
            let index = self.index.lock();
            let is_found = index.find(offset).is_some();
            if is_found { Vec::new() } else { index.unread().to_vec() }
        };
        let (Some(first), Some(last)) = (unread.first(), unread.last()) else { return Ok(()) };
        let id = self.begin_reading(first.0, (last.1 - first.0) as usize);
        let mut found = Found::in_ranges(&*self.file, self.salt, self.size_bytes, &unread);
        let error = found.error.take();
        let mut index = self.index.lock();
        index.found_more(found);
        index.end_reading(id, false, None);
        match error {
            Some(error) if index.find(offset).is_none() => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    /// Fills `payload` with that of a record, and compares it with its checksum. What memory has of it
    /// may be damaged where the disk's is not: that is looked at before it is called damaged.
    fn read_compared(&self, entry: &IndexEntry, payload: &mut [u8]) -> io::Result<()> {
        let is_right = |payload: &[u8]| crc32fast::hash(payload) == entry.crc;
        let mut is_known = false;
        self.read_noted(entry.offset(), payload, |payload| {
            is_known = is_right(payload);
            is_known.then_some(entry.offset())
        })?;
        if !is_known {
            // Memory may have had it all the time: what was known of it is not so any more.
            self.index.lock().forget(Pages::of(entry.offset(), entry.len() as u64));
        }
        let is_bad = !is_known
            && (self.file.read_past_cache(payload, entry.offset()).is_err() || !is_right(payload));
        if is_bad != entry.is_bad {
            self.note_bad(entry.offset(), is_bad);
        }
        if is_bad { Err(self.damaged(entry.offset())) } else { Ok(()) }
    }

    fn note_bad(&self, offset: u64, is_bad: bool) {
        let mut index = self.index.lock();
        let Some(noted) = index.find_mut(offset).filter(|noted| noted.is_bad != is_bad) else {
            return;
        };
        noted.is_bad = is_bad;
        let bytes = noted.len() as u64;
        match is_bad {
            true => self.bad_bytes.fetch_add(bytes, Ordering::Relaxed),
            false => self.bad_bytes.fetch_sub(bytes, Ordering::Relaxed),
        };
    }

    fn damaged(&self, offset: u64) -> io::Error {
        let name = Segment::file_name(self.number);
        let text = format!(
            "{name} of the local log is damaged at byte {offset}: check the disk; what is overwritten is whole again"
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    pub(crate) fn set_damaged(&self, is_damaged: bool) {
        self.is_damaged.store(is_damaged, Ordering::Relaxed);
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("number", &self.number)
            .field("live_bytes", &self.live())
            .finish_non_exhaustive()
    }
}

/// A run of bytes in a segment of the local log; keeps the segment from being unmapped.
#[derive(Debug)]
pub struct LogPiece {
    segment: Arc<Segment>,
    offset: u64,
    len: usize,
}

impl LogPiece {
    /// Takes a run that ends inside the segment.
    pub(crate) fn new(segment: &Arc<Segment>, offset: u64, len: usize) -> LogPiece {
        debug_assert!(offset + len as u64 <= segment.size_bytes);
        LogPiece { segment: Arc::clone(segment), offset, len }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte in the mapping; [`LogPiece::len`] bytes are valid while the piece lives. `None`: the
    /// segment is not mapped.
    ///
    /// Only the kernel may read them (`writev`, `sendmsg`): if the disk fails, the kernel answers
    /// EFAULT where user space would get SIGBUS. On EFAULT call [`LogPiece::read_at`], which says
    /// why.
    pub fn mapped(&self) -> Option<*const u8> {
        let mapping = self.segment.mapping.as_ref()?;
        Some(mapping.as_ptr().wrapping_add(self.offset as usize))
    }

    /// Returns whether memory has the bytes, as they were written: they can be sent as they are.
    /// Where it says no, [`LogPiece::read_at`] copies and compares them.
    pub fn is_at_hand(&self) -> bool {
        // In this order: what is read in between is not known any more.
        self.is_resident() && self.segment.index.lock().is_known(self.offset)
    }

    /// Has the disk begin to read what [`LogPiece::read_at`] will, where memory lacks it.
    pub fn start_read(&self) {
        if self.is_resident() {
            return; // and what is known of it stays known
        }
        // Around it: who compares it meanwhile may do so before the disk is read.
        let id = self.segment.begin_reading(self.offset, self.len);
        self.segment.file.start_read(self.offset, self.len as u64);
        self.segment.index.lock().end_reading(id, false, None);
    }

    fn is_resident(&self) -> bool {
        self.mapped().is_some_and(|start| residency::is_resident(start, self.len))
    }

    /// Fills `buffer` with the bytes from `start` on, by `pread`, and compares with its checksum what
    /// they are a part of.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not inside the piece, `InvalidData` when it is not what was
    /// written, else the kernel's error.
    pub fn read_at(&self, start: usize, buffer: &mut [u8]) -> io::Result<()> {
        if start.checked_add(buffer.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let offset = self.offset + start as u64;
        let read = self.segment.read_checked(offset, buffer);
        self.segment.note_read(offset, read.is_err());
        read
    }

    /// Returns whether a read of some of it has failed: [`crate::BlockDevice::read`] may have it from
    /// elsewhere.
    pub(crate) fn has_failed(&self) -> bool {
        self.segment.has_failed(self.offset, self.len as u64)
    }
}
