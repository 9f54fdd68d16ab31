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

mod adoption;
mod cadence;
mod checked_read;
mod checkpoint;
#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod cold_read_tests;
mod config;
mod core;
mod device;
mod disk;
mod durability;
mod error;
mod extent_map;
#[cfg(test)]
mod failing_device;
#[cfg(test)]
mod failing_device_tests;
mod fetch_ahead;
mod file_budget;
mod flusher;
mod fold;
#[cfg(test)]
mod fold_tests;
mod gpt;
#[cfg(test)]
mod handover_tests;
mod hold_back;
#[cfg(test)]
mod hold_back_tests;
#[cfg(test)]
mod hung_disk_tests;
pub mod limits;
mod log;
#[cfg(test)]
mod log_crash;
mod map_state;
#[cfg(test)]
mod memory_disk;
#[cfg(test)]
mod memory_origin;
mod origin;
mod origin_log;
mod origin_wait;
#[cfg(test)]
mod outage_tests;
mod page_cache;
mod pool;
mod push;
mod push_batch;
#[cfg(test)]
mod push_fault_tests;
#[cfg(test)]
mod push_tests;
mod push_turns;
mod push_waiters;
mod quota;
#[cfg(test)]
mod quota_tests;
mod range_set;
mod reclaim;
mod record;
mod record_index;
mod recovery;
mod refetch;
#[cfg(test)]
mod refetch_tests;
mod regions;
mod release;
#[cfg(test)]
mod release_tests;
mod replay;
mod requests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod rot_tests;
#[cfg(test)]
mod rotting;
mod scan;
mod seal;
mod segment;
mod slot_floor;
mod table_seen;
#[cfg(test)]
mod table_tests;
mod volume;
#[cfg(test)]
mod volume_crash;
#[cfg(test)]
mod volume_stress;
#[cfg(test)]
mod volume_tests;
mod volume_threads;
#[cfg(test)]
mod write_history;
mod writeback;

pub use adoption::adopt_log;
pub use config::{Opening, OverlayStatus, PushPoint, VolumeConfig, VolumeState};
pub use device::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery,
    Piece, SECTOR_BYTES, TryRead, ZeroHow,
};
pub use disk::{DiskSpace, HostDirectory, LogDisk, LogFile};
pub use durability::{Durability, DurabilityClass, FlushTarget, RegionSpec};
pub use error::OverlayError;
pub use fold::{Announce, FoldHow, Folded, Keep, LogPosition};
pub use origin::{OriginSink, SinkError};
pub use origin_log::{
    LOG_OBJECT_HEADER_LEN, LOG_OBJECT_SIZE_MAX, LogObjectError, LogObjectInfo, VOLUME_LOG_VERSION,
    log_key, log_object_info, log_prefix,
};
pub use record::OVERLAY_LOG_VERSION;
pub use release::Release;
pub use replay::LogRange;
pub use seal::{Sealed, seal};
pub use segment::LogPiece;
pub use volume::Volume;
