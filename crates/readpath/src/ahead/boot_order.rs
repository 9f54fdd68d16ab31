//! Order in which one boot touches the chunks of its disk first.
//!
//! A boot lasts two minutes, or ends once ten seconds pass with less than a new chunk a second. A chunk
//! that was read before costs one or two relaxed loads; only a first touch takes a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits;

/// Places of a set of chunks: twice as many as there may be, so that few share one.
const PLACES: usize = (2 * limits::BOOT_CHUNKS_MAX).next_power_of_two();

/// Order of first touch, of one boot.
#[derive(Debug)]
pub(crate) struct BootOrder {
    chunk_count: u64,
    seen: SeenChunks,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    order: Vec<u32>,
    /// Chunks that there were at the end of each of the last seconds.
    counts: VecDeque<usize>,
}

impl BootOrder {
    /// Begins a boot now.
    pub(crate) fn new(chunk_count: u64) -> BootOrder {
        let (order, counts) = (Vec::new(), VecDeque::new());
        let state = State { begun: Instant::now(), order, counts };
        BootOrder { chunk_count, seen: SeenChunks::new(), state: Mutex::new(state) }
    }

    /// Notes a read of the chunks from `first` to `last`; those past the most that a boot may have are left
    /// out.
    pub(crate) fn note(&self, first: u64, last: u64) {
        for index in first..last.saturating_add(1).min(self.chunk_count) {
            // As checked where a recorder is made: there are at most 2^30.
            let chunk = index as u32;
            if !self.seen.contains(chunk) {
                self.add(chunk);
            }
        }
    }

    fn add(&self, chunk: u32) {
        let mut state = self.state.lock();
        if state.order.len() < limits::BOOT_CHUNKS_MAX && self.seen.insert(chunk) {
            state.order.push(chunk);
        }
    }

    /// Notes that a second has passed; returns whether the boot is over.
    pub(crate) fn tick(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let chunks = state.order.len();
        if chunks >= limits::BOOT_CHUNKS_MAX
            || now.saturating_duration_since(state.begun) >= limits::BOOT_TIME_MAX
        {
            return true;
        }
        state.counts.push_back(chunks);
        if state.counts.len() <= limits::BOOT_QUIET_SECONDS {
            return false;
        }
        let before = state.counts.pop_front().unwrap_or(chunks);
        // Firmware and boot menus think before their first reads.
        chunks >= limits::BOOT_CHUNKS_MIN && chunks - before < limits::BOOT_QUIET_SECONDS
    }

    /// The chunks so far, in their order; nothing where they are too few for a boot.
    pub(crate) fn take(&self) -> Option<Vec<u32>> {
        let order = std::mem::take(&mut self.state.lock().order);
        (order.len() >= limits::BOOT_CHUNKS_MIN).then_some(order)
    }
}

/// Set of chunks that is looked up without a lock, of a fixed size.
#[derive(Debug)]
struct SeenChunks {
    /// One more than a chunk; 0: none.
    places: Box<[AtomicU32]>,
}

impl SeenChunks {
    fn new() -> SeenChunks {
        SeenChunks { places: (0..PLACES).map(|_| AtomicU32::new(0)).collect() }
    }

    /// The places at which a chunk may be, in the order in which they are looked at.
    fn places_of(&self, chunk: u32) -> impl Iterator<Item = &AtomicU32> {
        let first = chunk.wrapping_mul(0x9e37_79b1) >> (u32::BITS - PLACES.trailing_zeros());
        (0..PLACES).map(move |more| &self.places[(first as usize + more) % PLACES])
    }

    fn contains(&self, chunk: u32) -> bool {
        let mut found = self.places_of(chunk).map(|place| place.load(Ordering::Relaxed));
        found.find(|value| *value == 0 || *value == chunk + 1).is_some_and(|value| value != 0)
    }

    /// Puts a chunk in; returns whether it was not there. By one thread at a time.
    fn insert(&self, chunk: u32) -> bool {
        for place in self.places_of(chunk) {
            match place.load(Ordering::Relaxed) {
                0 => {
                    place.store(chunk + 1, Ordering::Relaxed);
                    return true;
                }
                value if value == chunk + 1 => return false,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Passes seconds, in each of which as many chunks are read first as `new` says; returns the second in
    /// which the boot was over.
    fn over_after(order: &BootOrder, new: impl Fn(u64) -> u64, most: u64) -> Option<u64> {
        let begun = Instant::now();
        let mut next = 0;
        for second in 1..=most {
            let count = new(second);
            (next..next + count).for_each(|chunk| order.note(chunk, chunk));
            next += count;
            if order.tick(begun + SECOND * second as u32) {
                return Some(second);
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn test_order_is_that_of_the_first_touches() {
        let order = BootOrder::new(1000);
        order.note(500, 503);
        order.note(0, 1);
        order.note(502, 505);
        order.note(1, 1);
        order.note(998, 2000);
        (100..120).for_each(|chunk| order.note(chunk, chunk));
        let expected = [500, 501, 502, 503, 0, 1, 504, 505, 998, 999];
        assert_eq!(order.take().unwrap()[..10], expected);
    }

    #[tokio::test(start_paused = true)]
    async fn test_handle_that_reads_next_to_nothing_is_no_boot() {
        let order = BootOrder::new(1000);
        order.note(0, limits::BOOT_CHUNKS_MIN as u64 - 2);
        assert_eq!(order.take(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn test_boot_ends_after_ten_quiet_seconds() {
        // 40 chunks a second for 20 s, then one in two seconds.
        let new = |second| if second <= 20 { 40 } else { second % 2 };
        assert_eq!(over_after(&BootOrder::new(10_000), new, 200), Some(30));
        // One a second is not quiet.
        let new = |second| if second <= 20 { 40 } else { 1 };
        assert_eq!(over_after(&BootOrder::new(10_000), new, 200), Some(120));
    }

    #[tokio::test(start_paused = true)]
    async fn test_firmware_that_thinks_first_does_not_end_the_boot() {
        let new = |second| match second {
            1 => 1,
            2..40 => 0,
            40..60 => 40,
            _ => 0,
        };
        assert_eq!(over_after(&BootOrder::new(10_000), new, 200), Some(69));
    }

    #[tokio::test(start_paused = true)]
    async fn test_reader_of_everything_ends_its_boot_at_the_most_chunks() {
        let order = BootOrder::new(1 << 30);
        order.note(0, 1 << 20);
        assert!(order.tick(Instant::now()));
        assert_eq!(order.take().unwrap().len(), limits::BOOT_CHUNKS_MAX);
    }

    #[test]
    fn test_threads_that_read_at_once_note_each_chunk_once() {
        let order = BootOrder::new(1 << 20);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..2000).for_each(|number| order.note(number * 97, number * 97 + 1))
                });
            }
        });
        let found = order.take().unwrap();
        assert_eq!(found.len(), 4000);
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), 4000);
    }

    proptest! {
        #[test]
        fn test_seen_chunks_are_those_that_were_put_in(
            chunks in prop::collection::vec(prop_oneof![0_u32..64, (1 << 30) - 64_u32..1 << 30], 0..200),
        ) {
            let seen = SeenChunks::new();
            let mut expected = HashSet::new();
            for chunk in chunks {
                prop_assert_eq!(seen.contains(chunk), expected.contains(&chunk));
                prop_assert_eq!(seen.insert(chunk), expected.insert(chunk));
                prop_assert!(seen.contains(chunk));
            }
        }
    }
}
