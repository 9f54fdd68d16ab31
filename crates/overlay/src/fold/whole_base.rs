//! A manifest of format 1 under a fold, or none where such a one is to be made.

use std::ops::Range;

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Entry, Manifest, ManifestBuilder, PackHeader, PackId,
    PackSalt, limits,
};
use bytes::Bytes;
use hashbrown::HashMap;

use super::fold_base::{Changes, FoldBase, Made, NewPack};
use crate::OverlayError;

/// A manifest of format 1, or none.
pub(super) struct WholeBase(Option<Manifest>);

impl WholeBase {
    /// Takes a manifest for a fold of a disk of that size.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`] when the format has no disks of that size: nothing is to be stored then.
    pub(super) fn new(
        base: Option<Manifest>,
        chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<WholeBase, OverlayError> {
        let max = limits::MANIFEST_CHUNKS_MAX * chunk_size.bytes() as u64;
        match chunk_size.count_for(size_bytes) <= limits::MANIFEST_CHUNKS_MAX {
            true => Ok(WholeBase(base)),
            false => Err(OverlayError::Invalid(format!(
                "the disk has {size_bytes} bytes, and a manifest of format 1 describes {max} at most, in \
                 chunks of {} bytes: copy it to a new volume of a repository of version 6",
                chunk_size.as_u32()
            ))),
        }
    }

    fn entry(&self, chunk: u64) -> Option<Entry> {
        self.0.as_ref().and_then(|base| base.entry(chunk))
    }
}

impl FoldBase for WholeBase {
    type Place = ChunkLocation;

    fn digest(&self, chunk: u64) -> Result<Option<Digest>, OverlayError> {
        Ok(match self.entry(chunk) {
            Some(Entry::Chunk { digest, .. }) => Some(digest),
            Some(Entry::Zero) | None => None,
        })
    }

    fn data_in(&self, chunks: Range<u64>) -> Result<Vec<u64>, OverlayError> {
        let count = self.0.as_ref().map_or(0, Manifest::chunk_count);
        let is_data = |chunk: &u64| matches!(self.entry(*chunk), Some(Entry::Chunk { .. }));
        Ok((chunks.start..chunks.end.min(count)).filter(is_data).collect())
    }

    fn find(
        &self,
        wanted: &mut HashMap<Digest, Option<ChunkLocation>>,
    ) -> Result<(), OverlayError> {
        for entry in self.0.iter().flat_map(Manifest::entries) {
            if let Entry::Chunk { digest, location } = entry
                && let Some(found) = wanted.get_mut(&digest)
            {
                *found = Some(location);
            }
        }
        Ok(())
    }

    fn pack(
        chunks: &[(Digest, Bytes)],
        chunk_size: ChunkSize,
        pack_bytes: usize,
    ) -> Result<Vec<NewPack<ChunkLocation>>, OverlayError> {
        let chunks_per_pack = (pack_bytes / chunk_size.bytes()).max(1);
        Ok(chunks.chunks(chunks_per_pack).map(|chunks| plain_pack(chunks, chunk_size)).collect())
    }

    fn make(
        &self,
        changes: &Changes<ChunkLocation>,
        chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<Made, OverlayError> {
        let disk = DiskId::from_bytes(rand::random());
        let mut builder = ManifestBuilder::new(disk, chunk_size, size_bytes);
        builder.set_salt(rand::random());
        for chunk in 0..chunk_size.count_for(size_bytes) {
            match (changes.get(&chunk), self.entry(chunk)) {
                (Some(Some((digest, location))), _) => builder.push_chunk(digest, *location),
                (None, Some(Entry::Chunk { digest, location })) => {
                    builder.push_chunk(&digest, location);
                }
                (Some(None), _) | (None, Some(Entry::Zero) | None) => builder.push_zero(),
            }
        }
        let made = builder.finish();
        let made = made.map_err(|error| OverlayError::Invalid(format!("the manifest: {error}")))?;
        Ok(Made { digest: made.digest(), content: made.as_bytes().clone() })
    }
}

/// A pack of version 1.
fn plain_pack(chunks: &[(Digest, Bytes)], chunk_size: ChunkSize) -> NewPack<ChunkLocation> {
    let salt: PackSalt = rand::random();
    let header = PackHeader { chunk_size, chunk_count: chunks.len() as u32 };
    let digests: Vec<u8> = chunks.iter().flat_map(|(digest, _)| *digest.as_bytes()).collect();
    let id = PackId(Digest::of_parts(&[&digests, &salt]));
    let place = |number| ChunkLocation { pack: id, offset: header.chunk_offset(number) as u32 };
    let places = (0..header.chunk_count).map(place).collect();
    let mut parts = vec![Bytes::from(header.encode_salted(&salt))];
    parts.extend(chunks.iter().map(|(_, content)| content.clone()));
    parts.push(Bytes::from(digests));
    NewPack { id, parts, chunks: chunks.to_vec(), places }
}
