//! A real mount in a directory of its own, taken away whatever happens to the test.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod pattern;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use acstor_fuse::{FileTable, FuseConfig, FuseHooks, FuseServer, FuseSession, unmount};
use acstor_types::DiskId;
use pattern::PatternView;

/// Time after which a test's mount is torn down under it, so that nothing can hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
pub const SEED: u64 = 42;

pub fn disk(number: u8) -> DiskId {
    DiskId::from_bytes([number; 16])
}

pub fn raw_name(disk: DiskId) -> String {
    format!("{disk}.raw")
}

/// Takes the mount away when dropped, and when the test takes too long.
pub struct MountGuard {
    mount_point: PathBuf,
    done: Option<mpsc::Sender<()>>,
    watchdog: Option<thread::JoinHandle<()>>,
}

impl MountGuard {
    pub fn new(mount_point: &Path) -> MountGuard {
        let (done, receiver) = mpsc::channel::<()>();
        let path = mount_point.to_owned();
        let watchdog = thread::spawn(move || {
            if receiver.recv_timeout(TEST_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test takes too long: aborting {}", path.display());
                let _ = unmount(&path, Duration::ZERO);
            }
        });
        MountGuard {
            mount_point: mount_point.to_owned(),
            done: Some(done),
            watchdog: Some(watchdog),
        }
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(watchdog) = self.watchdog.take() {
            let _ = watchdog.join();
        }
        let _ = unmount(&self.mount_point, Duration::ZERO);
    }
}

/// A served mount in this process. Fields are dropped in order: the mount goes first.
pub struct Mounted {
    pub guard: MountGuard,
    pub session: FuseSession,
    pub table: Arc<FileTable>,
    pub runtime: tokio::runtime::Runtime,
    pub config: FuseConfig,
    /// The descriptor of the device, which a holder keeps.
    pub device: OwnedFd,
    pub directory: tempfile::TempDir,
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

impl Mounted {
    pub fn new() -> Mounted {
        Mounted::with(|_| {}, FuseHooks::default())
    }

    pub fn with(change: impl FnOnce(&mut FuseConfig), hooks: FuseHooks) -> Mounted {
        let directory = tempfile::tempdir().unwrap();
        let mount_point = directory.path().join("mnt");
        std::fs::create_dir(&mount_point).unwrap();
        let mut config = FuseConfig::new(&mount_point);
        config.session_file = Some(directory.path().join("session"));
        change(&mut config);
        let guard = MountGuard::new(&mount_point);
        let server = FuseServer::mount(config.clone()).unwrap();
        let device = server.device().try_clone_to_owned().unwrap();
        let (table, runtime) = (Arc::new(FileTable::new()), runtime());
        let session = server.serve(table.clone(), runtime.handle().clone(), hooks).unwrap();
        Mounted { guard, session, table, runtime, config, device, directory }
    }

    /// Attaches a disk of the pattern and returns its view.
    pub fn attach(&self, number: u8, size: u64) -> Arc<PatternView> {
        let view = Arc::new(PatternView::new(SEED, size));
        self.table.attach(&raw_name(disk(number)), disk(number), view.clone()).unwrap();
        view
    }

    pub fn device_for_take_over(&self) -> OwnedFd {
        self.device.try_clone().unwrap()
    }

    pub fn path(&self, number: u8) -> PathBuf {
        self.config.mount_point.join(raw_name(disk(number)))
    }

    pub fn open(&self, number: u8) -> File {
        File::open(self.path(number)).unwrap()
    }

    pub fn open_direct(&self, number: u8) -> File {
        open_direct(&self.path(number)).unwrap()
    }
}

pub fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// A buffer whose address suits direct I/O.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, start, len }
    }

    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Reads and checks every byte.
pub fn read_checked(file: &File, offset: u64, len: usize) -> io::Result<()> {
    let mut buffer = Aligned::new(len);
    file.read_exact_at(buffer.get(), offset)?;
    assert_eq!(pattern::first_wrong(SEED, offset, buffer.get()), None, "wrong byte");
    Ok(())
}

pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("an error").raw_os_error().expect("an errno")
}

/// Waits until `done` holds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}
