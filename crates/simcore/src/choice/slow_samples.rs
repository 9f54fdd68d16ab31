//! Samples that found a peer, or all peers of a host, slow one after the other.

use crate::rules::Rules;

const GAP: f64 = 10.0;

/// Slow samples in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowSamples {
    /// Negative: none.
    since: f32,
    seen: f32,
    samples: u32,
    good: u32,
}

impl Default for SlowSamples {
    fn default() -> SlowSamples {
        SlowSamples { since: -1.0, seen: 0.0, samples: 0, good: 0 }
    }
}

impl SlowSamples {
    /// Notes a sample, and returns whether the peer is to be taken for slow.
    pub(super) fn note(&mut self, rules: &Rules, is_slow: bool, now: f64) -> bool {
        let stands = self.since >= 0.0 && now - f64::from(self.seen) <= GAP;
        if is_slow {
            if !stands {
                self.since = now as f32;
                self.samples = 0;
            }
            self.seen = now as f32;
            self.samples += 1;
            self.good = 0;
            return true;
        }
        if stands {
            self.good += 1;
            let is_lasting = self.samples >= rules.loaded_looks
                && f64::from(self.seen - self.since) >= rules.loaded_lasting;
            if is_lasting && self.good < rules.recovered_looks {
                return true;
            }
        }
        *self = SlowSamples { seen: self.seen, ..SlowSamples::default() };
        false
    }

    /// Notes that there was no answer for so long: as good as many samples, and a load.
    pub(super) fn note_silence(&mut self, rules: &Rules, time: f64, now: f64) {
        let first = now - time.max(rules.loaded_lasting);
        if self.since < 0.0 || f64::from(self.since) > first {
            self.since = first as f32;
        }
        self.seen = now as f32;
        self.samples = rules.loaded_looks;
        self.good = 0;
    }

    /// Returns for how long samples have been slow; `None` where too few were.
    pub(super) fn slow_for(&self, rules: &Rules) -> Option<f64> {
        let is_known = self.since >= 0.0 && self.samples >= rules.loaded_looks;
        is_known.then(|| f64::from(self.seen - self.since))
    }
}
