//! Building a manifest, chunk by chunk, in the order of the disk.

use std::collections::HashMap;

use bytes::Bytes;

use crate::manifest::{
    BODY_DIGEST_OFFSET, BODY_OFFSET, CRC_OFFSET, ENTRY_LEN, MAGIC, MANIFEST_VERSION, SALT_OFFSET,
    ZERO_PACK,
};
use crate::{ChunkLocation, ChunkSize, Digest, DiskId, Manifest, ManifestError, PackId};

/// Collects the entries of one manifest.
///
/// Packs are numbered in the order of their first use, so equal sequences of entries give equal
/// bytes.
pub struct ManifestBuilder {
    disk_id: DiskId,
    chunk_size: ChunkSize,
    size_bytes: u64,
    salt: u64,
    packs: Vec<PackId>,
    pack_numbers: HashMap<PackId, u32>,
    entries: Vec<u8>,
}

impl ManifestBuilder {
    /// Starts a manifest of a disk of `size_bytes` bytes.
    pub fn new(disk_id: DiskId, chunk_size: ChunkSize, size_bytes: u64) -> ManifestBuilder {
        ManifestBuilder {
            disk_id,
            chunk_size,
            size_bytes,
            salt: 0,
            packs: Vec::new(),
            pack_numbers: HashMap::new(),
            entries: Vec::new(),
        }
    }

    /// Sets the salt, which makes manifests of equal entries differ; 0 where none is set.
    pub fn set_salt(&mut self, salt: u64) {
        self.salt = salt;
    }

    /// Appends a zero chunk.
    pub fn push_zero(&mut self) {
        self.push_entry(&[0; 32], ZERO_PACK, 0);
    }

    /// Appends a chunk with content.
    pub fn push_chunk(&mut self, digest: &Digest, location: ChunkLocation) {
        let next = self.packs.len() as u32;
        let pack = *self.pack_numbers.entry(location.pack).or_insert(next);
        if pack == next {
            self.packs.push(location.pack);
        }
        self.push_entry(digest.as_bytes(), pack, location.offset);
    }

    fn push_entry(&mut self, digest: &[u8; 32], pack: u32, offset: u32) {
        self.entries.extend_from_slice(digest);
        self.entries.extend_from_slice(&pack.to_le_bytes());
        self.entries.extend_from_slice(&offset.to_le_bytes());
    }

    /// Returns the manifest.
    ///
    /// # Errors
    /// [`ManifestError`] when the entries do not cover the disk exactly, or a field is out of
    /// range: what `Manifest::parse` would say of the result.
    pub fn finish(self) -> Result<Manifest, ManifestError> {
        let chunk_count = (self.entries.len() / ENTRY_LEN) as u64;
        let mut bytes =
            Vec::with_capacity(BODY_OFFSET + self.packs.len() * Digest::LEN + self.entries.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&MANIFEST_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.chunk_size.as_u32().to_le_bytes());
        bytes.extend_from_slice(self.disk_id.as_bytes());
        bytes.extend_from_slice(&self.size_bytes.to_le_bytes());
        bytes.extend_from_slice(&chunk_count.to_le_bytes());
        bytes.extend_from_slice(&(self.packs.len() as u32).to_le_bytes());
        bytes.resize(SALT_OFFSET, 0);
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        debug_assert_eq!(bytes.len(), CRC_OFFSET);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(BODY_OFFSET, 0);
        for pack in &self.packs {
            bytes.extend_from_slice(pack.0.as_bytes());
        }
        bytes.extend_from_slice(&self.entries);
        let body = Digest::of(&bytes[BODY_OFFSET..]);
        bytes[BODY_DIGEST_OFFSET..BODY_OFFSET].copy_from_slice(body.as_bytes());
        Manifest::parse(Bytes::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Entry, PACK_DATA_OFFSET};

    fn location(pack: u8, chunk: u32) -> ChunkLocation {
        ChunkLocation {
            pack: PackId(Digest::of(&[pack])),
            offset: PACK_DATA_OFFSET as u32 + chunk * 65_536,
        }
    }

    fn sample() -> Manifest {
        let disk_id = DiskId::from_bytes([7; 16]);
        let mut builder = ManifestBuilder::new(disk_id, ChunkSize::DEFAULT, 3 * 65_536 - 512);
        builder.push_chunk(&Digest::of(b"a"), location(1, 0));
        builder.push_zero();
        builder.push_chunk(&Digest::of(b"b"), location(2, 5));
        builder.finish().unwrap()
    }

    #[test]
    fn entries_round_trip() {
        let manifest = sample();
        assert_eq!(manifest.chunk_count(), 3);
        assert_eq!(manifest.pack_count(), 2);
        assert_eq!(manifest.entry(1), Some(Entry::Zero));
        assert_eq!(
            manifest.entry(2),
            Some(Entry::Chunk { digest: Digest::of(b"b"), location: location(2, 5) })
        );
        assert_eq!(manifest.entry(3), None);
        assert_eq!(manifest.entries().count(), 3);
    }

    #[test]
    fn salt_changes_the_name_only() {
        let mut builder = ManifestBuilder::new(DiskId::from_bytes([7; 16]), ChunkSize::DEFAULT, 1);
        builder.push_zero();
        builder.set_salt(5);
        let salted = builder.finish().unwrap();
        let mut builder = ManifestBuilder::new(DiskId::from_bytes([7; 16]), ChunkSize::DEFAULT, 1);
        builder.push_zero();
        let plain = builder.finish().unwrap();
        assert_ne!(salted.digest(), plain.digest());
        assert!(salted.entries().eq(plain.entries()));
    }

    #[test]
    fn content_is_compared_without_locations() {
        let build = |contents: [&[u8]; 2], pack| {
            let disk_id = DiskId::from_bytes([7; 16]);
            let mut builder = ManifestBuilder::new(disk_id, ChunkSize::DEFAULT, 3 * 65_536);
            for content in contents {
                builder.push_chunk(&Digest::of(content), location(pack, 0));
            }
            builder.push_zero();
            builder.finish().unwrap()
        };
        assert!(build([b"a", b"b"], 1).has_content_of(&build([b"a", b"b"], 2)));
        assert!(!build([b"a", b"b"], 1).has_content_of(&build([b"a", b"c"], 1)));
        assert!(!build([b"a", b"b"], 1).has_content_of(&sample()));
    }

    #[test]
    fn too_few_entries_are_refused() {
        let builder = ManifestBuilder::new(DiskId::from_bytes([0; 16]), ChunkSize::DEFAULT, 65_536);
        assert_eq!(builder.finish().unwrap_err(), ManifestError::Range("chunk count"));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let good = sample().as_bytes().to_vec();
        for position in 0..good.len() {
            let mut bad = good.clone();
            bad[position] ^= 1;
            assert!(Manifest::parse(Bytes::from(bad)).is_err(), "byte {position}");
        }
        for len in 0..good.len() {
            assert!(Manifest::parse(Bytes::copy_from_slice(&good[..len])).is_err(), "len {len}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = Manifest::parse(Bytes::from(bytes));
        }

        #[test]
        fn any_sequence_round_trips(chunks in proptest::collection::vec(
            proptest::option::of((any::<u8>(), 0u8..4, 0u32..1000)), 0..64)) {
            let size = chunks.len() as u64 * 65_536;
            let mut builder =
                ManifestBuilder::new(DiskId::from_bytes([1; 16]), ChunkSize::DEFAULT, size);
            for chunk in &chunks {
                match chunk {
                    Some((content, pack, position)) => builder
                        .push_chunk(&Digest::of(&[*content]), location(*pack, *position)),
                    None => builder.push_zero(),
                }
            }
            let manifest = builder.finish().unwrap();
            for (entry, chunk) in manifest.entries().zip(&chunks) {
                let expected = match chunk {
                    Some((content, pack, position)) => Entry::Chunk {
                        digest: Digest::of(&[*content]),
                        location: location(*pack, *position),
                    },
                    None => Entry::Zero,
                };
                prop_assert_eq!(entry, expected);
            }
        }
    }
}
