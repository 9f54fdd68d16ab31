//! A volume's parts, and what its requests, its threads and its owner share.

pub(crate) mod pushing;
pub(crate) mod refetch;
pub(crate) mod requests;
pub(crate) mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_readpath::{BlockView, DiskManifest};
use acstor_types::DiskId;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::base::Base;
use crate::compaction::Compaction;
use crate::core::refetch::{Reach, Refetch};
use crate::core::waiting::Awaited;
use crate::fold::LogPosition;
use crate::freeze::Freezes;
use crate::life::Life;
use crate::log::LocalLog;
use crate::push::Pusher;
use crate::push::cadence::Cadence;
use crate::push::origin_log_size::{LogSize, OriginLogSize};
use crate::push::origin_wait::{OriginWait, Told};
use crate::push::push_load::PushLoad;
use crate::push::push_queue::PushQueue;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::regions::gpt::Table;
use crate::regions::region_state::RegionState;
use crate::regions::{Partition, RegionMap};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::flusher::Flusher;
use crate::segments::hold_back::Held;
use crate::segments::map_state::MapState;
use crate::{
    DeviceError, DeviceFuture, OriginSink, OverlayError, VolumeConfig, VolumeState, limits,
};

/// Time for which a partition table that cannot be read is taken for one that is being written.
pub(crate) const TABLE_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at a partition table that cannot be read.
pub(crate) const TABLE_LOOK: Duration = Duration::from_millis(50);

/// Time between two looks of a write that is held back for longer.
const HELD_LOOK: Duration = Duration::from_secs(1);

/// Everything of an open volume but its threads.
pub(crate) struct Core {
    pub volume: DiskId,
    pub epoch: u32,
    pub config: VolumeConfig,
    pub runtime: Handle,
    pub sink: Arc<dyn OriginSink>,
    pub log: Arc<LocalLog>,
    pub flusher: Arc<Flusher>,
    pub base: ArcSwapOption<Base>,
    /// The manifest that the base was attached with.
    pub manifest: Mutex<Option<DiskManifest>>,
    /// The last object of the ranges that were there when the volume was opened.
    pub inherited: Option<LogPosition>,
    pub size_bytes: AtomicU64,
    pub life: Life,
    pub freezes: Freezes,
    pub regions: RegionState,
    /// Last error of something in the background.
    pub error: Mutex<Option<String>>,
    pub pusher: Mutex<Pusher>,
    /// One more than the last filled slot after the last push; 0: not known.
    pushed: AtomicU64,
    pub cadence: Cadence,
    pub queue: PushQueue,
    pub load: PushLoad,
    /// Requests that wait for the origin.
    pub origin_wait: Arc<OriginWait>,
    pub compaction: Compaction,
    pub origin_log: OriginLogSize,
    pub refetch: Refetch,
}

/// Parts that a new core is made of.
pub(crate) struct CoreParts {
    pub volume: DiskId,
    pub epoch: u32,
    pub config: VolumeConfig,
    pub runtime: Handle,
    pub sink: Arc<dyn OriginSink>,
    pub log: Arc<LocalLog>,
    pub base: Option<Arc<dyn BlockView>>,
    pub size_bytes: u64,
    pub durability: Durability,
    pub pusher: Pusher,
    pub manifest: Option<DiskManifest>,
    pub reach: Reach,
    pub origin_log: LogSize,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Core {
        let flusher = Flusher::new(Arc::clone(&parts.log), parts.runtime.clone());
        let timeout = parts.durability.io_timeout(parts.config.io_timeout);
        let regions = RegionState::new(parts.durability, &parts.log.map().regions);
        Core {
            volume: parts.volume,
            epoch: parts.epoch,
            load: PushLoad::new(parts.config.push_rate),
            config: parts.config,
            runtime: parts.runtime,
            sink: parts.sink,
            log: parts.log,
            flusher,
            base: ArcSwapOption::new(parts.base.map(|view| Arc::new(Base(view)))),
            manifest: Mutex::new(parts.manifest),
            inherited: parts.reach.inherited(),
            size_bytes: AtomicU64::new(parts.size_bytes),
            life: Life::default(),
            freezes: Freezes::default(),
            regions,
            error: Mutex::new(None),
            pushed: AtomicU64::new(parts.pusher.last().map_or(0, |last| last + 1)),
            pusher: Mutex::new(parts.pusher),
            cadence: Cadence::new(parts.volume),
            queue: PushQueue::default(),
            origin_wait: Arc::new(OriginWait::new(timeout)),
            compaction: Compaction::default(),
            origin_log: OriginLogSize::new(parts.origin_log),
            refetch: Refetch::new(parts.reach),
        }
    }

    /// Notes that partitions are to be read before anything leaves: their table was written, or
    /// could not be read when the volume was opened.
    pub(crate) fn partitions_unknown(&self) {
        self.regions.table_written();
        self.compaction.wake();
    }

    pub(crate) fn are_partitions_unknown(&self) -> bool {
        self.regions.are_partitions_unknown()
    }

    /// Reads the partitions that the durability names; a table that is being written is read
    /// again in a moment. Blocks as [`Core::read_bytes`] does.
    pub(crate) fn learn_partitions(&self) -> Result<(), OverlayError> {
        let _change = self.regions.begin_change();
        let (writes, durability) = (self.regions.table_writes(), self.regions.durability());
        match self.partitions_of(&durability)? {
            Some(partitions) => self.apply_regions(&durability, &partitions, writes),
            None => self.regions.set_due(),
        }
        Ok(())
    }

    /// Returns the partitions for a durability; `None`: their table is being written.
    pub(crate) fn partitions_of(
        &self,
        durability: &Durability,
    ) -> Result<Option<Vec<Partition>>, OverlayError> {
        if !durability.has_partitions() {
            return Ok(Some(Vec::new()));
        }
        let size = self.size_bytes.load(Ordering::Acquire);
        let table = Table::read(|offset: u64, len: usize| {
            let end = offset.checked_add(len as u64).filter(|end| *end <= size);
            end.map(|_| self.read_bytes(offset, len)).transpose()
        })?;
        let limit = durability.io_timeout(self.config.io_timeout);
        let patience = limit.map_or(TABLE_PATIENCE, |limit| TABLE_PATIENCE.min(limit / 2));
        Ok(self.regions.table.settled(table, patience))
    }

    /// Returns once partitions are known.
    pub(crate) fn settle_partitions(&self) -> Result<(), OverlayError> {
        while self.are_partitions_unknown() && !self.is_closed() {
            self.learn_partitions()?;
            let until = Instant::now() + TABLE_LOOK;
            self.queue.wait_for_partitions(&self.life, &self.regions, until);
        }
        Ok(())
    }

    /// Takes regions over: other durability, or other partitions, read after so many writes of
    /// their table.
    pub(crate) fn apply_regions(
        &self,
        durability: &Durability,
        partitions: &[Partition],
        writes: u64,
    ) {
        let regions = Arc::new(RegionMap::new(durability, partitions));
        let mut pusher = self.pusher.lock();
        let mut may_travel_anew = false;
        {
            let _head = self.log.head();
            let mut map = self.log.map_mut();
            if *map.regions != *regions {
                let (before, groups) = (map.regions.groups(), regions.groups().len());
                may_travel_anew = before.iter().any(|one| one.class == DurabilityClass::None);
                map.set_regions(Arc::clone(&regions));
                pusher.regions_changed(groups);
            }
        }
        self.origin_wait.set_timeout(durability.io_timeout(self.config.io_timeout));
        self.regions.set(durability, &regions);
        self.regions.table_known(writes);
        // Before the push goes on: its groups have other numbers now.
        self.review_waiters();
        drop(pusher);
        self.queue.wake();
        // The newest checkpoint calls clean what was to stay here: a kill would have it never travel.
        if may_travel_anew && let Err(error) = self.log.checkpoint(self.volume, self.epoch) {
            tracing::error!(volume = %self.volume, %error,
                "killed before the next checkpoint, the volume forgets what is to travel now");
            self.note_trouble(Some(format!("local log: {error}")));
        }
    }

    pub(crate) fn state(&self) -> VolumeState {
        // In this order: what is fenced may be closed meanwhile, and is open never again.
        if self.life.is_fenced() {
            VolumeState::Fenced
        } else if self.life.is_closed() {
            VolumeState::Closed
        } else if self.log.is_failed() {
            VolumeState::Failed
        } else if self.log.head().is_frozen {
            VolumeState::Frozen
        } else {
            VolumeState::Open
        }
    }

    /// Returns why the volume takes no writes, if it does not.
    pub(crate) fn check_writable(&self) -> Result<(), DeviceError> {
        self.life.check_writable()
    }

    /// Last slot that is filled, as far as it can be said without waiting for the origin.
    pub(crate) fn pushed_sequence(&self) -> Option<u64> {
        self.pushed.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes over what a push has stored.
    pub(crate) fn note_pushed(&self, pusher: &Pusher) {
        self.pushed.store(pusher.last().map_or(0, |last| last + 1), Ordering::Relaxed);
        self.load.note_cut_left(pusher.left_bytes());
    }

    /// Looks how much there is to push, and holds writers back accordingly.
    pub(crate) fn look_at_load(&self) {
        if self.load.look(&self.log) {
            self.queue.wake();
        }
    }

    /// Returns whether a fold takes anything out of the map.
    pub(crate) fn is_pushed(&self) -> bool {
        self.log.map().regions.pushed_groups() != 0
    }

    /// Returns what the answer to a write of `bytes` in a range of sectors is held back by, if anything.
    pub(crate) fn hold(&self, start: u64, end: u64, bytes: u64) -> Option<Held> {
        if self.load.hold_back.is_look_due(bytes) {
            self.look_at_load();
        }
        if !self.load.hold_back.is_holding() || !self.regions.has_write_back() {
            return None;
        }
        self.load.hold(&self.log, start, end, bytes)
    }

    /// Returns when a write is to be held back no longer, or nobody writes to the volume any more.
    pub(crate) async fn let_go(&self, held: Held) {
        loop {
            let left = self.load.hold_back.left(Instant::now(), held);
            if left.is_zero() || self.check_writable().is_err() {
                return;
            }
            tokio::time::sleep(left.min(HELD_LOOK)).await;
            if left > HELD_LOOK {
                // Where all writers are held and the origin hangs nobody else does.
                self.look_at_load();
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.life.is_closed()
    }

    pub(crate) fn fence(&self, why: &str) {
        if self.life.fence(format!("volume {} is fenced: {why}", self.volume)) {
            tracing::error!(volume = %self.volume, epoch = self.epoch, "fenced: {why}");
        }
        self.fail_waiters();
        self.thaw();
    }

    /// Ends everything; the threads see it.
    pub(crate) fn set_closed(&self) {
        self.life.close();
        self.fail_waiters();
        self.thaw();
        self.compaction.wake();
    }

    /// Freezes the volume; returns the number of this freeze.
    pub(crate) fn freeze(&self) -> u64 {
        let mut head = self.log.head();
        head.is_frozen = true;
        // Under the lock, so that the end of an earlier freeze is not taken for that of this one.
        self.freezes.next()
    }

    /// Ends freeze `number`, unless another one or a thaw came after it.
    pub(crate) fn end_freeze(&self, number: u64) {
        let mut head = self.log.head();
        if self.freezes.is_last(number) {
            head.is_frozen = false;
            drop(head);
            self.freezes.wake_waiting();
        }
    }

    pub(crate) fn thaw(&self) {
        let mut head = self.log.head();
        self.freezes.next();
        head.is_frozen = false;
        drop(head);
        self.freezes.wake_waiting();
    }

    /// Returns what must be waited for before a write of a range is acknowledged, if anything.
    pub(crate) fn acknowledge(
        &self,
        start: u64,
        end: u64,
        sequence: u64,
        fua: bool,
    ) -> Option<DeviceFuture<()>> {
        let to_origin = fua && self.regions.flushes_to_origin();
        if self.regions.has_write_through() || to_origin {
            let what = Awaited::Write { start, end, to_origin };
            let regions = Arc::clone(&self.log.map().regions);
            // While partitions are unknown each write may be one that goes through.
            if self.are_partitions_unknown() || what.groups(&regions) != 0 {
                // A push syncs the local log first.
                return Some(self.wait_for_origin(what, sequence));
            }
        }
        fua.then(|| self.wait_for_disk(sequence)).flatten()
    }

    /// Returns what a flush must wait for, if anything.
    pub(crate) fn flush(&self) -> Option<DeviceFuture<()>> {
        let sequence = self.log.appended();
        if !self.regions.flushes_to_origin() {
            return self.wait_for_disk(sequence);
        }
        let disk = self.wait_for_disk(sequence);
        let origin = self.wait_for_origin(Awaited::All, sequence);
        Some(Box::pin(async move {
            if let Some(disk) = disk {
                disk.await?;
            }
            origin.await
        }))
    }

    pub(crate) fn wait_for_disk(&self, sequence: u64) -> Option<DeviceFuture<()>> {
        (self.log.synced() < sequence).then(|| self.flusher.sync(sequence))
    }

    /// Tells in the log of requests that have waited for long, and of the end of that.
    pub(crate) fn tell_of_waiting(&self) {
        let volume = self.volume;
        match self.origin_wait.told() {
            None => {}
            Some(Told::Begun(waiting)) => tracing::error!(
                %volume, requests = waiting.count, longest = ?waiting.oldest.unwrap_or_default(),
                "requests of the volume wait for the origin: {}",
                self.error.lock().as_deref().unwrap_or("it does not answer")
            ),
            Some(Told::Over) => {
                tracing::warn!(%volume, "no request of the volume waits for the origin any more");
            }
        }
    }

    /// Fails when the origin does not have all of the disk, since some of it cannot be read here.
    pub(crate) fn check_delivered(&self) -> Result<(), OverlayError> {
        let map = self.log.map();
        if map.undelivered().is_empty() {
            return Ok(());
        }
        Err(OverlayError::Corrupt(undelivered_text(&map)))
    }

    /// Bytes of the local log that are not what was written, or cannot be read.
    pub(crate) fn damaged_bytes(&self) -> u64 {
        let (has_bad, undelivered) = {
            let map = self.log.map();
            let has_bad = map.segments.values().any(|segment| segment.bad_bytes() > 0);
            (has_bad, map.undelivered().sectors() * crate::SECTOR_BYTES)
        };
        if has_bad { self.bad_bytes().max(undelivered) } else { undelivered }
    }

    /// Bytes of the extents whose records are bad. A few of them at a time: writers wait for the map.
    fn bad_bytes(&self) -> u64 {
        let (mut bytes, mut after) = (0, None);
        loop {
            let map = self.log.map();
            let step = map.extents.after(after, limits::CHECKPOINT_STEP);
            let Some(last) = step.last() else { return bytes };
            after = Some(last.start);
            bytes += step.iter().filter(|each| is_bad(&map, each)).map(Extent::bytes).sum::<u64>();
        }
    }
}

fn is_bad(map: &MapState, extent: &Extent) -> bool {
    let Place::Log { segment, offset } = extent.place else { return false };
    let segment = map.segments.get(&segment).filter(|segment| segment.bad_bytes() > 0);
    segment.is_some_and(|segment| segment.is_bad(offset))
}

pub(crate) fn undelivered_text(map: &MapState) -> String {
    let count = map.undelivered().iter().count();
    let first = map.undelivered().iter().next().unwrap_or_default();
    format!(
        "{} bytes of the volume in {count} places, the first at byte {}, are damaged in the local log \
         and not in the origin: check the disk; overwriting or discarding them in the guest ends it",
        map.undelivered().sectors() * crate::SECTOR_BYTES,
        first.0 * crate::SECTOR_BYTES
    )
}
