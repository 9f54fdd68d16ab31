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

use crate::limits;
use crate::segments::disk::LogDisk;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::map_state::MapState;
use crate::segments::pool::Pool;
use crate::segments::record::{HEADER_LEN, NewRecord, RECORDS_OFFSET, RecordKind, SECTOR};
use crate::segments::segment::Segment;
use crate::segments::writeback::Writeback;

/// Sizes of a local log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogConfig {
    pub segment_bytes: u64,
    pub quota_bytes: u64,
    /// Bytes of the file system that a new segment must leave free.
    pub reserve_bytes: u64,
}

impl LogConfig {
    /// Most payload of one record.
    pub(crate) fn record_bytes(&self) -> usize {
        limits::RECORD_BYTES_MAX.min(self.segment_bytes / 4) as usize
    }
}

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

/// Position of the next record.
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
    /// Length of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// When it was begun.
    pub checkpoint_at: Instant,
    /// What it calls dirty, bytes, and the last sequence number before it.
    pub checkpoint_dirty: (u64, u64),
    /// It is the one that the log was opened with.
    pub is_as_opened: bool,
    /// No guest may write.
    pub is_frozen: bool,
    /// Nothing is written any more: another one may have the directory.
    pub is_closed: bool,
    /// A write at `offset` failed: what is there may be a whole record all the same.
    pub is_torn: bool,
    /// Where the last sync found the head.
    pub synced_offset: u64,
    /// Zeros lie ahead of the records, up to there.
    pub zeros_until: u64,
}

impl Head {
    /// The beginning of an empty segment.
    pub(crate) fn new(segment: Arc<Segment>, next_sequence: u64) -> Head {
        Head {
            next_number: segment.number + 1,
            segment,
            offset: RECORDS_OFFSET,
            next_sequence,
            spare: None,
            unsynced: Vec::new(),
            since_checkpoint: 0,
            checkpoint_bytes: 0,
            checkpoint_at: Instant::now(),
            checkpoint_dirty: (0, 0),
            is_as_opened: true,
            is_frozen: false,
            is_closed: false,
            is_torn: false,
            synced_offset: 0,
            zeros_until: 0,
        }
    }
}

/// Bytes of a page of memory and of a block of the file system.
const PAGE: usize = 4096;
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
const ZEROS_BYTES: usize = 64 << 10;
/// Most bytes between two syncs that follow each other closely.
const CLOSE_BYTES: u64 = 64 << 10;
/// Zeros that are written ahead of the records of syncs that follow each other closely, bytes.
const AHEAD_BYTES: u64 = 1 << 20;

/// A local log that is open.
#[derive(Debug)]
pub(crate) struct LocalLog {
    pub(crate) disk: Arc<dyn LogDisk>,
    pub(crate) config: LogConfig,
    /// Most bytes of it; those of `config` until the disk grows.
    pub(crate) quota_bytes: AtomicU64,
    pub(crate) log_id: [u8; 16],
    pub(crate) head: Mutex<Head>,
    pub(crate) map: RwLock<MapState>,
    /// Everything up to this sequence number is durable here.
    synced: AtomicU64,
    /// Last sequence number that was appended.
    appended: AtomicU64,
    /// Everything up to this sequence number that is to travel is on the origin.
    pub(crate) pushed: AtomicU64,
    sync_turn: Mutex<()>,
    /// One checkpoint or reclaiming at a time.
    pub(crate) keep_turn: Mutex<()>,
    pub(crate) pool: Pool,
    pub(crate) writeback: Writeback,
    is_failed: AtomicBool,
    /// Something happened for which [`LocalLog::keep`] is worth calling.
    pub(crate) wants_keep: AtomicBool,
    /// The last sequence number that was seen, and since when.
    pub(crate) seen: Mutex<(u64, Instant)>,
}

impl LocalLog {
    pub(crate) fn new(
        disk: Arc<dyn LogDisk>,
        config: LogConfig,
        log_id: [u8; 16],
        head: Head,
        map: MapState,
        pool: Pool,
    ) -> LocalLog {
        let last = head.next_sequence - 1;
        LocalLog {
            disk,
            config,
            quota_bytes: AtomicU64::new(config.quota_bytes),
            log_id,
            head: Mutex::new(head),
            map: RwLock::new(map),
            synced: AtomicU64::new(last),
            appended: AtomicU64::new(last),
            pushed: AtomicU64::new(0),
            sync_turn: Mutex::new(()),
            keep_turn: Mutex::new(()),
            pool,
            writeback: Writeback::default(),
            is_failed: AtomicBool::new(false),
            wants_keep: AtomicBool::new(true),
            seen: Mutex::new((last, Instant::now())),
        }
    }

    /// Appends a write; returns the sequence number of its last record.
    pub(crate) fn write(&self, first_sector: u64, data: &[u8]) -> Result<u64, AppendError> {
        self.append_data(false, first_sector, data)
    }

    /// Appends that a range reads as zeros; returns the sequence number of the record.
    pub(crate) fn zero(&self, first_sector: u64, sectors: u64) -> Result<u64, AppendError> {
        let mut head = self.head.lock();
        self.append(&mut head, &NewRecord::zeroes(false, first_sector, sectors))?;
        Ok(head.next_sequence - 1)
    }

    /// Appends content that the origin has already.
    pub(crate) fn restore(&self, first_sector: u64, data: &[u8]) -> Result<(), AppendError> {
        self.append_data(true, first_sector, data).map(drop)
    }

    /// Appends zeros that the origin has already.
    pub(crate) fn restore_zeroes(&self, first: u64, sectors: u64) -> Result<(), AppendError> {
        let mut head = self.head.lock();
        self.append(&mut head, &NewRecord::zeroes(true, first, sectors))
    }

    fn append_data(
        &self,
        is_copy: bool,
        first_sector: u64,
        data: &[u8],
    ) -> Result<u64, AppendError> {
        let step = self.config.record_bytes();
        let mut records = data.chunks(step).enumerate().map(|(number, part)| {
            let sector = first_sector + (number * step) as u64 / SECTOR;
            NewRecord::data(is_copy, sector, part)
        });
        // All checksums before the lock; only what is longer than a record needs the vector.
        let first = records.next();
        let rest: Vec<_> = records.collect();
        let mut head = self.head.lock();
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
        let mut map = self.map.write();
        map.apply(&Extent { start, end, place });
        if !is_copy {
            map.mark_dirty(start, end, Instant::now);
        }
        drop(map);
        self.appended.store(sequence, Ordering::Release);
        Ok(())
    }

    fn rotate(&self, head: &mut Head, may_use_reserve: bool) -> Result<(), AppendError> {
        let segments = self.map.read().segments.len() as u64;
        let limit = self.segments_max() - u64::from(!may_use_reserve);
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
        self.map.write().segments.insert(next.number, Arc::clone(&next));
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
            let mut head = self.head.lock();
            let segments = self.map.read().segments.len() as u64;
            if head.spare.is_some() || segments >= self.segments_max() {
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
        let target = self.sync_segments(|_| true)?;
        self.synced.store(target, Ordering::Release);
        Ok(())
    }

    /// Makes every record durable that is not in one of the segments `but`; returns the last sequence
    /// number. Nothing counts as durable before [`LocalLog::checkpoint_covers`].
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
        self.head.lock().unsynced.retain(|segment| !dead.contains(&segment.number));
        self.synced.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Syncs the head and the full segments that `is_wanted`, for who holds `sync_turn`.
    fn sync_segments(&self, is_wanted: impl Fn(&Segment) -> bool) -> Result<u64, AppendError> {
        let (target, mut files) = {
            let mut head = self.head.lock();
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

    /// Reads the content of an extent.
    #[cfg(test)]
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
                segment.read_checked(offset, buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use acstor_testkit::Fault;
    use acstor_types::DiskId;

    use super::*;
    use crate::regions::RegionMap;
    use crate::regions::durability::Durability;
    use crate::scenarios::memory_disk::MemoryDisk;
    use crate::segments::recovery::{create_log, open_log};

    const CONFIG: LogConfig =
        LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    const VOLUME: DiskId = DiskId::from_bytes([3; 16]);

    fn regions() -> Arc<RegionMap> {
        Arc::new(RegionMap::new(&Durability::default(), &[]))
    }

    fn new_log(disk: &MemoryDisk) -> LocalLog {
        let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        log
    }

    /// Opens what a power failure leaves that keeps exactly what was synced.
    fn reopen(disk: &MemoryDisk) -> LocalLog {
        let disk: Arc<dyn LogDisk> = Arc::new(disk.after_kill());
        open_log(&disk, CONFIG, regions()).unwrap().unwrap().log
    }

    fn sector(log: &LocalLog, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR as usize];
        let map = log.map.read();
        if let Some(extent) = map.extents.range(at, at + 1).next() {
            LocalLog::read_extent(&map.segments, &extent, &mut bytes).unwrap();
        }
        bytes
    }

    /// Content whose second half is zeros: half of it written is all of it.
    fn half(sectors: usize) -> Vec<u8> {
        let mut data = vec![0; sectors * SECTOR as usize];
        data[..512].fill(0xee);
        data
    }

    #[test]
    fn append_after_a_torn_one_takes_its_place() {
        for fault in [Fault::EIO, Fault::ENOSPC, Fault::Torn(5), Fault::Torn(28)] {
            let disk = MemoryDisk::new(64 << 20);
            let log = new_log(&disk);
            log.write(0, &[1; 512]).unwrap();
            disk.faults.fail_nth("write", 1, fault);
            assert!(matches!(log.write(8, &half(16)), Err(AppendError::Io(_))));
            assert_eq!(sector(&log, 8), [0; 512], "a write that failed is not in the map");
            let last = log.write(1, &[2; 512]).unwrap();
            assert_eq!(log.write(2, &[3; 512]).unwrap(), last + 1, "numbers have no gap");
            log.sync(log.appended()).unwrap();
            let log = reopen(&disk);
            for at in 0..3 {
                assert_eq!(sector(&log, at), [at as u8 + 1; 512], "{fault:?}");
            }
            assert_eq!(sector(&log, 8), [0; 512]);
        }
    }

    #[test]
    fn torn_record_that_is_whole_hides_nothing_of_the_next_segment() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        while log.head.lock().offset < 48 << 10 {
            log.write(0, &[1; 4096]).unwrap();
        }
        disk.faults.fail_nth("write", 1, Fault::Torn(5));
        assert!(log.write(100, &half(8)).is_err());
        // Too long for what is left of the segment.
        let before = log.head.lock().segment.number;
        log.write(0, &[2; 16 << 10]).unwrap();
        assert_eq!(log.head.lock().segment.number, before + 1);
        log.sync(log.appended()).unwrap();
        let log = reopen(&disk);
        assert_eq!(sector(&log, 0), [2; 512], "what was synced is there");
        assert_eq!(sector(&log, 100), [0; 512]);
    }

    #[test]
    fn segment_with_a_torn_record_that_cannot_be_cleared_stays_the_head() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        while log.head.lock().offset < 48 << 10 {
            log.write(0, &[1; 4096]).unwrap();
        }
        let before = log.head.lock().segment.number;
        disk.faults.fail_always("write", Fault::Torn(5));
        assert!(log.write(100, &half(8)).is_err());
        assert!(log.write(0, &[2; 16 << 10]).is_err());
        assert_eq!(log.head.lock().segment.number, before);
        disk.faults.disarm();
        log.write(0, &[2; 16 << 10]).unwrap();
        log.sync(log.appended()).unwrap();
        assert_eq!(sector(&reopen(&disk), 0), [2; 512]);
    }

    #[test]
    fn dirty_data_that_was_copied_is_dirty_after_a_restart() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        let place = |log: &LocalLog| log.map.read().extents.range(500, 501).next().unwrap().place;
        // A little of each segment lives on.
        let mut first = None;
        for round in 0..48_u64 {
            log.write(500 + round / 4, &[9; 512]).unwrap();
            log.write(0, &[round as u8; 8192]).unwrap();
            first = first.or_else(|| (round == 3).then(|| place(&log)));
        }
        log.keep(VOLUME, 1, 16 << 10).unwrap();
        assert_ne!(Some(place(&log)), first, "it was copied");
        log.sync(log.appended()).unwrap();
        let log = reopen(&disk);
        assert_eq!(sector(&log, 500), [9; 512]);
        let dirty: Vec<_> = log.map.read().all_dirty().iter().collect();
        assert_eq!(dirty, [(0, 16), (500, 512)]);
    }
}
