//! Lag of a runtime's ticks, and the excused part of it. Pure: the time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two ticks: what is measured is at most so much less than the standstill.
pub const TICK: Duration = Duration::from_millis(20);
/// A tick that is late by less is on time: timers are rounded up to a millisecond, and woken in turn.
pub const TOLERANCE: Duration = Duration::from_millis(5);
/// Share of a lag that is excused where another one was less than [`QUIET_PERIOD`] of running time
/// before.
///
/// Three quarters: a host that never runs on time waits four times as long for a peer that is dead.
pub const BUSY_SHARE: f64 = 0.75;
/// Running time without a late tick after which the next standstill is excused whole.
pub const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// Totals of a clock's measurements so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagTotals {
    /// Late ticks.
    pub stalls: u64,
    /// By how much they were late, together.
    pub stalled: Duration,
    /// By how much the tick that is due is late now.
    pub lag: Duration,
}

/// The measure of one runtime.
#[derive(Debug)]
pub(crate) struct Lag {
    ticked: Instant,
    /// Taken off the wall clock so far.
    excused: Duration,
    /// Running time, as the wall clock less `excused`, of the last late tick.
    late: Option<Instant>,
    totals: LagTotals,
}

impl Lag {
    pub(crate) fn new(now: Instant) -> Lag {
        Lag { ticked: now, excused: Duration::ZERO, late: None, totals: LagTotals::default() }
    }

    /// Returns the time that is taken off the wall clock at `now`, the tick that is overdue
    /// included.
    pub(crate) fn excused(&self, now: Instant) -> Duration {
        self.excused + self.pending(now)
    }

    /// The part of the tick under way that will be excused. What a tick may take on time counts as
    /// running time whatever follows, so that running time never goes back.
    fn pending(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.ticked);
        let late = since.saturating_sub(TICK + TOLERANCE);
        let is_busy = self.late.is_some_and(|last| {
            let running = self.ticked.checked_sub(self.excused).unwrap_or(self.ticked);
            running.saturating_duration_since(last) < QUIET_PERIOD
        });
        if is_busy { late.mul_f64(BUSY_SHARE) } else { late }
    }

    /// Notes that the tick ran; returns by how much it was late, zero where it was not.
    pub(crate) fn tick(&mut self, now: Instant) -> Duration {
        let lag = self.overdue(now);
        self.excused = self.excused(now);
        self.ticked = now;
        if lag > TOLERANCE {
            self.late = now.checked_sub(self.excused);
            self.totals.stalls += 1;
            self.totals.stalled += lag;
            return lag;
        }
        Duration::ZERO
    }

    fn overdue(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.ticked).saturating_sub(TICK)
    }

    pub(crate) fn totals(&self, now: Instant) -> LagTotals {
        LagTotals { lag: self.overdue(now), ..self.totals }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Running time from the start until `now`.
    fn running(lag: &Lag, start: Instant, now: Instant) -> Duration {
        now - start - lag.excused(now)
    }

    #[test]
    fn test_ticks_on_time_excuse_nothing() {
        let start = Instant::now();
        let mut lag = Lag::new(start);
        for number in 1..1000 {
            assert_eq!(lag.tick(start + number * (TICK + TOLERANCE / 2)), Duration::ZERO);
        }
        let end = start + 1000 * (TICK + TOLERANCE / 2);
        assert_eq!((lag.excused(end), lag.totals(end).stalls), (Duration::ZERO, 0));
    }

    #[test]
    fn test_standstill_is_excused_whole_and_known_before_the_tick_runs() {
        let start = Instant::now();
        let mut lag = Lag::new(start);
        let end = start + 600 * SECOND;
        assert_eq!(running(&lag, start, end), TICK + TOLERANCE);
        assert_eq!(lag.totals(end).lag, 600 * SECOND - TICK);
        assert_eq!(lag.tick(end), 600 * SECOND - TICK);
        assert_eq!(running(&lag, start, end), TICK + TOLERANCE);
        let totals = lag.totals(end);
        assert_eq!((totals.stalls, totals.stalled), (1, 600 * SECOND - TICK));
    }

    #[test]
    fn test_standstills_apart_are_each_excused_whole() {
        let (start, mut now) = (Instant::now(), Instant::now());
        let mut lag = Lag::new(start);
        for _ in 0..3 {
            for _ in 0..60 {
                now += TICK;
                lag.tick(now);
            }
            let before = running(&lag, start, now);
            now += 10 * SECOND;
            assert_eq!(running(&lag, start, now) - before, TICK + TOLERANCE);
            lag.tick(now);
        }
    }

    proptest! {
        /// Whatever the ticks: running time never goes back, is never ahead of the wall clock, and of any
        /// stretch behind the first standstill in which there is no quiet period at least a quarter counts.
        #[test]
        fn proptest_running_time_is_sane(
            steps in prop::collection::vec((0u64..3000, any::<bool>()), 1..200),
        ) {
            let start = Instant::now();
            let mut lag = Lag::new(start);
            let (mut now, mut last) = (start, Duration::ZERO);
            for (millis, is_tick) in steps {
                now += Duration::from_millis(millis);
                let before = running(&lag, start, now);
                if is_tick {
                    lag.tick(now);
                    prop_assert_eq!(running(&lag, start, now), before);
                }
                prop_assert!(before >= last && before <= now - start);
                last = before;
            }
        }

        /// A host that is late at every tick still gets on: no wait takes more than four times as long.
        #[test]
        fn proptest_busy_host_runs_at_a_quarter_of_the_wall_clock_at_least(
            lags in prop::collection::vec(30u64..900, 2..200),
        ) {
            let start = Instant::now();
            let mut lag = Lag::new(start);
            let first = start + Duration::from_millis(lags[0]);
            lag.tick(first);
            let (before, mut now) = (running(&lag, start, first), first);
            for millis in &lags[1..] {
                now += Duration::from_millis(*millis);
                lag.tick(now);
            }
            let ran = running(&lag, start, now) - before;
            prop_assert!(ran >= (now - first).mul_f64(0.249), "{:?} of {:?}", ran, now - first);
        }
    }
}
