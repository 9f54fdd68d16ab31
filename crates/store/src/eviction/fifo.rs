//! FIFO: the chunk that came first leaves first.

use parking_lot::Mutex;

use super::lists::Lists;
use super::{EvictionPolicy, Reclaim};

const QUEUE: u8 = 0;

/// First in, first out. A hit costs nothing and changes nothing.
///
/// One of the three policies of ACStor's chunk cache (§3.4, with LRU and LFU). Not for a store
/// that is read again and again: a hot chunk leaves as soon as a cold one, and one scan of a disk
/// replaces everything.
#[derive(Debug)]
pub struct Fifo {
    lists: Mutex<Lists>,
}

impl Fifo {
    /// Returns an empty queue for slots below `slot_count`.
    pub fn new(slot_count: u32) -> Fifo {
        Fifo { lists: Mutex::new(Lists::new(slot_count, 1)) }
    }
}

impl EvictionPolicy for Fifo {
    fn admit(&self, slot: u32, _prefix: u64) {
        self.lists.lock().push_front(QUEUE, slot);
    }

    fn touch(&self, _slot: u32) {}

    fn remove(&self, slot: u32) {
        self.lists.lock().remove(slot);
    }

    fn evict(&self, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        self.lists.lock().evict(QUEUE, reclaim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_chunk_leaves_in_its_turn() {
        let fifo = Fifo::new(4);
        (0..4).for_each(|slot| fifo.admit(slot, 0));
        fifo.touch(0);
        assert_eq!(fifo.evict(&mut |_| Some(0)), Some(0));
        assert_eq!(fifo.evict(&mut |slot| (slot != 1).then_some(0)), Some(2));
        assert_eq!(fifo.evict(&mut |_| Some(0)), Some(1));
    }
}
