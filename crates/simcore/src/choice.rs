//! The choice of sources: the data plane's own ([`acstor_selection`]), one selector per host and
//! one peer's health per pair of hosts that met.
//!
//! What is here carries the simulation's events to it and its decisions back, as `crates/readpath`
//! does (`steering.rs`, `attempt.rs`, `round.rs`).

use std::collections::HashMap;
use std::time::Duration;

use acstor_selection::{
    Choice as Chosen, CompressionCost, Fetch, HedgeCase, Moment, Overview, PeerHealth, PeerSample,
    PeerSet, Prefer, SelectionConfig, Selector, TokenBucket, is_silence, peer_time,
};

use crate::connections::Connection;
use crate::random::Random;
use crate::rules::{Compress, Rules};

/// Order in which the sources of a chunk are asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// True if this host's own link is full.
    pub(crate) is_own_link_slow: bool,
    /// True if the origin is asked before all peers: it is faster, or is to be known.
    pub(crate) is_origin_first: bool,
    /// Position of who is asked first, and only for what it holds.
    pub(crate) alternate: Option<usize>,
    /// Positions of who comes after the origin, as bits.
    pub(crate) passed: u32,
    /// Position of who is asked beside, to see how long it takes.
    pub(crate) probe: Option<usize>,
    /// True if the origin takes the place of all.
    pub(crate) is_bypass: bool,
}

impl Order {
    /// Returns whether the origin is read in the place of peers.
    pub(crate) fn wants_origin(&self) -> bool {
        self.is_origin_first || self.is_bypass
    }
}

/// Reason for which a fetch from a peer brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer said that it has nothing.
    Refused,
    /// It said nothing within the deadline.
    TimedOut,
    /// There is no connection to it.
    Unreachable,
}

/// One fetch under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    fetch: Fetch,
    host: u32,
    /// `None`: the origin.
    peer: Option<u32>,
    started: Moment,
}

/// Knowledge of one host about a peer.
#[derive(Debug)]
struct Peer {
    health: PeerHealth,
    connection: Connection,
}

/// Knowledge of one host about its sources.
#[derive(Debug)]
struct Host {
    selector: Selector,
    hedges: TokenBucket,
    /// Side by side: the overview of all is taken 50 times a second.
    peers: Vec<Peer>,
    /// Index of each peer in `peers`.
    places: HashMap<u32, usize>,
}

/// Knowledge of all hosts about their sources.
#[derive(Debug)]
pub(crate) struct Choice {
    hosts: Vec<Host>,
    /// By number of the attempt.
    under_way: Vec<Option<UnderWay>>,
}

fn moment(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9).round() as i64)
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

impl Host {
    fn new(rules: &Rules) -> Host {
        let config = SelectionConfig {
            load_aware: rules.load_aware,
            slow_fetch: duration(rules.slow_fetch),
            compress_slow: rules.compress == Compress::WhereSlow,
            hedge_min: duration(rules.hedge_min),
            hedge_max: duration(rules.hedge_max),
            prefer: if rules.boot_time { Prefer::BootTime } else { Prefer::OriginBytes },
        };
        Host {
            selector: Selector::new(config),
            hedges: TokenBucket::for_hedges((rules.hedge_share * 100.0).round() as u32),
            peers: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Returns the knowledge of a peer, and the selector that judges it.
    fn peer(&mut self, peer: u32) -> (&mut Peer, &mut Selector) {
        let place = *self.places.entry(peer).or_insert(self.peers.len());
        if place == self.peers.len() {
            let health = PeerHealth::new(self.selector.times());
            self.peers.push(Peer { health, connection: Connection::default() });
        }
        (&mut self.peers[place], &mut self.selector)
    }

    /// Returns the overview of all sources.
    fn overview(&mut self, rules: &Rules, now: Moment) -> Overview {
        let mut view = self.selector.overview(now).unwrap_or_else(|| {
            let slow_fetch = self.selector.config().slow_fetch;
            let readings =
                self.peers.iter().map(|peer| peer.health.delay().reading(slow_fetch, now));
            self.selector.refresh(readings, now)
        });
        view.is_own_link_slow &= rules.own_link;
        view
    }

    fn sample(&mut self, peer: u32, view: &Overview, now: Moment) -> PeerSample {
        let (peer, selector) = self.peer(peer);
        selector.sample(&mut peer.health, view, now)
    }

    /// Chooses the peer to probe of those at some positions: the first whose time has come.
    fn choose_probe(
        &mut self,
        peers: &[u32],
        passed: PeerSet,
        random: &mut Random,
        now: Moment,
    ) -> Option<usize> {
        let mut positions = (0..peers.len()).filter(|at| passed.contains(*at));
        positions.find(|at| self.peer(peers[*at]).0.health.take_probe(now, random.unit()))
    }
}

impl Choice {
    pub(crate) fn new(rules: &Rules, hosts: u32) -> Choice {
        Choice { hosts: (0..hosts).map(|_| Host::new(rules)).collect(), under_way: Vec::new() }
    }

    /// The number of the origin.
    fn origin(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Returns whether whatever a host asks is late: its own link is full, nobody else's.
    pub(crate) fn is_own_link_slow(&mut self, rules: &Rules, host: u32, now: f64) -> bool {
        rules.load_aware && self.hosts[host as usize].overview(rules, moment(now)).is_own_link_slow
    }

    /// Returns how long a peer may take of the time that is left until the reader's deadline.
    pub(crate) fn peer_deadline(&mut self, rules: &Rules, host: u32, left: f64, now: f64) -> f64 {
        let is_slow = self.is_own_link_slow(rules, host, now);
        let time = peer_time(is_slow, duration(left), duration(rules.peer_deadline));
        time.as_secs_f64().min(left)
    }

    /// Asks for leave to fetch from a peer; `allowed` is how long it may take.
    pub(crate) fn admit(&mut self, host: u32, peer: u32, allowed: f64, now: f64) -> bool {
        let (peer, _) = self.hosts[host as usize].peer(peer);
        peer.health.admit(duration(allowed), moment(now))
    }

    /// Returns the reads of the origin in the place of peers that a host may have under way.
    pub(crate) fn origin_reads(&self, host: u32, now: f64) -> usize {
        self.hosts[host as usize].selector.origin_reads(moment(now))
    }

    /// Returns whether a peer has not failed lately.
    pub(crate) fn is_well(&mut self, host: u32, peer: u32) -> bool {
        let (peer, _) = self.hosts[host as usize].peer(peer);
        peer.health.breaker().is_closed()
    }

    /// Returns whether a peer is asked to compress a chunk that takes `chunk_time` over what is free of the
    /// two links.
    pub(crate) fn asks_packed(
        &mut self,
        rules: &Rules,
        (host, peer): (u32, u32),
        chunk_time: f64,
        now: f64,
    ) -> bool {
        if rules.compress != Compress::WhereSlow {
            return rules.compress == Compress::Always;
        }
        if CompressionCost::default().pays(duration(chunk_time)) {
            return true;
        }
        let host = &mut self.hosts[host as usize];
        let view = host.overview(rules, moment(now));
        let (peer, selector) = host.peer(peer);
        selector.accepts_compressed(&peer.health, &view, moment(now))
    }

    /// Notes that a chunk was asked for.
    pub(crate) fn begin(&mut self, attempt: u32, host: u32, source: u32, now: f64) {
        let peer = (source != self.origin()).then_some(source);
        let (of, started) = (&mut self.hosts[host as usize], moment(now));
        let fetch = match peer {
            Some(peer) => of.peer(peer).0.health.begin(started),
            None => of.selector.begin_origin(started),
        };
        if attempt as usize >= self.under_way.len() {
            self.under_way.resize(attempt as usize + 1, None);
        }
        self.under_way[attempt as usize] = Some(UnderWay { fetch, host, peer, started });
    }

    /// Notes a fetch from a peer that somebody waits for, of which a share may be hedged.
    pub(crate) fn earn_hedge(&mut self, host: u32) {
        self.hosts[host as usize].hedges.deposit();
    }

    /// Takes leave for a hedge; `false`: the share is used up.
    pub(crate) fn take_hedge(&mut self, host: u32, now: f64) -> bool {
        self.hosts[host as usize].hedges.try_take(moment(now))
    }

    /// Ends a fetch, if it has not ended; returns what it was, what is known of its peer, and the
    /// host's selector.
    fn end(&mut self, attempt: u32, is_answered: bool, now: f64) -> Option<(UnderWay, &mut Host)> {
        let under_way = self.under_way.get_mut(attempt as usize)?.take()?;
        let host = &mut self.hosts[under_way.host as usize];
        match under_way.peer {
            Some(peer) => host.peer(peer).0.health.end(under_way.fetch, is_answered, moment(now)),
            None => host.selector.end_origin(under_way.fetch, is_answered, moment(now)),
        }
        Some((under_way, host))
    }

    /// Notes the right answer of a source, and returns whether its chunk is kept lest it be fetched
    /// a second time over a slow link.
    pub(crate) fn answered(&mut self, rules: &Rules, attempt: u32, now: f64) -> bool {
        let Some((under_way, host)) = self.end(attempt, true, now) else { return false };
        let (now, Some(number)) = (moment(now), under_way.peer) else { return false };
        host.peer(number).0.health.answered(now.since(under_way.started), now);
        let view = host.overview(rules, now);
        let (peer, selector) = host.peer(number);
        selector.keeps(&mut peer.health, &view, now)
    }

    /// Notes the answer of a loaded peer that was asked to see how long it takes.
    pub(crate) fn answered_probe(&mut self, attempt: u32, now: f64) {
        let Some((under_way, host)) = self.end(attempt, true, now) else { return };
        if let Some(peer) = under_way.peer {
            let (peer, selector) = host.peer(peer);
            let now = moment(now);
            selector.note_probe(&mut peer.health, now.since(under_way.started), now);
        }
    }

    /// Notes that a fetch was given up because another source was faster.
    pub(crate) fn overtaken(&mut self, attempt: u32, now: f64) {
        let Some((under_way, host)) = self.end(attempt, false, now) else { return };
        if let Some(peer) = under_way.peer {
            let now = moment(now);
            host.peer(peer).0.health.overtaken(now.since(under_way.started), now);
        }
    }

    /// Notes the end of a fetch that tells nothing but how long it has taken.
    pub(crate) fn dropped(&mut self, attempt: u32, now: f64) {
        self.end(attempt, false, now);
    }

    /// Notes that a fetch brought nothing; `allowed` is how long it was allowed to take.
    pub(crate) fn failed(
        &mut self,
        rules: &Rules,
        attempt: u32,
        failure: Failure,
        allowed: f64,
        random: &mut Random,
        now: f64,
    ) {
        let Some((under_way, host)) = self.end(attempt, false, now) else { return };
        let Some(peer) = under_way.peer else { return };
        let (health, now) = (&mut host.peer(peer).0.health, moment(now));
        let time = now.since(under_way.started);
        match failure {
            Failure::Refused => health.refused(),
            Failure::TimedOut => {
                if is_silence(time, duration(allowed), duration(rules.peer_deadline)) {
                    health.timed_out(time, now, random.unit());
                }
            }
            Failure::Unreachable => health.unreachable(time, now, random.unit()),
        }
    }

    /// Returns how long a fetch from a dead peer waits before it fails.
    pub(crate) fn silence(
        &mut self,
        rules: &Rules,
        attempt: u32,
        random: &mut Random,
        now: f64,
    ) -> f64 {
        let Some(Some(under_way)) = self.under_way.get(attempt as usize) else { return 0.0 };
        let Some(number) = under_way.peer else { return 0.0 };
        let (peer, _) = self.hosts[under_way.host as usize].peer(number);
        let is_open = peer.health.has_answered_within(Duration::MAX, moment(now));
        peer.connection.silence(rules, is_open, random, now)
    }

    /// Returns the order in which the peers of a line and the origin are asked for a chunk.
    ///
    /// `is_guest`: a guest waits for it. For nobody else a peer is probed, or the origin read in the
    /// place of peers.
    pub(crate) fn order(
        &mut self,
        rules: &Rules,
        host: u32,
        (peers, is_guest): (&[u32], bool),
        random: &mut Random,
        now: f64,
    ) -> Order {
        if !rules.load_aware || peers.is_empty() {
            return Order::default();
        }
        let (host, now) = (&mut self.hosts[host as usize], moment(now));
        let view = host.overview(rules, now);
        let is_own_link_slow = view.is_own_link_slow;
        let sampled: &[u32] = if is_own_link_slow { &[] } else { peers };
        let samples: Vec<PeerSample> =
            sampled.iter().map(|peer| host.sample(*peer, &view, now)).collect();
        let plain = Order { is_own_link_slow, ..Order::default() };
        let bits = |set: PeerSet| {
            (0..peers.len()).filter(|at| set.contains(*at)).fold(0, |bits, at| bits | 1 << at)
        };
        match host.selector.choose(&samples, &view, is_guest, now) {
            Chosen::InOrder | Chosen::NoAlternate | Chosen::OriginBusy => plain,
            Chosen::OriginTrial | Chosen::OriginFirst => Order { is_origin_first: true, ..plain },
            Chosen::Alternate(at) => Order { alternate: Some(at), ..plain },
            Chosen::FirstIsWell { passed } => Order { passed: bits(passed), ..plain },
            Chosen::NextPeer { passed, may_probe } => {
                let probe =
                    (may_probe && is_guest).then(|| host.choose_probe(peers, passed, random, now));
                Order { passed: bits(passed), probe: probe.flatten(), ..plain }
            }
            Chosen::Origin { passed, may_probe } => {
                let probe = may_probe.then(|| host.choose_probe(peers, passed, random, now));
                let (passed, probe) = (bits(passed), probe.flatten());
                Order { passed, probe, is_bypass: true, ..plain }
            }
        }
    }

    /// Returns after how long a fetch is late; `is_rescue`: the share of hedges is used up,
    /// `allowed` is the time from its start to the deadline of who waits.
    pub(crate) fn hedge_after(
        &mut self,
        rules: &Rules,
        attempt: u32,
        is_rescue: bool,
        allowed: f64,
        now: f64,
    ) -> f64 {
        let Some(Some(under_way)) = self.under_way.get(attempt as usize) else { return 0.0 };
        let (host, now) = (&mut self.hosts[under_way.host as usize], moment(now));
        let view = rules.load_aware.then(|| host.overview(rules, now));
        let case = HedgeCase { view: view.as_ref(), is_rescue, allowed: duration(allowed) };
        let place = under_way.peer.and_then(|peer| host.places.get(&peer));
        let health = place.map(|place| &host.peers[*place].health);
        host.selector.hedge_after(health, case, now).as_secs_f64()
    }
}
