//! The name of a disk's content, wherever its chunks are.

use acstor_types::{ChunkSize, Digest};

/// Separates these names from every other use of BLAKE3.
const CONTEXT: &str = "acstor 2026-11-26 content of a disk, version 2";
/// Bytes that are hashed at once.
const BATCH: usize = 16 << 10;

/// Name of the content of a disk, version 2, chunk by chunk.
///
/// BLAKE3 in its key derivation mode, with the context above, of: size of the disk in bytes (u64),
/// size of a chunk (u32), then for each chunk with content, ascending, its index (u64) and its
/// digest (32 bytes). Integers are little-endian. What is zero costs nothing.
#[derive(Clone)]
pub struct ContentName {
    hasher: blake3::Hasher,
    batch: Vec<u8>,
}

impl ContentName {
    /// Starts the name of a disk's content.
    pub fn new(size_bytes: u64, chunk_size: ChunkSize) -> ContentName {
        let mut batch = Vec::with_capacity(BATCH);
        batch.extend_from_slice(&size_bytes.to_le_bytes());
        batch.extend_from_slice(&chunk_size.as_u32().to_le_bytes());
        ContentName { hasher: blake3::Hasher::new_derive_key(CONTEXT), batch }
    }

    /// Adds a chunk with content; the caller keeps to the order of the disk.
    pub fn push(&mut self, index: u64, digest: &Digest) {
        self.batch.extend_from_slice(&index.to_le_bytes());
        self.batch.extend_from_slice(digest.as_bytes());
        if self.batch.len() + 8 + Digest::LEN > BATCH {
            self.hasher.update(&self.batch);
            self.batch.clear();
        }
    }

    /// Returns the name.
    pub fn finish(mut self) -> Digest {
        self.hasher.update(&self.batch);
        Digest::from_bytes(*self.hasher.finalize().as_bytes())
    }
}

impl std::fmt::Debug for ContentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentName").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_name_is_the_documented_hash() {
        let mut name = ContentName::new(1 << 40, ChunkSize::DEFAULT);
        let mut bytes = (1_u64 << 40).to_le_bytes().to_vec();
        bytes.extend(65_536_u32.to_le_bytes());
        for index in (0..2000_u64).map(|number| number * 7) {
            let digest = Digest::of(&index.to_le_bytes());
            name.push(index, &digest);
            bytes.extend(index.to_le_bytes());
            bytes.extend(digest.as_bytes());
        }
        let expected = blake3::derive_key("acstor 2026-11-26 content of a disk, version 2", &bytes);
        assert_eq!(name.finish(), Digest::from_bytes(expected));
    }

    #[test]
    fn test_place_of_a_chunk_matters() {
        let at = |index| {
            let mut name = ContentName::new(1 << 20, ChunkSize::DEFAULT);
            name.push(index, &Digest::of(b"content"));
            name.finish()
        };
        assert_ne!(at(1), at(2));
    }
}
