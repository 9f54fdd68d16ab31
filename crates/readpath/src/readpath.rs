//! One host's read path: its parts, and the front that delegates to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acstor_peer::exchange::{Hints, Join, Joined};
use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerStatus, ServeFuture};
use acstor_ring::Threshold;
use acstor_runclock::RunClock;
use acstor_selection::{BootProfile, CompressionCost};
use acstor_store::Discarded;
use acstor_types::{Digest, DiskId};
use bytes::Bytes;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::ahead::boot_profiles::BootProfiles;
use crate::ahead::read_trace::ReadTrace;
use crate::ahead::working_sets::WorkingSets;
use crate::fetch::serve::Responder;
use crate::fetch::sources::Sources;
use crate::keeping::claims::Claims;
use crate::keeping::held_chunks::held_chunks;
use crate::keeping::pin_table::PinTable;
use crate::keeping::pins::Pins;
use crate::observe::gauges::GaugeReader;
use crate::observe::metrics::Metrics;
use crate::origin::origin_pool::{self, LateSink};
use crate::origin::origin_queue::OriginQueue;
use crate::pages::completion::Completion;
use crate::preload::{Preloads, Room};
use crate::view::attachments::Attachments;
use crate::view::deduplication::Deduplicator;
#[cfg(test)]
use crate::view::{attachment::DiskRecords, disk::Disk};
use crate::{
    BlockView, Coverage, DiskManifest, DiskShape, HeldChunks, LocalError, ManifestSource,
    ManifestState, PeerLatency, PinReport, PreloadEstimate, PreloadFeed, PreloadRequest,
    PreloadStatus, PreloadWhat, ReadCounts, ReadPathConfig, ReadPathError, RecordedBoot, Seams,
    Walk, WorkingSet,
};

/// The read path of one host. Cheap to clone; every clone is the same read path.
///
/// It does nothing itself: views of disks read from the sources, and everything else is done by the part
/// that it is named after.
#[derive(Clone)]
pub struct ReadPath {
    pub(crate) sources: Arc<Sources>,
    attachments: Arc<Attachments>,
    pins: Arc<Pins>,
    preloads: Arc<Preloads>,
    working_sets: Arc<WorkingSets>,
    boot_profiles: Arc<BootProfiles>,
    deduplicator: Arc<Deduplicator>,
    completion: Arc<Completion>,
    pub(crate) responder: Arc<Responder>,
    gauges: Arc<GaugeReader>,
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
        let (store, rings) = (seams.store.clone(), seams.rings.clone());
        let sources = Arc::new(Sources::start(config, seams, registry, runtime, start_workers)?);
        let attachments = Arc::new(Attachments::new(sources.clone()));
        let pin_table = Arc::new(PinTable::new(store.clone()));
        let preload_pins = Arc::new(PinTable::new(store.clone()));
        let pins = Pins::new(sources.clone(), attachments.clone(), pin_table.clone());
        let room = Room::new(store.clone(), pin_table, preload_pins);
        let preloads = Arc::new(Preloads::new(sources.clone(), attachments.clone(), room));
        let working_sets = Arc::new(WorkingSets::new(attachments.clone(), store));
        let finished = sources.finished_boots.clone();
        let boot_profiles = Arc::new(BootProfiles::new(attachments.clone(), finished));
        let claims = Arc::new(Claims::new(sources.clone()));
        let deduplicator = Deduplicator::new(sources.clone(), attachments.clone(), claims.clone());
        let completion = Completion::new(sources.clone(), attachments.clone());
        let responder = Responder::new(sources.clone(), attachments.clone(), claims);
        let responder = Arc::new(responder);
        let gauges = GaugeReader {
            sources: sources.clone(),
            attachments: attachments.clone(),
            preloads: preloads.clone(),
            working_sets: working_sets.clone(),
            responder: responder.clone(),
            rings,
        };
        Ok(ReadPath {
            sources,
            attachments,
            pins: Arc::new(pins),
            preloads,
            working_sets,
            boot_profiles,
            deduplicator: Arc::new(deduplicator),
            completion: Arc::new(completion),
            responder,
            gauges: Arc::new(gauges),
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
    /// [`ReadPathError::Conflict`], [`ReadPathError::ChunkSize`], [`ReadPathError::TooManyDisks`],
    /// [`ReadPathError::Manifest`].
    pub fn attach(
        &self,
        manifest: impl Into<DiskManifest>,
    ) -> Result<Arc<dyn BlockView>, ReadPathError> {
        self.attachments.attach(manifest.into())
    }

    /// Attaches a disk as [`ReadPath::attach`] does, but its manifest is read from `source` when it is
    /// needed first, and is in memory for as long as it is needed. `digest` names the manifest that the
    /// source gives. Waits for the local disk where the disk is attached with another manifest.
    ///
    /// # Errors
    /// As [`ReadPath::attach`], and [`ReadPathError::Manifest`].
    pub fn offer(
        &self,
        shape: impl Into<DiskShape>,
        digest: Digest,
        source: Arc<dyn ManifestSource>,
    ) -> Result<Arc<dyn BlockView>, ReadPathError> {
        self.attachments.offer(shape.into(), digest, source)
    }

    /// Detaches a disk and takes its pins back. Views of it go on working; peers can no longer have
    /// chunks read from the origin by it.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn detach(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.attachments.remove(disk_id)?;
        self.preloads.forget(disk_id);
        self.pins.forget(disk_id);
        Ok(())
    }

    /// Ids of the attached disks, in no order.
    pub fn disks(&self) -> Vec<DiskId> {
        self.attachments.ids()
    }

    /// Returns the place of an attached disk's manifest.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn manifest_state(&self, disk_id: &DiskId) -> Result<ManifestState, ReadPathError> {
        self.attachments.manifest_state(disk_id)
    }

    /// Drops from memory the manifests that can be read again and that nobody has needed for `idle`, in
    /// general [`limits::MANIFEST_IDLE`](crate::limits::MANIFEST_IDLE). `is_open`: whether a front end has
    /// a disk open, which is a need.
    pub fn release_idle_manifests(&self, idle: Duration, is_open: impl Fn(&DiskId) -> bool) {
        self.attachments.release_idle_manifests(idle, is_open);
    }

    /// The records of an attached disk.
    #[cfg(test)]
    pub(crate) fn records(&self, disk_id: &DiskId) -> Option<Arc<DiskRecords>> {
        Some(self.attachments.get(disk_id)?.records.clone())
    }

    /// A disk whose manifest is in memory.
    #[cfg(test)]
    pub(crate) fn disk(&self, disk_id: &DiskId) -> Option<Arc<Disk>> {
        Some(self.attachments.get(disk_id)?.view.load_full()?.disk.clone())
    }

    /// Fetches the first `head_bytes` and last `tail_bytes` of a disk into the chunk store and keeps
    /// them there, in place of the disk's former pins. Both are rounded up to whole chunks.
    ///
    /// Call again for what is missing; what is pinned already costs nothing then.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`].
    ///
    /// # Cancel safety
    /// What was pinned until then stays pinned, and is unpinned by the next pin or the detach.
    pub async fn pin(
        &self,
        disk_id: &DiskId,
        head_bytes: u64,
        tail_bytes: u64,
        timeout: Duration,
    ) -> Result<PinReport, ReadPathError> {
        self.pins.pin(disk_id, head_bytes, tail_bytes, timeout).await
    }

    /// Bytes pinned for a disk, by preloads too.
    pub fn pinned_bytes(&self, disk_id: &DiskId) -> u64 {
        self.preloads.pinned_bytes(disk_id)
    }

    /// Keeps a chunk in the chunk store, as one that was obtained; blocks while the queue is full,
    /// for two seconds at most. Without room the chunk is not kept: the origin has it.
    ///
    /// `bytes` must be what `digest` names.
    pub fn keep(&self, digest: Digest, bytes: Bytes) {
        self.sources.chunks.keep_made(digest, bytes);
    }

    /// Returns the bytes that a preload would bring, and the room there is for it. A look-up per
    /// chunk; blocks where the manifest is not in memory.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::NoWorkingSet`],
    /// [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
    pub fn preload_estimate(
        &self,
        disk_id: &DiskId,
        what: PreloadWhat,
    ) -> Result<PreloadEstimate, ReadPathError> {
        self.preloads.estimate(disk_id, what)
    }

    /// Starts to bring a disk, or what its boots read, into the chunk store; returns at once.
    ///
    /// One job per disk: a live one of the same `what` and `pin` gets the new rate, any other is
    /// replaced.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::NoWorkingSet`],
    /// [`ReadPathError::TooManyChunks`].
    pub fn preload_start(
        &self,
        disk_id: &DiskId,
        request: PreloadRequest,
    ) -> Result<PreloadStatus, ReadPathError> {
        self.preloads.start(disk_id, request)
    }

    /// The newest preload of each disk that had one, in the order of ids.
    pub fn preload_status(&self) -> Vec<PreloadStatus> {
        self.preloads.status()
    }

    /// Stops the preload of a disk; what it brought stays. Nothing happens where there is none.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn preload_stop(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.preloads.stop(disk_id)
    }

    /// Stops every preload, for good.
    pub fn stop_preloads(&self) {
        self.preloads.stop_all();
    }

    /// Has preloads listen to a feed before they fetch; only the first one that is set counts.
    pub fn set_preload_feed(&self, feed: Arc<dyn PreloadFeed>) {
        let _ = self.preloads.feed.set(feed);
    }

    /// Returns whether a preload of this part of a disk is possible; from memory.
    pub fn can_preload(&self, disk_id: &DiskId, what: PreloadWhat) -> bool {
        self.preloads.can_bring(disk_id, what)
    }

    /// Returns the indexes of the chunks that a preload would bring, ascending. Blocks.
    ///
    /// # Errors
    /// [`ReadPathError`].
    pub fn preload_chunks(
        &self,
        disk_id: &DiskId,
        what: PreloadWhat,
    ) -> Result<Vec<u64>, ReadPathError> {
        self.preloads.chunks(disk_id, what)
    }

    /// Brings a chunk as a preload does, for somebody who sends it on; `None` where it cannot be had.
    pub fn preload_chunk(
        &self,
        disk_id: DiskId,
        index: u64,
    ) -> impl Future<Output = Option<Bytes>> + Send + use<> {
        self.preloads.clone().chunk(disk_id, index)
    }

    /// Returns whether reads of guests wait for a peer or the origin.
    pub fn has_waiting_reads(&self) -> bool {
        self.sources.waiting_reads.count() > 0
    }

    /// Follows a hint that a disk is about to be booted: preloads its working set at a rate, bytes
    /// per second, where it has one that is not all here and nothing preloads the disk. Returns at
    /// once and never waits.
    pub fn preload_hint(&self, disk_id: DiskId, rate: u64) {
        self.preloads.hint(disk_id, rate);
    }

    /// Returns the chunks that guests of this host read while the disk booted, since the process
    /// started.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::TooManyChunks`].
    pub fn working_set(&self, disk_id: &DiskId) -> Result<WorkingSet, ReadPathError> {
        self.working_sets.recorded(disk_id)
    }

    /// Greatest length of a working set of an attached disk, bytes.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn working_set_len_max(&self, disk_id: &DiskId) -> Result<u64, ReadPathError> {
        self.working_sets.len_max(disk_id)
    }

    /// Takes over which chunks boots of the disk read, as learnt by all hosts. Blocks where the manifest
    /// is not in memory.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`]; [`ReadPathError::WorkingSet`] when it is no working set of
    /// this disk; [`ReadPathError::TooManyChunks`]. What was set before stays.
    pub fn set_working_set(&self, disk_id: &DiskId, bitmap: &[u8]) -> Result<(), ReadPathError> {
        self.working_sets.set(disk_id, bitmap)
    }

    /// Takes over what is free of this host's link inwards, bytes per second, which bounds what is under way
    /// ahead of guests, is a part of what peers are expected to take, and says whether chunks come sooner
    /// compressed; `None`: nobody tells.
    pub fn set_free_rate(&self, rate: Option<u64>) {
        self.sources.ahead_room.set_free_rate(rate);
        self.sources.steering.set_free_rate(rate);
    }

    /// Takes over what compression between peers costs and saves, as it is measured: where links are told to be
    /// slow, peers may compress by it.
    pub fn set_compression(&self, cost: CompressionCost) {
        self.sources.steering.set_compression(cost);
    }

    /// Returns the chunks of an attached disk that are in the chunk store; touches none. Blocks where the
    /// manifest is not in memory, but brings no page of it.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::TooManyChunks`], [`ReadPathError::Manifest`].
    pub fn held_chunks(&self, disk_id: &DiskId) -> Result<HeldChunks, ReadPathError> {
        let disk = self.attachments.read(disk_id)?;
        held_chunks(&disk, &*self.sources.chunks.store)
    }

    /// Counts those of some chunks that are on this host, on its disk or in memory. Touches none.
    pub fn count_here(&self, digests: &[Digest]) -> usize {
        self.sources.chunks.count_here(digests)
    }

    /// Takes chunks from this host for good, pinned or not, and overwrites them on the disk. A chunk that
    /// somebody reads just now stays, and an attached disk may have one obtained again. Blocks.
    ///
    /// # Errors
    /// [`LocalError`] when the disk fails; some of the chunks may be gone.
    pub fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError> {
        self.sources.chunks.discard(digests)
    }

    /// Returns the share of each working set that was set which this host holds, in the order of
    /// ids. Touches no chunk.
    pub fn coverage(&self) -> Vec<(DiskId, Coverage)> {
        self.working_sets.coverage()
    }

    /// Forgets the boots up to the number `acknowledged`, and returns the next that guests of this host made,
    /// ascending. They stay until they are acknowledged.
    pub fn recorded_boots(&self, acknowledged: u64) -> Vec<RecordedBoot> {
        self.boot_profiles.recorded(acknowledged)
    }

    /// Takes over the orders in which boots of the disk read its chunks, as learnt by all hosts; no order
    /// takes the former ones back.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`]; [`ReadPathError::BootProfile`] when they are none of this disk. What
    /// was set before stays.
    pub fn set_boot_profile(&self, disk_id: &DiskId, orders: &[u8]) -> Result<(), ReadPathError> {
        self.boot_profiles.set(disk_id, orders)
    }

    /// Returns the orders that were set; `None` where none were.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn boot_profile(
        &self,
        disk_id: &DiskId,
    ) -> Result<Option<Arc<BootProfile>>, ReadPathError> {
        self.boot_profiles.get(disk_id)
    }

    /// Gives a disk what is left of the boot profile of another one that it was made from, where it has none
    /// of its own: the chunks that are still there. Returns whether anything is. Blocks where manifests are
    /// not in memory.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`].
    pub fn inherit_boot_profile(
        &self,
        base: &DiskId,
        disk: &DiskId,
    ) -> Result<bool, ReadPathError> {
        self.boot_profiles.inherit(base, disk)
    }

    /// Fetches for ever, in small pieces, what attached manifests of format 2 lack on this host.
    pub async fn complete_manifests(self) {
        self.completion.run().await;
    }

    /// Walks the chunk store for ever and demotes copies that the pool does not need; does nothing where
    /// copies are not limited.
    pub async fn deduplicate(self) {
        self.deduplicator.run().await;
    }

    /// Looks at the next cold chunks, however full the store is.
    pub async fn deduplicate_some(&self, walk: &mut Walk) {
        self.deduplicator.walk_some(walk).await;
    }

    /// While on, requests of peers are refused as overload; guests are served as ever.
    pub fn set_drain(&self, on: bool) {
        self.sources.is_draining.store(on, Ordering::Relaxed);
    }

    /// Returns whether requests of peers are refused.
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

    /// Returns the latency of at most `max` peers that answered within the last ten minutes, those first
    /// that this host fetched most from.
    pub fn peer_latencies(&self, max: usize) -> Vec<PeerLatency> {
        self.sources.steering.peers.busiest(max, self.sources.clock.now())
    }

    /// Returns whether the origin answers, as far as this host knows.
    pub fn is_origin_up(&self) -> bool {
        self.sources.origin.queue().health.is_up()
    }

    /// Starts to record a disk's reads, at most `capacity` records; restarts a running trace.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_start(&self, disk_id: &DiskId, capacity: usize) -> Result<(), ReadPathError> {
        let disk = self.attachments.find(disk_id)?;
        disk.records.trace.store(Some(Arc::new(ReadTrace::new(capacity))));
        Ok(())
    }

    /// The records of a disk as JSON lines, oldest first; empty where none is kept.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_get(&self, disk_id: &DiskId) -> Result<String, ReadPathError> {
        let disk = self.attachments.find(disk_id)?;
        Ok(disk.records.trace.load_full().map_or_else(String::new, |trace| trace.to_json_lines()))
    }

    /// Stops recording and forgets the records.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn trace_stop(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.attachments.find(disk_id)?.records.trace.store(None);
        Ok(())
    }

    /// Returns the totals.
    pub fn counts(&self) -> ReadCounts {
        self.sources.metrics.counts()
    }

    /// Brings the gauges of the registry up to date; call before encoding it.
    pub fn refresh_gauges(&self) {
        self.gauges.refresh();
    }

    /// Waits until every chunk obtained so far is in the chunk store or refused by it, at most
    /// `timeout`; returns whether that is so. Blocks.
    pub fn flush_inserts(&self, timeout: Duration) -> bool {
        self.sources.chunks.inserter.flush(timeout)
    }

    /// Stops: reads that wait for the origin fail, chunks that wait to be kept are written within
    /// `timeout`. Threads that wait for an origin that hangs are left behind. Blocks.
    pub fn stop(&self, timeout: Duration) {
        self.preloads.stop_all();
        self.sources.stop(timeout);
    }
}

impl ChunkServer for ReadPath {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        self.responder.serve(request, class, deadline)
    }

    fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        self.responder.holds(digests)
    }

    fn join(&self, join: &Join) -> Result<Joined, PeerStatus> {
        self.sources.exchange.answer_join(join)
    }

    fn hint(&self, hints: &Hints) -> Result<u32, PeerStatus> {
        self.sources.exchange.take_hints(hints)
    }
}
