//! The lanes of the origin's queue: in each, the disks take turns.

use std::collections::{HashMap, VecDeque};

use acstor_types::{Digest, DiskId};

/// Chunks that wait, by the disk for which they are wanted. A disk with many has no more turns than one
/// with few, so that nobody waits behind all that another guest asked for.
#[derive(Debug, Default)]
pub(crate) struct FairLane {
    by_disk: HashMap<DiskId, VecDeque<Digest>>,
    /// Disks with something in the lane, the next one first.
    turns: VecDeque<DiskId>,
}

impl FairLane {
    pub(crate) fn push(&mut self, disk: DiskId, digest: Digest) {
        let waiting = self.by_disk.entry(disk).or_default();
        if waiting.is_empty() {
            self.turns.push_back(disk);
        }
        waiting.push_back(digest);
    }

    /// Takes the oldest chunk of the disk whose turn it is, passing over those that `may_run` excludes.
    pub(crate) fn pop(&mut self, may_run: impl Fn(&DiskId) -> bool) -> Option<(DiskId, Digest)> {
        let position = self.turns.iter().position(may_run)?;
        let disk = self.turns.remove(position)?;
        let waiting = self.by_disk.get_mut(&disk)?;
        let digest = waiting.pop_front()?;
        if waiting.is_empty() {
            self.by_disk.remove(&disk);
        } else {
            self.turns.push_back(disk);
        }
        Some((disk, digest))
    }

    pub(crate) fn clear(&mut self) {
        self.by_disk.clear();
        self.turns.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u8) -> DiskId {
        DiskId::from_bytes([number; 16])
    }

    #[test]
    fn test_pop_takes_the_disks_in_turn_and_each_ones_oldest_first() {
        let mut lane = FairLane::default();
        let digests: Vec<Digest> = (0..5u8).map(|n| Digest::of(&[n])).collect();
        for (number, digest) in [1, 1, 1, 2, 3].into_iter().zip(&digests) {
            lane.push(disk(number), *digest);
        }
        let order: Vec<_> = std::iter::from_fn(|| lane.pop(|_| true)).collect();
        let expected = [(1, 0), (2, 3), (3, 4), (1, 1), (1, 2)];
        assert_eq!(order, expected.map(|(number, at)| (disk(number), digests[at])));
        assert!(lane.by_disk.is_empty() && lane.turns.is_empty());
    }

    #[test]
    fn test_pop_passes_over_a_disk_that_may_not_run_and_keeps_its_turn() {
        let mut lane = FairLane::default();
        lane.push(disk(1), Digest::of(b"a"));
        lane.push(disk(2), Digest::of(b"b"));
        assert_eq!(lane.pop(|d| *d != disk(1)), Some((disk(2), Digest::of(b"b"))));
        assert_eq!(lane.pop(|d| *d != disk(1)), None);
        assert_eq!(lane.pop(|_| true), Some((disk(1), Digest::of(b"a"))));
    }
}
