//! The manifest that a fold is over, and what it makes of it: packs and a manifest of the same formats.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;

use acstor_manifest::Built;
use acstor_types::{ChunkSize, Digest, PackId};
use bytes::Bytes;
use hashbrown::HashMap;

use crate::OverlayError;
use crate::limits::FOLD_MANIFEST_BYTES_MAX;

/// Chunks that are not as in the base, with their places; `None`: of zeros.
pub(super) type Changes<P> = BTreeMap<u64, Option<(Digest, P)>>;

/// A manifest that was made.
pub(super) struct Made {
    /// Name of it.
    pub(super) digest: Digest,
    pub(super) content: Bytes,
}

impl Made {
    /// Takes a manifest of format 2 out of memory.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`] when nobody would read it, so that the record never names it;
    /// [`OverlayError::Io`] when it cannot be written to memory.
    pub(super) fn of(mut built: Built<Cursor<Vec<u8>>>) -> Result<Made, OverlayError> {
        check_len(built.header().len_bytes())?;
        let digest = built.header().name();
        let content = built.to_bytes();
        let content = content.map_err(|error| OverlayError::io("make a manifest", error))?;
        Ok(Made { digest, content: Bytes::from(content) })
    }
}

/// Refuses a manifest of a length that nobody reads.
fn check_len(len: u64) -> Result<(), OverlayError> {
    match len <= FOLD_MANIFEST_BYTES_MAX {
        true => Ok(()),
        false => Err(OverlayError::Invalid(format!(
            "the volume has so much content that its manifest has {len} bytes, and hosts take \
             {FOLD_MANIFEST_BYTES_MAX} at most: keep some of it in another volume"
        ))),
    }
}

/// A pack that has a name and is not stored yet.
pub(super) struct NewPack<P> {
    pub(super) id: PackId,
    /// Its bytes, to be written in this order.
    pub(super) parts: Vec<Bytes>,
    /// Its chunks as guests read them.
    pub(super) chunks: Vec<(Digest, Bytes)>,
    /// Places of its chunks, in their order.
    pub(super) places: Vec<P>,
}

/// The manifest that a fold is over, of one format, or none.
pub(super) trait FoldBase {
    /// Place of a chunk in the origin, as manifests of the format say it.
    type Place: Copy;

    /// Returns the digest of a chunk; `None` for zeros, or past the end.
    ///
    /// # Errors
    /// [`OverlayError`] when the manifest cannot be read.
    fn digest(&self, chunk: u64) -> Result<Option<Digest>, OverlayError>;

    /// Returns the chunks of a range that have content.
    ///
    /// # Errors
    /// [`OverlayError`] when the manifest cannot be read.
    fn data_in(&self, chunks: Range<u64>) -> Result<Vec<u64>, OverlayError>;

    /// Notes the places of the digests that the base has anywhere.
    ///
    /// # Errors
    /// [`OverlayError`] when the manifest cannot be read.
    fn find(&self, wanted: &mut HashMap<Digest, Option<Self::Place>>) -> Result<(), OverlayError>;

    /// Puts chunks, of which there is at least one, into packs of about `pack_bytes` each.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`] when they do not fit a pack.
    fn pack(
        chunks: &[(Digest, Bytes)],
        chunk_size: ChunkSize,
        pack_bytes: usize,
    ) -> Result<Vec<NewPack<Self::Place>>, OverlayError>;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_as_long_as_hosts_and_the_repository_read() {
        assert_eq!(FOLD_MANIFEST_BYTES_MAX, 2_818_572_384);
        assert!(check_len(FOLD_MANIFEST_BYTES_MAX).is_ok());
        let refused = check_len(FOLD_MANIFEST_BYTES_MAX + 1).unwrap_err().to_string();
        assert!(refused.contains("2818572385 bytes, and hosts take 2818572384"), "{refused}");
    }
}
