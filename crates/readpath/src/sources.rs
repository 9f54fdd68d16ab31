//! Everything that a chunk can come from, and what happens to one that came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use acstor_types::{ChunkLocation, ChunkSize, Digest, DiskId};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::flight::{FlightTable, Obtained, Side};
use crate::ghost::GhostTable;
use crate::inserter::Inserter;
use crate::metrics::Metrics;
use crate::origin_pool::OriginPool;
use crate::peer_health::PeerTable;
use crate::placement::Placement;
use crate::recent::RecentCache;
use crate::steering::Steering;
use crate::token_bucket::TokenBucket;
use crate::waiting_reads::WaitingReads;
use crate::{Keep, LocalChunk, LocalStore, PeerSource, ReadPathConfig, Tier};

/// A chunk that somebody wants, and where the origin has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) digest: Digest,
    pub(crate) location: ChunkLocation,
    pub(crate) disk: DiskId,
    pub(crate) index: u64,
    pub(crate) chunk_size: ChunkSize,
}

/// The parts of a read path that its views, its server and its flights share.
pub(crate) struct Sources {
    pub(crate) config: ReadPathConfig,
    pub(crate) store: Arc<dyn LocalStore>,
    pub(crate) recent: RecentCache,
    pub(crate) inserter: Arc<Inserter>,
    pub(crate) ghosts: GhostTable,
    pub(crate) peers: Arc<dyn PeerSource>,
    pub(crate) peer_table: PeerTable,
    pub(crate) placement: Placement,
    pub(crate) origin: Arc<OriginPool>,
    pub(crate) flights: Arc<FlightTable>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) steering: Steering,
    pub(crate) hedge_budget: TokenBucket,
    pub(crate) retry_budget: TokenBucket,
    /// One permit per chunk that is being prefetched.
    pub(crate) prefetch_permits: Arc<Semaphore>,
    pub(crate) runtime: Handle,
    pub(crate) is_draining: AtomicBool,
    /// Reads of guests that wait; preloads give way to them.
    pub(crate) waiting_reads: WaitingReads,
}

/// Ends the threads of a read path that was dropped without being stopped.
impl Drop for Sources {
    fn drop(&mut self) {
        self.origin.queue().stop();
        self.inserter.stop();
    }
}

impl Sources {
    /// Returns a chunk that is on this host, and from where.
    ///
    /// Asks the store first: a hit takes no other lock.
    pub(crate) fn local(&self, digest: &Digest) -> Option<(LocalChunk, Tier)> {
        match self.store.get(digest) {
            Ok(Some(chunk)) => return Some((chunk, Tier::Store)),
            Ok(None) => {}
            Err(error) => {
                self.metrics.store_read_error();
                tracing::warn!(kind = error.kind.as_str(), %digest, "taken for a miss: {error}");
            }
        }
        let bytes = self.inserter.get(digest).or_else(|| self.recent.get(digest))?;
        Some((LocalChunk::Bytes(bytes), Tier::Recent))
    }

    /// As [`Sources::local`], with the content in memory.
    pub(crate) fn local_bytes(&self, digest: &Digest) -> Option<(Bytes, Tier)> {
        let (chunk, tier) = self.local(digest)?;
        match chunk {
            LocalChunk::Bytes(bytes) => Some((bytes, tier)),
            LocalChunk::Mapped(guard) => match guard.to_bytes() {
                Ok(bytes) => Some((bytes, tier)),
                Err(error) => {
                    self.metrics.store_read_error();
                    tracing::warn!(%digest, "taken for a miss: cannot read its slot: {error}");
                    None
                }
            },
        }
    }

    /// Whether a chunk is on this host, without touching it.
    pub(crate) fn is_local(&self, digest: &Digest) -> bool {
        self.store.contains(digest)
            || self.recent.contains(digest)
            || self.inserter.get(digest).is_some()
    }

    /// Keeps a chunk that was obtained for `side`: for a moment in memory, and in the store where
    /// this host is to have it.
    pub(crate) fn keep(&self, digest: Digest, obtained: &Obtained, side: Side) {
        if side == Side::Preload {
            // Nobody reads it soon, and the preload itself sees to it that it is kept.
            let _ = self.inserter.push(digest, obtained.bytes.clone());
            return;
        }
        self.recent.insert(digest, obtained.bytes.clone());
        let is_kept = match obtained.tier {
            // Whatever cost a read of the origin, or moved here with the ring, is kept.
            Tier::Origin | Tier::PreviousOwner => true,
            Tier::Peer => match self.config.keep {
                Keep::Never => false,
                Keep::SecondTouch => self.ghosts.touch(digest),
                Keep::Always => true,
            },
            Tier::Zero | Tier::Recent | Tier::Store => false,
        };
        if is_kept {
            self.insert(digest, obtained.bytes.clone());
        }
    }

    /// Queues a verified chunk for the store.
    pub(crate) fn insert(&self, digest: Digest, bytes: Bytes) {
        if !self.inserter.push(digest, bytes) {
            self.metrics.insert_dropped();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}
