//! Recent latency of a peer: a decaying histogram.
//!
//! Log-linear buckets (eight to an octave, so a quantile is at most 12.5 % too high) from 1 µs to
//! 134 s. When 1,024 answers are counted every bucket is halved: half of the weight belongs to
//! the last 512 answers or so. Not for reports: the counts are of no period of time.

use std::time::Duration;

/// Buckets of one octave.
const SUB_BUCKETS: usize = 8;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// Octaves above the first eight microseconds.
const OCTAVES: usize = 24;
const BUCKETS: usize = SUB_BUCKETS * (OCTAVES + 1);
/// Weight at which every bucket is halved.
const WEIGHT_MAX: u32 = 1024;
/// Fewest answers from which a quantile is told.
const SAMPLES_MIN: u32 = 20;
/// Answers after which the quantile is computed anew.
const REFRESH_EVERY: u32 = 16;

/// A decaying histogram of latencies with a cached 99th percentile.
#[derive(Debug)]
pub(crate) struct LatencyHistogram {
    buckets: [u16; BUCKETS],
    weight: u32,
    since_refresh: u32,
    p99: Option<Duration>,
}

impl LatencyHistogram {
    pub(crate) fn new() -> LatencyHistogram {
        LatencyHistogram { buckets: [0; BUCKETS], weight: 0, since_refresh: 0, p99: None }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = &mut self.buckets[bucket_of(micros)];
        *bucket = bucket.saturating_add(1);
        self.weight += 1;
        if self.weight >= WEIGHT_MAX {
            self.halve();
        }
        self.since_refresh += 1;
        if self.since_refresh >= REFRESH_EVERY || self.weight == SAMPLES_MIN {
            self.since_refresh = 0;
            self.p99 = self.quantile(99, 100);
        }
    }

    /// Returns the latency that 99 of 100 recent answers kept, or `None` before there are enough.
    pub(crate) fn p99(&self) -> Option<Duration> {
        self.p99
    }

    /// Returns the upper bound of the bucket in which the quantile lies.
    fn quantile(&self, numerator: u32, denominator: u32) -> Option<Duration> {
        if self.weight < SAMPLES_MIN {
            return None;
        }
        let rank = (self.weight * numerator).div_ceil(denominator);
        let mut seen = 0;
        let position = self.buckets.iter().position(|&count| {
            seen += u32::from(count);
            seen >= rank
        })?;
        Some(Duration::from_micros(upper_bound(position)))
    }

    fn halve(&mut self) {
        self.weight = 0;
        for bucket in &mut self.buckets {
            *bucket /= 2;
            self.weight += u32::from(*bucket);
        }
    }
}

/// The bucket of a latency: the octave, then the three bits after the leading one.
fn bucket_of(micros: u64) -> usize {
    if micros < SUB_BUCKETS as u64 {
        return micros as usize;
    }
    let octave = micros.ilog2() - SUB_BITS;
    let sub = (micros >> octave) as usize - SUB_BUCKETS;
    (SUB_BUCKETS * (octave as usize + 1) + sub).min(BUCKETS - 1)
}

/// Microseconds just above every latency of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64 + 1;
    }
    let octave = bucket / SUB_BUCKETS - 1;
    ((bucket % SUB_BUCKETS + SUB_BUCKETS + 1) as u64) << octave
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{BUCKETS, LatencyHistogram, SAMPLES_MIN, WEIGHT_MAX, bucket_of, upper_bound};

    #[test]
    fn test_p99_before_enough_answers_is_none() {
        let mut histogram = LatencyHistogram::new();
        for _ in 1..SAMPLES_MIN {
            histogram.record(Duration::from_micros(100));
        }
        assert_eq!(histogram.p99(), None);
        histogram.record(Duration::from_micros(100));
        assert_eq!(histogram.p99(), Some(Duration::from_micros(104)));
    }

    #[test]
    fn test_p99_follows_a_peer_that_became_slow() {
        let mut histogram = LatencyHistogram::new();
        for _ in 0..10 * WEIGHT_MAX {
            histogram.record(Duration::from_micros(50));
        }
        for _ in 0..64 {
            histogram.record(Duration::from_millis(50));
        }
        assert!(histogram.p99().unwrap() >= Duration::from_millis(50), "{histogram:?}");
        for _ in 0..20 * WEIGHT_MAX {
            histogram.record(Duration::from_micros(50));
        }
        assert!(histogram.p99().unwrap() < Duration::from_micros(60), "{histogram:?}");
    }

    proptest! {
        /// Every latency lies below its bucket's upper bound, by at most an eighth, and buckets
        /// are in order.
        #[test]
        fn proptest_buckets(micros in 0_u64..(1 << 27)) {
            let bucket = bucket_of(micros);
            prop_assert!(bucket < BUCKETS);
            prop_assert!(micros < upper_bound(bucket));
            prop_assert!(upper_bound(bucket) - micros <= 1 + micros / 8);
            prop_assert!(bucket_of(micros + 1) >= bucket);
        }
    }
}
