//! Data and holes of a disk, for `lseek`.

use acstor_types::{Entry, Manifest};

use crate::ExtentKind;

/// The runs of zero chunks and of other chunks of a disk, found once when it is attached.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    /// Offsets where the kind changes, ascending; data before the first, then alternating.
    changes: Vec<u64>,
    size_bytes: u64,
}

impl ExtentMap {
    pub(crate) fn of(manifest: &Manifest) -> ExtentMap {
        let chunk = manifest.chunk_size().bytes() as u64;
        let mut changes = Vec::new();
        let mut is_data = true;
        for (index, entry) in manifest.entries().enumerate() {
            if (entry != Entry::Zero) != is_data {
                is_data = !is_data;
                changes.push(index as u64 * chunk);
            }
        }
        ExtentMap { changes, size_bytes: manifest.size_bytes() }
    }

    /// As [`crate::BlockView::next_extent`].
    pub(crate) fn next(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        if offset >= self.size_bytes {
            return None;
        }
        let passed = self.changes.partition_point(|change| *change <= offset);
        let is_data = passed % 2 == 0;
        if is_data == (kind == ExtentKind::Data) {
            return Some(offset);
        }
        match (self.changes.get(passed), kind) {
            (Some(change), _) => Some(*change),
            (None, ExtentKind::Hole) => Some(self.size_bytes),
            (None, ExtentKind::Data) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::{ChunkLocation, ChunkSize, Digest, DiskId, ManifestBuilder, PackId};
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 4096;

    fn map(chunks: &[bool], cut: u64) -> ExtentMap {
        let size = (chunks.len() as u64 * CHUNK).saturating_sub(cut);
        let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
        let mut builder = ManifestBuilder::new(DiskId::from_bytes([1; 16]), chunk_size, size);
        for (index, is_data) in chunks.iter().enumerate() {
            if *is_data {
                let location = ChunkLocation {
                    pack: PackId(Digest::of(b"p")),
                    offset: 4096 * (index as u32 + 1),
                };
                builder.push_chunk(&Digest::of(&[index as u8]), location);
            } else {
                builder.push_zero();
            }
        }
        ExtentMap::of(&builder.finish().unwrap())
    }

    proptest! {
        #[test]
        fn proptest_next_equals_a_scan(chunks in proptest::collection::vec(any::<bool>(), 0..20), cut in 0u64..4096, at in 0u64..90_000) {
            let cut = if chunks.is_empty() { 0 } else { cut };
            let map = map(&chunks, cut);
            for kind in [ExtentKind::Data, ExtentKind::Hole] {
                let scan = (at..map.size_bytes)
                    .find(|byte| chunks[(byte / CHUNK) as usize] == (kind == ExtentKind::Data));
                let end = (kind == ExtentKind::Hole && at < map.size_bytes).then_some(map.size_bytes);
                prop_assert_eq!(map.next(at, kind), scan.or(end));
            }
        }
    }
}
