//! LFU: the chunk that was used least often leaves first.

use parking_lot::Mutex;

use super::lists::Lists;
use super::{EvictionPolicy, Reclaim};

/// Uses are counted up to this; chunks used more often are told apart by recency.
const USES_MAX: u8 = 63;

/// Least frequently used; among equals, the one whose count changed longest ago.
///
/// Source: Matani, Shah, Mitra, "An O(1) algorithm for implementing the LFU cache eviction
/// scheme", 2010 (arXiv:2110.11602): one list per count. Differs: counts saturate at 63, so that
/// the lists are an array. Not for a load that changes: counts do not age, so chunks of an image
/// that was popular last month stay until all others are as popular. A use takes a lock (shortly).
#[derive(Debug)]
pub struct Lfu {
    lists: Mutex<Lists>,
}

impl Lfu {
    /// Returns empty lists for slots below `slot_count`.
    pub fn new(slot_count: u32) -> Lfu {
        Lfu { lists: Mutex::new(Lists::new(slot_count, USES_MAX + 1)) }
    }
}

impl EvictionPolicy for Lfu {
    fn admit(&self, slot: u32, _prefix: u64) {
        self.lists.lock().push_front(0, slot);
    }

    fn touch(&self, slot: u32) {
        let mut lists = self.lists.lock();
        if let Some(uses) = lists.list_of(slot) {
            lists.push_front(USES_MAX.min(uses + 1), slot);
        }
    }

    fn remove(&self, slot: u32) {
        self.lists.lock().remove(slot);
    }

    fn evict(&self, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        let mut lists = self.lists.lock();
        (0..=USES_MAX).find_map(|uses| lists.evict(uses, reclaim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_used_least_leaves_first() {
        let lfu = Lfu::new(4);
        (0..4).for_each(|slot| lfu.admit(slot, 0));
        [0, 0, 1, 3, 3, 3].into_iter().for_each(|slot| lfu.touch(slot));
        let order: Vec<_> = std::iter::from_fn(|| lfu.evict(&mut |_| Some(0))).collect();
        assert_eq!(order, [2, 1, 0, 3]);
    }

    #[test]
    fn counts_saturate() {
        let lfu = Lfu::new(2);
        (0..2).for_each(|slot| lfu.admit(slot, 0));
        (0..1000).for_each(|_| lfu.touch(1));
        (0..100).for_each(|_| lfu.touch(0));
        assert_eq!(lfu.evict(&mut |_| Some(0)), Some(1), "both saturated, 0 more recent");
    }
}
