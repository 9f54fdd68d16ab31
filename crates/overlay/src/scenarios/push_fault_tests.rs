//! A local log that cannot be read for a moment, or is not what it was, beside the push.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use acstor_testkit::Fault;
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::core::Core;
use crate::core::requests::Change;
use crate::fold::{FoldHow, fold};
use crate::push::{PushError, Wanted};
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::segments::extent_map::Place;
use crate::segments::segment::Segment;
use crate::volume::open_core;
use crate::{DeviceFuture, Done, LogRange, Opening, VolumeConfig, seal};

pub(crate) const VOLUME: DiskId = DiskId::from_bytes([8; 16]);
const SIZE: u64 = 1 << 20;
pub(crate) const FIRST: u64 = 50;
pub(crate) const ASKED: Wanted = Wanted {
    asked: 1,
    due: 0,
    is_held: false,
    is_whole: false,
    is_paced: false,
    is_hurried: false,
};

/// A host whose whole disk is write-through.
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    pub(crate) disk: MemoryDisk,
    pub(crate) origin: MemoryOrigin,
    pub(crate) core: Arc<Core>,
}

pub(crate) fn open(
    runtime: &Runtime,
    disk: &MemoryDisk,
    sink: &MemoryOrigin,
    opening: Opening,
) -> Arc<Core> {
    let config = VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 4 << 20,
        reserve_bytes: 0,
        segment_bytes: 64 << 10,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let disk: Arc<dyn crate::LogDisk> = Arc::new(disk.clone());
    let sink = Arc::new(sink.clone());
    Arc::new(open_core(&disk, config, opening, None, sink, runtime.handle().clone()).unwrap())
}

pub(crate) fn opening(epoch: u32, next: u64, logs: Vec<LogRange>) -> Opening {
    let durability = Durability { default: DurabilityClass::WriteThrough, ..Durability::default() };
    Opening { volume: VOLUME, epoch, next, size_bytes: SIZE, manifest: None, logs, durability }
}

impl Host {
    pub(crate) fn new() -> Host {
        let (runtime, disk) = (Runtime::new().unwrap(), MemoryDisk::new(64 << 20));
        let origin = MemoryOrigin::default();
        let core = open(&runtime, &disk, &origin, opening(1, FIRST, Vec::new()));
        Host { runtime, disk, origin, core }
    }

    pub(crate) fn write(&self, offset: u64, byte: u8) -> DeviceFuture<()> {
        self.write_long(offset, byte, 512)
    }

    pub(crate) fn write_long(&self, offset: u64, byte: u8, len: usize) -> DeviceFuture<()> {
        match self.core.write(Change::Data(offset, Bytes::from(vec![byte; len])), false) {
            Done::Later(future) | Done::Applied(future) => future,
            Done::Now(outcome) => panic!("write-through does not wait: {outcome:?}"),
        }
    }

    /// First byte of each place, as the next owner finds it.
    pub(crate) fn elsewhere(&self, places: &[u64]) -> Vec<u8> {
        let sealed = seal(&self.origin, VOLUME, 1, FIRST).unwrap();
        let range = |last| LogRange { volume: VOLUME, epoch: 1, first: FIRST, last };
        let logs = sealed.last.map(range).into_iter().collect();
        let disk = MemoryDisk::new(64 << 20);
        let core = open(&self.runtime, &disk, &self.origin, opening(2, sealed.seal + 1, logs));
        places.iter().map(|place| core.read_bytes(*place, 512).unwrap()[0]).collect()
    }
}

/// Whichever read of a batch fails, what is acknowledged in the end is on the origin.
#[test]
fn read_that_fails_once_takes_nothing_out_of_a_batch() {
    for nth in 1..=WRITES {
        for object_bytes in [64, 1200, 8 << 20] {
            let host = Host::new();
            host.core.pusher.lock().object_bytes = object_bytes;
            // Not neighbours: each is a read and a record of its own.
            let waiters: Vec<_> = (0..WRITES).map(|n| host.write(n * 8192, n as u8 + 1)).collect();
            host.disk.faults.fail_nth("read", nth, Fault::EIO);
            let mut failures = 0;
            while failures == 0 || host.core.pusher.lock().is_under_way() {
                failures += u32::from(host.core.push_one(ASKED).is_err());
            }
            assert_eq!(failures, 1);
            for waiter in waiters {
                host.runtime.block_on(waiter).unwrap();
            }
            assert_eq!(host.core.log.map().dirty_sectors(), 0);
            let places: Vec<u64> = (0..WRITES).map(|n| n * 8192).collect();
            assert_eq!(host.elsewhere(&places), [1, 2, 3, 4, 5], "{nth} {object_bytes}");
        }
    }
}

const WRITES: u64 = 5;
pub(crate) const PLACES: [u64; WRITES as usize] = [0, 8192, 16384, 24576, 32768];

impl Host {
    pub(crate) fn write_all(&self) -> Vec<DeviceFuture<()>> {
        PLACES.iter().zip(1..).map(|(place, byte)| self.write(*place, byte)).collect()
    }

    /// Pushes until nothing is under way; returns how many attempts failed.
    pub(crate) fn push(&self) -> u32 {
        let mut failures = 0;
        while failures == 0 && self.core.log.map().uncut_bytes() > 0
            || self.core.pusher.lock().is_under_way()
        {
            failures += u32::from(self.core.push_one(ASKED).is_err());
        }
        failures
    }

    pub(crate) fn outcomes(&self, waiters: Vec<DeviceFuture<()>>) -> Vec<bool> {
        waiters.into_iter().map(|waiter| self.runtime.block_on(waiter).is_ok()).collect()
    }

    /// The segment and the offset in it that have a byte of the disk.
    pub(crate) fn place(&self, offset: u64) -> (Arc<Segment>, u64) {
        let map = self.core.log.map();
        let sector = offset / 512;
        let extent = map.extents.range(sector, sector + 1).next().unwrap();
        let Place::Log { segment, offset } = extent.place else { panic!("zeros") };
        (Arc::clone(&map.segments[&segment]), offset)
    }

    /// Turns a bit of what the disk has around.
    pub(crate) fn flip(&self, segment: &Segment, offset: u64) {
        let mut byte = [0];
        segment.file.read_exact_at(&mut byte, offset).unwrap();
        byte[0] ^= 1;
        segment.file.write_all_at(&mut [IoSlice::new(&byte)], offset).unwrap();
    }

    /// The first byte of each place, or that it cannot be read.
    pub(crate) fn read(&self) -> Vec<Option<u8>> {
        let first = |place: &u64| self.core.read_bytes(*place, 512).ok().map(|bytes| bytes[0]);
        PLACES.iter().map(first).collect()
    }

    /// The same log, opened by another process, since this one was killed.
    pub(crate) fn kill(&mut self) {
        let disk = self.disk.after_kill();
        self.core = open(&self.runtime, &disk, &self.origin, opening(1, FIRST, Vec::new()));
    }

    /// The same log, opened by another process.
    pub(crate) fn reopen(&mut self) {
        self.core.set_closed();
        self.core.log.checkpoint(VOLUME, 1).unwrap();
        let disk = self.disk.after_kill();
        self.core = open(&self.runtime, &disk, &self.origin, opening(1, FIRST, Vec::new()));
    }
}

/// A bit that turned around in the log: nobody is given it, here or on the origin.
#[test]
fn damaged_record_goes_nowhere() {
    for object_bytes in [64, 1200, 8 << 20] {
        let host = Host::new();
        host.core.pusher.lock().object_bytes = object_bytes;
        let waiters = host.write_all();
        let (segment, offset) = host.place(PLACES[1]);
        host.flip(&segment, offset + 100);
        assert_eq!(host.push(), 0, "what is damaged is damaged at once");
        assert_eq!(host.outcomes(waiters), [true, false, true, true, true]);
        assert_eq!(host.read(), [Some(1), None, Some(3), Some(4), Some(5)]);
        assert_eq!(host.core.damaged_bytes(), 512);
        assert_eq!(host.core.log.map().dirty_sectors(), 1, "the origin lacks it");
        let error = host.core.push_all().unwrap_err().to_string();
        assert!(error.contains("512 bytes") && error.contains("at byte 8192"), "{error}");
        let everywhere = host.elsewhere(&PLACES);
        assert_eq!(everywhere, [1, 0, 3, 4, 5], "older content, and never the damaged one");
    }
}

#[test]
fn damaged_range_is_whole_again_once_it_is_overwritten() {
    let host = Host::new();
    let waiters = host.write_all();
    let (segment, offset) = host.place(PLACES[3]);
    host.flip(&segment, offset);
    host.push();
    assert_eq!(host.outcomes(waiters), [true, true, true, false, true]);
    let waiter = host.write(PLACES[3], 9);
    assert_eq!(host.push(), 0);
    assert_eq!(host.outcomes(vec![waiter]), [true]);
    assert_eq!(host.read(), [1, 2, 3, 9, 5].map(Some));
    host.core.push_all().unwrap();
    assert_eq!((host.core.damaged_bytes(), host.core.log.map().dirty_sectors()), (0, 0));
    assert_eq!(host.elsewhere(&PLACES), [1, 2, 3, 9, 5]);
}

/// A record that rots after it was pushed is not given out as good by a fold, and the origin has
/// it.
#[test]
fn damaged_record_is_not_folded() {
    let host = Host::new();
    let waiters = host.write_all();
    host.push();
    assert_eq!(host.outcomes(waiters), [true; 5]);
    let (segment, offset) = host.place(PLACES[2]);
    host.flip(&segment, offset + 511);
    let mut announce = |_: &[_], _| Ok(());
    let mut fold = || fold(&host.core, &mut announce, &FoldHow::default());
    host.origin.faults.fail_always("get", Fault::EIO);
    let error = fold().unwrap_err().to_string();
    assert!(error.contains("the origin does not answer"), "{error}");
    assert!(host.origin.keys("manifests/").is_empty());
    host.origin.faults.disarm();
    let disk = host.origin.disk(&fold().unwrap().unwrap().digest);
    assert_eq!(PLACES.map(|place| disk[place as usize]), [1, 2, 3, 4, 5]);
    assert_eq!(host.core.log.map().dirty_sectors(), 0, "the origin has it");
    host.core.push_all().unwrap();
    assert_eq!(host.elsewhere(&PLACES), [1, 2, 3, 4, 5]);
}

/// A log that was opened again knows the checksums of what lies before its checkpoint, too; a header
/// that is damaged takes its own record with it and no other.
#[test]
fn checksums_outlast_the_process() {
    for (at, is_header) in [(0, false), (300, false), (20, true), (63, true)] {
        let mut host = Host::new();
        let waiters = host.write_all();
        host.push();
        assert_eq!(host.outcomes(waiters), [true; 5]);
        host.reopen();
        assert_eq!(host.read(), [1, 2, 3, 4, 5].map(Some));
        host.reopen();
        let (segment, offset) = host.place(PLACES[1]);
        host.flip(&segment, if is_header { offset - 64 + at } else { offset + at });
        host.origin.faults.fail_always("get", Fault::EIO);
        assert_eq!(host.read(), [Some(1), None, Some(3), Some(4), Some(5)], "{at} {is_header}");
    }
}

/// A sector that cannot be read keeps nothing else from the origin, and is tried again.
#[test]
fn unreadable_sector_holds_up_nobody_else() {
    let host = Host::new();
    // So long that it has sectors of its own.
    let lens = [512, 512, 8192, 512, 512];
    let writes = PLACES.iter().zip(1..).zip(lens);
    let waiters = writes.map(|((place, byte), len)| host.write_long(*place, byte, len)).collect();
    let (segment, offset) = host.place(PLACES[2]);
    let (name, offset) = (Segment::file_name(segment.number), offset + 4096);
    host.disk.set_broken(&name, offset, true);
    host.core.pusher.lock().unreadable_time = Duration::ZERO;
    let mut failures = 0;
    while host.core.log.map().uncut_bytes() > 0 || host.core.pusher.lock().is_under_way() {
        failures += 1;
        assert!(failures < 10, "the push does not go on");
        drop(host.core.push_one(ASKED));
    }
    assert_eq!(host.outcomes(waiters), [true, true, false, true, true]);
    host.core.push_all().unwrap_err();
    assert_eq!(host.read(), [Some(1), Some(2), None, Some(4), Some(5)]);

    host.disk.set_broken(&name, offset, false);
    assert!(host.core.log.map_mut().retry_undelivered(std::time::Instant::now()));
    host.core.push_all().unwrap_err();
    for _ in 0..3 {
        host.core.push_one(ASKED).unwrap();
    }
    host.core.push_all().unwrap();
    assert_eq!(host.core.damaged_bytes(), 0);
    assert_eq!(host.elsewhere(&PLACES), [1, 2, 3, 4, 5]);
}

/// A device that fails for a moment, however often it is asked meanwhile, costs no data.
#[test]
fn device_that_fails_for_a_moment_takes_nothing_out_of_a_batch() {
    let host = Host::new();
    let waiters = host.write_all();
    let (segment, offset) = host.place(PLACES[2]);
    let name = Segment::file_name(segment.number);
    host.disk.set_broken(&name, offset, true);
    for _ in 0..50 {
        let error = host.core.push_one(ASKED).unwrap_err();
        assert!(matches!(error, PushError::Retry(_)), "{error:?}");
    }
    let error = host.core.push_all().unwrap_err().to_string();
    assert!(error.contains("read the local log"), "{error}");
    assert_eq!(host.core.damaged_bytes(), 0, "nothing is given up");
    host.disk.set_broken(&name, offset, false);
    host.core.push_all().unwrap();
    assert_eq!(host.outcomes(waiters), [true; 5]);
    assert_eq!(host.elsewhere(&PLACES), [1, 2, 3, 4, 5]);
}

/// Content that is to stay on this host alone is not missed at the origin.
#[test]
fn damaged_range_that_is_not_pushed_any_more_keeps_nothing_up() {
    let host = Host::new();
    let waiters = host.write_all();
    let (segment, offset) = host.place(PLACES[1]);
    host.flip(&segment, offset + 100);
    host.push();
    assert_eq!(host.outcomes(waiters), [true, false, true, true, true]);
    let sent: u64 = host.core.pusher.lock().sent_bytes;
    assert_eq!(sent, 4 * 512, "what was left out was not sent");
    host.core.push_all().unwrap_err();
    let region = RegionSpec {
        first: Some(PLACES[1]),
        last: Some(PLACES[1] + 512),
        partition: None,
        class: DurabilityClass::None,
        period_s: None,
    };
    let durability = Durability {
        default: DurabilityClass::WriteThrough,
        regions: vec![region],
        ..Durability::default()
    };
    host.core.apply_regions(&durability, &[], 0);
    host.core.push_all().unwrap();
    assert_eq!(host.core.damaged_bytes(), 512, "it is damaged all the same");
}
