//! The typical time that the link takes for a byte, from the slots that ended.

use std::time::Duration;

/// Weight of a slot that was faster than typical.
const WEIGHT_FASTER: f64 = 1.0 / 4.0;
/// Weight of a slot that was slower than typical: small, so that a few receivers with full links do not
/// count as this host's own link; large enough to follow within tens of slots where all are slow.
const WEIGHT_SLOWER: f64 = 1.0 / 32.0;
/// Most times the typical that one slot counts: a single one of a minute says no more than a slow one.
const OUTLIER: f64 = 16.0;
/// Nanoseconds of a byte before any slot ended: a link of 1 Gbit/s.
const INITIAL_NANOS: f64 = 8.0;

/// Typical time of a byte in a slot, while as many others are sent as there are slots.
#[derive(Debug)]
pub(super) struct ServiceTime {
    nanos_per_byte: f64,
}

impl ServiceTime {
    pub(super) fn new() -> ServiceTime {
        ServiceTime { nanos_per_byte: INITIAL_NANOS }
    }

    /// Notes that `bytes` bytes took `time`.
    pub(super) fn record(&mut self, bytes: usize, time: Duration) {
        let typical = self.nanos_per_byte;
        let sample = time.as_nanos() as f64 / bytes.max(1) as f64;
        let weight = if sample < typical { WEIGHT_FASTER } else { WEIGHT_SLOWER };
        // Never 0, from which no factor leads away.
        let sample = sample.clamp(typical / OUTLIER, typical * OUTLIER).max(f64::MIN_POSITIVE);
        self.nanos_per_byte = typical + weight * (sample - typical);
    }

    /// Typical time of `bytes` bytes.
    pub(super) fn of(&self, bytes: u64) -> Duration {
        // A float beyond the range becomes the greatest number.
        Duration::from_nanos((self.nanos_per_byte * bytes as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;

    fn after(samples: impl IntoIterator<Item = u64>) -> Duration {
        let mut service_time = ServiceTime::new();
        for micros in samples {
            service_time.record(BYTES, Duration::from_micros(micros));
        }
        service_time.of(BYTES as u64)
    }

    #[test]
    fn test_record_a_link_that_became_slow_is_followed() {
        let slow = after(std::iter::repeat_n(500, 100).chain(std::iter::repeat_n(40_000, 100)));
        assert!(slow > Duration::from_millis(35), "{slow:?}");
        let fast = after(std::iter::repeat_n(40_000, 100).chain(std::iter::repeat_n(500, 40)));
        assert!(fast < Duration::from_millis(1), "{fast:?}");
    }

    #[test]
    fn test_record_a_few_slow_receivers_are_not_the_link() {
        let mixed = after((0..1000).map(|number| if number % 5 == 0 { 60_000 } else { 500 }));
        assert!(mixed < Duration::from_millis(3), "{mixed:?}");
    }

    #[test]
    fn test_record_zero_and_endless_times_stay_within_range() {
        for micros in [0, u64::MAX / 1000] {
            let time = after(std::iter::repeat_n(micros, 5_000));
            assert!(time < Duration::MAX, "{time:?}");
        }
    }
}
