//! The eviction policies once more, as plainly as they can be said: vectors, searched from end to
//! end. Oldest first throughout.

use std::collections::HashMap;

/// Model of an eviction policy, without its arrays and locks.
pub trait ReferencePolicy {
    /// A slot was filled.
    fn admit(&mut self, slot: u32, prefix: u64);
    /// A slot was used.
    fn touch(&mut self, slot: u32);
    /// A slot is no candidate any more.
    fn remove(&mut self, slot: u32);
    /// The first candidate for which `may_go` holds leaves.
    fn evict(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32>;
}

/// FIFO, or LRU when a use makes a slot the newest.
#[derive(Debug, Default)]
pub struct ReferenceQueue {
    queue: Vec<u32>,
    use_renews: bool,
}

impl ReferenceQueue {
    /// First in, first out.
    pub fn fifo() -> ReferenceQueue {
        ReferenceQueue::default()
    }

    /// Least recently used.
    pub fn lru() -> ReferenceQueue {
        ReferenceQueue { use_renews: true, ..ReferenceQueue::default() }
    }
}

impl ReferencePolicy for ReferenceQueue {
    fn admit(&mut self, slot: u32, _prefix: u64) {
        self.queue.push(slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.use_renews && self.queue.contains(&slot) {
            self.remove(slot);
            self.queue.push(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        self.queue.retain(|other| *other != slot);
    }

    fn evict(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let slot = self.queue.iter().copied().find(|slot| may_go(*slot))?;
        self.remove(slot);
        Some(slot)
    }
}

/// LFU with counts up to 63; ties go to the count that changed longest ago.
#[derive(Debug, Default)]
pub struct ReferenceLfu {
    /// Slot, uses, time of the last change.
    slots: Vec<(u32, u32, u64)>,
    time: u64,
}

impl ReferencePolicy for ReferenceLfu {
    fn admit(&mut self, slot: u32, _prefix: u64) {
        self.time += 1;
        self.slots.push((slot, 0, self.time));
    }

    fn touch(&mut self, slot: u32) {
        self.time += 1;
        for (other, uses, time) in &mut self.slots {
            if *other == slot {
                (*uses, *time) = ((*uses + 1).min(63), self.time);
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        self.slots.retain(|(other, ..)| *other != slot);
    }

    fn evict(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let candidates = self.slots.iter().filter(|(slot, ..)| may_go(*slot));
        let slot = candidates.min_by_key(|(_, uses, time)| (*uses, *time))?.0;
        self.remove(slot);
        Some(slot)
    }
}

/// S3-FIFO, algorithm 1 of the paper, with the store's set-associative ghost queue.
#[derive(Debug)]
pub struct ReferenceS3Fifo {
    small: Vec<u32>,
    main: Vec<u32>,
    uses: HashMap<u32, u32>,
    prefixes: HashMap<u32, u64>,
    ghost_sets: Vec<Vec<u32>>,
}

impl ReferenceS3Fifo {
    /// Returns empty queues for slots below `slot_count`.
    pub fn new(slot_count: u32) -> ReferenceS3Fifo {
        let sets = (slot_count - slot_count / 10).div_ceil(4).max(1);
        ReferenceS3Fifo {
            small: Vec::new(),
            main: Vec::new(),
            uses: HashMap::new(),
            prefixes: HashMap::new(),
            ghost_sets: vec![Vec::new(); sets as usize],
        }
    }

    fn ghost_set(&mut self, prefix: u64) -> &mut Vec<u32> {
        let share = prefix as f64 / 2f64.powi(64);
        let sets = self.ghost_sets.len();
        &mut self.ghost_sets[((share * sets as f64) as usize).min(sets - 1)]
    }

    fn remember(&mut self, prefix: u64) {
        let set = self.ghost_set(prefix);
        set.retain(|other| *other != prefix as u32);
        set.push(prefix as u32);
        if set.len() > 4 {
            set.remove(0);
        }
    }

    fn take_uses(&mut self, slot: u32, keep: impl Fn(u32) -> u32) -> u32 {
        let uses = self.uses.entry(slot).or_default();
        let before = *uses;
        *uses = keep(before);
        before
    }

    fn evict_small(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        for slot in self.small.clone() {
            self.small.remove(0);
            if self.uses.get(&slot).is_some_and(|uses| *uses >= 2) {
                self.take_uses(slot, |_| 0);
                self.main.push(slot);
            } else if may_go(slot) {
                self.remember(self.prefixes[&slot]);
                return Some(slot);
            } else {
                self.small.push(slot);
            }
        }
        None
    }

    fn evict_main(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..4 {
            for slot in self.main.clone() {
                self.main.remove(0);
                if self.take_uses(slot, |uses| uses.saturating_sub(1)) == 0 && may_go(slot) {
                    return Some(slot);
                }
                self.main.push(slot);
            }
        }
        None
    }
}

impl ReferencePolicy for ReferenceS3Fifo {
    fn admit(&mut self, slot: u32, prefix: u64) {
        self.uses.insert(slot, 0);
        self.prefixes.insert(slot, prefix);
        let set = self.ghost_set(prefix);
        let before = set.len();
        set.retain(|other| *other != prefix as u32);
        let comes_back = set.len() < before;
        if comes_back { self.main.push(slot) } else { self.small.push(slot) }
    }

    fn touch(&mut self, slot: u32) {
        self.take_uses(slot, |uses| (uses + 1).min(3));
    }

    fn remove(&mut self, slot: u32) {
        self.small.retain(|other| *other != slot);
        self.main.retain(|other| *other != slot);
    }

    fn evict(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let small_is_large = self.small.len() >= ((self.small.len() + self.main.len()) / 10).max(1);
        let first = if small_is_large { self.evict_small(may_go) } else { None };
        first.or_else(|| self.evict_main(may_go)).or_else(|| self.evict_small(may_go))
    }
}
