//! One segment file of the local log, and pieces of it in answers.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::MmapRaw;

use crate::disk::LogFile;

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
}

impl Segment {
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
        }
    }

    /// The same file as segment `number`, with another salt, and nothing alive.
    pub(crate) fn again(self, number: u32, salt: u64) -> Segment {
        Segment {
            number,
            salt,
            is_written: true,
            live_bytes: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
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

    pub(crate) fn set_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
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

/// A run of bytes in a mapped segment of the local log; keeps the segment from being unmapped.
#[derive(Debug)]
pub struct LogPiece {
    segment: Arc<Segment>,
    offset: u64,
    len: usize,
}

impl LogPiece {
    /// Takes a run that ends inside the segment, or `None` where the segment is not mapped.
    pub(crate) fn new(segment: &Arc<Segment>, offset: u64, len: usize) -> Option<LogPiece> {
        debug_assert!(offset + len as u64 <= segment.size_bytes);
        segment.mapping.as_ref()?;
        Some(LogPiece { segment: Arc::clone(segment), offset, len })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte in the mapping; [`LogPiece::len`] bytes are valid while the piece lives.
    ///
    /// Only the kernel may read them (`writev`, `sendmsg`): if the disk fails, the kernel answers
    /// EFAULT where user space would get SIGBUS. On EFAULT call [`LogPiece::read_at`], which says
    /// why.
    pub fn mapped(&self) -> *const u8 {
        match &self.segment.mapping {
            Some(mapping) => mapping.as_ptr().wrapping_add(self.offset as usize),
            None => std::ptr::null(),
        }
    }

    /// Fills `buffer` with the bytes from `start` on, by `pread`.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not inside the piece, else the kernel's error.
    pub fn read_at(&self, start: usize, buffer: &mut [u8]) -> io::Result<()> {
        if start.checked_add(buffer.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.segment.file.read_exact_at(buffer, self.offset + start as u64)
    }
}
