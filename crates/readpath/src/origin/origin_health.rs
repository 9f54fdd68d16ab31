//! Whether the origin answers: a breaker between the misses and a failing origin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{limits, steering::jitter};

/// The origin as this host sees it.
///
/// ```text
///            5 failed calls in a row              its time is over, a miss comes
///      Up ----------------------------> Down --------------------------------> Probing
///       ^                                | ^   the probe fails or is overdue     |  |
///       |                                | +-------------------------------------+  |
///       +------- any call succeeds ------+                                          |
///       +------- any call succeeds -------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginState {
    /// Calls go out; `failures` of them failed in a row.
    Up { failures: u32 },
    /// No call goes out before `until`; it is the `streak`-th time in a row, 0-based.
    Down { until: Instant, streak: u32 },
    /// One call is out to see; overdue at `until`.
    Probing { until: Instant, streak: u32 },
}

/// What a miss may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Call.
    Go,
    /// Call, alone: it is the probe.
    Probe,
    /// Do not call before this time.
    Wait(Instant),
}

/// The breaker.
#[derive(Debug)]
pub(crate) struct OriginHealth {
    state: Mutex<OriginState>,
    probe_timeout: Duration,
    /// Calls that were answered.
    answers: AtomicU64,
    /// How often the origin came back.
    recoveries: watch::Sender<u64>,
}

impl OriginHealth {
    /// Starts as up; a probe that has not ended after `probe_timeout` counts as failed.
    pub(crate) fn new(probe_timeout: Duration) -> OriginHealth {
        OriginHealth {
            state: Mutex::new(OriginState::Up { failures: 0 }),
            probe_timeout,
            answers: AtomicU64::new(0),
            recoveries: watch::Sender::new(0),
        }
    }

    /// Asks for leave to call.
    pub(crate) fn admit(&self, now: Instant) -> Admission {
        let mut state = self.state.lock();
        match *state {
            OriginState::Up { .. } => Admission::Go,
            OriginState::Down { until, streak } if now >= until => {
                *state = OriginState::Probing { until: now + self.probe_timeout, streak };
                Admission::Probe
            }
            OriginState::Down { until, .. } => Admission::Wait(until),
            OriginState::Probing { until, streak } if now >= until => {
                let until = now + down_time(streak + 1);
                *state = OriginState::Down { until, streak: streak + 1 };
                Admission::Wait(until)
            }
            OriginState::Probing { until, .. } => Admission::Wait(until),
        }
    }

    /// Notes that a call succeeded, or failed for a reason that is not the origin's absence.
    pub(crate) fn succeeded(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let was_up = matches!(*state, OriginState::Up { .. });
        *state = OriginState::Up { failures: 0 };
        drop(state);
        if !was_up {
            tracing::info!("the origin answers again");
            self.recoveries.send_modify(|count| *count += 1);
        }
    }

    /// Notes that a call failed.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.state.lock();
        *state = match *state {
            OriginState::Up { failures } if failures + 1 < limits::ORIGIN_FAILURES_MAX => {
                OriginState::Up { failures: failures + 1 }
            }
            OriginState::Up { .. } => {
                tracing::warn!("the origin fails; it is probed until it answers");
                OriginState::Down { until: now + down_time(0), streak: 0 }
            }
            OriginState::Probing { streak, .. } => {
                OriginState::Down { until: now + down_time(streak + 1), streak: streak + 1 }
            }
            // A call that was under way when the breaker opened tells nothing new.
            down @ OriginState::Down { .. } => down,
        };
    }

    /// Whether calls go out freely.
    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.state.lock(), OriginState::Up { .. })
    }

    /// How many calls were answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// How often the origin has come back so far.
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

fn down_time(streak: u32) -> Duration {
    jitter::backoff(streak, limits::ORIGIN_PROBE_MIN, limits::ORIGIN_PROBE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn down(now: Instant) -> OriginHealth {
        let health = OriginHealth::new(SECOND);
        for _ in 0..limits::ORIGIN_FAILURES_MAX {
            assert_eq!(health.admit(now), Admission::Go);
            health.failed(now);
        }
        health
    }

    #[test]
    fn test_admit_after_failures_lets_one_probe_through() {
        let now = Instant::now();
        let health = down(now);
        assert!(matches!(health.admit(now), Admission::Wait(_)));
        let later = now + limits::ORIGIN_PROBE_MIN;
        assert_eq!(health.admit(later), Admission::Probe);
        assert!(matches!(health.admit(later), Admission::Wait(_)));
        health.succeeded();
        assert_eq!(health.admit(later), Admission::Go);
    }

    #[test]
    fn test_probe_overdue_counts_as_failed() {
        let now = Instant::now();
        let health = down(now);
        let probe = now + limits::ORIGIN_PROBE_MIN;
        assert_eq!(health.admit(probe), Admission::Probe);
        assert!(
            matches!(health.admit(probe + SECOND), Admission::Wait(until) if until > probe + SECOND)
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
                if !matches!(health.admit(now), Admission::Wait(_)) {
                    calls += 1;
                    health.failed(now);
                }
            }
            let elapsed = now.duration_since(start).as_secs_f64();
            let shortest = limits::ORIGIN_PROBE_MIN.as_secs_f64() / 2.0;
            prop_assert!(f64::from(calls) <= f64::from(limits::ORIGIN_FAILURES_MAX) + 1.0 + elapsed / shortest);
        }
    }
}
