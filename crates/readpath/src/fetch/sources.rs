//! Everything that a chunk can come from, and what happens to one that came.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_runclock::RunClock;
use acstor_types::{ChunkLocation, ChunkSize, Digest, DiskId};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::fetch::flight::{FlightTable, Obtained, Side};
use crate::keeping::ghost::GhostTable;
use crate::keeping::inserter::Inserter;
use crate::keeping::recent::RecentCache;
use crate::keeping::store_reader::StoreReader;
use crate::observe::metrics::Metrics;
use crate::origin::origin_pool::OriginPool;
use crate::steering::Steering;
use crate::view::waiting_reads::WaitingReads;
use crate::{Keep, LocalChunk, LocalLook, LocalStore, PeerSource, ReadPathConfig, Tier};

/// A chunk that somebody wants, and where the origin has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) digest: Digest,
    pub(crate) location: ChunkLocation,
    pub(crate) disk: DiskId,
    pub(crate) index: u64,
    pub(crate) chunk_size: ChunkSize,
}

/// Where a chunk is on this host, as far as that is known without I/O.
pub(crate) enum AtHost {
    Memory(LocalChunk, Tier),
    /// On the disk of the chunk store only; so much of it is to be read.
    Disk(Range<usize>),
    Absent,
}

/// The parts of a read path that its views, its server and its flights share.
pub(crate) struct Sources {
    pub(crate) config: ReadPathConfig,
    /// By which others are judged and reads are late.
    pub(crate) clock: RunClock,
    pub(crate) store: Arc<dyn LocalStore>,
    pub(crate) store_reader: StoreReader,
    pub(crate) recent: RecentCache,
    pub(crate) inserter: Arc<Inserter>,
    pub(crate) ghosts: GhostTable,
    pub(crate) peers: Arc<dyn PeerSource>,
    pub(crate) origin: Arc<OriginPool>,
    pub(crate) flights: Arc<FlightTable>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) steering: Arc<Steering>,
    /// One permit per chunk that is being prefetched.
    pub(crate) prefetch_permits: Arc<Semaphore>,
    /// One permit per manifest that is being read.
    pub(crate) manifest_permits: Arc<Semaphore>,
    /// One permit per manifest that is being read for anybody but a guest.
    pub(crate) manifest_permits_of_others: Arc<Semaphore>,
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
        self.store_reader.stop(Duration::ZERO);
    }
}

impl Sources {
    /// Looks for a chunk of which `len` bytes from `start` on are wanted; no I/O.
    ///
    /// Asks the store first: a hit takes no other lock.
    pub(crate) fn find_here(&self, digest: &Digest, start: usize, len: usize) -> AtHost {
        let look = self.store.look(digest, start, len);
        if let LocalLook::Memory(chunk) = look {
            return AtHost::Memory(chunk, Tier::Store);
        }
        match self.inserter.get(digest).or_else(|| self.recent.get(digest)) {
            Some(bytes) => AtHost::Memory(LocalChunk::Bytes(bytes), Tier::Recent),
            None => match look {
                LocalLook::Disk(part) => AtHost::Disk(part),
                _ => AtHost::Absent,
            },
        }
    }

    /// Returns a chunk that is in this host's memory, and from where; no I/O.
    pub(crate) fn local_bytes(&self, digest: &Digest) -> Option<(Bytes, Tier)> {
        let AtHost::Memory(chunk, tier) =
            self.find_here(digest, 0, self.store.chunk_size().bytes())
        else {
            return None;
        };
        match chunk {
            LocalChunk::Bytes(bytes) | LocalChunk::Part(bytes) => Some((bytes, tier)),
            // Its pages may have left memory since.
            LocalChunk::Mapped(guard) => Some((guard.try_copy(0, guard.len())?, tier)),
        }
    }

    /// Returns a chunk that is on this host, and from where; waits for the disk, but not long.
    pub(crate) async fn read_local(&self, digest: &Digest) -> Option<(Bytes, Tier)> {
        if let Some(found) = self.local_bytes(digest) {
            return Some(found);
        }
        if !self.store.contains(digest) {
            return None;
        }
        let bytes =
            self.store_reader.start(digest, 0..self.store.chunk_size().bytes())?.wait().await?;
        Some((bytes, Tier::Store))
    }

    /// Whether [`Sources::local_bytes`] would give a chunk; no I/O.
    pub(crate) fn is_local(&self, digest: &Digest) -> bool {
        let len = self.store.chunk_size().bytes();
        matches!(self.find_here(digest, 0, len), AtHost::Memory(..))
    }

    /// Whether a chunk is on this host, in memory or on the disk, without touching it; no I/O.
    pub(crate) fn is_here(&self, digest: &Digest) -> bool {
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
