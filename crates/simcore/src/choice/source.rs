//! How long a source takes for one chunk now.

use super::breaker::{Breaker, Link};
use super::slow_samples::SlowSamples;
use crate::rules::Rules;

const FIRST_S: f64 = 50e-6;
const RATIO: f64 = 1.2;
const SAMPLES_MAX: u32 = 1024;
/// Samples before the p99 of a peer is used.
pub(super) const SAMPLES_MIN: u32 = 32;
const BUCKETS: usize = 72;
pub(super) const WEIGHT_UP: f64 = 0.3;
const WEIGHT_DOWN: f64 = 0.5;
const OUTLIER: f64 = 4.0;
const HALF_LIFE: f64 = 10.0;
const USUAL_DOUBLES: f64 = 60.0;
const FRESH: f64 = 2.0;

/// Counts of times in buckets that grow geometrically from 50 us.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: [u32; BUCKETS],
    pub(super) samples: u32,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], samples: 0 }
    }
}

/// Returns the bucket of a time.
pub(super) fn log_bucket(time: f64) -> usize {
    let bucket = ((time / FIRST_S).max(1.0).ln() / RATIO.ln()).ceil() as usize;
    bucket.min(BUCKETS - 1)
}

impl Histogram {
    pub(super) fn add(&mut self, bucket: usize, is_fading: bool) {
        self.counts[bucket] += 1;
        self.samples += 1;
        if is_fading && self.samples >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.counts.iter().sum();
        }
    }

    /// Returns below which time 99 % of the fetches were; `None` where too few are known.
    pub(super) fn p99(&self) -> Option<f64> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let allowed = self.samples / 100;
        let mut above = 0;
        let last = (0..BUCKETS).rev().find(|bucket| {
            above += self.counts[*bucket];
            above > allowed
        })?;
        Some(FIRST_S * power(RATIO, last))
    }
}

/// Returns the power by squaring, the same on every machine.
fn power(base: f64, exponent: usize) -> f64 {
    let (mut result, mut factor, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= factor;
        }
        left >>= 1;
        factor *= factor;
    }
    result
}

/// What is known of one source.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) delay: f32,
    pub(super) delay_at: f32,
    pub(super) usual: f32,
    pub(super) interval: f32,
    pub(super) answered_at: f32,
    pub(super) probe_at: f32,
    pub(super) answers: u32,
    pub(super) under_way: u32,
    pub(super) oldest: Option<u32>,
    pub(super) newest: Option<u32>,
    pub(super) oldest_started: f64,
    pub(super) is_asked: bool,
    pub(super) slow: SlowSamples,
    pub(super) breaker: Breaker,
    pub(super) link: Link,
    histogram: Option<Box<Histogram>>,
}

impl Default for Source {
    fn default() -> Source {
        Source {
            delay: 0.0,
            delay_at: 0.0,
            usual: 0.0,
            interval: 0.0,
            answered_at: -1e9,
            probe_at: 0.0,
            answers: 0,
            under_way: 0,
            oldest: None,
            newest: None,
            oldest_started: 0.0,
            is_asked: false,
            slow: SlowSamples::default(),
            breaker: Breaker::default(),
            link: Link::default(),
            histogram: None,
        }
    }
}

impl Source {
    pub(super) fn histogram_mut(&mut self) -> &mut Histogram {
        self.histogram.get_or_insert_default()
    }

    pub(super) fn p99(&self) -> Option<f64> {
        self.histogram.as_ref().and_then(|histogram| histogram.p99())
    }

    fn fading(&self, now: f64) -> f64 {
        ((f64::from(self.delay_at) - now) / HALF_LIFE).exp2()
    }

    fn faded(&self, now: f64) -> f64 {
        f64::from(self.delay) * self.fading(now)
    }

    /// Returns how long the oldest fetch under way has waited, per fetch under way.
    pub(super) fn waiting(&self, now: f64) -> f64 {
        match self.oldest {
            Some(_) => (now - self.oldest_started) / f64::from(self.under_way),
            None => 0.0,
        }
    }

    /// Returns how long it takes for one chunk now; 0: not known.
    pub(super) fn estimate(&self, now: f64) -> f64 {
        self.faded(now).max(self.waiting(now))
    }

    /// Returns the estimate, or the time between two answers of a burst where it is longer.
    pub(super) fn longest(&self, now: f64) -> f64 {
        let fading = if self.delay > 0.0 { self.fading(now) } else { 0.0 };
        self.estimate(now).max(f64::from(self.interval) * fading)
    }

    /// Notes how far apart its answers are: the first of a burst come early.
    pub(super) fn note_interval(&mut self, answers_before: u32, time: f64) {
        self.answers += 1;
        let sample = time / f64::from(self.answers - answers_before);
        let known = f64::from(self.interval);
        let next = if known == 0.0 { sample } else { known + WEIGHT_UP * (sample - known) };
        self.interval = next as f32;
    }

    /// Notes a sample; returns the new average, `None` where it tells nothing.
    pub(super) fn note_sample(&mut self, sample: f64, is_answer: bool, now: f64) -> Option<f64> {
        let average = self.faded(now);
        if !is_answer && sample <= average {
            return None;
        }
        let known = if self.delay == 0.0 {
            sample
        } else if sample > average {
            let most = (average * OUTLIER).max(f64::from(self.delay));
            average + WEIGHT_UP * (sample.min(most) - average).max(0.0)
        } else {
            average + WEIGHT_DOWN * (sample - average)
        };
        let usual = f64::from(self.usual);
        let since = now - f64::from(self.delay_at);
        let next = if usual == 0.0 {
            known
        } else if known < usual {
            usual - (usual - known) / 16.0
        } else {
            known.min(usual * (since / USUAL_DOUBLES).exp2())
        };
        self.usual = next as f32;
        self.delay = known as f32;
        self.delay_at = now as f32;
        Some(known)
    }

    fn slow_bound(&self, rules: &Rules) -> f64 {
        rules.own_slow_max.min(rules.own_slow_min.max(2.0 * f64::from(self.usual)))
    }

    /// Returns whether it takes much longer than it usually does.
    pub(super) fn is_slow(&self, rules: &Rules, now: f64) -> bool {
        self.estimate(now).max(f64::from(self.interval)) > self.slow_bound(rules)
    }

    /// Returns whether what is known of it tells how things are now.
    pub(super) fn is_fresh(&self, rules: &Rules, now: f64) -> bool {
        (self.delay > 0.0 && now - f64::from(self.delay_at) <= FRESH)
            || self.waiting(now) > self.slow_bound(rules)
    }
}
