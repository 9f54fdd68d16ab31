//! Files of the store as it uses them: the seam at which tests put in a faulty disk.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use acstor_diskio::residency;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{Advice, fadvise};

/// Opens the store's data file and record file.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens `path` for reading and writing, creating it when absent.
    ///
    /// # Errors
    /// The kernel's error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn SlotFile>>;
}

/// A preallocated file that is read and written at offsets by many threads at once.
///
/// The caller guarantees that two writes never overlap in time and place. The implementation must
/// read and write everything or fail, must make written bytes visible to later reads and to the
/// mapping, and must keep them when the process is killed.
pub trait SlotFile: fmt::Debug + Send + Sync {
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

    /// Fills `buffer` from `offset` on if the bytes are in memory; `false` where they are not, or where
    /// that cannot be told. Does not wait for the disk.
    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> bool;

    /// Returns whether the bytes from `offset` on are in memory; `mapped` is where the mapping has them.
    fn is_resident(&self, mapped: *const u8, offset: u64, len: usize) -> bool;

    /// Asks the kernel to start writing a range to the disk; a hint that does not wait.
    fn start_writeback(&self, offset: u64, len: u64);

    /// Writes what is dirty in a range to the disk, waits for it, and says whether any write of the
    /// file failed since the last call, wherever in the file it was.
    ///
    /// # Errors
    /// The kernel's error of a write that it had taken before; told once.
    fn finish_writeback(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Size of the file, bytes.
    ///
    /// # Errors
    /// The kernel's error.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Reserves disk space for the first `size_bytes` bytes and makes the file at least that long.
    ///
    /// # Errors
    /// The kernel's error, `StorageFull` above all.
    fn preallocate(&self, size_bytes: u64) -> io::Result<()>;

    /// Cuts the file to `size_bytes` bytes.
    ///
    /// # Errors
    /// The kernel's error.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;

    /// Maps the first `size_bytes` bytes for the kernel to read from.
    ///
    /// # Errors
    /// The kernel's error.
    fn map(&self, size_bytes: usize) -> io::Result<MmapRaw>;
}

/// The host's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDisk;

#[derive(Debug)]
struct HostFile(File);

impl Disk for HostDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn SlotFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).mode(0o600).open(path)?;
        // What is beside the bytes read belongs to other chunks: read ahead it would cost the disk
        // its time, and be in memory though nobody has hashed it.
        if let Err(error) = fadvise(&file, 0, None, Advice::Random) {
            tracing::warn!(path = %path.display(), %error, "cannot switch the read-ahead off");
        }
        Ok(Box::new(HostFile(file)))
    }
}

impl SlotFile for HostFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        acstor_diskio::write_all_at(&self.0, parts, offset)
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        acstor_diskio::read_cached(&self.0, buffer, offset)
    }

    fn is_resident(&self, mapped: *const u8, _offset: u64, len: usize) -> bool {
        residency::is_resident(mapped, len)
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        acstor_diskio::start_writeback(&self.0, offset, len);
    }

    fn finish_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        acstor_diskio::finish_writeback(&self.0, offset, len)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        acstor_diskio::preallocate(&self.0, size_bytes)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.0.set_len(size_bytes)
    }

    fn map(&self, size_bytes: usize) -> io::Result<MmapRaw> {
        let mapping = MmapOptions::new().len(size_bytes).map_raw_read_only(&self.0)?;
        mapping.advise(memmap2::Advice::Random)?;
        Ok(mapping)
    }
}
