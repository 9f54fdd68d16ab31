//! Threads for the calls of one member.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{io, thread};

use parking_lot::{Condvar, Mutex};

/// One call; what it returns tells whoever waits for it.
pub(crate) type Call = Box<dyn FnOnce() -> Notice + Send>;
/// Message that a call has ended, sent when its thread is free again: so whoever has it finds one free.
pub(crate) type Notice = Box<dyn FnOnce() + Send>;

/// Threads of which each makes one call at a time.
///
/// Nothing waits in it: a call that no thread is free for is refused. The threads end after the pool was
/// dropped, at the latest when the call that they wait for returns.
pub(crate) struct CallPool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    available: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls that were taken, and that a free thread is about to begin.
    calls: VecDeque<Call>,
    /// Threads without a call.
    free: usize,
    is_stopped: bool,
}

impl CallPool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// That of the operating system, where it has no more threads.
    pub(crate) fn start(name: &str, threads: usize) -> io::Result<CallPool> {
        let pool = CallPool(Arc::default());
        for number in 0..threads {
            let shared = pool.0.clone();
            let name = format!("acstor-{name}-{number}");
            thread::Builder::new().name(name).spawn(move || shared.work())?;
            pool.0.state.lock().free += 1;
        }
        Ok(pool)
    }

    /// Has a thread make a call; `false`: none is free.
    pub(crate) fn try_run(&self, call: Call) -> bool {
        let mut state = self.0.state.lock();
        if state.free == 0 {
            return false;
        }
        state.free -= 1;
        state.calls.push_back(call);
        self.0.available.notify_one();
        true
    }
}

impl Drop for CallPool {
    fn drop(&mut self) {
        self.0.state.lock().is_stopped = true;
        self.0.available.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(call) = self.wait() {
            // A call catches its driver's panics; a fault of its own must not cost the thread either.
            let notice = catch_unwind(AssertUnwindSafe(call));
            self.state.lock().free += 1;
            if let Ok(notice) = notice {
                notice();
            }
        }
    }

    fn wait(&self) -> Option<Call> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(call) = state.calls.pop_front() {
                return Some(call);
            }
            self.available.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn test_calls_run_side_by_side_and_one_more_is_refused() {
        let pool = CallPool::start("a", 2).unwrap();
        let (begun, begins) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..2 {
            let (begun, gate) = (begun.clone(), gate.clone());
            let call = move || {
                begun.send(()).unwrap();
                let _ = gate.lock().recv();
                Box::new(|| ()) as Notice
            };
            assert!(pool.try_run(Box::new(call)));
        }
        assert!(begins.recv().is_ok() && begins.recv().is_ok());
        assert!(!pool.try_run(Box::new(|| Box::new(|| ()))));
        drop(release);
        // Sooner or later the threads are free again.
        while !pool.try_run(Box::new(|| Box::new(|| ()))) {
            thread::yield_now();
        }
    }

    #[test]
    fn test_thread_is_free_when_its_call_tells_that_it_has_ended() {
        let pool = CallPool::start("a", 1).unwrap();
        for _ in 0..200 {
            let (sender, receiver) = mpsc::channel();
            let notice = move || sender.send(()).unwrap();
            assert!(pool.try_run(Box::new(|| Box::new(notice))));
            receiver.recv().unwrap();
        }
    }

    #[test]
    fn test_panic_costs_no_thread() {
        let pool = CallPool::start("a", 1).unwrap();
        assert!(pool.try_run(Box::new(|| panic!("a fault of a test"))));
        let (sender, receiver) = mpsc::channel();
        let call = || {
            let sender = sender.clone();
            Box::new(move || Box::new(move || sender.send(7).unwrap()) as Notice)
        };
        while !pool.try_run(call()) {
            thread::yield_now();
        }
        assert_eq!(receiver.recv(), Ok(7));
    }

    #[test]
    fn test_threads_end_with_the_pool() {
        let pool = CallPool::start("a", 3).unwrap();
        let shared = Arc::downgrade(&pool.0);
        drop(pool);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
