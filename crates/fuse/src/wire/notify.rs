//! Messages to the kernel that no request asked for.
//!
//! Only those are used that take no lock which a pending request may hold: `INVAL_ENTRY` waits for
//! the directory's lock, so a process killed in it could not end until somebody answered the
//! lookup that holds the lock, and that somebody is the process's own successor.

use std::io;

use zerocopy::IntoBytes;

use crate::device::Device;
use crate::wire::abi;

/// Asks the kernel to send everything again that was read but not answered (Linux 6.9). The
/// numbers of those requests then have bit 63 set.
pub(crate) fn resend(device: &Device) -> io::Result<()> {
    device.notify(abi::notify::RESEND, &[])
}

/// Asks the kernel to drop its cached name of an inode that nobody uses (Linux 6.18).
pub(crate) fn prune(device: &Device, inode: u64) -> io::Result<()> {
    let head = abi::NotifyPrune { count: 1, ..Default::default() };
    device.notify(abi::notify::PRUNE, &[head.as_bytes(), inode.as_bytes()].concat())
}

/// Asks whether the kernel has an inode; its attributes (not its pages) are dropped on the way.
pub(crate) fn knows(device: &Device, inode: u64) -> io::Result<bool> {
    let body = abi::NotifyInvalInode { ino: inode, off: -1, len: 0 };
    match device.notify(abi::notify::INVAL_INODE, body.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}
