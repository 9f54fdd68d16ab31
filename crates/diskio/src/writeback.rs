//! Write-back of ranges, and hearing how it went.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Asks the kernel to start writing a range to the disk; a hint that does not wait, and cannot fail in
/// a way that a sync or [`finish_writeback`] does not tell.
pub fn start_writeback(file: &File, offset: u64, len: u64) {
    let _ = sync_range(file, offset, len, libc::SYNC_FILE_RANGE_WRITE);
}

/// Writes what is dirty in a range to the disk, waits for it, and says whether any write of the file
/// failed since the last call, wherever in the file it was.
///
/// # Errors
/// The kernel's error of a write that it had taken before; told once.
pub fn finish_writeback(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, len, flags)
}

fn sync_range(file: &File, offset: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: takes numbers only; the descriptor is open while `file` is.
    match unsafe { libc::sync_file_range(fd, offset as i64, len as i64, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
