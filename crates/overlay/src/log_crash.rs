//! Seeded crash tests of the local log on a disk that loses and tears what was not synced.
//!
//! A writer stamps each sector with its address and the number of the write. After each crash the
//! log must hold the state after some write that is not older than the last one that was synced.
//! `OVERLAY_CRASH_SEED` repeats one run, `OVERLAY_CRASH_RUNS` sets how many there are.

use std::sync::Arc;

use acstor_testkit::{Fault, seeded_rng};
use acstor_types::DiskId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::disk::LogDisk;
use crate::durability::Durability;
use crate::extent_map::{Extent, Place};
use crate::log::{LocalLog, LogConfig};
use crate::map_state::Stream;
use crate::memory_disk::MemoryDisk;
use crate::range_set::RangeSet;
use crate::record::RECORDS_OFFSET;
use crate::recovery::{create_log, open_log};
use crate::regions::RegionMap;

const SECTORS: u64 = 192;
const SECTOR: usize = 512;
const CONFIG: LogConfig =
    LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
const VOLUME: DiskId = DiskId::from_bytes([3; 16]);

/// Returns the seeds to run: the one of the environment, or `runs` of them.
pub(crate) fn seeds(runs: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    match number("OVERLAY_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OVERLAY_CRASH_RUNS").unwrap_or(runs),
    }
}

/// Content of a sector: address and number of the write that made it; zeros for write 0.
pub(crate) fn stamp(sector: u64, write: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if write > 0 {
        for half in bytes.chunks_exact_mut(16) {
            half[..8].copy_from_slice(&sector.to_le_bytes());
            half[8..].copy_from_slice(&write.to_le_bytes());
        }
    }
    bytes
}

/// Returns the number of the write that made the sector's content; panics when it is torn.
pub(crate) fn write_of(sector: u64, bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[8..16]);
    let write = u64::from_le_bytes(number);
    assert_eq!(bytes, stamp(sector, write), "sector {sector} is torn");
    write
}

pub(crate) fn read_state(log: &LocalLog) -> Vec<u64> {
    let map = log.map.read();
    let mut state = vec![0; SECTORS as usize];
    for extent in map.extents.range(0, SECTORS) {
        for at in extent.start..extent.end {
            let place = extent.place.advance(at - extent.start);
            let mut bytes = [0; SECTOR];
            let one = Extent { start: at, end: at + 1, place };
            LocalLog::read_extent(&map.segments, &one, &mut bytes).unwrap();
            state[at as usize] = write_of(at, &bytes);
            assert!(place != Place::Zero || state[at as usize] == 0);
        }
    }
    state
}

struct Run {
    rng: ChaCha8Rng,
    disk: MemoryDisk,
    log: LocalLog,
    /// Every acknowledged or attempted write since the durable state: range, number or 0 for zeros.
    writes: Vec<(u64, u64, u64)>,
    /// Number of `writes` that a sync has covered.
    synced: usize,
    base: Vec<u64>,
    dirty: RangeSet,
    number: u64,
    /// Segments that began in a file with records of an earlier life.
    recycled: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = seeded_rng(seed);
        let disk = MemoryDisk::new(if rng.random_bool(0.2) { 520 << 10 } else { 64 << 20 });
        let shared: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let log = new_log(&shared);
        let base = vec![0; SECTORS as usize];
        let (writes, dirty) = (Vec::new(), RangeSet::default());
        Run { rng, disk, log, writes, synced: 0, base, dirty, number: 0, recycled: 0 }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..70 => self.write(),
            70..80 => self.sync(),
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
        self.number += 1;
        let is_zero = self.rng.random_bool(0.1);
        let number = if is_zero { 0 } else { self.number };
        let outcome = if is_zero {
            self.log.zero(start, end - start)
        } else {
            let data: Vec<u8> = (start..end).flat_map(|at| stamp(at, number)).collect();
            self.log.write(start, &data)
        };
        match outcome {
            Ok(_) => {
                self.writes.push((start, end, number));
                self.dirty.insert(start, end);
            }
            // A write of several records may have been done in part: the parts count one by one.
            Err(_) if is_zero => {}
            Err(_) => self.note_partial(start, end, number),
        }
    }

    fn note_partial(&mut self, start: u64, end: u64, number: u64) {
        let state = read_state(&self.log);
        let done = (start..end).take_while(|at| state[*at as usize] == number).last();
        if let Some(last) = done {
            self.writes.push((start, last + 1, number));
            self.dirty.insert(start, last + 1);
        }
    }

    fn sync(&mut self) {
        if self.log.sync(self.log.appended()).is_ok() {
            self.synced = self.writes.len();
        }
    }

    /// Everything dirty is taken as if it had reached the origin.
    fn push(&mut self) {
        let mut map = self.log.map.write();
        if map.begin_cut(Stream::Main, |_| true) {
            while !map.resolve_some(Stream::Main, 3) {}
            assert!(!map.take_resolved(Stream::Main).0.is_empty());
            map.finish_cut(Stream::Main);
            self.dirty = RangeSet::default();
        }
    }

    fn fault(&mut self) {
        let operation = ["write", "create", "rename", "sync-names", "sync"];
        let operation = operation[self.rng.random_range(0..operation.len())];
        let fault = if self.rng.random_bool(0.5) { Fault::EIO } else { Fault::Torn(28) };
        let nth = self.rng.random_range(1..4);
        self.disk.faults.fail_nth(operation, nth, fault);
    }

    fn crash(&mut self) {
        self.recycled += self.log.pool.recycled();
        let is_kill = self.rng.random_bool(0.3) && !self.log.is_failed();
        self.disk = if is_kill {
            self.disk.after_kill()
        } else {
            self.disk.after_power_failure(&mut self.rng)
        };
        let shared: Arc<dyn LogDisk> = Arc::new(self.disk.clone());
        let recovered = match open_log(&shared, CONFIG, regions()) {
            Ok(recovered) => recovered.expect("a log that was created is there"),
            // A full disk keeps a log from being opened, and takes nothing from it.
            Err(crate::OverlayError::NoSpace(_)) => {
                self.disk.grow(256 << 10);
                open_log(&shared, CONFIG, regions()).unwrap().expect("the log is there")
            }
            Err(error) => panic!("cannot open: {error}"),
        };
        assert_eq!((recovered.volume, recovered.epoch), (VOLUME, 1));
        self.log = recovered.log;
        let is_all = is_kill;
        self.check(is_all);
    }

    /// What is there is the state after some write, none older than the last that was synced.
    fn check(&mut self, is_all: bool) {
        let found = read_state(&self.log);
        let mut state = self.base.clone();
        let mut matching = None;
        for count in 0..=self.writes.len() {
            if count > 0 {
                let (start, end, number) = self.writes[count - 1];
                state[start as usize..end as usize].fill(number);
            }
            let least = if is_all { self.writes.len() } else { self.synced };
            if count >= least && state == found {
                matching = Some(count);
            }
        }
        let Some(count) = matching.or_else(|| self.partial_match(&found)) else {
            panic!("no prefix of the writes: synced {} of {}", self.synced, self.writes.len());
        };
        let dirty = self.log.map.read().all_dirty();
        // What was pushed may count as dirty again, never the other way round.
        for (start, end) in self.dirty.iter() {
            for at in start..end {
                // A lost write of zeros over zeros looks as if it were there.
                let is_there = found[at as usize] == self.last_of(at) && found[at as usize] > 0;
                let is_dirty = dirty.overlaps(at, at + 1);
                assert!(is_dirty || !is_there || count < self.writes.len(), "{at} is not dirty");
            }
        }
        self.base = found;
        self.writes.clear();
        self.synced = 0;
        self.dirty = dirty;
    }

    fn last_of(&self, at: u64) -> u64 {
        let last = self.writes.iter().rev().find(|(start, end, _)| (*start..*end).contains(&at));
        last.map_or(self.base[at as usize], |(_, _, number)| *number)
    }

    /// A write longer than a record may have survived in part: record by record, in order.
    fn partial_match(&self, found: &[u64]) -> Option<usize> {
        let mut state = self.base.clone();
        for (count, (start, end, number)) in self.writes.iter().enumerate() {
            for at in *start..*end {
                state[at as usize] = *number;
                let is_record =
                    ((at + 1 - start) * SECTOR as u64).is_multiple_of(CONFIG.record_bytes() as u64);
                if is_record && count >= self.synced && state == found {
                    return Some(count + 1);
                }
            }
        }
        None
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
    let (mut runs, mut recycled) = (0, 0);
    for seed in seeds(2000) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            (0..120).for_each(|_| run.step());
            run.crash();
            run.recycled
        });
        match run {
            Ok(count) => (runs, recycled) = (runs + 1, recycled + count),
            Err(cause) => {
                eprintln!("repeat with OVERLAY_CRASH_SEED={seed}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(recycled > runs || runs == 1, "{recycled} files used again in {runs} runs");
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
    let first = Arc::clone(&log.head.lock().segment);
    let data = [7; 16 << 10];
    for at in 0..5 {
        log.write(at * 32, &data).unwrap();
    }
    assert!(first.number < log.head.lock().segment.number);
    log.zero(32, 4 * 32).unwrap();
    let nothing = [0; 64];
    first.file.write_all_at(&mut [std::io::IoSlice::new(&nothing)], RECORDS_OFFSET).unwrap();
    let error = log.reclaim_one(100).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(!log.reclaim_one(100).unwrap(), "it is not tried again");
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
