//! Writing chunks to the chunk store in the background.
//!
//! Answers never wait for the local disk. A chunk that waits to be written can be read from here, so
//! that it is not obtained a second time meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::metrics::Metrics;
use crate::{LocalStore, ReadPathError};

/// Chunks written at a time.
const BATCH_MAX: usize = 32;

/// The queue of one background thread.
#[derive(Debug)]
pub(crate) struct Inserter {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Digest, Bytes>,
    order: VecDeque<Digest>,
    bytes: usize,
    is_stopped: bool,
}

impl Inserter {
    pub(crate) fn new(bytes_max: usize) -> Inserter {
        Inserter { state: Mutex::default(), changed: Condvar::new(), bytes_max }
    }

    /// Starts the thread that writes.
    pub(crate) fn start(
        self: &Arc<Self>,
        store: Arc<dyn LocalStore>,
        metrics: Arc<Metrics>,
    ) -> Result<JoinHandle<()>, ReadPathError> {
        let inserter = self.clone();
        thread::Builder::new()
            .name("acstor-insert".to_owned())
            .spawn(move || inserter.run(&*store, &metrics))
            .map_err(|error| ReadPathError::Thread {
                name: "acstor-insert",
                cause: error.to_string(),
            })
    }

    /// Queues a verified chunk; `false`: the queue is full and the chunk is dropped.
    pub(crate) fn push(&self, digest: Digest, bytes: Bytes) -> bool {
        let mut state = self.state.lock();
        if state.is_stopped || state.bytes + bytes.len() > self.bytes_max {
            return false;
        }
        if !state.waiting.contains_key(&digest) {
            state.bytes += bytes.len();
            state.waiting.insert(digest, bytes);
            state.order.push_back(digest);
            drop(state);
            self.changed.notify_all();
        }
        true
    }

    /// Returns a chunk that waits to be written.
    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.state.lock().waiting.get(digest).cloned()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Waits until nothing waits, at most `timeout`; returns whether that is so. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !state.waiting.is_empty() {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return state.waiting.is_empty();
            }
        }
        true
    }

    /// Takes nothing more; the thread ends when everything is written.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn run(&self, store: &dyn LocalStore, metrics: &Metrics) {
        while let Some(batch) = self.next_batch() {
            match store.insert_many(&batch) {
                Ok(outcomes) => metrics.inserted(&outcomes),
                Err(error) => {
                    metrics.insert_failed(batch.len());
                    tracing::warn!(kind = error.kind.as_str(), "chunks were not kept: {error}");
                }
            }
            self.forget(&batch);
        }
    }

    fn next_batch(&self) -> Option<Vec<(Digest, Bytes)>> {
        let mut state = self.state.lock();
        while state.order.is_empty() {
            if state.is_stopped {
                return None;
            }
            self.changed.wait(&mut state);
        }
        let count = state.order.len().min(BATCH_MAX);
        let digests: Vec<Digest> = state.order.drain(..count).collect();
        // They stay readable until they are in the store.
        Some(
            digests
                .into_iter()
                .filter_map(|digest| Some((digest, state.waiting.get(&digest)?.clone())))
                .collect(),
        )
    }

    fn forget(&self, batch: &[(Digest, Bytes)]) {
        let mut state = self.state.lock();
        for (digest, bytes) in batch {
            state.waiting.remove(digest);
            state.bytes -= bytes.len();
        }
        drop(state);
        self.changed.notify_all();
    }
}
