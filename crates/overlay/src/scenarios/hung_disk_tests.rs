//! A local disk that does not answer for some time: what needs nothing of it goes on, what does waits, and
//! nothing fails or is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acstor_testkit::Fault;
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::compaction::compact;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::scenarios::volume_tests::until;
use crate::segments::disk::LogDisk;
use crate::segments::record_log::AppendError;
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, Opening, Piece, TryRead, Volume, VolumeConfig,
    VolumeState,
};

const VOLUME: DiskId = DiskId::from_bytes([35; 16]);
const SIZE: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// Longest time that any condition of a test may take: only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Host {
    runtime: Runtime,
    disk: MemoryDisk,
    origin: MemoryOrigin,
    volume: Arc<Volume>,
}

fn open(
    runtime: &Runtime,
    disk: &MemoryDisk,
    origin: &MemoryOrigin,
    class: DurabilityClass,
) -> Arc<Volume> {
    let config = VolumeConfig {
        directory: PathBuf::new(),
        quota_bytes: 32 << 20,
        reserve_bytes: 0,
        segment_bytes: 1 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let durability = Durability { default: class, period_s: 3600.0, ..Durability::default() };
    let opening = Opening {
        volume: VOLUME,
        epoch: 1,
        next: 1,
        size_bytes: SIZE,
        manifest: None,
        logs: Vec::new(),
        durability,
    };
    let shared: Arc<dyn LogDisk> = Arc::new(disk.clone());
    let sink = Arc::new(origin.clone());
    Volume::open_on(shared, config, opening, None, sink, runtime.handle().clone()).unwrap()
}

/// The one piece that has a block; nothing is read.
fn piece_of(volume: &Volume, block: u64) -> Piece {
    match volume.try_read(block * BLOCK as u64, BLOCK).unwrap() {
        TryRead::Ready(mut pieces) if pieces.len() == 1 => pieces.remove(0),
        _ => panic!("the log has it"),
    }
}

impl Host {
    fn new(class: DurabilityClass) -> Host {
        let (runtime, disk) = (Runtime::new().unwrap(), MemoryDisk::new(64 << 20));
        let origin = MemoryOrigin::default();
        let volume = open(&runtime, &disk, &origin, class);
        Host { runtime, disk, origin, volume }
    }

    fn start_write(&self, block: u64, byte: u8) -> JoinHandle<Result<(), DeviceError>> {
        let data = Bytes::from(vec![byte; BLOCK]);
        self.runtime.spawn(self.volume.write(block * BLOCK as u64, data, false).outcome())
    }

    fn start_flush(&self) -> JoinHandle<Result<(), DeviceError>> {
        self.runtime.spawn(self.volume.flush().outcome())
    }

    fn wait(&self, request: JoinHandle<Result<(), DeviceError>>) {
        self.runtime.block_on(request).unwrap().unwrap();
    }

    /// Waits for the error of a request whose local log has failed.
    fn fails(&self, request: JoinHandle<Result<(), DeviceError>>) {
        let limited = async { tokio::time::timeout(PATIENCE, request).await };
        let outcome = self.runtime.block_on(limited).expect("it is answered");
        let error = outcome.unwrap().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Io);
        assert!(error.message.contains("local disk failed"), "{error:?}");
    }

    fn piece(&self, block: u64) -> Piece {
        piece_of(&self.volume, block)
    }
}

fn content(piece: &Piece) -> Vec<u8> {
    let Piece::Log(piece) = piece else { panic!("{piece:?}") };
    let mut bytes = vec![0; piece.len()];
    piece.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn sync_that_hangs_holds_up_flushes_and_nothing_else() {
    let host = Host::new(DurabilityClass::WriteBack);
    host.wait(host.start_write(0, 1));
    let hang = host.disk.faults.hang("sync");
    let flushes = [host.start_flush(), host.start_flush()];
    hang.wait_for(1);
    for block in 1..9 {
        host.wait(host.start_write(block, block as u8 + 1));
    }
    for block in 0..9 {
        assert_eq!(content(&host.piece(block)), vec![block as u8 + 1; BLOCK]);
    }
    assert_eq!(host.volume.status().dirty_bytes, 9 * BLOCK as u64);
    assert!(flushes.iter().all(|flush| !flush.is_finished()));
    drop(hang);
    flushes.into_iter().for_each(|flush| host.wait(flush));
}

#[test]
fn sync_that_hangs_holds_up_what_goes_through_to_the_origin() {
    let host = Host::new(DurabilityClass::WriteThrough);
    host.wait(host.start_write(0, 1));
    let hang = host.disk.faults.hang("sync");
    let write = host.start_write(1, 2);
    hang.wait_for(1);
    assert!(!write.is_finished(), "the origin is not to be ahead of a host that loses power");
    assert_eq!(content(&host.piece(0)), [1; BLOCK]);
    drop(hang);
    host.wait(write);
    until("it is pushed", || host.volume.status().dirty_bytes == 0);
}

#[test]
fn write_that_goes_through_fails_with_the_sync_before_its_push() {
    let host = Host::new(DurabilityClass::WriteThrough);
    host.wait(host.start_write(0, 1));
    // Each: the threads that keep the log short may have one of their own before the write's.
    host.disk.faults.fail_always("sync", Fault::EIO);
    host.fails(host.start_write(1, 2));
    assert_eq!(host.volume.core.state(), VolumeState::Failed);
    assert_eq!(host.volume.status().waiting_requests, 0);
}

/// They wait for an origin that is away; with the local log it is no more use to them.
#[test]
fn requests_that_wait_for_the_origin_fail_with_the_local_log() {
    let host = Host::new(DurabilityClass::WriteThrough);
    host.origin.faults.fail_always("put", Fault::EIO);
    let waiting = [host.start_write(0, 1), host.start_write(1, 2)];
    until("they wait", || host.volume.status().waiting_requests == 2);
    until("it was tried", || host.origin.faults.faults() > 0);
    host.disk.faults.fail_always("sync", Fault::EIO);
    let log = &host.volume.core.log;
    log.write(80, &[3; 512]).and_then(|sequence| log.sync(sequence)).unwrap_err();
    waiting.into_iter().for_each(|request| host.fails(request));
    host.fails(host.start_flush());
    assert_eq!(host.volume.status().waiting_requests, 0);
    // What fails because the log has failed does not take the reason's place.
    log.head().spare = None;
    log.records.wants_keep.store(true, Ordering::Release);
    compact(&host.volume.core);
    assert!(!log.wants_keep(), "it was tried");
    let reason = host.volume.status().error.unwrap();
    assert!(reason.contains("local disk failed"), "{reason}");
}

/// The reader that asks is not the thread that waits for the disk: reads are planned without it.
#[test]
fn read_that_hangs_holds_up_its_reader_alone() {
    let host = Host::new(DurabilityClass::WriteBack);
    host.wait(host.start_write(0, 1));
    let hang = host.disk.faults.hang("read");
    let (first, second) = (host.piece(0), host.piece(0));
    let reader = host.runtime.spawn_blocking(move || content(&first));
    hang.wait_for(1);
    host.wait(host.start_write(1, 2));
    host.wait(host.start_flush());
    assert_eq!(host.volume.status().dirty_bytes, 2 * BLOCK as u64);
    assert_eq!(host.volume.status().damaged_bytes, 0);
    assert!(!reader.is_finished());
    drop(hang);
    assert_eq!(host.runtime.block_on(reader).unwrap(), [1; BLOCK]);
    assert_eq!(content(&second), [1; BLOCK]);
}

/// Making room for a writer takes a thread and a slot: they may come when the log is closed, and
/// another process has it.
#[test]
fn room_for_a_writer_is_not_made_in_a_log_that_was_closed() {
    let mut host = Host::new(DurabilityClass::WriteBack);
    let release = host.volume.prepare_release().unwrap();
    let before = Arc::clone(&host.volume.core);
    // Something of each segment is alive, and is copied for room.
    let sectors = |number: u64| (number % 100 / 99) * (1 + number / 100) * 8;
    let full =
        (0..).map(|number| before.log.write(sectors(number), &[1; BLOCK])).find_map(Result::err);
    assert!(matches!(full, Some(AppendError::NoSpace)), "{full:?}");
    release.finish().unwrap();

    host.volume = open(&host.runtime, &host.disk, &host.origin, DurabilityClass::WriteBack);
    host.wait(host.start_write(500, 2));
    host.wait(host.start_flush());
    assert!(before.log.make_room(VOLUME, 1).unwrap(), "who asked finds that it is closed");
    // As a kill leaves it: its compaction changes no file any more.
    let _quiet = host.volume.prepare_release().unwrap();
    let disk = host.disk.after_kill();
    let next = open(&host.runtime, &disk, &host.origin, DurabilityClass::WriteBack);
    assert_eq!(content(&piece_of(&next, 500)), [2; BLOCK]);
}
