//! An origin that is away: requests wait for it, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use acstor_readpath::{BlockView, ExtentKind, ReadError, ReadFuture, Segment, TryRead as BaseRead};
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::regions::durability::{Durability, DurabilityClass};
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, Done, FoldHow, Opening, OriginSink, Piece,
    SinkError, Volume, VolumeConfig,
};

const VOLUME: DiskId = DiskId::from_bytes([21; 16]);
const SIZE: u64 = 8 << 20;
/// Longest time that any condition of a test may take: only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An origin whose operations hang while it is away.
#[derive(Default)]
struct HungOrigin {
    inner: MemoryOrigin,
    is_away: Mutex<bool>,
    back: Condvar,
    hanging: AtomicUsize,
}

impl HungOrigin {
    fn set_away(&self, is_away: bool) {
        *self.is_away.lock() = is_away;
        self.back.notify_all();
    }

    fn wait(&self) {
        let mut is_away = self.is_away.lock();
        self.hanging.fetch_add(1, Ordering::AcqRel);
        self.back.wait_while(&mut is_away, |is_away| *is_away);
        self.hanging.fetch_sub(1, Ordering::AcqRel);
    }
}

impl OriginSink for HungOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.wait();
        self.inner.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.wait();
        self.inner.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.wait();
        self.inner.list(prefix)
    }
}

/// A base that only an origin has, and whose reads find none in time while it is away.
struct FarBase {
    is_away: AtomicBool,
    tries: AtomicUsize,
}

impl BlockView for FarBase {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn try_read(&self, _: u64, _: usize) -> Result<BaseRead, ReadError> {
        Ok(BaseRead::WouldWait)
    }

    fn read(&self, _: u64, len: usize) -> ReadFuture {
        self.tries.fetch_add(1, Ordering::AcqRel);
        let is_away = self.is_away.load(Ordering::Acquire);
        Box::pin(async move {
            if is_away {
                return Err(ReadError::Deadline(10));
            }
            Ok(vec![Segment::Bytes(Bytes::from(vec![5; len]))])
        })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Data && offset < SIZE).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

struct Host {
    runtime: Runtime,
    directory: TempDir,
    origin: Arc<HungOrigin>,
}

impl Host {
    fn new() -> Host {
        let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        Host { runtime, directory, origin: Arc::default() }
    }

    fn open(&self, durability: Durability, base: Option<Arc<dyn BlockView>>) -> Arc<Volume> {
        let config = VolumeConfig {
            directory: self.directory.path().join("volume"),
            quota_bytes: 8 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: None,
            chunk_size: ChunkSize::DEFAULT,
        };
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: 100,
            size_bytes: SIZE,
            manifest: None,
            logs: Vec::new(),
            durability,
        };
        let (sink, handle) = (Arc::clone(&self.origin), self.runtime.handle().clone());
        Volume::open(config, opening, base, sink, handle).unwrap()
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let timeout = async { tokio::time::timeout(PATIENCE, future).await };
        self.runtime.block_on(timeout).expect("an answer before the test's end")
    }

    fn begin(&self, done: Done<()>) -> tokio::task::JoinHandle<Result<(), DeviceError>> {
        assert!(matches!(done, Done::Applied(_)), "in the log, and not answered");
        self.runtime.spawn(done.outcome())
    }
}

fn through() -> Durability {
    Durability { default: DurabilityClass::WriteThrough, ..Durability::default() }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn writes_wait_reads_go_on_and_somebody_is_told() {
    let host = Host::new();
    let volume = host.open(through(), None);
    host.origin.set_away(true);
    let waiting = host.begin(volume.write(0, Bytes::from(vec![1; 4096]), false));
    until("it waits", || volume.status().waiting_requests == 1);
    until("the push hangs", || host.origin.hanging.load(Ordering::Acquire) > 0);
    let pieces = host.wait(volume.read(0, 4096)).unwrap();
    assert_eq!(pieces.iter().map(Piece::len).sum::<usize>(), 4096);
    assert_eq!(volume.core.read_bytes(0, 4096).unwrap(), [1; 4096]);
    // Asked for while an operation on the origin hangs.
    let status = volume.status();
    assert!(status.waiting_age.is_some() && status.recovery_point_age.is_some());
    assert!(!waiting.is_finished());
    host.origin.set_away(false);
    assert_eq!(host.wait(waiting).unwrap(), Ok(()));
    until("nothing waits", || volume.status().waiting_requests == 0);
}

#[test]
fn type_that_wants_errors_gets_them_and_may_be_changed_meanwhile() {
    let host = Host::new();
    let volume = host.open(through(), None);
    host.origin.set_away(true);
    let waiting = host.begin(volume.write(0, Bytes::from(vec![1; 4096]), false));
    until("the push hangs", || host.origin.hanging.load(Ordering::Acquire) > 0);
    let impatient = Durability { io_timeout_s: Some(0.001), ..through() };
    std::thread::scope(|scope| {
        // It waits for the origin itself where it changes regions; the limit counts at once.
        scope.spawn(|| volume.set_durability(&impatient));
        let error = host.wait(waiting).unwrap().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Io);
        host.origin.set_away(false);
    });
}

#[test]
fn volume_is_closed_while_the_origin_hangs() {
    let host = Host::new();
    let volume = host.open(through(), None);
    host.origin.set_away(true);
    let waiting = host.begin(volume.write(4096, Bytes::from(vec![9; 512]), false));
    until("the push hangs", || host.origin.hanging.load(Ordering::Acquire) > 0);
    volume.close_within(Duration::ZERO);
    assert_eq!(host.wait(waiting).unwrap().unwrap_err().kind, DeviceErrorKind::Shutdown);
    // The next process goes on, whether the origin took what hung or not.
    let again = host.open(through(), None);
    assert_eq!(again.core.read_bytes(4096, 512).unwrap(), [9; 512]);
    host.origin.set_away(false);
    until("it is pushed", || again.push_now().is_ok());
    assert_eq!(again.status().dirty_bytes, 0);
}

#[test]
fn reads_of_what_no_source_gives_in_time_wait() {
    let host = Host::new();
    let base = Arc::new(FarBase { is_away: AtomicBool::new(true), tries: AtomicUsize::new(0) });
    let volume = host.open(through(), Some(Arc::clone(&base) as Arc<dyn BlockView>));
    let reading = host.runtime.spawn(volume.read(0, 512));
    until("it was tried again", || base.tries.load(Ordering::Acquire) > 3);
    assert!(!reading.is_finished());
    assert_eq!(volume.status().waiting_requests, 1);
    base.is_away.store(false, Ordering::Release);
    assert_eq!(host.wait(reading).unwrap().unwrap().len(), 1);
    assert_eq!(volume.status().waiting_requests, 0);

    // By the type's choice it is an error, and a read that waits ends when the volume does.
    base.is_away.store(true, Ordering::Release);
    volume.set_durability(&Durability { io_timeout_s: Some(0.001), ..through() }).unwrap();
    assert_eq!(host.wait(volume.read(0, 512)).unwrap_err().kind, DeviceErrorKind::Io);
    volume.set_durability(&through()).unwrap();
    let reading = host.runtime.spawn(volume.read(0, 512));
    until("it waits", || volume.status().waiting_requests == 1);
    volume.close();
    assert_eq!(host.wait(reading).unwrap().unwrap_err().kind, DeviceErrorKind::Shutdown);
}

/// Scattered writes fill the map: they wait for a fold, and where none can help they find no room.
#[test]
fn map_is_bounded_by_waiting_for_a_fold() {
    let host = Host::new();
    let slow = Durability { period_s: 3600.0, ..Durability::default() };
    let volume = host.open(slow, None);
    volume.core.load.set_extents_max(16);
    let write = |number: u64| volume.write(number * 8192, Bytes::from(vec![3; 512]), false);
    for number in 0..16 {
        assert!(matches!(write(number), Done::Now(Ok(()))));
    }
    volume.core.look_at_load();
    assert!(volume.fold_due(u64::MAX, u64::MAX), "whatever else is said of folds");
    let Done::Later(waiting) = write(16) else { panic!("the map is full") };
    let waiting = host.runtime.spawn(waiting);
    until("it waits", || volume.status().waiting_requests == 1);
    let folded = volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap();
    assert!(!waiting.is_finished());
    let disk = host.origin.inner.disk(&folded.digest);
    let manifest = host.origin.inner.manifest(&folded.digest);
    volume.set_base(Arc::new(MemoryBase(disk.into())), manifest, &folded);
    assert_eq!(host.wait(waiting).unwrap(), Ok(()));
    assert_eq!(volume.core.read_bytes(15 * 8192, 512).unwrap(), [3; 512]);
    assert_eq!(volume.core.read_bytes(16 * 8192, 512).unwrap(), [3; 512]);
}

#[test]
fn map_of_what_never_travels_is_bounded_by_its_room() {
    let host = Host::new();
    let none = Durability { default: DurabilityClass::None, ..Durability::default() };
    let volume = host.open(none, None);
    volume.core.load.set_extents_max(4);
    let write = |number: u64| volume.write(number * 8192, Bytes::from(vec![3; 512]), false);
    for number in 0..4 {
        assert!(matches!(write(number), Done::Now(Ok(()))));
    }
    volume.core.look_at_load();
    let error = host.wait(write(4).outcome()).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
}
