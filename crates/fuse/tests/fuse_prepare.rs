//! Files whose disk has to be prepared before it is read, on real mounts. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs::{self, File};
use std::sync::Arc;
use std::thread;

use acstor_fuse::{FileTable, FuseConfig, FuseHooks, FuseServer, FuseSession};
use acstor_readpath::{BlockView, ExtentKind, PrepareFuture, ReadError, ReadFuture, TryRead};
use support::pattern::{CHUNK, PatternView, is_hole};
use support::{Mounted, SEED, disk, errno, raw_name, read_checked, wait_until};
use tokio::sync::watch;

const SIZE: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnDisk,
    InMemory,
    Damaged,
}

/// A disk of the pattern that can be read only once the test says so.
struct OfferedPattern {
    pattern: PatternView,
    state: watch::Sender<State>,
}

impl OfferedPattern {
    fn new(state: State) -> Arc<OfferedPattern> {
        let pattern = PatternView::new(SEED, SIZE);
        Arc::new(OfferedPattern { pattern, state: watch::Sender::new(state) })
    }

    fn become_state(&self, state: State) {
        self.state.send_replace(state);
    }

    fn ready(&self) -> PrepareFuture {
        let mut state = self.state.subscribe();
        Box::pin(async move {
            let state = *state.wait_for(|state| *state != State::OnDisk).await.unwrap();
            let reason = "the test says so".to_owned();
            match state {
                State::Damaged => {
                    Err(ReadError::Manifest { disk: disk(1), is_damaged: true, reason })
                }
                _ => Ok(()),
            }
        })
    }

    fn is_ready(&self) -> bool {
        *self.state.borrow() == State::InMemory
    }
}

impl BlockView for OfferedPattern {
    fn size_bytes(&self) -> u64 {
        self.pattern.size_bytes()
    }

    fn prepare(&self) -> Option<PrepareFuture> {
        (!self.is_ready()).then(|| self.ready())
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        if self.is_ready() { self.pattern.try_read(offset, len) } else { Ok(TryRead::WouldWait) }
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let (ready, read) = (self.ready(), self.pattern.read(offset, len));
        Box::pin(async move {
            ready.await?;
            read.await
        })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        assert!(self.is_ready(), "where the holes are is not known");
        self.pattern.next_extent(offset, kind)
    }

    fn cached_bytes(&self) -> u64 {
        self.pattern.cached_bytes()
    }
}

fn attach(table: &FileTable, number: u8, view: Arc<dyn BlockView>) {
    table.attach(&raw_name(disk(number)), disk(number), view).unwrap();
}

/// Lets another server go on with the mount.
fn take_over(mounted: &Mounted, table: &Arc<FileTable>) -> FuseSession {
    let fd = mounted.device_for_take_over();
    mounted.session.shutdown();
    let config: FuseConfig = mounted.config.clone();
    let server = FuseServer::take_over(config, fd).unwrap();
    let runtime = mounted.runtime.handle().clone();
    server.serve(table.clone(), runtime, FuseHooks::default()).unwrap()
}

/// "An open waits until the disk can be read, and nothing else waits for that, however many opens do."
#[test]
fn test_open_waits_for_the_disk_and_nothing_else_does() {
    let mounted = Mounted::new();
    let view = OfferedPattern::new(State::OnDisk);
    attach(&mounted.table, 1, view.clone());
    mounted.attach(2, SIZE);
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let path = mounted.path(1);
            thread::spawn(move || File::open(path).unwrap())
        })
        .collect();
    wait_until("all wait", || mounted.session.stats().prepare_waits == 8);
    assert_eq!(fs::metadata(mounted.path(1)).unwrap().len(), SIZE);
    read_checked(&mounted.open_direct(2), 0, 1 << 20).unwrap();
    assert!(mounted.table.is_open(disk(1)), "an open that waits is one");
    view.become_state(State::InMemory);
    for opener in openers {
        read_checked(&opener.join().unwrap(), 0, 1 << 20).unwrap();
    }
    wait_until("they are closed", || !mounted.table.is_open(disk(1)));
    assert_eq!(mounted.session.stats().opens, 9);
}

/// "An open of a disk whose manifest cannot be read is EIO, and counts for no open."
#[test]
fn test_open_of_a_disk_without_its_manifest_is_eio() {
    let mounted = Mounted::new();
    let view = OfferedPattern::new(State::Damaged);
    attach(&mounted.table, 1, view.clone());
    assert_eq!(errno(File::open(mounted.path(1))), libc::EIO);
    assert!(!mounted.table.is_open(disk(1)));
    assert_eq!((mounted.session.stats().opens, mounted.session.stats().prepare_errors), (0, 1));
    view.become_state(State::InMemory);
    read_checked(&mounted.open(1), 0, 4096).unwrap();
}

/// "An open that a server left unanswered is answered by the next."
#[test]
fn test_open_left_unanswered_is_answered_by_the_next_server() {
    let mounted = Mounted::new();
    attach(&mounted.table, 1, OfferedPattern::new(State::OnDisk));
    let path = mounted.path(1);
    let opener = thread::spawn(move || File::open(path).unwrap());
    wait_until("it waits", || mounted.session.stats().prepare_waits == 1);
    let table = Arc::new(FileTable::new());
    attach(&table, 1, OfferedPattern::new(State::InMemory));
    let session = take_over(&mounted, &table);
    let file = opener.join().unwrap();
    read_checked(&file, 4096, 1 << 20).unwrap();
    assert!(table.is_open(disk(1)));
    drop((file, session));
}

/// "After a take-over a file that is read is open, though no open of it was seen."
#[test]
fn test_file_read_after_a_take_over_is_open() {
    let mounted = Mounted::new();
    attach(&mounted.table, 1, OfferedPattern::new(State::InMemory));
    let file = mounted.open_direct(1);
    let table = Arc::new(FileTable::new());
    let view = OfferedPattern::new(State::OnDisk);
    attach(&table, 1, view.clone());
    let session = take_over(&mounted, &table);
    assert!(!table.is_open(disk(1)), "nothing tells of it");
    let reader = thread::spawn(move || {
        read_checked(&file, 0, 1 << 20).unwrap();
        file
    });
    wait_until("it waits", || session.stats().read_waiting_now == 1);
    view.become_state(State::InMemory);
    let file = reader.join().unwrap();
    assert!(table.is_open(disk(1)));
    drop(file);
    wait_until("it is closed", || !table.is_open(disk(1)));
    drop(session);
}

/// "After a take-over a read of a disk whose manifest is damaged waits until it is attached anew."
#[test]
fn test_read_after_a_take_over_waits_for_a_whole_manifest() {
    let mounted = Mounted::new();
    attach(&mounted.table, 1, OfferedPattern::new(State::InMemory));
    let file = mounted.open_direct(1);
    let table = Arc::new(FileTable::new());
    attach(&table, 1, OfferedPattern::new(State::Damaged));
    let session = take_over(&mounted, &table);
    let reader = thread::spawn(move || read_checked(&file, 0, 4096));
    wait_until("it waits", || session.stats().read_waiting_now == 1);
    let _ = table.detach(disk(1)).unwrap();
    attach(&table, 1, OfferedPattern::new(State::InMemory));
    reader.join().unwrap().unwrap();
    assert_eq!(session.stats().read_errors, 0);
}

/// "So does one whose manifest is replaced while the file keeps its name."
#[test]
fn test_read_after_a_take_over_is_woken_by_a_manifest_that_is_replaced() {
    let mounted = Mounted::new();
    attach(&mounted.table, 1, OfferedPattern::new(State::InMemory));
    let file = mounted.open_direct(1);
    let table = Arc::new(FileTable::new());
    let view = OfferedPattern::new(State::Damaged);
    attach(&table, 1, view.clone());
    let session = take_over(&mounted, &table);
    let reader = thread::spawn(move || read_checked(&file, 0, 4096));
    wait_until("it waits", || session.stats().read_waiting_now == 1);
    view.become_state(State::InMemory);
    table.wake_waiting();
    reader.join().unwrap().unwrap();
    assert_eq!(session.stats().read_errors, 0);
}

/// "SEEK_DATA and SEEK_HOLE wait for the manifest too."
#[test]
fn test_seek_after_a_take_over_waits_for_the_manifest() {
    let mounted = Mounted::new();
    attach(&mounted.table, 1, OfferedPattern::new(State::InMemory));
    let file = mounted.open_direct(1);
    let table = Arc::new(FileTable::new());
    let view = OfferedPattern::new(State::OnDisk);
    attach(&table, 1, view.clone());
    let session = take_over(&mounted, &table);
    let seeker =
        thread::spawn(move || (rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), file));
    wait_until("it waits", || session.stats().prepare_waits == 1);
    view.become_state(State::InMemory);
    let (found, _file) = seeker.join().unwrap();
    let hole = (0..).find(|chunk| is_hole(*chunk)).unwrap() * CHUNK;
    assert_eq!(found.unwrap(), hole);
    drop(session);
}
