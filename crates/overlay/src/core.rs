//! A volume's parts, and what its requests, its threads and its owner share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use acstor_readpath::BlockView;
use acstor_types::{DiskId, Manifest};
use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::fold::LogPosition;
use crate::log::LocalLog;
use crate::push::Pusher;
use crate::push::cadence::Cadence;
use crate::push::origin_wait::{OriginWait, Told};
use crate::push::push_waiters::{Awaited, PushQueue};
use crate::push::refetch::{Reach, Refetch};
use crate::push::release::QuietCount;
use crate::regions::durability::{Durability, DurabilityClass, FlushTarget};
use crate::regions::gpt::Table;
use crate::regions::table_seen::TableSeen;
use crate::regions::{Partition, RegionMap};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::flusher::{Flusher, closed};
use crate::segments::hold_back::{Held, HoldBack};
use crate::segments::map_state::MapState;
use crate::{
    DeviceError, DeviceErrorKind, DeviceFuture, OriginSink, OverlayError, VolumeConfig,
    VolumeState, limits,
};

/// Time for which a partition table that cannot be read is taken for one that is being written.
pub(crate) const TABLE_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at a partition table that cannot be read.
pub(crate) const TABLE_LOOK: Duration = Duration::from_millis(50);

/// Time between two looks of a write that is held back for longer.
const HELD_LOOK: Duration = Duration::from_secs(1);

/// The manifest under the overlay.
pub(crate) struct Base(pub Arc<dyn BlockView>);

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
    pub size_bytes: AtomicU64,
    pub durability: Mutex<Durability>,
    state: AtomicU8,
    /// Why writes are refused for good.
    reason: Mutex<String>,
    /// Why something in the background failed last.
    pub error: Mutex<Option<String>>,
    pub pusher: Mutex<Pusher>,
    /// One more than the last filled slot after the last push; 0: not known.
    pushed: AtomicU64,
    pub cadence: Cadence,
    pub queue: Mutex<PushQueue>,
    /// Writers that are faster than the origin.
    pub hold_back: HoldBack,
    /// Most extents of the map.
    pub extents_max: AtomicUsize,
    is_map_full: AtomicBool,
    /// Bytes of the cuts that are under way and in no object yet.
    cut_left: AtomicU64,
    /// Requests that wait for the origin.
    pub origin_wait: Arc<OriginWait>,
    pub wake: Condvar,
    pub keep_queue: Mutex<()>,
    pub keep_wake: Condvar,
    /// Held by compaction from when it looks whether it is to be quiet to the end of what it does.
    pub keep_round: Mutex<()>,
    /// Compaction begins nothing long: a release is at hand.
    pub quiet: QuietCount,
    pub thawed: Notify,
    pub freeze_number: AtomicU64,
    pub partitions_due: AtomicBool,
    /// How often the table of the partitions that the durability names was written, and which of
    /// these writes the regions follow: as long as they differ what lies where is not known, so
    /// nothing may leave.
    table_writes: AtomicU64,
    table_writes_known: AtomicU64,
    /// One change of durability or partitions at a time.
    pub regions_turn: Mutex<()>,
    pub has_write_through: AtomicBool,
    has_write_back: AtomicBool,
    flushes_to_origin: AtomicBool,
    pub has_partitions: AtomicBool,
    table: TableSeen,
    pub origin_log_bytes: AtomicU64,
    pub origin_log_objects: AtomicU64,
    /// The manifest that the base was attached with.
    pub manifest: Mutex<Option<Manifest>>,
    /// A fold is to be given up.
    pub is_fold_unwanted: AtomicBool,
    /// The last object of the ranges that were there when the volume was opened.
    pub inherited: Mutex<Option<LogPosition>>,
    pub refetch: Refetch,
}

const OPEN: u8 = 0;
const FENCED: u8 = 1;
const CLOSED: u8 = 2;

/// Parts of a new core.
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
    pub manifest: Option<Manifest>,
    pub reach: Reach,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Core {
        let flusher = Flusher::new(Arc::clone(&parts.log), parts.runtime.clone());
        let timeout = parts.durability.io_timeout(parts.config.io_timeout);
        let has_partitions = parts.durability.has_partitions();
        let core = Core {
            volume: parts.volume,
            epoch: parts.epoch,
            config: parts.config,
            runtime: parts.runtime,
            sink: parts.sink,
            log: parts.log,
            flusher,
            base: ArcSwapOption::new(parts.base.map(|view| Arc::new(Base(view)))),
            size_bytes: AtomicU64::new(parts.size_bytes),
            durability: Mutex::new(parts.durability),
            state: AtomicU8::new(OPEN),
            reason: Mutex::default(),
            error: Mutex::new(None),
            pushed: AtomicU64::new(parts.pusher.last().map_or(0, |last| last + 1)),
            pusher: Mutex::new(parts.pusher),
            cadence: Cadence::new(parts.volume),
            queue: Mutex::default(),
            hold_back: HoldBack::default(),
            extents_max: AtomicUsize::new(limits::EXTENTS_MAX),
            is_map_full: AtomicBool::new(false),
            cut_left: AtomicU64::new(0),
            origin_wait: Arc::new(OriginWait::new(timeout)),
            wake: Condvar::new(),
            keep_queue: Mutex::default(),
            keep_wake: Condvar::new(),
            keep_round: Mutex::default(),
            quiet: QuietCount::default(),
            thawed: Notify::new(),
            freeze_number: AtomicU64::new(0),
            partitions_due: AtomicBool::new(false),
            // Before they were looked up nobody knows them.
            table_writes: AtomicU64::new(u64::from(has_partitions)),
            table_writes_known: AtomicU64::new(0),
            regions_turn: Mutex::default(),
            has_write_through: AtomicBool::new(false),
            has_write_back: AtomicBool::new(false),
            flushes_to_origin: AtomicBool::new(false),
            has_partitions: AtomicBool::new(false),
            table: TableSeen::default(),
            origin_log_bytes: AtomicU64::new(0),
            origin_log_objects: AtomicU64::new(0),
            manifest: Mutex::new(parts.manifest),
            is_fold_unwanted: AtomicBool::new(false),
            inherited: Mutex::new(parts.reach.inherited()),
            refetch: Refetch::new(parts.reach),
        };
        core.note_durability();
        core
    }

    fn note_durability(&self) {
        let durability = self.durability.lock();
        let regions = Arc::clone(&self.log.map.read().regions);
        let has = |class| regions.groups().iter().any(|group| group.class == class);
        self.has_write_through.store(has(DurabilityClass::WriteThrough), Ordering::Release);
        self.has_write_back.store(has(DurabilityClass::WriteBack), Ordering::Release);
        self.flushes_to_origin.store(durability.flush == FlushTarget::Origin, Ordering::Release);
        self.has_partitions.store(durability.has_partitions(), Ordering::Release);
    }

    /// Notes that partitions are to be read before anything leaves: their table was written, or
    /// could not be read when the volume was opened.
    pub(crate) fn partitions_unknown(&self) {
        self.table_writes.fetch_add(1, Ordering::AcqRel);
        self.partitions_due.store(true, Ordering::Release);
        drop(self.keep_queue.lock());
        self.keep_wake.notify_all();
    }

    /// How often the partition table was written so far.
    pub(crate) fn table_writes(&self) -> u64 {
        self.table_writes.load(Ordering::Acquire)
    }

    /// Returns whether bytes of the disk are some of the partition table.
    pub(crate) fn is_in_table(&self, first: u64, end: u64) -> bool {
        self.table.is_in(first, end)
    }

    pub(crate) fn are_partitions_unknown(&self) -> bool {
        self.table_writes.load(Ordering::Acquire) != self.table_writes_known.load(Ordering::Acquire)
    }

    /// Reads the partitions that the durability names; a table that is being written is read
    /// again in a moment. Blocks as [`Core::read_bytes`] does.
    pub(crate) fn learn_partitions(&self) -> Result<(), OverlayError> {
        let _turn = self.regions_turn.lock();
        let (writes, durability) = (self.table_writes(), self.durability.lock().clone());
        match self.partitions_of(&durability)? {
            Some(partitions) => self.apply_regions(&durability, &partitions, writes),
            None => self.partitions_due.store(true, Ordering::Release),
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
        Ok(self.table.settled(table, patience))
    }

    /// Returns once partitions are known.
    pub(crate) fn settle_partitions(&self) -> Result<(), OverlayError> {
        while self.are_partitions_unknown() && !self.is_closed() {
            self.learn_partitions()?;
            self.wait_for_partitions(Instant::now() + TABLE_LOOK);
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
            let _head = self.log.head.lock();
            let mut map = self.log.map.write();
            if *map.regions != *regions {
                let (before, groups) = (map.regions.groups(), regions.groups().len());
                may_travel_anew = before.iter().any(|one| one.class == DurabilityClass::None);
                map.set_regions(regions);
                pusher.regions_changed(groups);
            }
        }
        *self.durability.lock() = durability.clone();
        self.origin_wait.set_timeout(durability.io_timeout(self.config.io_timeout));
        self.note_durability();
        self.table_writes_known.store(writes, Ordering::Release);
        // Before the push goes on: its groups have other numbers now.
        self.review_waiters();
        drop(pusher);
        self.wake.notify_all();
        // The newest checkpoint calls clean what was to stay here: a kill would have it never travel.
        if may_travel_anew && let Err(error) = self.log.checkpoint(self.volume, self.epoch) {
            tracing::error!(volume = %self.volume, %error,
                "killed before the next checkpoint, the volume forgets what is to travel now");
            self.note_trouble(Some(format!("local log: {error}")));
        }
    }

    pub(crate) fn state(&self) -> VolumeState {
        match self.state.load(Ordering::Acquire) {
            CLOSED => VolumeState::Closed,
            FENCED => VolumeState::Fenced,
            _ if self.log.is_failed() => VolumeState::Failed,
            _ if self.log.head.lock().is_frozen => VolumeState::Frozen,
            _ => VolumeState::Open,
        }
    }

    /// Returns why the volume takes no writes, if it does not.
    pub(crate) fn check_writable(&self) -> Result<(), DeviceError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            CLOSED => Err(closed()),
            _ => Err(DeviceError::new(DeviceErrorKind::Fenced, self.reason.lock().clone())),
        }
    }

    /// Last slot that is filled, as far as it can be said without waiting for the origin.
    pub(crate) fn pushed_sequence(&self) -> Option<u64> {
        self.pushed.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes over what a push has stored.
    pub(crate) fn note_pushed(&self, pusher: &Pusher) {
        self.pushed.store(pusher.last().map_or(0, |last| last + 1), Ordering::Relaxed);
        self.cut_left.store(pusher.left_bytes(), Ordering::Relaxed);
    }

    /// Looks how much there is to push, and holds writers back accordingly.
    pub(crate) fn look_at_load(&self) {
        let backlogs = {
            let map = self.log.map.read();
            let is_full = map.extents.len() >= self.extents_max.load(Ordering::Relaxed);
            self.is_map_full.store(is_full, Ordering::Relaxed);
            map.backlogs(self.cut_left.load(Ordering::Relaxed))
        };
        if self.hold_back.look(Instant::now(), &backlogs, self.config.push_rate) {
            self.wake.notify_all();
        }
    }

    /// Whether the map has as many extents as it may have; a fold makes it smaller.
    pub(crate) fn is_map_full(&self) -> bool {
        self.is_map_full.load(Ordering::Relaxed)
    }

    /// Whether a fold takes anything out of the map.
    pub(crate) fn is_pushed(&self) -> bool {
        self.log.map.read().regions.pushed_groups() != 0
    }

    /// Returns what the answer to a write of `bytes` in a range of sectors is held back by, if anything.
    pub(crate) fn hold(&self, start: u64, end: u64, bytes: u64) -> Option<Held> {
        if self.hold_back.is_look_due(bytes) {
            self.look_at_load();
        }
        if !self.hold_back.is_holding() || !self.has_write_back.load(Ordering::Relaxed) {
            return None;
        }
        let regions = Arc::clone(&self.log.map.read().regions);
        let is_pushed_later = regions.has_class(start, end, DurabilityClass::WriteBack);
        is_pushed_later.then(|| self.hold_back.hold(Instant::now(), bytes)).flatten()
    }

    /// Returns when a write is to be held back no longer, or nobody writes to the volume any more.
    pub(crate) async fn let_go(&self, held: Held) {
        loop {
            let left = self.hold_back.left(Instant::now(), held);
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
        self.state.load(Ordering::Acquire) == CLOSED
    }

    pub(crate) fn fence(&self, why: &str) {
        *self.reason.lock() = format!("volume {} is fenced: {why}", self.volume);
        if self.state.compare_exchange(OPEN, FENCED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            tracing::error!(volume = %self.volume, epoch = self.epoch, "fenced: {why}");
        }
        self.fail_waiters();
        self.thaw();
    }

    /// Ends everything; the threads see it.
    pub(crate) fn set_closed(&self) {
        self.state.store(CLOSED, Ordering::Release);
        self.fail_waiters();
        self.thaw();
        drop(self.keep_queue.lock());
        self.keep_wake.notify_all();
    }

    pub(crate) fn thaw(&self) {
        self.log.head.lock().is_frozen = false;
        self.thawed.notify_waiters();
    }

    /// Returns what must be waited for before a write of a range is acknowledged, if anything.
    pub(crate) fn acknowledge(
        &self,
        start: u64,
        end: u64,
        sequence: u64,
        fua: bool,
    ) -> Option<DeviceFuture<()>> {
        let to_origin = fua && self.flushes_to_origin.load(Ordering::Acquire);
        if self.has_write_through.load(Ordering::Acquire) || to_origin {
            let what = Awaited::Write { start, end, to_origin };
            let regions = Arc::clone(&self.log.map.read().regions);
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
        if !self.flushes_to_origin.load(Ordering::Acquire) {
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
        let map = self.log.map.read();
        if map.undelivered().is_empty() {
            return Ok(());
        }
        Err(OverlayError::Corrupt(undelivered_text(&map)))
    }

    /// Bytes of the local log that are not what was written, or cannot be read.
    pub(crate) fn damaged_bytes(&self) -> u64 {
        let (has_bad, undelivered) = {
            let map = self.log.map.read();
            let has_bad = map.segments.values().any(|segment| segment.bad_bytes() > 0);
            (has_bad, map.undelivered().sectors() * crate::SECTOR_BYTES)
        };
        if has_bad { self.bad_bytes().max(undelivered) } else { undelivered }
    }

    /// Bytes of the extents whose records are bad. A few of them at a time: writers wait for the map.
    fn bad_bytes(&self) -> u64 {
        let (mut bytes, mut after) = (0, None);
        loop {
            let map = self.log.map.read();
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
