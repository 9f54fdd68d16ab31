//! Chunks out of their stored bytes, which nobody has verified yet.
//!
//! Who can write to the origin chooses these bytes and their CRC. So both decoders are safe Rust,
//! they write into the caller's buffer only, and nothing counts before the digest does.

use acstor_types::{Codec, StoredChunk, limits};
use mzstd::{DecodeLimits, DecoderConfig, Decompressor, FrameMode};

use crate::chunk_error::ChunkError;
use crate::stored_form::is_possible_len;
use crate::zstd_frame;

/// Window log that a decoder may be asked for: that of the largest chunk.
const WINDOW_LOG_MAX: u8 = limits::CHUNK_SIZE_MAX.ilog2() as u8;

/// Decompressor of chunks, with memory that serves one chunk after the other.
#[derive(Debug, Default)]
pub struct ChunkDecompressor {
    zstd: Option<Decompressor>,
}

impl ChunkDecompressor {
    /// A decompressor; it allocates at the first zstd frame.
    pub const fn new() -> Self {
        Self { zstd: None }
    }

    /// Turn stored bytes into the chunk that `chunk` describes, verified against its digest.
    ///
    /// `plain` has the length of a plain chunk, which the caller knows from the manifest.
    ///
    /// # Errors
    /// [`ChunkError`] where the bytes are not that chunk; `plain` then has any content.
    pub fn decompress(
        &mut self,
        chunk: &StoredChunk,
        stored: &[u8],
        plain: &mut [u8],
    ) -> Result<(), ChunkError> {
        check_stored(chunk, stored, plain.len())?;
        match chunk.codec {
            Codec::Plain => plain.copy_from_slice(stored),
            Codec::Lz4 => lz4(stored, plain)?,
            Codec::Zstd => self.zstd(stored, plain)?,
        }
        if chunk.digest.matches(plain) { Ok(()) } else { Err(ChunkError::Digest) }
    }

    fn zstd(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<(), ChunkError> {
        zstd_frame::check(stored, plain.len()).map_err(ChunkError::ZstdFrame)?;
        let plain_len = plain.len();
        let decoder = match &mut self.zstd {
            Some(decoder) => decoder,
            none => none.insert(zstd_decoder().ok_or(ChunkError::Zstd { plain_len })?),
        };
        match decoder.decompress_to_slice(stored, plain) {
            Ok(len) if len == plain_len => Ok(()),
            _ => Err(ChunkError::Zstd { plain_len }),
        }
    }
}

/// Refuse, before a decoder sees them, bytes whose length or CRC is wrong.
fn check_stored(chunk: &StoredChunk, stored: &[u8], plain_len: usize) -> Result<(), ChunkError> {
    let (codec, stored_len) = (chunk.codec, chunk.stored_len);
    if !is_possible_len(codec, stored_len as usize, plain_len) {
        return Err(ChunkError::Length { codec, stored_len, plain_len });
    }
    if stored.len() != stored_len as usize {
        return Err(ChunkError::Truncated { actual: stored.len(), expected: stored_len });
    }
    if crc32fast::hash(stored) != chunk.crc {
        return Err(ChunkError::Checksum);
    }
    Ok(())
}

fn lz4(stored: &[u8], plain: &mut [u8]) -> Result<(), ChunkError> {
    match lz4_flex::block::decompress_into(stored, plain) {
        Ok(len) if len == plain.len() => Ok(()),
        _ => Err(ChunkError::Lz4 { plain_len: plain.len() }),
    }
}

/// A decoder of single frames; `None` where the window log were no valid one.
fn zstd_decoder() -> Option<Decompressor> {
    let limits = DecodeLimits::default().with_max_window_log(WINDOW_LOG_MAX).ok()?;
    let config = DecoderConfig::default().with_frame_mode(FrameMode::Single).with_limits(limits);
    Some(Decompressor::new(config))
}
