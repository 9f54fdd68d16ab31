//! Volumes with their threads, on a real directory and an origin in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_readpath::{BlockView, ExtentKind, ReadError, ReadFuture, Segment, TryRead as BaseRead};
use acstor_testkit::Fault;
use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::push::origin_log::log_prefix;
use crate::regions::durability::{Durability, DurabilityClass, FlushTarget, RegionSpec};
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, Done, ExtentQuery, FoldHow, LogRange, Opening,
    OverlayError, Piece, TryRead, Volume, VolumeConfig, VolumeState, ZeroHow, seal,
};

const VOLUME: DiskId = DiskId::from_bytes([7; 16]);
const SIZE: u64 = 8 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

struct Host {
    runtime: Runtime,
    directory: TempDir,
    origin: MemoryOrigin,
}

impl Host {
    fn new() -> Host {
        let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        Host { runtime, directory, origin: MemoryOrigin::default() }
    }

    fn config(path: &Path) -> VolumeConfig {
        VolumeConfig {
            directory: path.join("volume"),
            quota_bytes: 8 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: Some(DEADLINE),
            chunk_size: ChunkSize::DEFAULT,
        }
    }

    fn opening(durability: Durability) -> Opening {
        Opening {
            volume: VOLUME,
            epoch: 1,
            next: 100,
            size_bytes: SIZE,
            manifest: None,
            logs: Vec::new(),
            durability,
        }
    }

    fn try_open(
        &self,
        opening: Opening,
        base: Option<Arc<dyn BlockView>>,
    ) -> Result<Arc<Volume>, OverlayError> {
        let (config, sink) = (Host::config(self.directory.path()), Arc::new(self.origin.clone()));
        Volume::open(config, opening, base, sink, self.runtime.handle().clone())
    }

    fn open(&self, durability: Durability) -> Arc<Volume> {
        self.try_open(Host::opening(durability), None).unwrap()
    }

    fn wait<T>(&self, done: Done<T>) -> Result<T, DeviceError> {
        let timeout = async { tokio::time::timeout(DEADLINE, done.outcome()).await };
        self.runtime.block_on(timeout).expect("an answer before the deadline")
    }

    fn read(&self, volume: &Volume, offset: u64, len: usize) -> Vec<u8> {
        let pieces = self.runtime.block_on(volume.read(offset, len)).unwrap();
        assert_eq!(pieces.iter().map(Piece::len).sum::<usize>(), len);
        volume.core.read_bytes(offset, len).unwrap()
    }

    fn objects(&self) -> usize {
        self.origin.keys(&log_prefix(VOLUME, 1)).len()
    }
}

pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn data(byte: u8, len: usize) -> Bytes {
    Bytes::from(vec![byte; len])
}

fn slow() -> Durability {
    Durability { period_s: 3600.0, ..Durability::default() }
}

fn through() -> Durability {
    Durability { default: DurabilityClass::WriteThrough, ..Durability::default() }
}

#[test]
fn reads_merge_the_log_with_the_base() {
    let host = Host::new();
    let base = MemoryBase(data(1, 1 << 20));
    let volume = host.try_open(Host::opening(slow()), Some(Arc::new(base))).unwrap();
    host.wait(volume.write(4096, data(2, 4096), false)).unwrap();
    host.wait(volume.write_zeroes(12288, 4096, ZeroHow::default())).unwrap();
    let expected = [vec![1; 4096], vec![2; 4096], vec![1; 4096], vec![0; 4096]].concat();
    assert_eq!(host.read(&volume, 0, 16384), expected);
    let TryRead::Ready(pieces) = volume.try_read(4096, 512).unwrap() else { panic!("waits") };
    assert!(matches!(pieces[..], [Piece::Log(_)]), "served from the mapping: {pieces:?}");
    // Past the base there is nothing yet.
    assert_eq!(host.read(&volume, (1 << 20) - 512, 1024), [vec![1; 512], vec![0; 512]].concat());
    let TryRead::Ready(pieces) = volume.try_read(2 << 20, 512).unwrap() else { panic!("waits") };
    assert!(matches!(pieces[..], [Piece::Base(Segment::Zeros(512))]));
    let extents = volume.extents(0, SIZE, ExtentQuery::Allocation, 16);
    let lens: Vec<_> = extents.iter().map(|extent| (extent.len, extent.is_zero)).collect();
    let tail = SIZE - (1 << 20);
    assert_eq!(lens, [(12288, false), (4096, true), ((1 << 20) - 16384, false), (tail, true)]);
    let dirty = volume.extents(0, 32768, ExtentQuery::Dirty, 16);
    let dirty: Vec<_> = dirty.iter().map(|extent| (extent.len, extent.is_dirty)).collect();
    assert_eq!(dirty, [(4096, false), (4096, true), (4096, false), (4096, true), (16384, false)]);
}

#[test]
fn requests_outside_of_the_disk_are_invalid() {
    let host = Host::new();
    let volume = host.open(slow());
    for (offset, len) in [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512), (1, 512)] {
        let error = host.wait(volume.write(offset, data(1, len), false)).unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Invalid);
        assert_eq!(volume.try_read(offset, len).unwrap_err().kind, DeviceErrorKind::Invalid);
        let error = host.wait(volume.trim(offset, len as u64, false)).unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Invalid);
    }
    assert_eq!(volume.try_read(0, 511).unwrap_err().kind, DeviceErrorKind::Invalid);
    host.wait(volume.write(SIZE, Bytes::new(), false)).unwrap();
    volume.resize(SIZE + 4096).unwrap();
    host.wait(volume.write(SIZE, data(1, 4096), false)).unwrap();
    assert!(volume.resize(SIZE).is_err(), "a disk does not shrink");
}

#[test]
fn write_through_waits_for_the_origin() {
    let host = Host::new();
    let volume = host.open(through());
    for number in 0..4_u8 {
        host.wait(volume.write(u64::from(number) * 512, data(number, 512), false)).unwrap();
        assert!(host.objects() > usize::from(number));
    }
    let status = volume.status();
    assert_eq!((status.dirty_bytes, status.recovery_point_age), (0, None));
    // An answer that is lost is asked for again, and found.
    host.origin.faults.fail_nth("put-answer", 1, Fault::EIO);
    host.wait(volume.write(0, data(9, 512), false)).unwrap();
    assert_eq!(host.objects() as u64, volume.status().pushed_sequence.unwrap() - 99);
}

#[test]
fn flush_to_the_origin_by_policy() {
    let host = Host::new();
    let volume = host.open(Durability { flush: FlushTarget::Origin, ..slow() });
    host.wait(volume.write(0, data(1, 512), false)).unwrap();
    assert_eq!(host.objects(), 0);
    host.wait(volume.flush()).unwrap();
    assert_eq!(host.objects(), 1);
    host.wait(volume.write(0, data(1, 512), true)).unwrap();
    assert_eq!(host.objects(), 2);
}

#[test]
fn write_back_is_pushed_every_period() {
    let host = Host::new();
    let volume = host.open(Durability { period_s: 0.1, ..Durability::default() });
    host.wait(volume.write(0, data(1, 4096), false)).unwrap();
    host.wait(volume.write(0, data(2, 4096), false)).unwrap();
    assert!(volume.status().dirty_bytes > 0 || host.objects() > 0);
    until("the push of a period", || volume.status().dirty_bytes == 0);
    assert!(host.objects() >= 1);
    assert_eq!(volume.push_now().unwrap().epoch, 1);
}

#[test]
fn restart_needs_no_origin_and_keeps_everything() {
    let host = Host::new();
    let volume = host.open(slow());
    host.wait(volume.write(0, data(1, 4096), true)).unwrap();
    host.wait(volume.write(4096, data(2, 4096), false)).unwrap();
    assert!(matches!(host.try_open(Host::opening(slow()), None), Err(OverlayError::Locked(_))));
    volume.close();
    let error = host.wait(volume.write(0, data(1, 512), false)).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::Shutdown);
    drop(volume);
    for operation in ["put", "get", "list"] {
        host.origin.faults.fail_always(operation, Fault::EIO);
    }
    let volume = host.open(slow());
    assert_eq!(host.read(&volume, 0, 8192), [vec![1; 4096], vec![2; 4096]].concat());
    assert_eq!(volume.status().dirty_bytes, 8192);
    assert!(volume.push_now().is_err());
    host.origin.faults.disarm();
    assert_eq!(volume.push_now().unwrap().sequence, 100);
    drop(volume);
    let opening = Opening { epoch: 2, ..Host::opening(slow()) };
    assert!(matches!(host.try_open(opening, None), Err(OverlayError::Invalid(_))));
}

#[test]
fn restart_forgets_no_log_of_the_origin() {
    let host = Host::new();
    let volume = host.open(slow());
    let noise = |number: u64| {
        let digests = (0..2048_u64).map(|at| Digest::of(&(number << 32 | at).to_le_bytes()));
        Bytes::from(digests.flat_map(|digest| *digest.as_bytes()).collect::<Vec<u8>>())
    };
    for number in 0..5 {
        host.wait(volume.write(number << 16, noise(number), false)).unwrap();
        volume.push_now().unwrap();
    }
    host.wait(volume.write(1 << 20, noise(9), true)).unwrap();
    let before = volume.status();
    assert_eq!(before.origin_log_objects, 5);
    drop(volume);
    let volume = host.open(slow());
    let after = volume.status().origin_log_bytes;
    assert_eq!(after, 5 << 16, "what is dirty is not there");
    assert!(before.origin_log_bytes - after < 5 * 1024);
    volume.push_now().unwrap();
    let status = volume.status();
    assert_eq!(status.origin_log_objects, 6);
    assert!(volume.fold_due(u64::MAX, 6) && volume.fold_due(6 << 16, u64::MAX));
    let folded = volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap();
    let disk = host.origin.disk(&folded.digest);
    let manifest = host.origin.manifest(&folded.digest);
    volume.set_base(Arc::new(MemoryBase(Bytes::from(disk))), manifest, &folded);
    let status = volume.status();
    assert_eq!((status.origin_log_bytes, status.origin_log_objects), (0, 0));
}

#[test]
fn frozen_volume_pushes_and_does_not_write() {
    let host = Host::new();
    let volume = host.open(slow());
    host.wait(volume.write(0, data(1, 512), false)).unwrap();
    volume.freeze(Duration::from_secs(60)).unwrap();
    assert_eq!(volume.status().state, VolumeState::Frozen);
    let waiting = volume.write(0, data(2, 512), false);
    assert!(matches!(waiting, Done::Later(_)));
    volume.push_now().unwrap();
    assert_eq!(host.read(&volume, 0, 512), vec![1; 512]);
    volume.thaw();
    host.wait(waiting).unwrap();
    assert_eq!(host.read(&volume, 0, 512), vec![2; 512]);
    // Nobody thaws: the deadline does.
    volume.freeze(Duration::from_millis(10)).unwrap();
    host.wait(volume.write(0, data(3, 512), false)).unwrap();
}

#[test]
fn end_of_a_freeze_is_not_that_of_the_next() {
    let host = Host::new();
    let volume = host.open(slow());
    let first = volume.core.freeze();
    let second = volume.core.freeze();
    volume.core.end_freeze(first);
    assert_eq!(volume.status().state, VolumeState::Frozen);
    volume.core.end_freeze(second);
    assert_eq!(volume.status().state, VolumeState::Open);
}

#[test]
fn full_volume_says_so_and_goes_on() {
    let host = Host::new();
    let volume = host.open(slow());
    let mut at = 0;
    let error = loop {
        match host.wait(volume.write(at, data(5, 256 << 10), false)) {
            Ok(()) => at += 256 << 10,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
    assert!(error.message.contains("quota_bytes"), "{error}");
    host.wait(volume.flush()).unwrap();
    assert_eq!(host.read(&volume, 0, 512), vec![5; 512]);
    host.wait(volume.trim(0, at / 2, false)).unwrap();
    host.wait(volume.write(0, data(6, 256 << 10), false)).unwrap();
    // The same place over and over never fills it.
    for _ in 0..60 {
        host.wait(volume.write(0, data(7, 256 << 10), false)).unwrap();
    }
}

#[test]
fn partition_of_class_none_never_travels() {
    let host = Host::new();
    let region = RegionSpec {
        first: None,
        last: None,
        partition: Some("swap".into()),
        class: DurabilityClass::None,
        period_s: None,
    };
    let volume = host.open(Durability { regions: vec![region], ..slow() });
    let table = crate::regions::gpt::tests::table(&[("root", 2048, 4095), ("swap", 4096, 8191)]);
    host.wait(volume.write(0, Bytes::from(table), false)).unwrap();
    until("the table is read", || {
        volume.core.log.map().regions.groups().len() == 2
            && volume.core.log.map().regions.group_of(4096) == 1
    });
    host.wait(volume.write(2048 * 512, data(1, 4096), false)).unwrap();
    host.wait(volume.write(4096 * 512, data(2, 4096), false)).unwrap();
    let point = volume.release().unwrap();
    let range = LogRange { volume: VOLUME, epoch: 1, first: 100, last: point.sequence };
    assert_eq!(seal(&host.origin, VOLUME, 1, 100).unwrap().last, Some(point.sequence));
    drop(volume);
    let elsewhere = Host { origin: host.origin.clone(), ..Host::new() };
    let opening =
        Opening { epoch: 2, next: point.sequence + 2, logs: vec![range], ..Host::opening(slow()) };
    let volume = elsewhere.try_open(opening, None).unwrap();
    assert_eq!(elsewhere.read(&volume, 2048 * 512, 4096), vec![1; 4096]);
    assert_eq!(elsewhere.read(&volume, 4096 * 512, 4096), vec![0; 4096]);
}

#[test]
fn fold_takes_the_logs_place() {
    let host = Host::new();
    let volume = host.open(slow());
    host.wait(volume.write(0, data(1, 128 << 10), false)).unwrap();
    host.wait(volume.write(1 << 20, data(1, 64 << 10), false)).unwrap();
    host.wait(volume.write(SIZE - 512, data(3, 512), false)).unwrap();
    assert!(
        volume.fold(&mut |_, _| Err("no".into()), &FoldHow::default()).is_err(),
        "what the caller refuses fails"
    );
    let folded = volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap();
    assert_eq!((folded.until.epoch, folded.until.sequence), (1, 100));
    let disk = host.origin.disk(&folded.digest);
    assert_eq!(disk.len() as u64, SIZE);
    assert_eq!(disk, host.read(&volume, 0, SIZE as usize));
    // Three chunks are the same, and the refused fold has stored nothing.
    let packs = host.origin.keys("packs/");
    assert_eq!(packs.len(), 1);
    let size = host.origin.object(&packs[0]).unwrap().len();
    assert_eq!(size, 4096 + 2 * (64 << 10) + 2 * 32);
    host.wait(volume.write(4096, data(9, 4096), false)).unwrap();
    assert!(volume.fold_due(1, 1 << 20));
    let manifest = host.origin.manifest(&folded.digest);
    volume.set_base(Arc::new(MemoryBase(Bytes::from(disk))), manifest, &folded);
    assert!(!volume.fold_due(1, 1));
    assert_eq!(volume.status().live_bytes, 4096, "what was written since stays");
    assert_eq!(
        host.read(&volume, 0, 12288),
        [vec![1; 4096], vec![9; 4096], vec![1; 4096]].concat()
    );
    let again = volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap();
    assert_eq!(host.origin.disk(&again.digest), host.read(&volume, 0, SIZE as usize));
}

#[test]
fn fenced_volume_answers_everyone() {
    let host = Host::new();
    let volume = host.open(through());
    host.wait(volume.write(0, data(1, 512), false)).unwrap();
    let sealed = seal(&host.origin, VOLUME, 1, 100).unwrap();
    assert_eq!((sealed.last, sealed.seal), (Some(100), 101));
    let error = host.wait(volume.write(0, data(2, 512), false)).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::Fenced);
    assert_eq!(volume.status().state, VolumeState::Fenced);
    assert!(matches!(volume.push_now(), Err(OverlayError::Fenced(_))));
    let error = host.wait(volume.write(0, data(2, 512), false)).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::Fenced);
}

#[test]
fn table_of_no_whole_sectors_is_read() {
    let mut table = crate::regions::gpt::tests::table(&[("swap", 4096, 8191)]);
    let entries = crc32fast::hash(&table[1024..1024 + 3 * 128]);
    let header = &mut table[512..512 + 92];
    header[80..84].copy_from_slice(&3_u32.to_le_bytes());
    header[88..92].copy_from_slice(&entries.to_le_bytes());
    header[16..20].fill(0);
    let crc = crc32fast::hash(header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    let host = Host::new();
    let regions = vec![partition("swap", DurabilityClass::None)];
    let base = Arc::new(MemoryBase(Bytes::from(table)));
    let volume =
        host.try_open(Host::opening(Durability { regions, ..slow() }), Some(base)).unwrap();
    let regions = Arc::clone(&volume.core.log.map().regions);
    assert_eq!(regions.class(regions.group_of(4096)), DurabilityClass::None);
    volume.push_now().unwrap();
}

/// A base that is not reachable at first.
#[derive(Debug)]
struct LateBase {
    base: MemoryBase,
    is_reachable: std::sync::atomic::AtomicBool,
}

impl LateBase {
    fn new(content: Vec<u8>) -> Arc<LateBase> {
        let (base, is_reachable) = (MemoryBase(Bytes::from(content)), false.into());
        Arc::new(LateBase { base, is_reachable })
    }

    fn arrive(&self) {
        self.is_reachable.store(true, std::sync::atomic::Ordering::Release);
    }

    fn check(&self) -> Result<(), ReadError> {
        match self.is_reachable.load(std::sync::atomic::Ordering::Acquire) {
            true => Ok(()),
            false => Err(ReadError::Deadline(1)),
        }
    }
}

impl BlockView for LateBase {
    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<BaseRead, ReadError> {
        self.check()?;
        self.base.try_read(offset, len)
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        match self.check() {
            Ok(()) => self.base.read(offset, len),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        self.base.next_extent(offset, kind)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

fn partition(name: &str, class: DurabilityClass) -> RegionSpec {
    RegionSpec { first: None, last: None, partition: Some(name.into()), class, period_s: None }
}

#[test]
fn nothing_leaves_before_partitions_are_known() {
    let host = Host::new();
    let base = LateBase::new(crate::regions::gpt::tests::table(&[("swap", 4096, 8191)]));
    let regions = vec![partition("swap", DurabilityClass::None)];
    let durability = Durability { regions, period_s: 0.1, ..Durability::default() };
    let late = Arc::clone(&base);
    let volume = host.try_open(Host::opening(durability), Some(late)).unwrap();
    host.wait(volume.write(2048 * 512, data(1, 4096), true)).unwrap();
    host.wait(volume.write(4096 * 512, data(2, 4096), true)).unwrap();
    assert!(matches!(volume.push_now(), Err(OverlayError::Unavailable(_))));
    assert!(matches!(
        volume.fold(&mut |_, _| Ok(()), &FoldHow::default()),
        Err(OverlayError::Unavailable(_))
    ));
    until("a period has passed", || {
        volume.status().recovery_point_age.unwrap() > Duration::from_millis(300)
    });
    assert_eq!(host.objects(), 0);
    base.arrive();
    let point = volume.push_now().unwrap();
    assert_eq!(volume.status().dirty_bytes, 0);
    let range = LogRange { volume: VOLUME, epoch: 1, first: 100, last: point.sequence };
    let mut written = Vec::new();
    let note = |record: crate::push::origin_log::LogRecord| {
        written.push((record.offset, record.len));
        Ok(())
    };
    crate::push::replay::read_ranges(&host.origin, &[range], note).unwrap();
    assert_eq!(written, [(2048 * 512, 4096)], "what lies in the partition has not travelled");
}

#[test]
fn write_through_partition_counts_before_it_is_known() {
    for default in [DurabilityClass::WriteBack, DurabilityClass::None] {
        let host = Host::new();
        let base = LateBase::new(crate::regions::gpt::tests::table(&[("db", 4096, 8191)]));
        let regions = vec![partition("db", DurabilityClass::WriteThrough)];
        let durability = Durability { default, regions, ..slow() };
        let late = Arc::clone(&base);
        let volume = host.try_open(Host::opening(durability), Some(late)).unwrap();
        let (inside, outside) = (4096 * 512, 2048 * 512);
        let inside = volume.write(inside, data(1, 512), false);
        let outside = volume.write(outside, data(2, 512), false);
        assert!(matches!((&inside, &outside), (Done::Applied(_), Done::Applied(_))));
        assert_eq!(host.objects(), 0);
        base.arrive();
        host.wait(inside).unwrap();
        assert!(host.objects() > 0);
        host.wait(outside).unwrap();
        assert!(matches!(volume.write(2048 * 512, data(3, 512), false), Done::Now(Ok(()))));
    }
}

#[test]
fn change_of_durability_answers_who_waits() {
    let none = || Durability { default: DurabilityClass::None, ..Durability::default() };
    let region = RegionSpec {
        first: Some(0),
        last: Some(4096),
        partition: None,
        class: DurabilityClass::WriteThrough,
        period_s: None,
    };
    let with_region = || Durability { regions: vec![region.clone()], ..slow() };
    for (before, after) in [(through(), none()), (with_region(), slow()), (through(), slow())] {
        let host = Host::new();
        let volume = host.open(before.clone());
        host.origin.faults.fail_always("put", Fault::EIO);
        let waiting = volume.write(0, data(1, 512), false);
        assert!(matches!(waiting, Done::Applied(_)));
        volume.set_durability(&after).unwrap();
        host.wait(waiting).unwrap();
        assert_eq!(volume.core.log.synced(), volume.core.log.appended(), "durable here");
        assert_eq!(host.read(&volume, 0, 512), vec![1; 512]);
        // One who still has to wait is answered when it is there.
        volume.set_durability(&through()).unwrap();
        let waiting = volume.write(512, data(2, 512), false);
        volume.set_durability(&Durability { regions: vec![region.clone()], ..through() }).unwrap();
        host.origin.faults.disarm();
        host.wait(waiting).unwrap();
        assert!(host.objects() > 0);
    }
}

/// A base that counts who has it open.
struct CountedBase {
    content: MemoryBase,
    opens: Arc<AtomicU64>,
}

impl BlockView for CountedBase {
    fn size_bytes(&self) -> u64 {
        self.content.size_bytes()
    }
    fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }
    fn closed(&self) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
    }
    fn try_read(&self, offset: u64, len: usize) -> Result<BaseRead, ReadError> {
        self.content.try_read(offset, len)
    }
    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        self.content.read(offset, len)
    }
    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        self.content.next_extent(offset, kind)
    }
    fn cached_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn test_base_is_opened_by_each_client_and_closed_when_it_goes() {
    let host = Host::new();
    let opens = Arc::new(AtomicU64::new(0));
    let content = MemoryBase(Bytes::from(vec![7; 1 << 20]));
    let base = Arc::new(CountedBase { content, opens: opens.clone() });
    let opening = Host::opening(Durability::default());
    let volume = host.try_open(opening, Some(base)).unwrap();
    let uses = [1, 2].map(|client| volume.opened(client).unwrap());
    assert_eq!(opens.load(Ordering::Relaxed), 2);
    uses[0].arrived(0, 4096);
    drop(uses);
    assert_eq!(opens.load(Ordering::Relaxed), 0);
}

#[test]
fn test_volume_over_zeros_has_no_boots_to_learn() {
    let host = Host::new();
    assert!(host.open(Durability::default()).opened(1).is_none());
}
