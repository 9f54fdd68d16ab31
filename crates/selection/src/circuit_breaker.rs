//! The circuit breaker in front of a source.

use std::time::Duration;

use crate::{Backoff, Moment, limits};

/// State of a source's circuit breaker: it decides whether the source is asked.
///
/// ```text
///             Opened                      TrialDue
///   Closed ----------->  Open  -------------------------> HalfOpen
///     ^                   | ^                               |  |
///     |                   | +----------- Opened ------------+  |
///     +---- Succeeded ----+                                    |
///     +---- Succeeded -----------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Asked freely.
    Closed,
    /// Not asked until the back-off is over.
    Open,
    /// One trial is under way.
    HalfOpen,
}

/// Events of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerEvent {
    /// A failure after which the source is left alone: the last of those in a row that are allowed, or
    /// that of a trial.
    Opened,
    /// The back-off is over and somebody wants the source.
    TrialDue,
    /// The source answered. During a penalty that is no event.
    Succeeded,
}

/// Every transition; a pair that is not listed leaves the state as it is.
pub const BREAKER_TRANSITIONS: [(BreakerState, BreakerEvent, BreakerState); 6] = [
    (BreakerState::Closed, BreakerEvent::Opened, BreakerState::Open),
    (BreakerState::Open, BreakerEvent::TrialDue, BreakerState::HalfOpen),
    // An attempt that began before the failure.
    (BreakerState::Open, BreakerEvent::Succeeded, BreakerState::Closed),
    // Several attempts were under way.
    (BreakerState::Open, BreakerEvent::Opened, BreakerState::Open),
    (BreakerState::HalfOpen, BreakerEvent::Opened, BreakerState::Open),
    (BreakerState::HalfOpen, BreakerEvent::Succeeded, BreakerState::Closed),
];

/// Effect of a failure while the breaker is open: one of an attempt that began before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureWhileOpen {
    /// It tells nothing new.
    Ignored,
    /// It counts, and the back-off begins anew.
    Extends,
}

/// Treatment of a trial that has not ended in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverdueTrial {
    /// It always ends, so it is waited for.
    Awaited,
    /// Another trial begins.
    Repeated,
    /// It failed.
    Failed,
}

/// The rules of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// Time that it stays open.
    pub backoff: Backoff,
    /// Effect of a failure while it is open.
    pub while_open: FailureWhileOpen,
    /// Treatment of an overdue trial.
    pub overdue: OverdueTrial,
}

impl BreakerRules {
    /// Of a peer that is asked for chunks. Another takes its place at once; a trial whose read ended early
    /// is repeated.
    pub const PEER: BreakerRules = BreakerRules {
        failures_max: limits::PEER_FAILURES_MAX,
        backoff: Backoff { min: limits::PEER_OPEN_MIN, max: limits::PEER_OPEN_MAX },
        while_open: FailureWhileOpen::Ignored,
        overdue: OverdueTrial::Repeated,
    };

    /// Of the origin. Nothing takes its place; its trial is the call of a thread, which may hang.
    pub const ORIGIN: BreakerRules = BreakerRules {
        failures_max: limits::ORIGIN_FAILURES_MAX,
        backoff: Backoff { min: limits::ORIGIN_OPEN_MIN, max: limits::ORIGIN_OPEN_MAX },
        while_open: FailureWhileOpen::Ignored,
        overdue: OverdueTrial::Failed,
    };

    /// Of the connections to a peer. Several attempts may be under way when the first fails, and each tells
    /// that the peer is still down; an attempt has its own time-out.
    pub const fn connection(backoff: Backoff) -> BreakerRules {
        BreakerRules {
            failures_max: limits::CONNECTION_FAILURES_MAX,
            backoff,
            while_open: FailureWhileOpen::Extends,
            overdue: OverdueTrial::Awaited,
        }
    }
}

/// Answer of the breaker to a caller that wants the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Ask.
    Go,
    /// Ask: it is the trial.
    Trial,
    /// Do not ask before this moment; one in the past: not before the trial has ended.
    Wait(Moment),
}

impl Admission {
    /// Returns whether the source may be asked.
    pub fn is_granted(self) -> bool {
        !matches!(self, Admission::Wait(_))
    }
}

/// A circuit breaker.
///
/// Source: Nygard, *Release It!*, 2007, chapter 5. Differs: the open time grows with the failures in a row,
/// and has jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    state: BreakerState,
    /// Failures in a row.
    failures: u32,
    /// True if it is open for a time that no answer shortens.
    is_penalty: bool,
    /// The end of the back-off, or of the trial's time; meaningless while closed.
    until: Moment,
}

impl Default for CircuitBreaker {
    fn default() -> CircuitBreaker {
        CircuitBreaker::new()
    }
}

impl CircuitBreaker {
    /// Returns a closed one.
    pub const fn new() -> CircuitBreaker {
        let (state, until) = (BreakerState::Closed, Moment::ZERO);
        CircuitBreaker { state, failures: 0, is_penalty: false, until }
    }

    /// The state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns whether the source is asked freely.
    pub fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Time until the back-off, or the trial's time, is over.
    pub fn retry_in(&self, now: Moment) -> Duration {
        if self.is_closed() { Duration::ZERO } else { self.until.since(now) }
    }

    /// Asks for leave; `trial_time` is how long a trial may take, `unit` in [0, 1) the jitter.
    pub fn admit(
        &mut self,
        rules: &BreakerRules,
        trial_time: Duration,
        now: Moment,
        unit: f64,
    ) -> Admission {
        let is_over = now >= self.until;
        match (self.state, rules.overdue) {
            (BreakerState::Closed, _) => Admission::Go,
            (BreakerState::Open, _) | (BreakerState::HalfOpen, OverdueTrial::Repeated)
                if is_over =>
            {
                self.apply(BreakerEvent::TrialDue);
                self.is_penalty = false;
                self.until = now + trial_time;
                Admission::Trial
            }
            (BreakerState::HalfOpen, OverdueTrial::Failed) if is_over => {
                self.failed(rules, now, unit);
                Admission::Wait(self.until)
            }
            _ => Admission::Wait(self.until),
        }
    }

    /// Notes an answer: the failures are forgotten.
    pub fn succeeded(&mut self) {
        self.close();
        self.forget_failures();
    }

    /// Closes it, and remembers the failures: the next one opens it for as long as if it had stayed open.
    /// A penalty ends with a trial only: what answers now was asked before.
    pub fn close(&mut self) {
        if !self.is_penalty {
            self.apply(BreakerEvent::Succeeded);
        }
    }

    /// Forgets the failures in a row, unless they stand for a penalty.
    pub fn forget_failures(&mut self) {
        if !self.is_penalty {
            self.failures = 0;
        }
    }

    /// Notes a failure; `unit` in [0, 1) is the jitter.
    pub fn failed(&mut self, rules: &BreakerRules, now: Moment, unit: f64) {
        let is_ignored = self.is_penalty || rules.while_open == FailureWhileOpen::Ignored;
        if self.state == BreakerState::Open && is_ignored {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.is_closed() && self.failures < rules.failures_max {
            return;
        }
        let attempt = self.failures.saturating_sub(rules.failures_max);
        self.until = now + rules.backoff.delay(attempt, unit);
        self.apply(BreakerEvent::Opened);
    }

    /// Opens it for `time`, whatever its state and whatever comes of attempts that began before: a
    /// penalty. A failure of the trial that follows opens it for the longest time.
    pub fn open_for(&mut self, time: Duration, now: Moment) {
        self.failures = u32::MAX;
        self.is_penalty = true;
        self.until = now + time;
        self.apply(BreakerEvent::Opened);
    }

    fn apply(&mut self, event: BreakerEvent) {
        let row =
            BREAKER_TRANSITIONS.iter().find(|(from, on, _)| *from == self.state && *on == event);
        if let Some((_, _, to)) = row {
            self.state = *to;
        }
    }
}

#[cfg(test)]
mod tests;
