//! The directory of a local log as the log uses it: the seam at which tests put in a disk that
//! loses, tears and refuses.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acstor_diskio::{DiskSpace, FileLock, forget_pages, preallocate, read_direct};
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::segments::file_budget::{FileBudget, Taken};

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

/// A file of a local log.
pub trait LogFile: fmt::Debug + Send + Sync {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The kernel's error; `UnexpectedEof` when the file ends before that.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `buffer` from `offset` on if memory has all of it; false: it has not, and nobody knows
    /// what of the buffer was filled. Never waits for the disk, but may have it begin to read.
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool;

    /// Fills `buffer` with what the disk has, whatever memory has.
    ///
    /// # Errors
    /// The kernel's error; `InvalidInput` where there is no disk under the file that can be read so.
    fn read_past_cache(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

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

    /// Makes everything written durable, then has reads answer what the disk holds, whatever memory
    /// had of the file: what could not be written at some time stays there as if it had been.
    ///
    /// # Errors
    /// The kernel's error. `ResourceBusy`: memory differs from the disk and cannot be let go, as
    /// somebody still reads it.
    fn sync_and_forget(&self) -> io::Result<()>;

    /// Asks the kernel to start writing a range to the disk; a hint that does not wait.
    fn start_writeback(&self, offset: u64, len: u64);

    /// Asks the kernel to start reading a range from the disk; a hint that does not wait.
    fn start_read(&self, offset: u64, len: u64);

    /// Has the kernel read what is asked for and nothing beside it, which nobody would compare with its
    /// checksum; a hint.
    fn read_no_more(&self);

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
    lock: Mutex<Option<FileLock>>,
    budget: FileBudget,
}

#[derive(Debug)]
struct HostFile {
    file: File,
    budget: FileBudget,
    /// A segment's descriptor; what was there before may be one more than there should be.
    _descriptor: Option<Taken>,
    mapping: Mutex<Option<Taken>>,
}

const LOCK: &str = "lock";

impl HostDirectory {
    /// Opens the directory, creating it (mode 0700) when absent, and locks it.
    ///
    /// # Errors
    /// `WouldBlock` when another process, or another overlay of this one, has it open; else the
    /// kernel's error.
    pub fn open(path: &Path) -> io::Result<HostDirectory> {
        HostDirectory::open_within(path, FileBudget::of_process())
    }

    fn open_within(path: &Path, budget: FileBudget) -> io::Result<HostDirectory> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = OpenOptions::new();
        let lock =
            options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK))?;
        let lock = FileLock::try_exclusive(lock)?;
        let directory = File::open(path)?;
        Ok(HostDirectory { path: path.to_owned(), directory, lock: Mutex::new(Some(lock)), budget })
    }

    fn file(&self, file: File, descriptor: Option<Taken>) -> Arc<dyn LogFile> {
        let budget = self.budget.clone();
        Arc::new(HostFile { file, budget, _descriptor: descriptor, mapping: Mutex::default() })
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
        let descriptor = self.budget.file();
        if size_bytes > 0 && descriptor.is_none() {
            tracing::warn!(
                path = %path.display(),
                "local logs have no descriptor for another segment: raise LimitNOFILE of the data \
                 plane, or [volumes] segment_bytes"
            );
            return Err(Errno::NOSPC.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        if size_bytes > 0
            && let Err(error) = preallocate(&file, size_bytes)
        {
            fs::remove_file(&path)?;
            return Err(error);
        }
        let file = self.file(file, descriptor);
        file.read_no_more();
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(self.file(file, self.budget.file()))
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
        acstor_diskio::space(&self.directory)
    }

    fn unlock(&self) {
        *self.lock.lock() = None;
    }
}

impl LogFile for HostFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        acstor_diskio::read_cached(&self.file, buffer, offset)
    }

    fn read_past_cache(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        read_direct(&self.file, buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        acstor_diskio::write_all_at(&self.file, parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_and_forget(&self) -> io::Result<()> {
        self.file.sync_data()?;
        forget_pages(&self.file)
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        acstor_diskio::start_writeback(&self.file, offset, len);
    }

    fn start_read(&self, offset: u64, len: u64) {
        // A hint has no outcome.
        let _ = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn read_no_more(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::Random);
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn map(&self, len: usize) -> Option<MmapRaw> {
        let mut mapping = self.mapping.lock();
        if mapping.is_none() {
            *mapping = Some(self.budget.mapping()?);
        }
        let mapped = MmapOptions::new().len(len).map_raw_read_only(&self.file).ok()?;
        drop(mapped.advise(memmap2::Advice::Random));
        Some(mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_descriptors_and_mappings_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let budget = FileBudget::new(3, 2);
        let disk = HostDirectory::open_within(directory.path(), budget).unwrap();
        let mut files: Vec<_> =
            (0..3).map(|n| disk.create(&format!("segment-{n}"), 8192).unwrap()).collect();
        let error = disk.create("segment-3", 8192).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "no room, as a full disk says it");
        assert!(!directory.path().join("segment-3").exists());
        assert!(disk.create("checkpoint", 0).is_ok(), "what gives room back goes on");
        assert!(disk.open("segment-0").is_ok(), "what is there is opened");

        let maps: Vec<_> = files.iter().map(|file| file.map(8192).is_some()).collect();
        assert_eq!(maps, [true, true, false], "the others are read by calls");
        drop(files.remove(0));
        assert!(files[1].map(8192).is_some());
        assert!(disk.create("segment-3", 8192).is_ok());
    }
}
