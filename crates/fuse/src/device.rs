//! The one descriptor of a FUSE connection: reading requests and writing answers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use acstor_readpath::Segment;
use zerocopy::IntoBytes;

use crate::abi;
use crate::limits::IOVECS_MAX;

/// Zeros for holes. Never written, so the kernel backs it with its zero page.
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
const ZEROS_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
const MADV_POPULATE_READ: libc::c_int = 22;

/// What became of an answer.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The kernel took it.
    Delivered,
    /// Nobody waits for it any more: interrupted, answered elsewhere, or the connection ended.
    Unwanted,
    /// The mapped file was cut under the answer; the kernel failed the request with EIO.
    Fault,
    /// The kernel refused the message; a fault of this program.
    Refused(io::Error),
}

/// The descriptor of a connection. All threads use this one: a clone (`FUSE_DEV_IOC_CLONE`) would
/// take the requests read through it along when the process dies.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Device {
        Device(fd)
    }

    /// Waits for the next request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }

    /// Answers with an errno, or with success and no body when `errno` is 0.
    pub(crate) fn send_errno(&self, unique: u64, errno: i32) -> Sent {
        let len = size_of::<abi::OutHeader>() as u32;
        self.send(&[iovec(abi::OutHeader { len, error: -errno, unique }.as_bytes())])
    }

    /// Answers with a body.
    pub(crate) fn send_body(&self, unique: u64, body: &[u8]) -> Sent {
        let len = (size_of::<abi::OutHeader>() + body.len()) as u32;
        let header = abi::OutHeader { len, error: 0, unique };
        self.send(&[iovec(header.as_bytes()), iovec(body)])
    }

    /// Answers a READ with segments, straight from where they are.
    pub(crate) fn send_segments(&self, unique: u64, segments: &[Segment]) -> Sent {
        let bytes: usize = segments.iter().map(Segment::len).sum();
        let header =
            abi::OutHeader { len: (size_of::<abi::OutHeader>() + bytes) as u32, error: 0, unique };
        let mut pieces = Vec::with_capacity(segments.len() + 1);
        pieces.push(iovec(header.as_bytes()));
        for segment in segments {
            push_segment(&mut pieces, segment);
        }
        if pieces.len() > IOVECS_MAX {
            return match gather(segments) {
                Ok(body) => self.send_body(unique, &body),
                Err(_) => Sent::Fault,
            };
        }
        self.send(&pieces)
    }

    /// Sends an unsolicited message; `code` names it.
    pub(crate) fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let len = (size_of::<abi::OutHeader>() + body.len()) as u32;
        let header = abi::OutHeader { len, error: code, unique: 0 };
        self.write(&[iovec(header.as_bytes()), iovec(body)])
    }

    fn send(&self, pieces: &[libc::iovec]) -> Sent {
        match self.write(pieces) {
            Ok(()) => Sent::Delivered,
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN) => {
                    Sent::Unwanted
                }
                Some(libc::EFAULT) => Sent::Fault,
                _ => Sent::Refused(error),
            },
        }
    }

    fn write(&self, pieces: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: every iovec describes memory that the caller keeps alive over the call; the
        // kernel reads it, and reports memory that has no file behind it any more as EFAULT.
        let written =
            unsafe { libc::writev(self.0.as_raw_fd(), pieces.as_ptr(), pieces.len() as i32) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Makes the kernel map every mapped page of `segments` now.
///
/// Once an answer is being copied there is no way back: a page that cannot be had (file cut, disk
/// error, or a SIGKILL while the page is waited for) makes the kernel fail the reader's request.
/// Here it is an error that can be acted on, or a request that the next process gets again.
pub(crate) fn populate(segments: &[Segment]) -> io::Result<()> {
    for segment in segments {
        let Segment::Mapped { chunk, start, len } = segment else { continue };
        let first = chunk.mapped() as usize + start;
        let aligned = first & !(PAGE_BYTES - 1);
        // SAFETY: populating neither changes nor frees memory; the guard keeps the mapping alive.
        let result = unsafe {
            libc::madvise(aligned as *mut libc::c_void, first + len - aligned, MADV_POPULATE_READ)
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            // EINVAL: a kernel before 5.14, where the answer is simply tried.
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Copies segments to memory, mapped ones by reading their file. All of them are tried even when
/// one fails, since a failed read makes the store drop the chunk.
pub(crate) fn gather(segments: &[Segment]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; segments.iter().map(Segment::len).sum()];
    let mut filled = 0;
    let mut result = Ok(());
    for segment in segments {
        let target = &mut bytes[filled..filled + segment.len()];
        match segment {
            Segment::Zeros(_) => {}
            Segment::Mapped { chunk, start, .. } => {
                result = result.and(chunk.read_at(*start, target));
            }
            Segment::Bytes(source) => target.copy_from_slice(source),
        }
        filled += segment.len();
    }
    result.map(|()| bytes)
}

fn push_segment(pieces: &mut Vec<libc::iovec>, segment: &Segment) {
    match segment {
        Segment::Zeros(len) => {
            let mut left = *len;
            while left > 0 {
                let piece = left.min(ZEROS_BYTES);
                pieces.push(iovec(&ZEROS[..piece]));
                left -= piece;
            }
        }
        Segment::Mapped { chunk, start, len } => pieces.push(libc::iovec {
            iov_base: chunk.mapped().wrapping_add(*start).cast_mut().cast(),
            iov_len: *len,
        }),
        Segment::Bytes(bytes) => pieces.push(iovec(bytes)),
    }
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
