//! Takes the repetition out of uses: reading a chunk in pieces is one use of it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Remembers the slots touched last, so that a run of reads of one chunk counts once.
///
/// A guest that reads a disk in 4 KiB steps touches a 64 KiB chunk sixteen times in a row; taken
/// for sixteen uses, that would make every scan look popular. Source: Robinson, Devarakonda, "Data
/// cache management using frequency-based replacement", SIGMETRICS 1990: correlated references
/// are factored out. Differs: a small direct-mapped table stands for the new section, so some 64
/// streams of reads are told apart.
#[derive(Debug)]
pub struct TouchFilter([AtomicU32; CELLS]);

const CELLS: usize = 64;

impl TouchFilter {
    /// Returns a filter that has seen nothing.
    pub fn new() -> TouchFilter {
        TouchFilter([const { AtomicU32::new(u32::MAX) }; CELLS])
    }

    /// Returns whether this touch of `slot` is a use of its own.
    pub fn is_new_use(&self, slot: u32) -> bool {
        let cell = &self.0[slot as usize % CELLS];
        if cell.load(Ordering::Relaxed) == slot {
            return false;
        }
        cell.store(slot, Ordering::Relaxed);
        true
    }
}

impl Default for TouchFilter {
    fn default() -> TouchFilter {
        TouchFilter::new()
    }
}

#[cfg(test)]
mod tests {
    use super::TouchFilter;

    #[test]
    fn run_of_touches_is_one_use() {
        let filter = TouchFilter::new();
        let uses = |slots: &[u32]| slots.iter().filter(|slot| filter.is_new_use(**slot)).count();
        assert_eq!(uses(&[5, 5, 5, 6, 5, 6]), 2, "two streams");
        assert_eq!(uses(&[5 + 64, 5]), 2, "read again later");
    }
}
