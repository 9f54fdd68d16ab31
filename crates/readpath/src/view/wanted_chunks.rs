//! The chunks of a disk that are worth having on a host: a working set as others learnt it.

use std::collections::HashSet;

use acstor_types::Entry;

use crate::ahead::boot_recorder::bitmap_len;
use crate::view::disk::Disk;
use crate::{LocalStore, ReadPathError, limits};

/// Different chunks with content, in the order of the disk.
#[derive(Debug)]
pub(crate) struct WantedChunks {
    indexes: Box<[u32]>,
    /// Of each the first bytes of its digest, so that what is here is counted without the manifest.
    prefixes: Box<[u64]>,
}

/// Coverage of a disk's working set on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Different chunks with content.
    pub wanted_chunks: u64,
    /// Those in the chunk store.
    pub present_chunks: u64,
}

impl WantedChunks {
    /// The chunks of a bitmap (see [`crate::WorkingSet::bitmap`]).
    ///
    /// # Errors
    /// [`ReadPathError::WorkingSet`] when it is not a bitmap of this disk,
    /// [`ReadPathError::TooManyChunks`].
    pub(crate) fn of_bitmap(disk: &Disk, bitmap: &[u8]) -> Result<WantedChunks, ReadPathError> {
        let chunk_count = checked_count(disk)?;
        let refuse = |reason| ReadPathError::WorkingSet { disk: disk.id(), reason };
        let expected = bitmap_len(chunk_count);
        if bitmap.len() as u64 != expected {
            let found = bitmap.len();
            return Err(refuse(format!(
                "{found} bytes are no bitmap of {chunk_count} chunks, which is {expected} bytes long"
            )));
        }
        let past_the_end = (chunk_count..expected * 8)
            .any(|index| bitmap[(index / 8) as usize] >> (index % 8) & 1 == 1);
        if past_the_end {
            return Err(refuse(format!("it has chunks past the last of {chunk_count}")));
        }
        let indexes = (0..).zip(bitmap).filter(|(_, byte)| **byte != 0).flat_map(|(at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        });
        Ok(WantedChunks::distinct(disk, indexes))
    }

    /// Every chunk.
    ///
    /// # Errors
    /// [`ReadPathError::TooManyChunks`].
    pub(crate) fn all(disk: &Disk) -> Result<WantedChunks, ReadPathError> {
        let chunk_count = checked_count(disk)?;
        Ok(WantedChunks::distinct(disk, 0..chunk_count as u32))
    }

    fn distinct(disk: &Disk, indexes: impl Iterator<Item = u32>) -> WantedChunks {
        let mut seen = HashSet::new();
        let (indexes, prefixes): (Vec<u32>, Vec<u64>) = indexes
            .filter_map(|index| match disk.manifest.entry(u64::from(index)) {
                // Two digests with one prefix cannot both be in a chunk store, so it names a chunk.
                Some(Entry::Chunk { digest, .. }) => Some((index, digest.prefix_u64())),
                Some(Entry::Zero) | None => None,
            })
            .filter(|(_, prefix)| seen.insert(*prefix))
            .unzip();
        WantedChunks { indexes: indexes.into_boxed_slice(), prefixes: prefixes.into_boxed_slice() }
    }

    /// The indexes, ascending.
    pub(crate) fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    /// Returns the part of it that a store holds.
    pub(crate) fn coverage(&self, store: &dyn LocalStore) -> Coverage {
        let is_present = |prefix: &&u64| store.likely_contains(**prefix);
        Coverage {
            wanted_chunks: self.prefixes.len() as u64,
            present_chunks: self.prefixes.iter().filter(is_present).count() as u64,
        }
    }
}

fn checked_count(disk: &Disk) -> Result<u64, ReadPathError> {
    let chunks = disk.manifest.chunk_count();
    if chunks > limits::WORKING_SET_CHUNKS_MAX {
        let max = limits::WORKING_SET_CHUNKS_MAX;
        return Err(ReadPathError::TooManyChunks { disk: disk.id(), chunks, max });
    }
    Ok(chunks)
}
