//! Parts that the tests of this crate share: a server on a socket pair's listener, devices, a
//! client.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

pub mod client;
pub mod faulty_device;
pub mod memory_device;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_nbd::{Export, MemoryBudget, NbdServer, ServerConfig, bind_unix};
use acstor_overlay::BlockDevice;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use client::Client;
use faulty_device::FaultyDevice;
use memory_device::MemoryDevice;

/// Longest time that any condition of a test may take: only a hang takes so long.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Size of the device of [`Fixture::new`], bytes.
pub const SIZE: u64 = 64 << 20;
/// Size to which the device of [`Fixture::new`] may grow, bytes.
pub const SIZE_MAX: u64 = 128 << 20;

pub type Device = FaultyDevice<MemoryDevice>;

/// A server, its device and its runtime.
pub struct Fixture {
    pub device: Arc<Device>,
    pub memory: Arc<MemoryBudget>,
    pub server: Option<NbdServer>,
    pub path: PathBuf,
    pub runtime: Runtime,
    _directory: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(|config| config, |export| export)
    }

    pub fn with(
        configure: impl FnOnce(ServerConfig) -> ServerConfig,
        arrange: impl FnOnce(Export) -> Export,
    ) -> Fixture {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("disk.sock");
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(SIZE, SIZE_MAX)));
        let export = Export::new("disk", Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
        let memory = MemoryBudget::new(64 << 20);
        let config = configure(ServerConfig::new(memory));
        let memory = Arc::clone(&config.memory);
        let listener = bind_unix(&path, 0o600).unwrap();
        let export = Arc::new(arrange(export));
        let server = NbdServer::start(listener, export, config, runtime.handle()).unwrap();
        Fixture { device, memory, server: Some(server), path, runtime, _directory: directory }
    }

    pub fn server(&self) -> &NbdServer {
        self.server.as_ref().unwrap()
    }

    /// A connected socket, before the handshake.
    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A client that is through the greeting.
    pub fn client(&self) -> Client {
        Client::greeted(self.connect())
    }

    /// Waits until `condition` holds.
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < give_up, "waited in vain until {what}");
            std::thread::yield_now();
        }
    }

    /// Bytes in flight: of the export's share and of what all have.
    pub fn borrowed(&self) -> u64 {
        self.server().bytes_borrowed() + self.memory.bytes_borrowed()
    }

    /// Waits until every connection is gone, and checks that nothing stays behind.
    pub fn until_idle(&self) {
        self.until("no connection is open", || self.server().stats().connections_open == 0);
        self.until("nothing is borrowed", || self.borrowed() == 0);
        self.until("nothing waits", || self.server().stats().requests_waiting == 0);
    }
}

/// Bytes that tell their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ seed) as u8).collect()
}

/// Bytes that a client could take.
fn waiting_bytes(client: &Client) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the call writes one int.
    let code = unsafe { libc::ioctl(client.stream.as_raw_fd(), libc::FIONREAD, &mut count) };
    assert_eq!(code, 0);
    count as usize
}

/// Waits until a client that reads nothing has `least` bytes of its answers to take, and its socket takes
/// no more: what there is does not change from look to look.
pub fn wait_until_full(client: &Client, least: usize) {
    let begun = Instant::now();
    let mut seen = 0;
    loop {
        let now = waiting_bytes(client);
        if now >= least && now == seen {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no answer is on its way");
        seen = now;
        std::thread::yield_now();
    }
}
