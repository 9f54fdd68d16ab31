//! The chunks of a disk that this host has: what its guests have read, and what it keeps for others.

use std::collections::BTreeMap;

use crate::ahead::chunk_spans::{self, SPAN_BYTES, SPAN_CHUNKS};
use crate::view::disk::Disk;
use crate::{LocalStore, ReadPathError, limits};

/// Chunks of a disk that are in the chunk store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldChunks {
    /// Chunks of the disk.
    pub chunk_count: u64,
    /// The set, in the form of [`crate::WorkingSet::bitmap`].
    pub bitmap: Vec<u8>,
}

/// Returns the chunks of a disk that a store holds; touches no chunk. Of a manifest whose pages are not
/// all here those of the pages before the first that is not: none is brought for a count.
///
/// # Errors
/// [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
pub(crate) fn held_chunks(
    disk: &Disk,
    store: &dyn LocalStore,
) -> Result<HeldChunks, ReadPathError> {
    let chunk_count = disk.shape.chunk_count;
    if chunk_count > limits::WORKING_SET_CHUNKS_MAX {
        let max = limits::WORKING_SET_CHUNKS_MAX;
        return Err(ReadPathError::TooManyChunks { disk: disk.id(), chunks: chunk_count, max });
    }
    let mut spans: BTreeMap<u32, [u8; SPAN_BYTES]> = BTreeMap::new();
    let visited = disk.visit_digests(0..chunk_count, |index, digest| {
        if store.likely_contains(digest.prefix_u64()) {
            // As checked: there are at most 2^30 chunks.
            let bits = spans.entry((index / SPAN_CHUNKS) as u32).or_insert([0; SPAN_BYTES]);
            let bit = (index % SPAN_CHUNKS) as usize;
            bits[bit / 8] |= 1 << (bit % 8);
        }
        Ok(())
    });
    match visited {
        Err(fault) if fault.absent.is_none() => return Err(disk.refused(fault)),
        _ => {}
    }
    let bitmap = chunk_spans::encode(chunk_count, spans.into_iter());
    Ok(HeldChunks { chunk_count, bitmap })
}
