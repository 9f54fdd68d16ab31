//! The records of a local log: appended to segments, and the map of what is where.
//!
//! Writers take the append lock for one `pwritev` and one change of the map, so the order of
//! records is the order of the map. Readers take the map's lock only.
//!
//! Must never: let a record overtake another one, change a byte that was synced, or let anything
//! follow a record that may be torn other than in a new segment.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::OverlayError;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::head::Head;
use crate::segments::map_state::MapState;
use crate::segments::record::{HEADER_LEN, NewRecord, RECORDS_OFFSET, RecordKind, SECTOR};
use crate::segments::segment::Segment;
use crate::segments::segment_files::SegmentFiles;

/// Error of appending a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    /// The quota, or the file system, is full.
    #[error("no room for another segment")]
    NoSpace,
    #[error("cannot write the log: {0}")]
    Io(#[from] io::Error),
    /// An earlier sync failed: nobody knows what the disk holds.
    #[error("the local disk failed to sync the log; close the volume and open it again")]
    Failed,
    /// The map has as many extents as it may have.
    #[error("the volume's writes are scattered over more places than its map holds")]
    TooManyExtents,
    /// The volume is frozen: try again when it is thawed.
    #[error("the volume is frozen")]
    Frozen,
}

/// Bytes of a page of memory and of a block of the file system.
const PAGE: usize = 4096;
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
const ZEROS_BYTES: usize = 64 << 10;
/// Most bytes between two syncs that follow each other closely.
const CLOSE_BYTES: u64 = 64 << 10;
/// Zeros that are written ahead of the records of syncs that follow each other closely, bytes.
const AHEAD_BYTES: u64 = 1 << 20;

/// The records of a local log that is open.
#[derive(Debug)]
pub(crate) struct RecordLog {
    pub(crate) files: SegmentFiles,
    head: Mutex<Head>,
    map: RwLock<MapState>,
    /// Everything up to this sequence number is durable here.
    synced: AtomicU64,
    /// Last sequence number that was appended.
    appended: AtomicU64,
    sync_turn: Mutex<()>,
    is_failed: AtomicBool,
    /// Something happened for which upkeep is worth it.
    pub(crate) wants_keep: AtomicBool,
}

impl RecordLog {
    pub(crate) fn new(files: SegmentFiles, head: Head, map: MapState) -> RecordLog {
        let last = head.next_sequence - 1;
        RecordLog {
            files,
            head: Mutex::new(head),
            map: RwLock::new(map),
            synced: AtomicU64::new(last),
            appended: AtomicU64::new(last),
            sync_turn: Mutex::new(()),
            is_failed: AtomicBool::new(false),
            wants_keep: AtomicBool::new(true),
        }
    }

    /// The end of the log; nothing is appended while it is held.
    #[inline]
    pub(crate) fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock()
    }

    #[inline]
    pub(crate) fn map(&self) -> RwLockReadGuard<'_, MapState> {
        self.map.read()
    }

    #[inline]
    pub(crate) fn map_mut(&self) -> RwLockWriteGuard<'_, MapState> {
        self.map.write()
    }

    /// Appends a write; returns the sequence number of its last record.
    pub(crate) fn write(&self, first_sector: u64, data: &[u8]) -> Result<u64, AppendError> {
        self.append_data(false, first_sector, data)
    }

    /// Appends that a range reads as zeros; returns the sequence number of the record.
    pub(crate) fn zero(&self, first_sector: u64, sectors: u64) -> Result<u64, AppendError> {
        let mut head = self.head();
        self.append(&mut head, &NewRecord::zeroes(false, first_sector, sectors))?;
        Ok(head.next_sequence - 1)
    }

    /// Appends content that the origin has already.
    pub(crate) fn restore(&self, first_sector: u64, data: &[u8]) -> Result<(), AppendError> {
        self.append_data(true, first_sector, data).map(drop)
    }

    /// Appends zeros that the origin has already.
    pub(crate) fn restore_zeroes(&self, first: u64, sectors: u64) -> Result<(), AppendError> {
        let mut head = self.head();
        self.append(&mut head, &NewRecord::zeroes(true, first, sectors))
    }

    fn append_data(
        &self,
        is_copy: bool,
        first_sector: u64,
        data: &[u8],
    ) -> Result<u64, AppendError> {
        let step = self.files.quota.sizes.record_bytes();
        let mut records = data.chunks(step).enumerate().map(|(number, part)| {
            let sector = first_sector + (number * step) as u64 / SECTOR;
            NewRecord::data(is_copy, sector, part)
        });
        // All checksums before the lock; only what is longer than a record needs the vector.
        let first = records.next();
        let rest: Vec<_> = records.collect();
        let mut head = self.head();
        for record in first.iter().chain(&rest) {
            self.append(&mut head, record)?;
        }
        Ok(head.next_sequence - 1)
    }

    /// Appends one record and puts it into the map.
    pub(crate) fn append(
        &self,
        head: &mut Head,
        record: &NewRecord<'_>,
    ) -> Result<(), AppendError> {
        let &NewRecord { kind, is_copy, first_sector, sector_count, payload, payload_crc } = record;
        if self.is_failed() {
            return Err(AppendError::Failed);
        }
        if head.is_frozen && !is_copy {
            return Err(AppendError::Frozen);
        }
        if head.is_closed {
            return Err(AppendError::Failed);
        }
        let len = (HEADER_LEN + payload.len()) as u64;
        if head.offset + len > head.segment.size_bytes {
            // What gives space back may use the segment that is kept for it.
            self.rotate(head, is_copy || kind == RecordKind::Zeroes)?;
        }
        let sequence = head.next_sequence;
        let bytes = record.header(sequence, head.segment.salt, self.synced() + 1).encode();
        // To the end of the page: a part of one that is not in memory would have to be read first.
        let rest = (head.offset + len).next_multiple_of(PAGE as u64) - (head.offset + len);
        let mut parts =
            [IoSlice::new(&bytes), IoSlice::new(payload), IoSlice::new(&ZEROS[..rest as usize])];
        let reading = head.segment.begin_append(head.offset);
        let written = head.segment.file.write_all_at(&mut parts, head.offset);
        head.segment.end_append(reading);
        if let Err(error) = written {
            head.is_torn = true;
            // What failed must not be there after a crash; where this fails, too, it may.
            drop(self.clear_torn(head));
            return Err(error.into());
        }
        head.is_torn = false;
        let place = match kind {
            RecordKind::Zeroes => Place::Zero,
            RecordKind::Data => {
                let offset = head.offset + HEADER_LEN as u64;
                head.segment.note_record(offset, payload.len() as u64, payload_crc);
                Place::Log { segment: head.segment.number, offset }
            }
        };
        head.offset += len;
        head.next_sequence += 1;
        head.since_checkpoint += len;
        let (start, end) = (first_sector, first_sector + sector_count);
        let mut map = self.map_mut();
        map.apply(&Extent { start, end, place });
        if !is_copy {
            map.mark_dirty(start, end, Instant::now);
        }
        drop(map);
        self.appended.store(sequence, Ordering::Release);
        Ok(())
    }

    fn rotate(&self, head: &mut Head, may_use_reserve: bool) -> Result<(), AppendError> {
        let segments = self.map().segments.len() as u64;
        let limit = self.files.quota.segments_max() - u64::from(!may_use_reserve);
        if segments >= limit {
            return Err(AppendError::NoSpace);
        }
        self.clear_torn(head)?;
        let next = match head.spare.take() {
            Some(spare) => spare,
            None => {
                let number = head.next_number;
                let segment = self.new_segment(number)?;
                head.next_number = number + 1;
                segment
            }
        };
        self.map_mut().segments.insert(next.number, Arc::clone(&next));
        let full = std::mem::replace(&mut head.segment, next);
        head.unsynced.push(full);
        self.wants_keep.store(true, Ordering::Release);
        head.offset = RECORDS_OFFSET;
        (head.synced_offset, head.zeros_until) = (0, 0);
        Ok(())
    }

    /// Overwrites what a failed write left. It may be a valid record, of the number that the next one
    /// gets; a recovery would take it, and then miss its successor in the segment after.
    fn clear_torn(&self, head: &mut Head) -> Result<(), AppendError> {
        if head.is_torn {
            let nothing = [0; HEADER_LEN];
            let reading = head.segment.begin_append(head.offset);
            let cleared =
                head.segment.file.write_all_at(&mut [IoSlice::new(&nothing)], head.offset);
            head.segment.end_append(reading);
            cleared?;
            head.is_torn = false;
        }
        Ok(())
    }

    /// Makes a segment ready for when the head is full, so that no write waits for that. False:
    /// there was nothing to do, or no room.
    pub(crate) fn prepare_spare(&self) -> Result<bool, AppendError> {
        let number = {
            let mut head = self.head();
            let segments = self.map().segments.len() as u64;
            if head.spare.is_some() || segments >= self.files.quota.segments_max() {
                return Ok(false);
            }
            let number = head.next_number;
            head.next_number = number + 1;
            number
        };
        let segment = match self.new_segment(number) {
            Err(AppendError::NoSpace) => return Ok(false),
            result => result?,
        };
        let mut head = self.head();
        if head.segment.number > number {
            // A writer was quicker: segments must be used in the order of their numbers.
            drop(head);
            self.files.disk.remove(&Segment::file_name(number))?;
            return Ok(false);
        }
        head.spare = Some(segment);
        Ok(true)
    }

    /// Makes every record up to `sequence` durable, together with whatever else there is.
    pub(crate) fn sync(&self, sequence: u64) -> Result<(), AppendError> {
        let _turn = self.sync_turn.lock();
        if self.is_failed() {
            return Err(AppendError::Failed);
        }
        if self.synced.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let target = self.sync_segments(|_| true)?;
        self.synced.store(target, Ordering::Release);
        Ok(())
    }

    /// Makes every record durable that is not in one of the segments `but`; returns the last sequence
    /// number. Nothing counts as durable before [`RecordLog::checkpoint_covers`].
    pub(crate) fn sync_but(&self, but: &[u32]) -> Result<u64, AppendError> {
        let _turn = self.sync_turn.lock();
        if self.is_failed() {
            return Err(AppendError::Failed);
        }
        self.sync_segments(|segment| !but.contains(&segment.number))
    }

    /// Notes that a durable checkpoint needs no record of the segments `dead`, and that whatever else
    /// it needs was synced up to `sequence`.
    pub(crate) fn checkpoint_covers(&self, sequence: u64, dead: &[u32]) {
        let _turn = self.sync_turn.lock();
        self.head().unsynced.retain(|segment| !dead.contains(&segment.number));
        self.synced.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Syncs the head and the full segments that `is_wanted`, for who holds `sync_turn`.
    fn sync_segments(&self, is_wanted: impl Fn(&Segment) -> bool) -> Result<u64, AppendError> {
        let (target, mut files) = {
            let mut head = self.head();
            self.write_ahead(&mut head);
            head.synced_offset = head.offset;
            let unsynced = std::mem::take(&mut head.unsynced).into_iter();
            let (mut files, rest): (Vec<_>, Vec<_>) = unsynced.partition(|s| is_wanted(s));
            head.unsynced = rest;
            files.push(Arc::clone(&head.segment));
            (head.next_sequence - 1, files)
        };
        for segment in files.drain(..) {
            if let Err(error) = segment.file.sync() {
                // What the kernel could not write it may have dropped: nothing that was appended
                // since the last sync can be promised any more.
                self.is_failed.store(true, Ordering::Release);
                tracing::error!(segment = segment.number, %error, "cannot sync the local log");
                return Err(AppendError::Failed);
            }
        }
        Ok(target)
    }

    /// Writes zeros where the next records go, before a sync that follows the one before closely: the
    /// first sync of a block that was reserved and never written costs the file system an entry in
    /// its journal, and this way it is one for many records.
    fn write_ahead(&self, head: &mut Head) {
        let is_close = head.offset - head.synced_offset <= CLOSE_BYTES && head.synced_offset > 0;
        let is_ahead = head.zeros_until >= head.offset + CLOSE_BYTES;
        if head.is_closed || head.segment.is_written || head.is_torn || !is_close || is_ahead {
            return;
        }
        let from = head.offset.next_multiple_of(PAGE as u64).max(head.zeros_until);
        let len = AHEAD_BYTES.min(head.segment.size_bytes.saturating_sub(from)) as usize;
        let mut parts: Vec<_> = (0..len.div_ceil(ZEROS_BYTES))
            .map(|n| IoSlice::new(&ZEROS[..ZEROS_BYTES.min(len - n * ZEROS_BYTES)]))
            .collect();
        // Without them everything is as it was: a disk that fails says so at the next record.
        if head.segment.file.write_all_at(&mut parts, from).is_ok() {
            head.zeros_until = from + len as u64;
        }
    }

    /// Makes segment `number`.
    fn new_segment(&self, number: u32) -> Result<Arc<Segment>, AppendError> {
        self.files.make(number, || self.map().segments.len())
    }

    /// Takes a segment out of the log that a durable checkpoint does not need.
    pub(crate) fn retire(&self, number: u32) -> Result<(), OverlayError> {
        let Some(segment) = self.map_mut().segments.remove(&number) else { return Ok(()) };
        self.files.put_away(segment)
    }

    /// Returns whether there is room for one more segment, and for one that gives space back.
    pub(crate) fn has_room(&self) -> bool {
        let segments = self.map().segments.len() as u64;
        segments < self.files.quota.segments_max() - 1
            && (self.files.has_free()
                || self.head().spare.is_some()
                || self.files.has_space_for_one())
    }

    /// On a full file system what is kept ready is what a checkpoint can be written in.
    pub(crate) fn give_spare_back(&self) -> Result<(), OverlayError> {
        self.files.drain()?;
        let Some(spare) = self.head().spare.take() else { return Ok(()) };
        self.files.remove(spare.number)
    }

    /// Bytes of the segments, those that are kept for reuse included, and bytes that are alive.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let kept = self.files.pool.len() as u64 + u64::from(self.head().spare.is_some());
        let (segments, live) = self.segments_and_live();
        ((segments + kept) * self.files.quota.sizes.segment_bytes, live)
    }

    /// Number of segments that are in use, and bytes of them that are alive.
    pub(crate) fn segments_and_live(&self) -> (u64, u64) {
        let map = self.map();
        let live = map.segments.values().map(|segment| segment.live()).sum();
        (map.segments.len() as u64, live)
    }

    /// Number of full segments of which nothing is alive.
    pub(crate) fn dead_segments(&self) -> usize {
        let head = self.head().segment.number;
        let map = self.map();
        map.segments.values().filter(|s| s.number < head && s.live() == 0).count()
    }

    /// Last sequence number that was appended.
    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Last sequence number that is durable here.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Returns whether a sync failed: the log must be opened anew.
    pub(crate) fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Acquire)
    }
}

pub(crate) fn append_error(error: AppendError) -> OverlayError {
    match error {
        AppendError::NoSpace => OverlayError::NoSpace("the local log of a volume".into()),
        AppendError::Io(source) => OverlayError::io("write the local log", source),
        AppendError::Failed | AppendError::Frozen | AppendError::TooManyExtents => {
            OverlayError::Unavailable(error.to_string())
        }
    }
}
