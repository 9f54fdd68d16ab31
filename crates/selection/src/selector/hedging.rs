//! The time after which a source that is being asked counts as late.

use std::time::Duration;

use super::Selector;
use crate::{Moment, Overview, PeerHealth, limits};

/// Circumstances of a hedge beside the source.
#[derive(Clone, Copy, Debug)]
pub struct HedgeCase<'a> {
    /// Overview of all sources; `None` where the selection is not aware of loads.
    pub view: Option<&'a Overview>,
    /// True if the share of hedges was used up for this chunk: one more at the latest time,
    /// whatever the share, lest the guest wait out the peer's deadline.
    pub is_rescue: bool,
    /// Time from the start of the fetch to the deadline of whoever waits.
    pub allowed: Duration,
}

impl Selector {
    /// Returns the time after its start at which a fetch is hedged; `peer` is `None` for the origin.
    pub fn hedge_after(
        &self,
        peer: Option<&PeerHealth>,
        case: HedgeCase<'_>,
        now: Moment,
    ) -> Duration {
        let (min, max) = (self.config.hedge_min, self.config.hedge_max);
        if case.view.is_some_and(|view| view.is_own_link_slow) {
            return self.rescue_after(peer, case.allowed);
        }
        if case.is_rescue {
            return max;
        }
        let Some(peer) = peer else {
            return self
                .origin
                .estimate(now)
                .map_or(max, |time| time.mul_f64(limits::HEDGE_ORIGIN_RATIO).clamp(min, max));
        };
        let own = peer.hedge_delay(min, max);
        let Some(view) = case.view else { return own };
        // A p99 that was learnt while the peer was slow must not put the hedge off.
        let late = self.late_after(peer, view, now).unwrap_or(max);
        own.min(late.max(min))
    }

    /// The time that a host behind a slow link waits before it asks for a chunk a second time.
    fn rescue_after(&self, peer: Option<&PeerHealth>, allowed: Duration) -> Duration {
        let latest = allowed / limits::RESCUE_DEADLINE_DIVISOR;
        let p99 = peer.and_then(PeerHealth::p99);
        p99.map_or(latest, |p99| {
            (p99 * limits::RESCUE_P99_RATIO).max(self.config.hedge_max).min(latest)
        })
    }

    /// The time after which a peer that has been slow for a while is late by what others take, whatever its
    /// own p99; `None` where the origin is not to be loaded with that.
    fn late_after(&self, peer: &PeerHealth, view: &Overview, now: Moment) -> Option<Duration> {
        let is_slow = peer.slow_for().is_some_and(|time| time >= self.times.transient_after);
        if !is_slow || view.is_all_slow || !self.is_origin_typical(now) {
            return None;
        }
        let by_origin = self.origin_time(now)?.mul_f64(limits::HEDGE_ORIGIN_RATIO);
        let by_peers = self.stands_out_from(view);
        // The estimates are those of one chunk; a burst shares the way.
        let among = u32::try_from(peer.delay().underway().max(1)).unwrap_or(u32::MAX);
        Some(by_origin.max(by_peers).saturating_mul(among))
    }
}
