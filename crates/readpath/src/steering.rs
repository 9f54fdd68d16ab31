//! Away from owners whose link is full: never worse than reading the origin and keeping it here.
//!
//! An owner counts as loaded when one chunk from it takes longer than one from the origin and the
//! usual way between two hosts together: longer, that is, than one which the owner must read from the
//! origin first. Then the next in line is asked, then the origin, then the loaded ones. With even
//! traffic nobody is loaded, and nothing changes.
//!
//! Source: the power of two choices (Mitzenmacher, IEEE TPDS 12(10), 2001), by estimated time. Differs:
//! no choice is drawn at random, since the line that the ring gives keeps a chunk at few hosts; one
//! leaves it only for a reason. ACStor has nothing of the kind: under load it can be slower than a
//! local cache (§5.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::flight::Side;
use crate::limits;
use crate::outcome::{Bypass, PeerSkip};
use crate::placement::{Candidate, Plan};
use crate::source_delay::SourceDelay;
use crate::sources::Sources;
use crate::token_bucket::TokenBucket;

/// What steering knows beside the estimates of the peers.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) origin: Arc<SourceDelay>,
    /// Nanoseconds that a fetch of one chunk takes where no link is full.
    usual: AtomicU64,
    /// One per chunk that is read from the origin in place of a loaded peer.
    permits: Arc<Semaphore>,
    /// What slow peers sent and is kept.
    keep_budget: TokenBucket,
}

impl Steering {
    pub(crate) fn new() -> Steering {
        Steering {
            origin: Arc::default(),
            usual: AtomicU64::new(0),
            permits: Arc::new(Semaphore::new(limits::BYPASS_INFLIGHT_MAX)),
            keep_budget: TokenBucket::new(
                limits::KEEP_SLOW_TOKENS_MAX,
                limits::KEEP_SLOW_TOKENS_MAX,
                0.0,
                limits::KEEP_SLOW_PER_SECOND,
            ),
        }
    }

    /// Notes how long a peer now takes for one chunk.
    pub(crate) fn note(&self, estimate: Duration) {
        let sample = estimate.min(limits::LOADED_SLACK_MAX).as_nanos() as u64;
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

    /// From which estimate on a peer counts as loaded.
    pub(crate) fn loaded_from(&self, now: Instant) -> Duration {
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed));
        let slack = (usual * 2).clamp(limits::LOADED_SLACK_MIN, limits::LOADED_SLACK_MAX);
        let origin = self.origin.estimate(now).unwrap_or_default();
        slack + origin.mul_f64(limits::LOADED_RATIO)
    }
}

impl Sources {
    /// Moves the loaded peers of a plan behind the others and the origin.
    pub(crate) fn steer(&self, plan: &mut Plan, side: Side) {
        if !self.config.load_aware || plan.peers.is_empty() || side == Side::Peer {
            return;
        }
        let now = Instant::now();
        let limit = self.steering.loaded_from(now);
        let is_loaded = |peer: &Candidate| {
            peer.health.delay.estimate(now).is_some_and(|estimate| estimate > limit)
        };
        let (loaded, free): (Vec<_>, Vec<_>) = plan.peers.drain(..).partition(is_loaded);
        if loaded.is_empty() {
            plan.peers = free;
            return;
        }
        let outcome = if free.is_empty() {
            let Some(permit) = self.bypass_permit() else {
                self.metrics.bypass(Bypass::Denied);
                plan.peers = loaded;
                return;
            };
            plan.origin_permit = Some(permit);
            Bypass::Origin
        } else {
            Bypass::Peer
        };
        self.metrics.bypass(outcome);
        self.metrics.peer_skips(PeerSkip::Loaded, loaded.len() as u64);
        plan.probe = loaded.iter().find(|peer| peer.health.take_probe(now)).cloned();
        plan.peers = free;
        plan.loaded = loaded;
    }

    /// Leave to read one chunk more from the origin; none while it is down or has enough of them.
    fn bypass_permit(&self) -> Option<OwnedSemaphorePermit> {
        if !self.origin.queue().health.is_up() {
            return None;
        }
        self.steering.permits.clone().try_acquire_owned().ok()
    }

    /// How many peers are loaded now.
    pub(crate) fn loaded_peers(&self) -> usize {
        let now = Instant::now();
        self.peer_table.slower_than(self.steering.loaded_from(now), now)
    }

    /// Whether what a peer sent shall be kept here because the peer is slow.
    pub(crate) fn keeps_of_slow(&self, peer: &Candidate) -> bool {
        if !self.config.load_aware {
            return false;
        }
        let now = Instant::now();
        let Some(estimate) = peer.health.delay.estimate(now) else { return false };
        self.steering.note(estimate);
        estimate > self.steering.loaded_from(now) && self.steering.keep_budget.try_take(now)
    }
}
