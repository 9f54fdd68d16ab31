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

use acstor_runclock::{RunClock, RunInstant};
use parking_lot::Mutex;

use crate::limits;

/// Weight of a sample above the average.
const WEIGHT_UP: f64 = 0.3;
/// Weight of a sample below it: good news is believed sooner, a wrong guess costs one read.
const WEIGHT_DOWN: f64 = 0.5;
/// A sample counts as at most this many averages: three slow answers in a row, not one, are a load.
const OUTLIER_RATIO: f64 = 4.0;
/// Time without a sample after which the average counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Share of the difference by which what is usual follows an average below it.
const USUAL_DOWN: f64 = 1.0 / 16.0;
/// Time in which what is usual doubles at most: a load is not taken for usual within minutes.
const USUAL_DOUBLES: Duration = Duration::from_secs(60);
/// What is usual is never taken for less, seconds.
const USUAL_MIN: f64 = 50e-6;

/// The estimate of one source. Times are divided by the number of chunks that were under way.
#[derive(Debug, Default)]
pub(crate) struct SourceDelay {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Seconds.
    average: f64,
    /// Seconds from one chunk of a burst to the next: the time of each answer by how many there were
    /// meanwhile.
    interval: f64,
    /// Answers so far.
    answered: u64,
    /// Seconds, near the lower end of the averages; a number where there is a sample.
    usual: f64,
    sampled: Option<RunInstant>,
    /// When the fetches under way began, oldest first.
    began: VecDeque<RunInstant>,
}

/// A source that something new is known of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) estimate: Duration,
    /// That, or the time from one chunk of a burst to the next where it is longer.
    pub(crate) longest: Duration,
    /// Whether that is much more than what is usual for it.
    pub(crate) is_slow: bool,
}

/// One fetch under way. Dropped without an answer it counts with the time so far, as a lower bound.
#[derive(Debug)]
pub(crate) struct Underway {
    delay: Arc<SourceDelay>,
    clock: RunClock,
    began: RunInstant,
    /// How many were under way when it began, itself included.
    among: usize,
    /// Answers before it began.
    answered_before: u64,
    is_answered: bool,
}

impl SourceDelay {
    /// Notes that a chunk was asked for.
    pub(crate) fn begin(self: &Arc<Self>, clock: &RunClock) -> Underway {
        let (clock, now) = (clock.clone(), clock.now());
        let mut state = self.state.lock();
        state.began.push_back(now);
        let (among, answered_before) = (state.began.len(), state.answered);
        drop(state);
        Underway {
            delay: self.clone(),
            clock,
            began: now,
            among,
            answered_before,
            is_answered: false,
        }
    }

    /// Seconds that one chunk takes now; `None` where nothing is known.
    pub(crate) fn estimate(&self, now: RunInstant) -> Option<Duration> {
        let state = self.state.lock();
        let waiting = state.waiting(now);
        let average = match state.sampled {
            Some(_) => state.faded(now),
            None if state.began.is_empty() => return None,
            None => 0.0,
        };
        Some(Duration::from_secs_f64(average.max(waiting)))
    }

    /// The estimate, or the time from one chunk of a burst to the next where it is longer: the first
    /// answers of a burst over a full link come before their share of its time.
    pub(crate) fn longest(&self, now: RunInstant) -> Option<Duration> {
        let estimate = self.estimate(now)?;
        let state = self.state.lock();
        Some(estimate.max(Duration::from_secs_f64(state.fade(state.interval, now))))
    }

    /// What one chunk takes where the source is well; `None` where nothing is known.
    pub(crate) fn usual(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.sampled.map(|_| Duration::from_secs_f64(state.usual))
    }

    /// Whether it ever answered.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().sampled.is_some()
    }

    /// What one chunk of those under way has taken so far.
    pub(crate) fn waiting(&self, now: RunInstant) -> Duration {
        Duration::from_secs_f64(self.state.lock().waiting(now))
    }

    /// Fetches under way.
    pub(crate) fn underway(&self) -> usize {
        self.state.lock().began.len()
    }

    /// How the source does now; `None` where the last answer is too old to tell, unless one that is
    /// under way waits so long that it tells. From `slow_fetch` on any source is slow.
    pub(crate) fn current(&self, now: RunInstant, slow_fetch: Duration) -> Option<Current> {
        let state = self.state.lock();
        let waiting = state.waiting(now);
        let usual = if state.sampled.is_some() { state.usual } else { 0.0 };
        let slow = slow_fetch.as_secs_f64();
        let limit =
            (usual * limits::OWN_LINK_RATIO).clamp(slow * limits::OWN_LINK_SLOW_MIN_RATIO, slow);
        let is_fresh = state
            .sampled
            .is_some_and(|at| now.saturating_duration_since(at) <= limits::SOURCE_FRESH);
        let seconds = match is_fresh {
            true => state.faded(now).max(waiting).max(state.interval),
            false if waiting > limit => waiting,
            false => return None,
        };
        let estimate = if is_fresh { state.faded(now).max(waiting) } else { waiting };
        Some(Current {
            estimate: Duration::from_secs_f64(estimate),
            longest: Duration::from_secs_f64(seconds),
            is_slow: seconds > limit,
        })
    }

    fn end(&self, fetch: &Underway, now: RunInstant) {
        let mut state = self.state.lock();
        let among = fetch.among.max(state.began.len()).max(1);
        if let Some(position) = state.began.iter().position(|began| *began == fetch.began) {
            state.began.remove(position);
        }
        let time = now.saturating_duration_since(fetch.began).as_secs_f64();
        let sample = time / among as f64;
        let average = state.faded(now);
        if fetch.is_answered {
            state.answered += 1;
            let meanwhile = (state.answered - fetch.answered_before).max(1);
            state.note_interval(time / meanwhile as f64);
        }
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
        state.note_usual(now);
        state.sampled = Some(now);
    }
}

impl State {
    fn faded(&self, now: RunInstant) -> f64 {
        self.fade(self.average, now)
    }

    /// What is left of `seconds` since the last sample.
    fn fade(&self, seconds: f64, now: RunInstant) -> f64 {
        let Some(sampled) = self.sampled else { return 0.0 };
        let age = now.saturating_duration_since(sampled).as_secs_f64();
        seconds * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }

    /// Follows the answers of a burst, the first of which come long before their share of its time.
    fn note_interval(&mut self, sample: f64) {
        self.interval = match self.sampled {
            None => sample,
            Some(_) => self.interval + WEIGHT_UP * (sample - self.interval),
        };
    }

    /// Follows a new average; the sample before is still the last.
    fn note_usual(&mut self, now: RunInstant) {
        self.usual = match self.sampled {
            None => self.average,
            Some(_) if self.average < self.usual => {
                self.usual - (self.usual - self.average) * USUAL_DOWN
            }
            Some(before) => {
                let doublings = now.saturating_duration_since(before).as_secs_f64()
                    / USUAL_DOUBLES.as_secs_f64();
                (self.usual * doublings.min(60.0).exp2()).min(self.average)
            }
        }
        .max(USUAL_MIN);
    }

    fn waiting(&self, now: RunInstant) -> f64 {
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
        self.delay.end(self, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    async fn answers(delay: &Arc<SourceDelay>, time: Duration, count: usize) {
        for _ in 0..count {
            let fetch = delay.begin(&RunClock::unmeasured());
            tokio::time::sleep(time).await;
            fetch.answered();
        }
    }

    fn millis(delay: &SourceDelay) -> f64 {
        delay.estimate(RunInstant::unmeasured()).unwrap().as_secs_f64() * 1e3
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
        assert_eq!(delay.estimate(RunInstant::unmeasured()), None);
        answers(&delay, MILLI, 5).await;
        let stalled = delay.begin(&RunClock::unmeasured());
        tokio::time::sleep(300 * MILLI).await;
        assert!(millis(&delay) >= 300.0);
        drop(stalled);
        assert!(millis(&delay) > 1.5, "given up counts as a lower bound: {}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_burst_counts_as_what_one_chunk_takes() {
        let delay: Arc<SourceDelay> = Arc::default();
        let burst: Vec<Underway> = (0..16).map(|_| delay.begin(&RunClock::unmeasured())).collect();
        for fetch in burst {
            tokio::time::sleep(MILLI).await;
            fetch.answered();
        }
        assert!((0.3..=2.0).contains(&millis(&delay)), "{}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_current_is_slow_from_the_first_answer_of_a_burst_on() {
        let delay: Arc<SourceDelay> = Arc::default();
        for _ in 0..3 {
            let burst: Vec<Underway> =
                (0..16).map(|_| delay.begin(&RunClock::unmeasured())).collect();
            for fetch in burst {
                tokio::time::sleep(20 * MILLI).await;
                fetch.answered();
                assert!(delay.current(RunInstant::unmeasured(), 5 * MILLI).unwrap().is_slow);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn test_estimate_fades_so_that_the_source_is_tried_again() {
        let delay: Arc<SourceDelay> = Arc::default();
        answers(&delay, 100 * MILLI, 20).await;
        tokio::time::sleep(7 * HALF_LIFE).await;
        assert!(millis(&delay) < 1.0, "{}", millis(&delay));
    }

    #[tokio::test(start_paused = true)]
    async fn test_usual_is_the_lower_end_and_forgets_within_minutes() {
        let delay: Arc<SourceDelay> = Arc::default();
        assert_eq!(delay.usual(), None);
        answers(&delay, 40 * MILLI, 10).await;
        answers(&delay, 2 * MILLI, 100).await;
        let usual = delay.usual().unwrap();
        assert!(usual < 3 * MILLI, "{usual:?}");
        answers(&delay, 50 * MILLI, 200).await;
        let usual = delay.usual().unwrap();
        assert!(usual < 4 * MILLI, "ten seconds of load are not usual: {usual:?}");
        assert!(millis(&delay) > 40.0);
        answers(&delay, 50 * MILLI, 6000).await;
        let usual = delay.usual().unwrap();
        assert!(usual > 40 * MILLI, "five minutes are: {usual:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn test_current_is_slow_by_what_is_usual_and_by_any_measure() {
        let delay: Arc<SourceDelay> = Arc::default();
        assert!(delay.current(RunInstant::unmeasured(), 5 * MILLI).is_none());
        answers(&delay, 20 * MILLI, 5).await;
        assert!(
            delay.current(RunInstant::unmeasured(), 5 * MILLI).unwrap().is_slow,
            "slow from the start"
        );
        answers(&delay, MILLI, 60).await;
        assert!(!delay.current(RunInstant::unmeasured(), 5 * MILLI).unwrap().is_slow);
        answers(&delay, 4 * MILLI, 20).await;
        assert!(
            delay.current(RunInstant::unmeasured(), 5 * MILLI).unwrap().is_slow,
            "four times what is usual"
        );
        tokio::time::sleep(limits::SOURCE_FRESH + MILLI).await;
        assert!(delay.current(RunInstant::unmeasured(), 5 * MILLI).is_none(), "too old to tell");
        let stalled = delay.begin(&RunClock::unmeasured());
        assert!(delay.current(RunInstant::unmeasured(), 5 * MILLI).is_none());
        tokio::time::sleep(100 * MILLI).await;
        assert!(
            delay.current(RunInstant::unmeasured(), 5 * MILLI).unwrap().is_slow,
            "what is under way tells"
        );
        drop(stalled);
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
                        0 => fetches.push_back(delay.begin(&RunClock::unmeasured())),
                        1 => drop(fetches.pop_front()),
                        _ => if let Some(fetch) = fetches.pop_back() { fetch.answered() },
                    }
                    tokio::time::sleep(millis as u32 * MILLI).await;
                    elapsed += millis;
                    if let Some(estimate) = delay.estimate(RunInstant::unmeasured()) {
                        assert!(estimate <= elapsed as u32 * MILLI + MILLI);
                    }
                }
                fetches.clear();
                assert!(delay.state.lock().began.is_empty());
            });
        }
    }
}
