//! A manifest of format 2 under a fold, and the one that is made of it.
//!
//! What is made is a delta, which costs what was written since, or takes in the manifests below from the
//! top, as [`levels_to_merge`] has it: everything is whole again where a fold changed much of it.

use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use acstor_manifest::layout::SPAN_CHUNKS;
use acstor_manifest::{
    Chunk, MergeError, MergedDisk, PageCache, delta_pages, levels_to_merge, merge,
};
use acstor_readpath::{ManifestFault, PagedManifest, PagedReader};
use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use hashbrown::HashMap;

use super::fold_base::{Changes, FoldBase, Made, NewPack};
use super::stored_packs::{Place, manifest_changes, pack_chunks};
use crate::OverlayError;
use crate::limits::FOLD_SEARCH_PAGES_MAX;

/// Memory for pages while a fold runs, bytes: it reads all of them once, most in their order, and must not
/// take the room of what guests need.
const PAGES_BYTES: usize = 1 << 20;

/// A manifest of format 2 and those below it.
pub(super) struct PagedBase(PagedReader);

impl PagedBase {
    /// Opens a manifest for a fold.
    ///
    /// # Errors
    /// [`OverlayError::Base`] when its levels do not fit each other.
    pub(super) fn open(manifest: &PagedManifest) -> Result<PagedBase, OverlayError> {
        let reader = manifest.reader(&Arc::new(PageCache::new(PAGES_BYTES)));
        Ok(PagedBase(reader.map_err(|error| OverlayError::Base(error.to_string()))?))
    }
}

/// Returns about how many pages a delta of changes alone has.
fn pages_of(changes: &Changes<Place>) -> u64 {
    let data = changes.values().flatten().count() as u64;
    let mut spans: Vec<u64> = changes.keys().map(|chunk| chunk / u64::from(SPAN_CHUNKS)).collect();
    spans.dedup();
    delta_pages(data, spans.len() as u64)
}

fn unread(fault: ManifestFault) -> OverlayError {
    match fault.is_final() {
        true => OverlayError::Base(fault.to_string()),
        false => OverlayError::Unavailable(format!("the manifest below: {fault}")),
    }
}

fn not_merged(error: MergeError<ManifestFault>) -> OverlayError {
    match error {
        MergeError::Read(fault) => unread(fault),
        error => OverlayError::Invalid(format!("the manifest: {error}")),
    }
}

impl FoldBase for PagedBase {
    type Place = Place;

    fn digest(&self, chunk: u64) -> Result<Option<Digest>, OverlayError> {
        Ok(match self.0.look_up(chunk).map_err(unread)? {
            Chunk::Zero => None,
            Chunk::Data { entry, .. } => Some(entry.chunk.digest),
        })
    }

    fn data_in(&self, chunks: Range<u64>) -> Result<Vec<u64>, OverlayError> {
        let end = chunks.end.min(self.0.header().chunk_count());
        let mut found = Vec::new();
        for run in self.0.data_runs(chunks.start.min(end)..end) {
            found.extend(run.map_err(unread)?);
        }
        Ok(found)
    }

    /// Looks through all that the manifests say, where that is not too much; a fold stores again what it
    /// does not find.
    fn find(&self, wanted: &mut HashMap<Digest, Option<Place>>) -> Result<(), OverlayError> {
        if self.0.page_counts().iter().sum::<u64>() > FOLD_SEARCH_PAGES_MAX {
            return Ok(());
        }
        for found in self.0.entries(0..self.0.header().chunk_count()) {
            let found = found.map_err(unread)?;
            let Some(place) = wanted.get_mut(&found.entry.chunk.digest) else { continue };
            let Some(reader) = self.0.levels().get(found.level) else { continue };
            let pack = reader.pack(found.entry.pack).map_err(unread)?.pack;
            *place = Some((pack, found.entry.chunk));
        }
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
        _chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<Made, OverlayError> {
        let levels = levels_to_merge(pages_of(changes), &self.0.page_counts());
        let disk_id = DiskId::from_bytes(rand::random());
        let disk = MergedDisk { disk_id, size_bytes, salt: rand::random() };
        let spool = Cursor::new(Vec::new());
        let changes = manifest_changes(changes);
        Made::of(merge(&self.0, levels, changes, disk, spool).map_err(not_merged)?)
    }
}
