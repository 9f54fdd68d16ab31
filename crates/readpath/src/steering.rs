//! Away from owners whose link is full, and no byte twice where this host's own link is.
//!
//! An owner is slow when one chunk from it takes longer than one from the origin and the usual way
//! between two hosts together: longer, that is, than one which the owner must read from the origin
//! first. It is *loaded*, and passed over, when it is slow for a while and stands out among this
//! host's peers, or is slow for long. Then the next in line is asked for what it holds, and only after a
//! second for what it must read from the origin as well: an owner may be slow because the chunk is cold.
//! Where all are loaded for a second the origin is asked, and only while it is as fast as ever: in a boot
//! storm everybody waits for the same chunk at once, and if all turned to the origin, those who must read
//! it for everybody would wait behind them.
//!
//! Where all sources are slow, this host's own link is to blame ([`crate::steering::sources_now`]). Then nothing
//! is asked for twice (no hedge but the one before the guest's deadline, no probe), the line stays as
//! it is, and whatever comes is kept.
//!
//! Source: the power of two choices (Mitzenmacher, IEEE TPDS 12(10), 2001), by estimated time. Differs:
//! no choice is drawn at random, since the line that the ring gives keeps a chunk at few hosts; one
//! leaves it only for a reason. ACStor has nothing of the kind: under load it can be slower than a
//! local cache (§5.6).

pub(crate) mod compression_wish;
pub(crate) mod jitter;
pub(crate) mod latency;
pub(crate) mod peer_client;
pub(crate) mod peer_health;
pub(crate) mod peer_latencies;
pub(crate) mod peers;
pub(crate) mod placement;
pub(crate) mod slow_looks;
pub(crate) mod source_delay;
pub(crate) mod sources_now;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acstor_runclock::RunInstant;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ahead::token_bucket::TokenBucket;
use crate::fetch::flight::Side;
use crate::fetch::outcome::{Bypass, PeerSkip};
use crate::fetch::sources::Sources;
use crate::limits;
use crate::steering::peer_health::PeerHealth;
use crate::steering::placement::{Candidate, Plan};
use crate::steering::slow_looks::{SlowLooks, SlowTimes};
use crate::steering::source_delay::SourceDelay;
use crate::steering::sources_now::SourcesNow;

/// What steering knows beside the estimates of the peers.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) origin: Arc<SourceDelay>,
    /// What a chunk takes at least over a link that is full.
    slow_fetch: Duration,
    times: SlowTimes,
    /// Nanoseconds that a fetch of one chunk takes where no link is full.
    usual: AtomicU64,
    /// One per chunk that is read from the origin in place of a loaded peer.
    permits: Arc<Semaphore>,
    /// What slow peers sent and is kept.
    keep_budget: TokenBucket,
    sources_now: Mutex<Option<SourcesNow>>,
    /// The looks at peers, whichever.
    peers_slow: Mutex<SlowLooks>,
    /// Since when nothing is known of the origin behind a slow link, or when it was last tried.
    origin_trial: Mutex<Option<RunInstant>>,
}

/// What a look at a peer found.
#[derive(Clone, Copy, Debug)]
struct PeerLoad {
    estimate: Duration,
    is_loaded: bool,
    /// Whether it has been slow for more than a moment.
    is_lasting: bool,
}

impl Steering {
    pub(crate) fn new(slow_fetch: Duration) -> Steering {
        let times = SlowTimes::of(slow_fetch);
        Steering {
            origin: Arc::default(),
            slow_fetch,
            times,
            usual: AtomicU64::new(0),
            permits: Arc::new(Semaphore::new(limits::BYPASS_INFLIGHT_MAX)),
            keep_budget: TokenBucket::new(
                limits::KEEP_SLOW_TOKENS_MAX,
                limits::KEEP_SLOW_TOKENS_MAX,
                0.0,
                limits::KEEP_SLOW_PER_SECOND,
            ),
            sources_now: Mutex::default(),
            peers_slow: Mutex::new(SlowLooks::new(times)),
            origin_trial: Mutex::default(),
        }
    }

    /// Notes how long a peer now takes for one chunk.
    fn note(&self, estimate: Duration) {
        let sample = estimate.min(self.slow_fetch).as_nanos() as u64;
        let usual = self.usual.load(Ordering::Relaxed);
        // Near the lower end of what is seen, so that load is not taken for usual.
        let next = match usual {
            0 => sample,
            _ if sample < usual => usual - (usual - sample) / 8,
            _ => usual + (sample - usual) / 512,
        };
        // A lost update of two racing fetches is one sample less.
        self.usual.store(next, Ordering::Relaxed);
    }

    /// What is added wherever times are compared.
    fn slack(&self) -> Duration {
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed));
        let least = self.slow_fetch.mul_f64(limits::LOADED_SLACK_MIN_RATIO);
        (usual * 2).clamp(least, self.slow_fetch)
    }

    /// What the origin takes: that its last answer is long ago is no good news.
    pub(crate) fn origin_time(&self, now: RunInstant) -> Option<Duration> {
        self.origin.estimate(now).max(self.origin.usual())
    }

    /// From which estimate on a peer counts as slow.
    fn slow_from(&self, now: RunInstant) -> Duration {
        let origin = self.origin_time(now).unwrap_or_default();
        self.slack() + origin.mul_f64(limits::LOADED_RATIO)
    }

    /// From which estimate on a peer stands out among this host's peers.
    fn stands_out_from(&self, view: &SourcesNow) -> Duration {
        view.median.mul_f64(limits::STANDS_OUT_RATIO) + self.slack()
    }

    /// Whether the origin takes what is usual for it, as far as is known.
    fn is_origin_usual(&self, now: RunInstant) -> bool {
        match (self.origin.estimate(now), self.origin.usual()) {
            (Some(estimate), Some(usual)) => {
                estimate <= usual.mul_f64(limits::ORIGIN_USUAL_RATIO) + self.slack()
            }
            _ => true,
        }
    }

    /// After how long a peer that has been slow for a while is late by what others take, whatever its own
    /// p99; `None` where the origin is not to be loaded with that.
    pub(crate) fn late_after(
        &self,
        peer: &PeerHealth,
        view: &SourcesNow,
        now: RunInstant,
    ) -> Option<Duration> {
        let is_slow = peer.slow_for().is_some_and(|time| time >= self.times.loaded_after);
        if !is_slow || view.is_all_slow || !self.is_origin_usual(now) {
            return None;
        }
        let by_origin = self.origin_time(now)?.mul_f64(limits::HEDGE_ORIGIN_RATIO);
        let by_peers = self.stands_out_from(view);
        // The estimates are those of one chunk; a burst shares the way.
        let among = u32::try_from(peer.delay.underway().max(1)).unwrap_or(u32::MAX);
        Some(by_origin.max(by_peers).saturating_mul(among))
    }

    /// Whether a host behind a slow link reads this chunk from an origin that it has learnt nothing of
    /// for a while.
    fn takes_origin_trial(&self, now: RunInstant) -> bool {
        let mut last = self.origin_trial.lock();
        if self.origin.current(now, self.slow_fetch).is_some() {
            *last = None;
            return false;
        }
        let since = *last.get_or_insert(now);
        let is_due = now.saturating_duration_since(since) >= limits::ORIGIN_TRIAL_INTERVAL;
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl Sources {
    /// Moves the loaded peers of a plan behind the others and the origin.
    pub(crate) fn steer(&self, plan: &mut Plan, side: Side) {
        if !self.config.load_aware || plan.peers.is_empty() || side == Side::Peer {
            return;
        }
        let now = self.clock.now();
        let view = self.sources_now(now);
        if !view.is_own_link_slow {
            *self.steering.origin_trial.lock() = None;
        } else {
            if side == Side::Guest && self.steering.takes_origin_trial(now) {
                plan.origin_permit = self.bypass_permit();
                if plan.origin_permit.is_some() {
                    // In its place, not beside it: no byte comes twice.
                    plan.loaded = std::mem::take(&mut plan.peers);
                    self.metrics.bypass(Bypass::Trial);
                }
            }
            return;
        }
        let loads: Vec<Option<PeerLoad>> =
            plan.peers.iter().map(|peer| self.look(&peer.health, &view, now)).collect();
        if !loads.iter().flatten().any(|load| load.is_loaded) {
            return;
        }
        let is_free = |load: &Option<PeerLoad>| load.is_none_or(|load| !load.is_loaded);
        let outcome = match loads.iter().position(is_free) {
            // No hedge shall wait for one that has been loaded for long or is silent.
            Some(0) => return self.pass_over(plan, &loads, |load| load.is_lasting),
            Some(free) if !loads[..free].iter().flatten().all(|load| load.is_lasting) => {
                return self.hold(plan, free, now);
            }
            Some(_) => Bypass::Peer,
            // A guess is not worth a read of the origin, and a preload can wait.
            None if side != Side::Guest => return,
            None => {
                let all: Vec<PeerLoad> = loads.iter().copied().flatten().collect();
                plan.origin_permit =
                    self.may_bypass(&all, now).then(|| self.bypass_permit()).flatten();
                if plan.origin_permit.is_none() {
                    self.metrics.bypass(Bypass::Denied);
                    return;
                }
                Bypass::Origin
            }
        };
        self.metrics.bypass(outcome);
        self.pass_over(plan, &loads, |load| load.is_loaded);
        if !view.is_all_slow {
            plan.probe = plan.loaded.iter().find(|peer| peer.health.take_probe(now)).cloned();
        }
    }

    /// Moves the peers of which `is_passed` holds behind the origin.
    fn pass_over(
        &self,
        plan: &mut Plan,
        loads: &[Option<PeerLoad>],
        is_passed: impl Fn(&PeerLoad) -> bool,
    ) {
        for (peer, load) in std::mem::take(&mut plan.peers).into_iter().zip(loads) {
            let is_passed = load.as_ref().is_some_and(&is_passed);
            if is_passed { plan.loaded.push(peer) } else { plan.peers.push(peer) }
        }
        self.metrics.peer_skips(PeerSkip::Loaded, plan.loaded.len() as u64);
    }

    /// Has the free peer at `free` asked before those that are loaded for a moment, for what it holds:
    /// perhaps they are slow because the chunk is cold, and nobody else is to read the origin for it.
    fn hold(&self, plan: &mut Plan, free: usize, now: RunInstant) {
        let candidate = &plan.peers[free];
        // Not one that may be silent itself.
        let may_stand_in = candidate.health.has_answered_within(limits::STAND_IN_ANSWER_AGE, now)
            && candidate.health.delay.waiting(now) <= self.steering.slow_from(now);
        plan.stand_in = may_stand_in.then(|| candidate.clone());
        self.metrics.bypass(if may_stand_in { Bypass::Held } else { Bypass::Denied });
    }

    /// Whether the origin may take the place of peers that are all loaded.
    fn may_bypass(&self, loads: &[PeerLoad], now: RunInstant) -> bool {
        let steering = &self.steering;
        let is_lasting = loads.iter().all(|load| load.is_lasting);
        let drastic = steering.slow_from(now).mul_f64(limits::DRASTIC_RATIO);
        let is_drastic = loads.iter().all(|load| load.estimate > drastic);
        is_lasting && (is_drastic || steering.is_origin_usual(now))
    }

    /// Leave to read one chunk more from the origin; none while it is down or has enough of them.
    fn bypass_permit(&self) -> Option<OwnedSemaphorePermit> {
        if !self.origin.queue().health.is_up() {
            return None;
        }
        self.steering.permits.clone().try_acquire_owned().ok()
    }

    /// Looks at a peer; `None` where it is not slow or nothing is known. What was known already is
    /// noted only where it is good news, or one would go by one slow answer for seconds.
    fn look(&self, peer: &PeerHealth, view: &SourcesNow, now: RunInstant) -> Option<PeerLoad> {
        let estimate = peer.delay.longest(now)?;
        let limit = self.steering.slow_from(now);
        let is_news = estimate <= limit || peer.delay.waiting(now) > limit;
        if is_news && !self.note_look(peer, estimate, now) {
            return None;
        }
        self.load_of(peer, estimate, view)
    }

    /// Notes that a peer takes so long; returns whether it is to be taken for slow.
    fn note_look(&self, peer: &PeerHealth, estimate: Duration, now: RunInstant) -> bool {
        let is_slow = peer.note_look(estimate > self.steering.slow_from(now), now);
        self.steering.peers_slow.lock().note(is_slow, now);
        is_slow
    }

    /// What the looks so far say of a peer that is slow.
    fn load_of(
        &self,
        peer: &PeerHealth,
        estimate: Duration,
        view: &SourcesNow,
    ) -> Option<PeerLoad> {
        // Where all are, those that were seldom asked are as well.
        let all_slow_for = self.steering.peers_slow.lock().slow_for();
        let all_slow_for = all_slow_for.filter(|time| *time >= self.steering.times.lasting_after);
        let slow_for = peer.slow_for().max(all_slow_for)?;
        let stands_out = estimate > self.steering.stands_out_from(view);
        let times = self.steering.times;
        let needed = if stands_out { times.loaded_after } else { times.lasting_after };
        let is_lasting = slow_for >= times.lasting_after;
        Some(PeerLoad { estimate, is_loaded: slow_for >= needed, is_lasting })
    }

    /// How all sources do together; taken anew every 20 ms.
    pub(crate) fn sources_now(&self, now: RunInstant) -> SourcesNow {
        let mut kept = self.steering.sources_now.lock();
        match *kept {
            Some(view) if view.is_recent(now) => view,
            before => {
                let (origin, slow_fetch) = (&self.steering.origin, self.steering.slow_fetch);
                *kept.insert(SourcesNow::take(&self.peer_table, origin, before, slow_fetch, now))
            }
        }
    }

    /// Whether this host's own link is what makes its sources slow.
    pub(crate) fn is_own_link_slow(&self) -> bool {
        self.config.load_aware && self.sources_now(self.clock.now()).is_own_link_slow
    }

    /// Whether a peer is passed over where there is somebody else to ask.
    pub(crate) fn is_peer_loaded(&self, peer: &PeerHealth) -> bool {
        if !self.config.load_aware {
            return false;
        }
        let now = self.clock.now();
        let Some(estimate) = peer.delay.estimate(now) else { return false };
        if estimate <= self.steering.slow_from(now) {
            return false;
        }
        self.load_of(peer, estimate, &self.sources_now(now)).is_some_and(|load| load.is_loaded)
    }

    /// Has a loaded peer probed again soon where a probe took no longer than fetches should.
    pub(crate) fn note_probe(&self, peer: &PeerHealth, time: Duration) {
        let now = self.clock.now();
        let is_slow = time > self.steering.slow_from(now);
        if is_slow {
            peer.note_look(true, now);
        } else {
            peer.probe_soon();
        }
    }

    /// Whether a chunk from the peer takes much longer than from the others now.
    pub(crate) fn is_slow_beside_others(&self, peer: &PeerHealth) -> bool {
        let now = self.clock.now();
        let limit = self.steering.stands_out_from(&self.sources_now(now));
        peer.delay.estimate(now).is_some_and(|estimate| estimate > limit)
    }

    /// How long after its start a fetch counts as late; `peer` is `None` for the origin. `is_rescue`: the
    /// share of hedges was used up. `allowed`: from the start to the deadline of whoever waits.
    pub(crate) fn hedge_after(
        &self,
        peer: Option<&PeerHealth>,
        is_rescue: bool,
        allowed: Duration,
    ) -> Duration {
        let (min, max) = (self.config.hedge_min, self.config.hedge_max);
        if self.is_own_link_slow() {
            return self.rescue_after(peer, allowed);
        }
        if is_rescue {
            return max;
        }
        let now = self.clock.now();
        let Some(peer) = peer else {
            return self
                .steering
                .origin
                .estimate(now)
                .map_or(max, |time| time.mul_f64(limits::HEDGE_ORIGIN_RATIO).clamp(min, max));
        };
        let own = peer.hedge_delay(min, max);
        if !self.config.load_aware {
            return own;
        }
        // A p99 that was learnt while the peer was slow must not put the hedge off.
        let view = self.sources_now(now);
        let late = self.steering.late_after(peer, &view, now).unwrap_or(max);
        own.min(late.max(min))
    }

    /// How long a host behind a slow link waits before it asks for a chunk a second time.
    fn rescue_after(&self, peer: Option<&PeerHealth>, allowed: Duration) -> Duration {
        let half = allowed / 2;
        let p99 = peer.and_then(PeerHealth::p99);
        p99.map_or(half, |p99| (p99 * 2).max(self.config.hedge_max).min(half))
    }

    /// How many peers are loaded now.
    pub(crate) fn loaded_peers(&self) -> usize {
        self.peer_table.count(|peer| self.is_peer_loaded(peer))
    }

    /// Whether what a peer sent shall be kept here lest it be fetched a second time over a slow link.
    pub(crate) fn keeps_of_slow(&self, peer: &Candidate) -> bool {
        if !self.config.load_aware {
            return false;
        }
        let now = self.clock.now();
        let Some(estimate) = peer.health.delay.estimate(now) else { return false };
        self.steering.note(estimate);
        let estimate = peer.health.delay.longest(now).unwrap_or(estimate);
        let is_slow = self.note_look(&peer.health, estimate, now);
        self.sources_now(now).is_own_link_slow
            || (is_slow && self.steering.keep_budget.try_take(now))
    }
}
