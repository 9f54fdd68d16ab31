//! The manifest that a fold is over, and the one that it makes of it, of the same format.

use std::collections::BTreeMap;

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Entry, Manifest, ManifestBuilder, PackHeader, PackId,
};
use bytes::Bytes;
use hashbrown::HashMap;

use crate::OverlayError;

/// Chunks that are not as in the base, with their places; `None`: of zeros.
pub(super) type Changes<P> = BTreeMap<u64, Option<(Digest, P)>>;

/// A manifest that was made.
pub(super) struct Made {
    /// Name of it.
    pub(super) digest: Digest,
    pub(super) content: Bytes,
}

/// A pack that has a name.
pub(super) struct NewPack<'a> {
    pub(super) id: PackId,
    pub(super) header: PackHeader,
    pub(super) chunks: &'a [(Digest, Bytes)],
}

/// The manifest that a fold is over, of one format.
pub(super) trait FoldBase {
    /// Place of a chunk in the origin, as manifests of the format say it.
    type Place: Copy;

    /// Returns the digest of a chunk; `None` for zeros, or past the end.
    ///
    /// # Errors
    /// [`OverlayError`] when the manifest cannot be read.
    fn digest(&self, chunk: u64) -> Result<Option<Digest>, OverlayError>;

    /// Notes the places of the digests that the base has anywhere.
    ///
    /// # Errors
    /// [`OverlayError`] when the manifest cannot be read.
    fn find(&self, wanted: &mut HashMap<Digest, Option<Self::Place>>) -> Result<(), OverlayError>;

    /// Returns the places of the chunks of a new pack, in their order.
    fn places(pack: &NewPack<'_>) -> Vec<Self::Place>;

    /// Makes the manifest of a disk of its own, since a disk's content never changes.
    ///
    /// # Errors
    /// [`OverlayError`] when the base cannot be read, or the disk is larger than the format has it.
    fn make(
        &self,
        changes: &Changes<Self::Place>,
        chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<Made, OverlayError>;
}

/// A manifest of format 1, or none.
pub(super) struct WholeBase(pub(super) Option<Manifest>);

impl WholeBase {
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

    fn places(pack: &NewPack<'_>) -> Vec<ChunkLocation> {
        let offset = |number| pack.header.chunk_offset(number) as u32;
        let place = |number| ChunkLocation { pack: pack.id, offset: offset(number) };
        (0..pack.header.chunk_count).map(place).collect()
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
