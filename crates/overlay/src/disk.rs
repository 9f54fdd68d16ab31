//! The directory of a local log as the log uses it: the seam at which tests put in a disk that
//! loses, tears and refuses.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs};
use rustix::io::{Errno, pwritev};

/// A directory of files that one overlay owns.
///
/// The implementation must keep a file's synced bytes and, once `sync` returned, its name over a
/// power failure; a rename must be atomic; unsynced bytes and names may be lost in any order.
pub trait LogDisk: fmt::Debug + Send + Sync {
    /// Returns the names of all files.
    ///
    /// # Errors
    /// The kernel's error.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file, replacing one of that name, with disk space for `size_bytes` bytes;
    /// it is that long and reads as zeros. A size of 0 reserves nothing.
    ///
    /// # Errors
    /// The kernel's error, `StorageFull` above all; no file of that name is left then.
    fn create(&self, name: &str, size_bytes: u64) -> io::Result<Arc<dyn LogFile>>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// The kernel's error.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Renames a file, replacing one of the new name.
    ///
    /// # Errors
    /// The kernel's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; one that is open can still be read.
    ///
    /// # Errors
    /// The kernel's error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable.
    ///
    /// # Errors
    /// The kernel's error.
    fn sync(&self) -> io::Result<()>;

    /// Returns how large the file system is, and how much of it is free.
    ///
    /// # Errors
    /// The kernel's error.
    fn space(&self) -> io::Result<DiskSpace>;

    /// Lets another one open the directory: nothing is written any more.
    fn unlock(&self);
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that can be reserved.
    pub free_bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
}

/// A file of a local log.
pub trait LogFile: fmt::Debug + Send + Sync {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The kernel's error; `UnexpectedEof` when the file ends before that.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes `parts`, one after the other, from `offset` on; consumes the slices.
    ///
    /// # Errors
    /// The kernel's error; any part of the range may have been written.
    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The kernel's error: what was written may be lost, and a second call proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Asks the kernel to start writing a range to the disk; a hint that does not wait.
    fn start_writeback(&self, offset: u64, len: u64);

    /// Size of the file, bytes.
    ///
    /// # Errors
    /// The kernel's error.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Returns the mapping of the first `len` bytes, for the kernel to read from, or `None` where
    /// the implementation has none.
    fn map(&self, len: usize) -> Option<MmapRaw>;
}

/// A directory of the host's file system.
#[derive(Debug)]
pub struct HostDirectory {
    path: PathBuf,
    directory: File,
    /// Holds the lock on the directory while it is open.
    lock: Mutex<Option<File>>,
}

#[derive(Debug)]
struct HostFile(File);

const LOCK: &str = "lock";

impl HostDirectory {
    /// Opens the directory, creating it (mode 0700) when absent, and locks it.
    ///
    /// # Errors
    /// `WouldBlock` when another process, or another overlay of this one, has it open; else the
    /// kernel's error.
    pub fn open(path: &Path) -> io::Result<HostDirectory> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = OpenOptions::new();
        let lock =
            options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let directory = File::open(path)?;
        Ok(HostDirectory { path: path.to_owned(), directory, lock: Mutex::new(Some(lock)) })
    }

    fn reserve(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        // fallocate(2) takes all the space there is before it says that it was not enough, which
        // on a busy host is an outage of its own.
        if size_bytes > self.space()?.free_bytes {
            return Err(Errno::NOSPC.into());
        }
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

impl LogDisk for HostDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            match entry?.file_name().into_string() {
                Ok(name) if name != LOCK => names.push(name),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, size_bytes: u64) -> io::Result<Arc<dyn LogFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        if size_bytes > 0
            && let Err(error) = self.reserve(&file, size_bytes)
        {
            fs::remove_file(&path)?;
            return Err(error);
        }
        Ok(Arc::new(HostFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(HostFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let disk = fstatvfs(&self.directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(DiskSpace { free_bytes: bytes(disk.f_bavail), total_bytes: bytes(disk.f_blocks) })
    }

    fn unlock(&self) {
        *self.lock.lock() = None;
    }
}

impl LogFile for HostFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut parts = parts;
        let mut offset = offset;
        while !parts.is_empty() {
            match pwritev(&self.0, parts, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        let fd = self.0.as_raw_fd();
        // SAFETY: takes numbers only; the descriptor is open while `self` lives.
        unsafe {
            libc::sync_file_range(fd, offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn map(&self, len: usize) -> Option<MmapRaw> {
        MmapOptions::new().len(len).map_raw_read_only(&self.0).ok()
    }
}
