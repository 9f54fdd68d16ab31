//! Faults around a mount: views that hang, fail, return wrong bytes or panic, stores that are cut
//! and readers that are killed. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use acstor_fuse::{
    FileTable, FuseConfig, FuseError, FuseHooks, FuseServer, SessionState, Unmounted, unmount,
};
use acstor_store::{ChunkStore, EvictionKind, Look, StoreConfig};
use acstor_types::{ChunkSize, Digest};
use support::pattern::{CHUNK, PatternView, fill};
use support::{
    Aligned, MountGuard, Mounted, SEED, disk, errno, open_direct, raw_name, read_checked, runtime,
    wait_until,
};

const SIZE: u64 = 4 << 20;

fn short_deadline(milliseconds: u64) -> Mounted {
    Mounted::with(
        |config| config.answer_deadline = Duration::from_millis(milliseconds),
        FuseHooks::default(),
    )
}

fn make_wait(view: &PatternView) {
    view.knobs.wait_every.store(1, Ordering::SeqCst);
}

fn make_hang(view: &PatternView) {
    make_wait(view);
    view.knobs.hang.store(true, Ordering::SeqCst);
}

fn direct_read(file: &File, offset: u64) -> std::io::Result<usize> {
    file.read_at(Aligned::new(4096).get(), offset)
}

/// "A read that a view does not answer is EIO at the answer deadline; later reads succeed."
#[test]
fn test_hung_view_is_eio_at_the_deadline() {
    let mounted = short_deadline(300);
    let view = mounted.attach(1, SIZE);
    make_hang(&view);
    let file = mounted.open_direct(1);
    let start = Instant::now();
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(mounted.session.stats().read_deadlines, 1);
    view.knobs.hang.store(false, Ordering::SeqCst);
    read_checked(&file, 0, 4096).unwrap();
}

/// "Names, attributes and cached reads are answered while other reads wait, however many."
#[test]
fn test_waiting_reads_block_nothing_else() {
    let mounted = Mounted::with(|config| config.max_in_flight = 2, FuseHooks::default());
    let hung = mounted.attach(1, SIZE);
    make_hang(&hung);
    mounted.attach(2, SIZE);
    let file = Arc::new(mounted.open_direct(1));
    let readers: Vec<_> = (0..16)
        .map(|number| {
            let file = file.clone();
            thread::spawn(move || read_checked(&file, number * 4096, 4096))
        })
        .collect();
    wait_until("all wait", || mounted.session.stats().read_waiting_now == 16);
    assert!(fs::metadata(mounted.path(2)).unwrap().len() == SIZE);
    assert_eq!(errno(fs::metadata(mounted.path(3))), libc::ENOENT);
    read_checked(&mounted.open_direct(2), 0, 1 << 20).unwrap();
    assert_eq!(hung.knobs.reads.load(Ordering::SeqCst), 16);
    hung.knobs.hang.store(false, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap().unwrap();
    }
    wait_until("none waits", || mounted.session.stats().read_waiting_now == 0);
}

/// "Misses of one image are answered while those of another hang, however many."
#[test]
fn test_misses_of_a_healthy_disk_go_on_beside_a_hung_one() {
    const HUNG: u64 = 40;
    let mounted =
        Mounted::with(|config| config.max_in_flight = HUNG as usize, FuseHooks::default());
    let hung = mounted.attach(1, SIZE);
    make_hang(&hung);
    let healthy = mounted.attach(2, SIZE);
    make_wait(&healthy);
    healthy.knobs.delay_ms.store(1, Ordering::SeqCst);
    let file = Arc::new(mounted.open_direct(1));
    let readers: Vec<_> = (0..HUNG)
        .map(|number| {
            let file = file.clone();
            thread::spawn(move || read_checked(&file, number * 4096, 4096))
        })
        .collect();
    wait_until("all wait", || mounted.session.stats().read_waiting_now == HUNG);
    read_checked(&mounted.open_direct(2), 0, 4096).unwrap();
    // It is counted as waiting until a moment after it was answered.
    wait_until("the others still hang", || mounted.session.stats().read_waiting_now == HUNG);
    hung.knobs.hang.store(false, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap().unwrap();
    }
}

/// "Reads beyond the most that may wait are EIO at once."
#[test]
fn test_too_many_waiting_reads_are_refused() {
    let mounted = Mounted::with(
        |config| (config.max_in_flight, config.max_waiting) = (1, 2),
        FuseHooks::default(),
    );
    let hung = mounted.attach(1, SIZE);
    make_hang(&hung);
    let file = Arc::new(mounted.open_direct(1));
    let readers: Vec<_> = (0..2)
        .map(|number| {
            let file = file.clone();
            thread::spawn(move || read_checked(&file, number * 4096, 4096))
        })
        .collect();
    wait_until("two wait", || mounted.session.stats().read_waiting_now == 2);
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    assert_eq!(mounted.session.stats().read_refused, 1);
    hung.knobs.hang.store(false, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap().unwrap();
    }
    wait_until("none waits", || mounted.session.stats().read_waiting_now == 0);
    read_checked(&file, 0, 4096).unwrap();
}

/// "Unmounting never hangs: after the grace the connection is aborted and waiting readers fail."
#[test]
fn test_unmount_with_hung_reads_is_bounded() {
    let mounted = Mounted::new();
    make_hang(&mounted.attach(1, SIZE));
    let file = Arc::new(mounted.open_direct(1));
    let reader = {
        let file = file.clone();
        thread::spawn(move || direct_read(&file, 0))
    };
    wait_until("it waits", || mounted.session.stats().read_waiting_now == 1);
    let start = Instant::now();
    let outcome = mounted.session.unmount(Duration::from_millis(100)).unwrap();
    assert_eq!(outcome, Unmounted::Aborted);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(mounted.session.state().is_final());
    let error = errno(reader.join().unwrap());
    assert!(matches!(error, libc::ENOTCONN | libc::ECONNABORTED | libc::EIO), "{error}");
    drop(file);
    assert_eq!(
        unmount(&mounted.config.mount_point, Duration::ZERO).unwrap(),
        Unmounted::NotMounted
    );
}

/// "Shutting down stops the threads and leaves the mount; readers that wait are answered by the next
/// process."
#[test]
fn test_shutdown_leaves_readers_to_the_next_server() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    make_hang(&view);
    let file = Arc::new(mounted.open_direct(1));
    let reader = {
        let file = file.clone();
        thread::spawn(move || read_checked(&file, 4096, 4096))
    };
    wait_until("it waits", || mounted.session.stats().read_waiting_now == 1);
    let server_fd = mounted.device_for_take_over();
    assert_eq!(mounted.session.shutdown(), SessionState::Stopped);
    // The read path of a process on its way out fails what waits; the reader must not see that.
    view.knobs.fail.store(true, Ordering::SeqCst);
    view.knobs.hang.store(false, Ordering::SeqCst);
    wait_until("the old task ended", || mounted.session.stats().read_waiting_now == 0);
    assert!(!reader.is_finished());
    // The next server, with another view of the same disk.
    let server = FuseServer::take_over(mounted.config.clone(), server_fd).unwrap();
    let table = Arc::new(FileTable::new());
    let next = Arc::new(PatternView::new(SEED, SIZE));
    table.attach(&raw_name(disk(1)), disk(1), next.clone()).unwrap();
    let handle = mounted.runtime.handle().clone();
    let session = server.serve(table, handle, FuseHooks::default()).unwrap();
    reader.join().unwrap().unwrap();
    assert_eq!(next.knobs.reads.load(Ordering::SeqCst), 1, "the read came again");
    assert_eq!(session.negotiated(), mounted.session.negotiated(), "from the session file");
    assert!(session.negotiated().unwrap().can_resend());
    read_checked(&file, 0, 4096).unwrap();
    drop(file);
    assert_eq!(session.unmount(Duration::from_secs(5)).unwrap(), Unmounted::Clean);
}

/// "After a take-over a read of an inode that is not attached waits for it until the deadline."
#[test]
fn test_read_after_a_take_over_waits_for_its_image() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let file = mounted.open_direct(1);
    let fd = mounted.device_for_take_over();
    mounted.session.shutdown();
    let server = FuseServer::take_over(mounted.config.clone(), fd).unwrap();
    let table = Arc::new(FileTable::new());
    let handle = mounted.runtime.handle().clone();
    let session = server.serve(table.clone(), handle, FuseHooks::default()).unwrap();
    let reader = thread::spawn(move || read_checked(&file, 0, 4096));
    wait_until("the read waits", || session.stats().read_waiting_now == 1);
    let other = Arc::new(PatternView::new(SEED + 2, SIZE));
    table.attach(&raw_name(disk(2)), disk(2), other).unwrap();
    let view = Arc::new(PatternView::new(SEED, SIZE));
    table.attach_hidden(&raw_name(disk(1)), disk(1), view).unwrap();
    reader.join().unwrap().unwrap();
    assert_eq!((session.stats().read_unknown, session.stats().read_errors), (1, 0));
    drop(session);
}

/// "After a take-over an inode that is not attached by the deadline is ESTALE; attached hidden, it is
/// served; it is dropped when the kernel lets go of it."
#[test]
fn test_take_over_of_withdrawn_files() {
    let mounted = short_deadline(300);
    mounted.attach(1, SIZE);
    mounted.attach(2, SIZE);
    let (known, unknown) = (mounted.open_direct(1), mounted.open_direct(2));
    let fd = mounted.device_for_take_over();
    mounted.session.shutdown();
    let server = FuseServer::take_over(mounted.config.clone(), fd).unwrap();
    let table = Arc::new(FileTable::new());
    let view = Arc::new(PatternView::new(SEED, SIZE));
    table.attach_hidden(&raw_name(disk(1)), disk(1), view).unwrap();
    let handle = mounted.runtime.handle().clone();
    let session = server.serve(table.clone(), handle, FuseHooks::default()).unwrap();
    read_checked(&known, 0, 4096).unwrap();
    assert_eq!(errno(direct_read(&unknown, 0)), libc::ESTALE);
    assert_eq!(errno(File::open(mounted.path(1))), libc::ENOENT, "it has no name");
    assert_eq!(table.sweep(), 0, "still open");
    drop((known, unknown));
    wait_until("the kernel lets go of it", || {
        table.sweep();
        table.list().is_empty()
    });
    drop(session);
}

/// "A view's error is EIO for that read."
#[test]
fn test_failing_view_is_eio() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    view.knobs.fail.store(true, Ordering::SeqCst);
    let file = mounted.open_direct(1);
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    make_wait(&view);
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    view.knobs.fail.store(false, Ordering::SeqCst);
    read_checked(&file, 0, 4096).unwrap();
    assert_eq!(mounted.session.stats().read_errors, 2);
}

/// "A read for which a view returns too few bytes is EIO: the kernel would take the rest for the
/// end of the file and fill it with zeros."
#[test]
fn test_short_view_is_eio() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    view.knobs.short.store(true, Ordering::SeqCst);
    let file = mounted.open_direct(1);
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    make_wait(&view);
    assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    assert_eq!(mounted.session.stats().read_miscounted, 2);
}

/// "A panic costs the read that met it, not the server."
#[test]
fn test_panicking_view_is_eio() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    view.knobs.panic.store(true, Ordering::SeqCst);
    let file = mounted.open_direct(1);
    for _ in 0..5 {
        assert_eq!(errno(direct_read(&file, 0)), libc::EIO);
    }
    assert_eq!(mounted.session.stats().panics, 5);
    view.knobs.panic.store(false, Ordering::SeqCst);
    read_checked(&file, 0, 4096).unwrap();
}

fn dd(mounted: &Mounted) -> Child {
    Command::new("dd")
        .arg(format!("if={}", mounted.path(1).display()))
        .args(["of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// "A reader that is killed leaves within a second or so, not at the deadline."
#[test]
fn test_killed_reader_leaves_at_once() {
    let mounted = Mounted::new();
    make_hang(&mounted.attach(1, SIZE));
    let mut child = dd(&mounted);
    wait_until("it waits", || mounted.session.stats().read_waiting_now == 1);
    let start = Instant::now();
    signal(&child, libc::SIGKILL);
    assert!(!child.wait().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(mounted.session.stats().read_killed, 1);
}

/// "Any other signal does not fail a read: a disk knows no EINTR."
#[test]
fn test_signalled_reader_gets_its_bytes() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    view.knobs.delay_ms.store(1500, Ordering::SeqCst);
    make_wait(&view);
    let mut child = dd(&mounted);
    wait_until("it waits", || mounted.session.stats().read_waiting_now == 1);
    signal(&child, libc::SIGUSR1);
    signal(&child, libc::SIGCONT);
    assert!(child.wait().unwrap().success());
    assert_eq!(mounted.session.stats().read_killed, 0);
}

fn store_of(directory: &std::path::Path) -> ChunkStore {
    let config = StoreConfig {
        path: directory.to_owned(),
        capacity_bytes: 64 << 20,
        chunk_size: ChunkSize::DEFAULT,
        eviction: EvictionKind::default(),
    };
    ChunkStore::open(&config).unwrap()
}

/// The file of the slots, the largest of a store, open for writing.
fn slots_file(directory: &std::path::Path) -> File {
    let largest = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    File::options().write(true).open(largest).unwrap()
}

/// "Answers come straight from the mapped chunk store, exact to the byte."
#[test]
fn test_mapped_answers_are_exact() {
    let mounted = Mounted::new();
    let store = store_of(&mounted.directory.path().join("store"));
    let view = Arc::new(PatternView::in_store(SEED, SIZE, store));
    mounted.table.attach(&raw_name(disk(1)), disk(1), view).unwrap();
    let (direct, buffered) = (mounted.open_direct(1), mounted.open(1));
    for file in [&direct, &buffered] {
        for (offset, len) in [(0, 4096), (CHUNK - 4096, 8192), (0, SIZE as usize)] {
            read_checked(file, offset, len).unwrap();
        }
    }
    let stats = mounted.session.stats();
    assert_eq!((stats.read_hits, stats.mapped_faults), (stats.reads, 0));
}

/// "A store file cut under a mapped answer is noticed before the answer is sent: the chunk is
/// dropped and the read answered from another source."
#[test]
fn test_cut_store_file_is_no_error() {
    let mounted = Mounted::new();
    let directory = mounted.directory.path().join("store");
    let view = Arc::new(PatternView::in_store(SEED, SIZE, store_of(&directory)));
    mounted.table.attach(&raw_name(disk(1)), disk(1), view).unwrap();
    slots_file(&directory).set_len(0).unwrap();
    read_checked(&mounted.open_direct(1), 0, SIZE as usize).unwrap();
    read_checked(&mounted.open(1), 0, SIZE as usize).unwrap();
    let stats = mounted.session.stats();
    assert_eq!((stats.read_errors, stats.refused, stats.mapped_faults), (0, 0, 0), "{stats:?}");
}

/// "A store file cut under an answer that is being copied fails that read; nothing of the store is served
/// again before it was read and hashed."
#[test]
fn test_store_file_cut_amidst_an_answer_is_doubted() {
    let mounted = Mounted::new();
    let directory = mounted.directory.path().join("store");
    let store = store_of(&directory);
    let view = Arc::new(PatternView::in_store(SEED, SIZE, store.clone()));
    mounted.table.attach(&raw_name(disk(1)), disk(1), view.clone()).unwrap();
    let direct = mounted.open_direct(1);
    read_checked(&direct, 0, SIZE as usize).unwrap();
    let mut content = vec![0; CHUNK as usize];
    fill(SEED, CHUNK, &mut content);
    let other = Digest::of(&content);
    assert!(matches!(store.look(&other, 0, content.len()), Look::Memory(_)));
    let size = slots_file(&directory).metadata().unwrap().len();
    *view.knobs.cut.lock().unwrap() = Some(slots_file(&directory));

    let failed = read_checked(&direct, 0, 4096).unwrap_err();

    assert_eq!(failed.raw_os_error(), Some(libc::EIO));
    // The kernel fails the read before this program knows of it.
    wait_until("the fault is noted", || mounted.session.stats().mapped_faults == 1);
    // As long as before, and in memory: zeros, which without the doubt would be served.
    slots_file(&directory).set_len(size).unwrap();
    fs::read_dir(&directory).unwrap().for_each(|entry| drop(fs::read(entry.unwrap().path())));
    assert!(!matches!(store.look(&other, 0, content.len()), Look::Memory(_)));
    read_checked(&direct, 0, SIZE as usize).unwrap();
    assert_eq!(mounted.session.stats().mapped_faults, 1);
}

/// "A dead mount that a former process left is cleared away; a live one is refused."
#[test]
fn test_leftover_mount_is_cleared_and_live_one_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mount_point = directory.path().join("mnt");
    fs::create_dir(&mount_point).unwrap();
    let _guard = MountGuard::new(&mount_point);
    let config = FuseConfig::new(&mount_point);
    let abandoned = FuseServer::mount(config.clone()).unwrap();
    let error = FuseServer::mount(config.clone()).unwrap_err();
    assert!(matches!(error, FuseError::MountedAlready { .. }), "{error}");
    drop(abandoned);
    let server = FuseServer::mount(config).unwrap();
    let runtime = runtime();
    let table = Arc::new(FileTable::new());
    let session = server.serve(table, runtime.handle().clone(), FuseHooks::default()).unwrap();
    assert!(fs::read_dir(&mount_point).unwrap().next().is_none());
    assert_eq!(session.unmount(Duration::from_secs(5)).unwrap(), Unmounted::Clean);
}

/// "A take-over of anything but a live connection is refused with what to do."
#[test]
fn test_take_over_of_a_dead_descriptor_is_refused() {
    let config = FuseConfig::new("/tmp/acstor-nowhere");
    let file = tempfile::tempfile().unwrap();
    let never_mounted = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    for file in [file, never_mounted] {
        for start in [FuseServer::take_over, FuseServer::on_mounted] {
            let error = start(config.clone(), file.try_clone().unwrap().into()).unwrap_err();
            assert!(matches!(error, FuseError::TakeOver(_)), "{error}");
            assert!(error.to_string().contains("mount anew"));
        }
    }
}

/// "A session that ends from outside (umount, abort) is noticed."
#[test]
fn test_unmount_from_outside_ends_the_session() {
    let mounted = Mounted::new();
    assert!(Command::new("umount").arg(&mounted.config.mount_point).status().unwrap().success());
    let state = mounted.session.wait(Some(Duration::from_secs(5)));
    assert_eq!(state, SessionState::Unmounted);
}

/// "A connection whose INIT nobody answered before the process died is taken over too."
#[test]
fn test_take_over_before_init() {
    let directory = tempfile::tempdir().unwrap();
    let mount_point = directory.path().join("mnt");
    fs::create_dir(&mount_point).unwrap();
    let _guard = MountGuard::new(&mount_point);
    let config = FuseConfig::new(&mount_point);
    let first = FuseServer::mount(config.clone()).unwrap();
    // The former process read INIT and died with it.
    let length = rustix::io::read(first.device(), &mut vec![0; 65_536]).unwrap();
    assert!(length >= 40);
    let fd = first.device().as_fd().try_clone_to_owned().unwrap();
    drop(first);
    let server = FuseServer::take_over(config, fd).unwrap();
    let (runtime, table) = (runtime(), Arc::new(FileTable::new()));
    table.attach("a.raw", disk(1), Arc::new(PatternView::new(SEED, SIZE))).unwrap();
    let session = server.serve(table, runtime.handle().clone(), FuseHooks::default()).unwrap();
    read_checked(&open_direct(&mount_point.join("a.raw")).unwrap(), 0, 4096).unwrap();
    assert!(session.negotiated().is_some());
    assert_eq!(session.unmount(Duration::from_secs(5)).unwrap(), Unmounted::Clean);
}
