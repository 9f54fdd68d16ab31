//! Bytes that rot on the disk under an open store: what is in memory beside them is served, they are
//! not. With real pages: written past the page cache, dropped from it, brought back by reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use acstor_store::{ChunkGuard, ChunkStore, EvictionKind, Inserted, Look, StoreConfig};
use acstor_testkit::SeededChunks;
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;

const CHUNK: usize = 65_536;
const PAGE: usize = 4096;
const COUNT: u64 = 8;

struct Fixture {
    _directory: tempfile::TempDir,
    store: ChunkStore,
    slots: File,
    buffered: File,
    chunks: Vec<(Digest, Bytes)>,
}

impl Fixture {
    /// A store on a disk, its chunks in slots 0 to 7, written back.
    fn new() -> Fixture {
        // Not in /tmp, which may be memory: there would be no disk to bring pages back from.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
        let config = StoreConfig {
            path: directory.path().join("store"),
            capacity_bytes: 4096 + 2 * COUNT * (CHUNK as u64 + 64),
            chunk_size,
            eviction: EvictionKind::Fifo,
        };
        let store = ChunkStore::open(&config).unwrap();
        let chunks = SeededChunks::new(5, chunk_size).chunks(0..COUNT);
        assert_eq!(store.insert_many(&chunks).unwrap(), [Inserted::New; COUNT as usize]);
        store.finish_writeback().unwrap();
        let slots = open_direct(&config.path.join("slots"));
        slots.sync_all().unwrap();
        let buffered = File::open(config.path.join("slots")).unwrap();
        Fixture { _directory: directory, store, slots, buffered, chunks }
    }

    /// Makes all pages leave memory that are not mapped.
    fn drop_pages(&self) {
        // SAFETY: advice for an open file.
        let advised =
            unsafe { libc::posix_fadvise(self.slots.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
    }

    /// Changes a byte of a page on the disk; the page leaves memory, mapped or not.
    fn rot(&self, chunk: usize, page: usize) {
        let mut memory = vec![0_u8; 2 * PAGE];
        let skip = memory.as_ptr().align_offset(PAGE);
        let bytes = &mut memory[skip..skip + PAGE];
        let offset = (chunk * CHUNK + page * PAGE) as u64;
        self.slots.read_exact_at(bytes, offset).unwrap();
        bytes[100] ^= 1;
        self.slots.write_all_at(bytes, offset).unwrap();
    }

    /// Returns what the store has of a chunk; it is right or it is nothing.
    fn read(&self, chunk: usize, start: usize, len: usize) -> Option<Vec<u8>> {
        let (digest, expected) = &self.chunks[chunk];
        let found = match self.store.look(digest, start, len) {
            Look::Memory(guard) => Some(sent(&guard, start, len)),
            Look::Copy(bytes) => Some(bytes.to_vec()),
            Look::Disk(part) => {
                let first = start - part.start;
                self.store.read(digest, &part).map(|bytes| bytes[first..first + len].to_vec())
            }
            Look::Absent => None,
        };
        if let Some(found) = &found {
            assert!(found == &expected[start..start + len], "wrong bytes of chunk {chunk}");
        }
        found
    }

    fn has_page(&self, chunk: usize, page: usize) -> bool {
        self.read(chunk, page * PAGE, PAGE).is_some()
    }
}

fn open_direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Returns what the kernel copies out of the mapping, as an answer is sent.
fn sent(guard: &ChunkGuard, start: usize, len: usize) -> Vec<u8> {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let from = guard.mapped().wrapping_add(start);
    // SAFETY: the kernel reads `len` bytes of a mapping that the guard keeps; they fit the pipe.
    let written = unsafe { libc::write(writer.as_raw_fd(), from.cast(), len) };
    assert_eq!(written, len as isize, "{}", std::io::Error::last_os_error());
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_page_that_rots_under_a_mapped_chunk_is_not_served_after_its_neighbours() {
    let fixture = Fixture::new();
    assert!(fixture.read(2, 0, CHUNK).is_some(), "mapped");
    fixture.rot(2, 3);
    assert!(fixture.has_page(2, 2));
    assert!(!fixture.has_page(2, 3));
    assert_eq!(fixture.store.stats().corrupt, 1);
}

#[test]
fn a_page_that_rots_is_not_in_memory_as_verified_because_its_neighbours_were_read() {
    let fixture = Fixture::new();
    fixture.drop_pages();
    for chunk in 0..COUNT as usize {
        assert!(fixture.has_page(chunk, 0));
    }
    fixture.rot(2, 3);
    fixture.drop_pages();
    for chunk in [0, 1, 3, 4] {
        assert!(fixture.read(chunk, 0, CHUNK).is_some());
    }
    assert!(!fixture.has_page(2, 3));
    assert_eq!(fixture.store.stats().corrupt, 1);
    for chunk in [0, 1, 3, 4, 5, 6, 7] {
        assert!(fixture.read(chunk, PAGE, CHUNK - PAGE).is_some());
    }
}

/// Returns the part of a chunk that the store wants to be read for a page.
fn part_for(fixture: &Fixture, chunk: usize, page: usize) -> Range<usize> {
    match fixture.store.look(&fixture.chunks[chunk].0, page * PAGE, PAGE) {
        Look::Disk(part) => part,
        other => panic!("page {page} of chunk {chunk} is not on the disk only: {other:?}"),
    }
}

#[test]
fn a_page_is_read_alone_and_the_rest_of_a_chunk_that_is_read_in_order() {
    let fixture = Fixture::new();
    fixture.drop_pages();
    assert_eq!(part_for(&fixture, 2, 9), 9 * PAGE..10 * PAGE);
    let unaligned = fixture.store.look(&fixture.chunks[2].0, 9 * PAGE - 1, 2);
    assert!(matches!(unaligned, Look::Disk(part) if part == (8 * PAGE..10 * PAGE)));
    assert!(fixture.read(2, 9 * PAGE - 1, 2).is_some());
    let stats = fixture.store.stats();
    assert_eq!((stats.compared, stats.verified), (1, 0));
    for page in 0..4 {
        assert!(fixture.has_page(3, page));
    }
    assert_eq!(part_for(&fixture, 3, 4), 4 * PAGE..CHUNK);
    assert!(fixture.has_page(3, 4));
    let (digest, expected) = &fixture.chunks[3];
    let copied = fixture.store.look(digest, 9 * PAGE + 7, 5000);
    assert!(
        matches!(&copied, Look::Disk(part) if *part == (0..CHUNK)),
        "all in memory: {copied:?}"
    );
    assert!(fixture.read(3, 9 * PAGE, PAGE).is_some());
    let mapped = fixture.store.look(digest, 9 * PAGE + 7, 5000);
    assert!(matches!(&mapped, Look::Memory(_)), "hashed once: {mapped:?}");
    assert!(sent(&guard_of(mapped), 0, CHUNK) == expected[..]);
}

fn guard_of(look: Look) -> ChunkGuard {
    match look {
        Look::Memory(guard) => guard,
        other => panic!("not in memory: {other:?}"),
    }
}

#[test]
fn a_page_that_was_read_alone_is_copied_from_memory_the_next_time() {
    let fixture = Fixture::new();
    fixture.drop_pages();
    assert!(fixture.has_page(2, 9));
    let (digest, expected) = &fixture.chunks[2];
    match fixture.store.look(digest, 9 * PAGE + 7, 100) {
        Look::Copy(bytes) => assert_eq!(bytes, expected[9 * PAGE + 7..9 * PAGE + 107]),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.store.stats().compared, 1);
}

#[test]
fn a_page_that_rots_is_found_out_when_it_is_read_alone() {
    let fixture = Fixture::new();
    fixture.rot(2, 3);
    fixture.drop_pages();
    assert!(fixture.has_page(2, 2) && fixture.has_page(2, 4));
    assert_eq!(fixture.store.stats().compared, 2);
    assert!(!fixture.has_page(2, 3));
    let stats = fixture.store.stats();
    assert_eq!((stats.corrupt, stats.compared), (1, 2), "hashed whole, and freed");
    assert!(!fixture.has_page(2, 2), "the chunk is not trusted any more");
    assert_eq!(
        fixture.store.insert(&fixture.chunks[2].0, &fixture.chunks[2].1).unwrap(),
        Inserted::New
    );
    assert!(fixture.has_page(2, 3));
}

#[test]
fn a_rotten_page_that_others_brought_to_memory_is_compared_all_the_same() {
    let fixture = Fixture::new();
    fixture.rot(2, 3);
    fixture.drop_pages();
    assert!(fixture.has_page(2, 0));
    let mut pages = vec![0; 6 * PAGE];
    // As a backup does, page cache and all.
    fixture.buffered.read_exact_at(&mut pages, (2 * CHUNK) as u64).unwrap();
    assert!(fixture.has_page(2, 2), "from memory");
    assert!(!fixture.has_page(2, 3));
    assert_eq!(fixture.store.stats().corrupt, 1);
}

/// An answer may be sent long after the look, and somebody else's read bring the page back that rotted.
#[test]
fn chunk_that_rots_under_its_guard_is_not_at_hand() {
    let fixture = Fixture::new();
    let Look::Memory(guard) = fixture.store.look(&fixture.chunks[3].0, 0, CHUNK) else {
        panic!("it was written a moment ago");
    };
    assert!(guard.is_at_hand(0, CHUNK));
    fixture.rot(3, 2);
    assert!(!guard.is_at_hand(2 * PAGE, PAGE), "memory has it no more");
    assert!(!fixture.has_page(3, 2), "whoever reads it finds out");
    let mut page = [0; PAGE];
    fixture.buffered.read_exact_at(&mut page, (3 * CHUNK + 2 * PAGE) as u64).unwrap();
    assert!(!guard.is_at_hand(2 * PAGE, PAGE), "it is back, and rotten");
    assert!(guard.try_copy(2 * PAGE, PAGE).is_none());
    assert_eq!(guard.read_at(2 * PAGE, &mut page).unwrap_err().kind(), ErrorKind::InvalidData);
}

/// The same where nobody has found out: what was read since is not known to be right.
#[test]
fn chunk_that_was_read_anew_under_its_guard_is_at_hand_once_it_was_hashed() {
    let fixture = Fixture::new();
    let (digest, content) = fixture.chunks[3].clone();
    let Look::Memory(guard) = fixture.store.look(&digest, 0, CHUNK) else {
        panic!("it was written a moment ago");
    };
    fixture.rot(3, 2);
    fixture.rot(3, 2); // which makes it right again
    assert!(fixture.has_page(3, 2));
    let mut page = [0; PAGE];
    fixture.buffered.read_exact_at(&mut page, (3 * CHUNK + 2 * PAGE) as u64).unwrap();
    assert!(!guard.is_at_hand(2 * PAGE, PAGE), "a part of it was compared only");
    guard.read_at(2 * PAGE, &mut page).unwrap();
    assert_eq!(page, content[2 * PAGE..3 * PAGE]);
    assert!(guard.is_at_hand(2 * PAGE, PAGE));
}
