//! Health of the chunk store's disk: the circuit breaker between reads and a disk that hangs.
//!
//! The page `reference/state-machines/store-disk` says what its states mean here.

use acstor_runclock::RunInstant;
use acstor_selection::{Backoff, BreakerRules, CircuitBreaker, FailureWhileOpen, OverdueTrial};
use parking_lot::Mutex;

use crate::limits;
use crate::steering::moment;

/// The rules of the disk's breaker. A failure is a read that is late: an error is an answer. The trial is a
/// read that some guest may wait for no longer, so another one follows.
const RULES: BreakerRules = BreakerRules {
    failures_max: limits::STORE_LATE_MAX,
    backoff: Backoff { min: limits::STORE_PROBE_INTERVAL, max: limits::STORE_PROBE_INTERVAL },
    while_open: FailureWhileOpen::Ignored,
    overdue: OverdueTrial::Repeated,
};
/// Jitter of the back-off: no other host asks this disk.
const JITTER: f64 = 0.0;

/// The disk of the chunk store as its readers see it.
#[derive(Debug)]
pub(crate) struct StoreHealth(Mutex<CircuitBreaker>);

impl StoreHealth {
    pub(crate) fn new() -> StoreHealth {
        StoreHealth(Mutex::default())
    }

    /// Asks for leave to read.
    pub(crate) fn admits(&self, now: RunInstant) -> bool {
        let mut breaker = self.0.lock();
        breaker.admit(&RULES, limits::STORE_PROBE_INTERVAL, moment(now), JITTER).is_granted()
    }

    /// Notes that the disk gave a read back, with content or with an error, late or not.
    pub(crate) fn came_back(&self) {
        let mut breaker = self.0.lock();
        if !breaker.is_closed() {
            tracing::warn!("the disk of the chunk store answers again");
        }
        breaker.succeeded();
    }

    /// Notes that a read has not come back in time.
    pub(crate) fn was_late(&self, now: RunInstant) {
        let mut breaker = self.0.lock();
        let was_answering = breaker.is_closed();
        breaker.failed(&RULES, moment(now), JITTER);
        if was_answering && !breaker.is_closed() {
            tracing::error!(
                "the disk of the chunk store does not answer: chunks that are on it only are \
                 taken for absent; look for its errors in the kernel's log"
            );
        }
    }

    /// Returns whether reads go to the disk.
    pub(crate) fn is_answering(&self) -> bool {
        self.0.lock().is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use acstor_selection::{BREAKER_TRANSITIONS, BreakerEvent, BreakerState};
    use acstor_testkit::pages::literal_rows;

    use super::*;

    #[test]
    fn test_page_lists_exactly_the_transitions() {
        let page = include_str!("../../../../doc/source/reference/state-machines/store-disk.rst");
        let listed: BTreeSet<[String; 3]> = literal_rows(page).into_iter().collect();
        let row = |(from, on, to): &(BreakerState, BreakerEvent, BreakerState)| {
            [format!("{from:?}"), format!("{on:?}"), format!("{to:?}")]
        };
        assert_eq!(listed, BREAKER_TRANSITIONS.iter().map(row).collect());
    }

    /// A read that was late says nothing of a disk that hangs already, nor puts the next look off.
    #[test]
    fn test_health_of_a_hung_disk_late_reads_change_nothing() {
        let health = StoreHealth::new();
        let start = RunInstant::unmeasured();
        for _ in 0..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        for _ in 0..10 {
            health.was_late(start + limits::STORE_PROBE_INTERVAL / 2);
        }
        assert!(health.admits(start + limits::STORE_PROBE_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn test_health_late_reads_in_a_row_open_the_breaker_and_one_answer_closes_it() {
        let health = StoreHealth::new();
        let start = RunInstant::unmeasured();
        for _ in 1..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        health.came_back();
        for _ in 1..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        assert!(health.is_answering() && health.admits(start), "not in a row");
        health.was_late(start);
        assert!(!health.is_answering() && !health.admits(start));
        health.came_back();
        assert!(health.is_answering() && health.admits(start));
    }

    #[tokio::test(start_paused = true)]
    async fn test_health_one_read_at_a_time_looks_whether_a_hung_disk_is_back() {
        let health = StoreHealth::new();
        let mut now = RunInstant::unmeasured();
        for _ in 0..limits::STORE_LATE_MAX {
            health.was_late(now);
        }
        for _ in 0..3 {
            now += limits::STORE_PROBE_INTERVAL;
            assert!(health.admits(now), "the probe");
            assert!(!health.admits(now), "one at a time");
            health.was_late(now);
            assert!(!health.admits(now));
        }
        now += limits::STORE_PROBE_INTERVAL;
        assert!(health.admits(now));
        now += limits::STORE_PROBE_INTERVAL;
        assert!(health.admits(now), "a probe that nobody waits for any more is not the last");
    }
}
