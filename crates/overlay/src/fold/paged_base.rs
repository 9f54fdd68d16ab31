//! A manifest of format 2 under a fold, and the one that is made of it.
//!
//! What is made is a delta, which costs what was written since, or takes in the manifests below from the
//! top, as [`levels_to_merge`] has it: everything is whole again where a fold changed much of it.

use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::layout::SPAN_CHUNKS;
use acstor_manifest::{
    Change, Chunk, MergeError, MergedDisk, Pack, PageCache, delta_pages, levels_to_merge, merge,
};
use acstor_readpath::{ManifestFault, PagedManifest, PagedReader};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackClass, StoredChunk};
use bytes::Bytes;
use hashbrown::HashMap;

use super::fold_base::{Changes, FoldBase, Made, NewPack};
use crate::OverlayError;
use crate::limits::FOLD_SEARCH_PAGES_MAX;

/// Memory for pages while a fold runs, bytes: it reads all of them once, most in their order, and must not
/// take the room of what guests need.
const PAGES_BYTES: usize = 1 << 20;

/// Place of a chunk: its pack, and what is stored there.
pub(super) type Place = (Pack, StoredChunk);

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

    fn places(pack: &NewPack<'_>) -> Vec<Place> {
        let (id, header) = (pack.id, pack.header);
        let stored_len = header.chunk_size.as_u32();
        let class = PackClass::Volume as u8;
        let stored = Pack { id, stored_bytes: stored_len * header.chunk_count, class };
        let place = |(number, (digest, content)): (u32, &(Digest, Bytes))| {
            let offset = header.chunk_offset(number) as u32;
            let crc = crc32fast::hash(content);
            let (codec, is_incompressible) = (Codec::Plain, false);
            let digest = *digest;
            (stored, StoredChunk { digest, offset, stored_len, codec, is_incompressible, crc })
        };
        (0..).zip(pack.chunks).map(place).collect()
    }

    fn make(
        &self,
        changes: &Changes<Place>,
        _chunk_size: ChunkSize,
        size_bytes: u64,
    ) -> Result<Made, OverlayError> {
        let levels = levels_to_merge(pages_of(changes), &self.0.page_counts());
        let changes = changes.iter().map(|(chunk, change)| match change {
            None => (*chunk, Change::Zero),
            Some((_, (pack, stored))) => (*chunk, Change::Data { pack: *pack, chunk: *stored }),
        });
        let disk_id = DiskId::from_bytes(rand::random());
        let disk = MergedDisk { disk_id, size_bytes, salt: rand::random() };
        let spool = Cursor::new(Vec::new());
        let mut made = merge(&self.0, levels, changes, disk, spool).map_err(not_merged)?;
        let digest = made.header().name();
        let content = made.to_bytes();
        let content = content.map_err(|error| OverlayError::io("make a manifest", error))?;
        Ok(Made { digest, content: Bytes::from(content) })
    }
}
