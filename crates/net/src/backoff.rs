//! Exponential back-off with jitter, so that hosts that failed together do not come back together.
//!
//! Source: "equal jitter" (Brooker, AWS architecture blog, 2015): the wait lies between half of and
//! the whole of a time that doubles with each failure.

use std::time::Duration;

/// Doublings after which the time does not grow any more, whatever its maximum.
const DOUBLINGS_MAX: u32 = 20;

/// Bounds of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Time after the first failure.
    pub min: Duration,
    /// Longest time.
    pub max: Duration,
}

impl Backoff {
    /// Returns how long to wait after the `failures`-th failure in a row (1-based): the doubled
    /// minimum, cut at the maximum, of which `unit` in [0, 1) takes away up to a half.
    pub fn delay(&self, failures: u32, unit: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let full = self.min.saturating_mul(1 << doublings).min(self.max);
        full.mul_f64(1.0 - unit.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };

    #[test]
    fn test_delay_doubles_up_to_the_maximum() {
        let delays: Vec<_> = (1..10).map(|n| BACKOFF.delay(n, 0.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(BACKOFF.delay(u32::MAX, 0.5), Duration::from_millis(7500));
    }

    #[test]
    fn test_delay_stays_between_half_and_whole() {
        for failures in 0..64 {
            let whole = BACKOFF.delay(failures, 0.0);
            for unit in [0.0, 0.25, 0.999] {
                let wait = BACKOFF.delay(failures, unit);
                assert!(wait >= whole / 2 && wait <= whole, "{failures}: {wait:?}");
            }
        }
    }
}
