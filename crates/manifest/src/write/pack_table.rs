//! Packs of a manifest that is being built, with what it uses of each.

use std::ops::Range;

use acstor_types::PackId;
use hashbrown::HashMap;

use crate::format::layout::{PACK_RECORD_LEN, PAGE_PACKS, PAGE_RUNS, RUN_LEN};
use crate::format::summary::{Pack, PackRecord};
use crate::{ManifestError, PAGE_LEN, limits};

/// Runs of a pack that are kept before the first attempt to join them.
const RUNS_BEFORE_JOINING: usize = 64;

/// Runs of bytes, collected in any order.
#[derive(Debug)]
pub(crate) struct UsedBytes {
    runs: Vec<Range<u32>>,
    /// Joined when there are as many.
    join_at: usize,
}

impl UsedBytes {
    pub(crate) fn new() -> UsedBytes {
        UsedBytes { runs: Vec::new(), join_at: RUNS_BEFORE_JOINING }
    }

    pub(crate) fn add(&mut self, start: u32, end: u32) {
        // Chunks mostly come in the order in which they are stored.
        if let Some(last) = self.runs.last_mut()
            && (last.start..=last.end).contains(&start)
        {
            last.end = last.end.max(end);
            return;
        }
        if self.runs.len() >= self.join_at {
            self.join();
            self.join_at = (2 * self.runs.len()).max(RUNS_BEFORE_JOINING);
        }
        self.runs.push(start..end);
    }

    /// Brings the runs in order and joins those that touch.
    fn join(&mut self) {
        self.runs.sort_unstable_by_key(|run| run.start);
        self.runs.dedup_by(|run, last| {
            let touches = run.start <= last.end;
            if touches {
                last.end = last.end.max(run.end);
            }
            touches
        });
    }

    /// Returns the runs, ascending, and their bytes.
    pub(crate) fn finish(mut self) -> (Vec<Range<u32>>, u64) {
        self.join();
        let used = self.runs.iter().map(|run| u64::from(run.end - run.start)).sum();
        (self.runs, used)
    }
}

/// Packs, numbered in the order in which they are added.
#[derive(Debug, Default)]
pub(crate) struct PackTable {
    numbers: HashMap<PackId, u32>,
    packs: Vec<(Pack, UsedBytes)>,
}

/// Pages of a summary.
#[derive(Debug)]
pub(crate) struct SummaryPages {
    pub(crate) bytes: Vec<u8>,
    pub(crate) packs: u32,
    pub(crate) runs: u32,
}

fn pad(bytes: &mut Vec<u8>, records: usize, per_page: u32) {
    if records.is_multiple_of(per_page as usize) {
        bytes.resize(bytes.len().next_multiple_of(PAGE_LEN), 0);
    }
}

impl PackTable {
    /// Returns the number of a pack, which it gets when it has none.
    pub(crate) fn add(&mut self, pack: Pack) -> Result<u32, ManifestError> {
        if let Some(number) = self.numbers.get(&pack.id) {
            let is_same = self.packs[*number as usize].0 == pack;
            let different = ManifestError::Range("a pack's bytes or class: it had others before");
            return if is_same { Ok(*number) } else { Err(different) };
        }
        let number = self.packs.len() as u32;
        if number >= limits::PACKS_MAX {
            return Err(ManifestError::Range("number of packs"));
        }
        self.numbers.insert(pack.id, number);
        self.packs.push((pack, UsedBytes::new()));
        Ok(number)
    }

    /// Number of packs.
    pub(crate) fn len(&self) -> u32 {
        self.packs.len() as u32
    }

    /// Notes that bytes of a pack are used.
    pub(crate) fn use_bytes(&mut self, number: u32, start: u32, end: u32) {
        if let Some((_, used)) = self.packs.get_mut(number as usize) {
            used.add(start, end);
        }
    }

    /// Returns the pages of the summary.
    pub(crate) fn finish(self) -> Result<SummaryPages, ManifestError> {
        let (mut records, mut runs) = (Vec::new(), Vec::new());
        let (packs, mut run_count) = (self.len(), 0_u32);
        for (number, (pack, used)) in self.packs.into_iter().enumerate() {
            let (mut used_runs, used_bytes) = used.finish();
            let used_bytes = u32::try_from(used_bytes)
                .map_err(|_| ManifestError::Range("used bytes of a pack"))?;
            if used_bytes == pack.stored_bytes {
                used_runs.clear();
            }
            let first_run = if used_runs.is_empty() { 0 } else { run_count };
            for run in &used_runs {
                runs.extend_from_slice(&run.start.to_le_bytes());
                runs.extend_from_slice(&run.end.to_le_bytes());
                run_count += 1;
                pad(&mut runs, run_count as usize, PAGE_RUNS);
            }
            let record =
                PackRecord { pack, used_bytes, first_run, run_count: used_runs.len() as u32 };
            record.check(run_count)?;
            records.extend_from_slice(&record.to_bytes());
            pad(&mut records, number + 1, PAGE_PACKS);
        }
        debug_assert!(PAGE_PACKS as usize * PACK_RECORD_LEN <= PAGE_LEN);
        debug_assert!(PAGE_RUNS as usize * RUN_LEN == PAGE_LEN);
        records.resize(records.len().next_multiple_of(PAGE_LEN), 0);
        runs.resize(runs.len().next_multiple_of(PAGE_LEN), 0);
        records.append(&mut runs);
        Ok(SummaryPages { bytes: records, packs, runs: run_count })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn test_runs_are_the_union(
            chunks in proptest::collection::vec((0..2000_u32, 1..20_u32), 0..300),
        ) {
            let mut used = UsedBytes::new();
            let mut bytes = [false; 2020];
            for (start, len) in &chunks {
                used.add(*start, start + len);
                bytes[*start as usize..(start + len) as usize].fill(true);
            }
            let (runs, count) = used.finish();
            prop_assert_eq!(count, bytes.iter().filter(|used| **used).count() as u64);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            for (byte, is_used) in bytes.iter().enumerate() {
                let is_in_run = runs.iter().any(|run| run.contains(&(byte as u32)));
                prop_assert_eq!(is_in_run, *is_used);
            }
        }
    }

    #[test]
    fn test_repeated_use_costs_no_memory() {
        let mut used = UsedBytes::new();
        for number in 0..100_000_u32 {
            used.add(4096 + number % 3 * 1000, 4096 + number % 3 * 1000 + 10);
        }
        assert!(used.runs.capacity() <= 2 * RUNS_BEFORE_JOINING);
        assert_eq!(used.finish().0.len(), 3);
    }
}
