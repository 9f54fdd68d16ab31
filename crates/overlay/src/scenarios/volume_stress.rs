//! Writers, flushes, pushes, folds, checkpoints and reclaiming at once, on a real directory.
//!
//! Each writer has a part of the disk for itself and reads back what it wrote. In the end another host
//! must find the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_testkit::seeded_rng;
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use rand::Rng;
use tokio::runtime::Runtime;

use crate::push::origin_log::{log_key, log_object_info};
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::scenarios::write_history::{stamp, write_of};
use crate::{BlockDevice, Done, LogRange, Opening, Volume, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([6; 16]);
const WRITERS: u64 = 4;
/// Sectors of each writer's part; the first writer's is write-through.
const PART: u64 = 512;
const WRITES: u64 = 400;

fn open(
    directory: &std::path::Path,
    origin: &MemoryOrigin,
    runtime: &Runtime,
    record: (u32, u64, Vec<LogRange>),
) -> Arc<Volume> {
    let config = VolumeConfig {
        directory: directory.join("volume"),
        quota_bytes: 4 << 20,
        reserve_bytes: 0,
        segment_bytes: 128 << 10,
        push_rate: None,
        io_timeout: Some(Duration::from_secs(60)),
        chunk_size: ChunkSize::new(4096).unwrap(),
    };
    let region = RegionSpec {
        first: Some(0),
        last: Some(PART * 512),
        partition: None,
        class: DurabilityClass::WriteThrough,
        period_s: None,
    };
    let durability = Durability { regions: vec![region], period_s: 0.1, ..Durability::default() };
    let (volume, size_bytes, manifest) = (VOLUME, WRITERS * PART * 512, None);
    let (epoch, next, logs) = record;
    let opening = Opening { volume, epoch, next, size_bytes, manifest, logs, durability };
    let sink = Arc::new(origin.clone());
    Volume::open(config, opening, None, sink, runtime.handle().clone()).unwrap()
}

fn wait(runtime: &Runtime, done: Done<()>) {
    runtime.block_on(done.outcome()).unwrap();
}

fn check(volume: &Volume, first: u64, expected: &[u64]) {
    let bytes = volume.core.read_bytes(first * 512, expected.len() * 512).unwrap();
    for (at, sector) in bytes.chunks_exact(512).enumerate() {
        assert_eq!(write_of(first + at as u64, sector), expected[at], "sector {at} of {first}");
    }
}

/// Writes a part over and over; returns the number of the last write of each sector.
fn write_part(volume: &Volume, runtime: &Runtime, writer: u64) -> Vec<u64> {
    let mut rng = seeded_rng(writer);
    let mut state = vec![0; PART as usize];
    for number in 1..=WRITES {
        let start = rng.random_range(0..PART);
        let end = (start + rng.random_range(1..=64)).min(PART);
        let first = writer * PART + start;
        let written = &mut state[start as usize..end as usize];
        let fua = rng.random_bool(0.05);
        if rng.random_bool(0.1) {
            wait(runtime, volume.trim(first * 512, (end - start) * 512, fua));
            written.fill(0);
        } else {
            let sectors = first..first + end - start;
            let content: Vec<u8> = sectors.flat_map(|at| stamp(at, number)).collect();
            wait(runtime, volume.write(first * 512, Bytes::from(content), fua));
            written.fill(number);
        }
        check(volume, first, written);
        if rng.random_bool(0.05) {
            wait(runtime, volume.flush());
        }
    }
    check(volume, writer * PART, &state);
    state
}

#[test]
fn everything_at_once_loses_nothing() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let origin = MemoryOrigin::default();
    let volume = open(directory.path(), &origin, &runtime, (1, 1, Vec::new()));
    volume.core.pusher.lock().object_bytes = 16 << 10;
    let is_over = AtomicBool::new(false);
    let until_over = |mut act: Box<dyn FnMut() + Send + '_>| {
        while !is_over.load(Ordering::Acquire) {
            act();
        }
    };
    let states: Vec<Vec<u64>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            until_over(Box::new(|| {
                let point = volume.push_now().unwrap();
                // A snapshot of it can be opened: no batch is there in part.
                if let Some(object) = origin.object(&log_key(VOLUME, 1, point.sequence)) {
                    assert!(!log_object_info(&object).unwrap().has_more, "{point:?}");
                }
            }));
        });
        scope.spawn(|| {
            until_over(Box::new(|| {
                volume.core.log.checkpoint(VOLUME, 1).unwrap();
                volume.core.log.keep(VOLUME, 1, 64 << 10).unwrap();
            }));
        });
        scope.spawn(|| {
            until_over(Box::new(|| {
                if let Some(folded) =
                    volume.fold(&mut |_, _| Ok(()), &crate::FoldHow::default()).unwrap()
                {
                    let disk = origin.disk(&folded.digest);
                    let manifest = origin.manifest(&folded.digest);
                    let base = Arc::new(MemoryBase(Bytes::from(disk)));
                    volume.set_base(base, manifest, &folded);
                }
            }));
        });
        let writer = |number| {
            let (volume, runtime) = (&volume, &runtime);
            scope.spawn(move || write_part(volume, runtime, number))
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        let states: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        states.into_iter().map(Result::unwrap).collect()
    });
    let check_all = |volume: &Volume| {
        for (writer, state) in states.iter().enumerate() {
            check(volume, writer as u64 * PART, state);
        }
    };
    check_all(&volume);
    let point = volume.release().unwrap();
    drop(volume);
    // The log from its first object on is the disk, too; it is longer than the quota.
    let range = LogRange { volume: VOLUME, epoch: 1, first: 1, last: point.sequence };
    let elsewhere = tempfile::tempdir().unwrap();
    let record = (2, point.sequence + 2, vec![range]);
    check_all(&open(elsewhere.path(), &origin, &runtime, record));
}
