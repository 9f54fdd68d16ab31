//! An open volume: the handle that the data plane's host holds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use acstor_readpath::{BlockView, DiskManifest};
use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::base::{Base, BaseUse};
use crate::compaction::compact_until_closed;
use crate::core::refetch::Reach;
use crate::core::requests::Change;
use crate::core::{Core, CoreParts};
use crate::device::BlockDevice;
use crate::error::GIVE_UP;
use crate::fold::{Announce, FoldHow, Folded, fold};
use crate::push::Pusher;
use crate::push::cadence::fold_share;
use crate::push::origin_log_size::LogSize;
use crate::push::replay::replay;
use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::segments::disk::{HostDirectory, LogDisk};
use crate::segments::record::SECTOR;
use crate::segments::recovery::{create_log, open_log};
use crate::segments::slot_floor::first_slot;
use crate::volume_threads::{Threads, push_until_closed, spawn};
use crate::{Opening, OriginSink, OverlayError, OverlayStatus, PushPoint, VolumeConfig, limits};

/// Longest wait, when a volume is closed, for an operation on the origin that is under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// An open volume. Dropping it closes it; the local log stays and is resumed by the next
/// [`Volume::open`] with the same epoch.
///
/// Calls that the documentation says block must not be made from a task.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Threads>,
    fold_turn: Mutex<()>,
}

impl Volume {
    /// Opens a volume whose ownership this host holds. Blocks: a local log of the same epoch is
    /// recovered without the origin; where there is none the logs of the record are replayed.
    ///
    /// # Errors
    /// [`OverlayError::Locked`] when the directory is in use, [`OverlayError::Invalid`] when a
    /// value is out of range or the local log is of another volume or epoch (put it aside
    /// first), [`OverlayError::Corrupt`], [`OverlayError::NoSpace`], [`OverlayError::Origin`].
    pub fn open(
        config: VolumeConfig,
        opening: Opening,
        base: Option<Arc<dyn BlockView>>,
        sink: Arc<dyn OriginSink>,
        runtime: Handle,
    ) -> Result<Arc<Volume>, OverlayError> {
        let path = config.directory.display().to_string();
        let disk = HostDirectory::open(&config.directory).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OverlayError::Locked(path.clone()),
            _ => OverlayError::io(format!("open the local log {path}"), error),
        })?;
        Volume::open_on(Arc::new(disk), config, opening, base, sink, runtime)
    }

    /// Opens a volume with its local log on `disk`: for tests with disks that fail.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(
        disk: Arc<dyn LogDisk>,
        config: VolumeConfig,
        opening: Opening,
        base: Option<Arc<dyn BlockView>>,
        sink: Arc<dyn OriginSink>,
        runtime: Handle,
    ) -> Result<Arc<Volume>, OverlayError> {
        let core = Arc::new(open_core(&disk, config, opening, base, sink, runtime)?);
        let push = spawn("overlay-push", &core, push_until_closed)?;
        let threads = match spawn("overlay-compact", &core, compact_until_closed) {
            Ok(compaction) => Threads { push: Some(push), compaction: Some(compaction) },
            Err(error) => {
                core.set_closed();
                drop(push.handle.join());
                return Err(error);
            }
        };
        let (threads, fold_turn) = (Mutex::new(threads), Mutex::new(()));
        Ok(Arc::new(Volume { core, threads, fold_turn }))
    }

    /// Returns once everything that was acknowledged before the call is on the origin. Blocks.
    ///
    /// # Errors
    /// [`OverlayError::Fenced`], [`OverlayError::Origin`], or [`OverlayError::Unavailable`] when
    /// the volume is closed or its disk failed.
    pub fn push_now(&self) -> Result<PushPoint, OverlayError> {
        let sequence = self.core.push_all()?;
        Ok(PushPoint { epoch: self.core.epoch, sequence })
    }

    /// Pushes, while requests go on, until [`Volume::release`] would make them wait for a moment
    /// only. Blocks. Returns whether the log over the manifest is so long that its next owner would
    /// make them wait: then fold it.
    ///
    /// # Errors
    /// As [`Volume::push_now`].
    pub fn push_ahead(&self) -> Result<bool, OverlayError> {
        self.core.push_ahead()?;
        Ok(self.core.origin_log.is_long())
    }

    /// Returns the volume's figures.
    pub fn status(&self) -> OverlayStatus {
        let core = &self.core;
        let (log_bytes, live_bytes) = core.log.usage();
        let (waiting, origin_log) = (core.origin_wait.waiting(), core.origin_log.get());
        let (dirty_sectors, oldest, late) = {
            let map = core.log.map();
            (map.dirty_sectors(), map.oldest_dirty(), map.lateness(Instant::now()))
        };
        OverlayStatus {
            state: core.state(),
            epoch: core.epoch,
            size_bytes: core.size_bytes.load(Ordering::Acquire),
            pushed_sequence: core.pushed_sequence(),
            dirty_bytes: dirty_sectors * SECTOR,
            recovery_point_age: oldest.map(|oldest| oldest.elapsed()),
            recovery_point_late: late,
            held_back_per_mib: core.load.hold_back.per_mib(),
            waiting_requests: waiting.count,
            waiting_age: waiting.oldest,
            damaged_bytes: core.damaged_bytes(),
            log_bytes,
            live_bytes,
            origin_log_bytes: origin_log.bytes,
            origin_log_objects: origin_log.objects,
            durability: core.regions.durability(),
            error: core.error.lock().clone(),
        }
    }

    /// Makes writes wait, until [`Volume::thaw`] or for `timeout` at most; what was acknowledged
    /// before this returns is the state of the disk until then.
    ///
    /// # Errors
    /// [`OverlayError::Unavailable`] when the volume takes no writes anyway.
    pub fn freeze(&self, timeout: Duration) -> Result<(), OverlayError> {
        let core = &self.core;
        core.check_writable().map_err(|e| OverlayError::Unavailable(e.message))?;
        let number = core.freeze();
        let frozen = Arc::downgrade(core);
        core.runtime.spawn(async move {
            tokio::time::sleep(timeout).await;
            if let Some(core) = frozen.upgrade() {
                core.end_freeze(number);
            }
        });
        Ok(())
    }

    /// Lets writes go on.
    pub fn thaw(&self) {
        self.core.thaw();
    }

    /// Makes the disk larger; its front end must tell its clients.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`] when it would become smaller, or no disk is that large.
    pub fn resize(&self, size_bytes: u64) -> Result<(), OverlayError> {
        let now = self.core.size_bytes.load(Ordering::Acquire);
        let max = acstor_types::limits::DISK_SIZE_MAX;
        if size_bytes < now || size_bytes > max || !size_bytes.is_multiple_of(SECTOR) {
            return Err(OverlayError::Invalid(format!(
                "a disk of {now} bytes cannot become one of {size_bytes} bytes"
            )));
        }
        // First: what is written into the new part has room.
        self.core.log.raise_quota(self.core.config.quota_for(size_bytes));
        self.core.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    /// Takes another durability over. Blocks while partitions are looked up.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`].
    pub fn set_durability(&self, durability: &Durability) -> Result<(), OverlayError> {
        durability.check()?;
        // At once: what follows may have to wait for an operation on the origin.
        self.core.origin_wait.set_timeout(durability.io_timeout(self.core.config.io_timeout));
        let _change = self.core.regions.begin_change();
        let writes = self.core.regions.table_writes();
        let partitions = self.core.partitions_of(durability)?.ok_or_else(|| {
            OverlayError::Unavailable("the partition table is being written: try again".into())
        })?;
        self.core.apply_regions(durability, &partitions, writes);
        Ok(())
    }

    /// Returns whether a fold is worth while: the logs over the manifest are that long, and long
    /// enough for what it writes again of a manifest as large as the volume's. Volumes that are written alike do not reach
    /// it together: each takes another share of the two.
    pub fn fold_due(&self, bytes: u64, objects: u64) -> bool {
        let core = &self.core;
        let manifest = core.manifest.lock().as_ref().map_or(0, DiskManifest::refolded_bytes);
        let least =
            (manifest / limits::FOLD_MANIFEST_BYTES_PER_OBJECT).min(limits::FOLD_OBJECTS_MAX);
        let share = fold_share(core.volume);
        let size = core.origin_log.get();
        let is_reached = |value: u64, threshold: u64| value as f64 >= threshold as f64 * share;
        core.load.is_map_long(core.log.map().extents.len())
            || is_reached(size.bytes, bytes.max(manifest))
            || is_reached(size.objects, objects.max(least))
    }

    /// Merges what is in the overlay into packs and a new manifest, and pushes everything that the
    /// manifest holds. Blocks. `announce` is told the names of all packs so far, and of the
    /// manifest, before the newest of them is stored; `None`: nothing to fold.
    ///
    /// # Errors
    /// As [`Volume::push_now`]; [`OverlayError::Unavailable`] with what `announce` answers, and
    /// when it is given up.
    pub fn fold(
        &self,
        announce: &mut Announce<'_>,
        how: &FoldHow<'_>,
    ) -> Result<Option<Folded>, OverlayError> {
        let _turn = self.fold_turn.lock();
        fold(&self.core, announce, how)
    }

    /// Has a fold that is under way given up, and each one from now on, until it is called with
    /// false: somebody is not to wait for it.
    pub fn set_fold_unwanted(&self, is_unwanted: bool) {
        self.core.queue.set_fold_unwanted(is_unwanted);
    }

    /// Takes the manifest of a fold as base, once the record names it, and drops from the local
    /// log what that manifest holds.
    pub fn set_base(&self, base: Arc<dyn BlockView>, manifest: DiskManifest, folded: &Folded) {
        self.core.base.store(Some(Arc::new(Base(base))));
        self.core.refetch.folded(&folded.until, self.core.volume);
        folded.drop_from(&self.core, manifest);
    }

    /// Takes a manifest as base that an earlier fold of this epoch has installed in the record
    /// and not here. Everything that it was made of is in the local log still, and stays there.
    pub fn replace_base(&self, base: Arc<dyn BlockView>, manifest: DiskManifest) {
        self.core.base.store(Some(Arc::new(Base(base))));
        *self.core.manifest.lock() = Some(manifest);
    }

    /// Refuses writes for good: the record names another owner.
    pub fn fence(&self, why: &str) {
        self.core.fence(why);
    }

    /// Ends every request and the threads, and saves the map; nothing is pushed. Blocks, but not for
    /// an operation on the origin that hangs: what it stores, it stores into the slot that was next,
    /// and whoever opens the log again finds it there.
    pub fn close(&self) {
        self.close_within(CLOSE_PATIENCE);
    }

    /// Closes what the origin has. The log is removed, or scanned from its last checkpoint on: another
    /// one would make those wait who wait for the next owner. With parts of class `none` the log
    /// outlives its epoch, and says by its checkpoint that nothing of it is to be pushed.
    pub(crate) fn close_released(&self) {
        let has_none = self.core.regions.has_none();
        self.end(CLOSE_PATIENCE, has_none);
    }

    /// Closes, and waits for an operation on the origin that is under way for `patience` at most.
    pub(crate) fn close_within(&self, patience: Duration) {
        self.end(patience, true);
    }

    fn end(&self, patience: Duration, is_map_saved: bool) {
        let was_open = !self.core.is_closed();
        self.core.set_closed();
        let Threads { push, compaction } = std::mem::take(&mut *self.threads.lock());
        if let Some(compaction) = compaction {
            // A thread that panicked has said so.
            drop(compaction.handle.join());
        }
        if push.is_some_and(|push| !push.has_ended_within(patience)) {
            tracing::warn!(volume = %self.core.volume, "closed while the origin does not answer");
        }
        if was_open {
            let core = &self.core;
            // Where it is held, what is under way counts as dirty all the same.
            if let Some(mut pusher) = core.pusher.try_lock() {
                pusher.abandon(&core.log);
            }
            if is_map_saved && let Err(error) = core.log.checkpoint(core.volume, core.epoch) {
                tracing::warn!(volume = %core.volume, %error, "no checkpoint at close");
            }
            core.log.close();
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) fn open_core(
    disk: &Arc<dyn LogDisk>,
    config: VolumeConfig,
    opening: Opening,
    base: Option<Arc<dyn BlockView>>,
    sink: Arc<dyn OriginSink>,
    runtime: Handle,
) -> Result<Core, OverlayError> {
    config.check()?;
    opening.check()?;
    let sizes = config.log_sizes(config.quota_for(opening.size_bytes));
    let regions = Arc::new(RegionMap::new(&opening.durability, &[]));
    let groups = regions.groups().len();
    let (volume, epoch) = (opening.volume, opening.epoch);
    let (log, is_resumed, replayed) = match open_log(disk, sizes, Arc::clone(&regions))? {
        Some(found) if (found.volume, found.epoch) == (volume, epoch) => (found.log, true, 0),
        Some(found) => return Err(another_log(&opening, found.volume, found.epoch)),
        None => {
            let log = create_log(disk, sizes, regions)?;
            let bytes = replay(&*sink, &opening.logs, opening.size_bytes, &log)?;
            log.checkpoint(volume, epoch)?;
            (log, false, bytes)
        }
    };
    if config.quota_bytes == 0 {
        // One that was written under a larger quota can be compacted all the same.
        let present = log.map().segments.len() as u64;
        log.raise_quota((present + limits::SEGMENTS_MIN) * config.segment_bytes);
    }
    let first = first_slot(&**disk, epoch, opening.next)?;
    let pusher = Pusher::new(volume, epoch, first, is_resumed, groups, Arc::clone(&sink));
    let objects = opening.logs.iter().map(|range| range.last - range.first + 1).sum();
    let (log, size_bytes) = (Arc::new(log), opening.size_bytes);
    let durability = opening.durability;
    let parts = CoreParts {
        volume,
        epoch,
        config,
        runtime,
        sink,
        log,
        base,
        size_bytes,
        durability: durability.clone(),
        pusher,
        manifest: opening.manifest,
        reach: Reach { ranges: opening.logs, first: opening.next, filled: first },
        origin_log: LogSize { bytes: replayed, objects },
    };
    let core = Core::new(parts);
    if durability.has_partitions() {
        match core.partitions_of(&durability) {
            Ok(Some(partitions)) => {
                core.apply_regions(&durability, &partitions, core.regions.table_writes());
            }
            Ok(None) => core.partitions_unknown(),
            Err(error) => {
                tracing::warn!(%volume, %error, "partitions unknown, nothing is pushed until then");
                core.partitions_unknown();
            }
        }
    }
    if is_resumed {
        // No less than what lies in the origin since the last fold is still in the local log.
        let bytes = core.log.map().clean_bytes();
        core.origin_log.set_bytes(bytes);
    }
    Ok(core)
}

fn another_log(opening: &Opening, volume: DiskId, epoch: u32) -> OverlayError {
    OverlayError::Invalid(format!(
        "the local log is of volume {volume}, epoch {epoch}, and not of {}, epoch {}: restore the right \
         one, or {GIVE_UP}",
        opening.volume, opening.epoch
    ))
}

impl BlockDevice for Volume {
    fn size_bytes(&self) -> u64 {
        self.core.size_bytes.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn opened(&self, client: u64) -> Option<Box<dyn crate::DeviceUse>> {
        let base = self.core.base.load_full()?;
        Some(Box::new(BaseUse::begin(&base, client)))
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<crate::TryRead, crate::DeviceError> {
        self.core.try_read(offset, len)
    }

    fn read(&self, offset: u64, len: usize) -> crate::DeviceFuture<Vec<crate::Piece>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move { core.read(offset, len).await })
    }

    fn write(&self, offset: u64, data: bytes::Bytes, fua: bool) -> crate::Done<()> {
        self.core.write(Change::Data(offset, data), fua)
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: crate::ZeroHow) -> crate::Done<()> {
        self.core.write(Change::Zeroes(offset, len), how.fua)
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> crate::Done<()> {
        self.core.write(Change::Zeroes(offset, len), fua)
    }

    fn flush(&self) -> crate::Done<()> {
        if let Err(error) = self.core.check_writable() {
            return crate::Done::Now(Err(error));
        }
        match self.core.flush() {
            Some(future) => crate::Done::Applied(future),
            None => crate::Done::Now(Ok(())),
        }
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        what: crate::ExtentQuery,
        max: usize,
    ) -> Vec<crate::DeviceExtent> {
        self.core.extents(offset, len, what, max)
    }

    fn prepare_extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
    ) -> Option<crate::DeviceFuture<()>> {
        self.core.prepare_extents(offset, len, max)
    }

    fn prefetch(&self, offset: u64, len: u64) -> crate::Done<()> {
        self.core.prefetch(offset, len)
    }
}
