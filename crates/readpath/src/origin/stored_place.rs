//! A chunk in the origin: its place, and the form of its bytes there.

use acstor_pack::{ChunkDecompressor, MovedChunk, Run};
use acstor_types::{ChunkLocation, ChunkSize, Codec, Digest, PackId, StoredChunk};
use bytes::{Bytes, BytesMut};

/// Place and form of a chunk's bytes, as a manifest has them.
///
/// Two manifests that say different things of one place name two places: what one of them has wrong
/// must not fail the readers of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoredPlace {
    pub(crate) location: ChunkLocation,
    /// Bytes to be read.
    pub(crate) stored_len: u32,
    codec: Codec,
    /// CRC-32 of the stored bytes; `None`: the manifest, of format 1, knows none.
    crc: Option<u32>,
}

impl StoredPlace {
    /// A chunk of a manifest of format 1: as it is.
    pub(crate) fn plain(location: ChunkLocation, chunk_size: ChunkSize) -> StoredPlace {
        let stored_len = chunk_size.as_u32();
        StoredPlace { location, stored_len, codec: Codec::Plain, crc: None }
    }

    /// A chunk of a manifest of format 2.
    pub(crate) fn of(pack: PackId, chunk: &StoredChunk) -> StoredPlace {
        StoredPlace {
            location: ChunkLocation { pack, offset: chunk.offset },
            stored_len: chunk.stored_len,
            codec: chunk.codec,
            crc: Some(chunk.crc),
        }
    }

    /// The copy of a chunk that a compaction has made.
    pub(crate) fn moved(pack: PackId, chunk: &MovedChunk) -> StoredPlace {
        StoredPlace {
            location: ChunkLocation { pack, offset: chunk.offset },
            stored_len: chunk.stored_len,
            codec: chunk.codec,
            crc: Some(chunk.crc),
        }
    }

    /// Offset in the pack of the first byte, and of the first after the last one.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        let start = u64::from(self.location.offset);
        start..start + u64::from(self.stored_len)
    }

    fn chunk(&self, digest: Digest, crc: u32) -> StoredChunk {
        StoredChunk {
            digest,
            offset: self.location.offset,
            stored_len: self.stored_len,
            codec: self.codec,
            is_incompressible: false,
            crc,
        }
    }

    /// The run of this chunk alone.
    pub(crate) fn run(&self) -> Run {
        Run::of(&self.chunk(Digest::from_bytes([0; Digest::LEN]), 0))
    }

    /// Returns `run` with this chunk before or behind it; `None` where that is another call. Only what a
    /// manifest of format 2 names is read over a gap: chunks of format 1 are neighbours or apart.
    pub(crate) fn join(&self, run: &Run, bytes_max: usize) -> Option<Run> {
        let Some(crc) = self.crc else {
            let std::ops::Range { start, end } = self.range();
            if start != run.end() && end != run.offset() {
                return None;
            }
            return run
                .join(&self.chunk(Digest::from_bytes([0; Digest::LEN]), 0), bytes_max as u64);
        };
        run.join(&self.chunk(Digest::from_bytes([0; Digest::LEN]), crc), bytes_max as u64)
    }

    /// Makes the chunk of its stored bytes; `None` where they are not the bytes of the chunk that
    /// `digest` names.
    pub(crate) fn decode(
        &self,
        digest: &Digest,
        stored: BytesMut,
        plain_len: usize,
        decompressor: &mut ChunkDecompressor,
    ) -> Option<Bytes> {
        if self.codec == Codec::Plain {
            // Not copied. A wrong CRC is a wrong digest, too: the digest has the last word.
            let is_it = stored.len() == plain_len && digest.matches(&stored);
            return is_it.then(|| stored.freeze());
        }
        let mut plain = BytesMut::zeroed(plain_len);
        let chunk = self.chunk(*digest, self.crc?);
        decompressor.decompress(&chunk, &stored, &mut plain).ok()?;
        Some(plain.freeze())
    }
}

#[cfg(test)]
mod tests {
    use acstor_pack::{ChunkCompressor, CompressionPolicy};

    use super::*;

    const LEN: usize = 4096;

    fn plain() -> Vec<u8> {
        b"a chunk that pays ".iter().copied().cycle().take(LEN).collect()
    }

    /// A chunk as a pack of version 2 has it, and its stored bytes.
    fn compressed() -> (StoredChunk, Vec<u8>) {
        let plain = plain();
        let mut compressor = ChunkCompressor::new(CompressionPolicy::Fast);
        let form = compressor.compress(&plain);
        assert_eq!(form.codec, Codec::Lz4);
        let chunk = StoredChunk {
            digest: Digest::of(&plain),
            offset: 4096,
            stored_len: form.bytes.len() as u32,
            codec: form.codec,
            is_incompressible: false,
            crc: form.crc,
        };
        (chunk, form.bytes.to_vec())
    }

    fn place(offset: u32, stored_len: u32, crc: Option<u32>) -> StoredPlace {
        let pack = PackId(Digest::of(b"pack"));
        let location = ChunkLocation { pack, offset };
        StoredPlace { location, stored_len, codec: Codec::Plain, crc }
    }

    #[test]
    fn test_stored_bytes_become_the_chunk_or_nothing() {
        let (chunk, stored) = compressed();
        let place = StoredPlace::of(PackId(Digest::of(b"pack")), &chunk);
        let mut decompressor = ChunkDecompressor::new();
        let mut decode = |stored: &[u8]| {
            place.decode(&chunk.digest, BytesMut::from(stored), LEN, &mut decompressor)
        };
        assert_eq!(decode(&stored).unwrap(), plain());
        assert_eq!(decode(&stored[1..]), None);
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn test_plain_bytes_are_held_against_the_digest() {
        let (digest, mut decompressor) = (Digest::of(&plain()), ChunkDecompressor::new());
        for crc in [None, Some(0)] {
            let place = place(4096, LEN as u32, crc);
            let mut decode = |stored: &[u8]| {
                place.decode(&digest, BytesMut::from(stored), LEN, &mut decompressor)
            };
            assert_eq!(decode(&plain()).unwrap(), plain());
            assert_eq!(decode(&plain()[1..]), None);
            assert_eq!(decode(&[7; LEN]), None);
        }
    }

    #[test]
    fn test_only_chunks_of_format_2_are_joined_over_a_gap() {
        let run = place(8192, 4096, None).run();
        for (offset, is_near) in [(4096, true), (12_288, true), (12_289, false), (20_480, false)] {
            assert_eq!(
                place(offset, 4096, None).join(&run, 1 << 20).is_some(),
                is_near,
                "{offset}"
            );
        }
        assert_eq!(place(12_388, 4096, Some(1)).join(&run, 1 << 20).unwrap().gap_bytes(), 100);
        assert!(place(12_288, 4096, Some(1)).join(&run, 8191).is_none(), "too long for one call");
    }
}
