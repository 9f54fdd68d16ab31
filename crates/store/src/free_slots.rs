//! The slots that hold nothing, handed out in ascending order so that inserts write in runs.

use std::collections::VecDeque;

use crate::limits;

/// A slot to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub slot: u32,
    /// True if its record on disk may be other than blank and must be blanked first.
    pub is_stale: bool,
    /// True if its last write failed.
    pub is_suspect: bool,
}

/// Free slots: a bitmap of two levels with a cursor, so that taking one costs the same whether
/// few or many are free; and the suspects, slots whose last write failed.
///
/// A suspect is tried again only now and then: on a disk with a bad spot the free slot that
/// cannot be written would otherwise be offered to every insert.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    /// Bit set: the slot is free.
    words: Vec<u64>,
    /// Bit set: the word has a bit set.
    summary: Vec<u64>,
    len: u32,
    /// Slot from which the search goes on.
    cursor: u32,
    suspects: VecDeque<u32>,
    inserts_until_retry: u32,
}

impl FreeSlots {
    /// Returns a set of which no slot is free.
    pub(crate) fn new(slot_count: u32) -> FreeSlots {
        let words = (slot_count as usize).div_ceil(64);
        FreeSlots {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            len: 0,
            cursor: 0,
            suspects: VecDeque::new(),
            inserts_until_retry: limits::SUSPECT_RETRY_INTERVAL,
        }
    }

    /// Slots that hold nothing, suspects included.
    pub(crate) fn len(&self) -> u32 {
        self.len + self.suspects.len() as u32
    }

    /// Gives a slot back; `is_stale`: its record or data could not be written.
    pub(crate) fn give(&mut self, slot: u32, is_stale: bool) {
        if is_stale {
            self.suspects.push_back(slot);
            return;
        }
        let word = slot as usize / 64;
        debug_assert!(self.words[word] & bit(slot as usize) == 0, "slot {slot} freed twice");
        self.words[word] |= bit(slot as usize);
        self.summary[word / 64] |= bit(word);
        self.len += 1;
    }

    /// Takes the next free slot after the last one taken, or a suspect that is due.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        if self.inserts_until_retry == 0
            && let Some(taken) = self.take_suspect()
        {
            return Some(taken);
        }
        let slot = self.next_from(self.cursor).or_else(|| self.next_from(0))?;
        let word = slot as usize / 64;
        self.words[word] &= !bit(slot as usize);
        if self.words[word] == 0 {
            self.summary[word / 64] &= !bit(word);
        }
        self.len -= 1;
        self.cursor = slot + 1;
        Some(Taken { slot, is_stale: false, is_suspect: false })
    }

    /// Takes whatever holds nothing, suspects too, for when there is nothing else.
    pub(crate) fn take_any(&mut self) -> Option<Taken> {
        self.take().or_else(|| self.take_suspect())
    }

    fn take_suspect(&mut self) -> Option<Taken> {
        self.inserts_until_retry = limits::SUSPECT_RETRY_INTERVAL;
        let slot = self.suspects.pop_front()?;
        Some(Taken { slot, is_stale: true, is_suspect: true })
    }

    /// Counts an insert that succeeded. After one into a suspect the next suspect is due at once:
    /// the disk may just have been away for a while.
    pub(crate) fn note_insert(&mut self, taken: &Taken) {
        let rest = self.inserts_until_retry.saturating_sub(1);
        self.inserts_until_retry = if taken.is_suspect { 0 } else { rest };
    }

    fn next_from(&self, start: u32) -> Option<u32> {
        let first = start as usize / 64;
        let word = self.words.get(first)? & (u64::MAX << (start % 64));
        if word != 0 {
            return Some(slot_of(first, word));
        }
        let after = first + 1;
        let mut block = after / 64;
        let mut mask = u64::MAX << (after % 64);
        while let Some(summary) = self.summary.get(block) {
            let found = summary & mask;
            if found != 0 {
                let word = block * 64 + found.trailing_zeros() as usize;
                return Some(slot_of(word, self.words[word]));
            }
            mask = u64::MAX;
            block += 1;
        }
        None
    }
}

fn bit(position: usize) -> u64 {
    1 << (position % 64)
}

fn slot_of(word: usize, bits: u64) -> u32 {
    word as u32 * 64 + bits.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hands_out_runs_in_ascending_order() {
        let mut free = FreeSlots::new(300);
        for slot in (0..300).rev() {
            free.give(slot, false);
        }
        let taken: Vec<u32> = std::iter::from_fn(|| free.take()).map(|taken| taken.slot).collect();
        assert_eq!(taken, (0..300).collect::<Vec<_>>());
        assert_eq!(free.len(), 0);
    }

    #[test]
    fn suspect_is_tried_again_after_the_interval() {
        let mut free = FreeSlots::new(64);
        free.give(3, true);
        free.give(4, true);
        free.give(7, false);
        let good = Taken { slot: 7, is_stale: false, is_suspect: false };
        assert_eq!(free.take(), Some(good));
        assert_eq!(free.take(), None);
        for _ in 0..limits::SUSPECT_RETRY_INTERVAL {
            free.note_insert(&good);
        }
        let suspect = Taken { slot: 3, is_stale: true, is_suspect: true };
        assert_eq!(free.take(), Some(suspect));
        assert_eq!(free.take(), None, "one at a time");
        free.note_insert(&suspect);
        assert_eq!(free.take(), Some(Taken { slot: 4, ..suspect }), "the disk is good again");
        assert_eq!(free.len(), 0);
    }

    proptest! {
        /// Whatever is given and taken, the set is what a `BTreeSet` with a cursor holds.
        #[test]
        fn behaves_as_a_set(slot_count in 1u32..9000,
                            steps in prop::collection::vec(prop::option::of(any::<u32>()), 1..300)) {
            let mut free = FreeSlots::new(slot_count);
            let mut model = BTreeSet::new();
            let mut cursor = 0;
            for step in steps {
                match step {
                    Some(slot) => {
                        let slot = slot % slot_count;
                        if model.insert(slot) {
                            free.give(slot, false);
                        }
                    }
                    None => {
                        let expected = model.range(cursor..).next().or(model.first()).copied();
                        prop_assert_eq!(free.take().map(|taken| taken.slot), expected);
                        if let Some(slot) = expected {
                            model.remove(&slot);
                            cursor = slot + 1;
                        }
                    }
                }
                prop_assert_eq!(free.len() as usize, model.len());
            }
        }
    }
}
