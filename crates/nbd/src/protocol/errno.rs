//! The error numbers that NBD knows, and what the device's errors become.

use acstor_overlay::{DeviceError, DeviceErrorKind};

/// An error number of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// Not allowed: a write to a read-only export.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// The request is wrong.
    Invalid = 22,
    /// No space, or beyond the end of the export.
    NoSpace = 28,
    /// Too long for one answer.
    Overflow = 75,
    /// The server stops.
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The one table from a device's errors to what the client sees.
    pub const fn of(kind: DeviceErrorKind) -> Errno {
        match kind {
            DeviceErrorKind::Io | DeviceErrorKind::Fenced => Errno::Io,
            DeviceErrorKind::NoSpace => Errno::NoSpace,
            DeviceErrorKind::Invalid => Errno::Invalid,
            DeviceErrorKind::ReadOnly => Errno::Perm,
            DeviceErrorKind::Shutdown => Errno::Shutdown,
        }
    }
}

impl From<&DeviceError> for Errno {
    fn from(error: &DeviceError) -> Errno {
        Errno::of(error.kind)
    }
}
