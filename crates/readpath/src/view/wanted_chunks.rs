//! The chunks of a disk that are worth having on a host: a working set as others learnt it.

use std::collections::HashSet;

use acstor_types::{Digest, ErrorKind};

use crate::ahead::chunk_spans;
use crate::view::disk::Disk;
use crate::{LocalStore, ManifestFault, ReadPathError, limits};

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
    /// The chunks of a set (see [`crate::WorkingSet::bitmap`]).
    ///
    /// # Errors
    /// [`ReadPathError::WorkingSet`] when it is no set of chunks of this disk,
    /// [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
    pub(crate) fn of_set(disk: &Disk, set: &[u8]) -> Result<WantedChunks, ReadPathError> {
        let indexes = chunk_spans::indexes(checked_count(disk)?, set)
            .map_err(|reason| ReadPathError::WorkingSet { disk: disk.id(), reason })?;
        let mut wanted = Distinct::default();
        for index in indexes {
            let digest = disk.digest(index).map_err(|fault| disk.refused(fault))?;
            // As checked: there are at most 2^30.
            digest.into_iter().for_each(|digest| wanted.add(index as u32, &digest));
        }
        Ok(wanted.finish())
    }

    /// Every chunk.
    ///
    /// # Errors
    /// As [`WantedChunks::all_up_to`].
    pub(crate) fn all(disk: &Disk) -> Result<WantedChunks, ReadPathError> {
        WantedChunks::all_up_to(limits::PRELOAD_CHUNKS_MAX, disk)
    }

    /// Every chunk of a disk with at most `max` different chunks with content.
    ///
    /// # Errors
    /// [`ReadPathError::TooManyChunks`], [`ReadPathError::TooMuchContent`], [`ReadPathError::Manifest`].
    pub(crate) fn all_up_to(max: usize, disk: &Disk) -> Result<WantedChunks, ReadPathError> {
        checked_count(disk)?;
        let mut wanted = Distinct::default();
        let visited = disk.visit_all_digests(|index, digest| {
            // As checked: there are at most 2^30.
            wanted.add(index as u32, &digest);
            // The pass ends there: what is behind may be large, and away.
            let too_many = || ManifestFault::new(ErrorKind::Unsupported, "too much content");
            if wanted.indexes.len() > max { Err(too_many()) } else { Ok(()) }
        });
        if wanted.indexes.len() > max {
            return Err(ReadPathError::TooMuchContent { disk: disk.id(), max });
        }
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
