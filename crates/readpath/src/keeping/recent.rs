//! Chunks that were obtained a moment ago, in memory.
//!
//! A guest that reads a chunk 4 KiB at a time must not fetch it 16 times when the keep policy does
//! not keep it; a prefetched chunk of a peer waits here for its reader. First in, first out: what is
//! worth keeping longer is in the chunk store.

use std::collections::{HashMap, VecDeque};

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::Mutex;

/// A bounded number of bytes of chunks.
#[derive(Debug)]
pub(crate) struct RecentCache {
    state: Mutex<State>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Digest, Bytes>,
    order: VecDeque<Digest>,
    bytes: usize,
}

impl RecentCache {
    pub(crate) fn new(bytes_max: usize) -> RecentCache {
        RecentCache { state: Mutex::default(), bytes_max }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.state.lock().chunks.get(digest).cloned()
    }

    pub(crate) fn contains(&self, digest: &Digest) -> bool {
        self.state.lock().chunks.contains_key(digest)
    }

    pub(crate) fn insert(&self, digest: Digest, bytes: Bytes) {
        let mut state = self.state.lock();
        if bytes.len() > self.bytes_max || state.chunks.contains_key(&digest) {
            return;
        }
        state.bytes += bytes.len();
        state.chunks.insert(digest, bytes);
        state.order.push_back(digest);
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(gone) = state.chunks.remove(&oldest) {
                state.bytes -= gone.len();
            }
        }
    }

    /// Drops chunks; their memory is free when nobody reads them any more.
    pub(crate) fn remove(&self, digests: &[Digest]) {
        let mut state = self.state.lock();
        for digest in digests {
            if let Some(gone) = state.chunks.remove(digest) {
                state.bytes -= gone.len();
            }
        }
        let State { chunks, order, .. } = &mut *state;
        order.retain(|digest| chunks.contains_key(digest));
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_insert_beyond_the_bound_drops_the_oldest() {
        let cache = RecentCache::new(100);
        let digests: Vec<Digest> = (0..5u8).map(|n| Digest::of(&[n])).collect();
        for digest in &digests {
            cache.insert(*digest, Bytes::from(vec![1; 30]));
            assert!(cache.bytes() <= 100);
        }
        let held: Vec<bool> = digests.iter().map(|digest| cache.contains(digest)).collect();
        assert_eq!(held, [false, false, true, true, true]);
    }

    #[test]
    fn test_insert_twice_counts_once() {
        let cache = RecentCache::new(100);
        for _ in 0..10 {
            cache.insert(Digest::of(b"a"), Bytes::from_static(b"a"));
        }
        assert_eq!(cache.bytes(), 1);
    }

    #[test]
    fn test_removed_chunk_is_gone_and_may_come_back() {
        let cache = RecentCache::new(100);
        let [one, other] = [b"a", b"b"].map(|content| Digest::of(content));
        cache.insert(one, Bytes::from_static(b"a"));
        cache.insert(other, Bytes::from_static(b"b"));
        cache.remove(&[one, Digest::of(b"never here")]);
        assert_eq!((cache.contains(&one), cache.contains(&other), cache.bytes()), (false, true, 1));
        cache.insert(one, Bytes::from_static(b"a"));
        assert_eq!((cache.contains(&one), cache.bytes()), (true, 2));
    }

    #[test]
    fn test_insert_larger_than_the_bound_is_not_held() {
        let cache = RecentCache::new(3);
        cache.insert(Digest::of(b"abcd"), Bytes::from_static(b"abcd"));
        assert_eq!(cache.bytes(), 0);
    }
}
