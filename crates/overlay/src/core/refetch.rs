//! Content that this host has lost and the origin has: fetched from there, and put back.
//!
//! What was pushed and not written since is *clean*: the newest log object that has its sectors, or the
//! manifest where no object has them, is what was written here. That follows from what counts as dirty:
//! whatever an object may have of a sector, the sector is dirty until the batch that has its newest
//! content has ended. So objects are read from the newest back, until every sector is found. They are
//! few: a fold comes before they are many, and damage is rare.
//!
//! What is found is appended as a copy, as reclaiming does, where the map still refers to the damaged
//! record; a write that came meanwhile has changed the map, and stays.
//!
//! Must never: take for clean what the origin was never to have, or what it lacks; take an older base
//! than the objects lie over; or put anything over a newer write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_types::DiskId;
use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::base::{BaseError, copy_pieces, read_base};
use crate::core::Core;
use crate::fold::LogPosition;
use crate::push::origin_log::{LogObject, LogRecord, log_key, log_prefix, sequence_of};
use crate::push::replay::LogRange;
use crate::push::seal::{object_at, open_batches};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::map_state::MapState;
use crate::segments::range_set::RangeSet;
use crate::segments::record::SECTOR;
use crate::{DeviceError, DeviceErrorKind, OriginSink, OverlayError, SinkError};

/// Time for which the origin is not asked again for content that it was found not to have.
const HOPELESS_TIME: Duration = Duration::from_secs(60);

/// The log objects over the manifest; the manifest may have some of the first of them already.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Closed ranges, in order.
    pub ranges: Vec<LogRange>,
    /// First slot of this epoch behind them.
    pub first: u64,
    /// Slots of this epoch before this one were filled.
    pub filled: u64,
}

impl Reach {
    /// The last object of the closed ranges.
    pub(crate) fn inherited(&self) -> Option<LogPosition> {
        let LogRange { volume, epoch, last: sequence, .. } = *self.ranges.last()?;
        Some(LogPosition { volume, epoch, sequence })
    }
}

/// State of fetching again, of one volume.
pub(crate) struct Refetch {
    reach: Mutex<Reach>,
    /// One at a time: who waits mostly waits for the same record.
    turn: tokio::sync::Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// Time of the origin's last failure.
    failed_at: Option<Instant>,
    /// Places whose content the origin was found not to have, each with the time of that.
    hopeless: HashMap<(u32, u64), Instant>,
}

/// Result of fetching a damaged extent again.
#[derive(Debug)]
pub(crate) enum Refetched {
    /// Its content.
    Content(Bytes),
    /// As the origin has it, which is older than what was written.
    Older(Bytes),
    /// The map says something else now.
    Changed,
    /// Only this host had it.
    Lost,
}

/// A damaged record, as far as it is alive.
struct Damage {
    /// Parts that the origin has of it, or is asked for.
    parts: Vec<Extent>,
    /// The checksum of `parts`, where they are all of the record.
    crc: Option<u32>,
    /// Place in the log: segment, and offset of the record or of the extent.
    place: (u32, u64),
    /// The origin has the whole extent as it was written.
    is_clean: bool,
}

/// Sectors that are looked for, and what was found of them.
struct Wanted {
    start: u64,
    bytes: Vec<u8>,
    missing: RangeSet,
}

impl Refetch {
    pub(crate) fn new(reach: Reach) -> Refetch {
        Refetch { reach: Mutex::new(reach), turn: tokio::sync::Mutex::default() }
    }

    /// Notes that the base has everything up to an object. After the base was replaced: who looks
    /// between the two reads objects that the base has, too, and not too few.
    pub(crate) fn folded(&self, until: &LogPosition, own: DiskId) {
        let mut reach = self.reach.lock();
        reach.ranges.clear();
        if until.volume == own {
            // Numbers go on over epochs: the end of the ranges lies before it.
            reach.first = reach.first.max(until.sequence + 1);
        }
    }
}

impl MapState {
    /// Returns the parts of a range whose newest content the origin has.
    fn clean_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        self.regions.split(start, end, |from, to, group| {
            let mut at = from;
            while at < to && self.regions.is_pushed(group) {
                let (run_end, is_dirty) = self.dirty_run(at, to);
                if !is_dirty {
                    parts.push((at, run_end));
                }
                at = run_end;
            }
        });
        parts
    }

    /// Returns whether the origin has the newest content of a range.
    pub(crate) fn is_clean(&self, start: u64, end: u64) -> bool {
        let sectors: u64 = self.clean_parts(start, end).iter().map(|(from, to)| to - from).sum();
        sectors == end - start
    }

    /// Returns the parts of an extent that are where it says.
    pub(crate) fn unchanged(&self, extent: &Extent) -> Vec<Extent> {
        let is_same = |now: &Extent| now.place == extent.place.advance(now.start - extent.start);
        self.extents.range(extent.start, extent.end).filter(is_same).collect()
    }

    fn is_unchanged(&self, extent: &Extent) -> bool {
        let sectors: u64 = self.unchanged(extent).iter().map(|part| part.end - part.start).sum();
        sectors == extent.end - extent.start
    }

    /// Returns what is alive and clean of the record that an extent is a part of; `None`: the extent is
    /// not as it was.
    fn damage(&self, extent: &Extent) -> Option<Damage> {
        let Place::Log { segment, offset } = extent.place else { return None };
        if !self.is_unchanged(extent) {
            return None;
        }
        let record = self.segments.get(&segment)?.record_at(offset);
        let whole = record.and_then(|record| {
            let start = extent.start.checked_sub((offset - record.offset()) / SECTOR)?;
            let end = start + record.len() as u64 / SECTOR;
            let place = Place::Log { segment, offset: record.offset() };
            Some(Extent { start, end, place })
        });
        let whole = whole.unwrap_or(*extent);
        let clean = |part: Extent| {
            let clip = move |(from, to)| part.clip(from, to);
            self.clean_parts(part.start, part.end).into_iter().map(clip)
        };
        let parts: Vec<_> = self.unchanged(&whole).into_iter().flat_map(clean).collect();
        let sectors: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let is_whole = sectors == whole.end - whole.start;
        let crc = record.filter(|_| is_whole).map(|record| record.crc);
        let place = (segment, record.map_or(offset, |record| record.offset()));
        Some(Damage { parts, crc, place, is_clean: self.is_clean(extent.start, extent.end) })
    }
}

impl Core {
    /// Fetches what the origin has of a damaged extent, and puts it back into the local log.
    /// `may_be_older`: what the origin lacks is wanted as it has it.
    pub(crate) async fn refetch(
        &self,
        extent: &Extent,
        may_be_older: bool,
    ) -> Result<Refetched, BaseError> {
        let asked = Instant::now();
        let mut turn = self.refetch.turn.lock().await;
        let Some(damage) = self.log.map().damage(extent) else {
            return Ok(Refetched::Changed);
        };
        turn.hopeless.retain(|_, since| since.elapsed() < HOPELESS_TIME);
        if !damage.is_clean && !may_be_older || turn.hopeless.contains_key(&damage.place) {
            return Ok(Refetched::Lost);
        }
        if turn.failed_at.is_some_and(|at| at > asked) {
            return Err(BaseError::Late(io_error("the origin has failed just now")));
        }
        let outcome = match damage.is_clean {
            true => self.put_right(extent, &damage).await,
            false => self.fetch(std::slice::from_ref(extent)).await.map(Refetched::Older),
        };
        match outcome {
            Ok(refetched) => Ok(refetched),
            Err(BaseError::Late(error)) => {
                turn.failed_at = Some(Instant::now());
                Err(BaseError::Late(error))
            }
            // What was found is newer, or lay where it is not looked for any more.
            Err(BaseError::Failed(_)) if self.has_changed(extent, &damage) => {
                Ok(Refetched::Changed)
            }
            Err(BaseError::Failed(error)) => {
                let (volume, at) = (self.volume, extent.start * SECTOR);
                tracing::error!(%volume, offset = at, len = extent.bytes(), %error,
                    "damaged content of the local log cannot be fetched from the origin");
                turn.hopeless.insert(damage.place, Instant::now());
                Ok(Refetched::Lost)
            }
        }
    }

    /// Returns whether some of a damaged record was written, or moved, since it was looked up.
    fn has_changed(&self, extent: &Extent, damage: &Damage) -> bool {
        let map = self.log.map();
        let mut parts = damage.parts.iter().chain([extent]);
        parts.any(|part| !map.is_unchanged(part))
    }

    /// Fetches the parts of a damaged record, puts them back, and returns the content of `extent`.
    async fn put_right(&self, extent: &Extent, damage: &Damage) -> Result<Refetched, BaseError> {
        let content = self.fetch(&damage.parts).await?;
        match damage.crc {
            Some(crc) if crc32fast::hash(&content) != crc => {
                return Err(BaseError::Failed(io_error("the origin has something else there")));
            }
            Some(_) => {}
            None if self.may_be_private() => {
                let error = io_error("partitions are unknown, and what leaves this host with them");
                return Err(BaseError::Late(error));
            }
            None => {}
        }
        let (mut rest, mut of_extent, mut put_back) = (content, Vec::new(), 0);
        let mut failure = None;
        for part in &damage.parts {
            let bytes = rest.split_to(part.bytes() as usize);
            let (from, to) = (part.start.max(extent.start), part.end.min(extent.end));
            if from < to {
                let at = ((from - part.start) * SECTOR) as usize;
                of_extent.extend_from_slice(&bytes[at..at + ((to - from) * SECTOR) as usize]);
            }
            match self.log.put_back(part, &bytes) {
                Ok(sectors) => put_back += sectors * SECTOR,
                Err(error) => failure = Some(error),
            }
        }
        let offset = damage.parts.first().map_or(0, |part| part.start * SECTOR);
        if put_back > 0 {
            tracing::warn!(volume = %self.volume, offset, bytes = put_back,
                "damaged content of the local log was fetched from the origin: check the disk");
        }
        if let Some(error) = failure {
            tracing::warn!(volume = %self.volume, offset, %error,
                "content that was fetched from the origin cannot be written to the local log");
        }
        if let Some(segment) = self.log.map().segments.get(&damage.place.0) {
            // It may be reclaimed now; else that finds what else is damaged.
            segment.set_damaged(false);
        }
        Ok(Refetched::Content(Bytes::from(of_extent)))
    }

    /// Returns whether a range that seems to be on the origin may be one that never leaves this
    /// host.
    fn may_be_private(&self) -> bool {
        self.are_partitions_unknown() && self.regions.has_none()
    }

    /// Returns what the origin has of some extents, one after the other.
    async fn fetch(&self, parts: &[Extent]) -> Result<Bytes, BaseError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(Bytes::new());
        };
        let mut wanted = Wanted::new(first.start, last.end);
        parts.iter().for_each(|part| wanted.missing.insert(part.start, part.end));
        // In this order: an older base has the objects of this reach over it, and a newer one may.
        let mut reach = self.refetch.reach.lock().clone();
        let base = self.base.load_full();
        reach.filled = reach.filled.max(self.pushed_sequence().map_or(0, |last| last + 1));
        let (sink, volume, epoch) = (Arc::clone(&self.sink), self.volume, self.epoch);
        let looking = self.runtime.spawn_blocking(move || {
            let own = LogRange { volume, epoch, first: reach.first, last: 0 };
            wanted.look(&*sink, &reach, own).map(|()| wanted)
        });
        let looked = looking.await.map_err(|error| io_error(&error.to_string()))?;
        let mut wanted = looked.map_err(|error| match error {
            OverlayError::Origin(SinkError::Unavailable { .. }) => {
                BaseError::Late(io_error(&error.to_string()))
            }
            error => BaseError::Failed(io_error(&error.to_string())),
        })?;
        let rest: Vec<_> = wanted.missing.iter().collect();
        for (from, to) in rest {
            let len = ((to - from) * SECTOR) as usize;
            let pieces = read_base(base.as_deref(), from * SECTOR, len).await?;
            let copying = self.runtime.spawn_blocking(move || copy_pieces(Ok(pieces), len));
            let bytes = copying.await.map_err(|error| io_error(&error.to_string()))?;
            // The base drops a chunk that is damaged here: the next attempt has it from elsewhere.
            let bytes = bytes.map_err(|error| BaseError::Late(io_error(&error.to_string())))?;
            wanted.take(from, &bytes);
        }
        let mut content = Vec::new();
        for part in parts {
            let at = ((part.start - wanted.start) * SECTOR) as usize;
            content.extend_from_slice(&wanted.bytes[at..at + part.bytes() as usize]);
        }
        Ok(Bytes::from(content))
    }
}

impl Wanted {
    fn new(start: u64, end: u64) -> Wanted {
        let bytes = vec![0; ((end - start) * SECTOR) as usize];
        Wanted { start, bytes, missing: RangeSet::default() }
    }

    /// Looks through the objects from the newest back; `own`: those of this epoch, without their end.
    fn look(
        &mut self,
        sink: &dyn OriginSink,
        reach: &Reach,
        own: LogRange,
    ) -> Result<(), OverlayError> {
        let keys = sink.list(&log_prefix(own.volume, own.epoch))?;
        let found = keys.iter().filter_map(|key| sequence_of(key)).max();
        let end = found.map_or(reach.filled, |last| reach.filled.max(last + 1));
        for slot in (own.first..end).rev() {
            self.look_into(sink, &own, slot)?;
        }
        for range in reach.ranges.iter().rev() {
            if self.missing.is_empty() {
                break;
            }
            let (volume, epoch) = (range.volume, range.epoch);
            let open = open_batches(sink, volume, epoch, range.first, range.last + 1)?;
            let slots = (range.first..=range.last).rev();
            for slot in slots.filter(|slot| !open.main.contains(slot)) {
                self.look_into(sink, range, slot)?;
            }
        }
        Ok(())
    }

    fn look_into(
        &mut self,
        sink: &dyn OriginSink,
        range: &LogRange,
        slot: u64,
    ) -> Result<(), OverlayError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let key = log_key(range.volume, range.epoch, slot);
        let corrupt = |error| OverlayError::Corrupt(format!("{key} in the origin: {error}"));
        let object = LogObject::parse(&object_at(sink, &key)?).map_err(corrupt)?;
        let info = &object.info;
        if (info.volume, info.epoch, info.sequence) != (range.volume, range.epoch, slot) {
            return Err(OverlayError::Corrupt(format!("{key} is another object")));
        }
        let mut records = Vec::new();
        let visited = object.records(|record| {
            let (start, end) = sectors(&record);
            if self.missing.overlaps(start, end) {
                records.push(record);
            }
            Ok::<_, crate::LogObjectError>(())
        });
        visited.map_err(corrupt)?;
        for record in records.iter().rev() {
            self.take_record(record);
        }
        Ok(())
    }

    fn take_record(&mut self, record: &LogRecord) {
        let (start, end) = sectors(record);
        let parts: Vec<_> = self.missing.parts(start, end).collect();
        for (from, to) in parts {
            let at = ((from - start) * SECTOR) as usize;
            let len = ((to - from) * SECTOR) as usize;
            match &record.content {
                Some(content) => self.take(from, &content[at..at + len]),
                None => self.missing.remove(from, to), // zeros are what is there
            }
        }
    }

    fn take(&mut self, from: u64, content: &[u8]) {
        let at = ((from - self.start) * SECTOR) as usize;
        self.bytes[at..at + content.len()].copy_from_slice(content);
        self.missing.remove(from, from + content.len() as u64 / SECTOR);
    }
}

fn sectors(record: &LogRecord) -> (u64, u64) {
    (record.offset / SECTOR, (record.offset + record.len) / SECTOR)
}

fn io_error(message: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Io, message)
}
