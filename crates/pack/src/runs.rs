//! Planning of reads: which chunks of a pack are read with one call.
//!
//! A call costs a round trip, a byte that nobody wants costs the origin's link. So neighbours are
//! read together over gaps that are small by themselves and beside what is wanted.

use std::ops::Range;

use acstor_types::StoredChunk;

/// Most bytes between two chunks that are read for nobody: the default chunk, stored plain.
pub const GAP_BYTES_MAX: u64 = 64 << 10;
/// Share of a run that its gaps may be: one in so many bytes.
pub const GAP_DIVISOR: u64 = 4;

/// A range of a pack that one call reads, and what of it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    start: u64,
    end: u64,
    gaps: u64,
}

impl Run {
    /// The run of one chunk.
    pub fn of(chunk: &StoredChunk) -> Run {
        let Range { start, end } = range_of(chunk);
        Run { start, end, gaps: 0 }
    }

    /// Its first byte in the pack.
    pub fn offset(&self) -> u64 {
        self.start
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether it has no bytes; no chunk is stored in none.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// First byte in the pack after it.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of it that nobody wants.
    pub fn gap_bytes(&self) -> u64 {
        self.gaps
    }

    /// The run with a chunk before or behind it; `None` where that is read by another call: it
    /// overlaps, is too far away, or makes more than `bytes_max` bytes of it.
    pub fn join(&self, chunk: &StoredChunk, bytes_max: u64) -> Option<Run> {
        let range = range_of(chunk);
        let gap = if range.start >= self.end {
            range.start - self.end
        } else {
            self.start.checked_sub(range.end)?
        };
        let joined = Run {
            start: self.start.min(range.start),
            end: self.end.max(range.end),
            gaps: self.gaps + gap,
        };
        let is_worth_it = gap <= GAP_BYTES_MAX && joined.gaps <= joined.len() / GAP_DIVISOR;
        (is_worth_it && joined.len() <= bytes_max).then_some(joined)
    }
}

fn range_of(chunk: &StoredChunk) -> Range<u64> {
    let start = u64::from(chunk.offset);
    start..start + u64::from(chunk.stored_len)
}

/// One call of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// Run of bytes that it reads.
    pub run: Run,
    /// Positions, in what was to be planned, of the chunks that are in it; by their places.
    pub chunks: Vec<usize>,
}

/// Plan the reads of chunks of one pack, in whatever order they are wanted.
///
/// Runs come in the order of their places, with at most `bytes_max` bytes each; a chunk that is
/// longer has a run for itself. A place that is wanted twice is read once. Only damaged tables have
/// chunks that overlap in another way; those are read by themselves.
pub fn plan_runs(chunks: &[StoredChunk], bytes_max: u64) -> Vec<PlannedRun> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_unstable_by_key(|position| {
        let Range { start, end } = range_of(&chunks[*position]);
        (start, end, *position)
    });
    let mut runs: Vec<PlannedRun> = Vec::new();
    let mut before: Option<Range<u64>> = None;
    for position in order {
        let chunk = &chunks[position];
        let is_repeated = before.replace(range_of(chunk)) == Some(range_of(chunk));
        if let Some(last) = runs.last_mut() {
            let joined = if is_repeated { Some(last.run) } else { last.run.join(chunk, bytes_max) };
            if let Some(joined) = joined {
                last.run = joined;
                last.chunks.push(position);
                continue;
            }
        }
        runs.push(PlannedRun { run: Run::of(chunk), chunks: vec![position] });
    }
    runs
}

#[cfg(test)]
mod tests {
    use acstor_types::{Codec, Digest};
    use proptest::prelude::*;

    use super::*;

    const NO_BOUND: u64 = 1 << 40;

    fn chunk(offset: u32, stored_len: u32) -> StoredChunk {
        StoredChunk {
            digest: Digest::from_bytes([0; 32]),
            offset,
            stored_len,
            codec: Codec::Lz4,
            is_incompressible: false,
            crc: 0,
        }
    }

    /// Offset, length and chunks of each run.
    fn plan(chunks: &[(u32, u32)], bytes_max: u64) -> Vec<(u64, u64, Vec<usize>)> {
        let chunks: Vec<_> = chunks.iter().map(|(offset, len)| chunk(*offset, *len)).collect();
        let runs = plan_runs(&chunks, bytes_max);
        runs.into_iter().map(|run| (run.run.offset(), run.run.len(), run.chunks)).collect()
    }

    #[test]
    fn test_plan_nothing_wanted_is_no_run() {
        assert_eq!(plan(&[], NO_BOUND), []);
    }

    #[test]
    fn test_plan_neighbours_are_one_run_in_any_order() {
        let wanted = [(5096, 500), (4096, 1000), (5596, 2000)];
        assert_eq!(plan(&wanted, NO_BOUND), [(4096, 3500, vec![1, 0, 2])]);
    }

    #[test]
    fn test_plan_gaps_up_to_a_quarter_are_read() {
        // 1000 of 4000.
        assert_eq!(plan(&[(4096, 2000), (7096, 1000)], NO_BOUND), [(4096, 4000, vec![0, 1])]);
        let apart = [(4096, 2000, vec![0]), (7097, 1000, vec![1])];
        assert_eq!(plan(&[(4096, 2000), (7097, 1000)], NO_BOUND), apart);
        // What is wanted behind a gap counts for it, too.
        let growing = [(4096, 300), (4500, 100), (4700, 700)];
        assert_eq!(plan(&growing, NO_BOUND), [(4096, 1304, vec![0, 1, 2])]);
    }

    #[test]
    fn test_plan_gaps_up_to_the_default_chunk_are_read() {
        let wanted = |gap: u32| [(4096, 1 << 20), (4096 + (1 << 20) + gap, 1 << 20)];
        assert_eq!(plan(&wanted(65_536), NO_BOUND).len(), 1);
        assert_eq!(plan(&wanted(65_537), NO_BOUND).len(), 2);
    }

    #[test]
    fn test_plan_runs_are_bounded() {
        let wanted = [(4096, 1000), (5096, 1000), (6096, 1000), (7096, 5000)];
        let expected = [(4096, 2000, vec![0, 1]), (6096, 1000, vec![2]), (7096, 5000, vec![3])];
        assert_eq!(plan(&wanted, 2999), expected);
    }

    #[test]
    fn test_plan_same_place_is_read_once() {
        let wanted = [(4096, 1000), (5096, 1000), (4096, 1000)];
        assert_eq!(plan(&wanted, 2000), [(4096, 2000, vec![0, 2, 1])]);
    }

    #[test]
    fn test_plan_overlapping_places_are_read_apart() {
        let wanted = [(4096, 1000), (4100, 10), (4500, 1000), (5500, 10)];
        let expected = [(4096, 1000, vec![0]), (4100, 10, vec![1]), (4500, 1010, vec![2, 3])];
        assert_eq!(plan(&wanted, NO_BOUND), expected);
    }

    #[test]
    fn test_plan_last_byte_of_the_largest_pack_is_reached() {
        let wanted = [(u32::MAX, 1 << 22), (u32::MAX - 101, 101)];
        assert_eq!(
            plan(&wanted, NO_BOUND),
            [(u64::from(u32::MAX) - 101, 101 + (1 << 22), vec![1, 0])]
        );
    }

    proptest! {
        /// Each chunk is in one run and inside of it, within all bounds, and runs that could be one
        /// are one.
        #[test]
        fn proptest_plan_reads_what_is_wanted(
            gaps in prop::collection::vec((0_u32..100_000, 1_u32..70_000), 1..60),
            bytes_max in 1_u64..2_000_000,
            seed in any::<u64>(),
        ) {
            let mut offset = 4096;
            let mut chunks: Vec<StoredChunk> = gaps.iter().map(|(gap, len)| {
                // Most of a pack's chunks follow one another.
                offset += if gap % 3 == 0 { 0 } else { *gap };
                let chunk = chunk(offset, *len);
                offset += len;
                chunk
            }).collect();
            let turn = seed as usize % chunks.len();
            chunks.rotate_left(turn);
            let runs = plan_runs(&chunks, bytes_max);
            let mut seen: Vec<usize> = runs.iter().flat_map(|run| run.chunks.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..chunks.len()).collect::<Vec<_>>());
            for planned in &runs {
                let wanted: u64 = planned.chunks.iter().map(|at| u64::from(chunks[*at].stored_len)).sum();
                prop_assert_eq!(wanted + planned.run.gap_bytes(), planned.run.len());
                prop_assert!(planned.run.gap_bytes() * GAP_DIVISOR <= planned.run.len());
                prop_assert!(planned.run.len() <= bytes_max || planned.chunks.len() == 1);
                for at in &planned.chunks {
                    let range = range_of(&chunks[*at]);
                    prop_assert!(range.start >= planned.run.offset() && range.end <= planned.run.end());
                }
            }
            for pair in runs.windows(2) {
                prop_assert!(pair[0].run.end() <= pair[1].run.offset());
                prop_assert_eq!(pair[0].run.join(&chunks[pair[1].chunks[0]], bytes_max), None);
            }
        }

        /// A run grows to the same from either side.
        #[test]
        fn proptest_join_is_symmetric(
            first in (4096_u32..10_000, 1_u32..70_000), gap in 0_u32..70_000, len in 1_u32..70_000,
        ) {
            let one = chunk(first.0, first.1);
            let other = chunk(first.0 + first.1 + gap, len);
            prop_assert_eq!(
                Run::of(&one).join(&other, NO_BOUND), Run::of(&other).join(&one, NO_BOUND)
            );
        }
    }
}
