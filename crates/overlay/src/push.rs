//! The push: what was written, carried to the origin as log objects, in order.
//!
//! Source: Capo (FAST 2011) §4.1: snapshot, push, clear. A cut takes what a set of groups has
//! written and the place of its content at one moment; objects are made from it while writes go
//! on; when the last object of the batch is stored, the cut is over. Sectors that were written
//! several times before a cut travel once.
//!
//! Must never: put an object before what it holds is durable here (the origin would be ahead of a
//! host that lost power), put other bytes into a slot than were tried there before, or go on when
//! a slot holds what this owner did not put there.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use acstor_types::DiskId;
use bytes::Bytes;
use hashbrown::HashMap;

use crate::extent_map::{Extent, Place};
use crate::limits;
use crate::log::LocalLog;
use crate::origin_log::{LogObjectInfo, ObjectBody, log_key, log_object_info};
use crate::record::SECTOR;
use crate::seal::{digest_of, first_free, info_at, object_at};
use crate::segment::Segment;
use crate::{OriginSink, OverlayError};

/// Ranges that a cut looks up per turn of the lock.
const RESOLVE_STEP: usize = 1024;

/// A push of one volume that is under way, and where the next one goes.
pub(crate) struct Pusher {
    volume: DiskId,
    epoch: u32,
    first: u64,
    sink: Arc<dyn OriginSink>,
    /// Next free slot; unknown until the origin was asked after a restart.
    next: Option<u64>,
    /// The first slot after a restart may hold what the process before put there.
    is_resumed: bool,
    batch: Option<Batch>,
    /// Local sequence number up to which each group is on the origin.
    through: Vec<u64>,
    /// Regions have changed: the next cut is of all groups.
    is_full_due: bool,
    /// An object is closed when it has that many bytes; at most what the format allows.
    pub(crate) object_bytes: usize,
    pub(crate) stored_bytes: u64,
    pub(crate) stored_objects: u64,
}

/// One cut on its way.
struct Batch {
    groups: Vec<u8>,
    through: u64,
    extents: Vec<Extent>,
    segments: HashMap<u32, Arc<Segment>>,
    /// First extent that is not in an object yet, and how many of its sectors are.
    position: (usize, u64),
    /// The object that must go into the next slot, whatever happens.
    object: Option<(Vec<Bytes>, bool)>,
}

/// Why a push stopped.
#[derive(Debug)]
pub(crate) enum PushError {
    /// Another host owns the volume.
    Fenced(String),
    /// It can be tried again; the same object goes to the same slot then.
    Retry(OverlayError),
    /// The local log failed.
    Local(String),
}

impl From<OverlayError> for PushError {
    fn from(error: OverlayError) -> PushError {
        PushError::Retry(error)
    }
}

impl Pusher {
    /// A pusher whose first slot is `first`; `is_resumed`: objects may be there already.
    pub(crate) fn new(
        volume: DiskId,
        epoch: u32,
        first: u64,
        is_resumed: bool,
        groups: usize,
        sink: Arc<dyn OriginSink>,
    ) -> Pusher {
        let next = (!is_resumed).then_some(first);
        Pusher {
            volume,
            epoch,
            first,
            sink,
            next,
            is_resumed,
            batch: None,
            through: vec![0; groups],
            is_full_due: is_resumed,
            object_bytes: limits::LOG_OBJECT_BYTES_MAX,
            stored_bytes: 0,
            stored_objects: 0,
        }
    }

    /// Takes over that regions have changed.
    pub(crate) fn regions_changed(&mut self, groups: usize) {
        let least = self.through.iter().copied().min().unwrap_or(0);
        self.through = vec![least; groups];
        self.is_full_due = true;
        // Its groups have other numbers now: what it stores counts for none of them.
        if let Some(batch) = &mut self.batch {
            batch.groups.clear();
        }
    }

    /// Local sequence number up to which group `group` is on the origin.
    pub(crate) fn through(&self, group: u8) -> u64 {
        // A group that is no more: whatever all have.
        let least = || self.through.iter().copied().min().unwrap_or(0);
        self.through.get(usize::from(group)).copied().unwrap_or_else(least)
    }

    /// Last slot that this owner has filled (one before its first: none), if that is known.
    pub(crate) fn last(&self) -> Option<u64> {
        self.next.map(|next| next - 1)
    }

    /// First slot of this owner.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns whether a cut is on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.batch.is_some()
    }

    /// Asks the origin for the next free slot where that is not known.
    pub(crate) fn find_next(&mut self) -> Result<u64, PushError> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        let slot = first_free(&*self.sink, self.volume, self.epoch, self.first)?;
        if slot > self.first && info_at(&*self.sink, self.volume, self.epoch, slot - 1)?.is_seal {
            return Err(fenced(slot - 1));
        }
        self.next = Some(slot);
        Ok(slot)
    }

    /// Begins a cut of `groups`, unless one is under way; false: there is nothing to push.
    pub(crate) fn begin(&mut self, log: &LocalLog, groups: &[u8]) -> Result<bool, PushError> {
        if self.batch.is_some() {
            return Ok(true);
        }
        let all: Vec<u8> = (0..self.through.len() as u8).collect();
        let groups = if self.is_full_due { &all[..] } else { groups };
        let (through, is_begun) = {
            let head = log.head.lock();
            let is_begun = log.map.write().begin_cut(|group| groups.contains(&group));
            (head.next_sequence - 1, is_begun)
        };
        if !is_begun {
            self.advance(groups, through);
            self.is_full_due = false;
            return Ok(false);
        }
        let position = (0, 0);
        let (extents, segments) = (Vec::new(), HashMap::new());
        let groups = groups.to_vec();
        let object = None;
        self.batch = Some(Batch { groups, through, extents, segments, position, object });
        loop {
            let mut map = log.map.write();
            if !map.resolve_some(RESOLVE_STEP) {
                continue;
            }
            if let Some(batch) = &mut self.batch {
                batch.extents = map.take_resolved();
                batch.segments = map.cut.as_mut().map(|c| c.segments.clone()).unwrap_or_default();
            }
            break;
        }
        Ok(true)
    }

    /// Stores one object of the cut that is under way; true: that was the last one.
    pub(crate) fn step(&mut self, log: &LocalLog) -> Result<bool, PushError> {
        self.find_next()?;
        let Some(batch) = &mut self.batch else { return Ok(true) };
        // An origin that is ahead of a host which lost power would not be a prefix of anything.
        log.sync(batch.through).map_err(|error| PushError::Local(error.to_string()))?;
        let (parts, is_last) = match batch.object.take() {
            Some(object) => object,
            None => {
                let (body, is_last) = batch.next_body(self.object_bytes)?;
                let info = self.info(log, is_last);
                (body.finish(&info), is_last)
            }
        };
        match self.put(&parts) {
            Ok(()) => {}
            Err(error) => {
                if let Some(batch) = &mut self.batch {
                    batch.object = Some((parts, is_last));
                }
                return Err(error);
            }
        }
        if is_last && let Some(batch) = self.batch.take() {
            log.map.write().finish_cut();
            self.advance(&batch.groups, batch.through);
            self.is_full_due &= batch.groups.is_empty();
        }
        Ok(is_last)
    }

    fn info(&self, log: &LocalLog, is_last: bool) -> LogObjectInfo {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        LogObjectInfo {
            volume: self.volume,
            epoch: self.epoch,
            sequence: self.next.unwrap_or(self.first),
            is_seal: false,
            has_more: !is_last,
            record_count: 0,
            log_id: log.log_id,
            through: self.batch.as_ref().map_or(0, |batch| batch.through),
            created_ms: now.as_millis() as u64,
            body_bytes: 0,
        }
    }

    fn put(&mut self, parts: &[Bytes]) -> Result<(), PushError> {
        let slot = self.find_next()?;
        let key = log_key(self.volume, self.epoch, slot);
        if !self.sink.put_if_absent(&key, parts).map_err(OverlayError::from)? {
            self.check_own(&key, slot, parts)?;
        }
        self.is_resumed = false;
        self.next = Some(slot + 1);
        self.stored_objects += 1;
        self.stored_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }

    /// A slot that is taken holds our own object, whose answer was lost, or somebody else's.
    fn check_own(&mut self, key: &str, slot: u64, parts: &[Bytes]) -> Result<(), PushError> {
        let there = object_at(&*self.sink, key)?;
        if digest_of(std::slice::from_ref(&there)) == digest_of(parts) {
            return Ok(());
        }
        let info = log_object_info(&there)
            .map_err(|error| OverlayError::Corrupt(format!("{key} in the origin: {error}")))?;
        if !self.is_resumed || info.is_seal || info.epoch != self.epoch {
            return Err(fenced(slot));
        }
        // Put by the process before this one, which knew no more of the volume than we do: what
        // it stored is part of what we store. The object to come names another slot.
        self.is_resumed = false;
        self.next = None;
        if let Some(batch) = &mut self.batch {
            batch.object = None;
            batch.position = (0, 0);
        }
        let cause = "an earlier process has stored an object here".to_owned();
        Err(PushError::Retry(OverlayError::Unavailable(cause)))
    }

    fn advance(&mut self, groups: &[u8], through: u64) {
        for group in groups {
            if let Some(own) = self.through.get_mut(usize::from(*group)) {
                *own = (*own).max(through);
            }
        }
    }

    /// Gives up what is under way: the volume is being closed, the local log keeps it.
    pub(crate) fn abandon(&mut self, log: &LocalLog) {
        self.batch = None;
        log.map.write().abandon_cut();
    }
}

impl Batch {
    /// Returns the next object's records, and whether they are the last.
    fn next_body(&mut self, object_bytes: usize) -> Result<(ObjectBody, bool), OverlayError> {
        let mut body = ObjectBody::default();
        let mut run = Vec::new();
        while let Some(extent) = self.extents.get(self.position.0).copied() {
            if body.is_full(object_bytes) {
                return Ok((body, false));
            }
            let start = extent.start + self.position.1;
            if extent.place == Place::Zero {
                body.push_zeroes(start * SECTOR, (extent.end - start) * SECTOR);
                self.position = (self.position.0 + 1, 0);
                continue;
            }
            self.fill_run(start, &mut run)?;
            body.push_data(start * SECTOR, &run);
        }
        Ok((body, true))
    }

    /// Collects content that is contiguous on the disk, as much as one record takes.
    fn fill_run(&mut self, start: u64, run: &mut Vec<u8>) -> Result<(), OverlayError> {
        run.clear();
        let mut end = start;
        while let Some(extent) = self.extents.get(self.position.0) {
            let from = extent.start + self.position.1;
            let room = (limits::LOG_RECORD_BYTES_MAX - run.len()) as u64 / SECTOR;
            if from != end || extent.place == Place::Zero || room == 0 {
                break;
            }
            let to = extent.end.min(from + room);
            let at = run.len();
            run.resize(at + ((to - from) * SECTOR) as usize, 0);
            LocalLog::read_extent(&self.segments, &extent.clip(from, to), &mut run[at..])
                .map_err(|error| OverlayError::io("read the local log", error))?;
            end = to;
            self.position = if to == extent.end {
                (self.position.0 + 1, 0)
            } else {
                (self.position.0, to - extent.start)
            };
        }
        Ok(())
    }
}

fn fenced(slot: u64) -> PushError {
    PushError::Fenced(format!("slot {slot:016x} of the volume's log is not ours"))
}

/// Grants bytes at a rate, in bursts of a second.
#[derive(Debug)]
pub(crate) struct PushRate {
    bytes_per_s: Option<u64>,
    /// The bucket is empty until then.
    free_at: Option<Instant>,
}

impl PushRate {
    pub(crate) fn new(bytes_per_s: Option<u64>) -> PushRate {
        PushRate { bytes_per_s, free_at: None }
    }

    /// Counts bytes that were stored at `now`.
    pub(crate) fn note(&mut self, bytes: u64, now: Instant) {
        if let Some(rate) = self.bytes_per_s {
            let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            let from = self.free_at.map_or(now, |at| at.max(now));
            self.free_at = Some(from + cost);
        }
    }

    /// How long the next object must wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.free_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}
