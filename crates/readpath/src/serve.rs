//! Answering peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_peer::{ChunkRequest, ChunkServer, PeerStatus, ServeFuture};
use acstor_types::Digest;
use bytes::Bytes;
use tokio::time::Instant;

use crate::disk::Disk;
use crate::flight::Side;
use crate::outcome::Serve;
use crate::peers::NO_HINT;
use crate::sources::Want;
use crate::{ReadPath, Tier};

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

impl ChunkServer for ReadPath {
    fn serve(&self, request: ChunkRequest, deadline: Instant) -> ServeFuture {
        let path = self.clone();
        Box::pin(async move {
            let result = path.answer(&request, deadline).await;
            let metrics = &path.sources.metrics;
            match &result {
                Ok((bytes, served)) => metrics.served(*served, bytes.len()),
                Err((_, served)) => metrics.served(*served, 0),
            }
            result.map(|(bytes, _)| bytes).map_err(|(status, _)| status)
        })
    }

    fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        digests.iter().map(|digest| self.keeps(digest)).collect()
    }
}

impl ReadPath {
    async fn answer(
        &self,
        request: &ChunkRequest,
        deadline: Instant,
    ) -> Result<(Bytes, Serve), (PeerStatus, Serve)> {
        let sources = &self.sources;
        if sources.is_draining() {
            return Err((PeerStatus::Overloaded, Serve::Draining));
        }
        let max = sources.config.serve_inflight_max;
        let Some(_entered) = InFlight::enter(&self.serves_inflight, max) else {
            return Err((PeerStatus::Overloaded, Serve::Overloaded));
        };
        if request.chunk_size != sources.store.chunk_size() {
            return Err((PeerStatus::Invalid, Serve::Invalid));
        }
        if let Some((bytes, tier)) = sources.local_bytes(&request.digest) {
            let served = if tier == Tier::Store { Serve::Store } else { Serve::Recent };
            return Ok((bytes, served));
        }
        let Some((disk, want)) = self.locate(request) else {
            return Err((PeerStatus::NotFound, Serve::NotFound));
        };
        let now = Instant::now();
        let margin = deadline.saturating_duration_since(now) / ANSWER_MARGIN_DIVISOR;
        let deadline = deadline - margin;
        let flight = sources.obtain(&disk, &want, Side::Peer, deadline);
        match flight.wait(deadline).await {
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

    /// Finds where in the origin the chunk is, by the hint; the manifest has the last word.
    fn locate(&self, request: &ChunkRequest) -> Option<(Arc<Disk>, Want)> {
        if request.chunk_index == NO_HINT {
            return None;
        }
        let disk = self.disk(&request.disk_id)?;
        let want = disk.want(request.chunk_index)?;
        (want.digest == request.digest).then_some((disk, want))
    }
}
