//! How long a source takes for one chunk, as this host sees it now.
//!
//! Source: the peak-EWMA of Finagle's balancer (Twitter, `loadbalancer/p2c`), which Linkerd took over:
//! an average that fades, and what is under way. Differs: what is under way divides the samples in
//! place of multiplying the average, because one read asks one owner for many neighbours at once; an
//! outlier counts as a multiple of the average only; and the age of the oldest fetch is a lower
//! bound, so that a source which stops answering is noticed before it answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Weight of a sample above the average.
const WEIGHT_UP: f64 = 0.3;
/// Weight of a sample below it: good news is believed sooner, a wrong guess costs one read.
const WEIGHT_DOWN: f64 = 0.5;
/// A sample counts as at most this many averages: three slow answers in a row, not one, are a load.
const OUTLIER_RATIO: f64 = 4.0;
/// Time without a sample after which the average counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// The estimate of one source. Times are divided by the number of chunks that were under way.
#[derive(Debug, Default)]
pub(crate) struct SourceDelay {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Seconds.
    average: f64,
    sampled: Option<Instant>,
    /// When the fetches under way began, oldest first.
    began: VecDeque<Instant>,
}

/// One fetch under way. Dropped without an answer it counts with the time so far, as a lower bound.
#[derive(Debug)]
pub(crate) struct Underway {
    delay: Arc<SourceDelay>,
    began: Instant,
    /// How many were under way when it began, itself included.
    among: usize,
    is_answered: bool,
}

impl SourceDelay {
    /// Notes that a chunk was asked for.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant) -> Underway {
        let mut state = self.state.lock();
        state.began.push_back(now);
        let among = state.began.len();
        drop(state);
        Underway { delay: self.clone(), began: now, among, is_answered: false }
    }

    /// Seconds that one chunk takes now; `None` where nothing is known.
    pub(crate) fn estimate(&self, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let waiting = state.waiting(now);
        let average = match state.sampled {
            Some(_) => state.faded(now),
            None if state.began.is_empty() => return None,
            None => 0.0,
        };
        Some(Duration::from_secs_f64(average.max(waiting)))
    }

    fn end(&self, fetch: &Underway, now: Instant) {
        let mut state = self.state.lock();
        let among = fetch.among.max(state.began.len()).max(1);
        if let Some(position) = state.began.iter().position(|began| *began == fetch.began) {
            state.began.remove(position);
        }
        let sample = now.saturating_duration_since(fetch.began).as_secs_f64() / among as f64;
        let average = state.faded(now);
        if !fetch.is_answered && sample <= average {
            return; // a lower bound that tells nothing new
        }
        state.average = match state.sampled {
            None => sample,
            // What has faded away limits nothing.
            Some(_) if sample > average => {
                let most = (average * OUTLIER_RATIO).max(state.average);
                average + WEIGHT_UP * (sample.min(most) - average).max(0.0)
            }
            Some(_) => average + WEIGHT_DOWN * (sample - average),
        };
        state.sampled = Some(now);
    }
}

impl State {
    fn faded(&self, now: Instant) -> f64 {
        let Some(sampled) = self.sampled else { return 0.0 };
        let age = now.saturating_duration_since(sampled).as_secs_f64();
        self.average * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }

    fn waiting(&self, now: Instant) -> f64 {
        let Some(oldest) = self.began.front() else { return 0.0 };
        now.saturating_duration_since(*oldest).as_secs_f64() / self.began.len() as f64
    }
}

impl Underway {
    /// Notes that the chunk came.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.delay.end(self, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    async fn answers(delay: &Arc<SourceDelay>, time: Duration, count: usize) {
        for _ in 0..count {
            let fetch = delay.begin(Instant::now());
            tokio::time::sleep(time).await;
            fetch.answered();
        }
    }

    fn millis(delay: &SourceDelay) -> f64 {
        delay.estimate(Instant::now()).unwrap().as_secs_f64() * 1e3
    }

    #[tokio::test(start_paused = true)]
    async fn test_estimate_follows_three_slow_answers_and_no_single_one() {
        let delay = Arc::default();
        answers(&delay, MILLI, 20).await;
        answers(&delay, 100 * MILLI, 1).await;
        assert!(millis(&delay) < 2.0, "{}", millis(&delay));
        answers(&delay, MILLI, 5).await;
        answers(&delay, 20 * MILLI, 4).await;
        assert!(millis(&delay) > 4.0, "{}", millis(&delay));
        answers(&delay, MILLI, 4).await;
        assert!(millis(&delay) < 2.0, "{}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_estimate_sees_a_stall_before_it_ends() {
        let delay = Arc::new(SourceDelay::default());
        assert_eq!(delay.estimate(Instant::now()), None);
        answers(&delay, MILLI, 5).await;
        let stalled = delay.begin(Instant::now());
        tokio::time::sleep(300 * MILLI).await;
        assert!(millis(&delay) >= 300.0);
        drop(stalled);
        assert!(millis(&delay) > 1.5, "given up counts as a lower bound: {}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_burst_counts_as_what_one_chunk_takes() {
        let delay: Arc<SourceDelay> = Arc::default();
        let burst: Vec<Underway> = (0..16).map(|_| delay.begin(Instant::now())).collect();
        for fetch in burst {
            tokio::time::sleep(MILLI).await;
            fetch.answered();
        }
        assert!((0.3..=2.0).contains(&millis(&delay)), "{}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_estimate_fades_so_that_the_source_is_tried_again() {
        let delay: Arc<SourceDelay> = Arc::default();
        answers(&delay, 100 * MILLI, 20).await;
        tokio::time::sleep(7 * HALF_LIFE).await;
        assert!(millis(&delay) < 1.0, "{}", millis(&delay));
    }

    proptest! {
        /// Whatever comes in whatever order: the estimate is a sane number and nothing stays behind.
        #[test]
        fn proptest_estimate_is_bounded_by_the_longest_fetch(steps in prop::collection::vec((0u8..3, 0u64..2000), 1..100)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let delay: Arc<SourceDelay> = Arc::default();
                let mut fetches = VecDeque::new();
                let mut elapsed = 0;
                for (step, millis) in steps {
                    match step {
                        0 => fetches.push_back(delay.begin(Instant::now())),
                        1 => drop(fetches.pop_front()),
                        _ => if let Some(fetch) = fetches.pop_back() { fetch.answered() },
                    }
                    tokio::time::sleep(millis as u32 * MILLI).await;
                    elapsed += millis;
                    if let Some(estimate) = delay.estimate(Instant::now()) {
                        assert!(estimate <= elapsed as u32 * MILLI + MILLI);
                    }
                }
                fetches.clear();
                assert!(delay.state.lock().began.is_empty());
            });
        }
    }
}
