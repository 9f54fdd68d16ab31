//! Writing chunks to the chunk store in the background.
//!
//! Answers never wait for the local disk. A chunk that waits to be written can be read from here, so
//! that it is not obtained a second time meanwhile.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use acstor_types::{Digest, ErrorKind};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::observe::metrics::Metrics;
use crate::{InsertOutcome, LocalError, LocalStore, ReadPathError, limits};

/// Chunks written at a time.
const BATCH_MAX: usize = 32;

/// The queue of one background thread.
#[derive(Debug)]
pub(crate) struct Inserter {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
    /// The thread, until somebody has waited for its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Digest, Waiting>,
    order: VecDeque<Digest>,
    bytes: usize,
    is_stopped: bool,
    has_ended: bool,
}

/// Next work of the thread.
enum Work {
    Write(Vec<(Digest, Bytes)>),
    /// Nothing came for a while: how did what was written last fare?
    WriteBack,
    End,
}

#[derive(Debug)]
struct Waiting {
    bytes: Bytes,
    watchers: Vec<oneshot::Sender<WriteOutcome>>,
}

/// Result of writing a chunk.
pub(crate) type WriteOutcome = Result<InsertOutcome, LocalError>;

/// Reason for which a chunk was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotQueued {
    /// The queue is full.
    Full,
    /// Nothing more is taken.
    Stopped,
}

impl Inserter {
    pub(crate) fn new(bytes_max: usize) -> Inserter {
        let (state, thread) = (Mutex::default(), Mutex::default());
        Inserter { state, changed: Condvar::new(), bytes_max, thread }
    }

    /// Starts the thread that writes.
    pub(crate) fn start(
        self: &Arc<Self>,
        store: Arc<dyn LocalStore>,
        metrics: Arc<Metrics>,
    ) -> Result<(), ReadPathError> {
        let inserter = self.clone();
        let thread = thread::Builder::new()
            .name("acstor-insert".to_owned())
            .spawn(move || inserter.run(&*store, &metrics))
            .map_err(|error| ReadPathError::Thread {
                name: "acstor-insert",
                cause: error.to_string(),
            })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Queues a verified chunk; `false`: the queue is full and the chunk is dropped.
    pub(crate) fn push(&self, digest: Digest, bytes: Bytes) -> bool {
        self.queue(digest, bytes, None).is_ok()
    }

    /// Queues a verified chunk, unless it is queued already, and tells what became of it.
    pub(crate) fn watch(
        &self,
        digest: Digest,
        bytes: Bytes,
    ) -> Result<oneshot::Receiver<WriteOutcome>, NotQueued> {
        let (watcher, outcome) = oneshot::channel();
        self.queue(digest, bytes, Some(watcher))?;
        Ok(outcome)
    }

    fn queue(
        &self,
        digest: Digest,
        bytes: Bytes,
        watcher: Option<oneshot::Sender<WriteOutcome>>,
    ) -> Result<(), NotQueued> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Err(NotQueued::Stopped);
        }
        if let Some(waiting) = state.waiting.get_mut(&digest) {
            waiting.watchers.extend(watcher);
            return Ok(());
        }
        if state.bytes + bytes.len() > self.bytes_max {
            return Err(NotQueued::Full);
        }
        state.bytes += bytes.len();
        let watchers = watcher.into_iter().collect();
        state.waiting.insert(digest, Waiting { bytes, watchers });
        state.order.push_back(digest);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Returns a chunk that waits to be written.
    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.state.lock().waiting.get(digest).map(|waiting| waiting.bytes.clone())
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

    /// Waits for the thread's end after [`Inserter::stop`], at most `timeout`; one that waits for a disk
    /// that hangs is left behind. Blocks.
    pub(crate) fn join(&self, timeout: Duration) {
        if !self.wait_ended(timeout) {
            return;
        }
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that keeps chunks panicked");
        }
    }

    /// Waits until the thread has nothing to do any more; returns whether that is so.
    fn wait_ended(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !state.has_ended {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return state.has_ended;
            }
        }
        true
    }

    fn run(&self, store: &dyn LocalStore, metrics: &Metrics) {
        let mut is_dirty = false;
        loop {
            match self.next_work(is_dirty) {
                Work::Write(batch) => {
                    self.write(store, metrics, &batch);
                    is_dirty = true;
                }
                Work::WriteBack => {
                    is_dirty = false;
                    if let Err(error) = guarded(|| store.finish_writeback()) {
                        metrics.insert_failed(1);
                        tracing::warn!(kind = error.kind.as_str(), "chunks may be lost: {error}");
                    }
                }
                Work::End => break,
            }
        }
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn write(&self, store: &dyn LocalStore, metrics: &Metrics, batch: &[(Digest, Bytes)]) {
        let written = guarded(|| store.insert_many(batch));
        match &written {
            Ok(outcomes) => metrics.inserted(outcomes),
            Err(error) => {
                metrics.insert_failed(batch.len());
                tracing::warn!(kind = error.kind.as_str(), "chunks were not kept: {error}");
            }
        }
        self.forget(batch, &written);
    }

    fn next_work(&self, is_dirty: bool) -> Work {
        let mut state = self.state.lock();
        while state.order.is_empty() {
            // What was not written back is hashed by the next process that opens the store.
            if state.is_stopped {
                return Work::End;
            }
            if !is_dirty {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, limits::WRITEBACK_DELAY).timed_out()
                && state.order.is_empty()
            {
                return Work::WriteBack;
            }
        }
        let count = state.order.len().min(BATCH_MAX);
        let digests: Vec<Digest> = state.order.drain(..count).collect();
        // They stay readable until they are in the store.
        Work::Write(
            digests
                .into_iter()
                .filter_map(|digest| Some((digest, state.waiting.get(&digest)?.bytes.clone())))
                .collect(),
        )
    }

    fn forget(&self, batch: &[(Digest, Bytes)], written: &Result<Vec<InsertOutcome>, LocalError>) {
        let mut state = self.state.lock();
        let mut watchers = Vec::new();
        for (position, (digest, bytes)) in batch.iter().enumerate() {
            if let Some(waiting) = state.waiting.remove(digest) {
                watchers.extend(waiting.watchers.into_iter().map(|watcher| (position, watcher)));
            }
            state.bytes -= bytes.len();
        }
        drop(state);
        self.changed.notify_all();
        for (position, watcher) in watchers {
            let outcome = match written {
                Ok(outcomes) => {
                    Ok(outcomes.get(position).copied().unwrap_or(InsertOutcome::Refused))
                }
                Err(error) => Err(error.clone()),
            };
            // Who watches may have gone.
            let _ = watcher.send(outcome);
        }
    }
}

/// A fault of the store must not end the only thread that keeps chunks.
fn guarded<T>(call: impl FnOnce() -> Result<T, LocalError>) -> Result<T, LocalError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let message = "the thread that keeps chunks panicked".to_owned();
        Err(LocalError { kind: ErrorKind::Internal, message })
    })
}
