//! Named maxima. A value from disk or network is compared with these before anything is allocated.

/// Smallest chunk, bytes.
pub const CHUNK_SIZE_MIN: u32 = 4 << 10;
/// Largest chunk, bytes.
pub const CHUNK_SIZE_MAX: u32 = 4 << 20;
/// Chunk size where the operator chose none, bytes.
pub const CHUNK_SIZE_DEFAULT: u32 = 64 << 10;
/// Largest disk that a manifest describes, bytes (64 TiB).
pub const DISK_SIZE_MAX: u64 = 64 << 40;
/// Most chunks of one manifest (64 TiB of 1 MiB chunks, 4 TiB of 64 KiB chunks).
pub const MANIFEST_CHUNKS_MAX: u64 = 64 << 20;
/// Most packs that one manifest refers to.
pub const MANIFEST_PACKS_MAX: u32 = 4 << 20;
/// Most chunks of one pack.
pub const PACK_CHUNKS_MAX: u32 = 1 << 20;
/// Largest pack, bytes: offsets in a pack are 32 bits wide.
pub const PACK_SIZE_MAX: u64 = 1 << 32;
