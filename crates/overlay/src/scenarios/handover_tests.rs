//! A hand-over: how much travels while the guest's requests wait, in bytes and not in seconds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::limits::LOG_OBJECT_BYTES_MAX;
use crate::push::Wanted;
use crate::regions::durability::Durability;
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::{BlockDevice, FoldHow, LogRange, Opening, OriginSink, SinkError, Volume, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([33; 16]);
const SIZE: u64 = 64 << 20;
const BLOCK: usize = 64 << 10;
const DIRTY: u64 = 48 << 20;
/// Bytes that 1 Gbit/s carries in a tenth of a second.
const PAUSE_BYTES: u64 = 125_000_000 / 10;
/// Blocks that the guest writes during the hand-over, at most.
const WRITES: u64 = 512;

/// An origin that counts what it carries.
#[derive(Default)]
struct CountingOrigin {
    inner: MemoryOrigin,
    bytes: AtomicU64,
    operations: AtomicU64,
}

impl CountingOrigin {
    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        self.operations.fetch_add(1, Ordering::AcqRel);
    }
}

impl OriginSink for CountingOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.count(parts.iter().map(Bytes::len).sum());
        self.inner.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        let object = self.inner.get(key, size_max)?;
        self.count(object.as_ref().map_or(0, Bytes::len));
        Ok(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.count(0);
        self.inner.list(prefix)
    }
}

fn config(path: &Path) -> VolumeConfig {
    VolumeConfig {
        directory: path.join("volume"),
        quota_bytes: 1 << 30,
        reserve_bytes: 0,
        segment_bytes: 16 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
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

/// Content that does not compress, another one for each place and round.
fn content(seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    Bytes::from(bytes)
}

/// Writes blocks one after the other until told to stop, or done; returns how many.
fn guest(runtime: &Runtime, volume: &Volume, disk: &mut [u8], is_paused: &AtomicBool) -> u64 {
    let mut number = 0;
    while !is_paused.load(Ordering::Acquire) && number < WRITES {
        let at = number % (SIZE / BLOCK as u64) * BLOCK as u64;
        let data = content(number + (1 << 32));
        disk[at as usize..at as usize + BLOCK].copy_from_slice(&data);
        runtime.block_on(volume.write(at, data, false).outcome()).unwrap();
        number += 1;
    }
    number
}

#[test]
fn little_travels_while_requests_wait() {
    let runtime = Runtime::new().unwrap();
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let origin = Arc::new(CountingOrigin::default());
    let handle = runtime.handle().clone();
    let source =
        Volume::open(config(here.path()), opening(), None, origin.clone(), handle.clone()).unwrap();
    let mut disk = vec![0; SIZE as usize];
    for at in (0..DIRTY).step_by(BLOCK) {
        let data = content(at);
        disk[at as usize..at as usize + BLOCK].copy_from_slice(&data);
        runtime.block_on(source.write(at, data, false).outcome()).unwrap();
    }
    assert_eq!(source.status().dirty_bytes, DIRTY);
    assert_eq!(origin.operations.load(Ordering::Acquire), 0);

    // The guest goes on while most of it is pushed.
    let is_paused = AtomicBool::new(false);
    let (is_log_long, written) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| guest(&runtime, &source, &mut disk, &is_paused));
        let ahead = source.push_ahead();
        is_paused.store(true, Ordering::Release);
        (ahead.unwrap(), writing.join().unwrap())
    });
    assert!(is_log_long, "{DIRTY} bytes of log are much to read for the next owner");
    let folded = source.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap();
    let folded_disk = Bytes::from(origin.inner.disk(&folded.digest));
    let manifest = origin.inner.manifest(&folded.digest);
    source.set_base(Arc::new(MemoryBase(folded_disk.clone())), manifest, &folded);
    assert!(!source.push_ahead().unwrap(), "after {written} writes");

    // From here on requests wait.
    let before = origin.bytes.load(Ordering::Acquire);
    let last = source.release().unwrap();
    let first = folded.until.sequence + 1;
    let more = LogRange { volume: VOLUME, epoch: 1, first, last: last.sequence };
    let opening = Opening {
        epoch: 2,
        next: last.sequence + 1,
        manifest: Some(origin.inner.manifest(&folded.digest)),
        logs: if first <= last.sequence { vec![more] } else { Vec::new() },
        ..opening()
    };
    let base = Arc::new(MemoryBase(folded_disk));
    let destination =
        Volume::open(config(there.path()), opening, Some(base), origin.clone(), handle).unwrap();
    let travelled = origin.bytes.load(Ordering::Acquire) - before;
    assert!(travelled <= PAUSE_BYTES, "{travelled} bytes travel while the guest waits");
    assert!(destination.core.read_bytes(0, SIZE as usize).unwrap() == disk, "nothing is lost");
}

/// An origin that takes an object once it is let.
struct HeldOrigin {
    inner: MemoryOrigin,
    begun: Mutex<mpsc::Sender<()>>,
    may_end: Mutex<mpsc::Receiver<()>>,
}

impl OriginSink for HeldOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.begun.lock().send(()).unwrap();
        self.may_end.lock().recv().unwrap();
        self.inner.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.inner.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.inner.list(prefix)
    }
}

/// A batch that is cut and in no object yet would look like nothing, and travel while requests
/// wait.
#[test]
fn batch_that_has_just_begun_is_left_to_be_pushed() {
    let runtime = Runtime::new().unwrap();
    let here = tempfile::tempdir().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let inner = MemoryOrigin::default();
    let (begun, may_end) = (Mutex::new(begun), Mutex::new(may_end));
    let origin = Arc::new(HeldOrigin { inner, begun, may_end });
    let handle = runtime.handle().clone();
    let source = Volume::open(config(here.path()), opening(), None, origin, handle).unwrap();
    for at in (0..DIRTY).step_by(BLOCK) {
        runtime.block_on(source.write(at, content(at), false).outcome()).unwrap();
    }
    let core = &source.core;
    std::thread::scope(|scope| {
        let asked = core.log.map().regions.groups().len();
        let wanted = Wanted { asked: (1 << asked) - 1, ..Wanted::default() };
        let pushing = scope.spawn(move || core.push_one(wanted).unwrap());
        has_begun.recv().unwrap();
        let (looking, looks) = mpsc::channel();
        let look = scope.spawn(move || {
            looking.send(()).unwrap();
            core.bytes_to_push()
        });
        looks.recv().unwrap();
        end.send(()).unwrap();
        pushing.join().unwrap();
        let left = look.join().unwrap();
        assert!(left >= DIRTY - 2 * LOG_OBJECT_BYTES_MAX as u64, "{left} bytes are left");
    });
    drop(end);
}

/// A guest that writes faster than the origin takes it is held back, and the hand-over ends.
#[test]
fn guest_that_outruns_the_origin_is_held_back_for_the_release() {
    let runtime = Runtime::new().unwrap();
    let here = tempfile::tempdir().unwrap();
    let origin = Arc::new(CountingOrigin::default());
    let source = Volume::open(
        config(here.path()),
        opening(),
        None,
        origin.clone(),
        runtime.handle().clone(),
    )
    .unwrap();
    let now = std::time::Instant::now();
    source.core.load.hold_back.begin(now);
    source.core.load.hold_back.end(now + std::time::Duration::from_secs(1), Some(1 << 20));
    source.core.load.hold_back.converge(Some(now + std::time::Duration::from_secs(3600)));
    source.core.look_at_load();
    assert!(!source.status().held_back_per_mib.is_zero());
    let done = source.write(0, content(1), false);
    assert!(matches!(done, crate::Done::Applied(_)), "in the log at once, answered later");
    assert_eq!(source.core.read_bytes(0, BLOCK).unwrap(), content(1));
    source.core.load.hold_back.converge(None);
    source.core.look_at_load();
    assert!(source.status().held_back_per_mib.is_zero());
    assert!(matches!(source.write(0, content(2), false), crate::Done::Now(Ok(()))));
}
