//! Start of the request that each thread of a session is handling.
//!
//! None of them waits for anything, so a request that is handled for long shows a thread that is
//! stuck: in the kernel, in a lock, in a fault of this program.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The threads of a session.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    epoch: Instant,
    /// Milliseconds after the epoch at which the thread took its request, plus one; 0: it has none.
    threads: Box<[AtomicU64]>,
}

/// A request that is being handled.
#[derive(Debug)]
pub(crate) struct Handling<'a>(&'a AtomicU64);

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Heartbeats {
    pub(crate) fn new(threads: usize) -> Heartbeats {
        let threads = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Heartbeats { epoch: Instant::now(), threads }
    }

    /// Notes that thread `number` handles a request while the result lives.
    pub(crate) fn handling(&self, number: usize) -> Handling<'_> {
        let thread = &self.threads[number];
        thread.store(self.milliseconds(Instant::now()) + 1, Ordering::Relaxed);
        Handling(thread)
    }

    /// Returns the age of the request that has been handled longest.
    pub(crate) fn longest(&self, now: Instant) -> Duration {
        let taken = self.threads.iter().map(|thread| thread.load(Ordering::Relaxed));
        let oldest = taken.filter(|taken| *taken != 0).min();
        let age = oldest.map_or(0, |taken| self.milliseconds(now).saturating_sub(taken - 1));
        Duration::from_millis(age)
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_handled_longest_counts_and_one_that_is_done_does_not() {
        let heartbeats = Heartbeats::new(2);
        let later = Instant::now() + Duration::from_secs(70);
        assert_eq!(heartbeats.longest(later), Duration::ZERO);
        let first = heartbeats.handling(0);
        let second = heartbeats.handling(1);
        assert!(heartbeats.longest(later) >= Duration::from_secs(69));
        drop(first);
        assert!(heartbeats.longest(later) >= Duration::from_secs(69), "the second is not done");
        drop(second);
        assert_eq!(heartbeats.longest(later), Duration::ZERO);
    }
}
