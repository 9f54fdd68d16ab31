//! Chunks that a fold looks at: those that it reads, and runs that are zero all over.
//!
//! A guest makes a whole disk zero in a moment, so a run costs as much as a chunk.

use std::collections::BTreeSet;

use acstor_types::ChunkSize;

use crate::segments::extent_map::{Extent, Place};
use crate::segments::record::SECTOR;

/// Chunks that an overlay has something of.
#[derive(Debug, Default)]
pub(super) struct WrittenChunks {
    /// Those that are to be read.
    pub(super) chunks: BTreeSet<u64>,
    /// Extents of zeros, of whole chunks each.
    pub(super) zeros: Vec<Extent>,
}

impl WrittenChunks {
    /// Adds an extent of a disk of `size_bytes`, which it does not leave.
    pub(super) fn add(&mut self, extent: &Extent, chunk_size: ChunkSize, size_bytes: u64) {
        let (start, end) = (extent.start * SECTOR, extent.end * SECTOR);
        let chunks = chunk_size.index_of(start)..chunk_size.count_for(end);
        let len = chunk_size.bytes() as u64;
        // The last chunk may be longer than what the disk has of it.
        let whole_end = if end == size_bytes { chunks.end } else { end / len };
        let whole = start.div_ceil(len)..whole_end;
        if extent.place != Place::Zero || whole.is_empty() {
            self.chunks.extend(chunks);
            return;
        }
        self.chunks.extend(chunks.start..whole.start);
        self.chunks.extend(whole.end..chunks.end);
        let sectors = (whole.start * len / SECTOR, (whole.end * len).min(size_bytes) / SECTOR);
        self.zeros.push(extent.clip(sectors.0, sectors.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sectors of a chunk.
    const CHUNK: u64 = 128;
    /// A disk whose last chunk has three sectors.
    const END: u64 = 10 * CHUNK + 3;

    fn written(place: Place, start: u64, end: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
        let mut written = WrittenChunks::default();
        written.add(&Extent { start, end, place }, ChunkSize::DEFAULT, END * SECTOR);
        let zeros = written.zeros.iter().map(|extent| (extent.start, extent.end)).collect();
        (written.chunks.into_iter().collect(), zeros)
    }

    #[test]
    fn zeros_are_read_at_the_ends_of_a_run_only() {
        let zeros = |start, end| written(Place::Zero, start, end);
        assert_eq!(zeros(0, END), (vec![], vec![(0, END)]));
        assert_eq!(zeros(CHUNK, 3 * CHUNK), (vec![], vec![(CHUNK, 3 * CHUNK)]));
        let inner = vec![(2 * CHUNK, 4 * CHUNK)];
        assert_eq!(zeros(CHUNK + 1, 4 * CHUNK + 1), (vec![1, 4], inner));
        assert_eq!(zeros(CHUNK + 1, 2 * CHUNK), (vec![1], vec![]));
        assert_eq!(zeros(1, 2), (vec![0], vec![]));
        assert_eq!(zeros(CHUNK - 1, CHUNK + 1), (vec![0, 1], vec![]));
        assert_eq!(zeros(10 * CHUNK, END - 1), (vec![10], vec![]), "not to the end");
        assert_eq!(zeros(10 * CHUNK + 1, END), (vec![10], vec![]), "nor from the beginning");
    }

    #[test]
    fn what_is_in_the_log_is_read() {
        let log = Place::Log { segment: 1, offset: 4096 };
        assert_eq!(written(log, CHUNK, 3 * CHUNK + 1), (vec![1, 2, 3], vec![]));
    }
}
