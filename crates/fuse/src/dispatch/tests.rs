//! Requests as no well-behaved kernel sends them, over a socket in place of the device.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use acstor_readpath::{BlockView, ExtentKind, ReadDone, ReadError, ReadFuture, Segment, TryRead};
use acstor_types::DiskId;
use parking_lot::Mutex;
use proptest::prelude::*;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use tokio::sync::Semaphore;
use zerocopy::{FromBytes, IntoBytes};

use super::Dispatch;
use crate::device::Device;
use crate::session::session_state::{SessionState, StateCell};
use crate::wire::abi::{self, opcode};
use crate::wire::inode::FileKey;
use crate::{FileTable, FuseConfig, FuseHooks};

const SIZE: u64 = 1 << 20;
const ROOT: u64 = 1;

struct ZeroView;

impl BlockView for ZeroView {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        let left = SIZE.saturating_sub(offset).min(len as u64);
        Ok(TryRead::Ready(vec![Segment::Zeros(left as usize)]))
    }

    fn read(&self, _offset: u64, _len: usize) -> ReadFuture {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Hole).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

/// A disk whose reads are started, and ended by the test; 7s by a thread that reads a disk, 9s by a task.
#[derive(Default)]
struct DiskView(Mutex<Vec<ReadDone>>);

impl DiskView {
    fn end(&self, segments: Option<Vec<Segment>>) {
        let done = self.0.lock().remove(0);
        done(segments);
    }
}

fn bytes(byte: u8, len: usize) -> Vec<Segment> {
    vec![Segment::Bytes(vec![byte; len].into())]
}

impl BlockView for DiskView {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn try_read(&self, _offset: u64, _len: usize) -> Result<TryRead, ReadError> {
        Ok(TryRead::WouldWait)
    }

    fn read(&self, _offset: u64, len: usize) -> ReadFuture {
        Box::pin(async move { Ok(bytes(9, len)) })
    }

    fn start_read(&self, _offset: u64, _len: usize, done: ReadDone) {
        self.0.lock().push(done);
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Data).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

fn disk() -> DiskId {
    DiskId::from_bytes([7; 16])
}

struct Bench {
    dispatch: Arc<Dispatch>,
    kernel: OwnedFd,
    runtime: tokio::runtime::Runtime,
}

/// An answer: errno (0 for success) and body.
#[derive(Debug, PartialEq, Eq)]
struct Answer(i32, Vec<u8>);

impl Bench {
    fn new() -> Bench {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (server, kernel) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let files = Arc::new(FileTable::new());
        files.attach("a.raw", disk(), Arc::new(ZeroView)).unwrap();
        let dispatch = Arc::new(Dispatch {
            config: FuseConfig::new("/mnt"),
            device: Arc::new(Device::new(server)),
            files,
            runtime: runtime.handle().clone(),
            hooks: FuseHooks::default(),
            stats: Default::default(),
            permits: Arc::new(Semaphore::new(1)),
            attached_until: None,
            heartbeats: crate::session::heartbeats::Heartbeats::new(1),
            is_handed_over: false.into(),
            state: StateCell::new(SessionState::Starting),
            negotiated: None.into(),
        });
        Bench { dispatch, kernel, runtime }
    }

    /// Hands one message over and returns what was answered, if anything, with its number.
    fn ask_raw(&self, message: &[u8]) -> Option<(u64, Answer)> {
        self.dispatch.handle(message);
        self.answered()
    }

    /// Returns what was answered meanwhile, if anything, with its number.
    fn answered(&self) -> Option<(u64, Answer)> {
        let mut buffer = vec![0; 2 << 20];
        let (_, length) = recv(&self.kernel, &mut buffer[..], RecvFlags::DONTWAIT).ok()?;
        let (header, body) = abi::OutHeader::read_from_prefix(&buffer[..length]).unwrap();
        assert_eq!(header.len as usize, length);
        let (_, more) = recv(&self.kernel, &mut [0; 16][..], RecvFlags::DONTWAIT).unwrap_or((0, 0));
        assert_eq!(more, 0, "one answer per request");
        Some((header.unique, Answer(-header.error, body.to_vec())))
    }

    fn ask(&self, opcode: u32, inode: u64, body: &[u8]) -> Option<Answer> {
        let unique = 6 | abi::UNIQUE_RESEND;
        let (number, answer) = self.ask_raw(&message(opcode, inode, unique, body))?;
        assert_eq!(number, unique, "the number comes back unchanged, resend bit included");
        Some(answer)
    }

    fn errno(&self, opcode: u32, inode: u64, body: &[u8]) -> i32 {
        self.ask(opcode, inode, body).unwrap().0
    }
}

fn message(opcode: u32, nodeid: u64, unique: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<abi::InHeader>() + body.len()) as u32;
    let header = abi::InHeader { len, opcode, unique, nodeid, ..Default::default() };
    [header.as_bytes(), body].concat()
}

fn read_body(fh: u64, offset: u64, size: u32) -> Vec<u8> {
    abi::ReadIn { fh, offset, size, ..Default::default() }.as_bytes().to_vec()
}

#[test]
fn a_read_with_the_handle_of_another_disk_is_refused() {
    let bench = Bench::new();
    let key = FileKey::of(disk());
    let read = |inode, handle| bench.errno(opcode::READ, inode, &read_body(handle, 0, 4096));
    assert_eq!(read(key.inode, key.handle), 0);
    assert_eq!(read(key.inode, key.handle ^ 1), libc::ESTALE);
    assert_eq!(read(key.inode ^ 1, key.handle), libc::ESTALE);
    assert_eq!(bench.dispatch.stats.snapshot().read_unknown, 2);
}

#[test]
fn a_read_larger_than_agreed_is_refused() {
    let bench = Bench::new();
    let key = FileKey::of(disk());
    let read =
        |size| bench.errno(opcode::READ, key.inode, &read_body(key.handle, SIZE - 4096, size));
    assert_eq!(read(1 << 20), 0);
    assert_eq!(read((1 << 20) + 1), libc::EINVAL);
    assert_eq!(read(u32::MAX), libc::EINVAL);
}

#[test]
fn a_read_beyond_the_end_is_empty() {
    let bench = Bench::new();
    let key = FileKey::of(disk());
    for offset in [SIZE, SIZE + 1, u64::MAX] {
        let answer = bench.ask(opcode::READ, key.inode, &read_body(key.handle, offset, 4096));
        assert_eq!(answer, Some(Answer(0, vec![])), "{offset}");
    }
}

#[test]
fn malformed_requests_are_answered_and_counted() {
    let bench = Bench::new();
    for (code, body) in [(opcode::LOOKUP, &b"no end"[..]), (opcode::READ, b"short")] {
        assert_eq!(bench.errno(code, ROOT, body), libc::EINVAL);
    }
    let long = [message(opcode::STATFS, ROOT, 4, &[]), vec![0]].concat();
    assert_eq!(bench.ask_raw(&long), Some((4, Answer(libc::EINVAL, vec![]))));
    assert_eq!(bench.ask_raw(b"nothing"), None);
    assert_eq!(bench.dispatch.stats.snapshot().malformed, 4);
}

#[test]
fn requests_that_want_no_answer_get_none() {
    let bench = Bench::new();
    let forget = abi::ForgetIn { nlookup: u64::MAX };
    assert_eq!(bench.ask(opcode::FORGET, 99, forget.as_bytes()), None);
    assert_eq!(bench.ask(opcode::FORGET, 99, b"cut"), None);
    assert_eq!(bench.ask(opcode::BATCH_FORGET, 0, &[0xff; 8]), None);
    assert_eq!(bench.ask(opcode::INTERRUPT, 0, &[1; 8]), None);
}

#[test]
fn unknown_inodes_are_stale() {
    let bench = Bench::new();
    assert_eq!(bench.errno(opcode::GETATTR, 99, &[0; 16]), libc::ESTALE);
    assert_eq!(bench.errno(opcode::OPEN, 99, &[0; 8]), libc::ESTALE);
    let seek = abi::LseekIn { whence: libc::SEEK_DATA as u32, ..Default::default() };
    assert_eq!(bench.errno(opcode::LSEEK, 99, seek.as_bytes()), libc::ESTALE);
    assert_eq!(bench.errno(opcode::RELEASE, 99, &[0; 24]), 0);
    assert_eq!(bench.errno(opcode::LOOKUP, 99, b"a.raw\0"), libc::ENOTDIR);
    assert_eq!(bench.errno(opcode::READDIR, 99, &read_body(0, 0, 4096)), libc::ENOTDIR);
}

#[test]
fn a_kernel_that_is_too_old_fails_the_session() {
    let bench = Bench::new();
    let init = abi::InitIn { major: 7, minor: 31, ..Default::default() };
    assert_eq!(bench.errno(opcode::INIT, 0, init.as_bytes()), libc::EPROTO);
    assert_eq!(bench.dispatch.state.get(), SessionState::Failed);
}

#[test]
fn a_directory_never_exceeds_the_room_it_has() {
    let bench = Bench::new();
    for (size, expected) in [(0, 0), (31, 0), (32, 32), (64, 64), (100, 96), (4096, 96)] {
        let answer = bench.ask(opcode::READDIR, ROOT, &read_body(0, 0, size)).unwrap();
        assert_eq!((answer.0, answer.1.len()), (0, expected), "{size}");
    }
    let plus = bench.ask(opcode::READDIRPLUS, ROOT, &read_body(0, 0, u32::MAX)).unwrap();
    assert_eq!(plus.1.len(), 3 * (128 + 32));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_body_gets_one_answer_unless_none_is_due(
        opcode in 0u32..60,
        inode in prop_oneof![Just(ROOT), Just(FileKey::of(disk()).inode), any::<u64>()],
        body in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let bench = Bench::new();
        let answer = bench.ask(opcode, inode, &body);
        prop_assert_eq!(answer.is_some(), crate::wire::request::wants_answer(opcode));
        if let Some(Answer(errno, _)) = answer {
            prop_assert!((0..512).contains(&errno), "{errno}");
        }
    }
}

/// A session with a disk whose reads are started, and a READ of it by number.
fn started() -> (Bench, Arc<DiskView>, impl Fn(u64) -> Vec<u8>) {
    let bench = Bench::new();
    let other = DiskId::from_bytes([8; 16]);
    let view = Arc::new(DiskView::default());
    bench.dispatch.files.attach("b.raw", other, view.clone()).unwrap();
    let key = FileKey::of(other);
    let read =
        move |unique| message(opcode::READ, key.inode, unique, &read_body(key.handle, 4096, 4096));
    (bench, view, read)
}

impl Bench {
    /// Runs the tasks until one has answered.
    fn task_answers(&self) -> (u64, Answer) {
        self.runtime.block_on(async {
            loop {
                if let Some(answer) = self.answered() {
                    return answer;
                }
                tokio::task::yield_now().await;
            }
        })
    }
}

#[test]
fn a_read_that_was_started_is_answered_by_whoever_ends_it() {
    let (bench, view, read) = started();
    for unique in [4, 6] {
        assert_eq!(bench.ask_raw(&read(unique)), None);
        assert_eq!(bench.dispatch.stats.snapshot().read_waiting_now, 1);
        view.end(Some(bytes(7, 4096)));
        assert_eq!(bench.answered(), Some((unique, Answer(0, vec![7; 4096]))));
        assert_eq!(bench.dispatch.stats.snapshot().read_waiting_now, 0);
    }
    assert_eq!(bench.dispatch.permits.available_permits(), 1);
}

#[test]
fn a_read_that_the_disk_does_not_give_is_answered_by_a_task() {
    let (bench, view, read) = started();
    assert_eq!(bench.ask_raw(&read(4)), None);
    view.end(None);
    assert_eq!(bench.task_answers(), (4, Answer(0, vec![9; 4096])));
    assert_eq!(bench.dispatch.permits.available_permits(), 1);
}

#[test]
fn a_read_that_finds_no_permit_is_not_started() {
    let (bench, view, read) = started();
    assert_eq!(bench.ask_raw(&read(4)), None);
    assert_eq!(bench.ask_raw(&read(6)), None);
    assert_eq!(view.0.lock().len(), 1, "there is one permit");
    view.end(Some(bytes(7, 4096)));
    assert_eq!(bench.answered(), Some((4, Answer(0, vec![7; 4096]))));
    assert_eq!(bench.task_answers(), (6, Answer(0, vec![9; 4096])), "it waited for the permit");
}

#[test]
fn a_read_that_was_started_is_answered_though_nobody_ends_it_well() {
    let (bench, view, read) = started();
    assert_eq!(bench.ask_raw(&read(4)), None);
    view.end(Some(bytes(7, 4095)));
    assert_eq!(bench.answered(), Some((4, Answer(libc::EIO, Vec::new()))));
    assert_eq!(bench.dispatch.stats.snapshot().read_miscounted, 1);
    assert_eq!(bench.ask_raw(&read(6)), None);
    view.0.lock().clear();
    assert_eq!(bench.answered(), Some((6, Answer(libc::EIO, Vec::new()))));
    assert_eq!(bench.dispatch.permits.available_permits(), 1);
}
