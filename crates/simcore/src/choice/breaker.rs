//! Peers that failed: whether a host asks them, and when it learns that one is dead.
//!
//! A peer that died says nothing more: a connection that stands is given up after a while of
//! silence, and from then on only the fetch that is to make the next one waits, all others fail at
//! once.

use crate::random::Random;
use crate::rules::Rules;

const PENALTY_MIN: f64 = 0.25;
const PENALTY_MAX: f64 = 10.0;
/// Of a connection that owes answers: `probe_after` and `probe_timeout` of `crates/peer`.
const SILENCE_MAX: f64 = 3.0;
const RETRY_MIN: f64 = 0.1;
const RETRY_MAX: f64 = 10.0;
const DOUBLINGS_MAX: u32 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open,
    HalfOpen,
}

/// Whether a peer is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    state: State,
    until: f64,
    failures: u32,
}

impl Breaker {
    pub(super) fn admit(&mut self, rules: &Rules, now: f64) -> bool {
        if self.state == State::Closed {
            return true;
        }
        if now < self.until {
            return false;
        }
        self.state = State::HalfOpen;
        self.until = now + rules.peer_deadline;
        true
    }

    pub(super) fn note_failure(&mut self, random: &mut Random, now: f64) {
        match self.state {
            State::Open => return, // what was under way when it opened tells nothing new
            State::HalfOpen => self.failures = DOUBLINGS_MAX.min(self.failures + 1),
            State::Closed => self.failures = 0,
        }
        self.state = State::Open;
        self.until = now + random.backoff(self.failures, PENALTY_MIN, PENALTY_MAX);
    }

    pub(super) fn note_answer(&mut self) {
        self.state = State::Closed;
    }
}

/// The connection to a peer that is dead.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    failures: u32,
    until: f64,
}

impl Link {
    /// Returns how long a fetch waits before it fails.
    pub(super) fn silence(
        &mut self,
        rules: &Rules,
        is_connected: bool,
        random: &mut Random,
        now: f64,
    ) -> f64 {
        if self.failures == 0 {
            if self.until == 0.0 {
                self.until = now + if is_connected { SILENCE_MAX } else { rules.connect_timeout };
            }
            if now < self.until {
                return self.until - now;
            }
            self.failures = 1;
            self.until += random.backoff(0, RETRY_MIN, RETRY_MAX);
        }
        if now < self.until {
            return 0.0;
        }
        let again = random.backoff(self.failures, RETRY_MIN, RETRY_MAX);
        self.failures = DOUBLINGS_MAX.min(self.failures + 1);
        self.until = now + rules.connect_timeout + again;
        rules.connect_timeout
    }
}
