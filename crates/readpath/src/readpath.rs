//! One host's read path: what is attached, and the parts behind it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use acstor_ring::{RingHandle, Threshold};
use acstor_runclock::RunClock;
use acstor_types::{Digest, DiskId, Manifest, ManifestHeader};
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::ahead::read_trace::ReadTrace;
use crate::fetch::flight::FlightTable;
use crate::fetch::sources::Sources;
use crate::keeping::ghost::GhostTable;
use crate::keeping::host_chunks::HostChunks;
use crate::keeping::inserter::Inserter;
use crate::keeping::pins::PinTable;
use crate::keeping::recent::RecentCache;
use crate::keeping::store_reader::StoreReader;
use crate::observe::metrics::Metrics;
use crate::observe::runtime_metrics::RuntimeCollector;
use crate::origin::origin_pool::{self, LateSink, OriginPool};
use crate::origin::origin_queue::OriginQueue;
use crate::preload::PreloadTable;
use crate::steering::Steering;
use crate::view::attachment::Attachment;
use crate::view::disk::Disk;
use crate::view::disk_view::DiskView;
use crate::view::manifest_loads::ManifestLoads;
use crate::view::manifest_source::ManifestSource;
use crate::view::offered_view::OfferedView;
use crate::view::waiting_reads::WaitingReads;
use crate::{
    BlockView, LocalStore, OriginSource, PeerSource, ReadPathConfig, ReadPathError, limits,
};

/// What a read path reads from.
#[derive(Clone)]
pub struct Seams {
    /// This host's chunk store.
    pub store: Arc<dyn LocalStore>,
    /// The other hosts.
    pub peers: Arc<dyn PeerSource>,
    /// The origin.
    pub origin: Arc<dyn OriginSource>,
    /// The rings in use; shared with whoever sets them.
    pub rings: Arc<RingHandle>,
    /// The running time of the runtime, by which others are late; best the same as of `peers`.
    pub clock: RunClock,
}

/// Where the manifest of an attached disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestState {
    /// In memory.
    InMemory,
    /// Where it was offered from; it is read when it is needed.
    OnDisk,
    /// There too, and found damaged: the disk cannot be read until it is attached anew.
    Damaged,
}

/// What became of an attachment.
enum Entered {
    New(Arc<Attachment>),
    Present(Arc<Attachment>),
}

/// The read path of one host. Cheap to clone; every clone is the same read path.
#[derive(Clone)]
pub struct ReadPath {
    pub(crate) sources: Arc<Sources>,
    pub(crate) serves_inflight: Arc<AtomicUsize>,
    pub(crate) pins: Arc<PinTable>,
    /// Pins of preloads, which a pin of head and tail leaves alone.
    pub(crate) preload_pins: Arc<PinTable>,
    pub(crate) preloads: Arc<PreloadTable>,
    /// Chunks that this host may be about to give up, and does not claim to keep.
    pub(crate) offered: Arc<Mutex<HashSet<Digest>>>,
    disks: Arc<ArcSwap<HashMap<DiskId, Arc<Attachment>>>>,
    rings: Arc<RingHandle>,
    inserter_thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl ReadPath {
    /// Starts a read path: its origin pool and its inserter are threads, all else runs on `runtime`.
    /// Its metrics are registered with `registry`.
    ///
    /// # Errors
    /// [`ReadPathError::Config`] for a value out of range, [`ReadPathError::Thread`].
    pub fn new(
        config: ReadPathConfig,
        seams: Seams,
        registry: &mut Registry,
        runtime: Handle,
    ) -> Result<ReadPath, ReadPathError> {
        let origin = seams.origin.clone();
        let threads = config.origin_threads;
        ReadPath::with_workers(config, seams, registry, runtime, |queue, metrics, late_sink| {
            origin_pool::start_threads(queue, &origin, metrics, late_sink, threads)
        })
    }

    /// As [`ReadPath::new`], with other workers at the origin's queue: tests run them in paused time.
    pub(crate) fn with_workers(
        config: ReadPathConfig,
        seams: Seams,
        registry: &mut Registry,
        runtime: Handle,
        start_workers: impl FnOnce(
            &Arc<OriginQueue>,
            &Arc<Metrics>,
            &LateSink,
        ) -> Result<(), ReadPathError>,
    ) -> Result<ReadPath, ReadPathError> {
        config.validate()?;
        let metrics = Arc::new(Metrics::new(registry));
        registry.register_collector(Box::new(RuntimeCollector(seams.clock.clone())));
        let inserter = Arc::new(Inserter::new(config.insert_queue_bytes));
        let thread = inserter.start(seams.store.clone(), metrics.clone())?;
        let queue = Arc::new(OriginQueue::new(&config));
        let late_sink = keep_late_chunks(&inserter, &metrics);
        start_workers(&queue, &metrics, &late_sink)?;
        let chunk = seams.store.chunk_size().bytes();
        let clock = seams.clock;
        let steering = Steering::new(
            &config,
            seams.rings.clone(),
            clock.clone(),
            queue.clone(),
            metrics.clone(),
        );
        let sources = Sources {
            chunks: HostChunks {
                reader: StoreReader::new(
                    seams.store.clone(),
                    metrics.clone(),
                    config.store_late_after,
                    clock.clone(),
                    runtime.clone(),
                ),
                store: seams.store,
                recent: RecentCache::new(config.recent_bytes),
                inserter,
                ghosts: GhostTable::new(limits::GHOST_ENTRIES),
                keep: config.keep,
                metrics: metrics.clone(),
            },
            peers: seams.peers,
            steering: Arc::new(steering),
            origin: OriginPool::new(queue, runtime.clone()),
            flights: Arc::new(FlightTable::new(clock.clone())),
            metrics,
            clock,
            prefetch_permits: Arc::new(Semaphore::new(config.prefetch_max_bytes.div_ceil(chunk))),
            manifest_loads: ManifestLoads::default(),
            runtime,
            is_draining: AtomicBool::new(false),
            waiting_reads: WaitingReads::default(),
            config,
        };
        Ok(ReadPath {
            sources: Arc::new(sources),
            serves_inflight: Arc::default(),
            pins: Arc::default(),
            preload_pins: Arc::default(),
            preloads: Arc::new(PreloadTable::new()),
            offered: Arc::default(),
            disks: Arc::default(),
            rings: seams.rings,
            inserter_thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// The running time by which this read path judges others.
    pub fn clock(&self) -> RunClock {
        self.sources.clock.clone()
    }

    /// Attaches a disk, or returns the view of one that is attached with the same content; where
    /// its chunks moved in the origin, every view of it reads them from the new place. The manifest is
    /// in memory until the disk is detached; where it was offered, for as long as the view is held.
    ///
    /// # Errors
    /// [`ReadPathError::Conflict`], [`ReadPathError::ChunkSize`], [`ReadPathError::TooManyDisks`].
    pub fn attach(&self, manifest: Manifest) -> Result<Arc<dyn BlockView>, ReadPathError> {
        let header = manifest.header();
        let make = || Attachment::of(manifest.clone(), &self.sources);
        let attachment = match self.enter(&header, make)? {
            Entered::New(attachment) => attachment,
            Entered::Present(attachment) => {
                attachment.replace((header, manifest.digest()), Some(&manifest), None)?;
                attachment
            }
        };
        let view = attachment.bring(manifest, &self.sources);
        // One of its own: that the disk is held is how the attachment knows that it is in use.
        Ok(Arc::new(DiskView { disk: view.disk.clone(), sources: self.sources.clone() }))
    }

    /// Attaches a disk as [`ReadPath::attach`] does, but its manifest is read from `source` when it is
    /// needed first, and is in memory for as long as it is needed. `digest` names the manifest that the
    /// source gives. Waits for the local disk where the disk is attached with another manifest.
    ///
    /// # Errors
    /// As [`ReadPath::attach`], and [`ReadPathError::Manifest`].
    pub fn offer(
        &self,
        header: ManifestHeader,
        digest: Digest,
        source: Arc<dyn ManifestSource>,
    ) -> Result<Arc<dyn BlockView>, ReadPathError> {
        let make = || Attachment::offered(header, digest, source.clone());
        let attachment = match self.enter(&header, make)? {
            Entered::New(attachment) => attachment,
            Entered::Present(attachment) => {
                attachment.replace((header, digest), None, Some(source))?;
                attachment
            }
        };
        Ok(Arc::new(OfferedView { attachment, sources: self.sources.clone() }))
    }

    /// Finds the attachment of a disk, or enters the one that is made.
    fn enter(
        &self,
        header: &ManifestHeader,
        make: impl FnOnce() -> Attachment,
    ) -> Result<Entered, ReadPathError> {
        let (ours, theirs) = (self.sources.chunks.store.chunk_size(), header.chunk_size);
        let id = header.disk_id;
        if ours != theirs {
            let (ours, theirs) = (ours.as_u32(), theirs.as_u32());
            return Err(ReadPathError::ChunkSize { disk: id, theirs, ours });
        }
        if let Some(attachment) = self.attachment(&id) {
            return Ok(Entered::Present(attachment));
        }
        let new = Arc::new(make());
        let mut outcome = Ok(Entered::New(new.clone()));
        self.disks.rcu(|disks| {
            outcome = match disks.get(&id) {
                // Somebody else attached it at the same time.
                Some(other) => Ok(Entered::Present(other.clone())),
                None if disks.len() >= limits::DISKS_MAX => {
                    Err(ReadPathError::TooManyDisks(limits::DISKS_MAX))
                }
                None => Ok(Entered::New(new.clone())),
            };
            let mut disks = HashMap::clone(disks);
            if let Ok(Entered::New(new)) = &outcome {
                disks.insert(id, new.clone());
            }
            disks
        });
        outcome
    }

    /// Detaches a disk and takes its pins back. Views of it go on working; peers can no longer have
    /// chunks read from the origin by it.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn detach(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.attached_disk(disk_id)?;
        self.disks.rcu(|disks| {
            let mut disks = HashMap::clone(disks);
            disks.remove(disk_id);
            disks
        });
        self.forget_preload(disk_id);
        self.unpin_except(disk_id, &HashSet::new());
        Ok(())
    }

    /// Ids of the attached disks, in no order.
    pub fn disks(&self) -> Vec<DiskId> {
        self.disks.load().keys().copied().collect()
    }

    /// Where the manifest of an attached disk is.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn manifest_state(&self, disk_id: &DiskId) -> Result<ManifestState, ReadPathError> {
        let attachment = self.attached_disk(disk_id)?;
        Ok(match attachment.memory_bytes() {
            0 if attachment.is_damaged() => ManifestState::Damaged,
            0 => ManifestState::OnDisk,
            _ => ManifestState::InMemory,
        })
    }

    /// Drops from memory the manifests that can be read again and that nobody has needed for `idle`, in
    /// general [`limits::MANIFEST_IDLE`]. `is_open`: whether a front end has a disk open, which is a need.
    pub fn release_idle_manifests(&self, idle: Duration, is_open: impl Fn(&DiskId) -> bool) {
        for attachment in self.attached() {
            attachment.release_idle(idle, || is_open(&attachment.id()));
        }
    }

    /// A disk whose manifest is in memory.
    #[cfg(test)]
    pub(crate) fn disk(&self, disk_id: &DiskId) -> Option<Arc<Disk>> {
        Some(self.attachment(disk_id)?.view.load_full()?.disk.clone())
    }

    pub(crate) fn attached(&self) -> Vec<Arc<Attachment>> {
        self.disks.load().values().cloned().collect()
    }

    pub(crate) fn attachment(&self, disk_id: &DiskId) -> Option<Arc<Attachment>> {
        self.disks.load().get(disk_id).cloned()
    }

    pub(crate) fn attached_disk(&self, disk_id: &DiskId) -> Result<Arc<Attachment>, ReadPathError> {
        self.attachment(disk_id).ok_or(ReadPathError::NotAttached(*disk_id))
    }

    /// The disk for one look at it; waits for the local disk where its manifest is not in memory.
    pub(crate) fn read_disk(&self, disk_id: &DiskId) -> Result<Arc<Disk>, ReadPathError> {
        let read = self.attached_disk(disk_id)?.read(&self.sources);
        read.map_err(|error| ReadPathError::Manifest {
            disk: *disk_id,
            kind: error.kind(),
            reason: error.to_string(),
        })
    }

    /// As [`ReadPath::read_disk`], for a task.
    pub(crate) async fn disk_apart(&self, disk_id: &DiskId) -> Result<Arc<Disk>, ReadPathError> {
        if let Some(view) = self.attached_disk(disk_id)?.view.load_full() {
            return Ok(view.disk.clone());
        }
        let (path, disk) = (self.clone(), *disk_id);
        let read = self.sources.runtime.spawn_blocking(move || path.read_disk(&disk)).await;
        read.unwrap_or(Err(ReadPathError::NotAttached(*disk_id)))
    }

    /// While on, requests of peers are refused as overload; guests are served as ever.
    pub fn set_drain(&self, on: bool) {
        self.sources.is_draining.store(on, Ordering::Relaxed);
    }

    /// Whether requests of peers are refused.
    pub fn is_draining(&self) -> bool {
        self.sources.is_draining()
    }

    /// From which distance on other hosts are too far to be asked.
    pub fn distance_threshold(&self) -> Threshold {
        self.sources.steering.placement.threshold()
    }

    /// Changes the distance from which on other hosts are too far: lookups from here on use it.
    pub fn set_distance_threshold(&self, threshold: Threshold) {
        self.sources.steering.placement.set_threshold(threshold);
    }

    /// Whether the origin answers, as far as this host knows.
    pub fn is_origin_up(&self) -> bool {
        self.sources.origin.queue().health.is_up()
    }

    /// Starts to record a disk's reads, at most `capacity` records; restarts a running trace.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_start(&self, disk_id: &DiskId, capacity: usize) -> Result<(), ReadPathError> {
        let disk = self.attached_disk(disk_id)?;
        disk.records.trace.store(Some(Arc::new(ReadTrace::new(capacity))));
        Ok(())
    }

    /// The records of a disk as JSON lines, oldest first; empty where none is kept.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_get(&self, disk_id: &DiskId) -> Result<String, ReadPathError> {
        let disk = self.attached_disk(disk_id)?;
        Ok(disk.records.trace.load_full().map_or_else(String::new, |trace| trace.to_json_lines()))
    }

    /// Stops recording and forgets the records.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_stop(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        let disk = self.attached_disk(disk_id)?;
        disk.records.trace.store(None);
        Ok(())
    }

    /// Brings the gauges of the registry up to date; call before encoding it.
    pub fn refresh_gauges(&self) {
        let sources = &self.sources;
        let gauges = &sources.metrics.gauges;
        let usage = sources.chunks.store.usage();
        let queue = sources.origin.queue();
        let as_gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        gauges.flights.set(sources.flights.len() as i64);
        gauges.peers_penalised.set(sources.steering.peers.open() as i64);
        gauges.origin_up.set(i64::from(queue.health.is_up()));
        gauges.origin_queue_chunks.set(queue.depth() as i64);
        gauges.store_up.set(i64::from(sources.chunks.reader.is_answering()));
        gauges.serves_inflight.set(self.serves_inflight.load(Ordering::Relaxed) as i64);
        gauges.insert_queue_bytes.set(sources.chunks.inserter.bytes() as i64);
        gauges.recent_bytes.set(sources.chunks.recent.bytes() as i64);
        gauges.store_capacity_bytes.set(as_gauge(usage.capacity_bytes));
        gauges.store_used_bytes.set(as_gauge(usage.used_bytes));
        gauges.store_pinned_bytes.set(as_gauge(usage.pinned_bytes));
        gauges.ring_generation.set(as_gauge(self.rings.generation()));
        gauges.distance_threshold.set(i64::from(self.distance_threshold().0));
        gauges.peers_loaded.set(sources.steering.overloaded_peers() as i64);
        gauges.own_link_slow.set(i64::from(sources.steering.is_own_link_slow()));
        gauges.reads_waiting.set(sources.waiting_reads.count() as i64);
        sources.metrics.preload.set_jobs(self.preloads.counts());
        sources.metrics.preload.set_working_sets(self.working_set_totals());
        let attached = self.attached();
        let in_memory: Vec<u64> =
            attached.iter().map(|disk| disk.memory_bytes()).filter(|bytes| *bytes > 0).collect();
        gauges.disks.set(attached.len() as i64);
        gauges.manifests_in_memory.set(in_memory.len() as i64);
        gauges.manifest_bytes.set(as_gauge(in_memory.iter().sum()));
    }

    /// Waits until every chunk obtained so far is in the chunk store or refused by it, at most
    /// `timeout`; returns whether that is so. Blocks.
    pub fn flush_inserts(&self, timeout: Duration) -> bool {
        self.sources.chunks.inserter.flush(timeout)
    }

    /// Stops: reads that wait for the origin fail, chunks that wait to be kept are written within
    /// `timeout`. Threads that wait for an origin that hangs are left behind. Blocks.
    pub fn stop(&self, timeout: Duration) {
        self.stop_preloads();
        self.sources.origin.queue().stop();
        self.sources.chunks.inserter.stop();
        self.sources.chunks.reader.stop(timeout.max(limits::END_WAIT));
        // It ends at once where nothing waits, unless the disk hangs: then it is left behind.
        let has_ended = self.sources.chunks.inserter.wait_ended(timeout.max(limits::END_WAIT));
        if let (true, Some(thread)) = (has_ended, self.inserter_thread.lock().take())
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps chunks panicked");
        }
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
