//! Files of the store as it uses them: the seam at which tests put in a faulty disk.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatvfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};

use crate::residency;

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

impl HostFile {
    fn sync_range(&self, offset: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: takes numbers only; the descriptor is open while `self` lives.
        match unsafe { libc::sync_file_range(fd, offset as i64, len as i64, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

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

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        let len = buffer.len();
        let mut parts = [IoSliceMut::new(buffer)];
        // A file system without it (EOPNOTSUPP) is one that cannot tell.
        let read = preadv2(&self.0, &mut parts, offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|read| read == len)
    }

    fn is_resident(&self, mapped: *const u8, _offset: u64, len: usize) -> bool {
        residency::is_resident(mapped, len)
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        // It cannot fail in a way that `finish_writeback` does not tell.
        let _ = self.sync_range(offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }

    fn finish_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.sync_range(offset, len, flags)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        let metadata = self.0.metadata()?;
        let (length, allocated) = (metadata.len(), metadata.blocks() * 512);
        // xfs wants as much free space as fallocate(2) is asked for, whatever of it the file has.
        let first = if allocated >= length { length.min(size_bytes) } else { 0 };
        if first == size_bytes {
            return Ok(());
        }
        // fallocate(2) takes all the space there is before it says that it was not enough, which
        // on a busy host is an outage of its own.
        let missing = size_bytes.saturating_sub(allocated);
        let disk = fstatvfs(&self.0)?;
        if missing > disk.f_bavail.saturating_mul(disk.f_frsize) {
            return Err(Errno::NOSPC.into());
        }
        loop {
            match fallocate(&self.0, FallocateFlags::empty(), first, size_bytes - first) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
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
