//! A chunk's stored bytes with what the table says of them, before they have a place.

use acstor_types::{Codec, StoredChunk};

/// Most stored bytes of a compressed chunk of `plain_len` bytes: at least an eighth less.
///
/// Less than that is not worth the work of every reader; the same share as on the wire.
pub const fn compressed_len_max(plain_len: usize) -> usize {
    plain_len - plain_len / 8
}

/// Returns whether a chunk of `plain_len` bytes can have so many stored bytes.
pub const fn is_possible_len(codec: Codec, stored_len: usize, plain_len: usize) -> bool {
    match codec {
        Codec::Plain => stored_len == plain_len,
        Codec::Lz4 | Codec::Zstd => stored_len > 0 && stored_len <= compressed_len_max(plain_len),
    }
}

/// The bytes in which a chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredForm<'a> {
    /// The stored bytes.
    pub bytes: &'a [u8],
    /// Their form.
    pub codec: Codec,
    /// True if compressing was tried and did not pay; only of plain chunks.
    pub is_incompressible: bool,
    /// CRC-32 of the stored bytes.
    pub crc: u32,
}

impl<'a> StoredForm<'a> {
    /// The form of these bytes.
    pub(crate) fn new(bytes: &'a [u8], codec: Codec, is_incompressible: bool) -> Self {
        Self { bytes, codec, is_incompressible, crc: crc32fast::hash(bytes) }
    }

    /// The form that a chunk has in another pack, which is copied as it is.
    ///
    /// The CRC is that of the other pack's table: what was damaged on the way stays recognisable.
    pub fn copied(chunk: &StoredChunk, stored: &'a [u8]) -> Self {
        Self {
            bytes: stored,
            codec: chunk.codec,
            is_incompressible: chunk.is_incompressible,
            crc: chunk.crc,
        }
    }
}
