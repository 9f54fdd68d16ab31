//! What this host knows of each peer: how fast it answers, whether it may be asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_types::DiskId;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::steering::latency::LatencyWindow;
use crate::steering::peer_latencies::PeerLatency;
use crate::steering::slow_looks::{SlowLooks, SlowTimes};
use crate::steering::source_delay::{Current, SourceDelay};
use crate::{limits, steering::jitter};

/// Whether a peer may be asked.
///
/// ```text
///   Trusted --- dead, stalled or lied ---> Penalised --- its time is over, a miss comes ---> OnTrial
///      ^                                      ^                                                |
///      |                                      +------------ dead, stalled or lied -------------+
///      +----------------------------- any right answer, any refusal ---------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Asked like any other.
    Trusted,
    /// Not asked before `until`; `strikes` failures in a row.
    Penalised { until: RunInstant, strikes: u32 },
    /// One fetch is out to see; another may go out at `until`.
    OnTrial { until: RunInstant, strikes: u32 },
}

/// One peer, by the name that the ring gives it.
#[derive(Debug)]
pub(crate) struct PeerHealth {
    pub(crate) name: Arc<str>,
    /// Fetches under way; one permit each.
    pub(crate) permits: Arc<Semaphore>,
    /// Preloads take one of these first: half as many, so that guests find permits free.
    pub(crate) preload_permits: Arc<Semaphore>,
    shares: DiskShares,
    /// How long it takes for one chunk.
    pub(crate) delay: Arc<SourceDelay>,
    inner: Mutex<Inner>,
}

/// What each disk may take of a peer's permits: not all, so that the fetches of one that hang leave
/// some to the others.
#[derive(Debug)]
struct DiskShares {
    of_each: usize,
    by_disk: Mutex<HashMap<DiskId, Arc<Semaphore>>>,
}

impl DiskShares {
    fn new(inflight_max: usize) -> DiskShares {
        let of_each = (inflight_max - inflight_max / 4).max(1);
        DiskShares { of_each, by_disk: Mutex::default() }
    }

    fn of(&self, disk: DiskId) -> Arc<Semaphore> {
        let mut by_disk = self.by_disk.lock();
        if by_disk.len() >= limits::DISK_SHARES_MAX {
            by_disk.retain(|_, share| Arc::strong_count(share) > 1);
        }
        by_disk.entry(disk).or_insert_with(|| Arc::new(Semaphore::new(self.of_each))).clone()
    }
}

#[derive(Debug)]
struct Inner {
    state: PeerState,
    latency: LatencyWindow,
    /// Right answers, and when the last one came.
    answers: (u64, Option<RunInstant>),
    /// When a loaded peer may be probed next, and for the how many-th time in a row.
    probe: (Option<RunInstant>, u32),
    /// The looks in a row that found it slow.
    slow: SlowLooks,
}

impl PeerHealth {
    fn new(name: &str, inflight_max: usize, times: SlowTimes) -> PeerHealth {
        PeerHealth {
            name: name.into(),
            permits: Arc::new(Semaphore::new(inflight_max)),
            preload_permits: Arc::new(Semaphore::new((inflight_max / 2).max(1))),
            shares: DiskShares::new(inflight_max),
            delay: Arc::default(),
            inner: Mutex::new(Inner {
                state: PeerState::Trusted,
                latency: LatencyWindow::new(),
                answers: (0, None),
                probe: (None, 0),
                slow: SlowLooks::new(times),
            }),
        }
    }

    /// The permits that fetches for one disk share.
    pub(crate) fn disk_share(&self, disk: DiskId) -> Arc<Semaphore> {
        self.shares.of(disk)
    }

    /// Asks for leave to fetch from the peer; `trial` is how long a fetch may take at most.
    pub(crate) fn admit(&self, now: RunInstant, trial: Duration) -> bool {
        let mut inner = self.inner.lock();
        match inner.state {
            PeerState::Trusted => true,
            PeerState::Penalised { until, strikes } | PeerState::OnTrial { until, strikes } => {
                let is_over = now >= until;
                if is_over {
                    inner.state = PeerState::OnTrial { until: now + trial, strikes };
                }
                is_over
            }
        }
    }

    /// Whether the peer would be asked now, without asking for leave.
    pub(crate) fn is_trusted(&self) -> bool {
        self.inner.lock().state == PeerState::Trusted
    }

    /// Notes a right answer and how long it took.
    pub(crate) fn answered(&self, time: Duration, now: RunInstant) {
        let mut inner = self.inner.lock();
        inner.latency.record(time);
        inner.answers = (inner.answers.0 + 1, Some(now));
        inner.state = PeerState::Trusted;
    }

    /// Notes a refusal: the peer is alive, and says how things are.
    pub(crate) fn refused(&self) {
        self.inner.lock().state = PeerState::Trusted;
    }

    /// Whether to probe the peer now, which is passed over because it is loaded. Where it was not for
    /// a while, probes begin anew.
    pub(crate) fn take_probe(&self, now: RunInstant) -> bool {
        let mut inner = self.inner.lock();
        let (due, streak) = inner.probe;
        let streak = match due {
            Some(due) if now < due => return false,
            Some(due) if now < due + limits::PROBE_MAX => streak,
            _ => 0,
        };
        let wait = jitter::backoff(streak, limits::PROBE_MIN, limits::PROBE_MAX);
        inner.probe = (Some(now + wait), streak.saturating_add(1));
        true
    }

    /// Sees to it that the peer is probed again at once: it answers fast.
    pub(crate) fn probe_soon(&self) {
        self.inner.lock().probe = (None, 0);
    }

    /// Notes a look that found the peer slow or not; returns whether it is to be taken for slow.
    pub(crate) fn note_look(&self, is_slow: bool, now: RunInstant) -> bool {
        self.inner.lock().slow.note(is_slow, now)
    }

    /// For how long all looks have found it slow; `None` where the last ones did not, or too few did.
    pub(crate) fn slow_for(&self) -> Option<Duration> {
        self.inner.lock().slow.slow_for()
    }

    /// Notes that a fetch was given up after `time` because another source was faster.
    pub(crate) fn overtaken(&self, time: Duration, now: RunInstant) {
        let mut inner = self.inner.lock();
        inner.latency.record(time);
        inner.slow.note_overtaken(time, now);
    }

    /// Notes that a fetch got no answer in `time`.
    pub(crate) fn timed_out(&self, time: Duration, now: RunInstant) {
        self.inner.lock().slow.note_silence(time, now);
        self.failed(now);
    }

    /// Notes that a fetch failed after `time` since no connection is to be had. Where that took long, as
    /// with a host that says nothing any more, it was silence; a port that is closed says so at once.
    pub(crate) fn unreachable(&self, time: Duration, now: RunInstant) {
        if time >= limits::LOADED_AFTER {
            self.timed_out(time, now);
        } else {
            self.failed(now);
        }
    }

    /// Whether it gave a right answer within the last `age`.
    pub(crate) fn has_answered_within(&self, age: Duration, now: RunInstant) -> bool {
        let answered = self.inner.lock().answers.1;
        answered.is_some_and(|at| now.saturating_duration_since(at) <= age)
    }

    /// How long fetches took of late; `None` where the last answer is long ago.
    fn latency(&self, now: RunInstant) -> Option<PeerLatency> {
        let inner = self.inner.lock();
        let (fetches, answered) = inner.answers;
        let age = now.saturating_duration_since(answered?);
        (age < limits::LATENCY_AGE_MAX).then(|| PeerLatency {
            name: self.name.to_string(),
            fetches,
            p50: inner.latency.p50(),
            p99: inner.latency.p99(),
        })
    }

    /// Notes that the peer is dead or stalled.
    pub(crate) fn failed(&self, now: RunInstant) {
        let mut inner = self.inner.lock();
        let strikes = match inner.state {
            PeerState::Trusted => 0,
            // Fetches that were under way when the penalty began tell nothing new.
            PeerState::Penalised { .. } => return,
            PeerState::OnTrial { strikes, .. } => strikes.saturating_add(1),
        };
        let penalty = jitter::backoff(strikes, limits::PEER_PENALTY_MIN, limits::PEER_PENALTY_MAX);
        inner.state = PeerState::Penalised { until: now + penalty, strikes };
    }

    /// Notes that the peer sent wrong content.
    pub(crate) fn lied(&self, now: RunInstant, penalty: Duration) {
        let mut inner = self.inner.lock();
        inner.state = PeerState::Penalised { until: now + penalty, strikes: u32::MAX };
    }

    /// How long to wait for the peer before a hedge, within the bounds.
    pub(crate) fn hedge_delay(&self, min: Duration, max: Duration) -> Duration {
        let inner = self.inner.lock();
        if inner.latency.samples() < limits::LATENCY_SAMPLES_MIN {
            return max;
        }
        inner.latency.p99().clamp(min, max)
    }

    /// What 99 of 100 fetches take at most; `None` where too few are known.
    pub(crate) fn p99(&self) -> Option<Duration> {
        let inner = self.inner.lock();
        (inner.latency.samples() >= limits::LATENCY_SAMPLES_MIN).then(|| inner.latency.p99())
    }
}

/// The peers met so far.
#[derive(Debug)]
pub(crate) struct PeerTable {
    peers: RwLock<HashMap<String, Arc<PeerHealth>>>,
    inflight_max: usize,
    times: SlowTimes,
}

impl PeerTable {
    pub(crate) fn new(inflight_max: usize, times: SlowTimes) -> PeerTable {
        PeerTable { peers: RwLock::default(), inflight_max, times }
    }

    /// Returns what is known of a peer.
    pub(crate) fn get(&self, name: &str) -> Arc<PeerHealth> {
        if let Some(peer) = self.peers.read().get(name) {
            return peer.clone();
        }
        let mut peers = self.peers.write();
        if peers.len() >= limits::PEERS_TRACKED_MAX {
            // Hosts come and go for years; what is forgotten is learnt again within seconds.
            peers.clear();
        }
        peers
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(PeerHealth::new(name, self.inflight_max, self.times)))
            .clone()
    }

    /// How the peers do that something new is known of, and how many ever answered.
    pub(crate) fn current(&self, now: RunInstant, slow_fetch: Duration) -> (Vec<Current>, usize) {
        let peers = self.peers.read();
        let known = peers.values().filter(|peer| peer.delay.is_known()).count();
        (peers.values().filter_map(|peer| peer.delay.current(now, slow_fetch)).collect(), known)
    }

    /// How long fetches took of late from the peers that answered.
    pub(crate) fn latencies(&self, now: RunInstant) -> Vec<PeerLatency> {
        self.peers.read().values().filter_map(|peer| peer.latency(now)).collect()
    }

    /// How many peers `is_counted` says yes to.
    pub(crate) fn count(&self, is_counted: impl Fn(&PeerHealth) -> bool) -> usize {
        self.peers.read().values().filter(|peer| is_counted(peer)).count()
    }

    /// How many peers are not trusted now.
    pub(crate) fn penalised(&self) -> usize {
        self.count(|peer| !peer.is_trusted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: Duration = Duration::from_secs(2);
    const HOUR: Duration = Duration::from_secs(3600);

    fn peer() -> PeerHealth {
        PeerHealth::new("a", 1, SlowTimes::of(Duration::from_millis(5)))
    }

    #[test]
    fn test_failed_peer_is_left_alone_for_a_growing_time() {
        let peer = peer();
        let mut now = RunInstant::unmeasured();
        let mut last = Duration::ZERO;
        for _ in 0..4 {
            assert!(peer.admit(now, TRIAL));
            peer.failed(now);
            assert!(!peer.admit(now, TRIAL));
            let PeerState::Penalised { until, .. } = peer.inner.lock().state else { panic!() };
            assert!(until - now >= last / 2 && until - now <= limits::PEER_PENALTY_MAX);
            last = until - now;
            now = until;
        }
        assert!(peer.admit(now, TRIAL), "on trial");
        assert!(!peer.admit(now, TRIAL), "one at a time");
        peer.answered(Duration::from_millis(1), RunInstant::unmeasured());
        assert!(peer.is_trusted());
    }

    #[test]
    fn test_lying_peer_is_left_alone_for_the_penalty() {
        let peer = peer();
        let now = RunInstant::unmeasured();
        peer.lied(now, HOUR);
        assert!(!peer.admit(now + HOUR - Duration::from_secs(1), TRIAL));
        assert!(peer.admit(now + HOUR, TRIAL));
    }

    #[test]
    fn test_slow_for_counts_unbroken_looks_only() {
        let peer = peer();
        let start = RunInstant::unmeasured();
        let second = Duration::from_secs(1);
        assert_eq!(peer.slow_for(), None);
        for number in 0..limits::LOADED_LOOKS_MIN {
            assert_eq!(peer.slow_for(), None, "too few looks");
            peer.note_look(true, start + number * second);
        }
        assert_eq!(peer.slow_for(), Some((limits::LOADED_LOOKS_MIN - 1) * second));
        peer.note_look(true, start + 9 * second + limits::LOOK_GAP_MAX);
        assert_eq!(peer.slow_for(), None, "nobody looked for a while");
        for number in 20..40 {
            peer.note_look(true, start + number * second);
        }
        for _ in 0..limits::RECOVERED_LOOKS {
            peer.note_look(false, start + 40 * second);
        }
        assert_eq!(peer.slow_for(), None);
        peer.overtaken(limits::LOADED_AFTER / 2, start + 41 * second);
        assert_eq!(peer.slow_for(), None);
        peer.overtaken(second, start + 42 * second);
        assert_eq!(peer.slow_for(), Some(second), "it did not answer all the while");
    }

    #[test]
    fn test_timed_out_peer_is_slow_for_long_and_penalised() {
        let peer = peer();
        let now = RunInstant::unmeasured();
        assert!(!peer.has_answered_within(HOUR, now), "never");
        peer.answered(Duration::from_millis(1), RunInstant::unmeasured());
        assert!(peer.has_answered_within(limits::STAND_IN_ANSWER_AGE, now));
        assert!(!peer.has_answered_within(limits::STAND_IN_ANSWER_AGE, now + HOUR));
        peer.timed_out(TRIAL / 2, now);
        assert_eq!(peer.slow_for(), Some(limits::LASTING_AFTER.max(TRIAL / 2)));
        assert!(!peer.is_trusted());
    }

    #[test]
    fn test_unreachable_peer_is_slow_where_it_took_long_to_see() {
        let (refused, silent) = (peer(), peer());
        let now = RunInstant::unmeasured();
        refused.unreachable(Duration::from_millis(1), now);
        silent.unreachable(TRIAL / 2, now);
        assert_eq!(refused.slow_for(), None);
        assert_eq!(silent.slow_for(), Some(limits::LASTING_AFTER.max(TRIAL / 2)));
        assert!(!refused.is_trusted() && !silent.is_trusted());
    }

    #[test]
    fn test_hedge_delay_stays_within_its_bounds() {
        let peer = peer();
        let (min, max) = (Duration::from_millis(20), Duration::from_millis(200));
        assert_eq!(peer.hedge_delay(min, max), max, "nothing known yet");
        for _ in 0..100 {
            peer.answered(Duration::from_micros(300), RunInstant::unmeasured());
        }
        assert_eq!(peer.hedge_delay(min, max), min);
        for _ in 0..1000 {
            peer.answered(Duration::from_secs(3), RunInstant::unmeasured());
        }
        assert_eq!(peer.hedge_delay(min, max), max);
    }
}
