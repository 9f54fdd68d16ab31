//! SIGKILL at any moment: everything that was reported published is there, and right.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use acstor_store::{ChunkStore, Inserted};
use acstor_testkit::{SeededChunks, seeded_rng};
use acstor_types::ChunkSize;
use rand::Rng;
use support::{CHUNK_SIZE, config, content};

const SEED: u64 = 17;
const ROUNDS: u64 = 8;
/// Chunks that a child may insert in one round; it is killed long before it is through.
const CHUNKS_PER_ROUND: u64 = 4000;
const THREADS: u64 = 2;
const DIRECTORY: &str = "ACSTOR_KILL_TEST_DIRECTORY";
const ROUND: &str = "ACSTOR_KILL_TEST_ROUND";
const SLOTS: &str = "ACSTOR_KILL_TEST_SLOTS";

fn chunks() -> SeededChunks {
    SeededChunks::new(SEED, ChunkSize::new(CHUNK_SIZE).unwrap())
}

/// The child's part: inserts, and reports each chunk once the store says that it is published.
#[test]
#[ignore = "started by the tests below"]
fn child_inserts_until_killed() {
    let variable = |name| std::env::var(name).unwrap();
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return; // started by hand with --ignored
    };
    let round: u64 = variable(ROUND).parse().unwrap();
    let slots: u64 = variable(SLOTS).parse().unwrap();
    let store = ChunkStore::open(&config(Path::new(&directory), slots)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || insert_share(&store, round, thread));
        }
    });
}

fn insert_share(store: &ChunkStore, round: u64, thread: u64) {
    let share = CHUNKS_PER_ROUND / THREADS;
    let mut next = round * CHUNKS_PER_ROUND + thread * share;
    let end = next + share;
    let mut rng = seeded_rng(next);
    while next < end {
        let count = rng.random_range(1..12).min(end - next);
        let batch = chunks().chunks(next..next + count);
        for (index, outcome) in (next..).zip(store.insert_many(&batch).unwrap()) {
            assert_eq!(outcome, Inserted::New);
            // One write per line, so that a kill leaves whole lines and at most one torn.
            std::io::stderr().write_all(format!("published {index}\n").as_bytes()).unwrap();
        }
        next += count;
    }
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a child until it has reported `reports` chunks, kills it; returns all that it reported.
fn run_and_kill(directory: &Path, round: u64, slots: u64, reports: usize) -> BTreeSet<u64> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_inserts_until_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .env(SLOTS, slots.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let mut reader = BufReader::new(child.0.stderr.take().unwrap());
    let mut text = String::new();
    for _ in 0..reports {
        assert_ne!(reader.read_line(&mut text).unwrap(), 0, "child ended early: {text}");
    }
    child.0.kill().unwrap();
    reader.read_to_string(&mut text).unwrap();
    let whole_lines = &text[..text.rfind('\n').unwrap_or(0)];
    whole_lines
        .lines()
        .filter_map(|line| line.split_once("published "))
        .map(|(_, index)| index.parse().unwrap())
        .collect()
}

#[test]
fn published_chunks_survive_kills_at_random_moments() {
    let directory = tempfile::tempdir().unwrap();
    let slots = ROUNDS * CHUNKS_PER_ROUND; // nothing needs to leave
    let mut rng = seeded_rng(SEED);
    let mut published = BTreeSet::new();
    for round in 0..ROUNDS {
        let reports = rng.random_range(1..600);
        published.extend(run_and_kill(directory.path(), round, slots, reports));
        let store = ChunkStore::open(&config(directory.path(), slots)).unwrap();
        assert!(store.stats().recovered >= published.len() as u64);
        for index in &published {
            let (digest, expected) = chunks().chunk(*index);
            let found = content(&store, &digest);
            assert_eq!(found.as_deref(), Some(&expected[..]), "chunk {index}, round {round}");
        }
        let stats = store.stats();
        assert_eq!((stats.corrupt, stats.read_errors), (0, 0), "round {round}");
    }
    assert!(published.len() > 100);
}

#[test]
fn kill_in_the_midst_of_eviction_leaves_right_chunks_only() {
    let directory = tempfile::tempdir().unwrap();
    let slots = 100;
    let mut rng = seeded_rng(SEED + 1);
    for round in 0..ROUNDS {
        let published = run_and_kill(directory.path(), round, slots, rng.random_range(150..900));
        let store = ChunkStore::open(&config(directory.path(), slots)).unwrap();
        let stats = store.stats();
        assert_eq!((stats.corrupt, stats.read_errors), (0, 0), "round {round}");
        // All but the slots that the kill caught between two chunks.
        let in_flight = THREADS * 12;
        assert!(stats.recovered >= slots - in_flight, "round {round}: {stats:?}");
        let mut held = 0;
        for index in &published {
            let (digest, expected) = chunks().chunk(*index);
            if let Some(found) = content(&store, &digest) {
                assert_eq!(found, expected, "chunk {index}, round {round}");
                held += 1;
            }
        }
        assert!(held > 0 && store.stats().corrupt == 0, "round {round}");
    }
}
