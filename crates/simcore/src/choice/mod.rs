//! The choice of sources: what a host learns of each, and whom it asks, as `crates/readpath` does.
//!
//! The one place of the simulator's own copy of that; the estimates are kept for each (host, peer)
//! and for each host of the origin. With more hosts than [`PAIRS_MAX`] allows what is known of a
//! peer is one for all.

mod breaker;
mod hedging;
mod load;
mod slow_samples;
mod source;

use crate::random::Random;
use crate::rules::{Compress, Rules};
use load::{DRASTIC, LASTING, LOADED};
use source::{Histogram, Source, log_bucket};

/// Pairs of hosts up to which each host knows the latencies of each peer by itself.
const PAIRS_MAX: u64 = 1024 * 1024;
/// A time before all others.
const NEVER: f64 = -1e9;
const VIEW_AGE: f64 = 0.02;
const TRIAL_INTERVAL: f64 = 2.0;

/// Order in which the sources of a chunk are asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// Whether this host's own link is full.
    pub(crate) is_own_link_slow: bool,
    /// Whether the origin is asked before all peers, to learn how it does.
    pub(crate) is_origin_trial: bool,
    /// Position of who is asked first, and only for what it holds.
    pub(crate) alternate: Option<usize>,
    /// Positions of who comes after the origin, as bits.
    pub(crate) passed: u32,
    /// Position of who is asked beside, to see how long it takes.
    pub(crate) probe: Option<usize>,
    /// Whether the origin takes the place of all.
    pub(crate) is_bypass: bool,
}

/// One fetch under way, by the number of its attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Fetch {
    row: usize,
    host: u32,
    is_origin: bool,
    started: f64,
    among: u32,
    answers_before: u32,
    before: Option<u32>,
    after: Option<u32>,
}

/// What a host knows beside its sources.
#[derive(Clone, Debug)]
struct HostView {
    taken_at: f64,
    median: f64,
    is_slow: bool,
    is_all_slow: bool,
    slow_since: f64,
    slow_seen: f64,
    usual_delay: f64,
    trial_at: f64,
    keep_tokens: f64,
    keep_at: f64,
    hedge_tokens: f64,
    peers_slow: slow_samples::SlowSamples,
    histogram: Histogram,
}

/// What all hosts know of their sources.
#[derive(Debug)]
pub(crate) struct Choice {
    hosts: u32,
    /// Whether each host knows each peer by itself.
    is_by_pair: bool,
    sources: Vec<Source>,
    views: Vec<HostView>,
    /// By host: peers that were ever asked.
    asked: Vec<Vec<u32>>,
    fetches: Vec<Fetch>,
    buffer: Vec<f64>,
}

impl Choice {
    pub(crate) fn new(hosts: u32) -> Choice {
        let pairs = u64::from(hosts) * u64::from(hosts);
        let is_by_pair = pairs <= PAIRS_MAX;
        let rows = if is_by_pair { pairs as usize } else { hosts as usize } + hosts as usize;
        let view = HostView {
            taken_at: -1.0,
            median: 0.0,
            is_slow: false,
            is_all_slow: false,
            slow_since: 0.0,
            slow_seen: 0.0,
            usual_delay: 0.0,
            trial_at: NEVER,
            keep_tokens: 1024.0,
            keep_at: 0.0,
            hedge_tokens: 0.0,
            peers_slow: slow_samples::SlowSamples::default(),
            histogram: Histogram::default(),
        };
        Choice {
            hosts,
            is_by_pair,
            sources: vec![Source::default(); rows],
            views: vec![view; hosts as usize],
            asked: vec![Vec::new(); hosts as usize],
            fetches: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Where what `host` knows of a peer, or of the origin, is kept.
    fn row_of(&self, host: u32, source: u32) -> usize {
        let peers = self.sources.len() - self.hosts as usize;
        if source == self.hosts {
            peers + host as usize
        } else if self.is_by_pair {
            host as usize * self.hosts as usize + source as usize
        } else {
            source as usize
        }
    }

    fn origin_row(&self, host: u32) -> usize {
        self.row_of(host, self.hosts)
    }

    /// Asks for leave to fetch from a peer.
    pub(crate) fn admit(&mut self, rules: &Rules, host: u32, peer: u32, now: f64) -> bool {
        let row = self.row_of(host, peer);
        self.sources[row].breaker.admit(rules, now)
    }

    /// Notes that a chunk was asked for.
    pub(crate) fn begin(&mut self, attempt: u32, host: u32, source: u32, now: f64) {
        let row = self.row_of(host, source);
        if attempt as usize >= self.fetches.len() {
            self.fetches.resize(attempt as usize + 1, Fetch::default());
        }
        let known = &mut self.sources[row];
        if self.is_by_pair && source != self.hosts && !known.is_asked {
            known.is_asked = true;
            self.asked[host as usize].push(source);
        }
        known.under_way += 1;
        let last = known.newest.replace(attempt);
        self.fetches[attempt as usize] = Fetch {
            row,
            host,
            is_origin: source == self.hosts,
            started: now,
            among: known.under_way,
            answers_before: known.answers,
            before: last,
            after: None,
        };
        match last {
            Some(last) => self.fetches[last as usize].after = Some(attempt),
            None => known.oldest = Some(attempt),
        }
        self.note_oldest(row);
    }

    /// Notes that a chunk is no longer asked for.
    pub(crate) fn end(&mut self, attempt: u32) {
        let Fetch { row, before, after, .. } = self.fetches[attempt as usize];
        let known = &mut self.sources[row];
        known.under_way -= 1;
        match before {
            Some(before) => self.fetches[before as usize].after = after,
            None => known.oldest = after,
        }
        match after {
            Some(after) => self.fetches[after as usize].before = before,
            None => known.newest = before,
        }
        self.note_oldest(row);
    }

    fn note_oldest(&mut self, row: usize) {
        let oldest = self.sources[row].oldest;
        self.sources[row].oldest_started =
            oldest.map_or(0.0, |attempt| self.fetches[attempt as usize].started);
    }

    /// Notes how long a source took, or has taken so far where it gave nothing: a lower bound.
    pub(crate) fn note_delay(&mut self, rules: &Rules, attempt: u32, now: f64, is_answer: bool) {
        let fetch = self.fetches[attempt as usize];
        let source = &mut self.sources[fetch.row];
        if is_answer {
            source.note_interval(fetch.answers_before, now - fetch.started);
        }
        let among = fetch.among.max(source.under_way).max(1);
        let Some(known) =
            source.note_sample((now - fetch.started) / f64::from(among), is_answer, now)
        else {
            return;
        };
        if is_answer && !fetch.is_origin {
            source.answered_at = now as f32;
            let seen = &mut self.views[fetch.host as usize].usual_delay;
            let sample = known.min(rules.slack_max);
            *seen = match *seen {
                0.0 => sample,
                seen => seen + (sample - seen) / if sample < seen { 8.0 } else { 512.0 },
            };
        }
    }

    /// Notes in the histogram of a peer how long it took.
    pub(crate) fn note_latency(&mut self, attempt: u32, now: f64) {
        let fetch = self.fetches[attempt as usize];
        if fetch.is_origin {
            return;
        }
        let bucket = log_bucket(now - fetch.started);
        self.sources[fetch.row].histogram_mut().add(bucket, true);
        self.views[fetch.host as usize].histogram.add(bucket, false);
    }

    /// Notes that a peer answered, or refused: it is alive.
    pub(crate) fn note_alive(&mut self, attempt: u32) {
        let row = self.fetches[attempt as usize].row;
        self.sources[row].breaker.note_answer();
    }

    /// Notes that a peer is dead or stalled.
    pub(crate) fn note_failure(&mut self, attempt: u32, random: &mut Random, now: f64) {
        let row = self.fetches[attempt as usize].row;
        self.sources[row].breaker.note_failure(random, now);
    }

    /// Notes that there was no answer since a fetch began: as good as many slow samples.
    pub(crate) fn note_silence(&mut self, rules: &Rules, attempt: u32, now: f64) {
        let fetch = self.fetches[attempt as usize];
        self.sources[fetch.row].slow.note_silence(rules, now - fetch.started, now);
    }

    /// Notes that another source overtook a fetch; late, that is silence.
    pub(crate) fn note_overtaken(&mut self, rules: &Rules, attempt: u32, now: f64) {
        let fetch = self.fetches[attempt as usize];
        if !fetch.is_origin && now - fetch.started >= rules.loaded_after {
            self.note_silence(rules, attempt, now);
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
        let row = self.fetches[attempt as usize].row;
        let source = &mut self.sources[row];
        let is_connected = source.answered_at >= 0.0;
        source.link.silence(rules, is_connected, random, now)
    }

    /// Returns the order in which the peers of a line and the origin are asked.
    pub(crate) fn order(&mut self, rules: &Rules, host: u32, peers: &[u32], now: f64) -> Order {
        if !rules.load_aware || peers.is_empty() {
            return Order::default();
        }
        if self.is_own_link_slow(rules, host, now) {
            return Order {
                is_own_link_slow: true,
                is_origin_trial: self.tries_origin(rules, host, now),
                ..Order::default()
            };
        }
        self.steer(rules, host, peers, now)
    }

    fn steer(&mut self, rules: &Rules, host: u32, peers: &[u32], now: f64) -> Order {
        let (mut loaded, mut lasting, mut drastic) = (0, 0, 0);
        let everybody = (1 << peers.len()) - 1;
        let mut free = None;
        for (index, peer) in peers.iter().enumerate() {
            let found = self.sample(rules, host, *peer, now);
            loaded |= u32::from(found & LOADED != 0) << index;
            lasting |= u32::from(found & LASTING != 0) << index;
            drastic |= u32::from(found & DRASTIC != 0) << index;
            if free.is_none() && found & LOADED == 0 {
                free = Some(index);
            }
        }
        if loaded == 0 {
            return Order::default();
        }
        let mut order = Order { passed: loaded, ..Order::default() };
        match free {
            // No hedge shall wait for these.
            Some(0) => return Order { passed: lasting, ..Order::default() },
            Some(free) => {
                let before = (1 << free) - 1;
                if lasting & before != before {
                    // Perhaps they are slow because the chunk is cold: nobody else reads the origin
                    // for it.
                    let may = self.may_stand_in(rules, host, peers[free], now);
                    return Order { alternate: may.then_some(free), ..Order::default() };
                }
            }
            None => {
                let is_calm = self.is_origin_calm(rules, host, now);
                if lasting != everybody || !(is_calm || drastic == everybody) {
                    return Order::default();
                }
                order.is_bypass = true;
            }
        }
        order.probe = self.choose_probe(rules, host, peers, loaded, now);
        order
    }

    /// Chooses one of the peers that are passed over to be probed.
    fn choose_probe(
        &mut self,
        rules: &Rules,
        host: u32,
        peers: &[u32],
        loaded: u32,
        now: f64,
    ) -> Option<usize> {
        if self.views[host as usize].is_all_slow {
            return None;
        }
        (0..peers.len()).filter(|index| loaded >> index & 1 == 1).find(|index| {
            let row = self.row_of(host, peers[*index]);
            let is_due = now >= f64::from(self.sources[row].probe_at);
            if is_due {
                self.sources[row].probe_at = (now + rules.probe_interval) as f32;
            }
            is_due
        })
    }

    /// Returns whether the origin is asked once to see whether it is slow as well.
    fn tries_origin(&mut self, rules: &Rules, host: u32, now: f64) -> bool {
        let origin = &self.sources[self.origin_row(host)];
        let is_fresh = origin.is_fresh(rules, now);
        let view = &mut self.views[host as usize];
        let known_at = view.slow_since.max(view.trial_at).max(f64::from(origin.delay_at));
        if is_fresh || now - known_at < TRIAL_INTERVAL {
            return false;
        }
        view.trial_at = now;
        true
    }

    /// Takes what came for a sample; returns whether it is kept as its peer, or this host, is slow.
    pub(crate) fn keeps(&mut self, rules: &Rules, attempt: u32, now: f64) -> bool {
        if !rules.load_aware {
            return false;
        }
        let Fetch { row, host, is_origin, .. } = self.fetches[attempt as usize];
        let is_slow = !is_origin && self.note_answer_sample(rules, host, row, now);
        if self.is_own_link_slow(rules, host, now) {
            return true;
        }
        if !is_slow {
            return false;
        }
        let view = &mut self.views[host as usize];
        let tokens = view.keep_tokens + rules.keep_slow_rate * (now - view.keep_at);
        let tokens = rules.keep_slow_max.min(tokens);
        view.keep_at = now;
        view.keep_tokens = if tokens >= 1.0 { tokens - 1.0 } else { tokens };
        tokens >= 1.0
    }

    /// Returns whether a peer is asked to compress: this host's link is full, or the peer's.
    pub(crate) fn asks_packed(&mut self, rules: &Rules, host: u32, peer: u32, now: f64) -> bool {
        if rules.compress != Compress::WhereSlow {
            return rules.compress == Compress::Always;
        }
        if self.is_own_link_slow(rules, host, now) || self.is_loaded(rules, host, peer, now) {
            return true;
        }
        let time = self.sources[self.row_of(host, peer)].estimate(now);
        time > self.beside_others(rules, host)
    }
}
