//! The overlay: a writable disk over an immutable manifest.
//!
//! What the guest writes goes to a log on this host's disk; reads merge the log with the manifest
//! under it. A push carries the log to the origin, as often and as early as the durability of the
//! region says; a fold merges what was pushed into packs and a new manifest. Layouts:
//! `reference/formats/overlay-log` (this host), `reference/formats/volume-log` (origin);
//! `contributor/overlay` follows a write through the modules.
//!
//! Must never: acknowledge what is not yet as durable as was asked for, let the origin be anything
//! but a prefix of what was written, or read a byte of the log that no checksum covers after a
//! crash.

mod device;
mod disk;
mod origin;
mod segment;

pub use device::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery,
    Piece, SECTOR_BYTES, TryRead, ZeroHow,
};
pub use disk::{HostDirectory, LogDisk, LogFile};
pub use origin::{OriginSink, RefState, SinkError};
pub use segment::LogPiece;
