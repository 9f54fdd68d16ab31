//! The clock, and waiting by it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::RunInstant;
use crate::lag::{Lag, LagTotals, TICK, TOLERANCE};

/// Lag that is worth a line in the log.
const WARN_FROM: Duration = Duration::from_secs(1);
/// Least time between two lines in the log about lag.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The running time of one runtime. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct RunClock {
    /// `None`: not measured, the same as the wall clock.
    lag: Option<Arc<Mutex<Lag>>>,
}

/// The time was over before what was waited for came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl RunClock {
    /// Returns a clock that shows the time of the wall clock, for what runs in no measured runtime.
    pub fn unmeasured() -> RunClock {
        RunClock { lag: None }
    }

    /// Measures `runtime` by a task that ends with the last clone of the clock.
    pub fn start(runtime: &Handle) -> RunClock {
        let lag = Arc::new(Mutex::new(Lag::new(Instant::now())));
        let measured = Arc::downgrade(&lag);
        runtime.spawn(async move {
            let mut warned: Option<Instant> = None;
            loop {
                let Some(lag) = measured.upgrade() else { return };
                let now = Instant::now();
                let late = lag.lock().tick(now);
                drop(lag);
                if late >= WARN_FROM && warned.is_none_or(|at| now - at >= WARN_INTERVAL) {
                    warned = Some(now);
                    tracing::warn!(
                        stalled_ms = late.as_millis() as u64,
                        "this process stood still and judges no peer by that time: look for a host \
                         without free processors, or one that swaps"
                    );
                }
                sleep(TICK).await;
            }
        });
        RunClock { lag: Some(lag) }
    }

    /// This moment in running time.
    pub fn now(&self) -> RunInstant {
        self.at(Instant::now())
    }

    fn at(&self, wall: Instant) -> RunInstant {
        let Some(lag) = &self.lag else { return RunInstant(wall) };
        let excused = lag.lock().excused(wall);
        RunInstant(wall.checked_sub(excused).unwrap_or(wall))
    }

    /// Running time since `earlier`.
    pub fn since(&self, earlier: RunInstant) -> Duration {
        self.now().saturating_duration_since(earlier)
    }

    /// Returns the time of `moment` on the wall clock, unless this runtime stands still until then;
    /// the present where it is over.
    pub fn wall(&self, moment: RunInstant) -> Instant {
        let now = Instant::now();
        now + moment.saturating_duration_since(self.at(now))
    }

    /// The running time that is as far away as `wall`.
    pub fn from_wall(&self, wall: Instant) -> RunInstant {
        let now = Instant::now();
        self.at(now) + wall.saturating_duration_since(now)
    }

    /// Returns the lag that was measured so far.
    pub fn totals(&self) -> LagTotals {
        self.lag.as_ref().map_or_else(LagTotals::default, |lag| lag.lock().totals(Instant::now()))
    }

    /// Waits until `moment`. Where this runtime was late to notice that, it waits one tick more: what
    /// came in time is looked at before anybody is judged.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn sleep_until(&self, moment: RunInstant) {
        loop {
            let due = self.wall(moment);
            tokio::time::sleep_until(due).await;
            if self.now() < moment {
                continue;
            }
            if self.lag.is_some() && due.elapsed() > TOLERANCE {
                sleep(TICK).await;
            }
            return;
        }
    }

    /// Waits for `future`, at most until `deadline`.
    ///
    /// # Errors
    /// [`Elapsed`].
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn timeout_at<F: Future>(
        &self,
        deadline: RunInstant,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        tokio::select! {
            biased;
            output = future.as_mut() => Ok(output),
            () = self.sleep_until(deadline) => Err(Elapsed),
        }
    }

    /// Waits for `future`, at most for `limit`.
    ///
    /// # Errors
    /// [`Elapsed`].
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        self.timeout_at(self.now() + limit, future).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A clock whose first tick has run.
    async fn clock() -> RunClock {
        let clock = RunClock::start(&Handle::current());
        sleep(TICK).await;
        clock
    }

    #[tokio::test(start_paused = true)]
    async fn test_clock_of_a_host_that_runs_is_the_wall_clock() {
        let clock = clock().await;
        let (wall, run) = (Instant::now(), clock.now());
        sleep(100 * SECOND).await;
        assert_eq!((wall.elapsed(), clock.since(run)), (100 * SECOND, 100 * SECOND));
        assert_eq!(clock.totals(), LagTotals::default());
    }

    #[tokio::test(start_paused = true)]
    async fn test_clock_stands_still_with_the_host() {
        let clock = clock().await;
        let run = clock.now();
        advance(100 * SECOND).await;
        assert!(clock.since(run) <= TICK + TOLERANCE, "{:?}", clock.since(run));
        sleep(SECOND).await;
        let since = clock.since(run);
        assert!(since >= SECOND && since <= SECOND + TICK + TOLERANCE, "{since:?}");
        let totals = clock.totals();
        assert!(totals.stalls == 1 && totals.stalled > 99 * SECOND, "{totals:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn test_timeout_goes_on_after_a_standstill_for_what_was_left() {
        let clock = clock().await;
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.timeout(2 * SECOND, pending::<()>()).await }
        });
        sleep(SECOND).await;
        advance(100 * SECOND).await;
        let resumed = Instant::now();
        assert_eq!(waiting.await.unwrap(), Err(Elapsed));
        let waited = resumed.elapsed();
        assert!(waited >= SECOND - 2 * TICK && waited <= SECOND + 2 * TICK, "{waited:?}");
    }

    /// An answer that came in time while the host stood still is heard, although the timeout is
    /// due.
    #[tokio::test(start_paused = true)]
    async fn test_timeout_due_in_a_standstill_hears_what_lies_in_the_socket() {
        let clock = clock().await;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.timeout(TOLERANCE, receiver).await }
        });
        // As the task of a connection: it has the answer some turns later.
        tokio::spawn(async move {
            sleep(2 * TOLERANCE).await;
            sleep(TOLERANCE).await;
            let _ = sender.send(());
        });
        tokio::task::yield_now().await;
        advance(10 * SECOND).await;
        assert_eq!(waiting.await.unwrap(), Ok(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn test_timeout_of_a_clock_that_is_not_measured_excuses_nothing() {
        let clock = RunClock::unmeasured();
        let start = Instant::now();
        assert_eq!(clock.timeout(SECOND, pending::<()>()).await, Err(Elapsed));
        assert_eq!(start.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn test_timeout_of_a_host_that_is_always_late_comes_later_and_comes() {
        let clock = clock().await;
        let start = Instant::now();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.timeout(2 * SECOND, pending::<()>()).await }
        });
        while !waiting.is_finished() {
            advance(10 * TICK).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        assert!(start.elapsed() > 3 * SECOND, "{:?}", start.elapsed());
        assert!(start.elapsed() <= 9 * SECOND, "{:?}", start.elapsed());
    }
}
