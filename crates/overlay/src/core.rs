//! A volume's parts, and what its requests, its threads and its owner share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use acstor_readpath::BlockView;
use acstor_types::{Digest, DiskId};
use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::durability::{Durability, DurabilityClass, FlushTarget};
use crate::flusher::{Flusher, closed};
use crate::fold::LogPosition;
use crate::log::LocalLog;
use crate::push::{PushError, Pusher, Wanted};
use crate::regions::{Partition, RegionMap};
use crate::{
    DeviceError, DeviceErrorKind, DeviceFuture, OriginSink, OverlayError, VolumeConfig, VolumeState,
};

/// The manifest under the overlay.
pub(crate) struct Base(pub Arc<dyn BlockView>);

/// One who waits for the origin.
struct PushWaiter {
    what: Awaited,
    /// Bit per group.
    groups: u32,
    through: u64,
    sender: oneshot::Sender<Result<(), DeviceError>>,
}

/// What somebody waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// A write of these sectors; `to_origin`: in regions of write-back, too.
    Write { start: u64, end: u64, to_origin: bool },
    /// Everything that travels.
    All,
}

#[derive(Default)]
pub(crate) struct PushQueue {
    waiters: Vec<PushWaiter>,
}

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
    queue: Mutex<PushQueue>,
    /// When the origin has stored an object last.
    progress: Arc<Mutex<Instant>>,
    pub wake: Condvar,
    pub keep_queue: Mutex<()>,
    pub keep_wake: Condvar,
    pub thawed: Notify,
    pub freeze_number: AtomicU64,
    pub partitions_due: AtomicBool,
    /// The durability names partitions, and they were not read since the volume was opened: what
    /// lies where is not known, so nothing may leave.
    are_partitions_unknown: AtomicBool,
    /// One change of durability or partitions at a time.
    pub regions_turn: Mutex<()>,
    has_write_through: AtomicBool,
    flushes_to_origin: AtomicBool,
    pub has_partitions: AtomicBool,
    pub origin_log_bytes: AtomicU64,
    pub origin_log_objects: AtomicU64,
    /// The manifest that the base was attached with.
    pub manifest: Mutex<Option<Digest>>,
    /// The last object of the ranges that were there when the volume was opened.
    pub inherited: Mutex<Option<LogPosition>>,
}

const OPEN: u8 = 0;
const FENCED: u8 = 1;
const CLOSED: u8 = 2;

/// What a new core is made of.
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
    pub manifest: Option<Digest>,
    pub inherited: Option<LogPosition>,
}

impl Awaited {
    /// Bits of the groups that must be on the origin.
    fn groups(self, regions: &RegionMap) -> u32 {
        let Awaited::Write { start, end, to_origin } = self else {
            return Core::pushed_groups(regions);
        };
        let mut groups = 0;
        regions.split(start, end, |_, _, group| {
            let class = regions.class(group);
            if class == DurabilityClass::WriteThrough || to_origin && class != DurabilityClass::None
            {
                groups |= 1 << group;
            }
        });
        groups
    }
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Core {
        let flusher = Flusher::new(Arc::clone(&parts.log), parts.runtime.clone());
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
            pusher: Mutex::new(parts.pusher),
            queue: Mutex::default(),
            progress: Arc::new(Mutex::new(Instant::now())),
            wake: Condvar::new(),
            keep_queue: Mutex::default(),
            keep_wake: Condvar::new(),
            thawed: Notify::new(),
            freeze_number: AtomicU64::new(0),
            partitions_due: AtomicBool::new(false),
            are_partitions_unknown: AtomicBool::new(false),
            regions_turn: Mutex::default(),
            has_write_through: AtomicBool::new(false),
            flushes_to_origin: AtomicBool::new(false),
            has_partitions: AtomicBool::new(false),
            origin_log_bytes: AtomicU64::new(0),
            origin_log_objects: AtomicU64::new(0),
            manifest: Mutex::new(parts.manifest),
            inherited: Mutex::new(parts.inherited),
        };
        core.note_durability();
        core
    }

    fn note_durability(&self) {
        let durability = self.durability.lock();
        let regions = Arc::clone(&self.log.map.read().regions);
        let through = |group: &crate::regions::Group| group.class == DurabilityClass::WriteThrough;
        let has_write_through = regions.groups().iter().any(through);
        self.has_write_through.store(has_write_through, Ordering::Release);
        self.flushes_to_origin.store(durability.flush == FlushTarget::Origin, Ordering::Release);
        self.has_partitions.store(durability.has_partitions(), Ordering::Release);
    }

    /// Notes that partitions could not be read when the volume was opened.
    pub(crate) fn partitions_unknown(&self) {
        self.are_partitions_unknown.store(true, Ordering::Release);
        self.partitions_due.store(true, Ordering::Release);
    }

    pub(crate) fn are_partitions_unknown(&self) -> bool {
        self.are_partitions_unknown.load(Ordering::Acquire)
    }

    /// Reads the partitions that the durability names. Blocks as [`Core::read_bytes`] does.
    pub(crate) fn learn_partitions(&self) -> Result<(), OverlayError> {
        let _turn = self.regions_turn.lock();
        let durability = self.durability.lock().clone();
        let partitions = match durability.has_partitions() {
            true => crate::volume::read_partitions(self)?,
            false => Vec::new(),
        };
        self.apply_regions(&durability, &partitions);
        Ok(())
    }

    /// Takes regions over: other durability, or other partitions.
    pub(crate) fn apply_regions(&self, durability: &Durability, partitions: &[Partition]) {
        let regions = Arc::new(RegionMap::new(durability, partitions));
        let mut pusher = self.pusher.lock();
        {
            let _head = self.log.head.lock();
            let mut map = self.log.map.write();
            if *map.regions != *regions {
                let groups = regions.groups().len();
                map.set_regions(regions);
                pusher.regions_changed(groups);
            }
        }
        *self.durability.lock() = durability.clone();
        self.note_durability();
        self.are_partitions_unknown.store(false, Ordering::Release);
        // Before the push goes on: its groups have other numbers now.
        self.review_waiters();
        drop(pusher);
        self.wake.notify_all();
    }

    /// Takes over for those who wait what the regions ask for now.
    fn review_waiters(&self) {
        let regions = Arc::clone(&self.log.map.read().regions);
        let mut queue = self.queue.lock();
        let (rest, done): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiters)
            .into_iter()
            .map(|waiter| PushWaiter { groups: waiter.what.groups(&regions), ..waiter })
            .partition(|waiter| waiter.groups != 0);
        queue.waiters = rest;
        drop(queue);
        for waiter in done {
            // It need not travel any more; what was to be on the origin is to be durable here.
            match self.wait_for_disk(waiter.through) {
                None => drop(waiter.sender.send(Ok(()))),
                Some(synced) => drop(self.runtime.spawn(async move {
                    drop(waiter.sender.send(synced.await));
                })),
            }
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

    fn fail_waiters(&self) {
        let waiters = std::mem::take(&mut self.queue.lock().waiters);
        let error = self.check_writable().err().unwrap_or_else(closed);
        for waiter in waiters {
            drop(waiter.sender.send(Err(error.clone())));
        }
        self.wake.notify_all();
    }

    /// Bits of the groups that are pushed.
    fn pushed_groups(regions: &RegionMap) -> u32 {
        let numbers = 0..regions.groups().len() as u8;
        numbers.filter(|group| regions.is_pushed(*group)).map(|group| 1 << group).sum()
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

    fn wait_for_disk(&self, sequence: u64) -> Option<DeviceFuture<()>> {
        (self.log.synced() < sequence).then(|| self.flusher.sync(sequence))
    }

    fn wait_for_origin(&self, what: Awaited, through: u64) -> DeviceFuture<()> {
        let (sender, receiver) = oneshot::channel();
        {
            // In the queue's lock: a change of regions reviews all who are in it.
            let mut queue = self.queue.lock();
            let groups = what.groups(&Arc::clone(&self.log.map.read().regions));
            if groups == 0 && !self.are_partitions_unknown() {
                // Regions have changed since somebody looked.
                drop(queue);
                return self.wait_for_disk(through).unwrap_or_else(|| Box::pin(async { Ok(()) }));
            }
            queue.waiters.push(PushWaiter { what, groups, through, sender });
        }
        self.wake.notify_all();
        let deadline = self.config.origin_deadline;
        let progress = Arc::clone(&self.progress);
        Box::pin(async move {
            let mut receiver = receiver;
            let mut since = Instant::now();
            loop {
                let until = (since + deadline).into();
                if let Ok(answer) = tokio::time::timeout_at(until, &mut receiver).await {
                    return answer.unwrap_or_else(|_| Err(closed()));
                }
                // An origin that is slow is not one that fails.
                let stored = *progress.lock();
                if stored <= since {
                    return Err(DeviceError::new(
                        DeviceErrorKind::Io,
                        format!("the origin has stored nothing for {deadline:?}"),
                    ));
                }
                since = stored;
            }
        })
    }

    /// Answers those whose writes the origin has.
    fn answer_waiters(&self, pusher: &Pusher) {
        let is_there = |waiter: &PushWaiter| {
            let mut groups = (0..32_u8).filter(|group| waiter.groups & 1 << group != 0);
            groups.all(|group| pusher.through(group) >= waiter.through)
        };
        let mut queue = self.queue.lock();
        let waiters = std::mem::take(&mut queue.waiters);
        let (done, rest) = waiters.into_iter().partition(|waiter| is_there(waiter));
        queue.waiters = rest;
        drop(queue);
        for waiter in done {
            drop(waiter.sender.send(Ok(())));
        }
    }

    /// What must be pushed now; else when to look again.
    pub(crate) fn wanted(&self, now: Instant) -> Result<Wanted, Option<Instant>> {
        let queue = self.queue.lock();
        let asked = queue.waiters.iter().fold(0, |groups, waiter| groups | waiter.groups);
        drop(queue);
        let map = self.log.map.read();
        let mut due = 0;
        let mut next = None;
        for (number, group) in map.regions.groups().iter().enumerate() {
            if let Some(oldest) = map.dirty[number].oldest {
                // What is left of a write that nobody waits for any more goes at once, too.
                let period = match group.class {
                    DurabilityClass::WriteBack => group.period,
                    _ => std::time::Duration::ZERO,
                };
                let at = oldest + period;
                if at <= now {
                    due |= 1 << number;
                } else {
                    next = Some(next.map_or(at, |other: Instant| other.min(at)));
                }
            }
        }
        if asked | due == 0 {
            return Err(next);
        }
        Ok(Wanted { asked, due, ..Wanted::default() })
    }

    /// Pushes one object of what is wanted or under way; returns its bytes if nobody waits for it.
    pub(crate) fn push_one(&self, wanted: Wanted) -> Result<u64, PushError> {
        if self.are_partitions_unknown() {
            let cause = "partitions of the volume could not be read yet: is its base reachable?";
            return Err(PushError::Retry(OverlayError::Unavailable(cause.to_owned())));
        }
        let mut pusher = self.pusher.lock();
        let before = (pusher.stored_bytes, pusher.stored_objects);
        let result = pusher.step(&self.log, wanted);
        let (bytes, objects) = (pusher.stored_bytes - before.0, pusher.stored_objects - before.1);
        self.origin_log_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.origin_log_objects.fetch_add(objects, Ordering::Relaxed);
        if bytes > 0 {
            *self.progress.lock() = Instant::now();
        }
        if result.is_ok() {
            self.answer_waiters(&pusher);
        }
        result
    }

    /// Pushes everything that was acknowledged before the call, as it is at one moment.
    pub(crate) fn push_all(&self) -> Result<(), OverlayError> {
        if self.are_partitions_unknown() {
            self.learn_partitions()?;
        }
        let target = self.log.appended();
        let mut failures = 0;
        loop {
            self.check_open()?;
            let asked = Core::pushed_groups(&Arc::clone(&self.log.map.read().regions));
            {
                let pusher = self.pusher.lock();
                let mut groups = (0..32_u8).filter(|group| asked & 1 << group != 0);
                let is_there = groups.all(|group| pusher.through(group) >= target);
                if is_there && pusher.last().is_some() && !pusher.is_under_way() {
                    return Ok(());
                }
            }
            match self.push_one(Wanted { asked, is_whole: true, ..Wanted::default() }) {
                Ok(_) => {}
                Err(error @ (PushError::Fenced(_) | PushError::Local(_))) => {
                    return Err(self.push_failed(error));
                }
                Err(error) => {
                    failures += 1;
                    if failures > 2 {
                        return Err(self.push_failed(error));
                    }
                }
            }
        }
    }

    fn check_open(&self) -> Result<(), OverlayError> {
        match self.check_writable() {
            Ok(()) => Ok(()),
            Err(error) if error.kind == DeviceErrorKind::Fenced => {
                Err(OverlayError::Fenced(self.volume))
            }
            Err(error) => Err(OverlayError::Unavailable(error.message)),
        }
    }

    /// Notes why a push failed.
    pub(crate) fn push_failed(&self, error: PushError) -> OverlayError {
        match error {
            PushError::Fenced(why) => {
                self.fence(&why);
                OverlayError::Fenced(self.volume)
            }
            PushError::Retry(error) => {
                *self.error.lock() = Some(format!("push: {error}"));
                error
            }
            PushError::Local(why) => {
                *self.error.lock() = Some(why.clone());
                OverlayError::Unavailable(why)
            }
        }
    }

    /// Waits for partitions to be known, the volume to be closed, or `until`.
    pub(crate) fn wait_for_partitions(&self, until: Instant) {
        let mut queue = self.queue.lock();
        while !self.is_closed()
            && self.are_partitions_unknown()
            && !self.wake.wait_until(&mut queue, until).timed_out()
        {}
    }

    /// Waits until something is to be pushed, the volume is closed, or `until`.
    pub(crate) fn wait_for_push(&self, until: Instant) {
        let mut queue = self.queue.lock();
        if queue.waiters.is_empty() && !self.is_closed() {
            self.wake.wait_until(&mut queue, until);
        }
    }

    /// Waits for the volume to be closed, or `until`.
    pub(crate) fn wait_for_close(&self, until: Instant) {
        let mut queue = self.queue.lock();
        while !self.is_closed() && !self.wake.wait_until(&mut queue, until).timed_out() {}
    }
}
