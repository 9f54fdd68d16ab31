//! Latency samples of a source, or of all peers, that were slow one after the other.

use std::time::Duration;

use crate::{Moment, limits};

/// Times for which samples must be slow before that means something, on this host's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadTimes {
    /// Until a peer that stands out counts as overloaded.
    pub transient_after: Duration,
    /// Until any does, and others may read the origin in its place.
    pub sustained_after: Duration,
}

impl OverloadTimes {
    /// Of links over which a chunk takes `slow_fetch` when they are full.
    pub fn of(slow_fetch: Duration) -> OverloadTimes {
        let fetches = |count| slow_fetch * count;
        OverloadTimes {
            transient_after: limits::TRANSIENT_AFTER.max(fetches(limits::TRANSIENT_AFTER_FETCHES)),
            sustained_after: limits::SUSTAINED_AFTER.max(fetches(limits::SUSTAINED_AFTER_FETCHES)),
        }
    }
}

/// The slow samples in a row.
///
/// Until they have lasted for [`OverloadTimes::sustained_after`], one good sample ends them: a queueing
/// burst is not an overload. From then on it takes several in a row: the first answer of a burst over a
/// full link comes early.
#[derive(Clone, Debug)]
pub struct SlowStreak {
    times: OverloadTimes,
    streak: Option<Streak>,
}

#[derive(Clone, Copy, Debug)]
struct Streak {
    first: Moment,
    last: Moment,
    count: u32,
    /// Good samples since the last slow one.
    good: u32,
}

impl Streak {
    /// Its length; `None` where there were too few samples.
    fn lasts(&self) -> Option<Duration> {
        let is_enough = self.count >= limits::SLOW_SAMPLES_MIN;
        is_enough.then(|| self.last.since(self.first))
    }
}

impl SlowStreak {
    /// Returns one without samples.
    pub fn new(times: OverloadTimes) -> SlowStreak {
        SlowStreak { times, streak: None }
    }

    /// Notes a sample; returns whether the source is slow, or was for so long that one good sample changes
    /// nothing.
    pub fn note(&mut self, is_slow: bool, now: Moment) -> bool {
        let current = self.streak.filter(|streak| now.since(streak.last) <= limits::SAMPLE_GAP_MAX);
        self.streak = match current {
            Some(streak) if is_slow => {
                let count = streak.count.saturating_add(1);
                Some(Streak { last: now, count, good: 0, ..streak })
            }
            None if is_slow => Some(Streak { first: now, last: now, count: 1, good: 0 }),
            Some(streak) => {
                let is_sustained =
                    streak.lasts().is_some_and(|time| time >= self.times.sustained_after);
                let good = streak.good + 1;
                (is_sustained && good < limits::RECOVERY_SAMPLES)
                    .then_some(Streak { good, ..streak })
            }
            None => None,
        };
        self.streak.is_some()
    }

    /// Time for which the samples have been slow; `None` where they are not, or too few were.
    pub fn slow_for(&self) -> Option<Duration> {
        self.streak?.lasts()
    }

    /// Notes that a faster source was there after `time`; after long that is silence.
    pub fn note_overtaken(&mut self, time: Duration, now: Moment) {
        if time >= self.times.transient_after {
            self.note_silence(time, now);
        }
    }

    /// Notes that there was no answer for `time`: as good as many samples, slow all the while, and a
    /// sustained overload however short, or every read would wait as long again.
    pub fn note_silence(&mut self, time: Duration, now: Moment) {
        let first = now - time.max(self.times.sustained_after);
        let first = self.streak.map_or(first, |streak| streak.first.min(first));
        self.streak = Some(Streak { first, last: now, count: limits::SLOW_SAMPLES_MIN, good: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn test_times_are_longer_over_slow_links_and_never_shorter() {
        for (slow_fetch, factor) in [(MILLI, 1), (5 * MILLI, 1), (125 * MILLI, 25)] {
            let times = OverloadTimes::of(slow_fetch);
            assert_eq!(times.transient_after, limits::TRANSIENT_AFTER * factor);
            assert_eq!(times.sustained_after, limits::SUSTAINED_AFTER * factor);
        }
    }

    #[test]
    fn test_note_one_good_sample_ends_a_moment_and_several_an_overload() {
        let mut samples = SlowStreak::new(OverloadTimes::of(5 * MILLI));
        let start = Moment::ZERO;
        for number in 0..limits::SLOW_SAMPLES_MIN {
            assert!(samples.note(true, start + number * MILLI));
        }
        assert_eq!(samples.slow_for(), Some((limits::SLOW_SAMPLES_MIN - 1) * MILLI));
        assert!(!samples.note(false, start + 20 * MILLI), "a moment");
        assert_eq!(samples.slow_for(), None);
        for number in 0..=100 {
            samples.note(true, start + number * 10 * MILLI);
        }
        let now = start + 1000 * MILLI;
        for _ in 1..limits::RECOVERY_SAMPLES {
            assert!(samples.note(false, now), "an overload");
        }
        assert!(samples.note(true, now) && samples.slow_for() == Some(1000 * MILLI));
        for _ in 1..limits::RECOVERY_SAMPLES {
            assert!(samples.note(false, now));
        }
        assert!(!samples.note(false, now), "recovered");
        assert_eq!(samples.slow_for(), None);
    }
}
