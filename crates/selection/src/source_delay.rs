//! Time that a source takes for one chunk, as this host sees it now.
//!
//! Source: the peak-EWMA of Finagle's balancer (Twitter, `loadbalancer/p2c`), which Linkerd took over:
//! an average that fades, and what is under way. Differs: what is under way divides the samples in
//! place of multiplying the average, because one read asks one owner for many neighbours at once; an
//! outlier counts as a multiple of the average only; and the age of the oldest fetch is a lower
//! bound, so that a source which stops answering is noticed before it answers.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Moment, limits};

/// The estimate of one source. Times are divided by the number of chunks that were under way.
#[derive(Clone, Debug, Default)]
pub struct SourceDelay {
    /// Seconds.
    average: f64,
    /// Seconds from one chunk of a burst to the next: the time of each answer by how many there were
    /// meanwhile.
    interval: f64,
    /// Answers so far.
    answered: u64,
    /// Seconds, near the lower end of the averages; a number where there is a sample.
    typical: f64,
    sampled: Option<Moment>,
    /// Begins of the fetches under way, oldest first.
    began: VecDeque<Moment>,
}

/// A source of which something new is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Time of one chunk.
    pub estimate: Duration,
    /// That, or the time from one chunk of a burst to the next where it is longer.
    pub longest: Duration,
    /// True if that is much more than what is typical for the source.
    pub is_slow: bool,
}

/// A source's part in the overview of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Reading of now, where something new is known.
    pub current: Option<Current>,
    /// True if it ever answered.
    pub is_known: bool,
}

/// One fetch under way; [`SourceDelay::end`] takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Fetch {
    began: Moment,
    /// Fetches under way when it began, itself included.
    among: usize,
    /// Answers before it began.
    answered_before: u64,
}

impl SourceDelay {
    /// Notes that a chunk was asked for.
    pub fn begin(&mut self, now: Moment) -> Fetch {
        self.began.push_back(now);
        Fetch { began: now, among: self.began.len(), answered_before: self.answered }
    }

    /// Notes the end of a fetch. One without an answer counts with the time so far, as a lower bound.
    pub fn end(&mut self, fetch: Fetch, is_answered: bool, now: Moment) {
        let among = fetch.among.max(self.began.len()).max(1);
        if let Some(position) = self.began.iter().position(|began| *began == fetch.began) {
            self.began.remove(position);
        }
        let time = now.since(fetch.began).as_secs_f64();
        let sample = time / among as f64;
        let average = self.faded(now);
        if is_answered {
            self.answered += 1;
            let meanwhile = (self.answered - fetch.answered_before).max(1);
            self.note_interval(time / meanwhile as f64);
        }
        if !is_answered && sample <= average {
            return; // a lower bound that tells nothing new
        }
        self.average = match self.sampled {
            None => sample,
            // What has faded away limits nothing.
            Some(_) if sample > average => {
                let most = (average * limits::OUTLIER_RATIO).max(self.average);
                average + limits::SAMPLE_WEIGHT_UP * (sample.min(most) - average).max(0.0)
            }
            Some(_) => average + limits::SAMPLE_WEIGHT_DOWN * (sample - average),
        };
        self.note_typical(now);
        self.sampled = Some(now);
    }

    /// Returns the time of one chunk now; `None` where nothing is known.
    pub fn estimate(&self, now: Moment) -> Option<Duration> {
        let average = match self.sampled {
            Some(_) => self.faded(now),
            None if self.began.is_empty() => return None,
            None => 0.0,
        };
        Some(Duration::from_secs_f64(average.max(self.waiting_seconds(now))))
    }

    /// The estimate, or the time from one chunk of a burst to the next where it is longer: the first
    /// answers of a burst over a full link come before their share of its time.
    pub fn longest(&self, now: Moment) -> Option<Duration> {
        let estimate = self.estimate(now)?;
        Some(estimate.max(Duration::from_secs_f64(self.fade(self.interval, now))))
    }

    /// Returns the time of one chunk that is asked for now, behind those under way; `None` where nothing is
    /// known.
    pub fn next(&self, now: Moment) -> Option<Duration> {
        let among = u32::try_from(self.began.len()).unwrap_or(u32::MAX).saturating_add(1);
        Some(self.longest(now)?.saturating_mul(among))
    }

    /// Returns the time of one chunk where the source is well; `None` where nothing is known.
    pub fn typical(&self) -> Option<Duration> {
        self.sampled.map(|_| Duration::from_secs_f64(self.typical))
    }

    /// Returns whether it ever answered.
    pub fn is_known(&self) -> bool {
        self.sampled.is_some()
    }

    /// Returns the time of its last sample.
    pub fn sampled_at(&self) -> Option<Moment> {
        self.sampled
    }

    /// Returns the time that one chunk of those under way has taken so far.
    pub fn waiting(&self, now: Moment) -> Duration {
        Duration::from_secs_f64(self.waiting_seconds(now))
    }

    /// Fetches under way.
    pub fn underway(&self) -> usize {
        self.began.len()
    }

    /// Its part in the overview.
    pub fn reading(&self, slow_fetch: Duration, now: Moment) -> Reading {
        Reading { current: self.current(slow_fetch, now), is_known: self.is_known() }
    }

    /// Its state now; `None` where the last answer is too old to tell, unless one that is under way waits
    /// so long that it tells. From `slow_fetch` on any source is slow.
    pub fn current(&self, slow_fetch: Duration, now: Moment) -> Option<Current> {
        let waiting = self.waiting_seconds(now);
        let typical = if self.sampled.is_some() { self.typical } else { 0.0 };
        let slow = slow_fetch.as_secs_f64();
        let limit =
            (typical * limits::OWN_LINK_RATIO).clamp(slow * limits::OWN_LINK_SLOW_MIN_RATIO, slow);
        let is_fresh = self.sampled.is_some_and(|at| now.since(at) <= limits::SOURCE_AGE_MAX);
        let seconds = match is_fresh {
            true => self.faded(now).max(waiting).max(self.interval),
            false if waiting > limit => waiting,
            false => return None,
        };
        let estimate = if is_fresh { self.faded(now).max(waiting) } else { waiting };
        Some(Current {
            estimate: Duration::from_secs_f64(estimate),
            longest: Duration::from_secs_f64(seconds),
            is_slow: seconds > limit,
        })
    }

    fn faded(&self, now: Moment) -> f64 {
        self.fade(self.average, now)
    }

    /// Returns the part of `seconds` that is left since the last sample.
    fn fade(&self, seconds: f64, now: Moment) -> f64 {
        let Some(sampled) = self.sampled else { return 0.0 };
        let age = now.since(sampled).as_secs_f64();
        seconds * (-age / limits::ESTIMATE_HALF_LIFE.as_secs_f64()).exp2()
    }

    /// Follows the answers of a burst, the first of which come long before their share of its time.
    fn note_interval(&mut self, sample: f64) {
        self.interval = match self.sampled {
            None => sample,
            Some(_) => self.interval + limits::SAMPLE_WEIGHT_UP * (sample - self.interval),
        };
    }

    /// Follows a new average; the sample before is still the last.
    fn note_typical(&mut self, now: Moment) {
        self.typical = match self.sampled {
            None => self.average,
            Some(_) if self.average < self.typical => {
                self.typical - (self.typical - self.average) * limits::TYPICAL_DOWN_SHARE
            }
            Some(before) => {
                let doublings =
                    now.since(before).as_secs_f64() / limits::TYPICAL_DOUBLES.as_secs_f64();
                let most = self.typical * doublings.min(limits::TYPICAL_DOUBLINGS_MAX).exp2();
                most.min(self.average)
            }
        }
        .max(limits::TYPICAL_MIN.as_secs_f64());
    }

    fn waiting_seconds(&self, now: Moment) -> f64 {
        let Some(oldest) = self.began.front() else { return 0.0 };
        now.since(*oldest).as_secs_f64() / self.began.len() as f64
    }
}

#[cfg(test)]
mod tests;
