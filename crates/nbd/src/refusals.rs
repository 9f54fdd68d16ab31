//! Clients that named another export than is served: told in the log, though not each.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Pause between two lines of one server.
const LINE_PAUSE: Duration = Duration::from_secs(60);

/// The refusals of one server.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    /// Since then.
    untold: u64,
}

impl Refusals {
    /// Notes one; returns how many to tell of, this one included, when it is time for a line.
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        told.untold += 1;
        if told.at.is_some_and(|at| now.duration_since(at) < LINE_PAUSE) {
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{LINE_PAUSE, Refusals};

    #[test]
    fn test_the_first_is_told_and_then_all_of_a_minute_together() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.note(begin), Some(1));
        assert_eq!(refusals.note(begin), None);
        assert_eq!(refusals.note(begin + LINE_PAUSE / 2), None);
        assert_eq!(refusals.note(begin + LINE_PAUSE), Some(3));
        assert_eq!(refusals.note(begin + LINE_PAUSE), None);
    }
}
