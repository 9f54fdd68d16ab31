//! Reads and writes of an open volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use acstor_readpath::Segment as BaseSegment;
use bytes::Bytes;

use crate::base::{BaseError, base_extent, copy_pieces, prepare_base_extents, read_base, try_base};
use crate::core::Core;
use crate::core::refetch::Refetched;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::range_set::RangeSet;
use crate::segments::record::SECTOR;
use crate::segments::record_log::AppendError;
use crate::segments::segment::{LogPiece, Segment};
use crate::{
    DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery, OverlayError,
    Piece, TryRead, limits,
};

/// Change that a write makes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Puts bytes at an offset.
    Data(u64, Bytes),
    /// Makes a range read as zeros.
    Zeroes(u64, u64),
}

impl Change {
    fn range(&self) -> (u64, u64) {
        match self {
            Change::Data(offset, data) => (*offset, data.len() as u64),
            Change::Zeroes(offset, len) => (*offset, *len),
        }
    }

    /// Bytes that have to be pushed for it.
    fn moved_bytes(&self) -> u64 {
        match self {
            Change::Data(_, data) => data.len() as u64,
            Change::Zeroes(..) => SECTOR,
        }
    }
}

/// A part of a read: zeros, pieces from the log with their extents, gaps for the base.
enum Part {
    Zeros(usize),
    Log(Extent, LogPiece),
    Gap(u64, usize),
}

/// A read that is whole.
pub(crate) struct Whole {
    pub pieces: Vec<Piece>,
    /// Sectors whose content is older than what was written: only this host had that.
    pub older: RangeSet,
}

impl Core {
    fn check_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let size = self.size_bytes.load(Ordering::Acquire);
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= size);
        if is_inside && offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR) {
            return Ok(());
        }
        Err(DeviceError::new(
            DeviceErrorKind::Invalid,
            format!("{len} bytes at {offset} are not whole sectors of a disk of {size} bytes"),
        ))
    }

    /// Returns what the log has of a range, and gaps.
    fn plan(&self, offset: u64, len: usize) -> Result<Vec<Part>, DeviceError> {
        if self.is_closed() {
            return Err(crate::segments::flusher::closed());
        }
        self.check_range(offset, len as u64)?;
        if len > limits::READ_BYTES_MAX {
            return Err(DeviceError::new(DeviceErrorKind::Invalid, "the read is too long"));
        }
        let (start, end) = (offset / SECTOR, (offset + len as u64) / SECTOR);
        let mut parts = Vec::with_capacity(4);
        let mut at = start;
        let map = self.log.map();
        for extent in map.extents.range(start, end) {
            push_gap(&mut parts, at, extent.start);
            at = extent.end;
            parts.push(self.log_part(&map.segments, &extent)?);
        }
        drop(map);
        push_gap(&mut parts, at, end);
        Ok(parts)
    }

    /// Returns the part for an extent; nothing is read.
    fn log_part(
        &self,
        segments: &hashbrown::HashMap<u32, Arc<Segment>>,
        extent: &Extent,
    ) -> Result<Part, DeviceError> {
        let len = extent.bytes() as usize;
        match extent.place {
            Place::Zero => Ok(Part::Zeros(len)),
            Place::Log { segment, offset } => {
                let segment = segments.get(&segment).ok_or_else(|| {
                    let text = format!("segment {segment} of volume {} is lost", self.volume);
                    DeviceError::new(DeviceErrorKind::Io, text)
                })?;
                Ok(Part::Log(*extent, LogPiece::new(segment, offset, len)))
            }
        }
    }

    pub(crate) fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        let parts = self.plan(offset, len)?;
        // After the plan: a base that replaces folded extents is there before they are dropped.
        let base = self.base.load_full();
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Zeros(len) => pieces.push(Piece::Base(BaseSegment::Zeros(len))),
                Part::Log(_, piece) => pieces.push(Piece::Log(piece)),
                Part::Gap(offset, len) => {
                    if !try_base(base.as_deref(), offset, len, &mut pieces)? {
                        return Ok(TryRead::WouldWait);
                    }
                }
            }
        }
        Ok(TryRead::Ready(pieces))
    }

    /// Reads, and waits for content that only an origin has which is away. Where a read of the log has
    /// failed before, it comes from the origin, too.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Vec<Piece>, DeviceError> {
        let mut waiter = None;
        loop {
            // Planned anew each time: what was missing may have been written meanwhile.
            match self.read_once(offset, len, false).await {
                Ok(whole) => return Ok(whole.pieces),
                Err(BaseError::Failed(error)) => return Err(error),
                Err(BaseError::Late(error)) => {
                    tracing::debug!(volume = %self.volume, offset, len, %error, "a read waits");
                }
            }
            waiter.get_or_insert_with(|| self.origin_wait.begin()).pause().await?;
        }
    }

    /// `may_be_older`: what only this host had, and has lost, is wanted as the origin has it.
    async fn read_once(
        &self,
        offset: u64,
        len: usize,
        may_be_older: bool,
    ) -> Result<Whole, BaseError> {
        loop {
            let parts = self.plan(offset, len)?;
            // Who has met damage once is to meet no more of it: all of the log is compared then.
            let has_failed = parts.iter().any(|p| matches!(p, Part::Log(_, p) if p.has_failed()));
            let base = self.base.load_full();
            let mut whole = Whole { pieces: Vec::new(), older: RangeSet::default() };
            let mut is_changed = false;
            for part in parts {
                match part {
                    Part::Zeros(len) => whole.pieces.push(Piece::Base(BaseSegment::Zeros(len))),
                    Part::Log(extent, piece) if has_failed => {
                        let added = self.add_compared(&mut whole, extent, piece, may_be_older);
                        is_changed |= !added.await?;
                    }
                    Part::Log(_, piece) => whole.pieces.push(Piece::Log(piece)),
                    Part::Gap(offset, len) => {
                        whole.pieces.extend(read_base(base.as_deref(), offset, len).await?);
                    }
                }
            }
            if !is_changed {
                return Ok(whole);
            }
        }
    }

    /// Adds content of the log, from the origin where this host has lost it; false: the disk has
    /// changed there meanwhile. What is lost for good stays a piece whose reads fail.
    async fn add_compared(
        &self,
        whole: &mut Whole,
        extent: Extent,
        piece: LogPiece,
        may_be_older: bool,
    ) -> Result<bool, BaseError> {
        let reading = self.runtime.spawn_blocking(move || {
            let mut bytes = vec![0; piece.len()];
            let read = piece.read_at(0, &mut bytes);
            (read.map(|()| Bytes::from(bytes)), piece)
        });
        let failed = |error| DeviceError::new(DeviceErrorKind::Io, format!("{error}"));
        let (read, piece) = reading.await.map_err(failed)?;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(_) => match self.refetch(&extent, may_be_older).await? {
                Refetched::Content(bytes) => bytes,
                Refetched::Older(bytes) => {
                    whole.older.insert(extent.start, extent.end);
                    bytes
                }
                Refetched::Changed => return Ok(false),
                Refetched::Lost => {
                    whole.pieces.push(Piece::Log(piece));
                    return Ok(true);
                }
            },
        };
        whole.pieces.push(Piece::Base(BaseSegment::Bytes(bytes)));
        Ok(true)
    }

    /// Reads bytes; blocks, and must not be called from a task.
    pub(crate) fn read_bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, OverlayError> {
        self.read_whole(offset, len, false).map(|(bytes, _)| bytes)
    }

    /// As [`Core::read_bytes`]; `may_be_older`: what only this host had, and has lost, is read as the
    /// origin has it. Returns which sectors that are.
    pub(crate) fn read_whole(
        &self,
        offset: u64,
        len: usize,
        may_be_older: bool,
    ) -> Result<(Vec<u8>, RangeSet), OverlayError> {
        let wait = || {
            let reading = self.read_once(offset, len, may_be_older);
            self.runtime.block_on(reading).map_err(BaseError::into_device)
        };
        let read = match self.try_read(offset, len) {
            Ok(TryRead::Ready(pieces)) => Ok(Whole { pieces, older: RangeSet::default() }),
            Ok(TryRead::WouldWait) => wait(),
            Err(error) => Err(error),
        };
        // The second time what is damaged comes from elsewhere.
        match copy_whole(read, len) {
            Err(OverlayError::Io { .. }) => copy_whole(wait(), len),
            copied => copied,
        }
    }

    /// Reads bytes of the base alone, zeros past its end; blocks as [`Core::read_bytes`] does.
    pub(crate) fn read_base_bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, OverlayError> {
        let base = self.base.load_full();
        let mut pieces = Vec::new();
        let read = match try_base(base.as_deref(), offset, len, &mut pieces) {
            Ok(true) => Ok(pieces),
            Ok(false) => {
                let reading = read_base(base.as_deref(), offset, len);
                self.runtime.block_on(reading).map_err(BaseError::into_device)
            }
            Err(error) => Err(error),
        };
        copy_pieces(read, len)
    }

    pub(crate) fn write(self: &Arc<Self>, change: Change, fua: bool) -> Done<()> {
        let (offset, len) = change.range();
        let checked = self.check_writable().and_then(|()| self.check_range(offset, len));
        if checked.is_err() || len == 0 {
            return Done::Now(checked);
        }
        match self.append(&change) {
            Ok(sequence) => match self.appended(&change, sequence, fua) {
                Some(future) => Done::Applied(future),
                None => Done::Now(Ok(())),
            },
            Err(AppendError::Frozen | AppendError::NoSpace | AppendError::TooManyExtents) => {
                let core = Arc::clone(self);
                Done::Later(Box::pin(async move { core.write_later(change, fua).await }))
            }
            Err(error) => Done::Now(Err(append_error(&error))),
        }
    }

    fn append(&self, change: &Change) -> Result<u64, AppendError> {
        // Zeros take no room, and may give some back.
        if self.load.is_map_full() && matches!(change, Change::Data(..)) {
            return Err(AppendError::TooManyExtents);
        }
        match change {
            Change::Data(offset, data) => self.log.write(offset / SECTOR, data),
            Change::Zeroes(offset, len) => self.log.zero(offset / SECTOR, len / SECTOR),
        }
    }

    /// Returns what must be waited for before a write is acknowledged.
    fn appended(
        self: &Arc<Self>,
        change: &Change,
        sequence: u64,
        fua: bool,
    ) -> Option<crate::DeviceFuture<()>> {
        let (offset, len) = change.range();
        if self.log.wants_keep() {
            self.compaction.nudge();
        }
        if self.regions.has_partitions() && self.regions.table.is_in(offset, offset + len) {
            self.partitions_unknown();
        }
        let (start, end) = (offset / SECTOR, (offset + len) / SECTOR);
        let answer = self.acknowledge(start, end, sequence, fua);
        let Some(held) = self.hold(start, end, change.moved_bytes()) else { return answer };
        let core = Arc::clone(self);
        Some(Box::pin(async move {
            core.let_go(held).await;
            match answer {
                Some(answer) => answer.await,
                None => Ok(()),
            }
        }))
    }

    /// Writes once the volume is thawed and there is room.
    async fn write_later(self: Arc<Self>, change: Change, fua: bool) -> Result<(), DeviceError> {
        let mut rooms = 0;
        let mut waiter = None;
        loop {
            let mut thawed = std::pin::pin!(self.freezes.thawed());
            thawed.as_mut().enable();
            self.check_writable()?;
            match self.append(&change) {
                Ok(sequence) => {
                    return match self.appended(&change, sequence, fua) {
                        Some(future) => future.await,
                        None => Ok(()),
                    };
                }
                Err(AppendError::Frozen) => thawed.await,
                Err(AppendError::TooManyExtents) if self.is_pushed() => {
                    // A fold is due, or waits for the origin.
                    waiter.get_or_insert_with(|| self.origin_wait.begin()).pause().await?;
                    self.look_at_load();
                }
                Err(AppendError::NoSpace) if rooms < ROOMS_MAX => {
                    rooms += 1;
                    let core = Arc::clone(&self);
                    let made = self
                        .runtime
                        .spawn_blocking(move || core.log.make_room(core.volume, core.epoch));
                    match made.await {
                        Ok(Ok(true)) => {}
                        Ok(Ok(false)) | Err(_) => return Err(append_error(&AppendError::NoSpace)),
                        Ok(Err(error)) => {
                            tracing::warn!(volume = %self.volume, %error, "cannot make room");
                            return Err(append_error(&AppendError::NoSpace));
                        }
                    }
                }
                Err(error) => return Err(append_error(&error)),
            }
        }
    }

    pub(crate) fn extents(
        &self,
        offset: u64,
        len: u64,
        what: ExtentQuery,
        max: usize,
    ) -> Vec<DeviceExtent> {
        let mut extents: Vec<DeviceExtent> = Vec::new();
        if self.check_range(offset, len).is_err() {
            return extents;
        }
        let base = self.base.load_full();
        let map = self.log.map();
        let (mut at, end) = (offset / SECTOR, (offset + len) / SECTOR);
        while at < end {
            let next = match what {
                ExtentQuery::Dirty => {
                    let (run_end, is_dirty) = map.dirty_run(at, end);
                    let len = (run_end - at) * SECTOR;
                    DeviceExtent { len, is_hole: false, is_zero: false, is_dirty }
                }
                ExtentQuery::Allocation => match map.extents.range(at, end).next() {
                    Some(extent) if extent.start == at => {
                        let is_zero = extent.place == Place::Zero;
                        let len = extent.bytes();
                        DeviceExtent { len, is_hole: is_zero, is_zero, is_dirty: false }
                    }
                    covered => {
                        let end = covered.map_or(end, |extent| extent.start);
                        base_extent(base.as_deref(), at * SECTOR, end * SECTOR)
                    }
                },
            };
            at += next.len / SECTOR;
            let is_full = extents.len() == max.max(1);
            match extents.last_mut() {
                Some(last) if DeviceExtent { len: last.len, ..next } == *last => {
                    last.len += next.len;
                }
                _ if is_full => break,
                _ => extents.push(next),
            }
        }
        extents
    }

    pub(crate) fn prepare_extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
    ) -> Option<DeviceFuture<()>> {
        self.check_range(offset, len).ok()?;
        prepare_base_extents(self.base.load_full()?, offset, offset + len, max)
    }

    pub(crate) fn prefetch(self: &Arc<Self>, offset: u64, len: u64) -> Done<()> {
        if let Err(error) = self.check_range(offset, len) {
            return Done::Now(Err(error));
        }
        let core = Arc::clone(self);
        Done::Later(Box::pin(async move {
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let step = (end - at).min(PREFETCH_STEP);
                core.read(at, step as usize).await?;
                at += step;
            }
            Ok(())
        }))
    }
}

const PREFETCH_STEP: u64 = 4 << 20;
/// Attempts of a write to get room before it is told that there is none.
const ROOMS_MAX: u32 = 8;

fn push_gap(parts: &mut Vec<Part>, start: u64, end: u64) {
    if start < end {
        parts.push(Part::Gap(start * SECTOR, ((end - start) * SECTOR) as usize));
    }
}

fn copy_whole(
    read: Result<Whole, DeviceError>,
    len: usize,
) -> Result<(Vec<u8>, RangeSet), OverlayError> {
    let (pieces, older) = match read {
        Ok(whole) => (Ok(whole.pieces), whole.older),
        Err(error) => (Err(error), RangeSet::default()),
    };
    copy_pieces(pieces, len).map(|bytes| (bytes, older))
}

pub(crate) fn append_error(error: &AppendError) -> DeviceError {
    let kind = match error {
        AppendError::NoSpace | AppendError::TooManyExtents => DeviceErrorKind::NoSpace,
        AppendError::Io(_) | AppendError::Failed | AppendError::Frozen => DeviceErrorKind::Io,
    };
    let advice = match error {
        AppendError::NoSpace => ": raise [volumes] quota_bytes or free disk space",
        _ => "",
    };
    DeviceError::new(kind, format!("{error}{advice}"))
}
