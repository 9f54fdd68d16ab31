//! Named maxima of the format. Counts from a file are compared with these, and with the length of
//! the file, before anything is allocated.

pub use acstor_types::limits::{DISK_SIZE_MAX, MANIFEST_PACKS_MAX as PACKS_MAX};

/// Most chunks of one disk, with content or not: 64 TiB of 64 KiB chunks.
pub const CHUNKS_MAX: u64 = 1 << 30;
/// Most map pages of one manifest: one for each span of [`CHUNKS_MAX`] chunks.
pub const MAPS_MAX: u32 = 1 << 17;
/// Most manifests that one read may have to look into, the topmost included.
///
/// Source: ACStor §3.7.1 (versions are merged past a depth of 3).
pub const DEPTH_MAX: u8 = 3;
