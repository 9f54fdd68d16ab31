//! Random waits, so that hosts that failed together do not come back together.

use std::time::Duration;

#[cfg(test)]
thread_local! {
    /// What takes the place of randomness in a test that compares decisions.
    pub(crate) static FIXED: std::cell::Cell<Option<f64>> = const { std::cell::Cell::new(None) };
}

/// Returns the wait before attempt `attempt` (0-based): between half of and the whole of `min`
/// doubled that many times, at most `max`.
///
/// Source: "equal jitter" of exponential backoff (Brooker, AWS architecture blog, 2015).
pub(crate) fn backoff(attempt: u32, min: Duration, max: Duration) -> Duration {
    let full = min.saturating_mul(1 << attempt.min(20)).min(max);
    full.mul_f64(1.0 - unit() / 2.0)
}

/// A random number in [0, 1).
fn unit() -> f64 {
    #[cfg(test)]
    if let Some(unit) = FIXED.get() {
        return unit;
    }
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_backoff_stays_between_half_and_whole() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(2));
        for attempt in 0..64 {
            let whole = min.saturating_mul(1 << attempt.min(20)).min(max);
            let wait = backoff(attempt, min, max);
            assert!(wait >= whole / 2 && wait <= whole, "{attempt}: {wait:?}");
        }
    }
}
