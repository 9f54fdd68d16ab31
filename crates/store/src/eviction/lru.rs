//! LRU: the chunk that was not used for longest leaves first.

use parking_lot::Mutex;

use super::lists::Lists;
use super::{EvictionPolicy, Reclaim};

const QUEUE: u8 = 0;
const DEMOTED: u8 = 1;

/// Least recently used.
///
/// Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM
/// Systems Journal 9(2), 1970 (LRU as a stack algorithm). Not for disks that are read from end to
/// end: a scan pushes out everything that was used before it. A use takes a lock (shortly).
#[derive(Debug)]
pub struct Lru {
    lists: Mutex<Lists>,
}

impl Lru {
    /// Returns an empty queue for slots below `slot_count`.
    pub fn new(slot_count: u32) -> Lru {
        Lru { lists: Mutex::new(Lists::new(slot_count, 2)) }
    }
}

impl EvictionPolicy for Lru {
    fn admit(&self, slot: u32, _prefix: u64) {
        self.lists.lock().push_front(QUEUE, slot);
    }

    fn touch(&self, slot: u32) {
        let mut lists = self.lists.lock();
        if lists.list_of(slot).is_some() {
            lists.push_front(QUEUE, slot);
        }
    }

    fn remove(&self, slot: u32) {
        self.lists.lock().remove(slot);
    }

    fn evict(&self, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        let mut lists = self.lists.lock();
        lists.evict(DEMOTED, reclaim).or_else(|| lists.evict(QUEUE, reclaim))
    }

    fn coldest(&self, after: Option<u32>, count: usize) -> (Vec<u32>, Option<u32>) {
        let slots = self.lists.lock().oldest(QUEUE, after, count);
        let next = slots.last().copied();
        (slots, next)
    }

    fn demote(&self, slot: u32) {
        let mut lists = self.lists.lock();
        if lists.list_of(slot).is_some() {
            lists.push_front(DEMOTED, slot);
        }
    }

    fn is_demoted(&self, slot: u32) -> bool {
        self.lists.lock().list_of(slot) == Some(DEMOTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_chunk_leaves_last() {
        let lru = Lru::new(4);
        (0..4).for_each(|slot| lru.admit(slot, 0));
        lru.touch(0);
        let order: Vec<_> = std::iter::from_fn(|| lru.evict(&mut |_| Some(0))).collect();
        assert_eq!(order, [1, 2, 3, 0]);
        lru.touch(0); // no longer known
        assert_eq!(lru.evict(&mut |_| Some(0)), None);
    }
}
