//! The choice among the peers in line and the origin.

use super::Selector;
use super::load::{Load, PeerSample};
use crate::{Moment, Overview, Prefer, limits};

/// Positions in a line of peers, at most [`limits::CANDIDATES_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSet(u8);

impl PeerSet {
    /// The positions of the samples of which `is_in` holds.
    fn of(samples: &[PeerSample], is_in: impl Fn(&PeerSample) -> bool) -> PeerSet {
        debug_assert!(samples.len() <= limits::CANDIDATES_MAX);
        let positions = samples.iter().enumerate().filter(|(_, sample)| is_in(sample));
        PeerSet(positions.fold(0, |set, (position, _)| set | 1u8.unbounded_shl(position as u32)))
    }

    /// Returns whether a position is in it.
    pub fn contains(self, position: usize) -> bool {
        self.0.unbounded_shr(u32::try_from(position).unwrap_or(u32::MAX)) & 1 == 1
    }

    /// Number of positions.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether it has no position.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The order in which the sources of one chunk are asked. Peers that are *passed over* come after the
/// origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The peers as the ring has them, then the origin.
    InOrder,
    /// The first is well; those behind it whose overload is sustained are passed over, so that no hedge
    /// waits for them.
    FirstIsWell {
        /// Them.
        passed: PeerSet,
    },
    /// The peer at this position first, and only for what is on its own host: those before it are
    /// overloaded, but perhaps for a moment, perhaps since the chunk is cold. Then as the ring has them.
    Alternate(usize),
    /// As `Alternate`, but who is next may be silent itself: as the ring has them.
    NoAlternate,
    /// A peer in place of those before it, whose overload is sustained.
    NextPeer {
        /// Positions of the overloaded peers.
        passed: PeerSet,
        /// True if the first of them of which [`crate::PeerHealth::take_probe`] says so is probed
        /// beside.
        may_probe: bool,
    },
    /// The origin in place of peers that are all overloaded, if the caller grants the read (the origin is
    /// up, and no more than [`Selector::origin_reads`] of them); else as the ring has them.
    Origin {
        /// All.
        passed: PeerSet,
        /// As in `NextPeer`.
        may_probe: bool,
    },
    /// All are overloaded, but the origin is not to be asked in their place: as the ring has them.
    OriginBusy,
    /// The origin in place of all peers, if the caller grants the read, to learn how it does; else as the
    /// ring has them.
    OriginTrial,
    /// The origin before all peers, if the caller grants the read, since it is faster now; else as the ring
    /// has them. The caller has no more than [`Selector::origin_reads`] of them.
    OriginFirst,
}

impl Selector {
    /// Chooses among the peers in line, in the order of the ring, at least one. `is_guest`: a guest waits
    /// for the chunk, or will soon, where the time counts more than the origin's bytes; for nobody else the
    /// origin takes the place of a peer.
    ///
    /// The caller takes no samples while this host's own link is slow, and passes none then.
    pub fn choose(
        &mut self,
        samples: &[PeerSample],
        view: &Overview,
        is_guest: bool,
        now: Moment,
    ) -> Choice {
        if view.is_own_link_slow {
            let is_trial = is_guest && self.takes_origin_trial(now);
            return if is_trial { Choice::OriginTrial } else { Choice::InOrder };
        }
        self.origin_trial = None;
        if is_guest && self.is_origin_faster(samples, now) {
            return Choice::OriginFirst;
        }
        let is_overloaded = |sample: &PeerSample| sample.load > Load::Normal;
        let is_sustained = |sample: &PeerSample| sample.load == Load::Sustained;
        if !samples.iter().any(is_overloaded) {
            return Choice::InOrder;
        }
        let passed = PeerSet::of(samples, is_overloaded);
        let may_probe = !view.is_all_slow;
        match samples.iter().position(|sample| !is_overloaded(sample)) {
            Some(0) => Choice::FirstIsWell { passed: PeerSet::of(samples, is_sustained) },
            Some(free) if !samples[..free].iter().all(is_sustained) => {
                if samples[free].is_responsive {
                    Choice::Alternate(free)
                } else {
                    Choice::NoAlternate
                }
            }
            Some(_) => Choice::NextPeer { passed, may_probe },
            // A guess is not worth a read of the origin, and a preload can wait.
            None if !is_guest => Choice::InOrder,
            None if self.may_ask_origin(samples, now) => Choice::Origin { passed, may_probe },
            None => Choice::OriginBusy,
        }
    }

    /// Returns whether the origin may take the place of peers that are all overloaded.
    fn may_ask_origin(&self, samples: &[PeerSample], now: Moment) -> bool {
        let is_sustained = samples.iter().all(|sample| sample.load == Load::Sustained);
        let severe = self.slow_from(now).mul_f64(limits::SEVERE_RATIO);
        let is_severe =
            samples.iter().all(|sample| sample.estimate.is_some_and(|time| time > severe));
        is_sustained && (is_severe || self.is_origin_typical(now))
    }

    /// Returns whether a chunk comes sooner from the origin than from the peer that would be asked. An origin
    /// of which nothing is known is tried.
    fn is_origin_faster(&self, samples: &[PeerSample], now: Moment) -> bool {
        if self.config.prefer != Prefer::BootTime || self.origin_reads(now) == 0 {
            return false;
        }
        let well = samples.iter().find(|sample| sample.load == Load::Normal);
        let chosen = well.or(samples.first()).and_then(|sample| sample.next);
        let origin = self.origin.next(now).unwrap_or_default();
        chosen.is_some_and(|time| origin < time)
    }

    /// Returns whether a host behind a slow link reads this chunk from an origin that it has learnt
    /// nothing of for a while.
    fn takes_origin_trial(&mut self, now: Moment) -> bool {
        if self.origin.current(self.config.slow_fetch, now).is_some() {
            self.origin_trial = None;
            return false;
        }
        let since = *self.origin_trial.get_or_insert(now);
        let is_due = now.since(since) >= limits::ORIGIN_TRIAL_INTERVAL;
        if is_due {
            self.origin_trial = Some(now);
        }
        is_due
    }
}
