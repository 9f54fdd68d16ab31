//! The files of segments: made, kept to be written anew once nothing refers to them, removed.
//!
//! A file that was written once has its blocks, and often its pages in memory: appending to it
//! costs a copy, where a new file costs pages, and with each sync a transaction of the file
//! system's journal. What is kept counts against the quota, is bounded, and is given back when the
//! file system is short of room or nobody has written for a while.
//!
//! Must never: write into a segment before a checkpoint that does not need it is durable, or while
//! somebody may still read it; begin a new life with a salt that was used before.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::segments::disk::LogDisk;
use crate::segments::quota::{LogConfig, Quota};
use crate::segments::record::SegmentHeader;
use crate::segments::record_log::AppendError;
use crate::segments::segment::Segment;
use crate::{OverlayError, limits};

/// Segments that may be kept, however large they are; a checkpoint frees two and more at once.
const KEPT_MIN: u64 = 4;
/// Divisor of the quota: kept segments take at most that part of it, where that allows
/// [`KEPT_MIN`].
const QUOTA_SHARE: u64 = 4;
/// Share of the file system that must be free for segments to be kept.
const FREE_SHARE: u64 = 10;
/// Segments that nobody has needed for so long are removed.
const IDLE: Duration = Duration::from_secs(600);

/// Dead segments of a local log.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    segments: Vec<Arc<Segment>>,
    /// Time at which a segment was asked for last.
    used: Instant,
    /// Lives that began in the file of another segment.
    recycled: u64,
}

impl Pool {
    pub(crate) fn new(segments: Vec<Arc<Segment>>) -> Pool {
        Pool(Mutex::new(State { segments, used: Instant::now(), recycled: 0 }))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().segments.len()
    }

    /// Returns whether nobody has needed a segment for long.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.duration_since(self.0.lock().used) >= IDLE
    }

    /// Lives that began in the file of another segment since the log was opened.
    #[cfg(test)]
    pub(crate) fn recycled(&self) -> u64 {
        self.0.lock().recycled
    }

    fn has_free(&self) -> bool {
        self.0.lock().segments.iter().any(|segment| Arc::strong_count(segment) == 1)
    }

    /// Takes a segment out that nobody else holds.
    fn take(&self) -> Option<Segment> {
        let mut state = self.0.lock();
        state.used = Instant::now();
        // Whoever wants to hold it would have to find it in the map.
        let free = state.segments.iter().position(|segment| Arc::strong_count(segment) == 1)?;
        let segment = Arc::into_inner(state.segments.swap_remove(free));
        state.recycled += u64::from(segment.is_some());
        segment
    }

    fn put(&self, segment: Arc<Segment>) {
        self.0.lock().segments.push(segment);
    }

    fn pop(&self) -> Option<Arc<Segment>> {
        self.0.lock().segments.pop()
    }
}

/// The files of the segments of one local log.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) disk: Arc<dyn LogDisk>,
    pub(crate) log_id: [u8; 16],
    pub(crate) quota: Quota,
    pub(crate) pool: Pool,
}

impl SegmentFiles {
    pub(crate) fn new(
        disk: Arc<dyn LogDisk>,
        log_id: [u8; 16],
        sizes: LogConfig,
        pool: Pool,
    ) -> SegmentFiles {
        SegmentFiles { disk, log_id, quota: Quota::new(sizes), pool }
    }

    /// Makes segment `number` where a log of `in_use` segments may have one more.
    pub(crate) fn make(
        &self,
        number: u32,
        in_use: impl FnOnce() -> usize,
    ) -> Result<Arc<Segment>, AppendError> {
        if !self.has_free() {
            self.keep_to_quota(in_use()).map_err(AppendError::Io)?;
        }
        self.create(number).map_err(|error| match is_full(&error) {
            true => AppendError::NoSpace,
            false => AppendError::Io(error),
        })
    }

    /// Makes segment `number`, from one that is dead where there is one. It outlives a power failure
    /// once it was synced.
    pub(crate) fn create(&self, number: u32) -> io::Result<Arc<Segment>> {
        match self.pool.take() {
            Some(dead) => recycle(&*self.disk, self.log_id, number, dead),
            None => create_segment(&*self.disk, self.log_id, number, &self.quota.sizes),
        }
    }

    /// Returns whether a dead segment can be written anew.
    pub(crate) fn has_free(&self) -> bool {
        self.pool.has_free()
    }

    /// Returns whether the file system has room for one more segment.
    pub(crate) fn has_space_for_one(&self) -> bool {
        let sizes = &self.quota.sizes;
        let needed = sizes.segment_bytes.saturating_add(sizes.reserve_bytes);
        // A file system that does not say is asked by making the segment.
        self.disk.space().map_or(true, |space| space.free_bytes >= needed)
    }

    /// Makes room in the quota for another file: what is kept and still read cannot be used.
    fn keep_to_quota(&self, in_use: usize) -> io::Result<()> {
        while (in_use + self.pool.len()) as u64 >= self.quota.segments_max() {
            let Some(kept) = self.pool.pop() else { break };
            self.disk.remove(&Segment::file_name(kept.number))?;
        }
        Ok(())
    }

    /// Keeps a segment that the log does not need any more to be written anew, or removes it.
    pub(crate) fn put_away(&self, segment: Arc<Segment>) -> Result<(), OverlayError> {
        let is_of_size = segment.size_bytes == self.quota.sizes.segment_bytes;
        if is_of_size && (self.pool.len() as u64) < self.kept_max() {
            self.pool.put(segment);
            return Ok(());
        }
        self.remove(segment.number)
    }

    /// Most segments that are kept: none where the file system is short of room.
    pub(crate) fn kept_max(&self) -> u64 {
        if self.has_plenty() { kept_max(&self.quota.now()) } else { 0 }
    }

    /// Returns whether nobody else on the file system is in need of room.
    pub(crate) fn has_plenty(&self) -> bool {
        has_plenty(&*self.disk)
    }

    /// Gives back what is kept, to the file system.
    pub(crate) fn drain(&self) -> Result<(), OverlayError> {
        while let Some(segment) = self.pool.pop() {
            self.remove(segment.number)?;
        }
        Ok(())
    }

    pub(crate) fn remove(&self, number: u32) -> Result<(), OverlayError> {
        let name = Segment::file_name(number);
        self.disk.remove(&name).map_err(|error| OverlayError::io(format!("remove {name}"), error))
    }
}

/// Splits off what may be kept of segments that a durable checkpoint does not need, and removes the
/// others.
pub(crate) fn keep_some(
    disk: &dyn LogDisk,
    config: &LogConfig,
    dead: Vec<Arc<Segment>>,
) -> Result<Pool, OverlayError> {
    let most = if has_plenty(disk) { kept_max(config) } else { 0 };
    let mut kept = Vec::new();
    for segment in dead {
        if segment.size_bytes == config.segment_bytes && (kept.len() as u64) < most {
            kept.push(segment);
            continue;
        }
        let name = Segment::file_name(segment.number);
        let removed = disk.remove(&name);
        removed.map_err(|error| OverlayError::io(format!("remove {name}"), error))?;
    }
    Ok(Pool::new(kept))
}

/// Most segments that are kept while nobody else needs the room.
fn kept_max(config: &LogConfig) -> u64 {
    let by_quota = config.quota_bytes / QUOTA_SHARE / config.segment_bytes;
    (limits::KEPT_BYTES_MAX / config.segment_bytes).min(by_quota).max(KEPT_MIN)
}

/// Returns whether nobody else on the file system is in need of room.
fn has_plenty(disk: &dyn LogDisk) -> bool {
    // A file system that does not say is one that should not be leant on.
    disk.space().is_ok_and(|space| space.free_bytes >= space.total_bytes / FREE_SHARE)
}

/// Creates a segment: when this returns, it outlives a power failure.
fn create_segment(
    disk: &dyn LogDisk,
    log_id: [u8; 16],
    number: u32,
    config: &LogConfig,
) -> io::Result<Arc<Segment>> {
    let size_bytes = config.segment_bytes;
    if config.reserve_bytes > 0
        && disk.space()?.free_bytes < size_bytes.saturating_add(config.reserve_bytes)
    {
        return Err(io::ErrorKind::StorageFull.into());
    }
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
    Ok(Arc::new(Segment::empty(number, salt, file, size_bytes)))
}

/// Begins a new life of a dead segment's file. Its name outlives a power failure then, its header
/// with the first records that are synced: a sync of the file would write the life before, too,
/// which nobody will read.
///
/// Where name and header differ after a crash, who opens the log removes the file: nothing of it was
/// promised. The records of the life before have another salt than the header.
fn recycle(
    disk: &dyn LogDisk,
    log_id: [u8; 16],
    number: u32,
    dead: Segment,
) -> io::Result<Arc<Segment>> {
    let (before, name) = (Segment::file_name(dead.number), Segment::file_name(number));
    let (size_bytes, salt) = (dead.size_bytes, rand::random());
    let header = SegmentHeader { number, log_id, size_bytes, salt }.encode();
    let written = dead
        .file
        .write_all_at(&mut [IoSlice::new(&header)], 0)
        .and_then(|()| disk.rename(&before, &name));
    if let Err(error) = written {
        disk.remove(&before)?;
        return Err(error);
    }
    if let Err(error) = disk.sync() {
        disk.remove(&name)?;
        return Err(error);
    }
    // A process that found it has opened it for a scan, which reads on.
    dead.file.read_no_more();
    Ok(Arc::new(dead.again(number, salt)))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use acstor_testkit::Fault;
    use acstor_types::DiskId;

    use super::*;
    use crate::log::LocalLog;
    use crate::regions::RegionMap;
    use crate::regions::durability::Durability;
    use crate::scenarios::memory_disk::MemoryDisk;
    use crate::segments::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, RecordKind};
    use crate::segments::recovery::{create_log, open_log};

    const CONFIG: LogConfig =
        LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    const VOLUME: DiskId = DiskId::from_bytes([5; 16]);

    fn regions() -> Arc<RegionMap> {
        Arc::new(RegionMap::new(&Durability::default(), &[]))
    }

    fn new_log(disk: &MemoryDisk) -> LocalLog {
        let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        log
    }

    /// Overwrites the same sectors until `segments` segments are dead, and takes them out.
    fn kill_segments(log: &LocalLog, segments: u32) {
        let first = log.head().segment.number;
        while log.head().segment.number < first + segments {
            log.write(0, &[1; 8192]).unwrap();
        }
        log.checkpoint(VOLUME, 1).unwrap();
    }

    /// A dead segment with one record, `sequence`, of an earlier life.
    fn dead_segment(log: &LocalLog, disk: &dyn LogDisk, sequence: u64) -> Arc<Segment> {
        let (number, salt, size_bytes) = (0xff, 77, CONFIG.segment_bytes);
        let file = disk.create(&Segment::file_name(number), size_bytes).unwrap();
        let header = SegmentHeader { number, log_id: log.id(), size_bytes, salt };
        file.write_all_at(&mut [IoSlice::new(&header.encode())], 0).unwrap();
        let payload = [0xee; 512];
        let record = RecordHeader {
            kind: RecordKind::Data,
            is_copy: false,
            sequence,
            first_sector: 1000,
            sector_count: 1,
            salt,
            payload_crc: crc32fast::hash(&payload),
            durable: 0,
        };
        let bytes = record.encode();
        let mut parts = [IoSlice::new(&bytes), IoSlice::new(&payload)];
        file.write_all_at(&mut parts, RECORDS_OFFSET).unwrap();
        file.sync().unwrap();
        disk.sync().unwrap();
        Arc::new(Segment::new(number, salt, file, size_bytes))
    }

    /// The record of the life before stands where the next one is expected, with its number.
    #[test]
    fn record_of_the_life_before_is_never_taken() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        while log.head().offset < 60 << 10 {
            log.write(0, &[1; 4096]).unwrap();
        }
        let sequence = log.head().next_sequence;
        log.pool().put(dead_segment(&log, &disk, sequence));
        // The segment's header is written, its first record is not.
        disk.faults.fail_nth("write", 2, Fault::EIO);
        log.write(8, &[2; 8192]).unwrap_err();
        assert_eq!(log.pool().recycled(), 1);
        drop(log);
        let shared: Arc<dyn LogDisk> = Arc::new(disk.after_kill());
        let log = open_log(&shared, CONFIG, regions()).unwrap().unwrap().log;
        assert_eq!(log.head().next_sequence, sequence);
        assert!(log.map().extents.range(1000, 1001).next().is_none());
    }

    #[test]
    fn segment_that_is_read_is_not_written() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        log.write(500, &[9; 512]).unwrap();
        let read = Arc::clone(&log.head().segment);
        log.write(500, &[1; 512]).unwrap();
        kill_segments(&log, 1);
        for _ in 0..3 {
            kill_segments(&log, 2);
        }
        let mut bytes = [0; 512];
        read.file.read_exact_at(&mut bytes, RECORDS_OFFSET + HEADER_LEN as u64).unwrap();
        assert_eq!(bytes, [9; 512]);
        assert!(log.pool().recycled() > 0, "the others are");
    }

    #[test]
    fn kept_segments_count_and_are_bounded() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        kill_segments(&log, 7);
        assert_eq!(log.pool().len() as u64, KEPT_MIN);
        let files = |disk: &MemoryDisk| {
            let names = disk.list().unwrap();
            names.iter().filter(|name| Segment::number_of(name).is_some()).count() as u64
        };
        assert_eq!(log.usage().0, files(&disk) * CONFIG.segment_bytes);
        drop(log);
        // They are found again, and the head is made of one.
        let shared: Arc<dyn LogDisk> = Arc::new(disk.after_kill());
        let log = open_log(&shared, CONFIG, regions()).unwrap().unwrap().log;
        assert_eq!((log.pool().recycled(), files(&disk)), (1, 5));
        let mut at = 0;
        while log.write(at, &[3; 16 << 10]).is_ok() {
            at += 32;
            assert!(files(&disk) * CONFIG.segment_bytes <= CONFIG.quota_bytes);
        }
    }

    /// A replay syncs at its end: what it has dropped by then must not keep its space until then.
    #[test]
    fn replay_that_is_longer_than_the_quota_takes_no_more_than_that() {
        let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        for number in 0..400 {
            log.make_room_unsaved().unwrap();
            log.restore(number % 8 * 16, &[1; 8192]).unwrap();
        }
        let held = log.head().unsynced.len() as u64;
        assert!(held < log.records.files.quota.segments_max(), "{held} segments are held");
        assert!(log.pool().recycled() > 10, "{} are written again", log.pool().recycled());
    }

    #[test]
    fn kept_segments_are_given_back_when_room_is_short() {
        let disk = MemoryDisk::new(1 << 20);
        let log = new_log(&disk);
        kill_segments(&log, 3);
        assert!(log.pool().len() >= 3);
        log.ease(VOLUME, 1).unwrap();
        assert!(log.pool().len() >= 3, "nobody is in need");
        disk.create("of somebody else", 700 << 10).unwrap();
        log.ease(VOLUME, 1).unwrap();
        assert_eq!(log.pool().len(), 0);
        let free = disk.space().unwrap().free_bytes;
        assert!(free >= 3 * CONFIG.segment_bytes, "{free}");
    }

    #[test]
    fn dead_segments_are_given_back_when_room_is_short() {
        let disk = MemoryDisk::new(1 << 20);
        let log = new_log(&disk);
        for _ in 0..24 {
            log.write(0, &[1; 8192]).unwrap();
        }
        let dead = log.records.dead_segments() as u64;
        log.ease(VOLUME, 1).unwrap();
        assert_eq!(log.records.dead_segments() as u64, dead, "nobody is in need");
        disk.create("of somebody else", 700 << 10).unwrap();
        let before = disk.space().unwrap().free_bytes;
        log.ease(VOLUME, 1).unwrap();
        assert_eq!((log.records.dead_segments(), log.pool().len()), (0, 0));
        let freed = disk.space().unwrap().free_bytes - before;
        assert!(dead >= 2 && freed >= dead * CONFIG.segment_bytes, "{freed} of {dead} segments");
    }

    /// A crash between the new header and the new name leaves a file that is nothing.
    #[test]
    fn half_a_new_life_is_removed() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        kill_segments(&log, 2);
        log.sync(log.appended()).unwrap();
        let (dead, number) = (log.pool().take().unwrap(), log.head().next_number);
        let name = Segment::file_name(dead.number);
        let header =
            SegmentHeader { number, log_id: log.id(), size_bytes: CONFIG.segment_bytes, salt: 1 };
        dead.file.write_all_at(&mut [IoSlice::new(&header.encode())], 0).unwrap();
        drop(log);
        let shared: Arc<dyn LogDisk> = Arc::new(disk.after_kill());
        let log = open_log(&shared, CONFIG, regions()).unwrap().unwrap().log;
        assert!(!disk.list().unwrap().contains(&name));
        assert_eq!(log.usage().1, 8192);
    }
}
