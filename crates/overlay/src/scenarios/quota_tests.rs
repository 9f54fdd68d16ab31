//! A local log whose quota follows from the size of its disk.

use std::sync::Arc;
use std::time::Duration;

use acstor_testkit::seeded_rng;
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use rand::Rng;
use tokio::runtime::Runtime;

use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::scenarios::write_history::{stamp, write_of};
use crate::segments::disk::LogDisk;
use crate::segments::recovery::create_log;
use crate::{BlockDevice, DeviceErrorKind, Opening, Volume, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([8; 16]);
const SIZE: u64 = 4 << 20;
const SECTORS: u64 = SIZE / 512;
const SEGMENT: u64 = 64 << 10;
const DEADLINE: Duration = Duration::from_secs(60);
/// Nothing is pushed, so that all of the disk is in the local log.
const NEVER_S: f64 = 3600.0;

struct Host {
    runtime: Runtime,
    disk: Arc<dyn LogDisk>,
}

impl Host {
    fn new() -> Host {
        Host { runtime: Runtime::new().unwrap(), disk: Arc::new(MemoryDisk::new(1 << 30)) }
    }

    fn open(&self, quota_bytes: u64, size_bytes: u64) -> Arc<Volume> {
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: 1,
            size_bytes,
            manifest: None,
            logs: Vec::new(),
            durability: durability(),
        };
        let (disk, sink) = (Arc::clone(&self.disk), Arc::new(MemoryOrigin::default()));
        let handle = self.runtime.handle().clone();
        Volume::open_on(disk, config(quota_bytes), opening, None, sink, handle).unwrap()
    }

    /// Writes whole sectors that say where they are and by which write.
    fn write(
        &self,
        volume: &Volume,
        first: u64,
        sectors: u64,
        number: u64,
    ) -> Result<(), DeviceErrorKind> {
        let content: Vec<u8> = (first..first + sectors).flat_map(|at| stamp(at, number)).collect();
        let done = volume.write(first * 512, Bytes::from(content), false).outcome();
        let timeout = async { tokio::time::timeout(DEADLINE, done).await };
        let answer = self.runtime.block_on(timeout).expect("an answer before the deadline");
        answer.map_err(|error| error.kind)
    }
}

fn durability() -> Durability {
    Durability { period_s: NEVER_S, ..Durability::default() }
}

fn config(quota_bytes: u64) -> VolumeConfig {
    VolumeConfig {
        directory: "unused".into(),
        quota_bytes,
        reserve_bytes: 0,
        segment_bytes: SEGMENT,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    }
}

fn fill(
    host: &Host,
    volume: &Volume,
    from: u64,
    until: u64,
    step: u64,
) -> Result<(), DeviceErrorKind> {
    (from..until).step_by(step as usize).try_for_each(|at| host.write(volume, at, step, 1))
}

#[test]
fn disk_that_is_overwritten_again_and_again_has_room() {
    let host = Host::new();
    let volume = host.open(0, SIZE);
    let quota = config(0).quota_for(SIZE);
    // In the smallest records there are, so that nothing is left out of what may be alive.
    fill(&host, &volume, 0, SECTORS, 1).unwrap();
    let states: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let writer = |part: u64| {
            let (host, volume) = (&host, &volume);
            scope.spawn(move || {
                let mut rng = seeded_rng(part);
                let mut state = vec![1; SECTORS as usize / 4];
                let mut written = 0;
                for number in 2.. {
                    let start = rng.random_range(0..SECTORS / 4);
                    let longest = if rng.random_bool(0.5) { 8 } else { 300 };
                    let count = rng.random_range(1..=longest).min(SECTORS / 4 - start);
                    host.write(volume, part * SECTORS / 4 + start, count, number).unwrap();
                    state[start as usize..(start + count) as usize].fill(number);
                    written += count;
                    if written > 8 * SECTORS / 4 {
                        break;
                    }
                }
                state
            })
        };
        let writers: Vec<_> = (0..4).map(writer).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let used = volume.status().log_bytes;
    assert!(used <= quota, "{used} bytes where {quota} may be");
    let content = volume.core.read_bytes(0, SIZE as usize).unwrap();
    for (at, (sector, number)) in content.chunks_exact(512).zip(states.concat()).enumerate() {
        assert_eq!(write_of(at as u64, sector), number, "sector {at}");
    }
}

#[test]
fn quota_of_no_more_than_the_disk_is_kept_to() {
    let host = Host::new();
    let quota = SIZE;
    let volume = host.open(quota, SIZE);
    assert_eq!(config(quota).quota_for(1 << 40), quota);
    assert_eq!(fill(&host, &volume, 0, SECTORS, 8), Err(DeviceErrorKind::NoSpace));
    assert!(volume.status().log_bytes <= quota);
    volume.resize(2 * SIZE).unwrap();
    assert_eq!(host.write(&volume, SECTORS, 256, 2), Err(DeviceErrorKind::NoSpace));
}

#[test]
fn disk_that_grew_has_room_for_what_it_grew_by() {
    let host = Host::new();
    let volume = host.open(0, SIZE / 8);
    fill(&host, &volume, 0, SECTORS / 8, 8).unwrap();
    volume.resize(SIZE).unwrap();
    for _ in 0..3 {
        fill(&host, &volume, 0, SECTORS, 8).unwrap();
    }
}

#[test]
fn log_that_is_longer_than_its_quota_is_compacted() {
    let host = Host::new();
    // As an unbounded log whose compaction was late: in each segment a third of one is alive.
    let sizes = config(0).log_sizes(1 << 40);
    let log = create_log(&host.disk, sizes, Arc::new(RegionMap::new(&durability(), &[]))).unwrap();
    let record = 32;
    for at in (record..SECTORS).step_by(record as usize) {
        log.write(at, &[1; 32 * 512]).unwrap();
        log.write(0, &[2; 32 * 512]).unwrap();
        log.write(0, &[3; 32 * 512]).unwrap();
    }
    log.checkpoint(VOLUME, 1).unwrap();
    log.sync(log.appended()).unwrap();
    let before = log.usage().0;
    assert!(before > config(0).quota_for(SIZE), "{before}");
    log.close();
    drop(log);
    let volume = host.open(0, SIZE);
    for _ in 0..3 {
        fill(&host, &volume, 0, SECTORS, 8).unwrap();
    }
    assert!(volume.status().log_bytes < before);
}

#[test]
fn quota_is_a_little_more_than_twice_the_disk() {
    // What the guide for operators says, for segments as they are by default.
    for size_gib in [1, 4, 10, 100, 4096] {
        let size = size_gib << 30;
        let quota = VolumeConfig { segment_bytes: 64 << 20, ..config(0) }.quota_for(size);
        let most = 2.05 * size as f64 + 1.6 * (1_u64 << 30) as f64;
        assert!(quota > 2 * size && (quota as f64) < most, "{quota} for {size}");
    }
}
