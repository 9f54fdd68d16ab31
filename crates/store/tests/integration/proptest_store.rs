//! The store against its model: any operations, reopens and disk errors; no wrong bytes, no
//! phantom, nothing published lost, never more than the capacity.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support;

use std::collections::HashSet;
use std::fs;

use crate::support::{CHUNK_SIZE, FaultyDisk};
use acstor_store::{ChunkGuard, ChunkStore, EvictionKind, Inserted, StoreConfig};
use acstor_testkit::{Fault, FaultPlan, SeededChunks, StoreModel};
use acstor_types::{ChunkSize, Digest};
use proptest::prelude::*;

const SLOTS: u64 = 16;
const CHUNKS: u64 = 40;
const GUARDS_MAX: usize = 14;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    InsertMany { first: u64, count: u64 },
    Get { chunk: u64, keep: bool },
    DropGuard(usize),
    Pin(u64),
    Unpin(u64),
    Reopen,
    Arm { operation: &'static str, nth: u64, fault: Fault },
    Disarm,
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop::sample::select(vec![
        "records.read",
        "records.write",
        "slots.read",
        "slots.write",
        "slots.size",
        "slots.preallocate",
    ]);
    let fault = prop::sample::select(vec![Fault::EIO, Fault::Torn(5), Fault::Short]);
    prop_oneof![
        8 => (0..CHUNKS).prop_map(Step::Insert),
        3 => (0..CHUNKS, 1u64..20).prop_map(|(first, count)| Step::InsertMany { first, count }),
        8 => (0..CHUNKS, prop::bool::weighted(0.3))
            .prop_map(|(chunk, keep)| Step::Get { chunk, keep }),
        3 => (0..GUARDS_MAX).prop_map(Step::DropGuard),
        2 => (0..CHUNKS).prop_map(Step::Pin),
        1 => (0..CHUNKS).prop_map(Step::Unpin),
        1 => Just(Step::Reopen),
        2 => (operation, 1u64..4, fault)
            .prop_map(|(operation, nth, fault)| Step::Arm { operation, nth, fault }),
        2 => Just(Step::Disarm),
    ]
}

struct Run {
    chunks: SeededChunks,
    config: StoreConfig,
    plan: FaultPlan,
    store: Option<ChunkStore>,
    guards: Vec<(Digest, ChunkGuard)>,
    /// Chunks that a disk error may have condemned: a guard on such a slot keeps the slot, but
    /// not a second copy of the chunk that was inserted since.
    condemned: HashSet<Digest>,
    model: StoreModel,
}

impl Run {
    fn new(directory: &std::path::Path, eviction: EvictionKind) -> Run {
        let config = StoreConfig { eviction, ..support::config(directory, SLOTS) };
        let plan = FaultPlan::new();
        let store = ChunkStore::open_on(&config, &FaultyDisk(plan.clone())).unwrap();
        Run {
            chunks: SeededChunks::new(1, ChunkSize::new(CHUNK_SIZE).unwrap()),
            config,
            plan,
            store: Some(store),
            guards: Vec::new(),
            condemned: HashSet::new(),
            model: StoreModel::new(SLOTS as usize),
        }
    }

    fn store(&self) -> &ChunkStore {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(chunk) => self.insert(chunk, 1),
            Step::InsertMany { first, count } => self.insert(first, count),
            Step::Get { chunk, keep } => self.get(chunk, keep),
            Step::DropGuard(position) if position < self.guards.len() => {
                let (digest, guard) = self.guards.swap_remove(position);
                // Whatever happened since, the slot still has this chunk.
                let faults = self.plan.faults();
                let content = guard.to_bytes();
                if self.plan.faults() == faults {
                    assert!(digest.matches(&content.unwrap()), "slot reused under a guard");
                } else {
                    self.read_failed(&digest);
                }
            }
            Step::DropGuard(_) => {}
            Step::Pin(chunk) => self.pin(chunk),
            Step::Unpin(chunk) => {
                let digest = self.chunks.chunk(chunk).0;
                let faults = self.plan.faults();
                self.store().unpin(&digest);
                self.model.unpinned(&digest);
                if self.plan.faults() > faults {
                    self.read_failed(&digest);
                }
            }
            Step::Reopen => self.reopen(),
            Step::Arm { operation, nth, fault } => self.plan.fail_nth(operation, nth, fault),
            Step::Disarm => self.plan.disarm(),
        }
        let stats = self.store().stats();
        assert!(stats.slots == SLOTS && stats.slots_used <= SLOTS, "{stats:?}");
    }

    fn insert(&mut self, first: u64, count: u64) {
        let chunks = self.chunks.chunks(first..(first + count).min(CHUNKS));
        let (faults, before) = (self.plan.faults(), self.store().stats());
        let outcomes = match &chunks[..] {
            [(digest, content)] => self.store().insert(digest, content).map(|one| vec![one]),
            _ => self.store().insert_many(&chunks),
        };
        let after = self.store().stats();
        if self.plan.faults() > faults {
            for (digest, content) in chunks {
                self.model.insert_failed(digest, content);
                self.condemned.insert(digest);
            }
            return;
        }
        let mut evicted = after.evicted - before.evicted;
        let guarded: HashSet<_> = self.guards.iter().map(|(digest, _)| *digest).collect();
        let guarded = &guarded - &self.condemned;
        for (outcome, (digest, content)) in outcomes.unwrap().into_iter().zip(chunks) {
            match outcome {
                Inserted::New => {
                    self.model.inserted(digest, content, evicted, &guarded);
                    evicted = 0;
                }
                Inserted::Present => self.model.found_present(&digest),
                Inserted::Refused => {
                    let protected = self.guards.len() + self.model.pins().count();
                    self.model.refused(protected + count as usize);
                }
            }
        }
    }

    fn get(&mut self, chunk: u64, keep: bool) {
        let digest = self.chunks.chunk(chunk).0;
        let faults = self.plan.faults();
        let guard = self.store().get(&digest).unwrap();
        let content = guard.as_ref().and_then(|guard| guard.to_bytes().ok());
        if self.plan.faults() == faults {
            assert_eq!(content.is_some(), guard.is_some(), "a read failed without a fault");
            self.model.read(&digest, content.as_deref());
        } else if content.is_none() {
            self.read_failed(&digest);
        }
        let keep = keep && content.is_some() && self.guards.len() < GUARDS_MAX;
        if let (true, Some(guard)) = (keep, guard) {
            self.guards.push((digest, guard.clone()));
        }
    }

    fn read_failed(&mut self, digest: &Digest) {
        self.model.read_failed(digest);
        self.condemned.insert(*digest);
    }

    fn pin(&mut self, chunk: u64) {
        let digest = self.chunks.chunk(chunk).0;
        let faults = self.plan.faults();
        let pinned: HashSet<_> = self.model.pins().copied().collect();
        match self.store().pin(&digest) {
            Ok(()) => self.model.pinned(digest),
            Err(error) => {
                assert_eq!(error.kind(), acstor_types::ErrorKind::Exhausted);
                assert!(pinned.len() as u64 >= SLOTS / 4 && !pinned.contains(&digest));
            }
        }
        if self.plan.faults() > faults {
            self.read_failed(&digest);
        }
    }

    fn reopen(&mut self) {
        self.guards.clear();
        self.condemned.clear();
        self.store = None; // no close: dropping the handle is all that a kill does
        let faults = self.plan.faults();
        let disk = FaultyDisk(self.plan.clone());
        let store = ChunkStore::open_on(&self.config, &disk).or_else(|_| {
            self.plan.disarm();
            ChunkStore::open_on(&self.config, &disk)
        });
        self.store = Some(store.unwrap());
        self.model.reopened(self.plan.faults() > 0);
        if self.plan.faults() > faults {
            self.plan.disarm();
            for chunk in 0..CHUNKS {
                let digest = self.chunks.chunk(chunk).0;
                self.read_failed(&digest);
            }
        }
    }

    fn finish(mut self) {
        self.plan.disarm();
        self.model.lists(&self.store().digests().collect());
        self.reopen();
        self.model.lists(&self.store().digests().collect());
        for chunk in 0..CHUNKS {
            self.get(chunk, false);
        }
        let stats = self.store().stats();
        if self.plan.faults() == 0 {
            assert_eq!((stats.corrupt, stats.read_errors, stats.write_errors), (0, 0, 0));
        }
        let files = fs::read_dir(&self.config.path).unwrap();
        let size: u64 = files
            .map(|file| file.unwrap())
            .filter(|file| file.file_name() != "lock")
            .map(|file| file.metadata().unwrap().len())
            .sum();
        assert!(size <= self.config.capacity_bytes, "{size} bytes on disk");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn store_does_what_its_model_allows(
        eviction in prop::sample::select(EvictionKind::ALL.to_vec()),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut run = Run::new(directory.path(), eviction);
        for step in &steps {
            run.step(step);
        }
        run.finish();
    }
}
