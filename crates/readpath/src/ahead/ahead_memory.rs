//! Chunks that were read ahead along the profile of a boot, in memory of their own.
//!
//! A chunk is claimed by each open that ordered it and has not read it. What nobody claims, since it was
//! read or its open has ended, stays for the guests that boot the image next, but not long, and goes first
//! when room is needed. What is claimed is never dropped: who orders asks for room first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits;

/// A bounded number of bytes of chunks.
#[derive(Debug)]
pub(crate) struct AheadMemory {
    state: Mutex<State>,
    /// Chunks held: only where there are any does a read have to look here.
    count: AtomicUsize,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Digest, Held>,
    /// Chunks that nobody claims, the oldest first, with the number of the time when they were left.
    left: VecDeque<(Digest, u64, Instant)>,
    leavings: u64,
    bytes: u64,
    claimed: u64,
}

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    claims: u32,
    /// Number of the time when it was left last.
    left: u64,
}

impl State {
    fn leave(&mut self, digest: &Digest) {
        self.leavings += 1;
        if let Some(held) = self.chunks.get_mut(digest) {
            held.left = self.leavings;
            self.left.push_back((*digest, self.leavings, Instant::now()));
        }
    }

    /// Drops the chunk that was left first; `false`: there is none.
    fn drop_left(&mut self) -> bool {
        while let Some((digest, number, _)) = self.left.pop_front() {
            let is_left = |held: &Held| held.claims == 0 && held.left == number;
            if self.chunks.get(&digest).is_some_and(is_left)
                && let Some(gone) = self.chunks.remove(&digest)
            {
                self.bytes -= gone.bytes.len() as u64;
                return true;
            }
        }
        false
    }
}

impl AheadMemory {
    pub(crate) fn new(bytes_max: u64) -> AheadMemory {
        AheadMemory { state: Mutex::default(), count: AtomicUsize::new(0), bytes_max }
    }

    /// Most bytes that it holds; 0: nothing is read ahead.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that may be claimed now.
    pub(crate) fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.state.lock().claimed)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.state.lock().chunks.get(digest)?.bytes.clone())
    }

    pub(crate) fn contains(&self, digest: &Digest) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.state.lock().chunks.contains_key(digest)
    }

    /// Holds a chunk that came, for who claims it; not beyond the most where all others are claimed.
    pub(crate) fn insert(&self, digest: Digest, bytes: Bytes) {
        let mut state = self.state.lock();
        let len = bytes.len() as u64;
        if state.chunks.contains_key(&digest) {
            return;
        }
        while state.bytes + len > self.bytes_max {
            if !state.drop_left() {
                self.count.store(state.chunks.len(), Ordering::Relaxed);
                return;
            }
        }
        state.bytes += len;
        state.chunks.insert(digest, Held { bytes, claims: 0, left: 0 });
        state.leave(&digest);
        self.count.store(state.chunks.len(), Ordering::Relaxed);
    }

    /// Claims a chunk for an open; `false`: it is not here.
    pub(crate) fn claim(&self, digest: &Digest) -> bool {
        let mut state = self.state.lock();
        let Some(held) = state.chunks.get_mut(digest) else { return false };
        held.claims += 1;
        let (is_first, len) = (held.claims == 1, held.bytes.len() as u64);
        state.claimed += if is_first { len } else { 0 };
        true
    }

    /// Takes a claim back, since the chunk was read or its open has ended; returns its bytes.
    pub(crate) fn leave(&self, digest: &Digest) -> Option<Bytes> {
        let mut state = self.state.lock();
        let held = state.chunks.get_mut(digest)?;
        let bytes = held.bytes.clone();
        if held.claims == 1 {
            held.claims = 0;
            state.claimed -= bytes.len() as u64;
            state.leave(digest);
        } else {
            held.claims = held.claims.saturating_sub(1);
        }
        Some(bytes)
    }

    /// Drops those of some chunks that nobody claims.
    pub(crate) fn remove(&self, digests: &[Digest]) {
        let mut state = self.state.lock();
        for digest in digests {
            if state.chunks.get(digest).is_some_and(|held| held.claims == 0)
                && let Some(gone) = state.chunks.remove(digest)
            {
                state.bytes -= gone.bytes.len() as u64;
            }
        }
        self.count.store(state.chunks.len(), Ordering::Relaxed);
    }

    /// Drops what was left long ago.
    pub(crate) fn expire(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let is_old =
            |left: Instant| now.saturating_duration_since(left) >= limits::LEFT_AHEAD_AGE_MAX;
        while let Some((_, _, left)) = state.left.front() {
            if !is_old(*left) || !state.drop_left() {
                break;
            }
        }
        self.count.store(state.chunks.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    fn digest(number: u8) -> Digest {
        Digest::of(&[number])
    }

    fn insert(memory: &AheadMemory, number: u8) {
        memory.insert(digest(number), Bytes::from(vec![number; 30]));
    }

    fn held(memory: &AheadMemory) -> Vec<u8> {
        (0..20).filter(|number| memory.contains(&digest(*number))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn test_insert_drops_what_was_left_first_and_nothing_that_is_claimed() {
        let memory = AheadMemory::new(100);
        (0..3).for_each(|number| insert(&memory, number));
        assert!(memory.claim(&digest(0)) && memory.claim(&digest(0)));
        assert_eq!(memory.room(), 70);
        insert(&memory, 3);
        assert_eq!(held(&memory), [0, 2, 3]);
        assert!(memory.claim(&digest(2)) && memory.claim(&digest(3)));
        insert(&memory, 4);
        assert_eq!(held(&memory), [0, 2, 3], "memory is full");
        assert!(memory.leave(&digest(0)).is_some());
        insert(&memory, 4);
        assert_eq!(held(&memory), [0, 2, 3], "another open has not read it");
        assert_eq!(memory.leave(&digest(0)).unwrap(), vec![0; 30]);
        insert(&memory, 4);
        assert_eq!(held(&memory), [2, 3, 4]);
        assert!(!memory.claim(&digest(0)) && memory.leave(&digest(0)).is_none());
        assert!(memory.get(&digest(4)).is_some() && memory.get(&digest(5)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn test_expire_drops_what_was_left_long_ago() {
        let memory = AheadMemory::new(1000);
        (0..4).for_each(|number| insert(&memory, number));
        assert!(memory.claim(&digest(1)) && memory.claim(&digest(2)));
        advance(limits::LEFT_AHEAD_AGE_MAX).await;
        assert!(memory.leave(&digest(2)).is_some());
        memory.expire();
        assert_eq!(held(&memory), [1, 2]);
        advance(limits::LEFT_AHEAD_AGE_MAX).await;
        memory.expire();
        assert_eq!((held(&memory), memory.bytes(), memory.room()), (vec![1], 30, 970));
    }

    #[tokio::test(start_paused = true)]
    async fn test_remove_leaves_what_is_claimed() {
        let memory = AheadMemory::new(100);
        (0..3).for_each(|number| insert(&memory, number));
        assert!(memory.claim(&digest(1)));
        memory.remove(&[digest(0), digest(1), digest(9)]);
        assert_eq!((held(&memory), memory.bytes(), memory.room()), (vec![1, 2], 60, 70));
        insert(&memory, 0);
        insert(&memory, 3);
        assert_eq!(held(&memory), [0, 1, 3], "what was left first goes, whatever was removed");
    }

    proptest! {
        /// Whatever comes, is claimed and is left: no more is held than may be, what is claimed is there, and
        /// the books are right.
        #[test]
        fn proptest_claimed_chunks_stay_within_the_bound(
            steps in prop::collection::vec((0u8..12, 0u8..5), 0..80),
        ) {
            let memory = AheadMemory::new(100);
            let mut claims = [0u32; 12];
            for (number, what) in steps {
                match what {
                    0 | 1 => insert(&memory, number),
                    4 => memory.remove(&[digest(number)]),
                    2 => claims[number as usize] += u32::from(memory.claim(&digest(number))),
                    _ => {
                        memory.leave(&digest(number));
                        claims[number as usize] = claims[number as usize].saturating_sub(1);
                    }
                }
                let claimed: Vec<u8> =
                    (0..12).filter(|number| claims[*number as usize] > 0).collect();
                prop_assert!(memory.bytes() <= 100);
                prop_assert_eq!(memory.bytes(), held(&memory).len() as u64 * 30);
                prop_assert_eq!(memory.room(), 100 - claimed.len() as u64 * 30);
                prop_assert!(claimed.iter().all(|number| memory.contains(&digest(*number))));
            }
        }
    }
}
