//! Checkpoints: the segments that they sync, the state after a crash beside one, their frequency.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_testkit::{Fault, seeded_rng};
use acstor_types::DiskId;

use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::scenarios::extent_reading::read_extent;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::segments::disk::LogDisk;
use crate::segments::quota::LogConfig;
use crate::segments::recovery::{create_log, open_log};

const CONFIG: LogConfig =
    LogConfig { segment_bytes: 64 << 10, quota_bytes: 64 << 20, reserve_bytes: 0 };
const VOLUME: DiskId = DiskId::from_bytes([6; 16]);
const SECTOR: usize = 512;
/// Sectors of a write that fills a quarter of a segment.
const LARGE: u64 = 30;

fn regions() -> Arc<RegionMap> {
    Arc::new(RegionMap::new(&Durability::default(), &[]))
}

fn is_late(log: &LocalLog, now: Instant) -> bool {
    log.upkeep.checkpoints.is_late(&log.records, now)
}

fn new_log(disk: &MemoryDisk) -> LocalLog {
    let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
    let log = create_log(&disk, CONFIG, regions()).unwrap();
    log.checkpoint(VOLUME, 1).unwrap();
    log
}

/// Overwrites the same sectors until `count` more segments are full, and nothing of them alive.
fn fill_dead(log: &LocalLog, count: u32) {
    let first = log.head().segment.number;
    let mut round = 0_u8;
    while log.head().segment.number < first + count {
        round = round.wrapping_add(1);
        log.write(1000, &[round; LARGE as usize * SECTOR]).unwrap();
    }
}

/// First bytes of some sectors as another process finds them.
fn found(log: &LocalLog, sectors: &[u64]) -> Vec<u8> {
    let map = log.map();
    let first = |at: &u64| {
        let mut bytes = [0; SECTOR];
        if let Some(extent) = map.extents.range(*at, at + 1).next() {
            read_extent(&map.segments, &extent, &mut bytes).unwrap();
        }
        bytes[0]
    };
    sectors.iter().map(first).collect()
}

fn after_power_failure(disk: &MemoryDisk, seed: u64) -> LocalLog {
    let disk: Arc<dyn LogDisk> = Arc::new(disk.after_power_failure(&mut seeded_rng(seed)));
    open_log(&disk, CONFIG, regions()).unwrap().unwrap().log
}

#[test]
fn dead_segments_are_not_synced_and_nothing_is_lost() {
    for seed in 0..40 {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        log.write(0, &[7; SECTOR]).unwrap();
        fill_dead(&log, 8);
        log.write(1, &[8; SECTOR]).unwrap();
        let before = disk.faults.calls("sync");
        log.checkpoint(VOLUME, 1).unwrap();
        let syncs = disk.faults.calls("sync") - before;
        assert_eq!(syncs, 3, "the segment with sector 0, the head, the checkpoint");
        assert_eq!(log.synced(), log.appended(), "the checkpoint stands for the others");
        let last = found(&log, &[1000]);
        let log = after_power_failure(&disk, seed);
        assert_eq!(found(&log, &[0, 1, 1000]), [7, 8, last[0]], "seed {seed}");
    }
}

/// As long as no checkpoint stands for them, dead segments are what a scan has to go through.
#[test]
fn flush_after_a_checkpoint_that_failed_syncs_the_dead_too() {
    for seed in 0..40 {
        for (operation, nth) in [("rename", 1), ("sync-names", 1), ("sync", 3)] {
            let disk = MemoryDisk::new(64 << 20);
            let log = new_log(&disk);
            let synced = log.synced();
            log.write(0, &[7; SECTOR]).unwrap();
            fill_dead(&log, 4);
            log.write(1, &[8; SECTOR]).unwrap();
            disk.faults.fail_nth(operation, nth, Fault::EIO);
            log.checkpoint(VOLUME, 1).unwrap_err();
            assert_eq!(log.synced(), synced, "{operation}: it stands for nothing");
            log.sync(log.appended()).unwrap();
            let last = found(&log, &[1000]);
            let log = after_power_failure(&disk, seed);
            assert_eq!(found(&log, &[0, 1, 1000]), [7, 8, last[0]], "{operation}, seed {seed}");
        }
    }
}

/// The file of a dead segment is used again without writing what nobody will read.
#[test]
fn new_life_of_a_segment_syncs_nothing() {
    let disk = MemoryDisk::new(64 << 20);
    let log = new_log(&disk);
    fill_dead(&log, 4);
    log.checkpoint(VOLUME, 1).unwrap();
    let (before, recycled) = (disk.faults.calls("sync"), log.pool().recycled());
    assert!(log.records.prepare_spare().unwrap());
    assert_eq!((disk.faults.calls("sync"), log.pool().recycled()), (before, recycled + 1));
}

/// Synced content is there, whichever of header, name and records a power failure takes.
#[test]
fn new_life_of_a_segment_outlives_a_power_failure_with_its_records() {
    for seed in 0..200 {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        fill_dead(&log, 4);
        log.checkpoint(VOLUME, 1).unwrap();
        fill_dead(&log, 2);
        assert!(log.pool().recycled() > 0);
        log.write(0, &[9; SECTOR]).unwrap();
        log.sync(log.appended()).unwrap();
        let last = found(&log, &[1000]);
        // Nobody waits for this one.
        fill_dead(&log, 1);
        let newest = found(&log, &[1000]);
        let log = after_power_failure(&disk, seed);
        let there = found(&log, &[0, 1000]);
        assert_eq!(there[0], 9, "seed {seed}");
        assert!(there[1] == last[0] || (1..=newest[0]).contains(&there[1]), "seed {seed}");
    }
}

/// A burst may be overwritten before a checkpoint would sync it; after it a recovery shall scan little.
#[test]
fn checkpoint_comes_soon_after_a_burst() {
    let disk = MemoryDisk::new(64 << 20);
    let log = new_log(&disk);
    let begin = Instant::now();
    let later = |seconds| begin + Duration::from_secs(seconds);
    assert!(!is_late(&log, later(3600)), "nothing was written");
    for number in 0..20 {
        log.write(number * LARGE, &[1; LARGE as usize * SECTOR]).unwrap();
    }
    assert!(!is_late(&log, begin));
    assert!(is_late(&log, later(600)));
    log.checkpoint(VOLUME, 1).unwrap();
    assert!(!is_late(&log, later(3600)));
}

/// Content that a checkpoint calls dirty, and that was pushed since, would be pushed again by the
/// next process that opens the log.
#[test]
fn checkpoint_says_what_was_pushed_where_that_is_worth_it() {
    let disk = MemoryDisk::new(64 << 20);
    let log = new_log(&disk);
    let later = Instant::now() + Duration::from_secs(600);
    log.note_pushed(log.appended());
    assert!(!log.is_push_untold(later), "nothing was dirty");
    log.write(0, &[1; SECTOR]).unwrap();
    log.checkpoint(VOLUME, 1).unwrap();
    assert!(!log.is_push_untold(later), "it was not pushed");
    log.note_pushed(log.appended());
    assert!(log.is_push_untold(Instant::now()), "the log may be opened again any moment");
    log.ease(VOLUME, 1).unwrap();
    assert!(!log.is_push_untold(later), "a checkpoint costs more than a sector");
    log.write(LARGE, &[1; LARGE as usize * SECTOR]).unwrap();
    log.checkpoint(VOLUME, 1).unwrap();
    log.note_pushed(log.appended());
    assert!(!log.is_push_untold(Instant::now()), "one has just been written");
    assert!(log.is_push_untold(later));
}

/// Many extents: the checkpoint has all of them, so it is written the less often.
#[test]
fn checkpoints_are_a_bounded_share_of_what_is_written() {
    let disk = MemoryDisk::new(64 << 20);
    let log = new_log(&disk);
    let (mut written, mut checkpoints, mut last) = (0, 0, disk.faults.calls("rename"));
    for number in 0..20_000_u64 {
        log.write(number * 2, &[1; SECTOR]).unwrap();
        if number % 100 == 0 {
            log.keep(VOLUME, 1, 64 << 10).unwrap();
            let renames = disk.faults.calls("rename");
            checkpoints += renames - last;
            written += (renames - last) * log.head().checkpoint_bytes;
            last = renames;
        }
    }
    let appended = 20_000 * (64 + SECTOR as u64);
    assert!(checkpoints > 5, "{checkpoints}");
    assert!(written <= appended / 4, "{written} of {appended} bytes");
}
