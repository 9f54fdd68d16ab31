//! Everything that a chunk can come from, and what happens to one that came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_runclock::RunClock;
use acstor_types::{ChunkLocation, ChunkSize, Digest, DiskId};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::fetch::flight::FlightTable;
use crate::keeping::host_chunks::HostChunks;
use crate::observe::metrics::Metrics;
use crate::origin::origin_pool::OriginPool;
use crate::steering::Steering;
use crate::view::manifest_loads::ManifestLoads;
use crate::view::waiting_reads::WaitingReads;
use crate::{PeerSource, ReadPathConfig};

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
    /// By which others are judged and reads are late.
    pub(crate) clock: RunClock,
    pub(crate) chunks: HostChunks,
    pub(crate) peers: Arc<dyn PeerSource>,
    pub(crate) origin: Arc<OriginPool>,
    pub(crate) flights: Arc<FlightTable>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) steering: Arc<Steering>,
    /// One permit per chunk that is being prefetched.
    pub(crate) prefetch_permits: Arc<Semaphore>,
    pub(crate) manifest_loads: ManifestLoads,
    pub(crate) runtime: Handle,
    pub(crate) is_draining: AtomicBool,
    /// Reads of guests that wait; preloads give way to them.
    pub(crate) waiting_reads: WaitingReads,
}

/// Ends the threads of a read path that was dropped without being stopped.
impl Drop for Sources {
    fn drop(&mut self) {
        self.origin.queue().stop();
        self.chunks.inserter.stop();
        self.chunks.reader.stop(Duration::ZERO);
    }
}

impl Sources {
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}
