//! The words that every other crate uses: digests, OIDs, manifests, packs, error kinds, limits.
//!
//! Nothing here does I/O, starts threads or reads configuration. Byte layouts live here and only
//! here; each has a page in the documentation (`reference/formats`), a version constant and a
//! golden file under `tests/golden` that Rust and Python both read.

pub mod bytes_le;
mod chunk_size;
mod dedup_scope;
mod digest;
mod disk_id;
mod error_kind;
pub mod limits;
mod manifest;
mod manifest_builder;
mod oid;
mod pack;
mod pack_class;
mod request_class;
mod stored_chunk;
mod zero;

pub use chunk_size::ChunkSize;
pub use dedup_scope::DedupScope;
pub use digest::{Digest, ParseDigestError};
pub use disk_id::{DiskId, ParseDiskIdError};
pub use error_kind::ErrorKind;
pub use manifest::{
    ChunkLocation, Entry, MANIFEST_HEADER_LEN, MANIFEST_VERSION, Manifest, ManifestError,
    ManifestHeader,
};
pub use manifest_builder::ManifestBuilder;
pub use oid::Oid;
pub use pack::{PACK_DATA_OFFSET, PACK_VERSION, PackError, PackHeader, PackId, PackSalt};
pub use pack_class::PackClass;
pub use request_class::RequestClass;
pub use stored_chunk::{Codec, STORED_CHUNK_LEN, StoredChunk, StoredChunkError};
pub use zero::is_zero;
