//! The load of one peer.

use std::time::Duration;

use super::Selector;
use crate::{Moment, Overview, PeerHealth, limits};

/// The load of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Not overloaded, as far as is known.
    Normal,
    /// Overloaded, perhaps for a moment.
    Transient,
    /// Overloaded for long.
    Sustained,
}

/// A peer in line, before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSample {
    /// Its load.
    pub load: Load,
    /// Time of one chunk from it, where that is known.
    pub estimate: Option<Duration>,
    /// Time of one chunk that is asked for now, behind those under way.
    pub next: Option<Duration>,
    /// True if it may take the place of an overloaded one: not one that may be silent itself.
    pub is_responsive: bool,
}

impl Selector {
    /// Takes a sample of a peer in line. What was known already is noted only where it is good news, or
    /// one would go by one slow answer for seconds.
    pub fn sample(&mut self, peer: &mut PeerHealth, view: &Overview, now: Moment) -> PeerSample {
        let limit = self.slow_from(now);
        let waiting = peer.delay().waiting(now);
        let is_responsive =
            peer.has_answered_within(limits::ALTERNATE_ANSWER_AGE, now) && waiting <= limit;
        let estimate = peer.delay().longest(now);
        let mut load = Load::Normal;
        if let Some(estimate) = estimate {
            let is_news = estimate <= limit || waiting > limit;
            if !is_news || self.note_sample(peer, estimate, now) {
                load = self.load_of(peer, estimate, view);
            }
        }
        if self.is_told_slow(peer, view, now) {
            load = load.max(Load::Transient);
        }
        let prior = self.prior(peer, now);
        let next = peer.delay().next(now).max(prior);
        PeerSample { load, estimate: estimate.max(prior), next, is_responsive }
    }

    /// Returns the time of one chunk from a peer by what it told and what was told of this host's own link;
    /// `None` where something newer is known of it.
    fn prior(&self, peer: &PeerHealth, now: Moment) -> Option<Duration> {
        let way = peer.delay().typical().unwrap_or_default();
        peer.told(now).map(|told| told.prior(way, self.receiving, now))
    }

    /// Returns whether a peer is slow by its own word alone, as over a full link, and stands out.
    fn is_told_slow(&self, peer: &PeerHealth, view: &Overview, now: Moment) -> bool {
        let limit = self.slow_from(now).max(self.stands_out_from(view)).max(self.config.slow_fetch);
        peer.told(now).is_some_and(|told| told.of_peer(now) > limit)
    }

    /// Returns the time of one chunk from a peer that is slow now; `None` where it is not slow, or
    /// loads are of no interest.
    pub fn slow_estimate(&self, peer: &PeerHealth, now: Moment) -> Option<Duration> {
        if !self.config.load_aware {
            return None;
        }
        peer.delay().estimate(now).filter(|estimate| *estimate > self.slow_from(now))
    }

    /// Returns whether a peer is passed over where there is somebody else to ask.
    pub fn is_overloaded(&self, peer: &PeerHealth, view: &Overview, now: Moment) -> bool {
        let estimate = self.slow_estimate(peer, now);
        estimate.is_some_and(|estimate| self.load_of(peer, estimate, view) > Load::Normal)
    }

    /// Notes that a probe of an overloaded peer took `time`; one that took no longer than fetches should
    /// has the peer probed again soon.
    pub fn note_probe(&self, peer: &mut PeerHealth, time: Duration, now: Moment) {
        if time > self.slow_from(now) {
            peer.note_sample(true, now);
        } else {
            peer.probe_soon();
        }
    }

    /// Notes that a peer takes so long; returns whether it is slow.
    pub(super) fn note_sample(
        &mut self,
        peer: &mut PeerHealth,
        estimate: Duration,
        now: Moment,
    ) -> bool {
        let is_slow = peer.note_sample(estimate > self.slow_from(now), now);
        self.peers_slow.note(is_slow, now);
        is_slow
    }

    /// The load of a peer that is slow, by the samples so far.
    fn load_of(&self, peer: &PeerHealth, estimate: Duration, view: &Overview) -> Load {
        let sustained_after = self.times.sustained_after;
        // Where all are slow, those that were seldom asked are as well.
        let all_slow_for = self.peers_slow.slow_for().filter(|time| *time >= sustained_after);
        let Some(slow_for) = peer.slow_for().max(all_slow_for) else { return Load::Normal };
        let stands_out = estimate > self.stands_out_from(view);
        if slow_for >= sustained_after {
            Load::Sustained
        } else if stands_out && slow_for >= self.times.transient_after {
            Load::Transient
        } else {
            Load::Normal
        }
    }
}
