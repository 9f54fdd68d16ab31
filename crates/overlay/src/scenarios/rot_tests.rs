//! Records that were flushed and have rotted since, when their log is opened again.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_types::DiskId;

use crate::OverlayError;
use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::scenarios::extent_reading::read_extent;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::quota::LogConfig;
use crate::segments::reclaim::Reclaimer;
use crate::segments::record::HEADER_LEN;
use crate::segments::recovery::{create_log, open_log};
use crate::segments::segment::Segment;

const CONFIG: LogConfig =
    LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
const VOLUME: DiskId = DiskId::from_bytes([6; 16]);
/// Records of a log under test: they fill more than one segment.
const RECORDS: usize = 20;
/// Sectors of each record of a log under test.
const SECTORS: u64 = 8;
/// Offset of the damage within a record.
const INSIDE: u64 = 1100;

struct Log {
    disk: MemoryDisk,
    log: LocalLog,
}

/// Place of a record.
struct At {
    segment: Arc<Segment>,
    payload: u64,
}

impl At {
    fn flip(&self, offset: u64) {
        let mut byte = [0];
        self.segment.file.read_exact_at(&mut byte, offset).unwrap();
        byte[0] ^= 0x10;
        self.segment.file.write_all_at(&mut [IoSlice::new(&byte)], offset).unwrap();
        self.segment.file.sync().unwrap();
    }

    fn flip_header(&self) {
        self.flip(self.payload - HEADER_LEN as u64 + 20);
    }

    fn flip_payload(&self) {
        self.flip(self.payload + INSIDE);
    }
}

fn regions() -> Arc<RegionMap> {
    Arc::new(RegionMap::new(&Durability::default(), &[]))
}

fn open(disk: &MemoryDisk) -> Result<LocalLog, OverlayError> {
    let found = open_log(&(Arc::new(disk.clone()) as Arc<_>), CONFIG, regions())?;
    Ok(found.expect("there is a log").log)
}

impl Log {
    fn empty() -> Log {
        let disk = MemoryDisk::new(64 << 20);
        let log = create_log(&(Arc::new(disk.clone()) as Arc<_>), CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        Log { disk, log }
    }

    /// A log of which the first `flushed` records were flushed, one by one.
    fn flushed(flushed: usize) -> Log {
        let log = Log::empty();
        for number in 0..RECORDS {
            log.write(number);
            if number < flushed {
                log.sync();
            }
        }
        log
    }

    fn write(&self, number: usize) {
        let content = [number as u8 + 1; (SECTORS * 512) as usize];
        self.log.write(number as u64 * SECTORS, &content).unwrap();
    }

    fn sync(&self) {
        self.log.sync(self.log.appended()).unwrap();
    }

    fn at(&self, number: usize) -> At {
        let map = self.log.map();
        let start = number as u64 * SECTORS;
        let extent = map.extents.range(start, start + 1).next().unwrap();
        let Place::Log { segment, offset } = extent.place else { panic!("zeros") };
        At { segment: Arc::clone(&map.segments[&segment]), payload: offset }
    }

    /// The first record of the second segment.
    fn first_of_second(&self) -> usize {
        let number = self.at(0).segment.number;
        (0..RECORDS).find(|at| self.at(*at).segment.number > number).unwrap()
    }

    /// The process is killed, and another one opens the log.
    fn reopen(&mut self) -> Result<(), OverlayError> {
        self.disk = self.disk.after_kill();
        self.log = open(&self.disk)?;
        Ok(())
    }

    /// First byte of each record; `None`: it cannot be read.
    fn read(&self) -> Vec<Option<u8>> {
        let map = self.log.map();
        let read = |number: usize| {
            let start = number as u64 * SECTORS;
            let Some(extent) = map.extents.range(start, start + SECTORS).next() else {
                return Some(0);
            };
            let mut bytes = vec![0; extent.bytes() as usize];
            read_extent(&map.segments, &extent, &mut bytes).ok().map(|()| bytes[0])
        };
        (0..RECORDS).map(read).collect()
    }

    #[track_caller]
    fn assert_lost(&self, lost: &[usize]) {
        let expected: Vec<_> =
            (0..RECORDS).map(|at| (!lost.contains(&at)).then_some(at as u8 + 1)).collect();
        assert_eq!(self.read(), expected);
    }

    /// The log ends before a record, without an error.
    #[track_caller]
    fn assert_ends_before(&self, end: usize) {
        let expected: Vec<_> =
            (0..RECORDS).map(|at| Some(if at < end { at as u8 + 1 } else { 0 })).collect();
        assert_eq!(self.read(), expected);
    }

    #[track_caller]
    fn assert_corrupt(&mut self, segment: u32, offset: u64) {
        for _ in 0..2 {
            let Err(error @ OverlayError::Corrupt(_)) = self.reopen() else {
                panic!("it was opened")
            };
            let text = error.to_string();
            let place = format!("byte {offset} of {}", Segment::file_name(segment));
            assert!(text.contains(&place) && text.contains("acstor volume give-up"), "{text}");
        }
    }

    fn is_dirty(&self, number: usize) -> bool {
        let start = number as u64 * SECTORS;
        self.log.map().all_dirty().overlaps(start, start + SECTORS)
    }
}

#[test]
fn content_of_flushed_records_that_rots_is_an_error_and_the_rest_is_there() {
    let second = Log::flushed(RECORDS).first_of_second();
    for lost in [vec![0], vec![7], vec![2, 3, 9], vec![second - 1, second], vec![RECORDS - 2]] {
        let mut log = Log::flushed(RECORDS);
        lost.iter().for_each(|at| log.at(*at).flip_payload());
        for _ in 0..2 {
            log.reopen().unwrap();
            log.assert_lost(&lost);
            assert!((0..RECORDS).all(|at| log.is_dirty(at)), "the origin has nothing of it");
        }
        lost.iter().for_each(|at| log.write(*at));
        log.sync();
        log.reopen().unwrap();
        log.assert_lost(&[]);
    }
}

#[test]
fn flushed_content_that_cannot_be_read_is_an_error_and_the_rest_is_there() {
    for lost in [vec![0], vec![4, 9]] {
        let mut log = Log::flushed(RECORDS);
        for at in lost.iter().map(|at| log.at(*at)) {
            let name = Segment::file_name(at.segment.number);
            log.disk.set_broken(&name, at.payload + INSIDE, true);
        }
        log.reopen().unwrap();
        log.assert_lost(&lost);
        log.reopen().unwrap();
        log.assert_lost(&lost);
    }
}

/// It may be whole, and may be one that was flushed: nothing is dropped for an error that may pass.
#[test]
fn content_that_cannot_be_read_and_may_be_torn_keeps_the_log_closed() {
    let mut log = Log::flushed(10);
    let at = log.at(12);
    let name = Segment::file_name(at.segment.number);
    log.disk.set_broken(&name, at.payload + INSIDE, true);
    assert!(matches!(log.reopen(), Err(OverlayError::Io { .. })));
    log.disk.set_broken(&name, at.payload + INSIDE, false);
    log.reopen().unwrap();
    log.assert_lost(&[]);
}

#[test]
fn header_of_a_flushed_record_that_rots_keeps_the_log_as_it_is() {
    let second = Log::flushed(RECORDS).first_of_second();
    for lost in [vec![0], vec![7], vec![2, 3, 9], vec![RECORDS - 2]] {
        let mut log = Log::flushed(RECORDS);
        let places: Vec<_> = lost.iter().map(|at| log.at(*at)).collect();
        places.iter().for_each(At::flip_header);
        log.assert_corrupt(places[0].segment.number, places[0].payload - HEADER_LEN as u64);
        places.iter().for_each(At::flip_header);
        log.reopen().unwrap();
        log.assert_lost(&[]);
    }
    // At the beginning of a segment it may as well be the end of the one before.
    let mut log = Log::flushed(RECORDS);
    let (before, first) = (log.at(second - 1), log.at(second));
    first.flip_header();
    log.assert_corrupt(before.segment.number, before.payload + SECTORS * 512);
    first.flip_header();
    log.reopen().unwrap();
    log.assert_lost(&[]);
}

/// That of a segment: without it nobody knows the salt of its records.
#[test]
fn header_of_a_segment_that_rots_keeps_the_log_as_it_is() {
    let mut log = Log::flushed(RECORDS);
    let second = log.first_of_second();
    let (before, first) = (log.at(second - 1), log.at(second));
    first.flip(20);
    log.assert_corrupt(before.segment.number, before.payload + SECTORS * 512);
    first.flip(20);
    log.reopen().unwrap();
    log.assert_lost(&[]);
}

#[test]
fn what_may_be_torn_ends_the_log() {
    for flushed in [0, 5, 10] {
        for is_header in [false, true] {
            let mut log = Log::flushed(flushed);
            let at = log.at(flushed + 2);
            if is_header {
                at.flip_header()
            } else {
                at.flip_payload()
            }
            log.reopen().unwrap();
            log.assert_ends_before(flushed + 2);
        }
    }
}

/// Flushed and rotten, then torn: the former is an error, the latter the end.
#[test]
fn rotten_before_torn_is_told_apart() {
    let mut log = Log::flushed(10);
    log.at(4).flip_payload();
    log.at(12).flip_payload();
    log.reopen().unwrap();
    let mut expected: Vec<_> =
        (0..RECORDS).map(|at| Some(if at < 12 { at as u8 + 1 } else { 0 })).collect();
    expected[4] = None;
    assert_eq!(log.read(), expected);
}

/// Headers as builds wrote them that said nothing of what was durable.
#[test]
fn log_of_a_build_before_ends_at_the_first_bad_record() {
    for is_header in [false, true] {
        let mut log = Log::flushed(RECORDS);
        for at in (0..RECORDS).map(|number| log.at(number)) {
            let offset = at.payload - HEADER_LEN as u64;
            let mut header = [0; HEADER_LEN];
            at.segment.file.read_exact_at(&mut header, offset).unwrap();
            header[44..60].fill(0);
            let crc = crc32fast::hash(&header[..60]);
            header[60..].copy_from_slice(&crc.to_le_bytes());
            at.segment.file.write_all_at(&mut [IoSlice::new(&header)], offset).unwrap();
            at.segment.file.sync().unwrap();
        }
        let at = log.at(7);
        if is_header {
            at.flip_header()
        } else {
            at.flip_payload()
        }
        log.reopen().unwrap();
        log.assert_ends_before(7);
    }
}

/// Copies made by reclaiming, and content that was put back, are as dirty as before.
#[test]
fn copies_that_rot_are_errors_and_no_dirtier_than_before() {
    let mut log = Log::flushed(RECORDS);
    let content = [4; (SECTORS * 512) as usize];
    log.log.restore(300, &content).unwrap();
    let kept = log.first_of_second() - 1;
    let before = log.at(kept).segment.number;
    log.log.zero(0, kept as u64 * SECTORS).unwrap();
    log.log.checkpoint(VOLUME, 1).unwrap();
    assert!(Reclaimer(&log.log.records).one(100).unwrap());
    let copy = log.at(kept);
    assert_ne!(copy.segment.number, before);
    log.log.restore(400, &content).unwrap();
    log.sync();
    log.log.write(500, &content).unwrap();
    log.sync();
    copy.flip_payload();
    let extent = log.log.map().extents.range(400, 401).next().unwrap();
    let Place::Log { offset, .. } = extent.place else { panic!("zeros") };
    let head = Arc::clone(&log.log.head().segment);
    At { segment: head, payload: offset }.flip_payload();
    log.reopen().unwrap();
    let read = |log: &Log, sectors: Range<u64>| {
        let map = log.log.map();
        let extent: Extent = map.extents.range(sectors.start, sectors.end).next().unwrap();
        let mut bytes = vec![0; extent.bytes() as usize];
        read_extent(&map.segments, &extent, &mut bytes).ok().map(|()| bytes[0])
    };
    assert_eq!(read(&log, 300..308), Some(4));
    assert_eq!(read(&log, 400..408), None);
    assert_eq!(read(&log, 500..508), Some(4));
    assert_eq!(log.read()[kept..kept + 2], [None, Some(kept as u8 + 2)]);
    let dirty = log.log.map().all_dirty();
    assert!(log.is_dirty(kept) && dirty.overlaps(500, 508));
    assert!(!dirty.overlaps(300, 308) && !dirty.overlaps(400, 408));
}

fn is_untold(log: &LocalLog, now: Instant) -> bool {
    log.upkeep.checkpoints.is_flush_untold(&log.records, now)
}

/// Nothing that was appended later says that the last records were flushed: a checkpoint does.
#[test]
fn last_flush_is_saved_where_nothing_follows() {
    let mut log = Log::flushed(RECORDS);
    let now = Instant::now();
    let later = now + Duration::from_secs(11);
    assert!(!is_untold(&log.log, now), "more may follow");
    log.write(0);
    assert!(!is_untold(&log.log, later), "it was not flushed");
    log.sync();
    assert!(!is_untold(&log.log, now + Duration::from_secs(12)), "it has just been seen");
    assert!(is_untold(&log.log, now + Duration::from_secs(22)));
    *log.log.upkeep.checkpoints.seen.lock() = (log.log.appended(), now - Duration::from_secs(60));
    log.log.ease(VOLUME, 1).unwrap();
    assert!(!is_untold(&log.log, now + Duration::from_secs(22)), "it is told");
    for number in [0, RECORDS - 1] {
        log.at(number).flip_payload();
    }
    log.reopen().unwrap();
    log.assert_lost(&[0, RECORDS - 1]);
    // As long as checkpoints are apart.
    log.write(1);
    log.sync();
    log.log.head().checkpoint_bytes = 1 << 20;
    *log.log.upkeep.checkpoints.seen.lock() = (log.log.appended(), now - Duration::from_secs(60));
    assert!(!is_untold(&log.log, now), "it costs more than was written");
}
