use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };
const PENALTY_MAX: Duration = Duration::from_secs(15);
const RULES: BreakerRules = BreakerRules {
    failures_max: 1,
    backoff: BACKOFF,
    while_open: FailureWhileOpen::Ignored,
    overdue: OverdueTrial::Repeated,
};

#[test]
fn test_failures_within_the_bound_and_an_answer_keep_it_closed() {
    let rules = BreakerRules { failures_max: 3, ..RULES };
    let mut breaker = CircuitBreaker::new();
    for _ in 0..20 {
        breaker.failed(&rules, Moment::ZERO, 0.0);
        breaker.failed(&rules, Moment::ZERO, 0.0);
        breaker.succeeded();
    }
    assert!(breaker.is_closed());
    for _ in 0..3 {
        assert_eq!(breaker.admit(&rules, SECOND, Moment::ZERO, 0.0), Admission::Go);
        breaker.failed(&rules, Moment::ZERO, 0.0);
    }
    assert_eq!(
        breaker.retry_in(Moment::ZERO),
        BACKOFF.min,
        "the first back-off, whatever the bound"
    );
}

#[test]
fn test_close_remembers_failures_and_succeeded_forgets_them() {
    let now = Moment::ZERO;
    let mut breaker = CircuitBreaker::new();
    for expected in [100, 200] {
        breaker.failed(&RULES, now, 0.0);
        assert_eq!(breaker.retry_in(now).as_millis(), expected);
        breaker.close();
        assert_eq!(breaker.retry_in(now), Duration::ZERO);
    }
    breaker.forget_failures();
    breaker.failed(&RULES, now, 0.0);
    assert_eq!(breaker.retry_in(now).as_millis(), 100);
}

#[test]
fn test_overdue_trial_is_awaited_repeated_or_failed() {
    let (due, overdue) = (Moment::ZERO + BACKOFF.min, Moment::ZERO + BACKOFF.min + SECOND);
    for (rule, expected) in [
        (OverdueTrial::Awaited, Admission::Wait(overdue)),
        (OverdueTrial::Repeated, Admission::Trial),
        (OverdueTrial::Failed, Admission::Wait(overdue + 2 * BACKOFF.min)),
    ] {
        let rules = BreakerRules { overdue: rule, ..RULES };
        let mut breaker = CircuitBreaker::new();
        breaker.failed(&rules, Moment::ZERO, 0.0);
        assert_eq!(breaker.admit(&rules, SECOND, due, 0.0), Admission::Trial);
        assert_eq!(breaker.admit(&rules, SECOND, due, 0.0), Admission::Wait(overdue));
        assert_eq!(breaker.admit(&rules, SECOND, overdue, 0.0), expected, "{rule:?}");
    }
}

#[test]
fn test_failure_while_open_is_ignored_or_extends() {
    let later = Moment::ZERO + Duration::from_millis(50);
    for (rule, expected) in [(FailureWhileOpen::Ignored, 50), (FailureWhileOpen::Extends, 200)] {
        let rules = BreakerRules { while_open: rule, ..RULES };
        let mut breaker = CircuitBreaker::new();
        breaker.failed(&rules, Moment::ZERO, 0.0);
        breaker.failed(&rules, later, 0.0);
        assert_eq!(breaker.retry_in(later).as_millis(), expected, "{rule:?}");
    }
}

#[test]
fn test_open_for_lasts_and_a_failed_trial_then_backs_off_longest() {
    let mut breaker = CircuitBreaker::new();
    breaker.open_for(60 * SECOND, Moment::ZERO);
    let over = Moment::ZERO + 60 * SECOND;
    assert!(matches!(
        breaker.admit(&RULES, SECOND, Moment::ZERO + 59 * SECOND, 0.0),
        Admission::Wait(until) if until == over
    ));
    assert_eq!(breaker.admit(&RULES, SECOND, over, 0.0), Admission::Trial);
    breaker.failed(&RULES, over, 0.0);
    assert_eq!(breaker.retry_in(over), BACKOFF.max);
}

#[test]
fn test_penalty_is_ended_by_its_time_and_a_trial_only() {
    for while_open in [FailureWhileOpen::Ignored, FailureWhileOpen::Extends] {
        let rules = BreakerRules { while_open, ..RULES };
        let over = Moment::ZERO + 60 * SECOND;
        let mut breaker = CircuitBreaker::new();
        breaker.open_for(60 * SECOND, Moment::ZERO);
        // The ends of attempts that began before.
        breaker.succeeded();
        breaker.close();
        breaker.forget_failures();
        breaker.failed(&rules, Moment::ZERO + SECOND, 0.0);
        let before = Moment::ZERO + 59 * SECOND;
        assert_eq!(breaker.admit(&rules, SECOND, before, 0.0), Admission::Wait(over));
        breaker.succeeded();
        assert_eq!(breaker.admit(&rules, SECOND, over, 0.0), Admission::Trial);
        breaker.failed(&rules, over, 0.0);
        assert_eq!(breaker.retry_in(over), BACKOFF.max, "the failures are remembered");
        let mut breaker = CircuitBreaker::new();
        breaker.open_for(60 * SECOND, Moment::ZERO);
        assert_eq!(breaker.admit(&rules, SECOND, over, 0.0), Admission::Trial);
        breaker.succeeded();
        assert_eq!(breaker.admit(&rules, SECOND, over, 0.0), Admission::Go, "the trial ends it");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Close,
    Succeeded,
    Failed,
    Penalise(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Admit),
        Just(Step::Close),
        Just(Step::Succeeded),
        Just(Step::Failed),
        (0_u64..15_000).prop_map(Step::Penalise),
        (0_u64..15_000).prop_map(Step::Wait),
    ]
}

fn rules() -> impl Strategy<Value = BreakerRules> {
    let while_open = prop_oneof![Just(FailureWhileOpen::Ignored), Just(FailureWhileOpen::Extends)];
    let overdue = prop_oneof![
        Just(OverdueTrial::Awaited),
        Just(OverdueTrial::Repeated),
        Just(OverdueTrial::Failed)
    ];
    (1u32..6, while_open, overdue).prop_map(|(failures_max, while_open, overdue)| BreakerRules {
        failures_max,
        backoff: BACKOFF,
        while_open,
        overdue,
    })
}

proptest! {
    /// The state moves only along the table; a source that is not trusted is tried at most once in the
    /// time of a trial, and never before the back-off or the penalty is over.
    #[test]
    fn proptest_breaker_keeps_to_its_table(
        steps in prop::collection::vec(step(), 0..100), unit in 0.0..1.0, rules in rules()
    ) {
        let mut now = Moment::ZERO;
        let mut breaker = CircuitBreaker::new();
        let (mut tried, mut penalised_until): (Option<Moment>, Option<Moment>) = (None, None);
        for step in steps {
            let before = breaker.state();
            let due = breaker.retry_in(now).is_zero();
            match step {
                Step::Admit => match breaker.admit(&rules, SECOND, now, unit) {
                    Admission::Go => {
                        prop_assert_eq!(before, BreakerState::Closed);
                        prop_assert_eq!(penalised_until, None);
                    }
                    Admission::Trial => {
                        prop_assert!(penalised_until.is_none_or(|until| now >= until));
                        penalised_until = None;
                        prop_assert!(before != BreakerState::Closed && due);
                        prop_assert!(tried.is_none_or(|at| now.since(at) >= SECOND));
                        tried = Some(now);
                    }
                    Admission::Wait(until) => {
                        prop_assert_ne!(before, BreakerState::Closed);
                        prop_assert!(until.since(now) <= BACKOFF.max.max(PENALTY_MAX));
                    }
                },
                Step::Close => breaker.close(),
                Step::Succeeded => breaker.succeeded(),
                Step::Failed => breaker.failed(&rules, now, unit),
                Step::Penalise(ms) => {
                    penalised_until = Some(now + Duration::from_millis(ms));
                    breaker.open_for(Duration::from_millis(ms), now);
                }
                Step::Wait(ms) => now = now + Duration::from_millis(ms),
            }
            let after = breaker.state();
            if !matches!(step, Step::Admit | Step::Wait(_)) {
                tried = None;
            }
            let row = |row: &(BreakerState, BreakerEvent, BreakerState)| (row.0, row.2) == (before, after);
            prop_assert!(before == after || BREAKER_TRANSITIONS.iter().any(row));
        }
    }

    /// Whatever happens, calls of a source that never answers are few: the failures that open the
    /// breaker and one per shortest back-off.
    #[test]
    fn proptest_calls_of_a_dead_source_are_bounded(
        steps in prop::collection::vec(1u64..400, 1..400), rules in rules()
    ) {
        let mut breaker = CircuitBreaker::new();
        let (mut now, mut calls) = (Moment::ZERO, 0u32);
        for step in steps {
            now = now + Duration::from_millis(step);
            if !matches!(breaker.admit(&rules, SECOND, now, 1.0), Admission::Wait(_)) {
                calls += 1;
                breaker.failed(&rules, now, 1.0);
            }
        }
        let shortest = BACKOFF.min.as_secs_f64() / 2.0;
        let most = f64::from(rules.failures_max) + 1.0 + now.since(Moment::ZERO).as_secs_f64() / shortest;
        prop_assert!(f64::from(calls) <= most);
    }
}
