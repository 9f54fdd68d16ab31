//! Looks at a source, or at all peers, that found it slow one after the other.

use std::time::Duration;

use acstor_runclock::RunInstant;

use crate::limits;

/// How long looks must find something slow before that means something, on this host's links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowTimes {
    /// Until a peer that stands out counts as loaded.
    pub(crate) loaded_after: Duration,
    /// Until any does, and others may read the origin in its place.
    pub(crate) lasting_after: Duration,
}

impl SlowTimes {
    /// Of links over which a chunk takes so long when they are full.
    pub(crate) fn of(slow_fetch: Duration) -> SlowTimes {
        SlowTimes {
            loaded_after: limits::LOADED_AFTER.max(slow_fetch * limits::LOADED_AFTER_FETCHES),
            lasting_after: limits::LASTING_AFTER.max(slow_fetch * limits::LASTING_AFTER_FETCHES),
        }
    }
}

/// The looks in a row that found something slow.
///
/// Until they have lasted for [`SlowTimes::lasting_after`], one good look ends them: a convoy is not a
/// load. From then on it takes several in a row: the first answer of a burst over a full link comes early.
#[derive(Debug)]
pub(crate) struct SlowLooks {
    times: SlowTimes,
    streak: Option<Streak>,
}

#[derive(Clone, Copy, Debug)]
struct Streak {
    first: RunInstant,
    last: RunInstant,
    count: u32,
    /// Good looks since the last slow one.
    good: u32,
}

impl Streak {
    /// For how long; `None` where there were too few looks.
    fn lasts(&self) -> Option<Duration> {
        let is_enough = self.count >= limits::LOADED_LOOKS_MIN;
        is_enough.then(|| self.last.saturating_duration_since(self.first))
    }
}

impl SlowLooks {
    pub(crate) fn new(times: SlowTimes) -> SlowLooks {
        SlowLooks { times, streak: None }
    }

    /// Notes a look; returns whether what was looked at is slow, or was for so long that one good
    /// look changes nothing.
    pub(crate) fn note(&mut self, is_slow: bool, now: RunInstant) -> bool {
        let current = self
            .streak
            .filter(|streak| now.saturating_duration_since(streak.last) <= limits::LOOK_GAP_MAX);
        self.streak = match current {
            Some(streak) if is_slow => {
                let count = streak.count.saturating_add(1);
                Some(Streak { last: now, count, good: 0, ..streak })
            }
            None if is_slow => Some(Streak { first: now, last: now, count: 1, good: 0 }),
            Some(streak) => {
                let is_lasting =
                    streak.lasts().is_some_and(|time| time >= self.times.lasting_after);
                let good = streak.good + 1;
                (is_lasting && good < limits::RECOVERED_LOOKS).then_some(Streak { good, ..streak })
            }
            None => None,
        };
        self.streak.is_some()
    }

    /// For how long the looks have found it slow; `None` where they do not, or too few did.
    pub(crate) fn slow_for(&self) -> Option<Duration> {
        self.streak?.lasts()
    }

    /// Notes that a faster source was there after `time`; after long that is silence.
    pub(crate) fn note_overtaken(&mut self, time: Duration, now: RunInstant) {
        if time >= self.times.loaded_after {
            self.note_silence(time, now);
        }
    }

    /// Notes that there was no answer for `time`: as good as many looks, slow all the while, and a
    /// load however short, or every read would wait as long again.
    pub(crate) fn note_silence(&mut self, time: Duration, now: RunInstant) {
        let time = time.max(self.times.lasting_after);
        let first = now.checked_sub(time).unwrap_or(now);
        let first = self.streak.map_or(first, |streak| streak.first.min(first));
        self.streak = Some(Streak { first, last: now, count: limits::LOADED_LOOKS_MIN, good: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn test_times_are_longer_over_slow_links_and_never_shorter() {
        for (slow_fetch, factor) in [(MILLI, 1), (5 * MILLI, 1), (125 * MILLI, 25)] {
            let times = SlowTimes::of(slow_fetch);
            assert_eq!(times.loaded_after, limits::LOADED_AFTER * factor);
            assert_eq!(times.lasting_after, limits::LASTING_AFTER * factor);
        }
    }

    #[test]
    fn test_note_one_good_look_ends_a_moment_and_several_a_load() {
        let mut looks = SlowLooks::new(SlowTimes::of(5 * MILLI));
        let start = RunInstant::unmeasured();
        for number in 0..limits::LOADED_LOOKS_MIN {
            assert!(looks.note(true, start + number * MILLI));
        }
        assert_eq!(looks.slow_for(), Some((limits::LOADED_LOOKS_MIN - 1) * MILLI));
        assert!(!looks.note(false, start + 20 * MILLI), "a moment");
        assert_eq!(looks.slow_for(), None);
        for number in 0..=100 {
            looks.note(true, start + number * 10 * MILLI);
        }
        let now = start + 1000 * MILLI;
        for _ in 1..limits::RECOVERED_LOOKS {
            assert!(looks.note(false, now), "a load");
        }
        assert!(looks.note(true, now) && looks.slow_for() == Some(1000 * MILLI));
        for _ in 1..limits::RECOVERED_LOOKS {
            assert!(looks.note(false, now));
        }
        assert!(!looks.note(false, now), "recovered");
        assert_eq!(looks.slow_for(), None);
    }
}
