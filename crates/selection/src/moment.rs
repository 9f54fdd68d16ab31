//! Moments as the caller counts time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment: nanoseconds since a zero of the caller's choice.
///
/// Signed, so that a moment before the zero exists: a simulation may start there. Only moments with the
/// same zero compare. Arithmetic saturates 292 years off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// The zero.
    pub const ZERO: Moment = Moment(0);

    /// The moment `nanos` nanoseconds after the zero.
    pub const fn from_nanos(nanos: i64) -> Moment {
        Moment(nanos)
    }

    /// The moment at which a clock that started at the zero shows `reading`.
    pub fn at(reading: Duration) -> Moment {
        Moment::ZERO + reading
    }

    /// Nanoseconds since the zero.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Time since `earlier`; zero where that is later.
    pub fn since(self, earlier: Moment) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(signed(time)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, time: Duration) -> Moment {
        Moment(self.0.saturating_sub(signed(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_moments_exist_before_the_zero_and_far_away() {
        let second = Duration::from_secs(1);
        assert_eq!((Moment::ZERO - second).nanos(), -1_000_000_000);
        assert_eq!(Moment::ZERO.since(Moment::ZERO - second), second);
        assert_eq!((Moment::ZERO - second).since(Moment::ZERO), Duration::ZERO);
        assert_eq!(Moment::at(Duration::MAX), Moment::from_nanos(i64::MAX));
    }
}
