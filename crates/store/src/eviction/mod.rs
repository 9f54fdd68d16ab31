//! Eviction: which chunk leaves when a slot is needed.
//!
//! A policy sees slot numbers only and keeps its state in arrays that are made once. It does not
//! know pinned slots (they are taken out while they are pinned) and asks before it gives one up,
//! because a slot may be guarded or being filled. How to choose is in `bench/`: recorded boot
//! traces through `examples/eviction_compare.rs`.

mod fifo;
mod ghost;
mod lfu;
mod lists;
mod lru;
mod s3fifo;
mod touch_filter;

use std::fmt;

pub use fifo::Fifo;
pub use lfu::Lfu;
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use touch_filter::TouchFilter;

use crate::EvictionKind;

/// An order over slots: which is the next to leave.
///
/// The caller guarantees that `admit` is called only with slots that the policy does not know, and
/// that slot numbers are below the count that the policy was made for. The implementation must
/// forget a slot when it is removed or given up, must offer each slot it knows at least once
/// before `evict` returns `None`, and must not allocate after it was made.
pub trait EvictionPolicy: Send + Sync + fmt::Debug {
    /// Adds a slot that was just filled. `prefix` is that of its digest.
    fn admit(&self, slot: u32, prefix: u64);

    /// Adds a slot that was found when the store was opened; called in the order of insertion.
    fn admit_recovered(&self, slot: u32, prefix: u64) {
        self.admit(slot, prefix);
    }

    /// Notes a use of a slot; one that the policy does not know is ignored.
    fn touch(&self, slot: u32);

    /// Forgets a slot; one that the policy does not know is ignored.
    fn remove(&self, slot: u32);

    /// Gives up a slot: the first one, in the policy's order, that `reclaim` lets go. `None` when
    /// it let go none. `reclaim` must not call the policy.
    fn evict(&self, reclaim: &mut Reclaim<'_>) -> Option<u32>;

    /// Looks at up to `count` slots from the cold end on, after the slot `after`; returns those that
    /// were not used lately, and where to go on (`None`: at the cold end again). A policy that knows
    /// no cold end returns nothing.
    fn coldest(&self, _after: Option<u32>, _count: usize) -> (Vec<u32>, Option<u32>) {
        (Vec::new(), None)
    }

    /// Makes a slot leave before all that are not demoted, unless it is used before; one that the
    /// policy does not know is ignored.
    fn demote(&self, _slot: u32) {}

    /// Returns whether a slot is demoted and was not used since.
    fn is_demoted(&self, _slot: u32) -> bool {
        false
    }
}

/// Takes a slot from its chunk unless it is in use just now; returns the digest prefix of the
/// chunk that left.
pub type Reclaim<'a> = dyn FnMut(u32) -> Option<u64> + 'a;

impl EvictionKind {
    /// Returns a policy of this kind over `slot_count` slots.
    pub fn policy(self, slot_count: u32) -> Box<dyn EvictionPolicy> {
        match self {
            EvictionKind::S3Fifo => Box::new(S3Fifo::new(slot_count)),
            EvictionKind::Fifo => Box::new(Fifo::new(slot_count)),
            EvictionKind::Lru => Box::new(Lru::new(slot_count)),
            EvictionKind::Lfu => Box::new(Lfu::new(slot_count)),
        }
    }
}
