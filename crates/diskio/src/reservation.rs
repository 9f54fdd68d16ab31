//! Disk space: how much there is, and reserving it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that can be reserved.
    pub free_bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
}

/// Returns how large the file system of a file or directory is, and how much of it is free.
///
/// # Errors
/// The kernel's error.
pub fn space(file: &File) -> io::Result<DiskSpace> {
    let disk = fstatvfs(file)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Ok(DiskSpace { free_bytes: bytes(disk.f_bavail), total_bytes: bytes(disk.f_blocks) })
}

/// Reserves disk space for the first `size_bytes` bytes and makes the file at least that long.
///
/// # Errors
/// The kernel's error, `StorageFull` above all.
pub fn preallocate(file: &File, size_bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let (length, allocated) = (metadata.len(), metadata.blocks() * 512);
    // xfs wants as much free space as fallocate(2) is asked for, whatever of it the file has.
    let first = if allocated >= length { length.min(size_bytes) } else { 0 };
    if first == size_bytes {
        return Ok(());
    }
    // fallocate(2) takes all the space there is before it says that it was not enough, which
    // on a busy host is an outage of its own.
    if size_bytes.saturating_sub(allocated) > space(file)?.free_bytes {
        return Err(Errno::NOSPC.into());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), first, size_bytes - first) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_preallocate_more_than_there_is_takes_nothing() {
        let file = tempfile::tempfile().unwrap();
        let before = space(&file).unwrap();
        let error = preallocate(&file, before.total_bytes + (1 << 30)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn test_preallocate_grows_and_never_shortens() {
        let file = tempfile::tempfile().unwrap();
        for (size, expected) in [(8192, 8192), (4096, 8192), (1 << 20, 1 << 20)] {
            preallocate(&file, size).unwrap();
            assert_eq!(file.metadata().unwrap().len(), expected);
        }
    }
}
