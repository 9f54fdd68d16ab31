//! The local log: records appended to segments, and the map of what is where.
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

use parking_lot::{Mutex, RwLock};

use crate::disk::LogDisk;
use crate::extent_map::{Extent, Place};
use crate::limits;
use crate::map_state::MapState;
use crate::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, RecordKind, SECTOR, SegmentHeader};
use crate::segment::Segment;

/// Sizes of a local log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogConfig {
    pub segment_bytes: u64,
    pub quota_bytes: u64,
}

impl LogConfig {
    /// Most payload of one record.
    pub(crate) fn record_bytes(&self) -> usize {
        limits::RECORD_BYTES_MAX.min(self.segment_bytes / 4) as usize
    }
}

/// Why a record could not be appended.
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
    /// The volume is frozen: try again when it is thawed.
    #[error("the volume is frozen")]
    Frozen,
}

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Head {
    pub segment: Arc<Segment>,
    pub offset: u64,
    pub next_sequence: u64,
    pub next_number: u32,
    /// Prepared for when the head is full.
    pub spare: Option<Arc<Segment>>,
    /// Full segments with records that no sync has covered.
    pub unsynced: Vec<Arc<Segment>>,
    /// Bytes appended since the newest checkpoint.
    pub since_checkpoint: u64,
    /// No guest may write.
    pub is_frozen: bool,
    /// First byte of the head that the kernel was not asked to write back.
    pub writeback_from: u64,
}

/// A local log that is open.
#[derive(Debug)]
pub(crate) struct LocalLog {
    pub(crate) disk: Arc<dyn LogDisk>,
    pub(crate) config: LogConfig,
    pub(crate) log_id: [u8; 16],
    pub(crate) head: Mutex<Head>,
    pub(crate) map: RwLock<MapState>,
    /// Everything up to this sequence number is durable here.
    synced: AtomicU64,
    /// Last sequence number that was appended.
    appended: AtomicU64,
    sync_turn: Mutex<()>,
    /// One checkpoint or reclaiming at a time.
    pub(crate) keep_turn: Mutex<()>,
    is_failed: AtomicBool,
    /// Something happened for which [`LocalLog::keep`] is worth calling.
    pub(crate) wants_keep: AtomicBool,
}

impl LocalLog {
    pub(crate) fn new(
        disk: Arc<dyn LogDisk>,
        config: LogConfig,
        log_id: [u8; 16],
        head: Head,
        map: MapState,
    ) -> LocalLog {
        let last = head.next_sequence - 1;
        LocalLog {
            disk,
            config,
            log_id,
            head: Mutex::new(head),
            map: RwLock::new(map),
            synced: AtomicU64::new(last),
            appended: AtomicU64::new(last),
            sync_turn: Mutex::new(()),
            keep_turn: Mutex::new(()),
            is_failed: AtomicBool::new(false),
            wants_keep: AtomicBool::new(true),
        }
    }

    /// Appends a write; returns the sequence number of its last record.
    pub(crate) fn write(&self, first_sector: u64, data: &[u8]) -> Result<u64, AppendError> {
        let mut head = self.head.lock();
        let mut at = first_sector;
        for part in data.chunks(self.config.record_bytes()) {
            let sectors = part.len() as u64 / SECTOR;
            self.append(&mut head, RecordKind::Data, false, at, sectors, part)?;
            at += sectors;
        }
        Ok(head.next_sequence - 1)
    }

    /// Appends that a range reads as zeros; returns the sequence number of the record.
    pub(crate) fn zero(&self, first_sector: u64, sectors: u64) -> Result<u64, AppendError> {
        let mut head = self.head.lock();
        self.append(&mut head, RecordKind::Zeroes, false, first_sector, sectors, &[])?;
        Ok(head.next_sequence - 1)
    }

    /// Appends content that the origin has already.
    pub(crate) fn restore(&self, first_sector: u64, data: &[u8]) -> Result<(), AppendError> {
        let mut head = self.head.lock();
        let mut at = first_sector;
        for part in data.chunks(self.config.record_bytes()) {
            let sectors = part.len() as u64 / SECTOR;
            self.append(&mut head, RecordKind::Data, true, at, sectors, part)?;
            at += sectors;
        }
        Ok(())
    }

    /// Appends zeros that the origin has already.
    pub(crate) fn restore_zeroes(&self, first: u64, sectors: u64) -> Result<(), AppendError> {
        let mut head = self.head.lock();
        self.append(&mut head, RecordKind::Zeroes, true, first, sectors, &[])
    }

    /// Appends one record and puts it into the map. `payload` is the content of data, else empty.
    pub(crate) fn append(
        &self,
        head: &mut Head,
        kind: RecordKind,
        is_copy: bool,
        first_sector: u64,
        sector_count: u64,
        payload: &[u8],
    ) -> Result<(), AppendError> {
        if self.is_failed() {
            return Err(AppendError::Failed);
        }
        if head.is_frozen && !is_copy {
            return Err(AppendError::Frozen);
        }
        let len = (HEADER_LEN + payload.len()) as u64;
        if head.offset + len > head.segment.size_bytes {
            // What gives space back may use the segment that is kept for it.
            self.rotate(head, is_copy || kind == RecordKind::Zeroes)?;
        }
        let payload_crc = if payload.is_empty() { 0 } else { crc32fast::hash(payload) };
        let (sequence, salt) = (head.next_sequence, head.segment.salt);
        let header =
            RecordHeader { kind, is_copy, sequence, first_sector, sector_count, salt, payload_crc };
        let bytes = header.encode();
        let mut parts = [IoSlice::new(&bytes), IoSlice::new(payload)];
        let used = if payload.is_empty() { &mut parts[..1] } else { &mut parts[..] };
        head.segment.file.write_all_at(used, head.offset)?;
        let place = match kind {
            RecordKind::Zeroes => Place::Zero,
            RecordKind::Data => {
                Place::Log { segment: head.segment.number, offset: head.offset + HEADER_LEN as u64 }
            }
        };
        head.offset += len;
        head.next_sequence += 1;
        head.since_checkpoint += len;
        let (start, end) = (first_sector, first_sector + sector_count);
        let mut map = self.map.write();
        map.apply(&Extent { start, end, place });
        if !is_copy {
            map.mark_dirty(start, end, Instant::now);
        }
        drop(map);
        self.appended.store(sequence, Ordering::Release);
        if head.offset - head.writeback_from >= limits::WRITEBACK_BYTES {
            self.wants_keep.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Asks the kernel to start writing what was appended: left alone it keeps a tenth of memory
    /// dirty and then makes every writer wait. Not by the writer: the request itself may wait.
    pub(crate) fn start_writeback(&self) {
        let (segment, from, len) = {
            let mut head = self.head.lock();
            let (from, to) = (head.writeback_from, head.offset);
            if to - from < limits::WRITEBACK_BYTES {
                return;
            }
            head.writeback_from = to;
            (Arc::clone(&head.segment), from, to - from)
        };
        segment.file.start_writeback(from, len);
    }

    fn rotate(&self, head: &mut Head, may_use_reserve: bool) -> Result<(), AppendError> {
        let segments = self.map.read().segments.len() as u64;
        let limit = self.segments_max() - u64::from(!may_use_reserve);
        if segments >= limit {
            return Err(AppendError::NoSpace);
        }
        let next = match head.spare.take() {
            Some(spare) => spare,
            None => {
                let number = head.next_number;
                let segment = self.create_segment(number)?;
                head.next_number = number + 1;
                segment
            }
        };
        self.map.write().segments.insert(next.number, Arc::clone(&next));
        let full = std::mem::replace(&mut head.segment, next);
        head.unsynced.push(full);
        self.wants_keep.store(true, Ordering::Release);
        head.offset = RECORDS_OFFSET;
        head.writeback_from = 0;
        Ok(())
    }

    /// Most segments that the quota allows.
    pub(crate) fn segments_max(&self) -> u64 {
        (self.config.quota_bytes / self.config.segment_bytes).max(limits::SEGMENTS_MIN)
    }

    fn create_segment(&self, number: u32) -> Result<Arc<Segment>, AppendError> {
        match create_segment(&*self.disk, self.log_id, number, self.config.segment_bytes) {
            Ok(segment) => Ok(segment),
            Err(error) if is_full(&error) => Err(AppendError::NoSpace),
            Err(error) => Err(AppendError::Io(error)),
        }
    }

    /// Makes a segment ready for when the head is full, so that no write waits for that. False:
    /// there was nothing to do, or no room.
    pub(crate) fn prepare_spare(&self) -> Result<bool, AppendError> {
        let number = {
            let mut head = self.head.lock();
            let segments = self.map.read().segments.len() as u64;
            if head.spare.is_some() || segments >= self.segments_max() {
                return Ok(false);
            }
            let number = head.next_number;
            head.next_number = number + 1;
            number
        };
        let segment = match self.create_segment(number) {
            Err(AppendError::NoSpace) => return Ok(false),
            result => result?,
        };
        let mut head = self.head.lock();
        if head.segment.number > number {
            // A writer was quicker: segments must be used in the order of their numbers.
            drop(head);
            self.disk.remove(&Segment::file_name(number))?;
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
        let (target, mut files) = {
            let mut head = self.head.lock();
            let mut files = std::mem::take(&mut head.unsynced);
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
        self.synced.store(target, Ordering::Release);
        Ok(())
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

    /// Bytes of the segments, and bytes of them that are alive.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let map = self.map.read();
        let live = map.segments.values().map(|segment| segment.live()).sum();
        (map.segments.len() as u64 * self.config.segment_bytes, live)
    }

    /// Reads the content of an extent.
    pub(crate) fn read_extent(
        segments: &hashbrown::HashMap<u32, Arc<Segment>>,
        extent: &Extent,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        match extent.place {
            Place::Zero => {
                buffer.fill(0);
                Ok(())
            }
            Place::Log { segment, offset } => {
                let segment = segments.get(&segment).ok_or(io::ErrorKind::NotFound)?;
                segment.file.read_exact_at(buffer, offset)
            }
        }
    }
}

/// Creates a segment: when this returns, it outlives a power failure.
pub(crate) fn create_segment(
    disk: &dyn LogDisk,
    log_id: [u8; 16],
    number: u32,
    size_bytes: u64,
) -> io::Result<Arc<Segment>> {
    let name = Segment::file_name(number);
    let file = disk.create(&name, size_bytes)?;
    let salt = rand::random();
    let header = SegmentHeader { number, log_id, size_bytes, salt }.encode();
    let written = file
        .write_all_at(&mut [IoSlice::new(&header)], 0)
        .and_then(|()| file.sync())
        .and_then(|()| disk.sync());
    if let Err(error) = written {
        disk.remove(&name)?;
        return Err(error);
    }
    Ok(Arc::new(Segment::new(number, salt, file, size_bytes)))
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
