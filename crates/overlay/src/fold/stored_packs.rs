//! Packs of version 2 of a fold: LZ4 where it pays, since guests run beside it (RFD 19).
//!
//! A digest is always that of a chunk as guests read it. A chunk that does not become smaller is stored
//! as it is, with the mark that says so, and no rewriting tries it again.

use acstor_manifest::{Change, Pack};
use acstor_pack::{ChunkCompressor, CompressionPolicy, PackBuilder};
use acstor_types::{ChunkSize, Digest, PACK_DATA_OFFSET, PackClass, STORED_CHUNK_LEN, StoredChunk};
use bytes::Bytes;

use super::fold_base::{Changes, NewPack};
use crate::OverlayError;

/// Place of a chunk: its pack, and what is stored there.
pub(super) type Place = (Pack, StoredChunk);

/// Class of the packs of folds.
const CLASS: PackClass = PackClass::Volume;

/// A pack being filled.
struct OpenPack {
    builder: PackBuilder,
    chunks: Vec<(Digest, Bytes)>,
    stored: Vec<StoredChunk>,
}

impl OpenPack {
    fn new(chunk_size: ChunkSize, budget: u64) -> OpenPack {
        let builder = PackBuilder::new(CLASS, chunk_size, rand::random(), budget);
        OpenPack { builder, chunks: Vec::new(), stored: Vec::new() }
    }

    /// Appends a chunk; false where it does not fit.
    fn push(&mut self, compressor: &mut ChunkCompressor, digest: Digest, plain: &Bytes) -> bool {
        let form = compressor.compress(plain);
        let Some(stored) = self.builder.push(digest, &form, plain) else { return false };
        self.stored.push(stored);
        self.chunks.push((digest, plain.clone()));
        true
    }

    fn seal(self) -> Result<NewPack<Place>, OverlayError> {
        let stored_bytes = self.builder.layout().end() - PACK_DATA_OFFSET;
        let refused =
            |error: &dyn std::fmt::Display| OverlayError::Invalid(format!("a pack: {error}"));
        let sealed = self.builder.seal().ok_or_else(|| refused(&"it has no chunk"))?;
        let sealed = sealed.map_err(|error| refused(&error))?;
        let stored_bytes = u32::try_from(stored_bytes).map_err(|error| refused(&error))?;
        let pack = Pack { id: sealed.id, stored_bytes, class: CLASS as u8 };
        let places = self.stored.into_iter().map(|stored| (pack, stored)).collect();
        Ok(NewPack { id: sealed.id, parts: sealed.parts, chunks: self.chunks, places })
    }
}

/// Puts chunks into packs, each of about `pack_bytes` as they are stored.
///
/// # Errors
/// [`OverlayError::Invalid`] when one does not fit a pack.
pub(super) fn pack_chunks(
    chunks: &[(Digest, Bytes)],
    chunk_size: ChunkSize,
    pack_bytes: usize,
) -> Result<Vec<NewPack<Place>>, OverlayError> {
    let records = pack_bytes.div_ceil(chunk_size.bytes()) * STORED_CHUNK_LEN;
    let budget = PACK_DATA_OFFSET + (pack_bytes + records) as u64;
    let mut compressor = ChunkCompressor::new(CompressionPolicy::Fast);
    let (mut packs, mut open) = (Vec::new(), OpenPack::new(chunk_size, budget));
    for (digest, plain) in chunks {
        if open.push(&mut compressor, *digest, plain) {
            continue;
        }
        packs.push(std::mem::replace(&mut open, OpenPack::new(chunk_size, budget)).seal()?);
        if !open.push(&mut compressor, *digest, plain) {
            return Err(OverlayError::Invalid(format!("chunk {digest} does not fit a pack")));
        }
    }
    packs.push(open.seal()?);
    Ok(packs)
}

/// Changes as manifests of format 2 take them, in the order of the disk.
pub(super) fn manifest_changes(
    changes: &Changes<Place>,
) -> impl Iterator<Item = (u64, Change)> + '_ {
    changes.iter().map(|(chunk, change)| match change {
        None => (*chunk, Change::Zero),
        Some((_, (pack, stored))) => (*chunk, Change::Data { pack: *pack, chunk: *stored }),
    })
}
