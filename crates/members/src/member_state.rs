//! Judgement of one member: its breaker, its estimate, its generation, and its calls under way.
//!
//! All of it is behind one lock and changes by one method at a time, so that what the thread of a
//! call and the reader that waits for it do at the same moment has an order. A call is judged once: when it
//! ends, or when its time is over, whichever comes first.

use std::collections::BTreeMap;
use std::time::Duration;

use acstor_selection::{
    Admission, BreakerRules, CircuitBreaker, Fetch, Moment, SourceDelay, limits,
};

use crate::generation::{GenerationEvent, GenerationState, is_current};

/// A call under way; [`MemberState::end`] takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(u64);

#[derive(Debug)]
struct UnderWay {
    fetch: Fetch,
    /// The end of its time; `None`: that was reached, and the call was judged.
    late_at: Option<Moment>,
}

/// Judgement of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The member answered, be it that it does not have the object.
    Answered,
    /// It failed.
    Failed,
}

/// The state of one member.
#[derive(Debug)]
pub(crate) struct MemberState {
    breaker: CircuitBreaker,
    delay: SourceDelay,
    generation: GenerationState,
    /// Generation that it has to have.
    configured: u64,
    /// By the order of their begins.
    calls: BTreeMap<u64, UnderWay>,
    next_call: u64,
}

impl MemberState {
    /// One that was never asked, and that has to have this generation.
    pub(crate) fn new(configured: u64) -> MemberState {
        MemberState {
            breaker: CircuitBreaker::new(),
            delay: SourceDelay::default(),
            generation: GenerationState::Unchecked,
            configured,
            calls: BTreeMap::new(),
            next_call: 0,
        }
    }

    /// Returns whether calls go out freely.
    pub(crate) fn is_closed(&self) -> bool {
        self.breaker.is_closed()
    }

    /// Returns whether it answers, and is the store that it should be, as far as that is known.
    pub(crate) fn is_up(&self) -> bool {
        self.is_closed() && self.generation != GenerationState::Fenced
    }

    /// The time that a call takes now; `None`: it was never asked.
    pub(crate) fn estimate(&self, now: Moment) -> Option<Duration> {
        self.delay.next(now)
    }

    /// Time from the begin of a call after which another member may be asked as well.
    pub(crate) fn hedge_after(&self) -> Duration {
        let typical = self.delay.typical().unwrap_or(limits::HEDGE_MAX);
        let after = typical.mul_f64(limits::HEDGE_ORIGIN_RATIO);
        after.clamp(limits::HEDGE_MIN, limits::HEDGE_MAX)
    }

    /// Asks for leave to call while the breaker is not closed; `unit` in [0, 1) is the jitter.
    pub(crate) fn admit(&mut self, trial_time: Duration, now: Moment, unit: f64) -> bool {
        let admission = self.breaker.admit(&BreakerRules::ORIGIN, trial_time, now, unit);
        matches!(admission, Admission::Go | Admission::Trial)
    }

    /// Notes the begin of a call that may take until `late_at`.
    pub(crate) fn begin(&mut self, late_at: Moment, now: Moment) -> CallId {
        let id = self.next_call;
        self.next_call += 1;
        let fetch = self.delay.begin(now);
        self.calls.insert(id, UnderWay { fetch, late_at: Some(late_at) });
        CallId(id)
    }

    /// Notes the end of a call; returns whether that judges it: one that was late is judged.
    pub(crate) fn end(&mut self, call: CallId, end: CallEnd, now: Moment, unit: f64) -> bool {
        let Some(UnderWay { fetch, late_at }) = self.calls.remove(&call.0) else { return false };
        self.delay.end(fetch, end == CallEnd::Answered, now);
        if late_at.is_none() {
            return false;
        }
        match end {
            CallEnd::Answered => self.breaker.succeeded(),
            CallEnd::Failed => self.fail(now, unit),
        }
        true
    }

    /// Takes a call back that did not go out.
    pub(crate) fn withdraw(&mut self, call: CallId, now: Moment) {
        if let Some(UnderWay { fetch, .. }) = self.calls.remove(&call.0) {
            self.delay.end(fetch, false, now);
        }
    }

    /// Judges the calls whose time is over as failed; returns their number.
    pub(crate) fn expire(&mut self, now: Moment, unit: f64) -> u64 {
        let mut late = 0;
        for call in self.calls.values_mut() {
            late += u64::from(call.late_at.take_if(|at| *at <= now).is_some());
        }
        for _ in 0..late {
            self.fail(now, unit);
        }
        late
    }

    fn fail(&mut self, now: Moment, unit: f64) {
        self.breaker.failed(&BreakerRules::ORIGIN, now, unit);
        if !self.is_closed() {
            // Whatever comes back may be another store, or an older state of this one.
            self.generation = self.generation.after(GenerationEvent::Renewed);
        }
    }

    /// Returns whether the generation has to be read before the member is.
    pub(crate) fn needs_look(&self) -> bool {
        self.generation != GenerationState::Current
    }

    /// Notes the generation that the member carries; returns the configured one where it may not be read.
    pub(crate) fn looked(&mut self, found: u64) -> Result<(), u64> {
        let is_current = is_current(found, self.configured);
        let event = if is_current { GenerationEvent::Matched } else { GenerationEvent::Differed };
        self.generation = self.generation.after(event);
        if is_current { Ok(()) } else { Err(self.configured) }
    }

    /// Takes over the generation that the member has to have from now on.
    pub(crate) fn configure(&mut self, generation: u64) {
        self.configured = generation;
        self.generation = self.generation.after(GenerationEvent::Renewed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(millis)
    }

    fn failed_times(count: u32) -> MemberState {
        let mut state = MemberState::new(1);
        for _ in 0..count {
            let call = state.begin(at(0) + DEADLINE, at(0));
            assert!(state.end(call, CallEnd::Failed, at(0), 0.0));
        }
        state
    }

    #[test]
    fn test_generation_is_looked_at_again_after_the_breaker_was_open() {
        let mut state = failed_times(limits::ORIGIN_FAILURES_MAX - 1);
        assert_eq!(state.looked(1), Ok(()));
        assert!(!state.needs_look() && state.is_up());
        let call = state.begin(at(1000), at(0));
        state.end(call, CallEnd::Failed, at(0), 0.0);
        assert!(state.needs_look() && !state.is_up());
    }

    #[test]
    fn test_member_of_another_generation_is_looked_at_before_each_call() {
        let mut state = MemberState::new(7);
        assert!(state.needs_look() && state.is_up());
        assert_eq!(state.looked(6), Err(7));
        assert!(state.needs_look() && !state.is_up());
        state.configure(6);
        assert_eq!(state.looked(6), Ok(()));
        assert!(state.is_up());
        state.configure(8);
        assert!(state.needs_look());
    }

    #[test]
    fn test_call_that_is_late_counts_once_and_lengthens_the_estimate() {
        let mut state = MemberState::new(1);
        let call = state.begin(at(1000), at(0));
        assert_eq!(state.expire(at(999), 0.0), 0);
        assert_eq!(state.expire(at(1000), 0.0), 1);
        assert_eq!(state.expire(at(5000), 0.0), 0);
        assert!(state.estimate(at(5000)) > Some(DEADLINE), "it is still under way");
        assert!(!state.end(call, CallEnd::Answered, at(6000), 0.0), "it was judged");
        assert_eq!(state.breaker.failures(), 1);
    }

    #[test]
    fn test_withdrawn_call_is_held_against_nobody() {
        let mut state = MemberState::new(1);
        let call = state.begin(at(1000), at(0));
        state.withdraw(call, at(0));
        assert_eq!((state.delay.underway(), state.breaker.failures()), (0, 0));
    }

    /// One step of the reader or of the thread of a call.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        Begin,
        Expire,
        End(CallEnd),
    }

    /// Visits every order in which the steps of several calls can happen.
    fn visit(
        left: &mut Vec<Vec<Step>>,
        done: &mut Vec<(usize, Step)>,
        see: &mut impl FnMut(&[(usize, Step)]),
    ) {
        if left.iter().all(Vec::is_empty) {
            return see(done);
        }
        for call in 0..left.len() {
            if left[call].is_empty() {
                continue;
            }
            let step = left[call].remove(0);
            done.push((call, step));
            visit(left, done, see);
            done.pop();
            left[call].insert(0, step);
        }
    }

    /// Plays one order; returns the failures in a row that the state should have, by the history.
    fn play(order: &[(usize, Step)]) {
        let mut state = MemberState::new(1);
        let (mut ids, mut judged, mut failures) = ([None; 3], [false; 3], 0u32);
        let mut is_open = false;
        for (call, step) in order {
            match step {
                Step::Begin => ids[*call] = Some(state.begin(at(10), at(0))),
                Step::Expire => {
                    // All that are under way are over at this moment.
                    let due = (0..3).filter(|at| ids[*at].is_some() && !judged[*at]).count();
                    assert_eq!(state.expire(at(10), 0.0), due as u64, "{order:?}");
                    (0..3).filter(|at| ids[*at].is_some()).for_each(|at| judged[at] = true);
                    failures += due as u32;
                }
                Step::End(end) => {
                    let id = ids[*call].expect("it has begun");
                    let is_first = state.end(id, *end, at(10), 0.0);
                    assert_eq!(is_first, !judged[*call], "judged once: {order:?}");
                    assert!(!state.end(id, *end, at(10), 0.0), "ended once: {order:?}");
                    if is_first {
                        failures = if *end == CallEnd::Failed { failures + 1 } else { 0 };
                    }
                    judged[*call] = true;
                }
            }
            is_open |= failures >= limits::ORIGIN_FAILURES_MAX;
            assert_eq!(state.breaker.failures(), failures, "{order:?}");
        }
        assert_eq!(state.delay.underway(), 0, "{order:?}");
        assert!(!is_open && state.calls.is_empty(), "{order:?}");
    }

    #[test]
    fn test_every_order_of_three_calls_judges_each_once() {
        let ends = [CallEnd::Answered, CallEnd::Failed];
        let mut orders = 0;
        for kinds in 0..8usize {
            let steps = |call: usize| vec![Step::Begin, Step::End(ends[kinds >> call & 1])];
            let mut left = vec![steps(0), steps(1), steps(2), vec![Step::Expire, Step::Expire]];
            visit(&mut left, &mut Vec::new(), &mut |order| {
                orders += 1;
                play(order);
            });
        }
        assert_eq!(orders, 8 * 2520, "8! / (2!)^4 each");
    }
}
