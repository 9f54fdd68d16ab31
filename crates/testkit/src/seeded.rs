//! Content that follows from a seed, so that a test can name any of it again.

use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Returns the generator of `seed`; the same numbers on every platform and release.
pub fn seeded_rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// An endless row of distinct, incompressible chunks.
#[derive(Clone, Copy, Debug)]
pub struct SeededChunks {
    seed: u64,
    size: ChunkSize,
}

impl SeededChunks {
    /// Returns the chunks of `seed`.
    pub fn new(seed: u64, size: ChunkSize) -> SeededChunks {
        SeededChunks { seed, size }
    }

    /// Returns chunk `index` and its digest.
    pub fn chunk(&self, index: u64) -> (Digest, Bytes) {
        let mut rng = seeded_rng(self.seed);
        rng.set_stream(index);
        let mut content = vec![0; self.size.bytes()];
        rng.fill_bytes(&mut content);
        (Digest::of(&content), Bytes::from(content))
    }

    /// Returns the chunks `indexes`.
    pub fn chunks(&self, indexes: std::ops::Range<u64>) -> Vec<(Digest, Bytes)> {
        indexes.map(|index| self.chunk(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_distinct_and_repeatable() {
        let chunks = SeededChunks::new(7, ChunkSize::DEFAULT);
        assert_eq!(chunks.chunk(3), SeededChunks::new(7, ChunkSize::DEFAULT).chunk(3));
        assert_ne!(chunks.chunk(3).0, chunks.chunk(4).0);
        assert_ne!(chunks.chunk(3).0, SeededChunks::new(8, ChunkSize::DEFAULT).chunk(3).0);
    }
}
