//! A raw file as a device, the way nbdkit's file plugin serves one: pread, pwrite, fdatasync.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery,
    Piece, TryRead, ZeroHow,
};
use acstor_readpath::Segment;
use bytes::Bytes;

/// A raw file.
pub struct FileDevice {
    file: Arc<File>,
    size: u64,
}

impl FileDevice {
    pub fn open(path: &Path) -> io::Result<FileDevice> {
        let file = File::options().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(FileDevice { file: Arc::new(file), size })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open.
        let result =
            unsafe { libc::fallocate(self.file.as_raw_fd(), how, offset as i64, len as i64) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn done(&self, outcome: io::Result<()>, fua: bool) -> Done<()> {
        match outcome {
            Ok(()) if fua => self.flush(),
            outcome => Done::Now(outcome.map_err(|error| device_error(&error))),
        }
    }

    fn next(&self, offset: u64, whence: libc::c_int) -> u64 {
        // SAFETY: the descriptor is open; its position is not used.
        let found = unsafe { libc::lseek(self.file.as_raw_fd(), offset as i64, whence) };
        u64::try_from(found).unwrap_or(self.size)
    }
}

fn device_error(error: &io::Error) -> DeviceError {
    let kind = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => DeviceErrorKind::NoSpace,
        _ => DeviceErrorKind::Io,
    };
    DeviceError::new(kind, error.to_string())
}

/// Reads without waiting for the disk; `None`: not all of it is in the page cache.
fn read_cached(file: &File, len: usize, offset: u64) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len);
    let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let read = |flags| {
        // SAFETY: the piece describes the buffer's capacity.
        unsafe { libc::preadv2(file.as_raw_fd(), &piece, 1, offset as i64, flags) }
    };
    let mut count = read(libc::RWF_NOWAIT);
    // A file system in memory does not know the flag, and never waits.
    if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
        count = read(0);
    }
    if count != len as isize {
        return None;
    }
    // SAFETY: the kernel filled all of them.
    unsafe { bytes.set_len(len) };
    Some(bytes)
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        Ok(match read_cached(&self.file, len, offset) {
            Some(bytes) => TryRead::Ready(vec![Piece::Base(Segment::Bytes(Bytes::from(bytes)))]),
            None => TryRead::WouldWait,
        })
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        let file = Arc::clone(&self.file);
        let reading = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; len];
            file.read_exact_at(&mut buffer, offset).map_err(|error| device_error(&error))?;
            Ok(vec![Piece::Base(Segment::Bytes(Bytes::from(buffer)))])
        });
        Box::pin(async move {
            reading.await.unwrap_or_else(|failure| {
                Err(DeviceError::new(DeviceErrorKind::Io, failure.to_string()))
            })
        })
    }

    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()> {
        self.done(self.file.write_all_at(&data, offset), fua)
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()> {
        self.done(self.punch(offset, len), how.fua)
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        self.done(self.punch(offset, len), fua)
    }

    fn flush(&self) -> Done<()> {
        let file = Arc::clone(&self.file);
        let syncing = tokio::task::spawn_blocking(move || file.sync_data());
        Done::Later(Box::pin(async move {
            let outcome = syncing.await.unwrap_or_else(|failure| Err(io::Error::other(failure)));
            outcome.map_err(|error| device_error(&error))
        }))
    }

    fn extents(&self, offset: u64, len: u64, what: ExtentQuery, max: usize) -> Vec<DeviceExtent> {
        let mut extents = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end && extents.len() < max {
            let data = self.next(at, libc::SEEK_DATA);
            let is_hole = what == ExtentQuery::Allocation && data > at;
            let until = if is_hole { data } else { self.next(at, libc::SEEK_HOLE) };
            let until = until.clamp(at + 1, end);
            let is_zero = is_hole;
            extents.push(DeviceExtent { len: until - at, is_hole, is_zero, is_dirty: false });
            at = until;
        }
        extents
    }

    fn prefetch(&self, offset: u64, len: u64) -> Done<()> {
        // SAFETY: advice for an open file.
        unsafe {
            libc::posix_fadvise(
                self.file.as_raw_fd(),
                offset as i64,
                len as i64,
                libc::POSIX_FADV_WILLNEED,
            )
        };
        Done::Now(Ok(()))
    }
}
