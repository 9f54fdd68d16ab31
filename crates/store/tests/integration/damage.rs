//! Bad disks, bad files and bad luck: each gets an error that says what to do, or a miss and a
//! metric; never wrong bytes, never a crash.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{CHUNK_SIZE, FaultyDisk, config, content};
use acstor_store::{ChunkGuard, ChunkStore, EvictionKind, Inserted, Look, StoreConfig, StoreError};
use acstor_testkit::{Fault, FaultPlan, SeededChunks};
use acstor_types::{ChunkSize, DedupScope, Digest, ErrorKind};
use bytes::Bytes;

const SLOTS: u64 = 32;

struct Fixture {
    directory: tempfile::TempDir,
    config: StoreConfig,
    chunks: Vec<(Digest, Bytes)>,
}

impl Fixture {
    /// A store with ten chunks in slots 0 to 9, closed.
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), SLOTS);
        let chunks = SeededChunks::new(3, ChunkSize::new(CHUNK_SIZE).unwrap()).chunks(0..10);
        let store = ChunkStore::open(&config).unwrap();
        assert_eq!(store.insert_many(&chunks).unwrap(), [Inserted::New; 10]);
        Fixture { directory, config, chunks }
    }

    fn open(&self) -> ChunkStore {
        ChunkStore::open(&self.config).unwrap()
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.config.path.join(name)
    }

    fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.file(name)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    fn truncate(&self, name: &str, len: u64) {
        OpenOptions::new().write(true).open(self.file(name)).unwrap().set_len(len).unwrap();
    }

    /// Asserts that exactly the chunks `lost` are misses and all others are right.
    fn assert_lost(&self, store: &ChunkStore, lost: &[usize]) {
        for (position, (digest, expected)) in self.chunks.iter().enumerate() {
            let found = content(store, digest);
            if lost.contains(&position) {
                assert_eq!(found, None, "chunk {position}");
            } else {
                assert_eq!(found.as_deref(), Some(&expected[..]), "chunk {position}");
            }
        }
    }
}

#[test]
fn corrupt_content_is_a_miss() {
    let fixture = Fixture::new();
    fixture.overwrite("slots", 3 * u64::from(CHUNK_SIZE) + 100, b"x");
    let store = fixture.open();
    fixture.assert_lost(&store, &[3]);
    let stats = store.stats();
    assert_eq!((stats.corrupt, stats.verified, stats.slots_used), (1, 9, 9));
    let (digest, bytes) = &fixture.chunks[3];
    assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
    fixture.assert_lost(&store, &[]);
}

#[test]
fn same_content_of_several_scopes_is_several_chunks() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), SLOTS);
    let (_, bytes) = SeededChunks::new(3, ChunkSize::new(CHUNK_SIZE).unwrap()).chunk(0);
    let [one, other, plain, absent] = [Some("one"), Some("other"), None, Some("absent")]
        .map(|scope| Digest::of_in(scope.map(DedupScope::new).as_ref(), &bytes));
    let store = ChunkStore::open(&config).unwrap();
    let chunks = [one, other, plain].map(|digest| (digest, bytes.clone()));
    assert_eq!(store.insert_many(&chunks).unwrap(), [Inserted::New; 3]);
    drop(store);
    let fixture = Fixture { directory, config, chunks: chunks.to_vec() };
    fixture.overwrite("slots", u64::from(CHUNK_SIZE) + 100, b"x");
    let store = fixture.open();
    fixture.assert_lost(&store, &[1]);
    assert_eq!((store.stats().corrupt, store.stats().verified), (1, 2));
    assert_eq!(content(&store, &absent), None);
    // What another scope names is no content for this one.
    let (_, others) = SeededChunks::new(3, ChunkSize::new(CHUNK_SIZE).unwrap()).chunk(1);
    for digest in [absent, Digest::of_in(Some(&DedupScope::new("one")), &others)] {
        let wrong = if digest == absent { &others } else { &bytes };
        assert!(store.insert(&digest, wrong).is_err());
        assert_eq!(content(&store, &digest), None);
    }
}

/// Chunks that can be sent out of the mapping as they are.
fn at_hand(guards: &[ChunkGuard]) -> Vec<usize> {
    let is_at_hand = |number: &usize| guards[*number].is_at_hand(0, CHUNK_SIZE as usize);
    (0..guards.len()).filter(is_at_hand).collect()
}

/// A piece of another file may be what an answer failed by, or one page of the disk.
#[test]
fn fault_of_one_answer_leaves_the_others_trusted() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let guards: Vec<_> =
        fixture.chunks.iter().map(|(digest, _)| store.get(digest).unwrap().unwrap()).collect();
    assert_eq!(at_hand(&guards).len(), 10);
    for _ in 0..3 {
        guards[4].note_fault();
        assert_eq!(at_hand(&guards), [0, 1, 2, 3, 5, 6, 7, 8, 9], "it is hashed again, alone");
        assert_eq!(guards[4].to_bytes().unwrap(), fixture.chunks[4].1);
        assert_eq!(at_hand(&guards).len(), 10);
    }
}

/// Pages behind the new end of a file count as in memory for a moment: once, nothing is trusted.
#[test]
fn fault_of_a_file_that_was_cut_is_doubted_once() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let guards: Vec<_> =
        fixture.chunks.iter().map(|(digest, _)| store.get(digest).unwrap().unwrap()).collect();
    let whole = fs::metadata(fixture.file("slots")).unwrap().len();
    for left in [8_usize, 5, 5] {
        fixture.truncate("slots", left as u64 * u64::from(CHUNK_SIZE));
        guards[9].note_fault();
        assert_eq!(at_hand(&guards), [0; 0], "after a cut to {left} chunks");
        for guard in &guards[..left] {
            guard.to_bytes().unwrap();
        }
        let left: Vec<_> = (0..left).collect();
        for _ in 0..3 {
            guards[9].note_fault();
            assert_eq!(at_hand(&guards), left, "what was hashed since is there");
        }
        // Made whole, it may be cut to the same length again.
        fixture.truncate("slots", whole);
        guards[9].note_fault();
        assert_eq!(at_hand(&guards), left);
    }
}

#[test]
fn corrupt_record_is_a_miss_after_a_restart() {
    let fixture = Fixture::new();
    fixture.overwrite("records", 5 * 64 + 20, b"x");
    let store = fixture.open();
    assert_eq!((store.stats().corrupt, store.stats().recovered), (1, 9));
    fixture.assert_lost(&store, &[5]);
}

#[test]
fn record_damaged_while_the_store_is_open_is_noticed_by_the_next_open() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.overwrite("records", 5 * 64 + 20, b"x");
    fixture.assert_lost(&store, &[]);
    assert_eq!(store.stats().corrupt, 0);
    drop(store);
    fixture.assert_lost(&fixture.open(), &[5]);
}

#[test]
fn one_sign_of_damage_makes_every_slot_be_hashed_again() {
    let fixture = Fixture::new();
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&fixture.config, &FaultyDisk(plan.clone())).unwrap();
    fixture.assert_lost(&store, &[]);
    // Memory that goes bad under a verified slot is not noticed by itself ...
    fixture.overwrite("slots", 3 * u64::from(CHUNK_SIZE), b"x");
    fixture.overwrite("slots", 8 * u64::from(CHUNK_SIZE), b"x");
    // ... but whatever else is noticed on that disk ends the trust in all of it.
    plan.fail_nth("slots.resident", 1, Fault::EIO);
    plan.fail_nth("slots.read", 1, Fault::EIO);
    assert_eq!(content(&store, &fixture.chunks[5].0), None);
    fixture.assert_lost(&store, &[3, 5, 8]);
}

#[test]
fn content_that_rots_on_disk_after_it_was_verified_is_never_served() {
    let fixture = Fixture::new();
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&fixture.config, &FaultyDisk(plan.clone())).unwrap();
    fixture.assert_lost(&store, &[]);
    fixture.overwrite("slots", 3 * u64::from(CHUNK_SIZE) + 7, b"x");
    let digest = &fixture.chunks[3].0;
    let guard = store.get(digest).unwrap().unwrap();
    plan.fail_nth("slots.resident", 1, Fault::EIO);
    assert!(matches!(store.look(digest, 0, 100), Look::Disk(_)), "its pages left memory");
    assert!(
        matches!(store.look(digest, 0, 100), Look::Disk(_)),
        "and are not trusted until hashed"
    );
    assert_eq!(guard.read_at(0, &mut [0; 10]).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert!(guard.try_copy(0, 10).is_none() && store.read(digest, &(0..10)).is_none());
    drop(guard);
    fixture.assert_lost(&store, &[3]);
    assert_eq!(store.stats().corrupt, 1);
}

#[test]
fn record_moved_to_another_slot_is_not_believed() {
    let fixture = Fixture::new();
    let records = fs::read(fixture.file("records")).unwrap();
    fixture.overwrite("records", 20 * 64, &records[64..128]);
    let store = fixture.open();
    fixture.assert_lost(&store, &[]);
    assert_eq!(store.stats().corrupt, 1);
}

#[test]
fn slot_file_truncated_while_closed_loses_what_was_cut() {
    let fixture = Fixture::new();
    fixture.truncate("slots", 4 * u64::from(CHUNK_SIZE) + 1);
    let store = fixture.open();
    fixture.assert_lost(&store, &[4, 5, 6, 7, 8, 9]);
    assert_eq!(store.stats().corrupt, 6);
}

#[test]
fn record_file_truncated_while_closed_loses_what_was_cut() {
    let fixture = Fixture::new();
    fixture.truncate("records", 4 * 64 + 1);
    fixture.assert_lost(&fixture.open(), &[4, 5, 6, 7, 8, 9]);
}

#[test]
fn slot_file_truncated_while_open_never_gives_zeros() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.assert_lost(&store, &[]);
    let guard = store.get(&fixture.chunks[2].0).unwrap().unwrap();
    fixture.truncate("slots", 0);

    assert_eq!(write_mapped(&guard), Err(libc::EFAULT), "the kernel says so, nobody crashes");
    assert!(guard.to_bytes().is_err());
    drop(guard);
    assert_eq!(store.stats().read_errors, 1);

    // A write past the new end must not turn the lost chunks into readable zeros.
    let (digest, bytes) = SeededChunks::new(4, ChunkSize::new(CHUNK_SIZE).unwrap()).chunk(0);
    assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
    assert_eq!(content(&store, &digest).as_deref(), Some(&bytes[..]));
    fixture.assert_lost(&store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!((store.stats().truncations, store.stats().slots_used), (1, 1));
}

#[test]
fn record_file_truncated_while_open_loses_what_was_cut_at_the_next_open() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.truncate("records", 0);
    fixture.assert_lost(&store, &[]);
    let (digest, bytes) = SeededChunks::new(4, fixture.config.chunk_size).chunk(0);
    assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
    drop(store);
    let store = fixture.open();
    fixture.assert_lost(&store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(content(&store, &digest).as_deref(), Some(&bytes[..]));
}

#[test]
fn mapped_content_is_what_the_kernel_sends() {
    let fixture = Fixture::new();
    let store = fixture.open();
    for (digest, expected) in &fixture.chunks {
        let guard = store.get(digest).unwrap().unwrap();
        assert_eq!(write_mapped(&guard).as_deref(), Ok(&expected[..]));
    }
}

/// Sends a chunk through a pipe straight from the mapping, as the FUSE front end does.
fn write_mapped(guard: &ChunkGuard) -> Result<Vec<u8>, i32> {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&writer);
    // SAFETY: the kernel reads `len` bytes of a mapping that the guard keeps; 4 KiB fit the pipe.
    let written = unsafe { libc::write(fd, guard.mapped().cast(), guard.len()) };
    if written < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
    }
    drop(writer);
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
    Ok(content)
}

#[test]
fn newer_version_is_refused_by_name_and_left_alone() {
    let fixture = Fixture::new();
    let path = fixture.file("superblock");
    let mut superblock = fs::read(&path).unwrap();
    superblock[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32fast::hash(&superblock[..60]);
    superblock[60..64].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &superblock).unwrap();

    let error = ChunkStore::open(&fixture.config).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 7, supported: 1, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("upgrade acstor"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), superblock);
}

#[test]
fn damaged_or_missing_superblock_costs_no_chunk() {
    let fixture = Fixture::new();
    let id = fixture.open().store_id();
    fixture.overwrite("superblock", 13, b"x");
    fixture.assert_lost(&fixture.open(), &[]);
    fs::remove_file(fixture.file("superblock")).unwrap();
    let store = fixture.open();
    fixture.assert_lost(&store, &[]);
    assert_ne!(store.store_id(), id);
    drop(store);
    assert!(fs::metadata(fixture.file("superblock")).unwrap().len() == 4096);
}

#[test]
fn second_opener_is_refused_with_the_owner_named() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let error = ChunkStore::open(&fixture.config).unwrap_err();
    let pid = std::process::id();
    assert!(matches!(error, StoreError::Locked { pid: Some(owner), .. } if owner == pid));
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    let guard = store.get(&fixture.chunks[0].0).unwrap();
    drop(store);
    assert!(ChunkStore::open(&fixture.config).is_err(), "a guard still reads");
    drop(guard);
    fixture.assert_lost(&fixture.open(), &[]);
}

#[test]
fn larger_capacity_keeps_every_chunk() {
    let fixture = Fixture::new();
    let larger = StoreConfig { ..config(fixture.directory.path(), 4 * SLOTS) };
    let store = ChunkStore::open(&larger).unwrap();
    assert_eq!(store.stats().slots, 4 * SLOTS);
    fixture.assert_lost(&store, &[]);
    let more = SeededChunks::new(5, larger.chunk_size).chunks(0..4 * SLOTS - 10);
    assert!(store.insert_many(&more).unwrap().iter().all(|outcome| *outcome == Inserted::New));
    assert_eq!(store.stats().evicted, 0);
    fixture.assert_lost(&store, &[]);
}

#[test]
fn smaller_capacity_drops_the_slots_past_the_end() {
    let fixture = Fixture::new();
    let smaller = config(fixture.directory.path(), 8);
    let store = ChunkStore::open(&smaller).unwrap();
    fixture.assert_lost(&store, &[8, 9]);
    drop(store);
    let size = |name| fs::metadata(fixture.file(name)).unwrap().len();
    assert!(size("slots") + size("records") + size("superblock") <= smaller.capacity_bytes);
}

#[test]
fn other_chunk_size_empties_the_store() {
    let fixture = Fixture::new();
    let other = StoreConfig { chunk_size: ChunkSize::new(8192).unwrap(), ..fixture.config.clone() };
    let store = ChunkStore::open(&other).unwrap();
    assert_eq!((store.stats().recovered, store.stats().corrupt), (0, 0));
    let (digest, bytes) = SeededChunks::new(6, other.chunk_size).chunk(0);
    assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
    drop(store);
    fixture.assert_lost(&fixture.open(), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn capacity_out_of_range_is_refused_with_the_range() {
    let directory = tempfile::tempdir().unwrap();
    for capacity_bytes in [0, 4096, u64::MAX] {
        let config = StoreConfig { capacity_bytes, ..config(directory.path(), SLOTS) };
        let error = ChunkStore::open(&config).unwrap_err();
        assert!(matches!(error, StoreError::Capacity { given, .. } if given == capacity_bytes));
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn capacity_beyond_the_disk_is_refused_before_it_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let too_many = (free_bytes(directory.path()) + (1 << 40)) / u64::from(CHUNK_SIZE);
    let config = config(directory.path(), too_many);
    let error = ChunkStore::open(&config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(error.to_string().contains("[store] capacity"), "{error}");
    assert_eq!(fs::metadata(config.path.join("slots")).unwrap().len(), 0);
}

fn free_bytes(path: &Path) -> u64 {
    let disk = rustix::fs::statvfs(path).unwrap();
    disk.f_bavail * disk.f_frsize
}

#[test]
fn preallocation_that_fails_half_way_gives_the_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), SLOTS);
    let plan = FaultPlan::new();
    plan.fail_nth("slots.preallocate", 1, Fault::Torn(28));
    let error = ChunkStore::open_on(&config, &FaultyDisk(plan.clone())).unwrap_err();
    assert!(matches!(error, StoreError::Preallocate { .. }), "{error}");
    assert_eq!(fs::metadata(config.path.join("slots")).unwrap().len(), 0);
    ChunkStore::open_on(&config, &FaultyDisk(plan)).unwrap();
}

#[test]
fn write_error_publishes_nothing() {
    let fixture = Fixture::new();
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&fixture.config, &FaultyDisk(plan.clone())).unwrap();
    let fresh = SeededChunks::new(9, fixture.config.chunk_size).chunks(0..3);
    for (operation, (digest, bytes)) in
        ["slots.write", "records.write", "slots.size"].iter().zip(&fresh)
    {
        plan.fail_nth(operation, 1, Fault::Torn(5));
        let error = store.insert(digest, bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(content(&store, digest), None, "{operation}");
    }
    assert_eq!((store.stats().write_errors, store.stats().slots_used), (2, 10));
    for (digest, bytes) in &fresh {
        assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
    }
    drop(store);
    fixture.assert_lost(&fixture.open(), &[]);
}

#[test]
fn disk_with_a_bad_spot_goes_on_taking_inserts() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig { eviction: EvictionKind::Fifo, ..config(directory.path(), 8) };
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&config, &FaultyDisk(plan.clone())).unwrap();
    let chunks = SeededChunks::new(9, config.chunk_size).chunks(0..40);
    plan.fail_nth("slots.write", 1, Fault::EIO);
    assert!(store.insert(&chunks[0].0, &chunks[0].1).is_err());
    for (digest, bytes) in &chunks[1..] {
        assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
    }
    assert_eq!(store.stats().slots_used, 7, "the suspect waits its turn");
}

#[test]
fn read_error_is_a_miss() {
    let fixture = Fixture::new();
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&fixture.config, &FaultyDisk(plan.clone())).unwrap();
    plan.fail_nth("slots.read", 1, Fault::EIO);
    assert_eq!(content(&store, &fixture.chunks[0].0), None);
    plan.fail_nth("slots.read", 1, Fault::Short);
    assert_eq!(content(&store, &fixture.chunks[1].0), None);
    fixture.assert_lost(&store, &[0, 1]);
    assert_eq!((store.stats().read_errors, store.stats().corrupt), (2, 0));
}

#[test]
fn records_unreadable_at_open_are_there_again_when_the_disk_is() {
    let fixture = Fixture::new();
    let plan = FaultPlan::new();
    plan.fail_always("records.read", Fault::EIO);
    let store = ChunkStore::open_on(&fixture.config, &FaultyDisk(plan)).unwrap();
    assert_eq!((store.stats().recovered, store.stats().read_errors), (0, SLOTS));
    drop(store);
    fixture.assert_lost(&fixture.open(), &[]);
}

#[test]
fn content_that_is_not_the_chunk_is_refused() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let digest = Digest::of(b"something else");
    let error = store.insert(&digest, &fixture.chunks[0].1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = store.insert(&digest, b"short").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!store.contains(&digest));
}
