//! One peer, as one host sees it: its circuit breaker, its latency, its overload.

use std::time::Duration;

use crate::{
    Backoff, BreakerRules, CircuitBreaker, Fetch, LatencyHistogram, Moment, OverloadTimes,
    SlowStreak, SourceDelay, ToldLoad, limits,
};

/// The latency of one peer's fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySummary {
    /// Right answers since this host knows it.
    pub fetches: u64,
    /// Median time of a fetch; up to a fifth too high.
    pub p50: Duration,
    /// 99th percentile of the time of a fetch; up to a fifth too high.
    pub p99: Duration,
}

/// Knowledge of one host about one peer: its delay, its breaker, its latencies.
#[derive(Clone, Debug)]
pub struct PeerHealth {
    delay: SourceDelay,
    breaker: CircuitBreaker,
    latency: LatencyHistogram,
    /// Right answers.
    answers: u64,
    answered_at: Option<Moment>,
    /// Time of the next probe while it is overloaded.
    probe_due: Option<Moment>,
    /// Probes in a row.
    probes: u32,
    slow: SlowStreak,
    told: Option<ToldLoad>,
}

impl PeerHealth {
    /// Returns what is known of a peer that was never asked.
    pub fn new(times: OverloadTimes) -> PeerHealth {
        PeerHealth {
            delay: SourceDelay::default(),
            breaker: CircuitBreaker::new(),
            latency: LatencyHistogram::default(),
            answers: 0,
            answered_at: None,
            probe_due: None,
            probes: 0,
            slow: SlowStreak::new(times),
            told: None,
        }
    }

    /// Asks the breaker for leave to fetch; `trial_time` is how long a fetch may take at most.
    pub fn admit(&mut self, trial_time: Duration, now: Moment) -> bool {
        // No jitter: an overdue trial is repeated, not failed.
        self.breaker.admit(&BreakerRules::PEER, trial_time, now, 0.0).is_granted()
    }

    /// As [`PeerHealth::admit`], of a fetch for which nobody waits: it is no trial, since it may take as long
    /// as it likes and its end says nothing.
    pub fn would_admit(&self, trial_time: Duration, now: Moment) -> bool {
        let mut breaker = self.breaker;
        breaker.admit(&BreakerRules::PEER, trial_time, now, 0.0).is_granted()
    }

    /// The breaker.
    pub fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// Notes that a chunk was asked for.
    pub fn begin(&mut self, now: Moment) -> Fetch {
        self.delay.begin(now)
    }

    /// Notes the end of a fetch, with or without an answer.
    pub fn end(&mut self, fetch: Fetch, is_answered: bool, now: Moment) {
        self.delay.end(fetch, is_answered, now);
    }

    /// Notes the load that it told with an answer.
    pub fn hear(&mut self, told: ToldLoad) {
        if self.told.is_none_or(|before| before.at() <= told.at()) {
            self.told = Some(told);
        }
    }

    /// Returns the load that it told last; `None` where a fetch was timed since, or that was long ago.
    pub fn told(&self, now: Moment) -> Option<ToldLoad> {
        let sampled = self.delay.sampled_at();
        let is_news = |told: &ToldLoad| sampled.is_none_or(|sampled| sampled < told.at());
        self.told.filter(|told| is_news(told) && !told.is_forgotten(now))
    }

    /// Time of one chunk over what it told last to be free of its link, whatever was timed since; zero where it
    /// tells nothing, or told it long ago.
    pub fn told_sending(&self, now: Moment) -> Duration {
        let told = self.told.filter(|told| !told.is_forgotten(now));
        told.map_or(Duration::ZERO, |told| told.sending(now))
    }

    /// Time that it takes for one chunk.
    pub fn delay(&self) -> &SourceDelay {
        &self.delay
    }

    /// Notes a right answer after `time`.
    pub fn answered(&mut self, time: Duration, now: Moment) {
        self.latency.record(time);
        self.answers += 1;
        self.answered_at = Some(now);
        self.breaker.succeeded();
    }

    /// Notes a refusal: the peer is alive, and says so.
    pub fn refused(&mut self) {
        self.breaker.succeeded();
    }

    /// Notes wrong content: it is left alone for `time`.
    pub fn corrupt(&mut self, time: Duration, now: Moment) {
        self.breaker.open_for(time, now);
    }

    /// Notes that it is dead or stalled; `unit` in [0, 1) is the jitter.
    pub fn failed(&mut self, now: Moment, unit: f64) {
        self.breaker.failed(&BreakerRules::PEER, now, unit);
    }

    /// Notes that a fetch got no answer in `time`.
    pub fn timed_out(&mut self, time: Duration, now: Moment, unit: f64) {
        self.slow.note_silence(time, now);
        self.failed(now, unit);
    }

    /// Notes that a fetch failed after `time` since no connection is to be had. Where that took long, as
    /// with a host that says nothing any more, it was silence; a port that is closed says so at once.
    pub fn unreachable(&mut self, time: Duration, now: Moment, unit: f64) {
        if time >= limits::TRANSIENT_AFTER {
            self.timed_out(time, now, unit);
        } else {
            self.failed(now, unit);
        }
    }

    /// Notes that a fetch was given up after `time` because another source was faster.
    pub fn overtaken(&mut self, time: Duration, now: Moment) {
        self.latency.record(time);
        self.slow.note_overtaken(time, now);
    }

    /// Notes a latency sample; returns whether the peer is slow.
    pub(crate) fn note_sample(&mut self, is_slow: bool, now: Moment) -> bool {
        self.slow.note(is_slow, now)
    }

    /// Time for which all samples were slow; `None` where the last ones were not, or too few were.
    pub fn slow_for(&self) -> Option<Duration> {
        self.slow.slow_for()
    }

    /// Returns whether it gave a right answer within the last `age`.
    pub fn has_answered_within(&self, age: Duration, now: Moment) -> bool {
        self.answered_at.is_some_and(|at| now.since(at) <= age)
    }

    /// Returns whether to probe it now, while it is passed over; `unit` in [0, 1) is the jitter of
    /// the next probe. Where it was not passed over for a while, probes begin anew.
    pub fn take_probe(&mut self, now: Moment, unit: f64) -> bool {
        let before = match self.probe_due {
            Some(due) if now < due => return false,
            Some(due) if now < due + limits::PROBE_MAX => self.probes,
            _ => 0,
        };
        self.probe_due = Some(now + Backoff::PROBE.delay(before, unit));
        self.probes = before.saturating_add(1);
        true
    }

    /// Has it probed again at once: it answers fast.
    pub(crate) fn probe_soon(&mut self) {
        self.probe_due = None;
        self.probes = 0;
    }

    /// The latency of its fetches; `None` where the last answer is long ago.
    pub fn latency(&self, now: Moment) -> Option<LatencySummary> {
        let age = now.since(self.answered_at?);
        (age < limits::LATENCY_AGE_MAX).then(|| LatencySummary {
            fetches: self.answers,
            p50: self.latency.p50(),
            p99: self.latency.p99(),
        })
    }

    /// Time to wait for it before a hedge, within the bounds.
    pub fn hedge_delay(&self, min: Duration, max: Duration) -> Duration {
        self.p99().map_or(max, |p99| p99.clamp(min, max))
    }

    /// Returns the 99th percentile of the time of its fetches; `None` where too few are known.
    pub fn p99(&self) -> Option<Duration> {
        let is_enough = self.latency.samples() >= limits::LATENCY_SAMPLES_MIN;
        is_enough.then(|| self.latency.p99())
    }
}

/// Returns whether a fetch that got no answer in `time` of the `allowed` tells something of the peer. One
/// that the read's own deadline cut short does not.
pub fn is_silence(time: Duration, allowed: Duration, peer_deadline: Duration) -> bool {
    time >= allowed.max(peer_deadline).mul_f32(limits::SILENCE_SHARE)
}

/// Returns how long a peer may take of the time that is `left`: over a slow link of one's own half of it,
/// since asked again elsewhere the chunk would come twice.
pub fn peer_time(is_own_link_slow: bool, left: Duration, peer_deadline: Duration) -> Duration {
    if is_own_link_slow { left / limits::OWN_LINK_PEER_TIME_DIVISOR } else { peer_deadline }
}

#[cfg(test)]
mod tests;
