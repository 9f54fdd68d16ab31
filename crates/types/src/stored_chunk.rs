//! A chunk as it lies in a pack of version 2: the record that pack tables and manifests share.
//!
//! Layout (all integers little-endian), described in `reference/formats`:
//!
//! ```text
//! 0      digest of the plain chunk             32
//! 32     offset of its stored bytes in the pack  u32
//! 36     length of its stored bytes            u24
//! 39     codec                                 u8
//! 40     CRC-32 of its stored bytes            u32
//! ```

use crate::bytes_le::{array_at, u32_at};
use crate::{Digest, limits};

/// Bytes of a [`StoredChunk`].
pub const STORED_CHUNK_LEN: usize = 44;

const CODEC_MASK: u8 = 0x0f;
const TRIED: u8 = 0x80;

/// Form of a chunk's bytes in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    Plain = 0,
    /// One LZ4 block, without a length in front.
    Lz4 = 1,
    /// One zstd frame with its content size, without a dictionary.
    Zstd = 2,
}

impl Codec {
    /// The codec of a number; `None` where this build knows none.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Codec::Plain),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Place and form of a chunk in a pack that is known from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// Of the plain bytes.
    pub digest: Digest,
    /// Offset in the pack at which its stored bytes begin, bytes.
    pub offset: u32,
    /// Stored bytes, at least 1.
    pub stored_len: u32,
    /// Form of the stored bytes.
    pub codec: Codec,
    /// True if compressing it was tried and did not pay; only of plain chunks.
    pub is_incompressible: bool,
    /// Of the stored bytes.
    pub crc: u32,
}

/// Defect of a [`StoredChunk`]'s bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredChunkError {
    /// A codec of a later release, or damage.
    #[error("codec {0:#04x} is not known")]
    Codec(u8),
    /// No chunk has that many stored bytes.
    #[error("stored length {0} is out of range")]
    Length(u32),
}

impl StoredChunk {
    /// Read one from its [`STORED_CHUNK_LEN`] bytes.
    ///
    /// Whether the length is possible for the chunk size in question is the caller's to check:
    /// here only what no chunk can have is refused.
    pub fn from_bytes(bytes: &[u8; STORED_CHUNK_LEN]) -> Result<Self, StoredChunkError> {
        let length_and_codec = u32_at(bytes, 36);
        let (stored_len, [.., form]) =
            (length_and_codec & 0x00ff_ffff, length_and_codec.to_le_bytes());
        let codec = Codec::from_number(form & CODEC_MASK).ok_or(StoredChunkError::Codec(form))?;
        let is_incompressible = form & TRIED != 0;
        if form & !(CODEC_MASK | TRIED) != 0 || (is_incompressible && codec != Codec::Plain) {
            return Err(StoredChunkError::Codec(form));
        }
        if stored_len == 0 || stored_len > limits::CHUNK_SIZE_MAX {
            return Err(StoredChunkError::Length(stored_len));
        }
        Ok(Self {
            digest: Digest::from_bytes(array_at(bytes, 0)),
            offset: u32_at(bytes, 32),
            stored_len,
            codec,
            is_incompressible,
            crc: u32_at(bytes, 40),
        })
    }

    /// Its bytes.
    ///
    /// A length above [`limits::CHUNK_SIZE_MAX`] is refused by [`Self::from_bytes`].
    pub fn to_bytes(&self) -> [u8; STORED_CHUNK_LEN] {
        let tried = if self.is_incompressible { TRIED } else { 0 };
        let [low, middle, high, _] = self.stored_len.to_le_bytes();
        let mut bytes = [0; STORED_CHUNK_LEN];
        bytes[..32].copy_from_slice(self.digest.as_bytes());
        bytes[32..36].copy_from_slice(&self.offset.to_le_bytes());
        bytes[36..40].copy_from_slice(&[low, middle, high, self.codec as u8 | tried]);
        bytes[40..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> StoredChunk {
        StoredChunk {
            digest: Digest::from_bytes([7; 32]),
            offset: 0x0102_0304,
            stored_len: 0x0001_0000,
            codec: Codec::Plain,
            is_incompressible: true,
            crc: 0xdead_beef,
        }
    }

    #[test]
    fn from_bytes_returns_what_was_written() {
        let lz4 =
            StoredChunk { codec: Codec::Lz4, is_incompressible: false, stored_len: 1, ..chunk() };
        for one in [chunk(), lz4] {
            assert_eq!(StoredChunk::from_bytes(&one.to_bytes()), Ok(one));
        }
    }

    #[test]
    fn layout_is_the_documented_one() {
        let bytes = chunk().to_bytes();
        assert_eq!(bytes[..32], [7; 32]);
        assert_eq!(bytes[32..], [4, 3, 2, 1, 0, 0, 1, 0x80, 0xef, 0xbe, 0xad, 0xde]);
    }

    #[test]
    fn unknown_codec_is_refused() {
        for form in [3, 0x10, 0x40, 0x81, 0xff] {
            let mut bytes = chunk().to_bytes();
            bytes[39] = form;
            assert_eq!(StoredChunk::from_bytes(&bytes), Err(StoredChunkError::Codec(form)));
        }
    }

    #[test]
    fn impossible_length_is_refused() {
        for stored_len in [0, limits::CHUNK_SIZE_MAX + 1] {
            let bytes = StoredChunk { stored_len, ..chunk() }.to_bytes();
            assert_eq!(StoredChunk::from_bytes(&bytes), Err(StoredChunkError::Length(stored_len)));
        }
    }
}
