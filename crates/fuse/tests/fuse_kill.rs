//! A server killed again and again under readers that check every byte. Needs root and `/dev/fuse`.
//!
//! This process is the holder: it mounts, keeps the descriptor, and starts the servers, each of
//! which takes the connection over. It has files of the mount open while it forks and execs, which
//! is what the trap of a FLUSH at close would turn into a deadlock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use acstor_fuse::{FileTable, FuseConfig, FuseHooks, FuseServer};
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::ChunkSize;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::pattern::PatternView;
use support::{MountGuard, SEED, disk, open_direct, raw_name, read_checked, runtime};

const SIZE: u64 = 16 << 20;
const KILLS: usize = 20;
/// Longest time from asking to having the bytes, over all reads and all kills.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const SERVER_FD: i32 = 3;
const DIRECTORY: &str = "ACSTOR_FUSE_KILL_DIRECTORY";

fn config(directory: &Path) -> FuseConfig {
    let mut config = FuseConfig::new(directory.join("mnt"));
    config.session_file = Some(directory.join("session"));
    config
}

/// The server process, started by [`Holder::start`].
#[test]
#[ignore = "the server that the other test starts and kills"]
fn server_process() {
    let directory = PathBuf::from(std::env::var(DIRECTORY).expect("started by the holder"));
    // SAFETY: the holder put the descriptor there for this process alone.
    let fd = unsafe { OwnedFd::from_raw_fd(SERVER_FD) };
    let store = ChunkStore::open(&StoreConfig {
        path: directory.join("store"),
        capacity_bytes: 64 << 20,
        chunk_size: ChunkSize::DEFAULT,
        eviction: EvictionKind::default(),
    });
    let view = PatternView::in_store(SEED, SIZE, store.unwrap());
    view.knobs.wait_every.store(3, Ordering::Relaxed);
    view.knobs.delay_ms.store(5, Ordering::Relaxed);
    // Some of the kills come while a manifest is being read for an open.
    view.knobs.prepare_ms.store(5, Ordering::Relaxed);
    let server = FuseServer::take_over(config(&directory), fd).unwrap();
    let (table, runtime) = (Arc::new(FileTable::new()), runtime());
    table.attach(&raw_name(disk(1)), disk(1), Arc::new(view)).unwrap();
    let session = server.serve(table, runtime.handle().clone(), FuseHooks::default()).unwrap();
    println!("{:?}", session.wait(None));
}

struct Holder {
    directory: PathBuf,
    device: OwnedFd,
}

impl Holder {
    fn start(&self) -> Child {
        let fd = self.device.as_raw_fd();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "server_process", "--nocapture"])
            .env(DIRECTORY, &self.directory)
            .stdout(Stdio::null());
        // SAFETY: dup2 is async-signal-safe; it gives the child a descriptor without CLOEXEC.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, SERVER_FD) {
                SERVER_FD => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command.spawn().unwrap()
    }
}

/// Counts of the readers.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    reads: AtomicU64,
    longest_us: AtomicU64,
}

impl Seen {
    fn time<T>(&self, operation: impl FnOnce() -> std::io::Result<T>) {
        let start = Instant::now();
        operation().unwrap();
        self.longest_us.fetch_max(start.elapsed().as_micros() as u64, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::SeqCst))
    }
}

struct Random(StdRng);

impl Random {
    fn new(seed: u8) -> Random {
        Random(StdRng::seed_from_u64(seed.into()))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit)
    }
}

fn read_direct(path: &Path, seed: u8, seen: &Seen) {
    let (file, mut random) = (open_direct(path).unwrap(), Random::new(seed));
    while !seen.stop.load(Ordering::SeqCst) {
        let len = 4096 << random.below(9);
        let offset = random.below((SIZE - len) / 4096) * 4096;
        seen.time(|| read_checked(&file, offset, len as usize));
    }
}

fn read_buffered(path: &Path, seed: u8, seen: &Seen) {
    let (file, mut random) = (File::open(path).unwrap(), Random::new(seed));
    while !seen.stop.load(Ordering::SeqCst) {
        let len = 1 + random.below(300_000);
        let offset = random.below(SIZE - len);
        seen.time(|| read_checked(&file, offset, len as usize));
        if random.below(8) == 0 {
            // SAFETY: plain system call on an open file; makes the next reads reach the server.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
}

fn open_and_list(path: &Path, seen: &Seen) {
    let root = path.parent().unwrap();
    while !seen.stop.load(Ordering::SeqCst) {
        seen.time(|| {
            let names: Vec<_> = fs::read_dir(root)?.collect::<Result<_, _>>()?;
            assert_eq!(names.len(), 1);
            assert_eq!(fs::metadata(path)?.len(), SIZE);
            read_checked(&open_direct(path)?, 0, 4096)
        });
    }
}

/// "The server killed with SIGKILL 20 times at random moments under readers, direct and buffered:
/// no error, no wrong byte, no pause of a second."
#[test]
fn test_kill_under_readers_is_a_short_pause() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("mnt")).unwrap();
    let _guard = MountGuard::new(&directory.path().join("mnt"));
    let config = config(directory.path());
    let server = FuseServer::mount(config.clone()).unwrap();
    let device = server.device().as_fd().try_clone_to_owned().unwrap();
    drop(server);
    let holder = Holder { directory: directory.path().to_owned(), device };
    let path = config.mount_point.join(raw_name(disk(1)));
    let mut child = holder.start();
    let seen = Arc::new(Seen::default());
    // The first start fills the store; what counts begins after it.
    read_checked(&open_direct(&path).unwrap(), 0, 4096).unwrap();
    let readers: Vec<_> = (0..7u8)
        .map(|number| {
            let (path, seen) = (path.clone(), seen.clone());
            thread::spawn(move || match number {
                0..3 => read_direct(&path, number, &seen),
                3..6 => read_buffered(&path, number, &seen),
                _ => open_and_list(&path, &seen),
            })
        })
        .collect();
    let mut random = Random::new(99);
    for _ in 0..KILLS {
        let until = seen.reads.load(Ordering::SeqCst) + random.below(400);
        while seen.reads.load(Ordering::SeqCst) < until && !readers.iter().any(|r| r.is_finished())
        {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        child = holder.start();
    }
    let until = seen.reads.load(Ordering::SeqCst) + 100;
    while seen.reads.load(Ordering::SeqCst) < until && !readers.iter().any(|r| r.is_finished()) {
        thread::yield_now();
    }
    seen.stop.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
    let (reads, longest) = (seen.reads.load(Ordering::SeqCst), seen.longest());
    println!("{KILLS} kills, {reads} reads checked, longest {longest:?}");
    assert!(longest < PAUSE_MAX, "longest read {longest:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}
