//! Exponential back-off with jitter.

use std::time::Duration;

use crate::limits;

/// The bounds of a back-off.
///
/// Source: "equal jitter" (Brooker, *Exponential Backoff And Jitter*, AWS architecture blog, 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait that is doubled.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// Between two rounds of one read.
    pub const READ: Backoff = Backoff { min: limits::BACKOFF_MIN, max: limits::BACKOFF_MAX };
    /// Between two looks for a chunk that the origin does not have.
    pub const MISSING_CHUNK: Backoff =
        Backoff { min: limits::MISSING_BACKOFF_MIN, max: limits::BACKOFF_MAX };
    /// Between two probes of an overloaded peer.
    pub const PROBE: Backoff = Backoff { min: limits::PROBE_MIN, max: limits::PROBE_MAX };

    /// Returns the wait of attempt `attempt` (0-based): `min` doubled that many times, at most `max`, of
    /// which `unit` in [0, 1) takes away up to a half, so that hosts that failed together do not come back
    /// together.
    pub fn delay(&self, attempt: u32, unit: f64) -> Duration {
        let doublings = attempt.min(limits::BACKOFF_DOUBLINGS_MAX);
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
    fn test_delay_doubles_to_the_maximum() {
        let delays: Vec<_> = (0..9).map(|n| BACKOFF.delay(n, 0.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(BACKOFF.delay(u32::MAX, 0.5), Duration::from_millis(7500));
    }

    #[test]
    fn test_delay_stays_between_half_and_whole() {
        for attempt in 0..64 {
            let whole = BACKOFF.delay(attempt, 0.0);
            for unit in [0.0, 0.3, 0.999_999, 1.0, 7.0] {
                let wait = BACKOFF.delay(attempt, unit);
                assert!(wait >= whole / 2 && wait <= whole, "{attempt}: {wait:?}");
            }
        }
    }
}
