//! A release: what it does while requests wait, in operations and not in seconds.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::compaction::compact;
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::scenarios::volume_tests::until;
use crate::segments::disk::LogDisk;
use crate::segments::extent_map::Place;
use crate::{
    BlockDevice, Done, LogRange, Opening, OriginSink, OverlayError, SinkError, Volume,
    VolumeConfig, VolumeState,
};

const VOLUME: DiskId = DiskId::from_bytes([34; 16]);
const SIZE: u64 = 64 << 20;
const SEGMENT: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;
/// Bytes that may be pushed while requests wait: 67 ms at 1 Gbit/s.
const WAITED_FOR: u64 = 8 << 20;
/// Operations that the file system journals, and that wait for a busy disk.
const JOURNALLED: [&str; 4] = ["create", "remove", "rename", "sync-names"];

struct Host {
    runtime: Runtime,
    origin: MemoryOrigin,
    disk: MemoryDisk,
}

impl Host {
    fn new() -> Host {
        let (runtime, disk) = (Runtime::new().unwrap(), MemoryDisk::new(1 << 30));
        Host { runtime, origin: MemoryOrigin::default(), disk }
    }

    fn open(&self, opening: Opening) -> Arc<Volume> {
        self.open_over(opening, Arc::new(self.origin.clone()))
    }

    fn open_over(&self, opening: Opening, sink: Arc<dyn OriginSink>) -> Arc<Volume> {
        let config = VolumeConfig {
            directory: PathBuf::new(),
            quota_bytes: 256 << 20,
            reserve_bytes: 0,
            segment_bytes: SEGMENT,
            push_rate: None,
            io_timeout: None,
            chunk_size: ChunkSize::DEFAULT,
        };
        let disk: Arc<dyn LogDisk> = Arc::new(self.disk.clone());
        let handle = self.runtime.handle().clone();
        Volume::open_on(disk, config, opening, None, sink, handle).unwrap()
    }

    fn write(&self, volume: &Volume, offset: u64, byte: u8) {
        let done = volume.write(offset, Bytes::from(vec![byte; BLOCK]), false);
        self.runtime.block_on(done.outcome()).unwrap();
    }

    fn journalled(&self) -> u64 {
        JOURNALLED.iter().map(|operation| self.disk.faults.calls(operation)).sum()
    }
}

fn opening() -> Opening {
    Opening {
        volume: VOLUME,
        epoch: 1,
        next: 1,
        size_bytes: SIZE,
        manifest: None,
        logs: Vec::new(),
        durability: Durability { period_s: 3600.0, ..Durability::default() },
    }
}

#[test]
fn disk_is_asked_for_nothing_but_the_last_writes_while_requests_wait() {
    let host = Host::new();
    let volume = host.open(opening());
    for at in (0..SIZE / 2).step_by(BLOCK) {
        host.write(&volume, at, 1);
    }
    let release = volume.prepare_release().unwrap();
    // The guest goes on until the overlay is taken away.
    host.write(&volume, SIZE - BLOCK as u64, 2);
    let before = (host.journalled(), host.disk.faults.calls("sync"));
    let last = release.finish().unwrap();
    let after = (host.journalled(), host.disk.faults.calls("sync"));
    assert_eq!(after.0 - before.0, 0, "files and names while requests wait");
    assert_eq!(after.1 - before.1, 1, "syncs while requests wait");
    drop(volume);

    let range = LogRange { volume: VOLUME, epoch: 1, first: 1, last: last.sequence };
    let elsewhere = Host { origin: host.origin.clone(), ..Host::new() };
    let next = Opening { epoch: 2, next: last.sequence + 2, logs: vec![range], ..opening() };
    let volume = elsewhere.open(next);
    assert_eq!(volume.core.read_bytes(0, BLOCK).unwrap(), [1; BLOCK]);
    assert_eq!(volume.core.read_bytes(SIZE - BLOCK as u64, BLOCK).unwrap(), [2; BLOCK]);
}

/// An origin during whose every object the guest writes three quarters as much: they are as quick as
/// the link is, and no clock is asked.
#[derive(Default)]
struct WrittenOrigin {
    inner: MemoryOrigin,
    bytes: AtomicU64,
    guest: Mutex<Option<Guest>>,
}

struct Guest {
    volume: Weak<Volume>,
    /// Number of the next block that it writes, which is its content, too.
    next: u64,
}

impl WrittenOrigin {
    fn let_write(&self, bytes: u64) {
        let mut guest = self.guest.lock();
        let Some(Guest { volume, next }) = &mut *guest else { return };
        let Some(volume) = volume.upgrade() else { return };
        for _ in 0..bytes * 3 / 4 / BLOCK as u64 {
            let at = *next % (SIZE / BLOCK as u64) * BLOCK as u64;
            match volume.write(at, numbered(*next), false) {
                Done::Later(_) => return, // requests wait
                Done::Now(answer) => answer.unwrap(),
                Done::Applied(_) => {} // held back, and in the log
            }
            *next += 1;
        }
    }
}

/// A block that no compression makes small.
fn numbered(number: u64) -> Bytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(BLOCK / 8).flatten().collect()
}

impl OriginSink for WrittenOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        self.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        self.let_write(bytes as u64);
        self.inner.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.inner.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.inner.list(prefix)
    }
}

#[test]
fn guest_that_writes_all_the_while_waits_for_little() {
    let host = Host::new();
    let origin = Arc::new(WrittenOrigin { inner: host.origin.clone(), ..Default::default() });
    let volume = host.open_over(opening(), origin.clone());
    let blocks = SIZE / BLOCK as u64;
    for number in 0..blocks {
        let done = volume.write(number * BLOCK as u64, numbered(number), false);
        host.runtime.block_on(done.outcome()).unwrap();
    }
    *origin.guest.lock() = Some(Guest { volume: Arc::downgrade(&volume), next: blocks });
    let release = volume.prepare_release().unwrap();
    let ahead = origin.bytes.load(Ordering::Acquire);
    let last = release.finish().unwrap();
    let waited_for = origin.bytes.load(Ordering::Acquire) - ahead;
    let written = origin.guest.lock().take().unwrap().next;
    assert!(ahead > SIZE && written > blocks, "{ahead} bytes ahead, {written} blocks written");
    assert!(waited_for <= WAITED_FOR, "{waited_for} bytes are pushed while requests wait");
    drop(volume);

    let range = LogRange { volume: VOLUME, epoch: 1, first: 1, last: last.sequence };
    let elsewhere = Host { origin: host.origin.clone(), ..Host::new() };
    let next = Opening { epoch: 2, next: last.sequence + 2, logs: vec![range], ..opening() };
    let volume = elsewhere.open(next);
    for number in written - blocks..written {
        let at = number % blocks * BLOCK as u64;
        assert_eq!(volume.core.read_bytes(at, BLOCK).unwrap(), numbered(number), "{number}");
    }
}

/// The release was given up, or the record could not be changed: the owner goes on.
#[test]
fn log_that_was_released_opens_again_with_all_that_it_has() {
    let host = Host::new();
    let volume = host.open(opening());
    host.write(&volume, 0, 1);
    let release = volume.prepare_release().unwrap();
    host.write(&volume, BLOCK as u64, 2);
    let last = release.finish().unwrap();
    drop(volume);
    let volume = host.open(opening());
    assert_eq!(volume.core.read_bytes(0, BLOCK).unwrap(), [1; BLOCK]);
    assert_eq!(volume.core.read_bytes(BLOCK as u64, BLOCK).unwrap(), [2; BLOCK]);
    host.write(&volume, 0, 3);
    assert!(volume.push_now().unwrap().sequence > last.sequence);
}

#[test]
fn log_with_parts_of_class_none_says_that_the_origin_has_the_rest() {
    let region = RegionSpec {
        first: Some(SIZE / 2),
        last: Some(SIZE),
        partition: None,
        class: DurabilityClass::None,
        period_s: None,
    };
    let host = Host::new();
    let durability = Durability { regions: vec![region], ..opening().durability };
    let opening = || Opening { durability: durability.clone(), ..opening() };
    let volume = host.open(opening());
    host.write(&volume, 0, 1);
    host.write(&volume, SIZE / 2, 2);
    volume.release().unwrap();
    drop(volume);
    let volume = host.open(opening());
    assert_eq!(volume.status().dirty_bytes, 0);
    assert_eq!(volume.core.read_bytes(SIZE / 2, BLOCK).unwrap(), [2; BLOCK]);
}

/// Turns a bit around of what the log has at a place of the disk.
fn damage(volume: &Volume, offset: u64) {
    let extent = {
        let map = volume.core.log.map();
        map.extents.range(offset / 512, offset / 512 + 1).next().unwrap()
    };
    let Place::Log { segment, offset } = extent.place else { panic!("zeros") };
    let segment = Arc::clone(&volume.core.log.map().segments[&segment]);
    let mut byte = [0];
    segment.file.read_exact_at(&mut byte, offset + 100).unwrap();
    segment.file.write_all_at(&mut [IoSlice::new(&[byte[0] ^ 1])], offset + 100).unwrap();
}

/// A volume is not released while the origin lacks something that cannot be read: it goes on, and
/// says why.
#[test]
fn volume_that_is_damaged_amid_its_release_goes_on() {
    let host = Host::new();
    let volume = host.open(opening());
    let release = volume.prepare_release().unwrap();
    host.write(&volume, 0, 1);
    damage(&volume, 0);
    let error = release.finish().unwrap_err();
    assert!(matches!(error, OverlayError::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("65536 bytes"), "{error}");
    assert_eq!(volume.status().state, VolumeState::Open);
    assert_eq!(volume.status().damaged_bytes, BLOCK as u64);
    host.write(&volume, BLOCK as u64, 2);
    // Nobody waits for the next attempt, which ends the same.
    let Err(error) = volume.prepare_release() else { panic!("the origin lacks what is damaged") };
    assert!(matches!(error, OverlayError::Corrupt(_)), "{error}");
    host.write(&volume, 0, 3);
    volume.release().unwrap();
}

#[test]
fn compaction_begins_nothing_while_a_release_is_at_hand() {
    let host = Host::new();
    let volume = host.open(opening());
    let release = volume.prepare_release().unwrap();
    let before = host.disk.faults.calls("rename");
    // More than a checkpoint is due after.
    for round in 0..SEGMENT * 20 / BLOCK as u64 {
        host.write(&volume, 0, round as u8);
    }
    compact(&volume.core);
    assert_eq!(host.disk.faults.calls("rename"), before);
    drop(release);
    until("a checkpoint that was due", || host.disk.faults.calls("rename") > before);
}
