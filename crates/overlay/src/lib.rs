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

mod base;
mod compaction;
mod config;
mod core;
mod device;
mod error;
mod fold;
mod freeze;
mod life;
pub mod limits;
mod log;
mod push;
mod regions;
#[cfg(test)]
mod scenarios;
mod segments;
mod volume;
mod volume_threads;

pub use acstor_diskio::DiskSpace;
pub use config::{Opening, OverlayStatus, PushPoint, VolumeConfig, VolumeState};
pub use device::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, DeviceUse, Done,
    ExtentQuery, Piece, SECTOR_BYTES, TryRead, ZeroHow,
};
pub use error::OverlayError;
pub use fold::{Announce, FoldHow, Folded, Keep, LogPosition};
pub use push::origin::{OriginSink, SinkError};
pub use push::origin_log::{
    LOG_OBJECT_HEADER_LEN, LOG_OBJECT_SIZE_MAX, LogObjectError, LogObjectInfo, VOLUME_LOG_VERSION,
    log_key, log_object_info, log_prefix,
};
pub use push::release::Release;
pub use push::replay::LogRange;
pub use push::seal::{Sealed, seal};
pub use push::spool::{SpooledRun, spool_log};
pub use regions::durability::{Durability, DurabilityClass, FlushTarget, RegionSpec};
pub use segments::adoption::adopt_log;
pub use segments::disk::{HostDirectory, LogDisk, LogFile};
pub use segments::record::OVERLAY_LOG_VERSION;
pub use segments::segment::LogPiece;
pub use volume::Volume;
