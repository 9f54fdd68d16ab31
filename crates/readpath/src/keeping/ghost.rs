//! Digests that were fetched once, for `keep = second-touch`.
//!
//! Source: the ghost queue of 2Q (Johnson and Shasha, VLDB 1994). Differs: it decides admission
//! only; what happens to a chunk afterwards is the eviction policy's matter.

use std::collections::{HashSet, VecDeque};

use acstor_types::Digest;
use parking_lot::Mutex;

/// The last digests touched, first in, first out.
#[derive(Debug)]
pub(crate) struct GhostTable {
    state: Mutex<State>,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct State {
    digests: HashSet<Digest>,
    order: VecDeque<Digest>,
}

impl GhostTable {
    pub(crate) fn new(entries_max: usize) -> GhostTable {
        GhostTable { state: Mutex::default(), entries_max }
    }

    /// Notes a touch; returns whether there was one before that is still remembered.
    pub(crate) fn touch(&self, digest: Digest) -> bool {
        let mut state = self.state.lock();
        if !state.digests.insert(digest) {
            return true;
        }
        state.order.push_back(digest);
        if state.order.len() > self.entries_max
            && let Some(oldest) = state.order.pop_front()
        {
            state.digests.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_touch_remembers_the_last_ones_only() {
        let ghosts = GhostTable::new(2);
        let [a, b, c] = [b"a", b"b", b"c"].map(|content| Digest::of(content));
        assert!(!ghosts.touch(a));
        assert!(ghosts.touch(a));
        assert!(!ghosts.touch(b));
        assert!(!ghosts.touch(c));
        assert!(!ghosts.touch(a), "forgotten");
    }
}
