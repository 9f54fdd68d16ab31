//! S3-FIFO: three FIFO queues; chunks that are read once leave early.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use super::ghost::Ghost;
use super::lists::Lists;
use super::{EvictionPolicy, Reclaim};

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Queue of the chunks that other hosts have: they leave first.
const DEMOTED: u8 = 2;
/// The small queue has one in so many of the slots (the paper's 10 %).
const SMALL_SHARE: u32 = 10;
/// Uses are counted up to this (two bits).
const USES_MAX: u8 = 3;
/// Uses that take a chunk from the small queue to the main one.
const USES_TO_PROMOTE: u8 = 2;

/// Small, main and ghost FIFO queues.
///
/// Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction",
/// SOSP 2023, §4, algorithm 1. A new chunk enters the small queue; if it was used twice by the
/// time it reaches the end it moves to the main queue, else it leaves and only its fingerprint
/// stays, in the ghost queue; a chunk that comes back while its ghost is there enters the main
/// queue. In the main queue a used chunk goes round again, once per use up to three. A scan of a
/// disk passes through the small queue and leaves the main one alone; a hit is one atomic store.
///
/// Differs: the ghost queue is set-associative; the share of the small queue is of the slots that
/// the policy knows (not pinned); after a restart all chunks start in the main queue, since a
/// record does not say which queue it was in; a slot that cannot be reclaimed just now goes to
/// the front of its queue. Not for a store that holds only a few dozen slots: the small queue then
/// turns over before anything can be used twice.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Mutex<Queues>,
    uses: Box<[AtomicU8]>,
}

#[derive(Debug)]
struct Queues {
    lists: Lists,
    ghost: Ghost,
}

impl S3Fifo {
    /// Returns empty queues for slots below `slot_count`.
    pub fn new(slot_count: u32) -> S3Fifo {
        let main_slots = slot_count - slot_count / SMALL_SHARE;
        S3Fifo {
            queues: Mutex::new(Queues {
                lists: Lists::new(slot_count, 3),
                ghost: Ghost::new(main_slots),
            }),
            uses: (0..slot_count).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// Moves used chunks of the small queue on; evicts the first that was not.
    fn evict_small(&self, queues: &mut Queues, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        for _ in 0..queues.lists.len(SMALL) {
            let slot = queues.lists.back(SMALL)?;
            if self.uses(slot).load(Ordering::Relaxed) >= USES_TO_PROMOTE {
                self.uses(slot).store(0, Ordering::Relaxed);
                queues.lists.push_front(MAIN, slot);
            } else if let Some(prefix) = reclaim(slot) {
                queues.lists.remove(slot);
                queues.ghost.insert(prefix);
                return Some(slot);
            } else {
                queues.lists.push_front(SMALL, slot);
            }
        }
        None
    }

    /// Lets used chunks of the main queue go round; evicts the first that was not used.
    fn evict_main(&self, queues: &mut Queues, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        // After USES_MAX rounds every count is zero, unless readers add to them meanwhile; the
        // last round does not look at the counts.
        let rounds = u64::from(USES_MAX) + 1;
        let steps_max = rounds * u64::from(queues.lists.len(MAIN));
        for _ in 0..steps_max {
            let slot = queues.lists.back(MAIN)?;
            let uses = self.uses(slot).load(Ordering::Relaxed);
            if uses > 0 {
                self.uses(slot).store(uses - 1, Ordering::Relaxed);
            } else if reclaim(slot).is_some() {
                queues.lists.remove(slot);
                return Some(slot);
            }
            queues.lists.push_front(MAIN, slot);
        }
        queues.lists.evict(MAIN, reclaim)
    }

    /// Evicts a demoted chunk; those that were used since go to the main queue.
    fn evict_demoted(&self, queues: &mut Queues, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        for _ in 0..queues.lists.len(DEMOTED) {
            let slot = queues.lists.back(DEMOTED)?;
            if self.uses(slot).load(Ordering::Relaxed) > 0 {
                queues.lists.push_front(MAIN, slot);
            } else if reclaim(slot).is_some() {
                queues.lists.remove(slot);
                return Some(slot);
            } else {
                queues.lists.push_front(DEMOTED, slot);
            }
        }
        None
    }

    fn uses(&self, slot: u32) -> &AtomicU8 {
        &self.uses[slot as usize]
    }
}

impl EvictionPolicy for S3Fifo {
    fn admit(&self, slot: u32, prefix: u64) {
        let queues = &mut *self.queues.lock();
        self.uses(slot).store(0, Ordering::Relaxed);
        let queue = if queues.ghost.take(prefix) { MAIN } else { SMALL };
        queues.lists.push_front(queue, slot);
    }

    fn admit_recovered(&self, slot: u32, _prefix: u64) {
        self.queues.lock().lists.push_front(MAIN, slot);
    }

    fn touch(&self, slot: u32) {
        // A lost update of two racing readers costs a chunk one use; a lock would cost every hit.
        let uses = self.uses(slot).load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses(slot).store(uses + 1, Ordering::Relaxed);
        }
    }

    fn remove(&self, slot: u32) {
        self.queues.lock().lists.remove(slot);
    }

    fn evict(&self, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        let queues = &mut *self.queues.lock();
        if let Some(slot) = self.evict_demoted(queues, reclaim) {
            return Some(slot);
        }
        let small = queues.lists.len(SMALL);
        let known = small + queues.lists.len(MAIN);
        if small >= (known / SMALL_SHARE).max(1)
            && let Some(slot) = self.evict_small(queues, reclaim)
        {
            return Some(slot);
        }
        self.evict_main(queues, reclaim).or_else(|| self.evict_small(queues, reclaim))
    }

    /// The small queue, whose chunks leave soonest, then the main one.
    fn coldest(&self, after: Option<u32>, count: usize) -> (Vec<u32>, Option<u32>) {
        let queues = self.queues.lock();
        let is_in_main = after.is_some_and(|slot| queues.lists.list_of(slot) == Some(MAIN));
        let mut slots = Vec::new();
        if !is_in_main {
            slots = queues.lists.oldest(SMALL, after, count);
        }
        let after = after.filter(|_| is_in_main);
        slots.extend(queues.lists.oldest(MAIN, after, count - slots.len()));
        let next = slots.last().copied();
        drop(queues);
        slots.retain(|slot| self.uses(*slot).load(Ordering::Relaxed) == 0);
        (slots, next)
    }

    fn demote(&self, slot: u32) {
        let queues = &mut *self.queues.lock();
        if queues.lists.list_of(slot).is_some() {
            self.uses(slot).store(0, Ordering::Relaxed);
            queues.lists.push_front(DEMOTED, slot);
        }
    }

    fn is_demoted(&self, slot: u32) -> bool {
        self.queues.lock().lists.list_of(slot) == Some(DEMOTED)
            && self.uses(slot).load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A cache of `slot_count` chunks; returns how many of `accesses` were hits.
    fn hits(policy: &dyn EvictionPolicy, slot_count: u32, accesses: &[u64]) -> usize {
        let mut slots: HashMap<u64, u32> = HashMap::new();
        let mut chunks = vec![0; slot_count as usize];
        let mut used = 0;
        let mut hits = 0;
        for chunk in accesses {
            if let Some(slot) = slots.get(chunk) {
                policy.touch(*slot);
                hits += 1;
                continue;
            }
            let slot = if used < slot_count {
                used += 1;
                used - 1
            } else {
                let slot = policy.evict(&mut |slot| Some(chunks[slot as usize])).unwrap();
                slots.remove(&chunks[slot as usize]);
                slot
            };
            chunks[slot as usize] = *chunk;
            slots.insert(*chunk, slot);
            policy.admit(slot, *chunk);
        }
        hits
    }

    #[test]
    fn scan_leaves_the_chunks_in_use_alone() {
        let spread = |chunk: u64| chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hot: Vec<u64> = (0..500).map(spread).collect();
        let scan: Vec<u64> = (10_000..30_000).map(spread).collect();
        let warm_up: Vec<u64> = (0..5).flat_map(|_| hot.clone()).collect();
        let trace = [warm_up.clone(), scan, hot.clone()].concat();
        let s3fifo = hits(&S3Fifo::new(1000), 1000, &trace);
        let lru = hits(&super::super::Lru::new(1000), 1000, &trace);
        assert_eq!(lru, 4 * 500, "LRU loses all of it");
        assert!(s3fifo >= 4 * 500 + 450, "{s3fifo}");
    }

    #[test]
    fn chunk_that_comes_back_enters_the_main_queue() {
        let policy = S3Fifo::new(20);
        (0..20).for_each(|slot| policy.admit(slot, u64::from(slot) << 58));
        assert_eq!(policy.evict(&mut |slot| Some(u64::from(slot) << 58)), Some(0));
        policy.admit(0, 0);
        assert_eq!(policy.queues.lock().lists.list_of(0), Some(MAIN));
    }

    #[test]
    fn every_slot_is_offered_before_giving_up() {
        let policy = S3Fifo::new(10);
        (0..10).for_each(|slot| policy.admit(slot, 0));
        [1, 1, 1, 4, 4, 7].into_iter().for_each(|slot| policy.touch(slot));
        for wanted in 0..10 {
            let mut reclaim = |slot| (slot == wanted).then_some(0);
            assert_eq!(policy.evict(&mut reclaim), Some(wanted));
            policy.admit(wanted, 0);
        }
        assert_eq!(policy.evict(&mut |_| None), None);
    }

    #[test]
    fn demoted_chunk_leaves_first_unless_it_is_used() {
        for policy in [&S3Fifo::new(20) as &dyn EvictionPolicy, &super::super::Lru::new(20)] {
            (0..20).for_each(|slot| policy.admit(slot, 0));
            [15, 12, 17].into_iter().for_each(|slot| policy.demote(slot));
            policy.touch(12);
            let demoted: Vec<u32> = (0..20).filter(|slot| policy.is_demoted(*slot)).collect();
            assert_eq!(demoted, [15, 17], "{policy:?}");
            let evict = || policy.evict(&mut |_| Some(0)).unwrap();
            assert_eq!([evict(), evict()], [15, 17]);
            assert_eq!(evict(), 0, "then as ever");
            let rest: Vec<u32> = (0..17).map(|_| evict()).collect();
            assert!(rest.contains(&12), "nothing is lost");
            assert_eq!(policy.evict(&mut |_| Some(0)), None);
        }
    }

    #[test]
    fn walk_from_the_cold_end_meets_everything_once() {
        for policy in [&S3Fifo::new(20) as &dyn EvictionPolicy, &super::super::Lru::new(20)] {
            (0..20).for_each(|slot| policy.admit(slot, u64::from(slot) << 58));
            let mut after = None;
            let mut met = Vec::new();
            loop {
                let (slots, next) = policy.coldest(after, 7);
                met.extend(slots);
                let Some(next) = next else { break };
                after = Some(next);
            }
            assert_eq!(met, (0..20).collect::<Vec<u32>>(), "{policy:?}");
        }
    }
}
