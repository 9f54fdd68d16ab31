//! No manifest under a fold that makes the first one of its volume, of format 2: what it costs follows
//! what was written, however large the disk is.

use std::io::Cursor;
use std::ops::Range;

use acstor_manifest::{BuildError, Builder, Built, Disk};
use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use hashbrown::HashMap;

use super::fold_base::{Changes, FoldBase, Made, NewPack};
use super::stored_packs::{Place, pack_chunks};
use crate::OverlayError;

/// A disk of zeros.
pub(super) struct NoBase;

/// Entries of a manifest that is being made, in memory as those of a delta are.
type Spool = Cursor<Vec<u8>>;

fn build(changes: &Changes<Place>, disk: Disk) -> Result<Built<Spool>, BuildError> {
    let mut builder = Builder::new(disk, Cursor::new(Vec::new()))?;
    for (chunk, change) in changes {
        // What is zero now was before.
        let Some((_, (pack, stored))) = change else { continue };
        let number = builder.add_pack(*pack)?;
        builder.push(*chunk, number, *stored)?;
    }
    builder.finish()
}

impl FoldBase for NoBase {
    type Place = Place;

    fn digest(&self, _chunk: u64) -> Result<Option<Digest>, OverlayError> {
        Ok(None)
    }

    fn data_in(&self, _chunks: Range<u64>) -> Result<Vec<u64>, OverlayError> {
        Ok(Vec::new())
    }

    fn find(&self, _wanted: &mut HashMap<Digest, Option<Place>>) -> Result<(), OverlayError> {
        Ok(())
    }

    fn pack(
        chunks: &[(Digest, Bytes)],
        chunk_size: ChunkSize,
        pack_bytes: usize,
    ) -> Result<Vec<NewPack<Place>>, OverlayError> {
        pack_chunks(chunks, chunk_size, pack_bytes)
    }

    fn make(
        &self,
        changes: &Changes<Place>,
        chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<Made, OverlayError> {
        let disk_id = DiskId::from_bytes(rand::random());
        let disk = Disk { disk_id, size_bytes, chunk_size, salt: rand::random(), base: None };
        let built = build(changes, disk);
        let built =
            built.map_err(|error| OverlayError::Invalid(format!("the manifest: {error}")))?;
        Made::of(built)
    }
}
