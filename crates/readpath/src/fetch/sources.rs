//! Everything that a chunk can come from, and what happens to one that came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_manifest::PageCache;
use acstor_runclock::RunClock;
use acstor_types::{ChunkSize, Digest, DiskId, Oid};
use bytes::Bytes;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::ahead::ahead_memory::AheadMemory;
use crate::ahead::ahead_room::AheadRoom;
use crate::ahead::finished_boots::FinishedBoots;
use crate::exchange::Exchange;
use crate::fetch::flight::FlightTable;
use crate::keeping::ghost::GhostTable;
use crate::keeping::host_chunks::HostChunks;
use crate::keeping::inserter::Inserter;
use crate::keeping::recent::RecentCache;
use crate::keeping::store_reader::StoreReader;
use crate::observe::metrics::Metrics;
use crate::observe::page_metrics::PageCollector;
use crate::observe::runtime_metrics::RuntimeCollector;
use crate::origin::origin_pool::{LateSink, OriginPool};
use crate::origin::origin_queue::OriginQueue;
use crate::origin::stored_place::StoredPlace;
use crate::pages::page_fetches::PageFetches;
use crate::steering::Steering;
use crate::view::manifest_loads::ManifestLoads;
use crate::view::page_reads::PageReads;
use crate::view::waiting_reads::WaitingReads;
use crate::{PeerSource, ReadPathConfig, ReadPathError, Seams, limits};

/// A chunk that somebody wants, and where the origin has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) digest: Digest,
    pub(crate) place: StoredPlace,
    pub(crate) disk: DiskId,
    pub(crate) index: u64,
    pub(crate) chunk_size: ChunkSize,
    /// Position on the ring.
    pub(crate) oid: Oid,
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
    /// Bytes ordered along the profiles of boots and on their way.
    pub(crate) ahead_room: Arc<AheadRoom>,
    /// Hints of hosts that boot the same image.
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) manifest_loads: ManifestLoads,
    /// Pages of all manifests that are read by the page.
    pub(crate) pages: Arc<PageCache>,
    pub(crate) page_fetches: Arc<PageFetches>,
    /// Told of each disk that is attached.
    pub(crate) attached: Notify,
    pub(crate) page_reads: PageReads,
    pub(crate) finished_boots: Arc<FinishedBoots>,
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
    /// Starts what a chunk can come from: the inserter is a thread, `start_workers` starts those of the
    /// origin, all else runs on `runtime`. The metrics are registered with `registry`.
    ///
    /// # Errors
    /// [`ReadPathError::Config`] for a value out of range, [`ReadPathError::Thread`].
    pub(crate) fn start(
        config: ReadPathConfig,
        seams: Seams,
        registry: &mut Registry,
        runtime: Handle,
        start_workers: impl FnOnce(
            &Arc<OriginQueue>,
            &Arc<Metrics>,
            &LateSink,
        ) -> Result<(), ReadPathError>,
    ) -> Result<Sources, ReadPathError> {
        config.validate()?;
        let metrics = Arc::new(Metrics::new(registry));
        registry.register_collector(Box::new(RuntimeCollector(seams.clock.clone())));
        let pages = Arc::new(PageCache::new(config.manifest_cache_bytes));
        registry.register_collector(Box::new(PageCollector(pages.clone())));
        let inserter = Arc::new(Inserter::new(config.insert_queue_bytes));
        inserter.start(seams.store.clone(), metrics.clone())?;
        let queue = Arc::new(OriginQueue::new(&config));
        let late_sink = keep_late_chunks(&inserter, &metrics);
        start_workers(&queue, &metrics, &late_sink)?;
        let Seams { store, peers, rings, clock, origin } = seams;
        let page_fetches = Arc::new(PageFetches::new(
            &config,
            origin,
            queue.clone(),
            pages.clone(),
            clock.clone(),
            registry,
            runtime.clone(),
        ));
        let chunk = store.chunk_size().bytes();
        let exchange = Arc::new(Exchange::new(
            &config,
            rings.clone(),
            peers.clone(),
            clock.clone(),
            runtime.clone(),
            metrics.clone(),
        ));
        let (of_queue, of_metrics) = (queue.clone(), metrics.clone());
        let steering =
            Steering::new(&config, rings, clock.clone(), of_queue, of_metrics, chunk as u64);
        let reader = StoreReader::new(
            store.clone(),
            metrics.clone(),
            config.store_late_after,
            clock.clone(),
            runtime.clone(),
        );
        let chunks = HostChunks {
            reader,
            store,
            recent: RecentCache::new(config.recent_bytes),
            ahead: AheadMemory::new(config.read_ahead_bytes as u64),
            inserter,
            ghosts: GhostTable::new(limits::GHOST_ENTRIES),
            keep: config.keep,
            metrics: metrics.clone(),
        };
        Ok(Sources {
            chunks,
            peers,
            steering: Arc::new(steering),
            origin: OriginPool::new(queue, runtime.clone()),
            flights: Arc::new(FlightTable::new(clock.clone())),
            finished_boots: Arc::new(FinishedBoots::new(metrics.clone())),
            metrics,
            clock,
            prefetch_permits: Arc::new(Semaphore::new(config.prefetch_max_bytes.div_ceil(chunk))),
            ahead_room: Arc::new(AheadRoom::new()),
            exchange,
            manifest_loads: ManifestLoads::default(),
            pages,
            page_fetches,
            attached: Notify::new(),
            page_reads: PageReads::default(),
            runtime,
            is_draining: AtomicBool::new(false),
            waiting_reads: WaitingReads::default(),
            config,
        })
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Stops: reads that wait for the origin fail, chunks that wait to be kept are written within
    /// `timeout`. Threads that wait for an origin or a disk that hangs are left behind. Blocks.
    pub(crate) fn stop(&self, timeout: Duration) {
        self.origin.queue().stop();
        self.chunks.inserter.stop();
        self.chunks.reader.stop(timeout.max(limits::END_WAIT));
        // It ends at once where nothing waits, unless the disk hangs.
        self.chunks.inserter.join(timeout.max(limits::END_WAIT));
    }
}

fn keep_late_chunks(inserter: &Arc<Inserter>, metrics: &Arc<Metrics>) -> LateSink {
    let (inserter, metrics) = (inserter.clone(), metrics.clone());
    Arc::new(move |chunks: Vec<(Digest, Bytes)>| {
        for (digest, bytes) in chunks {
            if !inserter.push(digest, bytes) {
                metrics.insert_dropped();
            }
        }
    })
}
