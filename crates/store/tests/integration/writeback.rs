//! A disk that takes writes into memory and refuses them later: an error that the kernel tells once,
//! pages that are clean, other bytes when they come back. Nothing wrong is served, and it is counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{FaultyDisk, content};
use acstor_store::{ChunkStore, EvictionKind, Inserted, StoreConfig, limits};
use acstor_testkit::{Fault, FaultPlan, SeededChunks};
use acstor_types::{ChunkSize, Digest, ErrorKind};
use bytes::Bytes;

const CHUNK: u64 = 65_536;
/// Chunks after which the store writes back.
const STEP: u64 = limits::WRITEBACK_BYTES / CHUNK;

fn config(path: &Path, slots: u64) -> StoreConfig {
    StoreConfig {
        path: path.join("store"),
        capacity_bytes: 4096 + slots * (CHUNK + 64),
        chunk_size: ChunkSize::new(CHUNK as u32).unwrap(),
        eviction: EvictionKind::Fifo,
    }
}

fn chunks(seed: u64, count: u64) -> Vec<(Digest, Bytes)> {
    SeededChunks::new(seed, ChunkSize::new(CHUNK as u32).unwrap()).chunks(0..count)
}

/// Counts those of `chunks` that are right and those that are misses; panics for wrong bytes.
fn count(store: &ChunkStore, chunks: &[(Digest, Bytes)]) -> (usize, usize) {
    let right = chunks.iter().filter(|(digest, expected)| {
        let found = content(store, digest);
        assert!(found.as_ref().is_none_or(|found| found == expected), "wrong bytes of {digest}");
        found.is_some()
    });
    let right = right.count();
    (right, chunks.len() - right)
}

#[test]
fn chunks_whose_write_back_failed_are_misses_and_the_insert_that_hears_of_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let plan = FaultPlan::new();
    let config = config(directory.path(), 4 * STEP);
    let store = ChunkStore::open_on(&config, &FaultyDisk(plan.clone())).unwrap();
    let chunks = chunks(1, 2 * STEP);
    let (first, second) = chunks.split_at(STEP as usize);
    plan.fail_nth("slots.writeback", 1, Fault::EIO);
    for (digest, bytes) in first {
        assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
    }
    assert_eq!(store.stats().writeback_errors, 0, "nobody asked yet");
    let (last, others) = second.split_last().unwrap();
    for (digest, bytes) in others {
        assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
    }
    let error = store.insert(&last.0, &last.1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("write back"), "{error}");
    assert!(!store.contains(&last.0), "not published");
    assert_eq!(count(&store, first), (0, STEP as usize));
    assert_eq!(count(&store, others), (STEP as usize - 1, 0));
    let stats = store.stats();
    assert_eq!((stats.writeback_errors, stats.corrupt), (1, STEP));
    for (digest, bytes) in &chunks {
        let _ = store.insert(digest, bytes).unwrap();
    }
    store.finish_writeback().unwrap();
    assert_eq!(count(&store, &chunks), (2 * STEP as usize, 0), "the disk is well again");
}

#[test]
fn failed_write_back_of_the_last_bytes_is_heard_of_too() {
    let directory = tempfile::tempdir().unwrap();
    let plan = FaultPlan::new();
    let store =
        ChunkStore::open_on(&config(directory.path(), 16), &FaultyDisk(plan.clone())).unwrap();
    let chunks = chunks(2, 3);
    let _ = store.insert_many(&chunks).unwrap();
    plan.fail_nth("slots.writeback", 1, Fault::ENOSPC);
    let error = store.finish_writeback().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    store.finish_writeback().unwrap();
    assert_eq!(count(&store, &chunks), (0, 3));
    assert_eq!((store.stats().writeback_errors, store.stats().corrupt), (1, 3));
}

#[test]
fn reused_slot_whose_write_back_failed_never_gives_the_chunk_before() {
    let directory = tempfile::tempdir().unwrap();
    let plan = FaultPlan::new();
    let store =
        ChunkStore::open_on(&config(directory.path(), 8), &FaultyDisk(plan.clone())).unwrap();
    let (old, fresh) = (chunks(3, 8), chunks(4, 8));
    let _ = store.insert_many(&old).unwrap();
    store.finish_writeback().unwrap();
    let _ = store.insert_many(&fresh).unwrap();
    assert_eq!(store.stats().evicted, 8);
    plan.fail_nth("slots.writeback", 1, Fault::EIO);
    assert!(store.finish_writeback().is_err());
    assert_eq!(count(&store, &fresh), (0, 8));
    assert_eq!(count(&store, &old), (0, 8));
}

#[test]
fn nothing_to_write_back_asks_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let plan = FaultPlan::new();
    let store =
        ChunkStore::open_on(&config(directory.path(), 8), &FaultyDisk(plan.clone())).unwrap();
    store.finish_writeback().unwrap();
    assert_eq!(plan.calls("slots.writeback"), 0);
    let _ = store.insert_many(&chunks(5, 1)).unwrap();
    store.finish_writeback().unwrap();
    store.finish_writeback().unwrap();
    assert_eq!(plan.calls("slots.writeback"), 1);
}

/// An ext4 file system on a loop device whose backing file has room for a quarter of it.
struct ThinDisk {
    directory: tempfile::TempDir,
    device: Option<String>,
}

impl ThinDisk {
    const BACKING_BYTES: u64 = 24 << 20;
    const DISK_BYTES: u64 = 96 << 20;

    /// `Err`: why there can be none here.
    fn new() -> Result<ThinDisk, String> {
        let mut disk = ThinDisk {
            directory: tempfile::tempdir().map_err(|error| error.to_string())?,
            device: None,
        };
        let (backing, mounted) = (disk.path("backing"), disk.path("mounted"));
        std::fs::create_dir(&backing).unwrap();
        std::fs::create_dir(&mounted).unwrap();
        let size = format!("size={}", Self::BACKING_BYTES);
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", text(&backing)])?;
        let image = backing.join("disk");
        File::create(&image).unwrap().set_len(Self::DISK_BYTES).unwrap();
        let device = run("losetup", &["--find", "--show", text(&image)])?;
        disk.device = Some(device.trim().to_owned());
        let device = device.trim();
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", "-E", "nodiscard", device])?;
        run("mount", &[device, text(&mounted)])?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for ThinDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", text(&self.path("mounted"))]);
        if let Some(device) = &self.device {
            let _ = run("losetup", &["--detach", device]);
        }
        let _ = run("umount", &["--lazy", text(&self.path("backing"))]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("timeout").arg("60").arg(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The same with the kernel's own write-back: the loop device runs out of space under ext4.
#[test]
fn real_disk_that_runs_out_under_the_file_system_never_gives_wrong_bytes() {
    let disk = match ThinDisk::new() {
        Ok(disk) => disk,
        Err(reason) => {
            assert!(std::env::var("CI").is_err(), "skipped in CI: {reason}");
            eprintln!("skipped, needs root and a loop device: {reason}");
            return;
        }
    };
    let config = config(&disk.path("mounted"), 1000);
    let store = ChunkStore::open(&config).unwrap();
    let chunks = chunks(6, 800);
    let failed = chunks.iter().filter(|(digest, bytes)| store.insert(digest, bytes).is_err());
    let failed = failed.count() + usize::from(store.finish_writeback().is_err());
    let stats = store.stats();
    assert!(failed > 0 && stats.writeback_errors > 0, "{failed} failed; {stats:?}");
    // What memory pressure does: clean pages leave memory.
    let slots = File::open(config.path.join("slots")).unwrap();
    // SAFETY: advice for an open file.
    let advised =
        unsafe { libc::posix_fadvise(slots.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(advised, 0);
    let (right, missing) = count(&store, &chunks);
    assert!(right > 100 && missing > 100, "right {right}, missing {missing}, {:?}", store.stats());
}
