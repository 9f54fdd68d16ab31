//! Seeded crash tests of the local log on a disk that loses and tears what was not synced.
//!
//! After each crash the log must hold the state after some write that is not older than the last one
//! that was synced.
//! `OVERLAY_CRASH_SEED` repeats one run, `OVERLAY_CRASH_RUNS` sets how many there are; with both, a
//! long check is run in parts.

use std::sync::Arc;

use acstor_testkit::{Fault, seeded_rng};
use acstor_types::DiskId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::OverlayError;
use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::rotting::Rot;
use crate::scenarios::write_history::{SECTORS, WriteHistory, read_sectors, read_state};
use crate::segments::disk::LogDisk;
use crate::segments::map_state::Stream;
use crate::segments::quota::LogConfig;
use crate::segments::reclaim::Reclaimer;
use crate::segments::record::RECORDS_OFFSET;
use crate::segments::recovery::{create_log, open_log};

const CONFIG: LogConfig =
    LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
const VOLUME: DiskId = DiskId::from_bytes([3; 16]);

/// Returns the seeds to run: `runs` of them, or as many as the environment says, from its seed on; of
/// a seed alone just that one.
pub(crate) fn seeds(runs: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let (first, count) = (number("OVERLAY_CRASH_SEED"), number("OVERLAY_CRASH_RUNS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { runs });
    let first = first.unwrap_or(0);
    first..first + count
}

struct Run {
    rng: ChaCha8Rng,
    disk: MemoryDisk,
    log: LocalLog,
    history: WriteHistory,
    /// The disk has lost something that no sync covers: a kill may show it.
    is_lossy: bool,
    /// Segments that began in a file with records of an earlier life.
    recycled: u64,
    /// Times that the log was opened with flushed records that had rotted.
    rotten: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = seeded_rng(seed);
        let disk = MemoryDisk::new(if rng.random_bool(0.2) { 520 << 10 } else { 64 << 20 });
        let shared: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let log = new_log(&shared);
        let history = WriteHistory::new();
        Run { rng, disk, log, history, is_lossy: false, recycled: 0, rotten: 0 }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..70 => self.write(),
            70..80 => drop(self.history.sync(&self.log)),
            80..84 => drop(self.log.checkpoint(VOLUME, 1)),
            84..90 => drop(self.log.keep(VOLUME, 1, 32 << 10)),
            90..93 => drop(self.log.make_room(VOLUME, 1)),
            93..95 => self.push(),
            95..97 => self.fault(),
            _ => self.crash(),
        }
    }

    fn write(&mut self) {
        let start = self.rng.random_range(0..SECTORS);
        let end = (start + self.rng.random_range(1..=40)).min(SECTORS);
        let is_zero = self.rng.random_bool(0.1);
        self.history.write(&self.log, start, end, is_zero);
    }

    /// Everything dirty is taken as if it had reached the origin.
    fn push(&mut self) {
        let mut map = self.log.map_mut();
        if map.begin_cut(Stream::Main, |_| true) {
            while !map.resolve_some(Stream::Main, 3) {}
            assert!(!map.take_resolved(Stream::Main).0.is_empty());
            drop(map.finish_cut(Stream::Main));
            self.history.pushed();
        }
    }

    fn fault(&mut self) {
        let operation = ["read", "write", "create", "rename", "sync-names", "sync"];
        let operation = operation[self.rng.random_range(0..operation.len())];
        let fault = if self.rng.random_bool(0.5) { Fault::EIO } else { Fault::Torn(28) };
        let nth = self.rng.random_range(1..4);
        if self.rng.random_bool(0.2) {
            self.is_lossy |= self.disk.fail_writeback();
            return;
        }
        self.disk.faults.fail_nth(operation, nth, fault);
    }

    fn crash(&mut self) {
        self.recycled += self.log.pool().recycled();
        let is_kill = self.rng.random_bool(0.3);
        let mut is_all = is_kill && !self.is_lossy && !self.log.is_failed();
        self.disk = if is_kill {
            self.disk.after_kill()
        } else {
            self.disk.after_power_failure(&mut self.rng)
        };
        if self.rng.random_bool(0.5) {
            self.disk.evict(false);
        }
        if self.rng.random_bool(0.4) {
            self.open_rotten();
        }
        if self.rng.random_bool(0.3) {
            is_all &= self.open_with_faults();
        }
        let shared: Arc<dyn LogDisk> = Arc::new(self.disk.clone());
        let mut opened = open_log(&shared, CONFIG, regions());
        for _ in 0..16 {
            // A write to a segment has failed before, and nobody was told until now; or a file that is used
            // again tells it of its life before, to the first sync of the log that was opened.
            let is_tried_again =
                matches!(opened, Err(OverlayError::Io { .. } | OverlayError::Unavailable(_)));
            if is_tried_again {
                opened = open_log(&shared, CONFIG, regions());
            }
        }
        let recovered = match opened {
            Ok(recovered) => recovered.expect("a log that was created is there"),
            // A full disk keeps a log from being opened, and takes nothing from it.
            Err(OverlayError::NoSpace(_)) => {
                self.disk.grow(256 << 10);
                open_log(&shared, CONFIG, regions()).unwrap().expect("the log is there")
            }
            Err(error) => panic!("cannot open: {error}"),
        };
        assert_eq!((recovered.volume, recovered.epoch), (VOLUME, 1));
        self.log = recovered.log;
        self.is_lossy = false;
        self.history.check(&self.log, is_all);
    }

    /// Flushed records rot before the log is opened: what is read is right or an error, or the log is not
    /// opened and stays as it is. Then they are whole again, so that the rest can be looked at.
    fn open_rotten(&mut self) {
        let Some(rot) = Rot::new(&self.disk, &mut self.rng) else { return };
        self.rotten += 1;
        let shared: Arc<dyn LogDisk> = Arc::new(self.disk.clone());
        let opened = open_log(&shared, CONFIG, regions());
        if rot.is_header {
            assert!(matches!(opened, Err(OverlayError::Corrupt(_))), "{opened:?}");
            return rot.mend();
        }
        let ranges = rot.ranges();
        let log = match opened {
            Ok(recovered) => recovered.expect("a log that was created is there").log,
            // A full disk, or a failure that nobody was told of until now.
            Err(error @ OverlayError::Corrupt(_)) => panic!("cannot open: {error}"),
            Err(_) => return rot.mend(),
        };
        let found = read_sectors(&log);
        rot.mend();
        Rot::check(&ranges, &found, &read_state(&log));
    }

    /// The disk fails while the log is being opened; false: it may have lost something by that.
    fn open_with_faults(&mut self) -> bool {
        let shared: Arc<dyn LogDisk> = Arc::new(self.disk.clone());
        self.fault();
        let is_open = open_log(&shared, CONFIG, regions()).is_ok();
        self.disk.faults.disarm();
        is_open && !self.is_lossy
    }
}

fn new_log(disk: &Arc<dyn LogDisk>) -> LocalLog {
    let log = create_log(disk, CONFIG, regions()).unwrap();
    log.checkpoint(VOLUME, 1).unwrap();
    log
}

fn regions() -> Arc<RegionMap> {
    Arc::new(RegionMap::new(&Durability::default(), &[]))
}

#[test]
fn whatever_is_lost_what_was_synced_is_there() {
    let (mut runs, mut recycled, mut rotten) = (0, 0, 0);
    for seed in seeds(2000) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            (0..120).for_each(|_| run.step());
            run.crash();
            (run.recycled, run.rotten)
        });
        match run {
            Ok(counts) => {
                (runs, recycled, rotten) = (runs + 1, recycled + counts.0, rotten + counts.1);
            }
            Err(cause) => {
                eprintln!("repeat with OVERLAY_CRASH_SEED={seed}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(recycled > runs || runs == 1, "{recycled} files used again in {runs} runs");
    assert!(rotten * 4 > runs || runs == 1, "{rotten} logs with rot in {runs} runs");
}

#[test]
fn space_of_overwritten_data_comes_back() {
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
    let log = new_log(&disk);
    let data = [7; 16 << 10];
    let mut made_room = 0;
    for number in 0..400_u64 {
        if log.write(number % 5 * 32, &data).is_err() {
            assert!(log.make_room(VOLUME, 1).unwrap(), "nothing to free at write {number}");
            made_room += 1;
            log.write(number % 5 * 32, &data).unwrap();
        }
    }
    assert!(made_room > 10, "{made_room}");
    let (bytes, live) = log.usage();
    assert!(bytes <= CONFIG.quota_bytes && live == (5 * 16) << 10, "{bytes} {live}");
}

#[test]
fn space_comes_back_on_a_full_file_system() {
    // Room for six segments where the quota has ten.
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(6 * CONFIG.segment_bytes));
    let log = new_log(&disk);
    let data = [7; 16 << 10];
    let mut made_room = 0;
    for number in 0..200_u64 {
        if log.write(number % 5 * 32, &data).is_err() {
            assert!(log.make_room(VOLUME, 1).unwrap(), "nothing to free at write {number}");
            made_room += 1;
            log.write(number % 5 * 32, &data).unwrap();
        }
    }
    assert!(made_room > 10, "{made_room}");
}

#[test]
fn damaged_segment_is_told_once_and_left() {
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
    let log = new_log(&disk);
    let first = Arc::clone(&log.head().segment);
    let data = [7; 16 << 10];
    for at in 0..5 {
        log.write(at * 32, &data).unwrap();
    }
    assert!(first.number < log.head().segment.number);
    log.zero(32, 4 * 32).unwrap();
    let nothing = [0; 64];
    first.file.write_all_at(&mut [std::io::IoSlice::new(&nothing)], RECORDS_OFFSET).unwrap();
    let error = Reclaimer(&log.records).one(100).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(!Reclaimer(&log.records).one(100).unwrap(), "it is not tried again");
    assert_eq!(first.live(), data.len() as u64, "nothing of it was given up");
}

#[test]
fn full_log_refuses_writes_and_goes_on() {
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
    let log = new_log(&disk);
    let data = [7; 16 << 10];
    let mut at = 0;
    while log.write(at, &data).is_ok() {
        at += 32;
    }
    assert!(!log.make_room(VOLUME, 1).unwrap(), "everything is alive");
    log.sync(log.appended()).unwrap();
    log.zero(0, at / 2).unwrap();
    assert!(log.make_room(VOLUME, 1).unwrap());
    log.write(0, &data).unwrap();
    drop(log);
    let log = open_log(&disk, CONFIG, regions()).unwrap().unwrap().log;
    assert_eq!(log.usage().1, (at - at / 2) * 512 + data.len() as u64);
}
