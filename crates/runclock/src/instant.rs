//! A moment in running time.

use std::ops::{Add, AddAssign, Sub};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// The zero of all [`RunInstant::nanos`] of this process: some moment of it.
static ZERO: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// A moment in the running time of one [`crate::RunClock`]. Only moments of the same clock compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunInstant(pub(crate) Instant);

impl RunInstant {
    /// This moment of a clock that is not measured: the wall clock's.
    pub fn unmeasured() -> RunInstant {
        RunInstant(Instant::now())
    }

    /// Nanoseconds since a moment of this process that is the same for all clocks; negative before it.
    pub fn nanos(self) -> i64 {
        let (moment, zero) = (self.0.into_std(), *ZERO);
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match moment.checked_duration_since(zero) {
            Some(after) => nanos(after),
            None => -nanos(zero.duration_since(moment)),
        }
    }

    /// Running time since `earlier`; zero where that is later.
    pub fn saturating_duration_since(self, earlier: RunInstant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The moment `time` before; `None` where no clock can show it.
    pub fn checked_sub(self, time: Duration) -> Option<RunInstant> {
        self.0.checked_sub(time).map(RunInstant)
    }
}

impl Add<Duration> for RunInstant {
    type Output = RunInstant;

    fn add(self, time: Duration) -> RunInstant {
        RunInstant(self.0 + time)
    }
}

impl AddAssign<Duration> for RunInstant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub<Duration> for RunInstant {
    type Output = RunInstant;

    fn sub(self, time: Duration) -> RunInstant {
        RunInstant(self.0 - time)
    }
}

impl Sub<RunInstant> for RunInstant {
    type Output = Duration;

    fn sub(self, earlier: RunInstant) -> Duration {
        self.0 - earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_nanos_differ_as_the_moments_do_before_and_after_the_zero() {
        let now = RunInstant::unmeasured();
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(3600)] {
            let nanos = time.as_nanos() as i64;
            assert_eq!((now + time).nanos() - now.nanos(), nanos);
            assert_eq!((now - time).nanos() - now.nanos(), -nanos);
        }
    }
}
