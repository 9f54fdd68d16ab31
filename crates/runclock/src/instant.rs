//! A moment in running time.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use tokio::time::Instant;

/// A moment in the running time of one [`crate::RunClock`]. Only moments of the same clock compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunInstant(pub(crate) Instant);

impl RunInstant {
    /// This moment of a clock that is not measured: the wall clock's.
    pub fn unmeasured() -> RunInstant {
        RunInstant(Instant::now())
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
