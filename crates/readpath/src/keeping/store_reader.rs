//! Reading chunks that are on the disk of the chunk store only, on threads of its own.
//!
//! A disk may take its time, or never answer. Neither the threads that serve guests nor those of the
//! runtime, on which timers, peers and the origin's answers depend, wait for it: a bounded number of
//! threads do. Each read brings one chunk or a part of it, for all who wait for that. A read that is late is a miss for
//! them; what it brings later is in memory for whoever comes next.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use acstor_runclock::{RunClock, RunInstant};
use acstor_types::{Digest, ErrorKind};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::fetch::outcome::StoreRead;
use crate::keeping::store_health::StoreHealth;
use crate::observe::metrics::Metrics;
use crate::{LocalError, LocalStore, limits};

/// Callback with the part that was read; with `None` where it is lost, or the disk has not given it
/// in time.
pub(crate) type Then = Box<dyn FnOnce(Option<Bytes>) + Send>;

/// Checks for late reads within the time after which a read is late: it is noticed an eighth of
/// that time late at the most.
const LATE_LOOKS: u32 = 8;
/// Time after which a thread without work ends.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// The readers of one chunk store.
#[derive(Debug)]
pub(crate) struct StoreReader {
    queue: Arc<Queue>,
    late_after: Duration,
    runtime: Handle,
}

struct Queue {
    /// By which the disk is judged.
    clock: RunClock,
    store: Arc<dyn LocalStore>,
    metrics: Arc<Metrics>,
    health: StoreHealth,
    state: Mutex<State>,
    changed: Condvar,
}

/// Unit of reading: a chunk, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    digest: Digest,
    range: Range<usize>,
}

/// Waiter for a part.
enum Watcher {
    Task(oneshot::Sender<Option<Bytes>>),
    /// And when it has waited too long: it has no timer of its own.
    Call(Then, RunInstant),
}

#[derive(Default)]
struct Waiters {
    watchers: Vec<Watcher>,
    /// The disk has not given it in time to one of them: nobody else is to wait for it.
    is_late: bool,
}

#[derive(Default)]
struct State {
    /// Waiters for each part, those being read included.
    waiting: HashMap<Part, Waiters>,
    order: VecDeque<Part>,
    threads: usize,
    idle: usize,
    is_stopped: bool,
    /// True if a task looks for calls that are late.
    is_watched: bool,
    handles: Vec<JoinHandle<()>>,
}

/// A read of the disk that somebody waits for.
#[derive(Debug)]
pub(crate) struct Reading {
    queue: Arc<Queue>,
    outcome: oneshot::Receiver<Option<Bytes>>,
    late_at: RunInstant,
}

impl StoreReader {
    /// Reads that take longer than `late_after` are late.
    pub(crate) fn new(
        store: Arc<dyn LocalStore>,
        metrics: Arc<Metrics>,
        late_after: Duration,
        clock: RunClock,
        runtime: Handle,
    ) -> StoreReader {
        let queue = Queue {
            clock,
            store,
            metrics,
            health: StoreHealth::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        StoreReader { queue: Arc::new(queue), late_after, runtime }
    }

    /// Starts to read a part of a chunk, or joins a read of it; `None` where the disk does not answer
    /// or too much waits for it.
    pub(crate) fn start(&self, digest: &Digest, range: Range<usize>) -> Option<Reading> {
        let now = self.queue.clock.now();
        let part = Part { digest: *digest, range };
        let (watcher, outcome) = oneshot::channel();
        self.submit(now, part, Watcher::Task(watcher)).ok()?;
        let (queue, late_at) = (self.queue.clone(), now + self.late_after);
        Some(Reading { queue, outcome, late_at })
    }

    /// As [`StoreReader::start`], for those who do not wait: `then` is called once, by a thread that
    /// reads the disk; by this one where nothing is read; by one of the runtime where it is late.
    pub(crate) fn start_then(&self, digest: &Digest, range: Range<usize>, then: Then) {
        let now = self.queue.clock.now();
        let part = Part { digest: *digest, range };
        match self.submit(now, part, Watcher::Call(then, now + self.late_after)) {
            Ok(()) => self.watch(),
            Err(watcher) => watcher.end(None),
        }
    }

    fn submit(&self, now: RunInstant, part: Part, watcher: Watcher) -> Result<(), Watcher> {
        let submitted = match self.queue.health.admits(now) {
            true => self.queue.submit(part, watcher),
            false => Err(watcher),
        };
        submitted.inspect_err(|_| self.queue.metrics.store_read(StoreRead::Skipped))
    }

    /// Sees to it that late calls are noticed.
    fn watch(&self) {
        if !std::mem::replace(&mut self.queue.state.lock().is_watched, true) {
            let queue = Arc::downgrade(&self.queue);
            let (clock, pause) = (self.queue.clock.clone(), self.late_after / LATE_LOOKS);
            self.runtime.spawn(end_late_calls(queue, clock, pause));
        }
    }

    /// Returns whether reads go to the disk.
    pub(crate) fn is_answering(&self) -> bool {
        self.queue.health.is_answering()
    }

    /// Reads nothing more and waits for the threads, which hold the store, at most `timeout`; those that
    /// wait for a disk that hangs are left behind. Blocks.
    pub(crate) fn stop(&self, timeout: Duration) {
        let until = std::time::Instant::now() + timeout;
        let mut state = self.queue.state.lock();
        state.is_stopped = true;
        state.order.clear();
        let waiting = std::mem::take(&mut state.waiting);
        self.queue.changed.notify_all();
        drop(state);
        // Whoever waits goes on without.
        waiting.into_values().flat_map(|waiters| waiters.watchers).for_each(|it| it.end(None));
        let mut state = self.queue.state.lock();
        while state.threads > 0 {
            if self.queue.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        for handle in handles {
            // A panic was caught and counted where it happened.
            let _ = handle.join();
        }
    }
}

impl Reading {
    /// Returns the part; `None` where it is lost, or the disk has not given it in time.
    pub(crate) async fn wait(self) -> Option<Bytes> {
        match self.queue.clock.timeout_at(self.late_at, self.outcome).await {
            Ok(outcome) => outcome.ok().flatten(),
            Err(_) => {
                self.queue.metrics.store_read(StoreRead::Late);
                self.queue.health.was_late(self.queue.clock.now());
                None
            }
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Watcher {
    fn end(self, content: Option<Bytes>) {
        match self {
            // Who waited may have gone.
            Watcher::Task(watcher) => drop(watcher.send(content)),
            Watcher::Call(then, _) => {
                // This thread has others to answer.
                if catch_unwind(AssertUnwindSafe(|| then(content))).is_err() {
                    tracing::error!("what was to be done with a chunk that was read panicked");
                }
            }
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Watcher::Task(watcher) if watcher.is_closed())
    }

    fn is_late(&self, now: RunInstant) -> bool {
        matches!(self, Watcher::Call(_, late_at) if *late_at <= now)
    }
}

/// Ends calls that have waited too long, as long as there are calls.
async fn end_late_calls(queue: Weak<Queue>, clock: RunClock, pause: Duration) {
    loop {
        clock.sleep_until(clock.now() + pause).await;
        // Not kept while it sleeps: who stops waits for the store to be closed.
        let Some(queue) = queue.upgrade() else { return };
        let Some(late) = queue.take_late(clock.now()) else { return };
        for watcher in late {
            queue.metrics.store_read(StoreRead::Late);
            queue.health.was_late(clock.now());
            watcher.end(None);
        }
    }
}

impl Queue {
    fn submit(self: &Arc<Self>, part: Part, watcher: Watcher) -> Result<(), Watcher> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Err(watcher);
        }
        if let Some(waiters) = state.waiting.get_mut(&part) {
            if waiters.is_late {
                return Err(watcher);
            }
            waiters.watchers.push(watcher);
            return Ok(());
        }
        if state.order.len() >= limits::STORE_READS_WAITING_MAX {
            return Err(watcher);
        }
        let waiters = Waiters { watchers: vec![watcher], is_late: false };
        state.waiting.insert(part.clone(), waiters);
        state.order.push_back(part);
        let is_busy = state.idle < state.order.len();
        if is_busy
            && state.threads < limits::STORE_READERS_MAX
            && let Some(handle) = self.start_thread()
        {
            state.threads += 1;
            state.handles.retain(|handle| !handle.is_finished());
            state.handles.push(handle);
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the calls that have waited too long; `None` where there is no call at all.
    fn take_late(&self, now: RunInstant) -> Option<Vec<Watcher>> {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        let mut has_calls = false;
        for waiters in state.waiting.values_mut() {
            let before = late.len();
            late.extend(waiters.watchers.extract_if(.., |watcher| watcher.is_late(now)));
            waiters.is_late |= late.len() > before;
            has_calls |= waiters.watchers.iter().any(|it| matches!(it, Watcher::Call(..)));
        }
        state.is_watched = has_calls || !late.is_empty();
        state.is_watched.then_some(late)
    }

    /// Without one the read waits for those that are there, and is late if there are none.
    fn start_thread(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let queue = self.clone();
        let thread = thread::Builder::new().name("acstor-read".to_owned());
        thread
            .spawn(move || queue.run())
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot start a thread that reads the chunk store");
            })
            .ok()
    }

    fn run(&self) {
        while let Some(part) = self.next() {
            let content = self.read(&part);
            self.health.came_back();
            let waiters = self.state.lock().waiting.remove(&part).unwrap_or_default();
            for watcher in waiters.watchers {
                watcher.end(content.clone());
            }
        }
    }

    /// The next part that somebody still waits for; `None`: this thread is not needed any more.
    fn next(&self) -> Option<Part> {
        let mut state = self.state.lock();
        loop {
            while let Some(part) = state.order.pop_front() {
                let is_wanted = |it: &Waiters| !it.watchers.iter().all(Watcher::is_gone);
                if state.waiting.get(&part).is_some_and(is_wanted) {
                    return Some(part);
                }
                state.waiting.remove(&part);
            }
            state.idle += 1;
            let is_over =
                state.is_stopped || self.changed.wait_for(&mut state, IDLE_TIME).timed_out();
            state.idle -= 1;
            if is_over && state.order.is_empty() {
                state.threads -= 1;
                self.changed.notify_all();
                return None;
            }
        }
    }

    fn read(&self, part: &Part) -> Option<Bytes> {
        let Part { digest, range } = part;
        let read = || self.store.read(digest, range);
        let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
            let message = "the reader of the chunk store panicked".to_owned();
            Err(LocalError { kind: ErrorKind::Internal, message })
        });
        let (content, counted) = match outcome {
            Ok(Some(content)) => {
                let is_part = range.len() < self.store.chunk_size().bytes();
                (Some(content), if is_part { StoreRead::Part } else { StoreRead::Read })
            }
            Ok(None) => (None, StoreRead::Lost),
            Err(error) => {
                self.metrics.store_read_error();
                tracing::warn!(kind = error.kind.as_str(), %digest, "taken for a miss: {error}");
                (None, StoreRead::Failed)
            }
        };
        self.metrics.store_read(counted);
        content
    }
}
