//! Packs of version 2: the stored forms of chunks, the layout of a pack, the planning of reads.
//!
//! Nothing here does I/O, starts threads or reads configuration. The layout has its page,
//! `reference/formats/pack-v2`, and a golden file; which codecs there are, and why, is in RFD 19
//! (`rfd/0019-codecs-of-packs`). Whatever is read is bounded by what the caller
//! expects, never by what the bytes say of themselves.

mod builder;
mod chunk_error;
mod compression;
mod decompression;
mod header;
mod layout;
mod moved_pack;
mod pack_error;
mod runs;
mod stored_form;
mod table;
mod zstd_encoder;
mod zstd_frame;

pub use builder::{PackBuilder, SealedPack};
pub use chunk_error::ChunkError;
pub use compression::{ChunkCompressor, CompressionPolicy, ZstdLevel};
pub use decompression::ChunkDecompressor;
pub use header::{PACK_VERSION, PackHeader};
pub use layout::{PackLayout, SealedLayout};
pub use moved_pack::{
    MOVED_PACK_VERSION, MOVED_TARGETS_MAX, MovedChunk, MovedPack, MovedPackError, TargetRuns,
};
pub use pack_error::PackError;
pub use runs::{GAP_BYTES_MAX, GAP_DIVISOR, PlannedRun, Run, plan_runs};
pub use stored_form::{StoredForm, compressed_len_max, is_possible_len};
pub use table::PackTable;
