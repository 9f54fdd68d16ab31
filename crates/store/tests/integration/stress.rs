//! Many threads, more chunks than slots: right bytes, no slot reused under a reader, never more
//! than the capacity.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{CHUNK_SIZE, FaultyDisk, config};
use acstor_store::{ChunkStore, EvictionKind, Inserted, StoreConfig};
use acstor_testkit::{Fault, FaultPlan, SeededChunks, seeded_rng};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use rand::Rng;

const SLOTS: u64 = 64;
const CHUNKS: usize = 200;
const THREADS: u64 = 4;
const STEPS: usize = 4000;

struct Shared<'a> {
    store: &'a ChunkStore,
    chunks: &'a [(Digest, Bytes)],
    served: AtomicU64,
}

fn worker(shared: &Shared<'_>, seed: u64) {
    let mut rng = seeded_rng(seed);
    let mut kept = Vec::new();
    let mut buffer = vec![0; CHUNK_SIZE as usize];
    for _ in 0..STEPS {
        let position = rng.random_range(0..CHUNKS);
        let (digest, expected) = &shared.chunks[position];
        match rng.random_range(0..10) {
            0..4 => {
                let _ = shared.store.insert(digest, expected);
            }
            4 => {
                let end = (position + rng.random_range(1..16)).min(CHUNKS);
                let _ = shared.store.insert_many(&shared.chunks[position..end]);
            }
            5 => {
                if shared.store.pin(digest).is_ok() {
                    shared.store.unpin(digest);
                }
            }
            _ => {
                if let Some(guard) = shared.store.get(digest).unwrap()
                    && guard.read_at(0, &mut buffer).is_ok()
                {
                    assert!(buffer == expected[..], "wrong bytes for chunk {position}");
                    shared.served.fetch_add(1, Ordering::Relaxed);
                    kept.push((guard, position));
                }
                if kept.len() > 8 {
                    let (guard, position) = kept.swap_remove(rng.random_range(0..kept.len()));
                    if let Ok(content) = guard.to_bytes() {
                        assert!(content == shared.chunks[position].1, "slot reused under a guard");
                    }
                }
            }
        }
        assert!(shared.store.stats().slots_used <= SLOTS);
    }
}

fn run(store: &ChunkStore, chunks: &[(Digest, Bytes)]) -> u64 {
    let shared = Shared { store, chunks, served: AtomicU64::new(0) };
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || worker(shared, seed));
        }
    });
    shared.served.into_inner()
}

#[test]
fn threads_never_see_wrong_bytes() {
    let chunks = SeededChunks::new(5, ChunkSize::new(CHUNK_SIZE).unwrap()).chunks(0..CHUNKS as u64);
    for eviction in EvictionKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig { eviction, ..config(directory.path(), SLOTS) };
        let store = ChunkStore::open(&config).unwrap();
        assert!(run(&store, &chunks) > 1000, "{eviction}: hardly anything was served");
        let stats = store.stats();
        assert_eq!((stats.corrupt, stats.read_errors, stats.write_errors), (0, 0, 0), "{eviction}");
        assert!(stats.evicted > 100, "{eviction}: {stats:?}");
        // Every slot can still be had: none leaked.
        let fresh = SeededChunks::new(6, config.chunk_size).chunks(0..SLOTS);
        for (digest, content) in &fresh {
            assert_eq!(store.insert(digest, content).unwrap(), Inserted::New);
        }
        let recovered_max = store.digests().count() as u64;
        drop(store);
        assert_eq!(ChunkStore::open(&config).unwrap().stats().recovered, recovered_max);
        assert!(recovered_max <= SLOTS);
    }
}

#[test]
fn threads_never_see_wrong_bytes_on_a_failing_disk() {
    let chunks = SeededChunks::new(5, ChunkSize::new(CHUNK_SIZE).unwrap()).chunks(0..CHUNKS as u64);
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), SLOTS);
    let plan = FaultPlan::new();
    let store = ChunkStore::open_on(&config, &FaultyDisk(plan.clone())).unwrap();
    for (seed, operation) in
        (0..).zip(["slots.read", "slots.write", "records.read", "records.write", "slots.size"])
    {
        plan.fail_share(operation, 10, seed, Fault::Torn(5));
    }
    assert!(run(&store, &chunks) > 500);
    assert!(plan.faults() > 50);
    plan.disarm();
    // No slot is lost to an error for ever.
    let fresh = SeededChunks::new(6, config.chunk_size).chunks(0..40 * SLOTS);
    for (digest, content) in &fresh {
        assert_eq!(store.insert(digest, content).unwrap(), Inserted::New);
    }
    assert_eq!(store.stats().slots_used, SLOTS);
}
