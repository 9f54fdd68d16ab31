//! Budgets that first attempts and successes fill and second attempts empty.
//!
//! Source: the retry budget of Finagle and of gRPC's retry throttling (gRFC A6): retries are a
//! share of the traffic, so that they cannot multiply the load of a source that is failing.

use crate::{Moment, limits};

/// Tokens; never more than the capacity.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    capacity: f64,
    per_deposit: f64,
    per_second: f64,
    tokens: f64,
    refilled: Option<Moment>,
}

impl TokenBucket {
    /// A bucket that starts with `initial` tokens, gains `per_deposit` with each first attempt and
    /// `per_second` with time.
    pub fn new(capacity: f64, initial: f64, per_deposit: f64, per_second: f64) -> TokenBucket {
        TokenBucket {
            capacity,
            per_deposit,
            per_second,
            tokens: initial.min(capacity),
            refilled: None,
        }
    }

    /// The budget of hedges: `share_percent` of the fetches.
    pub fn for_hedges(share_percent: u32) -> TokenBucket {
        let share = f64::from(share_percent) / 100.0;
        let initial = if share_percent == 0 { 0.0 } else { limits::HEDGE_TOKENS_INITIAL };
        TokenBucket::new(limits::HEDGE_TOKENS_MAX, initial, share, 0.0)
    }

    /// The budget of retries that cost the origin a call.
    pub fn for_retries() -> TokenBucket {
        TokenBucket::new(
            limits::RETRY_TOKENS_MAX,
            limits::RETRY_TOKENS_MAX,
            limits::RETRY_RATIO,
            limits::RETRY_PER_SECOND,
        )
    }

    /// The budget of chunks that are kept because the peer that sent them is slow.
    pub fn for_slow_chunks() -> TokenBucket {
        let most = limits::KEEP_TOKENS_MAX;
        TokenBucket::new(most, most, 0.0, limits::KEEP_PER_SECOND)
    }

    /// Notes a first attempt.
    pub fn deposit(&mut self) {
        self.earn(self.per_deposit);
    }

    /// Notes that the source answered: `tokens` second attempts more are fair.
    pub fn earn(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.capacity);
    }

    /// Takes a token for a second attempt; `false`: there is none.
    pub fn try_take(&mut self, now: Moment) -> bool {
        if let Some(refilled) = self.refilled {
            let seconds = now.since(refilled).as_secs_f64();
            self.tokens = (self.tokens + seconds * self.per_second).min(self.capacity);
        }
        self.refilled = Some(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn test_try_take_is_bounded_by_share_and_time() {
        let mut bucket = TokenBucket::new(10.0, 0.0, 0.1, 2.0);
        let start = Moment::ZERO;
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
        let mut bucket = TokenBucket::new(2.0, 0.0, 0.0, 0.0);
        let now = Moment::ZERO;
        bucket.earn(1.0);
        assert!(bucket.try_take(now) && !bucket.try_take(now));
        (0..9).for_each(|_| bucket.earn(1.0));
        assert_eq!((0..9).filter(|_| bucket.try_take(now)).count(), 2);
    }

    #[test]
    fn test_try_take_saves_no_more_than_the_capacity() {
        let mut bucket = TokenBucket::new(3.0, 3.0, 1.0, 100.0);
        let late = Moment::ZERO + Duration::from_secs(100);
        let taken = (0..10).filter(|_| bucket.try_take(late)).count();
        assert_eq!(taken, 3);
    }
}
