//! Seeded crash tests of a whole volume: host, local disk and origin fail while a writer, the
//! push, the fold and take-overs go on.
//!
//! After each crash of the host, what is there is the state after some write that is not older
//! than the last flush or the last write-through that was acknowledged. After each take-over, the
//! origin holds, for each group of regions, the state after some write of that group; nothing of a
//! region of class `none`; every write-through that was acknowledged. Seeds: see `log_crash`.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use acstor_testkit::{Fault, seeded_rng};
use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::runtime::{Handle, Runtime};

use crate::core::Core;
use crate::core::requests::Change;
use crate::fold::{FoldHow, fold};
use crate::push::origin_log::{log_key, log_object_info};
use crate::push::replay::read_ranges;
use crate::push::{PushError, Wanted};
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::log_crash::seeds;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::scenarios::rotting::Rot;
use crate::scenarios::write_history::{stamp, write_of};
use crate::segments::disk::LogDisk;
use crate::segments::extent_map::Place;
use crate::segments::segment::Segment;
use crate::volume::open_core;
use crate::{Done, LogRange, Opening, OverlayError, VolumeConfig, seal};

const SECTORS: u64 = 128;
const VOLUME: DiskId = DiskId::from_bytes([9; 16]);
/// First sector and group of each region: write-back, write-through, none, another write-back.
const REGIONS: [(u64, u64, DurabilityClass); 4] = [
    (0, 48, DurabilityClass::WriteBack),
    (48, 80, DurabilityClass::WriteThrough),
    (80, 112, DurabilityClass::None),
    (112, 128, DurabilityClass::WriteBack),
];

type State = Vec<u64>;

/// The volume's record, as the control plane keeps it.
#[derive(Clone, Debug)]
struct Record {
    epoch: u32,
    next: u64,
    manifest: Option<Digest>,
    logs: Vec<LogRange>,
}

struct Run {
    rng: ChaCha8Rng,
    runtime: Handle,
    disk: MemoryDisk,
    origin: MemoryOrigin,
    record: Record,
    /// Record as this host has written it down.
    kept: Record,
    core: Arc<Core>,
    /// States before and after each write that was made since `states[0]`.
    states: Vec<State>,
    /// Index of the newest state that a flush has covered.
    flushed: usize,
    /// Index of the newest state that the origin must have, by region.
    pushed: [usize; 4],
    number: u64,
    /// The write-through region is write-back for now.
    is_relaxed: bool,
    /// The first manifest is of format 2, and so are all others.
    is_paged: bool,
    /// The disk has lost something that no sync covers: a kill may show it.
    is_lossy: bool,
}

fn durability(is_relaxed: bool) -> Durability {
    let region = |(first, last, class): (u64, u64, DurabilityClass), period_s| RegionSpec {
        first: Some(first * 512),
        last: Some(last * 512),
        partition: None,
        class,
        period_s,
    };
    let through = match is_relaxed {
        true => (REGIONS[1].0, REGIONS[1].1, DurabilityClass::WriteBack),
        false => REGIONS[1],
    };
    Durability {
        regions: vec![
            region(through, None),
            region(REGIONS[2], None),
            region(REGIONS[3], Some(5.0)),
        ],
        ..Durability::default()
    }
}

fn config() -> VolumeConfig {
    VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 1 << 20,
        reserve_bytes: 0,
        segment_bytes: 64 << 10,
        push_rate: None,
        io_timeout: Some(Duration::from_secs(30)),
        chunk_size: ChunkSize::new(4096).unwrap(),
    }
}

fn open(
    disk: &MemoryDisk,
    origin: &MemoryOrigin,
    record: &Record,
    runtime: &Handle,
    is_relaxed: bool,
) -> Result<Core, OverlayError> {
    let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
    let opening = Opening {
        volume: VOLUME,
        epoch: record.epoch,
        next: record.next,
        size_bytes: SECTORS * 512,
        manifest: record.manifest.map(|manifest| origin.manifest(&manifest)),
        logs: record.logs.clone(),
        durability: durability(is_relaxed),
    };
    let base = record.manifest.map(|manifest| {
        Arc::new(MemoryBase(Bytes::from(origin.disk(&manifest))))
            as Arc<dyn acstor_readpath::BlockView>
    });
    let sink = Arc::new(origin.clone());
    let core = open_core(&disk, config(), opening, base, sink, runtime.clone())?;
    // So that a batch takes several objects.
    core.pusher.lock().object_bytes = 64;
    Ok(core)
}

fn state_of(disk: &[u8]) -> State {
    let sectors = disk.chunks_exact(512).enumerate();
    sectors.map(|(at, sector)| write_of(at as u64, sector)).collect()
}

/// Turns a bit around.
fn flip(segment: &Segment, offset: u64) {
    let mut byte = [0];
    segment.file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 1;
    segment.file.write_all_at(&mut [IoSlice::new(&byte)], offset).unwrap();
}

impl Run {
    fn new(seed: u64, runtime: &Handle) -> Run {
        let (disk, origin) = (MemoryDisk::new(16 << 20), MemoryOrigin::default());
        let record = Record { epoch: 1, next: 1 << 16, manifest: None, logs: Vec::new() };
        let core = Arc::new(open(&disk, &origin, &record, runtime, false).unwrap());
        Run {
            rng: seeded_rng(seed),
            runtime: runtime.clone(),
            disk,
            origin,
            kept: record.clone(),
            record,
            core,
            states: vec![vec![0; SECTORS as usize]],
            flushed: 0,
            pushed: [0; 4],
            number: 0,
            is_relaxed: false,
            is_paged: seed % 2 == 1,
            is_lossy: false,
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..50 => self.write(),
            50..58 => self.flush(),
            58..60 => self.rot(),
            60..76 => self.push_one(),
            76..80 => self.push_all(),
            80..84 => drop(self.core.log.keep(VOLUME, self.record.epoch, 32 << 10)),
            84..88 => self.fault(),
            88..91 => self.fold(),
            91..92 => self.origin.late_arrive(),
            92..93 if self.rng.random_bool(0.5) => self.collect(),
            92..93 => self.change_regions(),
            93..97 => self.crash(),
            _ => self.take_over(),
        }
    }

    fn write(&mut self) {
        let start = self.rng.random_range(0..SECTORS);
        let end = (start + self.rng.random_range(1..=24)).min(SECTORS);
        let is_zero = self.rng.random_bool(0.15);
        self.number += 1;
        let number = if is_zero { 0 } else { self.number };
        let change = if is_zero {
            Change::Zeroes(start * 512, (end - start) * 512)
        } else {
            let data: Vec<u8> = (start..end).flat_map(|at| stamp(at, number)).collect();
            Change::Data(start * 512, Bytes::from(data))
        };
        let before = self.core.log.appended();
        let done = self.core.write(change, false);
        if self.core.log.appended() > before {
            let mut state = self.last().clone();
            state[start as usize..end as usize].fill(number);
            self.states.push(state);
        }
        match done {
            Done::Now(_) => {}
            Done::Later(future) | Done::Applied(future) => {
                // A write that goes through waits for the origin: give it a push.
                if self.core.log.appended() > before && self.push_to_the_end(&[1]) {
                    self.runtime.block_on(future).unwrap();
                    self.flushed = self.states.len() - 1;
                    self.pushed[1] = self.states.len() - 1;
                }
            }
        }
    }

    fn last(&self) -> &State {
        self.states.last().expect("there is a first state")
    }

    fn push_to_the_end(&mut self, groups: &[u8]) -> bool {
        let target = self.core.log.appended();
        let asked = groups.iter().map(|group| 1 << group).sum();
        for _ in 0..100 {
            if self.core.push_one(Wanted { asked, ..Wanted::default() }).is_err() {
                return false;
            }
            let pusher = self.core.pusher.lock();
            if groups.iter().all(|group| pusher.through(*group) >= target) {
                return true;
            }
        }
        panic!("a push does not end");
    }

    fn flush(&mut self) {
        let is_done = match self.core.flush() {
            Some(future) => self.runtime.block_on(future).is_ok(),
            None => true,
        };
        if is_done {
            self.flushed = self.states.len() - 1;
        }
    }

    /// A push syncs what it carries, and that is everything but what never travels.
    fn note_synced(&mut self) {
        if self.core.log.synced() == self.core.log.appended() {
            self.flushed = self.states.len() - 1;
        }
    }

    fn push_one(&mut self) {
        let mut groups = || self.rng.random_range(0..16_u32);
        let (asked, due) = (groups() & groups(), groups());
        let (is_held, is_whole) = (self.rng.random_bool(0.2), self.rng.random_bool(0.1));
        let is_paced = self.rng.random_bool(0.2);
        let is_hurried = self.rng.random_bool(0.2);
        let wanted = Wanted { asked, due, is_held, is_whole, is_paced, is_hurried };
        if let Err(PushError::Fenced(why)) = self.core.push_one(wanted) {
            panic!("the owner is fenced: {why}");
        }
    }

    fn push_all(&mut self) {
        match self.core.push_all() {
            Ok(_) => {
                self.pushed = [self.states.len() - 1; 4];
                self.note_synced();
            }
            Err(OverlayError::Fenced(_)) => panic!("the owner is fenced"),
            Err(_) => {}
        }
    }

    /// Groups get other regions and numbers, whatever is under way.
    fn change_regions(&mut self) {
        self.is_relaxed = !self.is_relaxed;
        self.core.apply_regions(&durability(self.is_relaxed), &[], 0);
    }

    fn fault(&mut self) {
        let nth = self.rng.random_range(1..4);
        if self.rng.random_bool(0.7) {
            let operation = ["put", "put-answer", "put-late", "get", "list"];
            let operation = operation[self.rng.random_range(0..operation.len())];
            self.origin.faults.fail_nth(operation, nth, Fault::EIO);
        } else if self.rng.random_bool(0.2) {
            self.is_lossy |= self.disk.fail_writeback();
        } else {
            let operation = ["read", "write", "create", "sync", "rename"];
            let operation = operation[self.rng.random_range(0..operation.len())];
            self.disk.faults.fail_nth(operation, nth, Fault::Torn(5));
        }
    }

    /// The collector removes what neither the record nor this host refers to.
    fn collect(&self) {
        for slot in (1 << 16)..self.record.next {
            for epoch in 1..=self.record.epoch {
                let is_of = |range: &LogRange| {
                    range.epoch == epoch && (range.first..=range.last).contains(&slot)
                };
                // A seal of an epoch before is kept.
                let key = log_key(VOLUME, epoch, slot);
                let is_seal = |object: &Bytes| log_object_info(object).unwrap().is_seal;
                if !self.record.logs.iter().any(is_of)
                    && !self.origin.object(&key).as_ref().is_some_and(is_seal)
                {
                    self.origin.remove(&key);
                }
            }
        }
    }

    fn fold(&mut self) {
        if (self.kept.manifest, self.kept.next) != (self.record.manifest, self.record.next) {
            return; // refused, until this host has looked at the record
        }
        let mut names = Vec::new();
        let mut announce = |packs: &[acstor_types::PackId], manifest: Option<Digest>| {
            names = packs.to_vec();
            names.extend(manifest.map(acstor_types::PackId));
            Ok(())
        };
        let how = FoldHow { is_paged: self.is_paged, ..FoldHow::default() };
        let Ok(Some(folded)) = fold(&self.core, &mut announce, &how) else { return };
        assert_eq!(names.last().map(|name| name.0), Some(folded.digest));
        self.pushed = [self.states.len() - 1; 4];
        self.note_synced();
        if self.rng.random_bool(0.3) {
            return;
        }
        self.record.manifest = Some(folded.digest);
        self.record.logs.clear();
        if folded.until.epoch == self.record.epoch {
            self.record.next = folded.until.sequence + 1;
        }
        if self.rng.random_bool(0.8) {
            let base = MemoryBase(Bytes::from(self.origin.disk(&folded.digest)));
            self.core.base.store(Some(Arc::new(crate::base::Base(Arc::new(base)))));
            self.core.refetch.folded(&folded.until, VOLUME);
            folded.drop_from(&self.core, self.origin.manifest(&folded.digest));
            self.kept = self.record.clone();
        } else {
            // Killed between the record and the base.
            self.crash();
        }
    }

    fn read_state(&self) -> State {
        state_of(&self.core.read_bytes(0, (SECTORS * 512) as usize).unwrap())
    }

    /// Records that the origin has rot, and are read: the host does not notice, unless it is behind the
    /// record, and what it would need was collected.
    fn rot(&mut self) {
        if self.is_lossy || self.core.log.is_failed() {
            return;
        }
        self.origin.faults.disarm();
        self.disk.faults.disarm();
        let rotten = self.clean_records();
        rotten.iter().for_each(|(segment, offset)| flip(segment, *offset));
        let read = self.core.read_bytes(0, (SECTORS * 512) as usize);
        // A scan from the checkpoint before would end at them.
        rotten.iter().for_each(|(segment, offset)| flip(segment, *offset));
        match read {
            Ok(bytes) => assert_eq!(&state_of(&bytes), self.last(), "{} records", rotten.len()),
            Err(error) => {
                let is_behind = self.kept.next != self.record.next
                    || self.kept.manifest != self.record.manifest;
                assert!(is_behind, "{error}");
            }
        }
    }

    /// Returns a byte of some records each that are alive on the origin, too, as far as they live.
    fn clean_records(&mut self) -> Vec<(Arc<Segment>, u64)> {
        drop(self.read_state()); // now all records are known
        let map = self.core.log.map();
        let mut records: BTreeMap<(u32, u64), (bool, u64)> = BTreeMap::new();
        for extent in map.extents.range(0, SECTORS) {
            let Place::Log { segment, offset } = extent.place else { continue };
            let record = map.segments[&segment].record_at(offset).expect("it was read");
            let found = records.entry((segment, record.offset())).or_insert((true, offset));
            found.0 &= map.is_clean(extent.start, extent.end);
            found.1 = offset + self.rng.random_range(0..extent.bytes());
        }
        let clean = records.into_iter().filter(|(_, (is_clean, _))| *is_clean);
        let chosen = clean.filter(|_| self.rng.random_bool(0.5));
        chosen
            .map(|((number, _), (_, offset))| (Arc::clone(&map.segments[&number]), offset))
            .collect()
    }

    /// The host loses power, or the process is killed; the same owner goes on.
    fn crash(&mut self) {
        let is_kill = self.rng.random_bool(0.5);
        let is_all = is_kill && !self.is_lossy && !self.core.log.is_failed();
        self.disk = if is_kill {
            self.disk.after_kill()
        } else {
            self.disk.after_power_failure(&mut self.rng)
        };
        self.origin.faults.disarm();
        if self.rng.random_bool(0.5) {
            self.disk.evict(false);
        }
        if self.rng.random_bool(0.5) {
            self.collect();
        }
        if self.rng.random_bool(0.5) {
            // The origin answers: the host looks at the record.
            self.kept = self.record.clone();
        }
        if self.rng.random_bool(0.4) {
            self.open_rotten();
        }
        let open = || open(&self.disk, &self.origin, &self.kept, &self.runtime, self.is_relaxed);
        // Writes to segments may have failed before, and nobody was told until now.
        let opened = (0..16).find_map(|_| open().ok());
        self.core = Arc::new(opened.expect("each failure is told once"));
        self.is_lossy = false;
        let found = self.read_state();
        let least = if is_all { self.states.len() - 1 } else { self.flushed };
        // The newest of equal ones: the origin may have what was written between them.
        let index = (least..self.states.len()).rfind(|index| self.states[*index] == found);
        let index = index.unwrap_or_else(|| {
            let differs = |state: &State| -> Vec<_> {
                let pairs = state.iter().zip(&found).enumerate();
                pairs.filter(|(_, (a, b))| a != b).map(|(at, (a, b))| (at, *a, *b)).collect()
            };
            let states = self.states.iter().enumerate();
            let nearest = states.map(|(index, s)| (differs(s).len(), index, differs(s))).min();
            panic!(
                "not a state from {least} of {} on (killed: {is_kill}); nearest, with sector, \
                 expected, found: {nearest:?}",
                self.states.len()
            )
        });
        self.states.truncate(index + 1);
        self.flushed = index;
        self.pushed = self.pushed.map(|pushed| pushed.min(index));
        assert_eq!(self.last(), &found);
    }

    /// Flushed records rot before the log is opened: what is read is right or an error, or the volume is
    /// not opened. Then they are whole again.
    fn open_rotten(&mut self) {
        let Some(rot) = Rot::new(&self.disk, &mut self.rng) else { return };
        let open = || open(&self.disk, &self.origin, &self.kept, &self.runtime, self.is_relaxed);
        if rot.is_header {
            let error = open().err();
            assert!(matches!(error, Some(OverlayError::Corrupt(_))), "{error:?}");
            return rot.mend();
        }
        let opened = (0..16).find_map(|_| open().ok()).expect("each failure is told once");
        let (core, ranges) = (Arc::new(opened), rot.ranges());
        let read = |at| core.read_bytes(at * 512, 512).ok().map(|bytes| write_of(at, &bytes));
        let found: Vec<_> = (0..SECTORS).map(read).collect();
        rot.mend();
        let right = core.read_bytes(0, (SECTORS * 512) as usize).unwrap();
        Rot::check(&ranges, &found, &state_of(&right));
        core.log.sync(core.log.appended()).unwrap();
    }

    /// Another host becomes the owner; the old one goes on and is fenced.
    fn take_over(&mut self) {
        self.origin.faults.disarm();
        let zombie = Arc::clone(&self.core);
        if self.rng.random_bool(0.5) {
            self.origin.late_arrive();
        }
        let (epoch, next) = (self.record.epoch, self.record.next);
        let sealed = seal(&self.origin, VOLUME, epoch, next).unwrap();
        assert_eq!(seal(&self.origin, VOLUME, epoch, next).unwrap(), sealed, "sealed twice");
        self.origin.late_arrive();
        let range = sealed.last.map(|last| LogRange { volume: VOLUME, epoch, first: next, last });
        self.record.logs.extend(range);
        self.record.epoch += 1;
        self.record.next = sealed.seal + 1;
        self.kept = self.record.clone();
        self.is_lossy = false;
        self.check_zombie(&zombie);
        let found = self.origin_state();
        self.check_prefixes(&found);
        self.disk = MemoryDisk::new(16 << 20);
        let core =
            open(&self.disk, &self.origin, &self.record, &self.runtime, self.is_relaxed).unwrap();
        self.core = Arc::new(core);
        assert_eq!(self.read_state(), found, "a replay gives what the origin holds");
        self.states = vec![found];
        self.flushed = 0;
        self.pushed = [0; 4];
    }

    fn check_zombie(&self, zombie: &Arc<Core>) {
        let data = Bytes::from(stamp(50, u64::MAX).to_vec());
        let before = zombie.log.appended();
        let done = zombie.write(Change::Data(50 * 512, data), false);
        if zombie.log.appended() == before {
            return; // its disk has failed, or is full
        }
        assert!(self.is_relaxed || matches!(done, Done::Applied(_)), "nobody has stored it");
        let all = Wanted { asked: 0b1111, ..Wanted::default() };
        // A late answer to the process before makes it look once more.
        let refused = (0..200).find_map(|_| match zombie.push_one(all) {
            Ok(_) | Err(PushError::Retry(_)) => None,
            Err(error) => Some(error),
        });
        match refused {
            Some(PushError::Fenced(_) | PushError::Local(_)) => {}
            other => panic!("a host that lost the volume is not fenced: {other:?}"),
        }
    }

    /// Returns the state that a new owner would find.
    fn origin_state(&self) -> State {
        let mut disk = match &self.record.manifest {
            Some(manifest) => self.origin.disk(manifest),
            None => vec![0; (SECTORS * 512) as usize],
        };
        read_ranges(&self.origin, &self.record.logs, |record| {
            let target = &mut disk[record.offset as usize..(record.offset + record.len) as usize];
            match record.content {
                Some(content) => target.copy_from_slice(&content),
                None => target.fill(0),
            }
            Ok(())
        })
        .unwrap();
        state_of(&disk)
    }

    fn check_prefixes(&self, found: &State) {
        for (number, (start, end, class)) in REGIONS.into_iter().enumerate() {
            let range = start as usize..end as usize;
            if class == DurabilityClass::None {
                assert!(found[range].iter().all(|write| *write == 0), "{class:?} has travelled");
                continue;
            }
            let least = self.pushed[number];
            let is_prefix =
                self.states[least..].iter().any(|s| s[range.clone()] == found[range.clone()]);
            assert!(is_prefix, "region {number} is no state from {least} on: {found:?}");
        }
    }
}

#[test]
fn whatever_fails_the_origin_is_a_prefix_and_the_host_has_what_was_flushed() {
    let runtime = Runtime::new().unwrap();
    for seed in seeds(400) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed, runtime.handle());
            (0..150).for_each(|_| run.step());
            run.crash();
            run.push_all();
            let (local, least) = (run.read_state(), run.states.len() - 1);
            assert_eq!(run.pushed, [least; 4], "the origin is sound: the push succeeds");
            run.take_over();
            for (start, end, class) in REGIONS {
                let range = start as usize..end as usize;
                let is_same = run.states[0][range.clone()] == local[range];
                assert!(is_same || class == DurabilityClass::None);
            }
        });
        if let Err(cause) = run {
            eprintln!("repeat with OVERLAY_CRASH_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}
