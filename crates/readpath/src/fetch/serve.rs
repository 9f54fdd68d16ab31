//! Answering peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_peer::{ChunkRequest, ClassWatch, PeerStatus, ServeFuture};
use acstor_runclock::RunInstant;
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use tokio::time::Instant;

use crate::fetch::flight::{Flight, Outcome, Priority};
use crate::fetch::outcome::Serve;
use crate::fetch::sources::{Sources, Want};
use crate::keeping::claims::Claims;
use crate::steering::peers::NO_HINT;
use crate::view::attachments::Attachments;
use crate::view::disk::Disk;
use crate::{Tier, limits};

/// Share of a request's time that is kept back, so that the refusal arrives before the requester
/// gives up: it then knows that this host is alive and its origin is not.
const ANSWER_MARGIN_DIVISOR: u32 = 10;

/// Counts a request as being answered while it lives.
struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    fn enter(count: &Arc<AtomicUsize>, max: usize) -> Option<InFlight> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let entered = InFlight(count.clone());
        // Dropping it takes the count back.
        (before < max).then_some(entered)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers the requests of peers.
pub(crate) struct Responder {
    sources: Arc<Sources>,
    attachments: Arc<Attachments>,
    pub(crate) claims: Arc<Claims>,
    in_flight: Arc<AtomicUsize>,
}

/// Returns the number of requests that may be answered at a time: each holds a chunk in memory.
fn serves_max(configured: usize, chunk_size: ChunkSize) -> usize {
    configured.min(limits::SERVE_INFLIGHT_BYTES_MAX / chunk_size.bytes())
}

impl Responder {
    pub(crate) fn new(
        sources: Arc<Sources>,
        attachments: Arc<Attachments>,
        claims: Arc<Claims>,
    ) -> Responder {
        Responder { sources, attachments, claims, in_flight: Arc::default() }
    }

    /// Requests that are being answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Answers a request for a chunk.
    pub(crate) fn serve(
        self: &Arc<Self>,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> ServeFuture {
        let responder = self.clone();
        Box::pin(async move {
            let result = responder.answer(&request, class, deadline).await;
            let metrics = &responder.sources.metrics;
            match &result {
                Ok((bytes, served)) => metrics.served(*served, bytes.len()),
                Err((_, served)) => metrics.served(*served, 0),
            }
            result.map(|(bytes, _)| bytes).map_err(|(status, _)| status)
        })
    }

    /// Answers which of some chunks this host keeps.
    pub(crate) fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        digests.iter().map(|digest| self.claims.keeps(digest)).collect()
    }

    async fn answer(
        &self,
        request: &ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> Result<(Bytes, Serve), (PeerStatus, Serve)> {
        let sources = &self.sources;
        if sources.is_draining() {
            return Err((PeerStatus::Overloaded, Serve::Draining));
        }
        let max = serves_max(sources.config.serve_inflight_max, request.chunk_size);
        let max = if class.current().is_demand() { max } else { max.div_ceil(2) };
        let Some(_entered) = InFlight::enter(&self.in_flight, max) else {
            return Err((PeerStatus::Overloaded, Serve::Overloaded));
        };
        if request.chunk_size != sources.chunks.store.chunk_size() {
            return Err((PeerStatus::Invalid, Serve::Invalid));
        }
        if let Some((bytes, tier)) = sources.chunks.read_local(&request.digest).await {
            let served = if tier == Tier::Store { Serve::Store } else { Serve::Recent };
            return Ok((bytes, served));
        }
        let Some((disk, want)) = self.locate(request, deadline).await else {
            return Err((PeerStatus::NotFound, Serve::NotFound));
        };
        let (clock, now) = (&sources.clock, sources.clock.now());
        let allowed = clock.from_wall(deadline).saturating_duration_since(now);
        let deadline = now + (allowed - allowed / ANSWER_MARGIN_DIVISOR);
        let priority = Priority::of_peer(class.current());
        let flight = sources.obtain(&disk, &want, priority, deadline);
        match waited(flight, class, deadline).await {
            Ok(obtained) => {
                let served = match obtained.tier {
                    Tier::Origin => Serve::Origin,
                    Tier::PreviousOwner => Serve::PreviousOwner,
                    Tier::Peer => Serve::Peer,
                    Tier::Store => Serve::Store,
                    Tier::Zero | Tier::Recent => Serve::Recent,
                };
                Ok((obtained.bytes, served))
            }
            Err(failure) => Err((failure.status(), Serve::Failed)),
        }
    }

    /// Finds where in the origin the chunk is, by the hint; the manifest has the last word. It is brought
    /// into memory where no guest of this host reads the disk.
    async fn locate(&self, request: &ChunkRequest, deadline: Instant) -> Option<(Arc<Disk>, Want)> {
        if request.chunk_index == NO_HINT {
            return None;
        }
        let attachment = self.attachments.get(&request.disk_id)?;
        let load = self.sources.manifest_loads.load(&self.sources, &attachment, Priority::Peer);
        let disk = tokio::time::timeout_at(deadline, load).await.ok()?.ok()?.disk.clone();
        let indexes = std::iter::once(request.chunk_index);
        let by = self.sources.clock.from_wall(deadline);
        let wants = self.sources.wants(&disk, indexes, Priority::Peer, by).await.ok()?;
        let want = wants.into_iter().next()??;
        (want.digest == request.digest).then_some((disk, want))
    }
}

/// Waits for a flight on behalf of a peer, in the class that the request has at each moment.
async fn waited(flight: Arc<Flight>, mut class: ClassWatch, deadline: RunInstant) -> Outcome {
    let mut asker = Asker { flight, has_outcome: false };
    let flight = asker.flight.clone();
    let outcome = flight.wait(deadline);
    tokio::pin!(outcome);
    loop {
        tokio::select! {
            biased;
            outcome = &mut outcome => {
                asker.has_outcome = true;
                return outcome;
            }
            class = class.changed() => flight.promote(Priority::of_peer(class), deadline),
        }
    }
}

/// A peer that waits; one that goes away takes back what it asked for ahead of its guests.
struct Asker {
    flight: Arc<Flight>,
    has_outcome: bool,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.has_outcome {
            self.flight.revoke();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_serves_at_a_time_are_bounded_by_their_bytes() {
        let size = |bytes| ChunkSize::new(bytes).unwrap();
        assert_eq!(serves_max(1024, size(64 << 10)), 1024, "the default is as configured");
        assert_eq!(serves_max(1024, size(4 << 20)), 64, "256 MiB of the largest chunks");
        assert_eq!(serves_max(limits::SERVE_INFLIGHT_MAX, size(4096)), 65_536);
        assert_eq!(serves_max(1, size(4 << 20)), 1);
    }

    proptest! {
        /// Whatever is configured and asked for: never none, never more bytes than the bound.
        #[test]
        fn proptest_serves_never_exceed_the_bytes(
            configured in 1..=limits::SERVE_INFLIGHT_MAX,
            shift in 12u32..=22,
        ) {
            let size = ChunkSize::new(1 << shift).unwrap();
            let max = serves_max(configured, size);
            prop_assert!(max >= 1 && max <= configured);
            prop_assert!(max * size.bytes() <= limits::SERVE_INFLIGHT_BYTES_MAX);
        }

        /// Whoever comes and goes: no more are answered at a time than may be, and none is counted twice.
        #[test]
        fn proptest_entered_are_never_more_than_may_be(
            steps in prop::collection::vec((any::<bool>(), 1usize..6), 1..100),
        ) {
            let count = Arc::new(AtomicUsize::new(0));
            let mut entered = Vec::new();
            for (is_new, max) in steps {
                if is_new {
                    let fits = entered.len() < max;
                    let one = InFlight::enter(&count, max);
                    prop_assert_eq!(one.is_some(), fits);
                    entered.extend(one);
                } else {
                    entered.pop();
                }
                prop_assert_eq!(count.load(Ordering::Relaxed), entered.len());
            }
        }
    }
}
