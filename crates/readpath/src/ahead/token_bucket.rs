//! A budget that first attempts and successes fill and second attempts empty.
//!
//! Source: the retry budget of Finagle and of gRPC's retry throttling (gRFC A6): retries are a
//! share of the traffic, so that they cannot multiply the load of a source that is failing.

use acstor_runclock::RunInstant;
use parking_lot::Mutex;

/// Tokens; never more than the capacity.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    capacity: f64,
    per_deposit: f64,
    per_second: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    refilled: Option<RunInstant>,
}

impl TokenBucket {
    /// A bucket that starts with `initial` tokens, gains `per_deposit` with each first attempt and
    /// `per_second` with time.
    pub(crate) fn new(
        capacity: f64,
        initial: f64,
        per_deposit: f64,
        per_second: f64,
    ) -> TokenBucket {
        TokenBucket {
            capacity,
            per_deposit,
            per_second,
            state: Mutex::new(State { tokens: initial.min(capacity), refilled: None }),
        }
    }

    /// Notes a first attempt.
    pub(crate) fn deposit(&self) {
        let mut state = self.state.lock();
        state.tokens = (state.tokens + self.per_deposit).min(self.capacity);
    }

    /// Notes that the source answered: `tokens` second attempts more are fair.
    pub(crate) fn earn(&self, tokens: f64) {
        let mut state = self.state.lock();
        state.tokens = (state.tokens + tokens).min(self.capacity);
    }

    /// Takes a token for a second attempt; `false`: there is none.
    pub(crate) fn try_take(&self, now: RunInstant) -> bool {
        let mut state = self.state.lock();
        if let Some(refilled) = state.refilled {
            let seconds = now.saturating_duration_since(refilled).as_secs_f64();
            state.tokens = (state.tokens + seconds * self.per_second).min(self.capacity);
        }
        state.refilled = Some(now);
        if state.tokens < 1.0 {
            return false;
        }
        state.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn test_try_take_is_bounded_by_share_and_time() {
        let bucket = TokenBucket::new(10.0, 0.0, 0.1, 2.0);
        let start = RunInstant::unmeasured();
        assert!(!bucket.try_take(start));
        for _ in 0..21 {
            bucket.deposit();
        }
        assert!(bucket.try_take(start));
        assert!(bucket.try_take(start));
        assert!(!bucket.try_take(start), "a tenth of 21 attempts is two");
        assert!(bucket.try_take(start + Duration::from_millis(600)), "two per second");
        assert!(!bucket.try_take(start + Duration::from_millis(600)));
    }

    #[test]
    fn test_earn_pays_for_second_attempts_up_to_the_capacity() {
        let bucket = TokenBucket::new(2.0, 0.0, 0.0, 0.0);
        let now = RunInstant::unmeasured();
        bucket.earn(1.0);
        assert!(bucket.try_take(now) && !bucket.try_take(now));
        (0..9).for_each(|_| bucket.earn(1.0));
        assert_eq!((0..9).filter(|_| bucket.try_take(now)).count(), 2);
    }

    #[test]
    fn test_try_take_saves_no_more_than_the_capacity() {
        let bucket = TokenBucket::new(3.0, 3.0, 1.0, 100.0);
        let late = RunInstant::unmeasured() + Duration::from_secs(100);
        let taken = (0..10).filter(|_| bucket.try_take(late)).count();
        assert_eq!(taken, 3);
    }
}
