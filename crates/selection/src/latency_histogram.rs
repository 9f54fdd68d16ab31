//! The median and the p99 of one peer's answers, from a fading histogram.

use std::time::Duration;

use crate::limits;

/// Counts of answer times in buckets that grow geometrically from 50 us to about 20 s.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    /// No count exceeds `LATENCY_SAMPLES_MAX`.
    counts: [u16; limits::LATENCY_BUCKETS],
    total: u32,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { counts: [0; limits::LATENCY_BUCKETS], total: 0 }
    }
}

impl LatencyHistogram {
    /// Adds one answer time. One that was given up is added with the time until then: a lower
    /// bound, which keeps the tail from vanishing when hedges win.
    pub fn record(&mut self, time: Duration) {
        let first_us = limits::LATENCY_FIRST_BUCKET.as_micros() as f64;
        let ratio = (time.as_secs_f64() * 1e6 / first_us).max(1.0);
        let bucket = (ratio.ln() / limits::LATENCY_BUCKET_RATIO.ln()).ceil() as usize;
        self.counts[bucket.min(limits::LATENCY_BUCKETS - 1)] += 1;
        self.total += 1;
        if self.total >= limits::LATENCY_SAMPLES_MAX {
            self.total = 0;
            for count in &mut self.counts {
                *count /= 2;
                self.total += u32::from(*count);
            }
        }
    }

    /// Number of samples that count now.
    pub fn samples(&self) -> u32 {
        self.total
    }

    /// The smallest bucket bound that 99 of 100 samples are not above.
    pub fn p99(&self) -> Duration {
        self.bound(self.total / 100)
    }

    /// The smallest bucket bound that half of the samples are not above.
    pub fn p50(&self) -> Duration {
        self.bound(self.total / 2)
    }

    /// The smallest bucket bound that at most so many samples are above.
    fn bound(&self, above_allowed: u32) -> Duration {
        let first_us = limits::LATENCY_FIRST_BUCKET.as_micros() as f64;
        let mut above = 0;
        for bucket in (0..limits::LATENCY_BUCKETS).rev() {
            above += u32::from(self.counts[bucket]);
            if above > above_allowed {
                let bound_us = first_us * limits::LATENCY_BUCKET_RATIO.powi(bucket as i32);
                return Duration::from_secs_f64(bound_us / 1e6);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_p99_ignores_the_one_percent() {
        let mut window = LatencyHistogram::default();
        for number in 0..1000 {
            window.record(Duration::from_millis(if number % 200 == 0 { 500 } else { 2 }));
        }
        let p99 = window.p99();
        assert!(p99 >= Duration::from_millis(2) && p99 < Duration::from_millis(3), "{p99:?}");
    }

    #[test]
    fn test_p99_follows_a_change() {
        let mut window = LatencyHistogram::default();
        for _ in 0..2000 {
            window.record(Duration::from_millis(1));
        }
        for _ in 0..200 {
            window.record(Duration::from_millis(50));
        }
        assert!(window.p99() >= Duration::from_millis(50));
    }

    proptest! {
        #[test]
        fn proptest_quantiles_are_within_a_bucket_of_the_exact_ones(micros in proptest::collection::vec(50u64..5_000_000, 1..900)) {
            let mut window = LatencyHistogram::default();
            for time in &micros {
                window.record(Duration::from_micros(*time));
            }
            let mut sorted = micros.clone();
            sorted.sort_unstable();
            let most = limits::LATENCY_BUCKET_RATIO * 1.001;
            let exact = sorted[sorted.len() - 1 - sorted.len() / 100] as f64;
            let p99 = window.p99().as_secs_f64() * 1e6;
            prop_assert!(p99 >= exact * 0.999 && p99 <= exact * most, "{} {}", p99, exact);
            let exact = sorted[sorted.len() - 1 - sorted.len() / 2] as f64;
            let p50 = window.p50().as_secs_f64() * 1e6;
            prop_assert!(p50 >= exact * 0.999 && p50 <= exact * most, "{} {}", p50, exact);
        }
    }
}
