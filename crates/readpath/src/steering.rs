//! The selection of this host, with its locks, permits and metrics around it.
//!
//! What is decided, and why, is `acstor_selection`; here is what a pure crate cannot have. Locks: the
//! selector's may be taken before the table's and a peer's, never after one; nobody holds two peers'.

pub(crate) mod peer_client;
pub(crate) mod peer_latencies;
pub(crate) mod peer_table;
pub(crate) mod peers;
pub(crate) mod placement;
pub(crate) mod underway;

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::Told;
use acstor_ring::RingHandle;
use acstor_runclock::{RunClock, RunInstant};
use acstor_selection::{
    Choice, CompressionCost, HedgeCase, Moment, Overview, PeerSample, Prefer, SelectionConfig,
    Selector, TokenBucket, ToldLoad, limits, transfer_time,
};
use acstor_types::Oid;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ReadPathConfig;
use crate::fetch::flight::Priority;
use crate::fetch::outcome::{Bypass, PeerSkip};
use crate::observe::metrics::Metrics;
use crate::origin::origin_queue::OriginQueue;
use crate::steering::peer_table::{Peer, PeerTable};
use crate::steering::placement::{Candidate, Placement, Plan};
use crate::steering::underway::{FetchFrom, Underway};

/// Choice of the sources of a chunk, of their order, and of the time to ask another.
pub(crate) struct Steering {
    clock: RunClock,
    config: SelectionConfig,
    /// Bytes of a chunk.
    chunk_bytes: u64,
    pub(crate) placement: Placement,
    pub(crate) peers: PeerTable,
    selector: Mutex<Selector>,
    /// One per chunk that is read from the origin in place of an overloaded peer.
    origin_permits: Arc<Semaphore>,
    pub(crate) hedge_budget: Budget,
    pub(crate) retry_budget: Budget,
    origin: Arc<OriginQueue>,
    metrics: Arc<Metrics>,
}

/// A token bucket that tasks share.
pub(crate) struct Budget(Mutex<TokenBucket>);

impl Budget {
    /// Notes a first attempt.
    pub(crate) fn deposit(&self) {
        self.0.lock().deposit();
    }

    /// Notes that the source answered.
    pub(crate) fn earn(&self, tokens: f64) {
        self.0.lock().earn(tokens);
    }

    /// Takes a token for a second attempt; `false`: there is none.
    pub(crate) fn try_take(&self, now: RunInstant) -> bool {
        self.0.lock().try_take(moment(now))
    }
}

/// A moment of running time as the selection counts time.
pub(crate) fn moment(now: RunInstant) -> Moment {
    Moment::from_nanos(now.nanos())
}

/// Randomness for a jitter, in [0, 1).
pub(crate) fn jitter() -> f64 {
    #[cfg(test)]
    if let Some(unit) = FIXED_JITTER.get() {
        return unit;
    }
    rand::random()
}

#[cfg(test)]
thread_local! {
    /// Fixed value in place of randomness, in a test that compares decisions.
    pub(crate) static FIXED_JITTER: std::cell::Cell<Option<f64>> = const { std::cell::Cell::new(None) };
}

impl Steering {
    pub(crate) fn new(
        config: &ReadPathConfig,
        rings: Arc<RingHandle>,
        clock: RunClock,
        origin: Arc<OriginQueue>,
        metrics: Arc<Metrics>,
        chunk_bytes: u64,
    ) -> Steering {
        let selection = config.selection();
        let selector = Selector::new(selection);
        Steering {
            clock,
            config: selection,
            chunk_bytes,
            placement: Placement::new(rings, config),
            peers: PeerTable::new(config.peer_inflight_max, selector.times()),
            selector: Mutex::new(selector),
            origin_permits: Arc::new(Semaphore::new(limits::ORIGIN_READS_MAX)),
            hedge_budget: Budget(Mutex::new(TokenBucket::for_hedges(config.hedge_share_percent))),
            retry_budget: Budget(Mutex::new(TokenBucket::for_retries())),
            origin,
            metrics,
        }
    }

    fn now(&self) -> Moment {
        moment(self.clock.now())
    }

    /// Returns the overview of all sources; taken anew where that is old.
    fn overview(&self, selector: &mut Selector, now: Moment) -> Overview {
        selector.overview(now).unwrap_or_else(|| {
            let readings = self.peers.readings(self.config.slow_fetch, now);
            selector.refresh(readings, now)
        })
    }

    /// As [`Steering::overview`], where loads are of interest.
    fn overview_of_loads(&self, selector: &mut Selector, now: Moment) -> Option<Overview> {
        self.config.load_aware.then(|| self.overview(selector, now))
    }

    /// Returns the plan of sources for the chunk at `oid` on behalf of `priority`.
    pub(crate) fn plan(&self, oid: Oid, priority: Priority) -> Plan {
        let mut plan = self.placement.plan(oid, &self.peers);
        self.steer(&mut plan, priority);
        plan
    }

    /// Moves the overloaded peers of a plan behind the others and the origin.
    pub(crate) fn steer(&self, plan: &mut Plan, priority: Priority) {
        if !self.config.load_aware || plan.peers.is_empty() || priority.is_of_peer() {
            return;
        }
        let now = self.now();
        let choice = self.choose(&plan.peers, self.is_guest(priority), now);
        match choice {
            Choice::InOrder => {}
            Choice::FirstIsWell { passed } => self.pass_over(plan, |at| passed.contains(at)),
            Choice::Alternate(position) => {
                plan.alternate = Some(plan.peers[position].clone());
                self.metrics.bypass(Bypass::Held);
            }
            Choice::NoAlternate | Choice::OriginBusy => self.metrics.bypass(Bypass::Denied),
            Choice::NextPeer { passed, may_probe } => {
                self.metrics.bypass(Bypass::Peer);
                self.pass_over(plan, |at| passed.contains(at));
                self.take_probe(plan, may_probe, now);
            }
            Choice::Origin { passed, may_probe } => {
                plan.origin_permit = self.origin_permit();
                if plan.origin_permit.is_none() {
                    self.metrics.bypass(Bypass::Denied);
                    return;
                }
                self.metrics.bypass(Bypass::Origin);
                self.pass_over(plan, |at| passed.contains(at));
                self.take_probe(plan, may_probe, now);
            }
            Choice::OriginTrial => self.ask_origin_first(plan, Bypass::Trial),
            Choice::OriginFirst => self.ask_origin_first(plan, Bypass::Faster),
        }
    }

    /// Returns whether a guest waits for a chunk, or will soon, where time counts more than the origin's
    /// bytes.
    fn is_guest(&self, priority: Priority) -> bool {
        match priority {
            Priority::Guest => true,
            Priority::Ahead => self.config.prefer == Prefer::BootTime,
            _ => false,
        }
    }

    /// Moves all peers of a plan behind the origin, where that may be read. In their place, not beside
    /// them: no byte comes twice.
    fn ask_origin_first(&self, plan: &mut Plan, reason: Bypass) {
        plan.origin_permit = self.origin_permit();
        if plan.origin_permit.is_some() {
            plan.passed = std::mem::take(&mut plan.peers);
            self.metrics.bypass(reason);
        }
    }

    fn choose(&self, line: &[Candidate], is_guest: bool, now: Moment) -> Choice {
        let mut selector = self.selector.lock();
        let view = self.overview(&mut selector, now);
        let mut samples: Vec<PeerSample> = Vec::new();
        if !view.is_own_link_slow {
            let sample = |one: &Candidate| selector.sample(&mut one.peer.health(), &view, now);
            samples.extend(line.iter().map(sample));
        }
        selector.choose(&samples, &view, is_guest, now)
    }

    /// Moves the peers at the positions of which `is_passed` holds behind the origin.
    fn pass_over(&self, plan: &mut Plan, is_passed: impl Fn(usize) -> bool) {
        for (position, peer) in std::mem::take(&mut plan.peers).into_iter().enumerate() {
            if is_passed(position) { plan.passed.push(peer) } else { plan.peers.push(peer) }
        }
        self.metrics.peer_skips(PeerSkip::Loaded, plan.passed.len() as u64);
    }

    fn take_probe(&self, plan: &mut Plan, may_probe: bool, now: Moment) {
        let is_due = |one: &&Candidate| one.peer.health().take_probe(now, jitter());
        if may_probe {
            plan.probe = plan.passed.iter().find(is_due).cloned();
        }
    }

    /// Leave to read one chunk more from the origin in place of a peer; none while it is down or has enough
    /// of them.
    fn origin_permit(&self) -> Option<OwnedSemaphorePermit> {
        if !self.origin.health.is_up() {
            return None;
        }
        let taken = limits::ORIGIN_READS_MAX - self.origin_permits.available_permits();
        if taken >= self.selector.lock().origin_reads(self.now()) {
            return None;
        }
        self.origin_permits.clone().try_acquire_owned().ok()
    }

    /// Takes over what is free of this host's own link inwards, bytes per second; `None`: nobody tells.
    pub(crate) fn set_free_rate(&self, rate: Option<u64>) {
        let receiving = rate.map(|rate| transfer_time(self.chunk_bytes, rate));
        self.selector.lock().set_receiving(receiving);
    }

    /// Takes over what compression costs and saves.
    pub(crate) fn set_compression(&self, cost: CompressionCost) {
        self.selector.lock().set_compression(cost);
    }

    /// Notes the load that a peer told with an answer.
    pub(crate) fn hear(&self, peer: &Peer, told: Told) {
        let Told { wait, free_rate, at } = told;
        peer.health().hear(ToldLoad::new(wait, free_rate, self.chunk_bytes, moment(at)));
    }

    /// Returns whether this host's own link is what makes its sources slow.
    pub(crate) fn is_own_link_slow(&self) -> bool {
        let mut selector = self.selector.lock();
        let view = self.overview_of_loads(&mut selector, self.now());
        view.is_some_and(|view| view.is_own_link_slow)
    }

    /// Returns whether a peer is passed over where there is somebody else to ask.
    fn is_overloaded(&self, peer: &Peer) -> bool {
        let now = self.now();
        let mut selector = self.selector.lock();
        if selector.slow_estimate(&peer.health(), now).is_none() {
            return false;
        }
        let view = self.overview(&mut selector, now);
        selector.is_overloaded(&peer.health(), &view, now)
    }

    /// Returns the number of peers that are overloaded now.
    pub(crate) fn overloaded_peers(&self) -> usize {
        self.peers.all().iter().filter(|peer| self.is_overloaded(peer)).count()
    }

    /// Returns whether the peer may compress its answer.
    pub(crate) fn accepts_compressed(&self, peer: &Peer) -> bool {
        if !self.config.compress_slow {
            return false;
        }
        let now = self.now();
        let mut selector = self.selector.lock();
        let view = self.overview(&mut selector, now);
        let is_accepted = selector.accepts_compressed(&peer.health(), &view, now);
        drop(selector);
        if is_accepted {
            self.metrics.compression_welcomed();
        }
        is_accepted
    }

    /// Notes that an answer of a peer was right; returns whether its chunk is kept lest it be fetched a
    /// second time over a slow link.
    pub(crate) fn keeps(&self, peer: &Peer) -> bool {
        if !self.config.load_aware {
            return false;
        }
        let now = self.now();
        let mut selector = self.selector.lock();
        let view = self.overview(&mut selector, now);
        selector.keeps(&mut peer.health(), &view, now)
    }

    /// Has an overloaded peer probed again soon where a probe took no longer than fetches should.
    pub(crate) fn note_probe(&self, peer: &Peer, time: Duration) {
        let selector = self.selector.lock();
        selector.note_probe(&mut peer.health(), time, self.now());
    }

    /// Returns the time after its start at which a fetch counts as late; `peer` is `None` for the
    /// origin. `is_rescue`: the share of hedges was used up. `allowed`: from the start to the
    /// deadline of whoever waits.
    pub(crate) fn hedge_after(
        &self,
        peer: Option<&Peer>,
        is_rescue: bool,
        allowed: Duration,
    ) -> Duration {
        let now = self.now();
        let mut selector = self.selector.lock();
        let view = self.overview_of_loads(&mut selector, now);
        let case = HedgeCase { view: view.as_ref(), is_rescue, allowed };
        match peer {
            Some(peer) => selector.hedge_after(Some(&*peer.health()), case, now),
            None => selector.hedge_after(None, case, now),
        }
    }

    /// Notes that a chunk was asked of a peer.
    pub(crate) fn begin(self: &Arc<Self>, peer: &Arc<Peer>) -> Underway {
        let fetch = peer.health().begin(self.now());
        Underway::new(self.clone(), FetchFrom::Peer(peer.clone()), fetch)
    }

    /// Notes that a chunk was asked of the origin.
    pub(crate) fn begin_origin(self: &Arc<Self>) -> Underway {
        let fetch = self.selector.lock().begin_origin(self.now());
        Underway::new(self.clone(), FetchFrom::Origin, fetch)
    }

    /// Returns the time that the origin takes for a chunk now.
    #[cfg(test)]
    pub(crate) fn origin_estimate(&self) -> Option<Duration> {
        self.selector.lock().origin().estimate(self.now())
    }
}
