//! Answers out of a volume's local log on a real disk, and a client that takes its time.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::support::client::Client;
use crate::support::{PATIENCE, pattern, wait_until_full};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{Export, MemoryBudget, NbdServer, ServerConfig, bind_unix};
use acstor_overlay::{
    BlockDevice, Durability, DurabilityClass, Opening, OriginSink, SinkError, Volume, VolumeConfig,
};
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SIZE: u64 = 32 << 20;
const BLOCK: usize = 64 << 10;
/// Bytes of a read: more than a socket takes.
const READ: usize = 24 << 20;
const PAGE: usize = 4096;
/// Page-aligned buffer for direct reads and writes.
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Nothing is pushed.
struct NoOrigin;

impl OriginSink for NoOrigin {
    fn put_if_absent(&self, key: &str, _parts: &[Bytes]) -> Result<bool, SinkError> {
        Err(SinkError::Invalid { key: key.to_owned(), cause: "nothing is to be pushed".to_owned() })
    }

    fn get(&self, _key: &str, _size_max: u64) -> Result<Option<Bytes>, SinkError> {
        Ok(None)
    }

    fn list(&self, _prefix: &str) -> Result<Vec<String>, SinkError> {
        Ok(Vec::new())
    }
}

fn open(directory: &Path, runtime: &Runtime) -> Arc<Volume> {
    let config = VolumeConfig {
        directory: directory.to_owned(),
        quota_bytes: 256 << 20,
        reserve_bytes: 0,
        segment_bytes: 32 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let durability = Durability { default: DurabilityClass::None, ..Durability::default() };
    let opening = Opening {
        volume: DiskId::from_bytes([8; 16]),
        epoch: 1,
        next: 1,
        size_bytes: SIZE,
        manifest: None,
        logs: Vec::new(),
        durability,
    };
    Volume::open(config, opening, None, Arc::new(NoOrigin), runtime.handle().clone()).unwrap()
}

/// The segment that has some bytes, and where.
fn place(directory: &Path, wanted: &[u8]) -> (File, usize) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        if let Some(at) = content.windows(wanted.len()).position(|bytes| bytes == wanted) {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_DIRECT);
            return (options.open(path).expect("a disk that can be written directly"), at);
        }
    }
    panic!("the log has no such bytes")
}

/// Turns a bit around on the disk; memory forgets the page.
fn rot(file: &File, at: usize) {
    let mut page = Page([0; PAGE]);
    let start = (at - at % PAGE) as u64;
    file.read_exact_at(&mut page.0, start).unwrap();
    page.0[at % PAGE] ^= 1;
    file.write_all_at(&page.0, start).unwrap();
}

/// Content that was planned while memory had it is checked again once the answer has waited.
#[test]
fn what_rots_while_an_answer_waits_for_its_client_is_not_sent() {
    let runtime = Runtime::new().unwrap();
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    let volume = open(&log, &runtime);
    let mut content = pattern(7, READ);
    // As nothing else.
    (0..BLOCK).for_each(|at| content[READ - BLOCK + at] = ((at * 7919) >> 3) as u8);
    for (number, block) in content.chunks(BLOCK).enumerate() {
        let offset = (number * BLOCK) as u64;
        let done = volume.write(offset, Bytes::copy_from_slice(block), false);
        runtime.block_on(done.outcome()).unwrap();
    }
    runtime.block_on(volume.flush().outcome()).unwrap();

    let socket = directory.path().join("disk.sock");
    let listener = bind_unix(&socket, 0o600).unwrap();
    let device = Arc::clone(&volume) as Arc<dyn BlockDevice>;
    let export = Arc::new(Export::new("disk", device).unwrap());
    let config = ServerConfig::new(MemoryBudget::new(64 << 20));
    let server = NbdServer::start(listener, export, config, runtime.handle()).unwrap();
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::greeted(stream).go();

    let last = &content[READ - BLOCK + 100..READ - BLOCK + 300];
    let (file, at) = place(&log, last);
    client.send(CMD_READ, 0, 0, READ as u64);
    client.send(CMD_DISC, 0, 0, 0);
    wait_until_full(&client, BLOCK);
    rot(&file, at);
    let answer = client.until_closed();
    let (head, bytes) = answer.split_at(16);
    assert_eq!(head[4..8], [0; 4], "the answer had begun");
    assert!(*bytes == content[..bytes.len()], "nobody has compared what was sent");
    assert!(bytes.len() < READ, "an answer that cannot be had is not given whole");
    assert_eq!(server.stats().mapped_faults, 1);
}
