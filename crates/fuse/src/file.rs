//! One file of the mount: a disk under its name, and what the kernel holds of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use acstor_readpath::{BlockView, DiskBoots};
use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::limits::{CACHED_BYTES_VALID, READS_PER_FILE_MAX};
use crate::wire::inode::FileKey;
use crate::wire::request::Opener;

/// A file as the host process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Name in the mount.
    pub name: String,
    /// The disk behind it.
    pub disk: DiskId,
    /// The kernel's numbers for it.
    pub key: FileKey,
    /// Size, bytes.
    pub size_bytes: u64,
    /// True if the name can be found; false once detached while somebody had it open.
    pub is_listed: bool,
    /// Opens not yet closed that this process has seen.
    pub opens: u64,
}

/// A disk under a name.
pub(crate) struct File {
    pub(crate) key: FileKey,
    pub(crate) name: String,
    pub(crate) disk: DiskId,
    pub(crate) view: Arc<dyn BlockView>,
    /// Told of every handle, and of every read as it arrives.
    pub(crate) boots: Option<Arc<DiskBoots>>,
    /// Shared with the file that replaces this one when the disk is attached again.
    pub(crate) kernel: Arc<KernelUse>,
    /// One permit per read of it that may wait for peers and the origin at the same time.
    pub(crate) permits: Arc<Semaphore>,
    cached: Mutex<Option<(Instant, u64)>>,
}

/// References of the kernel to an inode, as far as this process has seen; after a take-over it may
/// hold more.
#[derive(Debug, Default)]
pub(crate) struct KernelUse {
    pub(crate) opens: Count,
    pub(crate) lookups: Count,
    /// True if it was read although no open of it is known: somebody has it open from before a
    /// take-over.
    is_open_from_before: AtomicBool,
}

impl KernelUse {
    /// Notes a read, or another use of an open file.
    pub(crate) fn note_use(&self) {
        if self.opens.get() == 0 {
            self.is_open_from_before.store(true, Ordering::Release);
        }
    }

    /// Notes that a close left no open that is known. Should another from before remain, its next use
    /// tells.
    pub(crate) fn note_closed(&self) {
        self.is_open_from_before.store(false, Ordering::Release);
    }

    /// Returns whether somebody has it open, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.get() > 0 || self.is_open_from_before.load(Ordering::Acquire)
    }
}

/// A count that never goes below zero, since closes and forgets of a former process's opens and
/// lookups arrive too.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::AcqRel);
    }

    /// Takes `number` away and returns what is left.
    pub(crate) fn take(&self, number: u64) -> u64 {
        let less = |count: u64| Some(count.saturating_sub(number));
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(before) | Err(before) => before.saturating_sub(number),
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl File {
    pub(crate) fn new(
        name: String,
        disk: DiskId,
        view: Arc<dyn BlockView>,
        kernel: Arc<KernelUse>,
    ) -> File {
        let key = FileKey::of(disk);
        let permits = Arc::new(Semaphore::new(READS_PER_FILE_MAX));
        let boots = view.boots();
        File { key, name, disk, view, boots, kernel, permits, cached: Mutex::new(None) }
    }

    /// Notes that a handle was opened, before whoever opened it can read.
    pub(crate) fn opened(&self, opener: Opener) {
        if !opener.is_recorded {
            return;
        }
        self.view.opened();
        if let Some(boots) = &self.boots {
            boots.opened(opener.is_direct);
        }
    }

    /// Notes that a handle was closed, or that its open failed.
    pub(crate) fn closed(&self, opener: Opener) {
        // A close of what was opened before a take-over is none of this view's opens.
        if !opener.is_recorded || self.kernel.opens.get() == 0 {
            return;
        }
        self.view.closed();
        if let Some(boots) = &self.boots {
            boots.closed(opener.is_direct);
        }
    }

    /// Bytes of the disk that are on this host, at most a second old.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let mut cached = self.cached.lock();
        match *cached {
            Some((taken, bytes)) if taken.elapsed() < CACHED_BYTES_VALID => bytes,
            _ => {
                let bytes = self.view.cached_bytes();
                *cached = Some((Instant::now(), bytes));
                bytes
            }
        }
    }

    /// The same as last asked for, however long ago; never counts anew.
    pub(crate) fn cached_bytes_known(&self) -> Option<u64> {
        self.cached.lock().map(|(_, bytes)| bytes)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).field("key", &self.key).finish()
    }
}
