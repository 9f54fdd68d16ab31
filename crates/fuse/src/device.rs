//! The one descriptor of a FUSE connection: reading requests and writing answers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;

use acstor_readpath::Segment;
use zerocopy::IntoBytes;

use crate::limits::IOVECS_MAX;
use crate::wire::abi;

/// Zeros for holes. Memory that was written: a page that is not mapped yet, and the kernel's zero page
/// at any time, would be looked up in the midst of an answer, which a SIGKILL then ends with an error.
/// Short enough to stay in a processor's cache; a hole is as many of it as are needed.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut zeros = vec![1; ZEROS_BYTES];
    std::hint::black_box(&mut zeros).fill(0);
    zeros
});
const ZEROS_BYTES: usize = 64 << 10;

/// Result of sending an answer to the kernel.
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

/// Copies segments to memory, mapped ones by reading their file. All of them are tried even when
/// one fails, since a failed read makes the store drop the chunk.
fn gather(segments: &[Segment]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; segments.iter().map(Segment::len).sum()];
    let mut filled = 0;
    let mut result = Ok(());
    for segment in segments {
        let target = &mut bytes[filled..filled + segment.len()];
        result = result.and(segment.read_to(target));
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
