//! The chunks of a disk that are worth having on a host: a working set as others learnt it.

use std::collections::HashSet;

use acstor_types::Digest;

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
    /// [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
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
        let mut wanted = Distinct::default();
        for index in indexes {
            let digest = disk.digest(u64::from(index)).map_err(|fault| disk.refused(fault))?;
            digest.into_iter().for_each(|digest| wanted.add(index, &digest));
        }
        Ok(wanted.finish())
    }

    /// Every chunk.
    ///
    /// # Errors
    /// [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
    pub(crate) fn all(disk: &Disk) -> Result<WantedChunks, ReadPathError> {
        checked_count(disk)?;
        let mut wanted = Distinct::default();
        // As checked: there are at most 2^26.
        let visited = disk.visit_all_digests(|index, digest| wanted.add(index as u32, &digest));
        visited.map_err(|fault| disk.refused(fault))?;
        Ok(wanted.finish())
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

/// Chunks that are different from each other, as they come.
#[derive(Default)]
struct Distinct {
    seen: HashSet<u64>,
    indexes: Vec<u32>,
    prefixes: Vec<u64>,
}

impl Distinct {
    fn add(&mut self, index: u32, digest: &Digest) {
        // Two digests with one prefix cannot both be in a chunk store, so it names a chunk.
        let prefix = digest.prefix_u64();
        if self.seen.insert(prefix) {
            self.indexes.push(index);
            self.prefixes.push(prefix);
        }
    }

    fn finish(self) -> WantedChunks {
        let (indexes, prefixes) =
            (self.indexes.into_boxed_slice(), self.prefixes.into_boxed_slice());
        WantedChunks { indexes, prefixes }
    }
}

fn checked_count(disk: &Disk) -> Result<u64, ReadPathError> {
    let chunks = disk.shape.chunk_count;
    if chunks > limits::WORKING_SET_CHUNKS_MAX {
        let max = limits::WORKING_SET_CHUNKS_MAX;
        return Err(ReadPathError::TooManyChunks { disk: disk.id(), chunks, max });
    }
    Ok(chunks)
}
