//! Chunks that are taken out of a store for good.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::support::{CHUNK_SIZE, FaultyDisk, config, content};
use acstor_store::{ChunkStore, Discarded, EvictionKind, Inserted, StoreConfig};
use acstor_testkit::{Fault, FaultPlan, SeededChunks};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;

const SLOTS: u64 = 12;

fn chunks(range: std::ops::Range<u64>) -> Vec<(Digest, Bytes)> {
    SeededChunks::new(13, ChunkSize::new(CHUNK_SIZE).unwrap()).chunks(range)
}

fn digests(chunks: &[(Digest, Bytes)]) -> Vec<Digest> {
    chunks.iter().map(|(digest, _)| *digest).collect()
}

#[test]
fn discarded_chunks_are_gone_and_overwritten_whatever_the_policy() {
    for eviction in EvictionKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig { eviction, ..config(directory.path(), SLOTS) };
        let store = ChunkStore::open(&config).unwrap();
        let all = chunks(0..SLOTS);
        assert!(store.insert_many(&all).unwrap().iter().all(|one| *one == Inserted::New));
        store.pin(&all[2].0).unwrap();
        let gone = digests(&all[1..4]);
        let again: Vec<Digest> = gone.iter().chain(&gone).copied().collect();
        assert_eq!(store.discard(&again).unwrap(), Discarded { dropped: 3, busy: 0 });
        let slots = std::fs::read(config.path.join("slots")).unwrap();
        for (number, (digest, bytes)) in all.iter().enumerate() {
            let is_gone = (1..4).contains(&number);
            assert_eq!(store.contains(digest), !is_gone, "{eviction}");
            let is_there = slots.chunks_exact(CHUNK_SIZE as usize).any(|slot| slot == bytes);
            assert_eq!(is_there, !is_gone, "{eviction}");
        }
        assert_eq!(store.stats().slots_used, SLOTS - 3);
        store.unpin(&all[2].0);
        // Their slots are as good as any.
        let more = chunks(20..30);
        assert!(store.insert_many(&more).unwrap().iter().all(|one| *one == Inserted::New));
        drop(store);
        let store = ChunkStore::open(&config).unwrap();
        assert!(gone.iter().all(|digest| !store.contains(digest)), "{eviction}");
    }
}

#[test]
fn chunk_that_is_read_stays_until_it_is_asked_for_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = ChunkStore::open(&config(directory.path(), SLOTS)).unwrap();
    let (digest, bytes) = &chunks(0..1)[0];
    let digest = *digest;
    assert_eq!(store.insert(&digest, bytes).unwrap(), Inserted::New);
    let guard = store.get(&digest).unwrap().unwrap();
    assert_eq!(store.discard(&[digest]).unwrap(), Discarded { dropped: 0, busy: 1 });
    assert_eq!(guard.to_bytes().unwrap(), *bytes);
    drop(guard);
    assert_eq!(store.discard(&[digest]).unwrap(), Discarded { dropped: 1, busy: 0 });
    assert_eq!(content(&store, &digest), None);
}

#[test]
fn disk_that_refuses_to_overwrite_is_told_and_the_chunk_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let plan = FaultPlan::new();
    let disk = FaultyDisk(plan.clone());
    let store = ChunkStore::open_on(&config(directory.path(), SLOTS), &disk).unwrap();
    let all = chunks(0..2);
    assert!(store.insert_many(&all).unwrap().iter().all(|one| *one == Inserted::New));
    plan.fail_nth("slots.write", 1, Fault::EIO);
    assert!(store.discard(&digests(&all)).is_err());
    assert!(!store.contains(&all[0].0));
    assert_eq!(store.discard(&digests(&all)).unwrap().dropped, 1);
}

#[test]
fn readers_and_inserts_beside_a_discard_see_right_chunks_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let store = ChunkStore::open(&config(directory.path(), SLOTS)).unwrap();
    let all = Arc::new(chunks(0..SLOTS / 2));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (store, all) = (store.clone(), Arc::clone(&all));
            scope.spawn(move || {
                for _ in 0..300 {
                    let _ = store.insert_many(&all).unwrap();
                    for (digest, bytes) in all.iter() {
                        if let Some(found) = content(&store, digest) {
                            assert_eq!(found[..], bytes[..]);
                        }
                    }
                }
            });
        }
        for _ in 0..300 {
            let _ = store.discard(&digests(&all)).unwrap();
        }
    });
    let _ = store.discard(&digests(&all)).unwrap();
    assert_eq!(store.stats().slots_used, 0);
    assert_eq!(store.stats().corrupt, 0);
}
