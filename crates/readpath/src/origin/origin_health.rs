//! Health of the origin: a circuit breaker between the misses and a failing origin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acstor_selection::{Admission, BreakerRules, CircuitBreaker, Moment};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::steering::jitter;

/// Answer of the breaker to a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginAdmission {
    /// Call.
    Go,
    /// Call, alone: it is the trial.
    Trial,
    /// Do not call before this time.
    Wait(Instant),
}

/// The breaker, on the wall clock: nobody is judged by it.
#[derive(Debug)]
pub(crate) struct OriginHealth {
    breaker: Mutex<CircuitBreaker>,
    /// The zero of the breaker's moments.
    zero: Instant,
    trial_time: Duration,
    /// Calls that were answered.
    answers: AtomicU64,
    /// Number of the origin's recoveries.
    recoveries: watch::Sender<u64>,
}

impl OriginHealth {
    /// Starts as closed; a trial that has not ended after `trial_time` counts as failed.
    pub(crate) fn new(trial_time: Duration) -> OriginHealth {
        OriginHealth {
            breaker: Mutex::default(),
            zero: Instant::now(),
            trial_time,
            answers: AtomicU64::new(0),
            recoveries: watch::Sender::new(0),
        }
    }

    fn moment(&self, at: Instant) -> Moment {
        match at.checked_duration_since(self.zero) {
            Some(after) => Moment::ZERO + after,
            None => Moment::ZERO - self.zero.duration_since(at),
        }
    }

    /// Asks for leave to call.
    pub(crate) fn admit(&self, now: Instant) -> OriginAdmission {
        let moment = self.moment(now);
        match self.breaker.lock().admit(&BreakerRules::ORIGIN, self.trial_time, moment, jitter()) {
            Admission::Go => OriginAdmission::Go,
            Admission::Trial => OriginAdmission::Trial,
            Admission::Wait(until) => OriginAdmission::Wait(now + until.since(moment)),
        }
    }

    /// Notes that a call succeeded, or failed for a reason that is not the origin's absence.
    pub(crate) fn succeeded(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut breaker = self.breaker.lock();
        let was_up = breaker.is_closed();
        breaker.succeeded();
        drop(breaker);
        if !was_up {
            tracing::info!("the origin answers again");
            self.recoveries.send_modify(|count| *count += 1);
        }
    }

    /// Notes that a call failed.
    pub(crate) fn failed(&self, now: Instant) {
        let mut breaker = self.breaker.lock();
        let was_up = breaker.is_closed();
        breaker.failed(&BreakerRules::ORIGIN, self.moment(now), jitter());
        if was_up && !breaker.is_closed() {
            tracing::warn!("the origin fails; it is probed until it answers");
        }
    }

    /// Returns whether calls go out freely.
    pub(crate) fn is_up(&self) -> bool {
        self.breaker.lock().is_closed()
    }

    /// Returns the number of calls that were answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns the number of the origin's recoveries so far.
    pub(crate) fn recoveries(&self) -> u64 {
        *self.recoveries.borrow()
    }

    /// Waits until the origin has come back more than `before` times.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(crate) async fn recovered_since(&self, before: u64) {
        // An error means that the sender is gone, which `self` holds.
        let _ = self.recoveries.subscribe().wait_for(|count| *count > before).await;
    }
}

#[cfg(test)]
mod tests {
    use acstor_selection::limits;
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn down(now: Instant) -> OriginHealth {
        let health = OriginHealth::new(SECOND);
        for _ in 0..limits::ORIGIN_FAILURES_MAX {
            assert_eq!(health.admit(now), OriginAdmission::Go);
            health.failed(now);
        }
        health
    }

    #[test]
    fn test_admit_after_failures_lets_one_probe_through() {
        let now = Instant::now();
        let health = down(now);
        assert!(matches!(health.admit(now), OriginAdmission::Wait(_)));
        let later = now + limits::ORIGIN_OPEN_MIN;
        assert_eq!(health.admit(later), OriginAdmission::Trial);
        assert!(matches!(health.admit(later), OriginAdmission::Wait(_)));
        health.succeeded();
        assert_eq!(health.admit(later), OriginAdmission::Go);
    }

    #[test]
    fn test_probe_overdue_counts_as_failed() {
        let now = Instant::now();
        let health = down(now);
        let probe = now + limits::ORIGIN_OPEN_MIN;
        assert_eq!(health.admit(probe), OriginAdmission::Trial);
        assert!(
            matches!(health.admit(probe + SECOND), OriginAdmission::Wait(until) if until > probe + SECOND)
        );
    }

    #[test]
    fn test_one_success_between_failures_keeps_it_up() {
        let now = Instant::now();
        let health = OriginHealth::new(SECOND);
        for _ in 0..20 {
            health.failed(now);
            health.failed(now);
            health.succeeded();
        }
        assert!(health.is_up());
    }

    proptest! {
        /// Whatever happens, calls that go out while nothing succeeds are few: the failures that
        /// open the breaker and one per probe interval.
        #[test]
        fn proptest_calls_of_a_dead_origin_are_bounded(steps in proptest::collection::vec(1u64..400, 1..400)) {
            let start = Instant::now();
            let health = OriginHealth::new(SECOND);
            let (mut now, mut calls) = (start, 0u32);
            for step in steps {
                now += Duration::from_millis(step);
                if !matches!(health.admit(now), OriginAdmission::Wait(_)) {
                    calls += 1;
                    health.failed(now);
                }
            }
            let elapsed = now.duration_since(start).as_secs_f64();
            let shortest = limits::ORIGIN_OPEN_MIN.as_secs_f64() / 2.0;
            prop_assert!(f64::from(calls) <= f64::from(limits::ORIGIN_FAILURES_MAX) + 1.0 + elapsed / shortest);
        }
    }
}
