use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(5);

/// A source and the time.
#[derive(Default)]
struct Driver {
    delay: SourceDelay,
    now: Moment,
}

impl Driver {
    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Has `count` fetches, one after the other, answered after `time` each.
    fn answers(&mut self, time: Duration, count: usize) {
        for _ in 0..count {
            let fetch = self.delay.begin(self.now);
            self.wait(time);
            self.delay.end(fetch, true, self.now);
        }
    }

    /// Has 16 fetches that begin together answered one by one, `time` apart.
    fn burst(&mut self, time: Duration, mut check: impl FnMut(&Driver)) {
        let burst: Vec<Fetch> = (0..16).map(|_| self.delay.begin(self.now)).collect();
        for fetch in burst {
            self.wait(time);
            self.delay.end(fetch, true, self.now);
            check(self);
        }
    }

    fn millis(&self) -> f64 {
        self.delay.estimate(self.now).unwrap().as_secs_f64() * 1e3
    }

    fn current(&self) -> Option<Current> {
        self.delay.current(SLOW, self.now)
    }
}

#[test]
fn test_estimate_follows_three_slow_answers_and_no_single_one() {
    let mut driver = Driver::default();
    driver.answers(MILLI, 20);
    driver.answers(100 * MILLI, 1);
    assert!(driver.millis() < 2.0, "{}", driver.millis());
    driver.answers(MILLI, 5);
    driver.answers(20 * MILLI, 4);
    assert!(driver.millis() > 4.0, "{}", driver.millis());
    driver.answers(MILLI, 4);
    assert!(driver.millis() < 2.0, "{}", driver.millis());
}

#[test]
fn test_estimate_sees_a_stall_before_it_ends() {
    let mut driver = Driver::default();
    assert_eq!(driver.delay.estimate(driver.now), None);
    driver.answers(MILLI, 5);
    let stalled = driver.delay.begin(driver.now);
    driver.wait(300 * MILLI);
    assert!(driver.millis() >= 300.0);
    driver.delay.end(stalled, false, driver.now);
    assert!(driver.millis() > 1.5, "given up counts as a lower bound: {}", driver.millis());
}

#[test]
fn test_burst_counts_as_what_one_chunk_takes() {
    let mut driver = Driver::default();
    driver.burst(MILLI, |_| {});
    assert!((0.3..=2.0).contains(&driver.millis()), "{}", driver.millis());
}

#[test]
fn test_current_is_slow_from_the_first_answer_of_a_burst_on() {
    let mut driver = Driver::default();
    for _ in 0..3 {
        driver.burst(20 * MILLI, |driver| assert!(driver.current().unwrap().is_slow));
    }
}

#[test]
fn test_estimate_fades_so_that_the_source_is_tried_again() {
    let mut driver = Driver::default();
    driver.answers(100 * MILLI, 20);
    driver.wait(7 * limits::ESTIMATE_HALF_LIFE);
    assert!(driver.millis() < 1.0, "{}", driver.millis());
}

#[test]
fn test_typical_is_the_lower_end_and_forgets_within_minutes() {
    let mut driver = Driver::default();
    assert_eq!(driver.delay.typical(), None);
    driver.answers(40 * MILLI, 10);
    driver.answers(2 * MILLI, 100);
    let typical = driver.delay.typical().unwrap();
    assert!(typical < 3 * MILLI, "{typical:?}");
    driver.answers(50 * MILLI, 200);
    let typical = driver.delay.typical().unwrap();
    assert!(typical < 4 * MILLI, "ten seconds of load are not typical: {typical:?}");
    assert!(driver.millis() > 40.0);
    driver.answers(50 * MILLI, 6000);
    let typical = driver.delay.typical().unwrap();
    assert!(typical > 40 * MILLI, "five minutes are: {typical:?}");
}

#[test]
fn test_current_is_slow_by_what_is_typical_and_by_any_measure() {
    let mut driver = Driver::default();
    assert!(driver.current().is_none());
    driver.answers(20 * MILLI, 5);
    assert!(driver.current().unwrap().is_slow, "slow from the start");
    driver.answers(MILLI, 60);
    assert!(!driver.current().unwrap().is_slow);
    driver.answers(4 * MILLI, 20);
    assert!(driver.current().unwrap().is_slow, "four times what is typical");
    driver.wait(limits::SOURCE_AGE_MAX + MILLI);
    assert!(driver.current().is_none(), "too old to tell");
    let stalled = driver.delay.begin(driver.now);
    assert!(driver.current().is_none());
    driver.wait(100 * MILLI);
    assert!(driver.current().unwrap().is_slow, "what is under way tells");
    driver.delay.end(stalled, false, driver.now);
}

proptest! {
    /// Whatever comes in whatever order: the estimate is a sane number and nothing stays behind.
    #[test]
    fn proptest_estimate_is_bounded_by_the_longest_fetch(
        steps in prop::collection::vec((0u8..3, 0u64..2000), 1..100)
    ) {
        let mut driver = Driver::default();
        let mut fetches = VecDeque::new();
        for (step, millis) in steps {
            let now = driver.now;
            match step {
                0 => fetches.push_back(driver.delay.begin(now)),
                1 => if let Some(fetch) = fetches.pop_front() { driver.delay.end(fetch, false, now) },
                _ => if let Some(fetch) = fetches.pop_back() { driver.delay.end(fetch, true, now) },
            }
            driver.wait(Duration::from_millis(millis));
            if let Some(estimate) = driver.delay.estimate(driver.now) {
                prop_assert!(estimate <= driver.now.since(Moment::ZERO) + MILLI);
            }
        }
        for fetch in fetches {
            driver.delay.end(fetch, false, driver.now);
        }
        prop_assert_eq!(driver.delay.underway(), 0);
    }
}
