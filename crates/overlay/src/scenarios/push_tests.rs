//! Priority of pushes: a caller that waits for the origin does not wait for what others push.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::core::Core;
use crate::core::requests::Change;
use crate::push::Wanted;
use crate::push::origin_log::{log_key, log_object_info};
use crate::regions::RegionMap;
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::volume::open_core;
use crate::{
    BlockDevice, DeviceFuture, Done, LogRange, Opening, OriginSink, SinkError, Volume,
    VolumeConfig, seal,
};

const VOLUME: DiskId = DiskId::from_bytes([8; 16]);
const SIZE: u64 = 64 << 20;
const FIRST: u64 = 50;
/// The first half of the disk is write-back, the other one write-through.
const THROUGH: u64 = SIZE / 2;
const WRITE_BACK: u32 = 1;
const WRITE_THROUGH: u32 = 2;

struct Host {
    runtime: Runtime,
    disk: MemoryDisk,
    origin: MemoryOrigin,
    core: Arc<Core>,
}

fn durability() -> Durability {
    let region = RegionSpec {
        first: Some(THROUGH),
        last: Some(SIZE),
        partition: None,
        class: DurabilityClass::WriteThrough,
        period_s: None,
    };
    Durability { regions: vec![region], ..Durability::default() }
}

fn config() -> VolumeConfig {
    VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 256 << 20,
        reserve_bytes: 0,
        segment_bytes: 1 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    }
}

fn opening(epoch: u32, next: u64, logs: Vec<LogRange>) -> Opening {
    let durability = durability();
    let (volume, size_bytes, manifest) = (VOLUME, SIZE, None);
    Opening { volume, epoch, next, size_bytes, manifest, logs, durability }
}

fn open(runtime: &Runtime, disk: &MemoryDisk, sink: &MemoryOrigin, opening: Opening) -> Arc<Core> {
    let disk: Arc<dyn crate::LogDisk> = Arc::new(disk.clone());
    let sink = Arc::new(sink.clone());
    let core = open_core(&disk, config(), opening, None, sink, runtime.handle().clone()).unwrap();
    core.pusher.lock().object_bytes = 64;
    Arc::new(core)
}

impl Host {
    fn new() -> Host {
        let (runtime, disk) = (Runtime::new().unwrap(), MemoryDisk::new(1 << 30));
        let origin = MemoryOrigin::default();
        let core = open(&runtime, &disk, &origin, opening(1, FIRST, Vec::new()));
        Host { runtime, disk, origin, core }
    }

    fn write(&self, offset: u64, byte: u8) -> Option<DeviceFuture<()>> {
        let content = Bytes::from((0..=255).chain(0..=255).map(|n| n ^ byte).collect::<Vec<u8>>());
        match self.core.write(Change::Data(offset, content), false) {
            Done::Later(future) | Done::Applied(future) => Some(future),
            Done::Now(outcome) => {
                outcome.unwrap();
                None
            }
        }
    }

    /// Writes that take as many objects.
    fn write_back(&self, count: u64, byte: u8) {
        for number in 0..count {
            assert!(self.write(number * 4096, byte).is_none());
        }
    }

    /// Returns whether it uses the rate up.
    fn step(&self, wanted: Wanted) -> bool {
        self.core.push_one(wanted).unwrap() > 0
    }

    fn asked(groups: u32) -> Wanted {
        Wanted { asked: groups, ..Wanted::default() }
    }

    fn due(groups: u32) -> Wanted {
        Wanted { due: groups, ..Wanted::default() }
    }

    fn stored(&self) -> Vec<(bool, bool)> {
        let infos = (FIRST..).map_while(|slot| self.origin.object(&log_key(VOLUME, 1, slot)));
        let infos = infos.map(|object| log_object_info(&object).unwrap());
        infos.filter(|info| !info.is_seal).map(|info| (info.is_preempting, info.has_more)).collect()
    }

    /// First byte of each place, as the next owner finds it.
    fn elsewhere(&self, places: &[u64]) -> Vec<u8> {
        let sealed = seal(&self.origin, VOLUME, 1, FIRST).unwrap();
        self.read_log(sealed.last, sealed.seal + 1, places)
    }

    /// The same, as of a slot.
    fn at(&self, slot: u64, places: &[u64]) -> Vec<u8> {
        self.read_log(Some(slot), slot + 1, places)
    }

    fn read_log(&self, last: Option<u64>, next: u64, places: &[u64]) -> Vec<u8> {
        let range = |last| LogRange { volume: VOLUME, epoch: 1, first: FIRST, last };
        let logs = last.map(range).into_iter().collect();
        let disk = MemoryDisk::new(1 << 30);
        let core = open(&self.runtime, &disk, &self.origin, opening(2, next, logs));
        places.iter().map(|place| core.read_bytes(*place, 512).unwrap()[0]).collect()
    }
}

const MORE: (bool, bool) = (false, true);
const LAST: (bool, bool) = (false, false);
const ASIDE: (bool, bool) = (true, false);

#[test]
fn cut_begins_only_while_partitions_are_known() {
    let host = Host::new();
    host.write_back(1, 1);
    let step = |is_known: bool| {
        let mut pusher = host.core.pusher.lock();
        pusher.step(&host.core.log, Host::asked(WRITE_BACK), &|| is_known).unwrap();
    };
    step(false);
    assert!(host.stored().is_empty(), "a table was written between the question and the cut");
    step(true);
    assert_eq!(host.stored().len(), 1);
}

#[test]
fn write_through_overtakes_a_long_batch_and_leaves_it_whole() {
    let host = Host::new();
    host.write_back(10, 1);
    host.step(Host::due(WRITE_BACK));
    host.step(Host::due(WRITE_BACK));
    let waiter = host.write(THROUGH, 2).unwrap();
    host.step(Host::asked(WRITE_THROUGH));
    host.runtime.block_on(waiter).unwrap();
    assert_eq!(host.stored(), [MORE, MORE, ASIDE]);
    // Somebody who waits all the time does not stop the other batch.
    for _ in 0..3 {
        drop(host.write(THROUGH, 3));
        host.step(Host::asked(WRITE_THROUGH));
        host.step(Host::asked(WRITE_THROUGH));
    }
    assert_eq!(host.stored()[3..], [MORE, ASIDE, MORE, ASIDE, MORE, ASIDE]);
    assert_eq!(
        host.elsewhere(&[THROUGH, 0, 4096]),
        [3, 0, 0],
        "the other batch counts for nothing"
    );
}

#[test]
fn batch_that_was_overtaken_counts_when_it_ends() {
    let host = Host::new();
    host.write_back(5, 1);
    host.step(Host::due(WRITE_BACK));
    drop(host.write(THROUGH, 2));
    host.step(Host::asked(WRITE_THROUGH));
    // Written after the cut: not in it.
    host.write_back(1, 7);
    while host.core.pusher.lock().is_under_way() {
        host.step(Host::due(WRITE_BACK));
    }
    assert_eq!(host.stored().last(), Some(&LAST));
    assert_eq!(host.elsewhere(&[THROUGH, 0, 4 * 4096]), [2, 1, 1]);
}

#[test]
fn rate_holds_what_nobody_waits_for_and_nothing_else() {
    let host = Host::new();
    host.write_back(5, 1);
    assert!(host.step(Host::due(WRITE_BACK)));
    for _ in 0..3 {
        let waiter = host.write(THROUGH, 2).unwrap();
        assert!(!host.step(Wanted { is_held: true, ..Host::asked(WRITE_THROUGH) }));
        host.runtime.block_on(waiter).unwrap();
    }
    assert!(!host.step(Wanted { is_held: true, ..Host::due(WRITE_BACK) }));
    assert_eq!(host.stored(), [MORE, ASIDE, ASIDE, ASIDE]);
    // Somebody waits for it: a flush that goes to the origin.
    assert!(!host.step(Wanted { is_held: true, ..Host::asked(WRITE_BACK) }));
    assert_eq!(host.stored()[4..], [MORE]);
    // Others wait, and it is its turn.
    assert!(host.write(THROUGH, 3).is_some());
    assert!(!host.step(Host::asked(WRITE_THROUGH)));
    assert!(host.step(Host::asked(WRITE_THROUGH)));
}

#[test]
fn object_that_may_be_stored_already_keeps_its_slot() {
    let host = Host::new();
    host.write_back(5, 1);
    host.step(Host::due(WRITE_BACK));
    host.origin.faults.fail_nth("put-late", 1, acstor_testkit::Fault::EIO);
    assert!(host.core.push_one(Host::due(WRITE_BACK)).is_err());
    drop(host.write(THROUGH, 2));
    host.origin.late_arrive();
    host.step(Host::asked(WRITE_THROUGH));
    host.step(Host::asked(WRITE_THROUGH));
    assert_eq!(host.stored(), [MORE, MORE, ASIDE]);
}

#[test]
fn batch_of_the_process_before_is_not_ended_by_another_one() {
    let mut host = Host::new();
    host.write_back(5, 1);
    host.step(Host::due(WRITE_BACK));
    host.core = open(&host.runtime, &host.disk, &host.origin, opening(1, FIRST, Vec::new()));
    let waiter = host.write(THROUGH, 2).unwrap();
    host.step(Host::asked(WRITE_THROUGH));
    host.runtime.block_on(waiter).unwrap();
    assert_eq!(host.stored(), [MORE, ASIDE]);
    host.write_back(5, 3);
    host.step(Host::due(WRITE_BACK));
    host.step(Host::asked(WRITE_THROUGH));
    assert_eq!(host.elsewhere(&[THROUGH, 0, 4 * 4096]), [2, 0, 0]);
}

#[test]
fn preempting_batch_of_the_process_before_is_ended_first() {
    let mut host = Host::new();
    host.write_back(3, 1);
    host.step(Host::due(WRITE_BACK));
    for number in 0..4 {
        drop(host.write(THROUGH + number * 4096, 2));
    }
    host.step(Host::asked(WRITE_THROUGH));
    assert_eq!(host.stored(), [MORE, (true, true)]);
    host.core = open(&host.runtime, &host.disk, &host.origin, opening(1, FIRST, Vec::new()));
    host.write_back(1, 7);
    host.core.push_all().unwrap();
    let stored = host.stored();
    assert!(stored[1..].iter().all(|(is_preempting, _)| *is_preempting));
    assert_eq!(stored.last(), Some(&ASIDE));
    assert_eq!(host.elsewhere(&[THROUGH, THROUGH + 3 * 4096, 0, 4096]), [2, 2, 7, 1]);
}

#[test]
fn moment_that_is_asked_for_is_one_of_all_groups() {
    let host = Host::new();
    host.write_back(3, 1);
    host.step(Host::due(WRITE_BACK));
    drop(host.write(THROUGH, 2));
    host.write_back(1, 3);
    host.core.push_all().unwrap();
    assert_eq!(host.stored().iter().filter(|(is_preempting, _)| *is_preempting).count(), 0);
    assert_eq!(host.elsewhere(&[THROUGH, 0, 4096]), [2, 3, 1]);
}

/// Has others store content before the requester of a moment looks for its end.
fn moment_with_later_content(store: impl Fn(&Host)) {
    let host = Host::new();
    host.write_back(3, 1);
    drop(host.write(THROUGH, 1));
    let target = host.core.log.appended();
    while host.stored().last() != Some(&LAST) {
        host.step(Wanted { is_whole: true, ..Host::asked(WRITE_BACK | WRITE_THROUGH) });
    }
    let moment = FIRST + host.stored().len() as u64 - 1;
    host.write_back(2, 2);
    let waiter = host.write(THROUGH, 2).unwrap();
    store(&host);
    let named = host.core.push_until(target, RegionMap::pushed_groups, true).unwrap();
    assert_eq!(named, moment);
    assert_eq!(host.at(named, &[0, 4096, THROUGH]), [1, 1, 1]);
    // The next one has what was written since.
    let named = host.core.push_all().unwrap();
    host.runtime.block_on(waiter).unwrap();
    assert_eq!(host.at(named, &[0, 4096, THROUGH]), [2, 2, 2]);
    assert_eq!(host.core.push_all().unwrap(), named, "nothing was written since");
}

#[test]
fn moment_that_was_asked_for_has_no_later_write_of_another_group() {
    moment_with_later_content(|host| {
        host.step(Host::asked(WRITE_THROUGH));
        assert_eq!(host.stored().last(), Some(&LAST));
    });
}

#[test]
fn moment_that_was_asked_for_does_not_end_in_the_next_batch() {
    moment_with_later_content(|host| {
        host.step(Host::due(WRITE_BACK));
        assert_eq!(host.stored().last(), Some(&MORE));
    });
}

#[test]
fn batch_that_nobody_waits_for_is_spread_over_its_period() {
    let host = Host::new();
    let now = Instant::now();
    host.write_back(4, 1);
    assert!(host.core.pusher.lock().paced(now).is_none(), "nothing is under way");
    host.step(Host::due(WRITE_BACK));
    let period = Duration::from_secs(30);
    let (next, apart) = host.core.pusher.lock().paced(Instant::now()).unwrap();
    assert_eq!(apart, WRITE_THROUGH);
    // A quarter of it is stored.
    let after = next.duration_since(now).as_secs_f64() / period.as_secs_f64();
    assert!((0.2..0.25).contains(&after), "{after}");
    assert!(host.core.pusher.lock().paced(now + period).is_none(), "its time has come");
    // It waits, and neither who asks for others nor what is due of others does.
    let paced = |wanted| Wanted { is_paced: true, ..wanted };
    host.step(paced(Host::due(WRITE_BACK)));
    drop(host.write(THROUGH, 2));
    host.step(paced(Host::asked(WRITE_THROUGH)));
    drop(host.write(THROUGH, 3));
    host.step(paced(Host::due(WRITE_THROUGH)));
    assert_eq!(host.stored(), [MORE, ASIDE, ASIDE]);
    // Nor does the batch itself when somebody waits for it.
    host.step(paced(Host::asked(WRITE_BACK)));
    host.step(Host::due(WRITE_BACK));
    host.core.push_all().unwrap();
    assert_eq!(host.stored()[3..], [MORE, MORE, LAST]);
    assert_eq!(host.elsewhere(&[0, 3 * 4096, THROUGH]), [1, 1, 3]);
}

#[test]
fn batch_whose_regions_have_changed_is_not_spread() {
    let host = Host::new();
    host.write_back(4, 1);
    host.step(Host::due(WRITE_BACK));
    let now = Instant::now();
    assert!(host.core.pusher.lock().paced(now).is_some());
    let durability = Durability { default: DurabilityClass::WriteThrough, ..durability() };
    host.core.apply_regions(&durability, &[], 0);
    assert!(host.core.pusher.lock().paced(now).is_none(), "what is due now waits for it");
}

#[test]
fn objects_of_a_period_reach_the_origin_one_by_one() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let config = VolumeConfig { directory: directory.path().join("volume"), ..config() };
    let sink = Arc::new(TimedOrigin::default());
    let durability = Durability { period_s: 1.0, ..Durability::default() };
    let opening = Opening { durability, ..opening(1, FIRST, Vec::new()) };
    let origin: Arc<dyn OriginSink> = sink.clone();
    let volume = Volume::open(config, opening, None, origin, runtime.handle().clone()).unwrap();
    volume.core.pusher.lock().object_bytes = 1;
    for number in 0..8 {
        let content = Bytes::from(vec![number as u8 + 1; 512]);
        assert!(matches!(volume.write(number * 4096, content, false), Done::Now(Ok(()))));
    }
    while volume.status().dirty_bytes > 0 {
        std::thread::yield_now();
    }
    let times = sink.times.lock();
    assert_eq!(times.len(), 8);
    // A busy machine makes it longer, never shorter.
    assert!(times[7].duration_since(times[0]) > Duration::from_millis(300), "{times:?}");
}

/// An origin that remembers when objects came.
#[derive(Default)]
struct TimedOrigin {
    origin: MemoryOrigin,
    times: parking_lot::Mutex<Vec<Instant>>,
}

impl OriginSink for TimedOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.times.lock().push(Instant::now());
        self.origin.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.origin.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.origin.list(prefix)
    }
}

/// An origin during whose storing of one object a guest writes through.
struct WritingOrigin {
    origin: MemoryOrigin,
    /// The device, once it is open, and after how many objects it is written to.
    device: parking_lot::Mutex<Option<(Arc<Core>, usize)>>,
    waiters: parking_lot::Mutex<Vec<DeviceFuture<()>>>,
}

impl OriginSink for WritingOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        let is_new = self.origin.put_if_absent(key, parts)?;
        let mut device = self.device.lock();
        if let Some((core, left)) = device.as_mut() {
            *left -= 1;
            if *left == 0 {
                let content = Bytes::from(vec![7; 512]);
                if let Done::Applied(waiter) = core.write(Change::Data(THROUGH, content), false) {
                    self.waiters.lock().push(waiter);
                }
                *device = None;
            }
        }
        Ok(is_new)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.origin.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.origin.list(prefix)
    }
}

#[test]
fn write_through_overtakes_a_push_of_everything() {
    let (runtime, disk) = (Runtime::new().unwrap(), MemoryDisk::new(1 << 30));
    let sink = Arc::new(WritingOrigin {
        origin: MemoryOrigin::default(),
        device: parking_lot::Mutex::default(),
        waiters: parking_lot::Mutex::default(),
    });
    let log_disk: Arc<dyn crate::LogDisk> = Arc::new(disk);
    let opening = opening(1, FIRST, Vec::new());
    let origin: Arc<dyn OriginSink> = sink.clone();
    let core = open_core(&log_disk, config(), opening, None, origin, runtime.handle().clone());
    let core = Arc::new(core.unwrap());
    core.pusher.lock().object_bytes = 256 << 10;
    // Nothing of it compresses.
    let noise = |at: u64| {
        let digests =
            (0..2048_u64).map(|n| acstor_types::Digest::of(&(at << 16 | n).to_le_bytes()));
        Bytes::from(digests.flat_map(|digest| *digest.as_bytes()).collect::<Vec<u8>>())
    };
    for number in 0..64 {
        assert!(matches!(
            core.write(Change::Data(number << 16, noise(number)), false),
            Done::Now(Ok(()))
        ));
    }
    *sink.device.lock() = Some((Arc::clone(&core), 2));
    core.push_all().unwrap();
    let waiter = sink.waiters.lock().pop().expect("somebody wrote through");
    runtime.block_on(waiter).unwrap();
    let infos = (FIRST..).map_while(|slot| sink.origin.object(&log_key(VOLUME, 1, slot)));
    let preempting = infos.map(|object| log_object_info(&object).unwrap().is_preempting);
    let preempting: Vec<bool> = preempting.collect();
    assert!(preempting.len() > 12, "{preempting:?}");
    assert!(preempting[..4].contains(&true), "it waited for the rest: {preempting:?}");
    let (last, main) = (preempting.len() as u64 + FIRST - 1, core.pusher.lock().is_settled());
    assert!(main);
    let range = LogRange { volume: VOLUME, epoch: 1, first: FIRST, last };
    let disk = MemoryDisk::new(1 << 30);
    let elsewhere = open(&runtime, &disk, &sink.origin, self::opening(2, last + 2, vec![range]));
    assert_eq!(elsewhere.read_bytes(THROUGH, 512).unwrap(), [7; 512]);
    assert_eq!(elsewhere.read_bytes(63 << 16, 64 << 10).unwrap(), noise(63));
}

#[test]
fn new_waiter_has_an_origin_that_failed_tried_again() {
    let host = Host::new();
    let long = Instant::now() + Duration::from_secs(600);
    std::thread::scope(|scope| {
        let arrivals = host.core.queue.arrivals();
        let earliest = Instant::now() + Duration::from_millis(50);
        let core = &host.core;
        let waiting = scope.spawn(move || {
            core.queue.wait_for_retry(&core.life, arrivals, earliest, long);
            Instant::now()
        });
        drop(host.write(THROUGH, 1));
        let ended = waiting.join().unwrap();
        assert!(ended >= earliest && ended < long);
    });
    // Nobody new: only time helps, however many wake it up.
    let (arrivals, now) = (host.core.queue.arrivals(), Instant::now());
    host.core.queue.wait_for_retry(&host.core.life, arrivals, now, now + Duration::from_millis(30));
    assert!(now.elapsed() >= Duration::from_millis(30));
}

/// An origin that takes its time for each object.
struct SlowOrigin(MemoryOrigin, Duration);

impl OriginSink for SlowOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        let ready = Instant::now() + self.1;
        while let Some(rest) = ready.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(rest);
        }
        self.0.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.0.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.0.list(prefix)
    }
}

#[test]
fn origin_that_is_slow_is_waited_for_as_long_as_it_stores() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let config = VolumeConfig {
        directory: directory.path().join("volume"),
        io_timeout: Some(Duration::from_secs(1)),
        push_rate: Some(1),
        ..config()
    };
    let sink = Arc::new(SlowOrigin(MemoryOrigin::default(), Duration::from_millis(200)));
    let opening = opening(1, FIRST, Vec::new());
    let volume = Volume::open(config, opening, None, sink, runtime.handle().clone()).unwrap();
    volume.core.pusher.lock().object_bytes = 1;
    let writes: Vec<_> = (0..10)
        .map(|number| {
            let content = Bytes::from(vec![number as u8 + 1; 512]);
            match volume.write(THROUGH + number * 4096, content, false) {
                Done::Later(future) | Done::Applied(future) => future,
                Done::Now(outcome) => panic!("not yet: {outcome:?}"),
            }
        })
        .collect();
    for write in writes {
        runtime.block_on(write).unwrap();
    }
}
