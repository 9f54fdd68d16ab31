//! A token bucket, kept as a time.
//!
//! The virtual scheduling form of the generic cell rate algorithm (ITU-T I.371): what was taken so far
//! is paid for at some time, each taking moves that on by its cost, and time that was not used is
//! worth a burst at most. Nothing has to be refilled. One large taking is never refused; it makes the
//! following ones wait.

use std::time::Duration;

use tokio::time::Instant;

/// Amount that was taken so far, as the time at which it is paid for.
#[derive(Clone, Copy, Debug)]
pub struct CellRate {
    paid_at: Instant,
}

impl CellRate {
    /// A rate of which nothing was taken and nothing is saved: the first taking may begin at `now`.
    pub fn new(now: Instant) -> CellRate {
        CellRate { paid_at: now }
    }

    /// A rate with a whole burst saved.
    pub fn saved(now: Instant, burst: Duration) -> CellRate {
        CellRate { paid_at: now.checked_sub(burst).unwrap_or(now) }
    }

    /// Returns from when on the next taking counts: it may begin once that is not in the future. Before
    /// `now` by what was saved, `burst` at most.
    pub fn due(&self, now: Instant, burst: Duration) -> Instant {
        self.paid_at.max(now.checked_sub(burst).unwrap_or(now))
    }

    /// Notes a taking that counts from `due` on and takes `cost` at the rate.
    pub fn take(&mut self, due: Instant, cost: Duration) {
        self.paid_at = due + cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takings of a tenth of a second each that may begin at `now`.
    fn takings(rate: &mut CellRate, now: Instant, burst: Duration) -> u32 {
        let mut count = 0;
        loop {
            let due = rate.due(now, burst);
            if due > now {
                return count;
            }
            rate.take(due, SECOND / 10);
            count += 1;
        }
    }

    #[test]
    fn test_take_beyond_what_is_saved_waits() {
        let now = Instant::now();
        assert_eq!(takings(&mut CellRate::new(now), now, SECOND), 1, "one is never refused");
        let mut rate = CellRate::saved(now, SECOND);
        assert_eq!(takings(&mut rate, now, SECOND), 11);
        assert_eq!(rate.due(now, SECOND), now + SECOND / 10);
        assert_eq!(takings(&mut rate, now + SECOND / 2, SECOND), 5);
    }

    #[test]
    fn test_due_saves_no_more_than_a_burst() {
        let now = Instant::now();
        let mut rate = CellRate::new(now);
        assert_eq!(takings(&mut rate, now + 100 * SECOND, SECOND), 11);
    }
}
