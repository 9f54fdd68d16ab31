//! A chunk store in memory, with faults.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use acstor_store::{Cursor, Discarded};
use acstor_types::{ChunkSize, Digest, ErrorKind};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::image::CHUNK;
use crate::{InsertOutcome, LocalChunk, LocalError, LocalLook, LocalStore, LocalUsage};

#[derive(Default)]
pub(super) struct MemoryStore {
    state: Mutex<State>,
    /// Chunks held at most; 0: no bound.
    pub(super) chunks_max: AtomicUsize,
    pub(super) pins_max: AtomicUsize,
    pub(super) fails_reads: AtomicBool,
    /// Nothing is in memory: each chunk must be read.
    pub(super) is_cold: AtomicBool,
    /// Bytes by which cold content is read; 0: by chunks.
    pub(super) page_bytes: AtomicUsize,
    /// Reads that were begun.
    pub(super) reads: AtomicUsize,
    /// Reads wait until this is false.
    is_hung: Mutex<bool>,
    hung_changed: Condvar,
    pub(super) fails_writes: AtomicBool,
    pub(super) panics_writes: AtomicBool,
}

#[derive(Default)]
struct State {
    chunks: HashMap<Digest, Bytes>,
    order: VecDeque<Digest>,
    pins: HashMap<Digest, usize>,
    demoted: HashSet<Digest>,
}

impl MemoryStore {
    pub(super) fn digests(&self) -> HashSet<Digest> {
        self.state.lock().chunks.keys().copied().collect()
    }

    fn part(&self, start: usize, len: usize) -> Range<usize> {
        match self.page_bytes.load(Ordering::Relaxed) {
            0 => 0..CHUNK,
            page => start - start % page..(start + len).next_multiple_of(page),
        }
    }

    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.chunks.clear();
        state.order.clear();
    }

    /// Makes reads hang, or lets those that do go on.
    pub(super) fn set_hung(&self, is_hung: bool) {
        *self.is_hung.lock() = is_hung;
        self.hung_changed.notify_all();
    }

    pub(super) fn pinned(&self) -> usize {
        self.state.lock().pins.len()
    }
}

fn failure(kind: ErrorKind) -> LocalError {
    LocalError { kind, message: "injected".into() }
}

impl LocalStore for MemoryStore {
    fn chunk_size(&self) -> ChunkSize {
        ChunkSize::new(CHUNK as u32).unwrap()
    }

    fn look(&self, digest: &Digest, start: usize, len: usize) -> LocalLook {
        let mut state = self.state.lock();
        // What is used stays after all.
        state.demoted.remove(digest);
        let is_on_disk =
            self.is_cold.load(Ordering::Relaxed) || self.fails_reads.load(Ordering::Relaxed);
        match state.chunks.get(digest) {
            Some(_) if is_on_disk => LocalLook::Disk(self.part(start, len)),
            Some(bytes) => LocalLook::Memory(LocalChunk::Bytes(bytes.clone())),
            None => LocalLook::Absent,
        }
    }

    fn read(&self, digest: &Digest, part: &Range<usize>) -> Result<Option<Bytes>, LocalError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut is_hung = self.is_hung.lock();
        while *is_hung {
            self.hung_changed.wait(&mut is_hung);
        }
        drop(is_hung);
        if self.fails_reads.load(Ordering::Relaxed) {
            return Err(failure(ErrorKind::Unavailable));
        }
        Ok(self.state.lock().chunks.get(digest).map(|chunk| chunk.slice(part.clone())))
    }

    fn contains(&self, digest: &Digest) -> bool {
        self.state.lock().chunks.contains_key(digest)
    }

    fn likely_contains(&self, prefix: u64) -> bool {
        self.state.lock().chunks.keys().any(|digest| digest.prefix_u64() == prefix)
    }

    fn favor(&self, digest: &Digest) {
        // First in, first out: what comes last leaves last.
        let mut state = self.state.lock();
        if state.chunks.contains_key(digest) {
            state.order.retain(|other| other != digest);
            state.order.push_back(*digest);
        }
    }

    /// All that is not pinned, first in first; a walk is one step.
    fn coldest(&self, _cursor: &mut Cursor, count: usize) -> Vec<Digest> {
        let state = self.state.lock();
        let is_free = |digest: &&Digest| {
            !state.pins.contains_key(*digest) && !state.demoted.contains(*digest)
        };
        state.order.iter().filter(is_free).take(count).copied().collect()
    }

    fn demote(&self, digest: &Digest) {
        self.state.lock().demoted.insert(*digest);
    }

    fn keeps(&self, digest: &Digest) -> bool {
        let state = self.state.lock();
        state.chunks.contains_key(digest) && !state.demoted.contains(digest)
    }

    fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<InsertOutcome>, LocalError> {
        assert!(!self.panics_writes.load(Ordering::Relaxed), "asked to panic");
        if self.fails_writes.load(Ordering::Relaxed) {
            return Err(failure(ErrorKind::Exhausted));
        }
        let chunks_max = self.chunks_max.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        for (digest, bytes) in chunks {
            assert!(digest.matches(bytes), "only verified content is kept");
            if state.chunks.insert(*digest, bytes.clone()).is_some() {
                outcomes.push(InsertOutcome::Present);
                continue;
            }
            state.order.push_back(*digest);
            outcomes.push(InsertOutcome::New);
            while chunks_max > 0 && state.chunks.len() > chunks_max {
                let State { order, pins, demoted, .. } = &*state;
                let first = order.iter().position(|d| demoted.contains(d) && !pins.contains_key(d));
                let first = first.or_else(|| order.iter().position(|d| !pins.contains_key(d)));
                let Some(position) = first else { break };
                if let Some(oldest) = state.order.remove(position) {
                    state.chunks.remove(&oldest);
                    state.demoted.remove(&oldest);
                }
            }
        }
        Ok(outcomes)
    }

    fn pin(&self, digest: &Digest) -> Result<(), LocalError> {
        let pins_max = self.pins_max.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        if pins_max > 0 && state.pins.len() >= pins_max && !state.pins.contains_key(digest) {
            return Err(failure(ErrorKind::Exhausted));
        }
        *state.pins.entry(*digest).or_default() += 1;
        Ok(())
    }

    fn unpin(&self, digest: &Digest) {
        let mut state = self.state.lock();
        let count = state.pins.get_mut(digest).expect("unpin of a digest that is not pinned");
        *count -= 1;
        if *count == 0 {
            state.pins.remove(digest);
        }
    }

    fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError> {
        if self.fails_writes.load(Ordering::Relaxed) {
            return Err(failure(ErrorKind::Unavailable));
        }
        let mut state = self.state.lock();
        let mut discarded = Discarded::default();
        for digest in digests {
            discarded.dropped += usize::from(state.chunks.remove(digest).is_some());
            state.order.retain(|other| other != digest);
        }
        Ok(discarded)
    }

    fn usage(&self) -> LocalUsage {
        let state = self.state.lock();
        LocalUsage {
            capacity_bytes: match self.chunks_max.load(Ordering::Relaxed) {
                0 => 1 << 30,
                chunks => (chunks * CHUNK) as u64,
            },
            used_bytes: (state.chunks.len() * CHUNK) as u64,
            pinned_bytes: (state.pins.len() * CHUNK) as u64,
            pinned_max_bytes: match self.pins_max.load(Ordering::Relaxed) {
                0 => 1 << 30,
                pins => (pins * CHUNK) as u64,
            },
        }
    }
}
