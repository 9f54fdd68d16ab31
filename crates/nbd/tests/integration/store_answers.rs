//! Answers out of a chunk store on a real disk, and a client that takes its time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::client::Client;
use crate::support::{PATIENCE, wait_until_full};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{Export, MemoryBudget, NbdServer, ServerConfig, bind_unix};
use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery,
    Piece, TryRead, ZeroHow,
};
use acstor_readpath::Segment;
use acstor_store::{ChunkStore, EvictionKind, Inserted, Look, StoreConfig};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const CHUNK: usize = 64 << 10;
const PAGE: usize = 4096;
/// Chunks of a read: more than a socket takes.
const COUNT: usize = 384;
const READ: usize = COUNT * CHUNK;
/// The chunk that is not there any more, or whose page is not.
const LATE: usize = COUNT - 1;

/// Page-aligned buffer for direct reads and writes.
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// A disk whose chunks are in a store, and nowhere else.
struct StoredDisk {
    store: ChunkStore,
    digests: Vec<Digest>,
}

impl StoredDisk {
    fn pieces(&self, offset: u64, len: usize) -> Result<Vec<Piece>, DeviceError> {
        let chunks = offset as usize / CHUNK..(offset as usize + len) / CHUNK;
        chunks
            .map(|chunk| {
                let digest = &self.digests[chunk];
                match self.store.look(digest, 0, CHUNK) {
                    Look::Memory(chunk) => {
                        Ok(Piece::Base(Segment::Mapped { chunk, start: 0, len: CHUNK }))
                    }
                    // The machine may take memory from any of them at any time.
                    Look::Disk(part) => self.store.read(digest, &part).map_or_else(
                        || Err(DeviceError::new(DeviceErrorKind::Io, "the disk has it no more")),
                        |bytes| Ok(Piece::Base(Segment::Bytes(bytes))),
                    ),
                    _ => Err(DeviceError::new(DeviceErrorKind::Io, "the store has it no more")),
                }
            })
            .collect()
    }
}

fn read_only() -> Done<()> {
    Done::Now(Err(DeviceError::new(DeviceErrorKind::ReadOnly, "read only")))
}

impl BlockDevice for StoredDisk {
    fn size_bytes(&self) -> u64 {
        READ as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        self.pieces(offset, len).map(TryRead::Ready)
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        let pieces = self.pieces(offset, len);
        Box::pin(async move { pieces })
    }

    fn write(&self, _: u64, _: Bytes, _: bool) -> Done<()> {
        read_only()
    }

    fn write_zeroes(&self, _: u64, _: u64, _: ZeroHow) -> Done<()> {
        read_only()
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> Done<()> {
        read_only()
    }

    fn flush(&self) -> Done<()> {
        Done::Now(Ok(()))
    }

    fn extents(&self, _: u64, len: u64, _: ExtentQuery, _: usize) -> Vec<DeviceExtent> {
        vec![DeviceExtent { len, is_hole: false, is_zero: false, is_dirty: false }]
    }

    fn prefetch(&self, _: u64, _: u64) -> Done<()> {
        Done::Now(Ok(()))
    }
}

struct Fixture {
    server: NbdServer,
    _runtime: Runtime,
    disk: Arc<StoredDisk>,
    content: Vec<u8>,
    socket: PathBuf,
    slots: PathBuf,
    _directory: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let runtime = Runtime::new().unwrap();
        // Not in /tmp, which may be memory: there would be no disk to bring pages back from.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let config = StoreConfig {
            path: directory.path().join("store"),
            capacity_bytes: 64 << 20,
            chunk_size: ChunkSize::DEFAULT,
            eviction: EvictionKind::default(),
        };
        let store = ChunkStore::open(&config).unwrap();
        // No two chunks, nor pages, are alike.
        let words = 0..READ as u64 / 8;
        let content: Vec<u8> =
            words.flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
        let digests: Vec<Digest> = content.chunks(CHUNK).map(Digest::of).collect();
        for (digest, chunk) in digests.iter().zip(content.chunks(CHUNK)) {
            assert_eq!(store.insert(digest, chunk).unwrap(), Inserted::New);
        }
        store.finish_writeback().unwrap();
        let slots = config.path.join("slots");
        File::open(&slots).unwrap().sync_all().unwrap();
        let disk = Arc::new(StoredDisk { store, digests });
        let socket = directory.path().join("disk.sock");
        let listener = bind_unix(&socket, 0o600).unwrap();
        let device = Arc::clone(&disk) as Arc<dyn BlockDevice>;
        let export = Arc::new(Export::new("disk", device).unwrap());
        let config = ServerConfig::new(MemoryBudget::new(64 << 20));
        let server = NbdServer::start(listener, export, config, runtime.handle()).unwrap();
        let _runtime = runtime;
        Fixture { server, _runtime, disk, content, socket, slots, _directory: directory }
    }

    /// A client that has asked for all and takes none of it yet.
    fn slow_client(&self) -> Client {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::greeted(stream).go();
        client.send(CMD_READ, 0, 0, READ as u64);
        client.send(CMD_DISC, 0, 0, 0);
        wait_until_full(&client, CHUNK);
        client
    }

    /// Returns the place of the last chunk in the file of the slots.
    fn place(&self) -> u64 {
        let slots = std::fs::read(&self.slots).unwrap();
        let wanted = &self.content[LATE * CHUNK..];
        let found = slots.chunks(PAGE).position(|page| page == &wanted[..PAGE]);
        (found.unwrap() * PAGE) as u64
    }

    /// Writes a page of the last chunk past memory, which forgets it.
    fn rewrite(&self, place: u64, change: impl FnOnce(&mut [u8])) {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = file.open(&self.slots).unwrap();
        let mut page = Page([0; PAGE]);
        file.read_exact_at(&mut page.0, place).unwrap();
        change(&mut page.0);
        file.write_all_at(&page.0, place).unwrap();
    }

    fn is_in_memory(&self, chunk: usize) -> bool {
        matches!(self.disk.store.look(&self.disk.digests[chunk], 0, CHUNK), Look::Memory(_))
    }
}

/// Somebody else's read brings the page back, so that memory has it, and finds out that it is not right.
#[test]
fn chunk_that_rots_while_an_answer_waits_for_its_client_is_not_sent() {
    let fixture = Fixture::new();
    let place = fixture.place();
    let mut client = fixture.slow_client();
    fixture.rewrite(place, |page| page[100] ^= 1);
    let Look::Disk(part) = fixture.disk.store.look(&fixture.disk.digests[LATE], 0, CHUNK) else {
        panic!("memory has it no more");
    };
    assert!(fixture.disk.store.read(&fixture.disk.digests[LATE], &part).is_none());
    File::open(&fixture.slots).unwrap().read_exact_at(&mut [0; PAGE], place).unwrap();

    let answer = client.until_closed();

    let (head, bytes) = answer.split_at(16);
    assert_eq!(head[4..8], [0; 4], "the answer had begun");
    assert!(*bytes == fixture.content[..bytes.len()], "nobody has hashed what was sent");
    assert!(bytes.len() < READ, "an answer that cannot be had is not given whole");
}

/// It is hashed and sent; that memory lost a page is no reason to doubt the others.
#[test]
fn chunk_that_leaves_memory_while_an_answer_waits_costs_the_others_nothing() {
    let fixture = Fixture::new();
    let place = fixture.place();
    let mut client = fixture.slow_client();
    fixture.rewrite(place, |_| ());

    let answer = client.until_closed();

    assert!(answer[16..] == fixture.content, "the whole answer");
    assert_eq!(fixture.server.stats().mapped_faults, 1);
    assert!(fixture.is_in_memory(0), "it is verified as before");
}

/// The kernel sends nothing of answers that go with one call, however good the first is.
#[test]
fn answers_before_one_whose_file_was_cut_are_sent() {
    let fixture = Fixture::new();
    let stream = UnixStream::connect(&fixture.socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::greeted(stream).go();
    let asked: HashMap<u64, usize> = (0..COUNT)
        .map(|chunk| (client.send(CMD_READ, 0, (chunk * CHUNK) as u64, CHUNK as u64), chunk))
        .collect();
    client.send(CMD_DISC, 0, 0, 0);
    wait_until_full(&client, CHUNK);
    let place = fixture.place();
    File::options().write(true).open(&fixture.slots).unwrap().set_len(place).unwrap();

    let answer = client.until_closed();

    // One that had to be looked at again comes after others.
    let mut rest = &answer[..];
    let mut sent = HashSet::new();
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let chunk = asked[&u64::from_be_bytes(*head.last_chunk().unwrap())];
        let len = if head[4..8] == [0; 4] { CHUNK } else { 0 };
        let Some((content, behind)) = behind.split_at_checked(len) else { break };
        if len > 0 {
            assert!(*content == fixture.content[chunk * CHUNK..][..CHUNK], "chunk {chunk}");
            sent.insert(chunk);
        }
        rest = behind;
    }
    assert_eq!(sent, (0..LATE).collect(), "all but the one that is gone");
}
