//! Away from owners whose link is full, and no byte twice where this host's own link is.
//!
//! An owner is slow when one chunk from it takes longer than one from the origin and the typical way
//! between two hosts together: longer, that is, than one which the owner must read from the origin
//! first. It is *overloaded*, and passed over, when it is slow for a while and stands out among this
//! host's peers, or is slow for long. Then the next in line is asked for what it holds, and only where the
//! overload is *sustained* for what it must read from the origin as well: an owner may be slow because the
//! chunk is cold. Where the overload of all is sustained the origin is asked, and only while it is as fast
//! as ever: in a boot storm everybody waits for the same chunk at once, and if all turned to the origin,
//! those who must read it for everybody would wait behind them.
//!
//! That spares the origin. Where the operator prefers short boots ([`Prefer`]) it is a source like the
//! others: asked first where it is faster, within a share that follows its own time ([`OriginShare`]).
//!
//! Where all sources are slow, this host's own link is to blame ([`crate::Overview`]). Then nothing is
//! asked for twice (no hedge but the one before the guest's deadline, no probe), the line stays as it is,
//! and whatever comes is kept.
//!
//! Source: the power of two choices (Mitzenmacher, IEEE TPDS 12(10), 2001), by estimated time. Differs:
//! no choice is drawn at random, since the line that the ring gives keeps a chunk at few hosts; one
//! leaves it only for a reason. ACStor has nothing of the kind: under load it can be slower than a
//! local cache (§5.6).

mod choice;
mod hedging;
mod load;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use choice::{Choice, PeerSet};
pub use hedging::HedgeCase;
pub use load::{Load, PeerSample};

use crate::{
    CompressionCost, Fetch, Moment, OriginShare, OverloadTimes, Overview, PeerHealth, Prefer,
    Reading, SelectionConfig, SlowStreak, SourceDelay, TokenBucket, limits,
};

/// Knowledge of one host about its sources beside the peers themselves, and the decisions made of
/// it.
#[derive(Clone, Debug)]
pub struct Selector {
    config: SelectionConfig,
    times: OverloadTimes,
    origin: SourceDelay,
    /// Nanoseconds that a fetch of one chunk takes where no link is full.
    typical: u64,
    /// Chunks of slow peers that may be kept.
    keep_budget: TokenBucket,
    /// Reads of the origin in the place of peers, where time counts more than its bytes.
    origin_share: OriginShare,
    overview: Option<Overview>,
    /// The samples of all peers.
    peers_slow: SlowStreak,
    /// Since when nothing is known of the origin behind a slow link, or when it was last tried.
    origin_trial: Option<Moment>,
    /// Time of one chunk over what is free of this host's own link, as it was told; zero where nobody tells.
    receiving: Duration,
    compression: CompressionCost,
}

impl Selector {
    /// Returns the selector of a host that has asked nobody yet.
    pub fn new(config: SelectionConfig) -> Selector {
        let times = OverloadTimes::of(config.slow_fetch);
        Selector {
            config,
            times,
            origin: SourceDelay::default(),
            typical: 0,
            keep_budget: TokenBucket::for_slow_chunks(),
            origin_share: OriginShare::default(),
            overview: None,
            peers_slow: SlowStreak::new(times),
            origin_trial: None,
            receiving: Duration::ZERO,
            compression: CompressionCost::default(),
        }
    }

    /// The settings.
    pub fn config(&self) -> &SelectionConfig {
        &self.config
    }

    /// Takes over the time of one chunk over what is free of this host's own link inwards
    /// ([`crate::transfer_time`]); `None`: nobody tells.
    pub fn set_receiving(&mut self, time: Option<Duration>) {
        self.receiving = time.unwrap_or_default();
    }

    /// Takes over what compression costs and saves, as it is measured.
    pub fn set_compression(&mut self, cost: CompressionCost) {
        self.compression = cost;
    }

    /// Returns the times by which a new peer of this host is judged.
    pub fn times(&self) -> OverloadTimes {
        self.times
    }

    /// Time that the origin takes for one chunk.
    pub fn origin(&self) -> &SourceDelay {
        &self.origin
    }

    /// Notes that a chunk was asked of the origin, by somebody who waits for it.
    pub fn begin_origin(&mut self, now: Moment) -> Fetch {
        self.origin.begin(now)
    }

    /// Notes the end of a fetch from the origin, with or without an answer.
    pub fn end_origin(&mut self, fetch: Fetch, is_answered: bool, now: Moment) {
        self.origin.end(fetch, is_answered, now);
        if is_answered {
            let time = self.origin.next(now).unwrap_or_default();
            self.origin_share.note(self.is_origin_typical(now), time, now);
        }
    }

    /// Returns the reads of the origin in the place of peers that this host may have under way. Where the
    /// time counts more that is its share; of an origin of which nothing new is known at least one.
    pub fn origin_reads(&self, now: Moment) -> usize {
        match self.config.prefer {
            Prefer::OriginBytes => limits::ORIGIN_READS_MAX,
            Prefer::BootTime => {
                let is_unknown = self.origin.current(self.config.slow_fetch, now).is_none();
                self.origin_share.reads().max(usize::from(is_unknown))
            }
        }
    }

    /// Returns the overview of all sources; `None` where it is to be taken anew with
    /// [`Selector::refresh`].
    pub fn overview(&self, now: Moment) -> Option<Overview> {
        self.overview.filter(|view| view.is_recent(now))
    }

    /// Takes the overview anew, of a [`PeerHealth::delay`]'s [`SourceDelay::reading`] of each known peer.
    pub fn refresh(&mut self, peers: impl IntoIterator<Item = Reading>, now: Moment) -> Overview {
        let slow_fetch = self.config.slow_fetch;
        let origin = self.origin.reading(slow_fetch, now);
        let view = Overview::take(peers, origin, self.overview, slow_fetch, now);
        self.overview = Some(view);
        view
    }

    /// Returns whether the peer may compress its answer: where bytes are what this host waits for.
    ///
    /// Where it was told what is free of this host's link or of the peer's, the slower of both decides: whether a
    /// chunk is there sooner compressed, by what that costs and saves ([`CompressionCost::pays`]).
    ///
    /// Where nobody tells, it is inferred. Compression costs both ends some tenths of a millisecond for a chunk
    /// and halves what goes over the wire. It pays where a chunk takes milliseconds: over this host's own link
    /// when all its sources are slow, or from a peer that is slow beside the others.
    pub fn accepts_compressed(&self, peer: &PeerHealth, view: &Overview, now: Moment) -> bool {
        if !self.config.compress_slow {
            return false;
        }
        let told = self.receiving.max(peer.told_sending(now));
        if told > Duration::ZERO {
            return self.compression.pays(told);
        }
        view.is_own_link_slow
            || self.is_overloaded(peer, view, now)
            || self.is_slow_beside_others(peer, view, now)
    }

    /// Returns whether a chunk from the peer takes much longer than from the others now.
    fn is_slow_beside_others(&self, peer: &PeerHealth, view: &Overview, now: Moment) -> bool {
        let limit = self.stands_out_from(view);
        peer.delay().estimate(now).is_some_and(|estimate| estimate > limit)
    }

    /// Notes the answer of a peer, and says whether its chunk is kept lest it be fetched a second time over
    /// a slow link. The caller has noted the end of the fetch.
    pub fn keeps(&mut self, peer: &mut PeerHealth, view: &Overview, now: Moment) -> bool {
        if !self.config.load_aware {
            return false;
        }
        let Some(estimate) = peer.delay().estimate(now) else { return false };
        self.note_typical(estimate);
        let estimate = peer.delay().longest(now).unwrap_or(estimate);
        let is_slow = self.note_sample(peer, estimate, now);
        view.is_own_link_slow || (is_slow && self.keep_budget.try_take(now))
    }

    /// Follows how long peers take for one chunk.
    fn note_typical(&mut self, estimate: Duration) {
        let sample = estimate.min(self.config.slow_fetch).as_nanos() as u64;
        // Near the lower end of what is seen, so that load is not taken for typical.
        self.typical = match self.typical {
            0 => sample,
            typical if sample < typical => {
                typical - (typical - sample) / limits::HOST_TYPICAL_DOWN_DIVISOR
            }
            typical => typical + (sample - typical) / limits::HOST_TYPICAL_UP_DIVISOR,
        };
    }

    /// Returns the slack that is added wherever times are compared.
    fn slack(&self) -> Duration {
        let least = self.config.slow_fetch.mul_f64(limits::SLACK_MIN_RATIO);
        let typical = Duration::from_nanos(self.typical);
        (typical * limits::SLACK_TYPICAL_RATIO).clamp(least, self.config.slow_fetch)
    }

    /// Returns the time of a fetch from the origin: that its last answer is long ago is no good
    /// news.
    fn origin_time(&self, now: Moment) -> Option<Duration> {
        self.origin.estimate(now).max(self.origin.typical())
    }

    /// Returns whether a fetch from the origin takes what is typical for it, as far as is known.
    fn is_origin_typical(&self, now: Moment) -> bool {
        match (self.origin.estimate(now), self.origin.typical()) {
            (Some(estimate), Some(typical)) => {
                estimate <= typical.mul_f64(limits::ORIGIN_TYPICAL_RATIO) + self.slack()
            }
            _ => true,
        }
    }

    /// The estimate from which on a peer is slow.
    fn slow_from(&self, now: Moment) -> Duration {
        let origin = self.origin_time(now).unwrap_or_default();
        self.slack() + origin.mul_f64(limits::OVERLOAD_ORIGIN_RATIO)
    }

    /// The estimate from which on a peer stands out among this host's peers.
    fn stands_out_from(&self, view: &Overview) -> Duration {
        view.median.mul_f64(limits::STANDS_OUT_RATIO) + self.slack()
    }
}
