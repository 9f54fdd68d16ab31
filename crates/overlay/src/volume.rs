//! An open volume: the handle that the data plane's host holds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use acstor_readpath::BlockView;
use acstor_types::DiskId;
use parking_lot::Mutex;
use rand::Rng;
use tokio::runtime::Handle;

use crate::cadence::fold_share;
use crate::core::{Base, Core, CoreParts, TABLE_LOOK};
use crate::device::BlockDevice;
use crate::disk::{HostDirectory, LogDisk};
use crate::durability::{Durability, DurabilityClass};
use crate::fold::{Announce, FoldHow, Folded, LogPosition, fold};
use crate::log::LogConfig;
use crate::push::{PushError, PushRate, Pusher, Wanted};
use crate::record::SECTOR;
use crate::recovery::{create_log, open_log};
use crate::regions::RegionMap;
use crate::replay::replay;
use crate::requests::Change;
use crate::{
    Opening, OriginSink, OverlayError, OverlayStatus, PushPoint, VolumeConfig, VolumeState, limits,
};

/// Longest that the threads sleep without looking around.
const LOOK_AROUND: Duration = Duration::from_secs(1);
const LOOK_AROUND_LEAST: Duration = Duration::from_millis(20);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(10);
/// The same where somebody waits who did not at the last attempt.
const RETRY_ASKED: Duration = Duration::from_secs(1);

/// An open volume. Dropping it closes it; the local log stays and is resumed by the next
/// [`Volume::open`] with the same epoch.
///
/// Calls that the documentation says block must not be made from a task.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    fold_turn: Mutex<()>,
}

impl Volume {
    /// Opens a volume whose ownership this host holds. Blocks: a local log of the same epoch is
    /// recovered without the origin; where there is none the logs of the record are replayed.
    ///
    /// # Errors
    /// [`OverlayError::Locked`] when the directory is in use, [`OverlayError::Invalid`] when a
    /// value is out of range or the local log is of another volume or epoch (remove the directory
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
        let threads = match spawn("overlay-keep", &core, keep_until_closed) {
            Ok(keep) => vec![push, keep],
            Err(error) => {
                core.set_closed();
                drop(push.join());
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
        self.core.push_all()?;
        let sequence = self.core.pusher.lock().last().unwrap_or(0);
        Ok(PushPoint { epoch: self.core.epoch, sequence })
    }

    /// Returns the volume's figures.
    pub fn status(&self) -> OverlayStatus {
        let core = &self.core;
        let (log_bytes, live_bytes) = core.log.usage();
        let (dirty_sectors, oldest) = {
            let map = core.log.map.read();
            (map.dirty_sectors(), map.oldest_dirty())
        };
        OverlayStatus {
            state: core.state(),
            epoch: core.epoch,
            size_bytes: core.size_bytes.load(Ordering::Acquire),
            pushed_sequence: core.pusher.lock().last(),
            dirty_bytes: dirty_sectors * SECTOR,
            recovery_point_age: oldest.map(|oldest| oldest.elapsed()),
            log_bytes,
            live_bytes,
            origin_log_bytes: core.origin_log_bytes.load(Ordering::Relaxed),
            origin_log_objects: core.origin_log_objects.load(Ordering::Relaxed),
            durability: core.durability.lock().clone(),
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
        core.log.head.lock().is_frozen = true;
        let number = core.freeze_number.fetch_add(1, Ordering::AcqRel) + 1;
        let frozen = Arc::downgrade(core);
        core.runtime.spawn(async move {
            tokio::time::sleep(timeout).await;
            if let Some(core) = frozen.upgrade()
                && core.freeze_number.load(Ordering::Acquire) == number
            {
                core.thaw();
            }
        });
        Ok(())
    }

    /// Lets writes go on.
    pub fn thaw(&self) {
        self.core.freeze_number.fetch_add(1, Ordering::AcqRel);
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
        self.core.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    /// Takes another durability over. Blocks while partitions are looked up.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`].
    pub fn set_durability(&self, durability: &Durability) -> Result<(), OverlayError> {
        durability.check()?;
        let _turn = self.core.regions_turn.lock();
        let writes = self.core.table_writes();
        let partitions = self.core.partitions_of(durability)?.ok_or_else(|| {
            OverlayError::Unavailable("the partition table is being written: try again".into())
        })?;
        self.core.apply_regions(durability, &partitions, writes);
        Ok(())
    }

    /// Returns whether a fold is worth while: the logs over the manifest are that long, and long
    /// enough for a manifest as large as the volume's. Volumes that are written alike do not reach
    /// it together: each takes another share of the two.
    pub fn fold_due(&self, bytes: u64, objects: u64) -> bool {
        let core = &self.core;
        let manifest = core.manifest.lock().as_ref().map_or(0, |one| one.as_bytes().len() as u64);
        let least =
            (manifest / limits::FOLD_MANIFEST_BYTES_PER_OBJECT).min(limits::FOLD_OBJECTS_MAX);
        let share = fold_share(core.volume);
        let is_reached = |value: &AtomicU64, threshold: u64| {
            value.load(Ordering::Relaxed) as f64 >= threshold as f64 * share
        };
        is_reached(&core.origin_log_bytes, bytes.max(manifest))
            || is_reached(&core.origin_log_objects, objects.max(least))
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
        self.core.set_fold_unwanted(is_unwanted);
    }

    /// Takes the manifest of a fold as base, once the record names it, and drops from the local
    /// log what that manifest holds.
    pub fn set_base(&self, base: Arc<dyn BlockView>, folded: &Folded) {
        self.core.base.store(Some(Arc::new(Base(base))));
        folded.drop_from(&self.core);
    }

    /// Refuses writes for good: the record names another owner.
    pub fn fence(&self, why: &str) {
        self.core.fence(why);
    }

    /// Makes writes wait, pushes everything, and closes the volume; the caller then gives the
    /// ownership up in the record. After an error the volume is open as before. Blocks.
    ///
    /// # Errors
    /// As [`Volume::push_now`].
    pub fn release(&self) -> Result<PushPoint, OverlayError> {
        self.freeze(Duration::from_secs(3600))?;
        match self.push_now() {
            Ok(point) => {
                self.close();
                Ok(point)
            }
            Err(error) => {
                self.thaw();
                Err(error)
            }
        }
    }

    /// Ends every request and the threads, and saves the map; nothing is pushed. Blocks.
    pub fn close(&self) {
        let was_open = !self.core.is_closed();
        self.core.set_closed();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has said so.
            drop(thread.join());
        }
        if was_open {
            let core = &self.core;
            let mut pusher = core.pusher.lock();
            pusher.abandon(&core.log);
            if let Err(error) = core.log.checkpoint(core.volume, core.epoch) {
                tracing::warn!(volume = %core.volume, %error, "no checkpoint at close");
            }
            core.log.disk.unlock();
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
    let sizes = LogConfig {
        segment_bytes: config.segment_bytes,
        quota_bytes: config.quota_bytes,
        reserve_bytes: config.reserve_bytes,
    };
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
    let pusher = Pusher::new(volume, epoch, opening.next, is_resumed, groups, Arc::clone(&sink));
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
        inherited: opening.logs.last().map(|range| LogPosition {
            volume: range.volume,
            epoch: range.epoch,
            sequence: range.last,
        }),
    };
    let core = Core::new(parts);
    core.origin_log_bytes.store(replayed, Ordering::Relaxed);
    core.origin_log_objects.store(objects, Ordering::Relaxed);
    if durability.has_partitions() {
        match core.partitions_of(&durability) {
            Ok(Some(partitions)) => core.apply_regions(&durability, &partitions, 0),
            Ok(None) => core.partitions_unknown(),
            Err(error) => {
                tracing::warn!(%volume, %error, "partitions unknown, nothing is pushed until then");
                core.partitions_unknown();
            }
        }
    }
    if is_resumed {
        // No less than what lies in the origin since the last fold is still in the local log.
        let bytes = core.log.map.read().clean_bytes();
        core.origin_log_bytes.store(bytes, Ordering::Relaxed);
    }
    Ok(core)
}

fn another_log(opening: &Opening, volume: DiskId, epoch: u32) -> OverlayError {
    OverlayError::Invalid(format!(
        "the local log is of volume {volume}, epoch {epoch}, and not of {}, epoch {}: remove its \
         directory",
        opening.volume, opening.epoch
    ))
}

fn spawn(
    name: &'static str,
    core: &Arc<Core>,
    run: fn(&Core),
) -> Result<JoinHandle<()>, OverlayError> {
    let core = Arc::clone(core);
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder
        .spawn(move || run(&core))
        .map_err(|error| OverlayError::io(format!("start the thread {name}"), error))
}

/// Pushes what is due, until the volume is closed.
fn push_until_closed(core: &Core) {
    let mut rate = PushRate::new(core.config.push_rate);
    let mut retry = RETRY_FIRST;
    while !core.is_closed() {
        let now = Instant::now();
        if core.are_partitions_unknown() {
            core.wait_for_partitions(now + LOOK_AROUND);
            continue;
        }
        let wanted = match next_push(core, &rate, now) {
            Ok(wanted) => wanted,
            Err(next) => {
                core.wait_for_push(next.min(now + look_around(core)));
                continue;
            }
        };
        if core.state() != VolumeState::Open && core.state() != VolumeState::Frozen {
            core.wait_for_close(now + LOOK_AROUND);
            continue;
        }
        let arrivals = core.arrivals();
        match core.push_one(wanted) {
            Ok(bytes) => {
                // What somebody waits for uses nothing of the rate up, or it would starve the rest.
                rate.note(bytes, Instant::now());
                retry = RETRY_FIRST;
                *core.error.lock() = None;
            }
            Err(error) => {
                let is_retried = matches!(error, PushError::Retry(_));
                let error = core.push_failed(error);
                tracing::warn!(volume = %core.volume, %error, "push failed");
                if is_retried {
                    let (now, jitter) = (Instant::now(), rand::rng().random_range(0.5..1.0));
                    let earliest = now + retry.min(RETRY_ASKED).mul_f64(jitter);
                    core.wait_for_retry(arrivals, earliest, now + retry.mul_f64(jitter));
                    retry = (retry * 2).min(RETRY_LAST);
                }
            }
        }
    }
}

/// How long a push thread sleeps at most: nobody wakes it for the first write of a period.
fn look_around(core: &Core) -> Duration {
    let periods = Arc::clone(&core.log.map.read().regions);
    let periods = periods.groups().iter().filter(|group| group.class == DurabilityClass::WriteBack);
    let shortest = periods.map(|group| group.period).min().unwrap_or(LOOK_AROUND);
    (shortest / 8).clamp(LOOK_AROUND_LEAST, LOOK_AROUND)
}

/// What is to be pushed now; else when to look again.
fn next_push(core: &Core, rate: &PushRate, now: Instant) -> Result<Wanted, Instant> {
    let (is_under_way, paced) = {
        let pusher = core.pusher.lock();
        (pusher.is_under_way(), pusher.paced(now))
    };
    let (mut wanted, next_due) = core.wanted(now);
    let latest = next_due.unwrap_or(now + LOOK_AROUND);
    let wait = rate.wait(now);
    wanted.is_held = !wait.is_zero();
    wanted.is_paced = paced.is_some();
    if wanted.asked != 0 {
        return Ok(wanted);
    }
    if wanted.is_held {
        return Err(now + wait);
    }
    match paced {
        Some((next, apart)) if wanted.due & apart == 0 => Err(next.min(latest)),
        _ if wanted.due != 0 || is_under_way => Ok(wanted),
        _ => Err(latest),
    }
}

/// Keeps the local log short, until the volume is closed.
fn keep_until_closed(core: &Core) {
    let checkpoint_bytes = (core.config.segment_bytes * 4).min(256 << 20);
    while !core.is_closed() {
        let mut look_again = TABLE_LOOK;
        if core.partitions_due.swap(false, Ordering::AcqRel)
            && let Err(error) = core.learn_partitions()
        {
            tracing::warn!(volume = %core.volume, %error, "cannot read partitions");
            *core.error.lock() = Some(format!("partitions: {error}"));
            core.partitions_due.store(true, Ordering::Release);
            look_again = LOOK_AROUND;
        }
        if core.log.wants_keep.swap(false, Ordering::AcqRel)
            && let Err(error) = core.log.keep(core.volume, core.epoch, checkpoint_bytes)
        {
            tracing::warn!(volume = %core.volume, %error, "cannot keep the local log short");
            *core.error.lock() = Some(format!("local log: {error}"));
        }
        if let Err(error) = core.log.ease() {
            tracing::warn!(volume = %core.volume, %error, "cannot give space back");
        }
        let mut turn = core.keep_queue.lock();
        let is_idle = !core.is_closed() && !core.log.wants_keep.load(Ordering::Acquire);
        if is_idle {
            let is_due = core.partitions_due.load(Ordering::Acquire);
            let pause = if is_due { look_again } else { LOOK_AROUND };
            core.keep_wake.wait_for(&mut turn, pause);
        }
    }
}

impl BlockDevice for Volume {
    fn size_bytes(&self) -> u64 {
        self.core.size_bytes.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        false
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
            Some(future) => crate::Done::Later(future),
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

    fn prefetch(&self, offset: u64, len: u64) -> crate::Done<()> {
        self.core.prefetch(offset, len)
    }
}
