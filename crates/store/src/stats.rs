//! Counters of a chunk store.

use std::sync::atomic::{AtomicU64, Ordering};

/// A reading of the store's counters and gauges.
///
/// Counters start at zero when the store is opened and only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Slots that the store has; gauge.
    pub slots: u64,
    /// Slots that hold a chunk, are being filled or wait for their last reader; gauge.
    pub slots_used: u64,
    /// Digests that are pinned, whether or not the store holds them; gauge.
    pub pinned: u64,
    /// Most digests that may be pinned.
    pub pinned_max: u64,
    /// Look-ups that found the chunk, and could have it.
    pub hits: u64,
    /// Look-ups that did not find the chunk, for whatever reason.
    pub misses: u64,
    /// Chunks published.
    pub inserted: u64,
    /// Inserts of a chunk that was there already.
    pub present: u64,
    /// Inserts for which no slot could be had.
    pub refused: u64,
    /// Chunks that left to make room.
    pub evicted: u64,
    /// Reads from the disk whose content hashed equal to its digest.
    pub verified: u64,
    /// Reads of pages from the disk that were compared with their checksums, and equal.
    pub compared: u64,
    /// Slots whose content or record did not match what was published; each was freed.
    pub corrupt: u64,
    /// Reads of a slot or record that failed (I/O error, file too short); each slot was freed.
    pub read_errors: u64,
    /// Writes of slots or records that failed; none of those chunks was published.
    pub write_errors: u64,
    /// Times that the kernel reported writes which it had taken and the disk refused.
    pub writeback_errors: u64,
    /// Times that a file of the store was found truncated while the store was open.
    pub truncations: u64,
    /// Bytes of chunks published.
    pub bytes_inserted: u64,
    /// Chunks that were found when the store was opened.
    pub recovered: u64,
}

/// The counters behind [`StoreStats`]. Relaxed: they order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub hits: Counter,
    pub misses: Counter,
    pub inserted: Counter,
    pub present: Counter,
    pub refused: Counter,
    pub evicted: Counter,
    pub verified: Counter,
    pub compared: Counter,
    pub corrupt: Counter,
    pub read_errors: Counter,
    pub write_errors: Counter,
    pub writeback_errors: Counter,
    pub truncations: Counter,
    pub recovered: Counter,
    /// Slots lost since the store was opened: `corrupt` and `read_errors` without those of opening.
    pub losses: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`; returns the new value.
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed).wrapping_add(count)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
