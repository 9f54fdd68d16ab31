//! Guards and pins: they keep a chunk in its slot, and cannot exceed the capacity.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{CHUNK_SIZE, config, content};
use acstor_store::{ChunkStore, EvictionKind, Inserted, StoreConfig, StoreError};
use acstor_testkit::SeededChunks;
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;

const SLOTS: u64 = 12;

fn chunks(range: std::ops::Range<u64>) -> Vec<(Digest, Bytes)> {
    SeededChunks::new(11, ChunkSize::new(CHUNK_SIZE).unwrap()).chunks(range)
}

fn each_policy(test: impl Fn(&ChunkStore, &StoreConfig)) {
    for eviction in EvictionKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig { eviction, ..config(directory.path(), SLOTS) };
        test(&ChunkStore::open(&config).unwrap(), &config);
    }
}

#[test]
fn insert_is_refused_while_everything_is_guarded() {
    each_policy(|store, config| {
        let (first, late) = (chunks(0..SLOTS), &chunks(SLOTS..SLOTS + 1)[0]);
        assert!(store.insert_many(&first).unwrap().iter().all(|one| *one == Inserted::New));
        let mut guards: Vec<_> =
            first.iter().map(|(digest, _)| store.get(digest).unwrap().unwrap()).collect();
        let outcome = store.insert(&late.0, &late.1).unwrap();
        assert_eq!(outcome, Inserted::Refused, "{}", config.eviction);
        assert_eq!(store.stats().refused, 1);
        guards.truncate(5);
        assert_eq!(store.insert(&late.0, &late.1).unwrap(), Inserted::New, "{}", config.eviction);
        for (guard, (_, bytes)) in guards.iter().zip(&first) {
            assert_eq!(guard.to_bytes().unwrap(), bytes);
        }
    });
}

#[test]
fn batch_larger_than_the_store_fills_it_and_no_more() {
    each_policy(|store, config| {
        let outcomes = store.insert_many(&chunks(0..SLOTS + 5)).unwrap();
        let new = outcomes.iter().filter(|outcome| **outcome == Inserted::New).count();
        assert_eq!(new as u64, SLOTS, "{}", config.eviction);
        assert_eq!(store.stats().slots_used, SLOTS);
    });
}

#[test]
fn pinned_chunks_outlive_any_number_of_inserts() {
    each_policy(|store, config| {
        let pinned = chunks(0..3);
        store.pin(&pinned[0].0).unwrap(); // before it is there
        assert!(store.insert_many(&pinned).unwrap().iter().all(|one| *one == Inserted::New));
        store.pin(&pinned[1].0).unwrap();
        store.pin(&pinned[2].0).unwrap();
        store.pin(&pinned[2].0).unwrap();
        let extra = Digest::of(b"one too many");
        let error = store.pin(&extra).unwrap_err();
        assert!(matches!(error, StoreError::PinLimit { limit: 3 }), "{error}");

        for (digest, bytes) in chunks(10..200) {
            assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
        }
        for (digest, bytes) in &pinned {
            assert_eq!(content(store, digest).as_deref(), Some(&bytes[..]), "{}", config.eviction);
        }
        store.unpin(&pinned[0].0);
        store.unpin(&pinned[2].0);
        for (digest, bytes) in chunks(200..400) {
            assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
        }
        let there: Vec<_> = pinned.iter().map(|(digest, _)| store.contains(digest)).collect();
        assert_eq!(there, [false, true, true], "{}: the last was pinned twice", config.eviction);
    });
}

#[test]
fn use_decides_which_chunk_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig { eviction: EvictionKind::Lru, ..config(directory.path(), SLOTS) };
    let store = ChunkStore::open(&config).unwrap();
    let all = chunks(0..SLOTS);
    assert_eq!(store.insert_many(&all).unwrap().len() as u64, SLOTS);
    assert!(store.get(&all[0].0).unwrap().is_some());
    assert!(store.contains(&all[1].0), "does not count as a use");
    for (digest, bytes) in chunks(50..52) {
        assert_eq!(store.insert(&digest, &bytes).unwrap(), Inserted::New);
    }
    let there: Vec<_> = all.iter().take(4).map(|(digest, _)| store.contains(digest)).collect();
    assert_eq!(there, [true, false, false, true]);
}

#[test]
fn order_of_insertion_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for eviction in EvictionKind::ALL {
        let config = StoreConfig { eviction, ..config(directory.path(), SLOTS) };
        let store = ChunkStore::open(&config).unwrap();
        let all = chunks(0..SLOTS + 4);
        for (digest, bytes) in &all {
            let _ = store.insert(digest, bytes).unwrap();
        }
        drop(store);
        let store = ChunkStore::open(&config).unwrap();
        let oldest = all.iter().find(|(digest, _)| store.contains(digest)).unwrap();
        let (digest, bytes) = &chunks(90..91)[0];
        assert_eq!(store.insert(digest, bytes).unwrap(), Inserted::New);
        assert!(!store.contains(&oldest.0), "{eviction}");
        drop(store);
        std::fs::remove_dir_all(&config.path).unwrap();
    }
}

#[test]
fn listing_names_what_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let store = ChunkStore::open(&config(directory.path(), SLOTS)).unwrap();
    let all = chunks(0..5);
    assert_eq!(store.insert_many(&all).unwrap(), [Inserted::New; 5]);
    assert!(store.digests().eq(all.iter().map(|(digest, _)| *digest)));
}
