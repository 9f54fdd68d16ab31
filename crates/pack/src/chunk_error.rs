//! Defects of a chunk's stored bytes.

use acstor_types::{Codec, ErrorKind};

/// Reason why stored bytes are not the chunk that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// More or fewer bytes than the table says.
    #[error("{actual} stored bytes in place of {expected}")]
    Truncated {
        /// Bytes that are there.
        actual: usize,
        /// Bytes that the table says.
        expected: u32,
    },
    /// No chunk of the expected size has so many stored bytes.
    #[error("{stored_len} stored bytes ({codec:?}) are no chunk of {plain_len} bytes")]
    Length {
        /// Codec that the table says.
        codec: Codec,
        /// Stored bytes that the table says.
        stored_len: u32,
        /// Bytes of the plain chunk.
        plain_len: usize,
    },
    /// The stored bytes were changed.
    #[error("the stored bytes do not match their CRC-32")]
    Checksum,
    /// No LZ4 block of a chunk of the expected size.
    #[error("not an LZ4 block of {plain_len} bytes")]
    Lz4 {
        /// Bytes of the plain chunk.
        plain_len: usize,
    },
    /// No zstd frame as packs have them.
    #[error("not a zstd frame of a chunk: {0}")]
    ZstdFrame(&'static str),
    /// No zstd frame of a chunk of the expected size.
    #[error("not a zstd frame of {plain_len} bytes")]
    Zstd {
        /// Bytes of the plain chunk.
        plain_len: usize,
    },
    /// Another content.
    #[error("the content does not match its digest")]
    Digest,
}

impl ChunkError {
    /// The reaction that it allows a caller: use another source.
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Corrupt
    }
}
