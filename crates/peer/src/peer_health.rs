//! Health of a peer: a circuit breaker with jittered exponential backoff.

use std::time::Duration;

use acstor_net::Backoff;
use acstor_runclock::RunInstant;

/// Health of a peer as the client sees it.
///
/// ```text
///            Failed                     RetryDue
///     Up ------------->  Down  ----------------------> Probing
///     ^ ^                 ^  |                          |   |
///     | +-----Connected---|--+                          |   |
///     |                   +------------Failed-----------+   |
///     +---------------------Connected-----------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerHealth {
    /// Connections are made as fetches need them.
    Up,
    /// Every fetch fails at once until the retry is due.
    Down,
    /// One connection attempt is under way; every other fetch fails at once.
    Probing,
}

/// Event in the life of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthEvent {
    /// A connection reached HELLO.
    Connected,
    /// An attempt failed, or a connection ended without order and no other is left.
    Failed,
    /// The backoff is over and a fetch wants the peer.
    RetryDue,
}

/// Every transition; a pair that is not listed leaves the state as it is.
pub const HEALTH_TRANSITIONS: [(PeerHealth, HealthEvent, PeerHealth); 6] = [
    (PeerHealth::Up, HealthEvent::Failed, PeerHealth::Down),
    (PeerHealth::Down, HealthEvent::RetryDue, PeerHealth::Probing),
    // An attempt that began before the failure.
    (PeerHealth::Down, HealthEvent::Connected, PeerHealth::Up),
    // Several attempts were under way.
    (PeerHealth::Down, HealthEvent::Failed, PeerHealth::Down),
    (PeerHealth::Probing, HealthEvent::Connected, PeerHealth::Up),
    (PeerHealth::Probing, HealthEvent::Failed, PeerHealth::Down),
];

/// What a fetch may do about connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Make a connection.
    Connect,
    /// Fail; the peer is tried again after this time.
    FailFast(Duration),
}

/// The breaker of one peer.
#[derive(Debug)]
pub(crate) struct Breaker {
    health: PeerHealth,
    failures: u32,
    retry_at: Option<RunInstant>,
    backoff: Backoff,
}

impl Breaker {
    pub(crate) fn new(backoff: Backoff) -> Breaker {
        Breaker { health: PeerHealth::Up, failures: 0, retry_at: None, backoff }
    }

    pub(crate) fn health(&self) -> PeerHealth {
        self.health
    }

    /// Time until the peer may be tried again.
    pub(crate) fn retry_in(&self, now: RunInstant) -> Duration {
        self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Says whether a fetch that finds no connection may make one.
    pub(crate) fn admit(&mut self, now: RunInstant) -> Admission {
        let retry_in = self.retry_in(now);
        match self.health {
            PeerHealth::Up => Admission::Connect,
            PeerHealth::Down if retry_in.is_zero() => {
                self.apply(HealthEvent::RetryDue);
                Admission::Connect
            }
            PeerHealth::Down | PeerHealth::Probing => Admission::FailFast(retry_in),
        }
    }

    /// Notes that a connection is up. The failures are forgotten only by [`Breaker::answered`]: a
    /// peer that accepts and closes at once stays in backoff.
    pub(crate) fn connected(&mut self) {
        self.apply(HealthEvent::Connected);
        self.retry_at = None;
    }

    /// Notes an answer.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }

    /// Notes a failure; `unit` in [0, 1) is the jitter.
    pub(crate) fn failed(&mut self, now: RunInstant, unit: f64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + self.backoff.delay(self.failures, unit));
        self.apply(HealthEvent::Failed);
    }

    fn apply(&mut self, event: HealthEvent) {
        let row =
            HEALTH_TRANSITIONS.iter().find(|(from, on, _)| *from == self.health && *on == event);
        if let Some((_, _, to)) = row {
            self.health = *to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use acstor_runclock::RunInstant;
    use proptest::prelude::*;

    use super::{Admission, Backoff, Breaker, HEALTH_TRANSITIONS, PeerHealth};

    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };

    #[test]
    fn test_failures_are_forgotten_only_after_an_answer() {
        let now = RunInstant::unmeasured();
        let mut breaker = Breaker::new(BACKOFF);
        for expected in [100, 200] {
            breaker.failed(now, 0.0);
            assert_eq!(breaker.retry_in(now).as_millis(), expected);
            breaker.connected();
        }
        breaker.answered();
        breaker.failed(now, 0.0);
        assert_eq!(breaker.retry_in(now).as_millis(), 100);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Admit,
        Connected,
        Answered,
        Failed,
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Admit),
            Just(Step::Connected),
            Just(Step::Answered),
            Just(Step::Failed),
            (0_u64..15_000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Health moves only along the table; a peer that is not up is tried at most once until
        /// that attempt is over, and never before the backoff is.
        #[test]
        fn proptest_breaker(steps in prop::collection::vec(step(), 0..100), unit in 0.0..1.0) {
            let mut now = RunInstant::unmeasured();
            let mut breaker = Breaker::new(BACKOFF);
            let mut probes = 0;
            for step in steps {
                let before = breaker.health();
                let due = breaker.retry_in(now).is_zero();
                match step {
                    Step::Admit => match breaker.admit(now) {
                        Admission::Connect if before == PeerHealth::Up => {}
                        Admission::Connect => {
                            prop_assert!(before == PeerHealth::Down && due);
                            probes += 1;
                        }
                        Admission::FailFast(wait) => {
                            prop_assert_ne!(before, PeerHealth::Up);
                            prop_assert!(wait <= BACKOFF.max);
                        }
                    },
                    Step::Connected => {
                        breaker.connected();
                        probes = 0;
                    }
                    Step::Answered => breaker.answered(),
                    Step::Failed => {
                        breaker.failed(now, unit);
                        probes = 0;
                        prop_assert!(breaker.retry_in(now) >= BACKOFF.min / 2);
                    }
                    Step::Wait(ms) => now += Duration::from_millis(ms),
                }
                let after = breaker.health();
                prop_assert!(probes <= 1);
                prop_assert!(
                    before == after
                        || HEALTH_TRANSITIONS.iter().any(|row| (row.0, row.2) == (before, after))
                );
            }
        }
    }
}
