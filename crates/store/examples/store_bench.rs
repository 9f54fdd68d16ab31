//! Benchmark of the chunk store on this machine and disk; prints JSON.
//!
//! ```text
//! store_bench [--directory DIR] [--insert-bytes BYTES] [--rounds N] [--million-chunks N]
//! ```
//!
//! * `get`: warm reads of 64 KiB chunks in random order, 1 and 2 threads, by `to_bytes` (a copy)
//!   and by `pwrite` from the mapping to a file in memory (/dev/null would not read it);
//!   first reads after a restart (with the hash); reads that the page cache does not have;
//! * `insert`: `insert_many` of 1 MiB and single inserts of 64 KiB into an empty and into a full
//!   store, and, in turn with each, as many bytes written with plain sequential `pwrite` of 1 MiB
//!   to a preallocated file on the same disk; each with and without the time of a final fdatasync;
//! * `million`: a store of a million 4 KiB chunks: time to open it, memory.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_testkit::{SeededChunks, seeded_rng};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use rand::{Rng, RngCore};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: u64 = 1 << 20;

struct Options {
    directory: PathBuf,
    insert_bytes: u64,
    rounds: usize,
    chunks: u64,
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        directory: std::env::temp_dir(),
        insert_bytes: 1024 * MIB,
        rounds: 5,
        chunks: 1_000_000,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--directory" => options.directory = value.into(),
            "--insert-bytes" => options.insert_bytes = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--million-chunks" => options.chunks = value.parse()?,
            _ => return Err(format!("unknown option {flag}").into()),
        }
    }
    Ok(options)
}

fn config(path: &Path, chunk_size: ChunkSize, slots: u64) -> StoreConfig {
    StoreConfig {
        path: path.to_owned(),
        capacity_bytes: 4096 + slots * (chunk_size.bytes() as u64 + 64),
        chunk_size,
        eviction: EvictionKind::S3Fifo,
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &mut [f64]) -> Value {
    let middle = median(values);
    json!({"median": middle, "min": values.first(), "max": values.last()})
}

fn percentiles(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let at = |share: f64| {
        let position = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(position).map(|time| time.as_nanos() as f64 / 1000.0)
    };
    let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len().max(1) as f64;
    json!({"p50_us": at(0.5), "p99_us": at(0.99), "mean_us": mean, "reads": times.len()})
}

/// Times `reads` gets of random chunks on each of `threads` threads.
fn time_gets(
    store: &ChunkStore,
    digests: &[Digest],
    threads: u64,
    reads: usize,
    finish: impl Fn(&acstor_store::ChunkGuard) + Sync,
) -> Outcome<Value> {
    let start = Instant::now();
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|seed| {
                let finish = &finish;
                scope.spawn(move || {
                    let mut rng = seeded_rng(seed);
                    let mut times = Vec::with_capacity(reads);
                    for _ in 0..reads {
                        let digest = &digests[rng.random_range(0..digests.len())];
                        let start = Instant::now();
                        if let Ok(Some(guard)) = store.get(digest) {
                            finish(&guard);
                        }
                        times.push(start.elapsed());
                    }
                    times
                })
            })
            .collect();
        for worker in workers {
            times.extend(worker.join().unwrap_or_default());
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut result = percentiles(&mut times);
    result["gets_per_second"] = json!(times.len() as f64 / seconds);
    Ok(result)
}

fn bench_get(directory: &Path) -> Outcome<Value> {
    const CHUNKS: u64 = 4096; // 256 MiB
    const READS: usize = 50_000;
    let path = directory.join("get");
    let config = config(&path, ChunkSize::DEFAULT, CHUNKS);
    let chunks = SeededChunks::new(1, ChunkSize::DEFAULT);
    let store = ChunkStore::open(&config)?;
    let mut digests = Vec::new();
    for first in (0..CHUNKS).step_by(64) {
        let batch = chunks.chunks(first..first + 64);
        digests.extend(batch.iter().map(|(digest, _)| *digest));
        let _ = store.insert_many(&batch)?;
    }
    drop(store);
    let store = ChunkStore::open(&config)?;
    let mut first_reads: Vec<_> = digests
        .iter()
        .map(|digest| {
            let start = Instant::now();
            let guard = store.get(digest);
            let time = start.elapsed();
            drop(guard);
            time
        })
        .collect();
    let sink = tempfile::tempfile_in("/dev/shm")?;
    let copy = |guard: &acstor_store::ChunkGuard| {
        black_box(guard.to_bytes().is_ok());
    };
    let only = |guard: &acstor_store::ChunkGuard| {
        black_box(guard.len());
    };
    let write = |guard: &acstor_store::ChunkGuard| {
        use std::os::fd::AsRawFd;
        // SAFETY: the kernel reads a mapping that the guard keeps valid for `len` bytes.
        black_box(unsafe { libc::pwrite(sink.as_raw_fd(), guard.mapped().cast(), guard.len(), 0) });
    };
    let four_kib = |guard: &acstor_store::ChunkGuard| {
        let mut buffer = [0; 4096];
        black_box(guard.read_at(4096, &mut buffer).is_ok());
    };
    time_gets(&store, &digests, 1, READS, write)?; // maps the pages
    let result = json!({
        "first_read_with_hash": percentiles(&mut first_reads),
        "guard_only": {
            "1_thread": time_gets(&store, &digests, 1, 10 * READS, only)?,
            "2_threads": time_gets(&store, &digests, 2, 10 * READS, only)?,
        },
        "copy_64_kib": {
            "1_thread": time_gets(&store, &digests, 1, READS, copy)?,
            "2_threads": time_gets(&store, &digests, 2, READS, copy)?,
        },
        "write_64_kib_from_mapping": time_gets(&store, &digests, 1, READS, write)?,
        "read_4_kib": time_gets(&store, &digests, 1, READS, four_kib)?,
    });
    drop(store);
    let cold = bench_cold(&config, &digests, copy, write)?;
    fs::remove_dir_all(&path)?;
    Ok(json!({"warm": result, "cold": cold}))
}

/// Times reads of every chunk, in random order, after the page cache let go of the slot file.
fn bench_cold(
    config: &StoreConfig,
    digests: &[Digest],
    copy: impl Fn(&acstor_store::ChunkGuard),
    write: impl Fn(&acstor_store::ChunkGuard),
) -> Outcome<Value> {
    let store = ChunkStore::open(config)?;
    for digest in digests {
        store.get(digest)?.ok_or("a chunk is missing")?; // verified from here on
    }
    let mut order: Vec<_> = digests.to_vec();
    let mut rng = seeded_rng(3);
    for last in (1..order.len()).rev() {
        order.swap(last, rng.random_range(0..=last));
    }
    let time_all = |finish: &dyn Fn(&acstor_store::ChunkGuard)| -> Outcome<Value> {
        let file = File::open(config.path.join("slots"))?;
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let mut times = Vec::new();
        for digest in &order {
            let start = Instant::now();
            let guard = store.get(digest)?.ok_or("a chunk is missing")?;
            finish(&guard);
            times.push(start.elapsed());
        }
        Ok(percentiles(&mut times))
    };
    Ok(json!({"copy_64_kib": time_all(&copy)?, "write_64_kib_from_mapping": time_all(&write)?}))
}

/// Chunks that differ in their first bytes, so that making them costs no more than hashing does.
fn batch(template: &mut [u8], first: u64, chunk_size: ChunkSize) -> Vec<(Digest, Bytes)> {
    (first..)
        .zip(template.chunks_exact_mut(chunk_size.bytes()))
        .map(|(index, content)| {
            content[..8].copy_from_slice(&index.to_le_bytes());
            (Digest::of(content), Bytes::copy_from_slice(content))
        })
        .collect()
}

#[derive(Default)]
struct Speeds {
    /// MB/s up to the last call's return, and including a final fdatasync.
    buffered: Vec<f64>,
    synced: Vec<f64>,
}

impl Speeds {
    fn add(&mut self, bytes: u64, inserting: Duration, syncing: Duration) {
        let mb = bytes as f64 / 1e6;
        self.buffered.push(mb / inserting.as_secs_f64());
        self.synced.push(mb / (inserting + syncing).as_secs_f64());
    }

    fn report(&mut self, plain: &mut Speeds) -> Value {
        let share = |ours: &mut [f64], plain: &mut [f64]| median(ours) / median(plain);
        json!({
            "mb_per_s": spread(&mut self.buffered),
            "mb_per_s_with_fdatasync": spread(&mut self.synced),
            "share_of_pwrite": share(&mut self.buffered, &mut plain.buffered),
            "share_of_pwrite_with_fdatasync": share(&mut self.synced, &mut plain.synced),
        })
    }
}

fn sync_file(path: &Path) -> Outcome<Duration> {
    let start = Instant::now();
    File::open(path)?.sync_data()?;
    Ok(start.elapsed())
}

/// Inserts `bytes` in steps of `step` chunks; only the store's own time counts.
fn insert_round(store: &ChunkStore, bytes: u64, first: u64, step: u64) -> Outcome<Duration> {
    let chunk_size = store.chunk_size();
    let mut template = vec![0; step as usize * chunk_size.bytes()];
    seeded_rng(9).fill_bytes(&mut template);
    let count = bytes / chunk_size.bytes() as u64;
    let mut time = Duration::ZERO;
    for position in (0..count).step_by(step as usize) {
        let chunks = batch(&mut template, first + position, chunk_size);
        let start = Instant::now();
        match &chunks[..] {
            [(digest, content)] => drop(black_box(store.insert(digest, content)?)),
            chunks => drop(black_box(store.insert_many(chunks)?)),
        }
        time += start.elapsed();
    }
    Ok(time)
}

/// Writes `bytes` sequentially in steps of 1 MiB to a preallocated file.
fn plain_round(path: &Path, bytes: u64) -> Outcome<(Duration, Duration)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    let mut template = vec![0; MIB as usize];
    seeded_rng(9).fill_bytes(&mut template);
    let mut time = Duration::ZERO;
    for (step, offset) in (0..bytes).step_by(MIB as usize).enumerate() {
        // As much work between two writes as an insert has, so that writeback runs beside both.
        black_box(batch(&mut template, step as u64 * 16, ChunkSize::DEFAULT));
        let start = Instant::now();
        file.write_all_at(&template, offset)?;
        time += start.elapsed();
    }
    let sync = sync_file(path)?;
    fs::remove_file(path)?;
    Ok((time, sync))
}

fn bench_insert(directory: &Path, bytes: u64, rounds: usize) -> Outcome<Value> {
    let path = directory.join("insert");
    let slots = bytes / ChunkSize::DEFAULT.bytes() as u64;
    let config = config(&path, ChunkSize::DEFAULT, slots);
    let mut plain = Speeds::default();
    let mut cases = [
        ("empty_store_1_mib_batches", 16, false, Speeds::default()),
        ("full_store_1_mib_batches", 16, true, Speeds::default()),
        ("empty_store_single", 1, false, Speeds::default()),
        ("full_store_single", 1, true, Speeds::default()),
    ];
    for round in 0..rounds as u64 {
        let (time, sync) = plain_round(&directory.join("plain"), bytes)?;
        plain.add(bytes, time, sync);
        for (_, step, is_full, speeds) in &mut cases {
            let store = ChunkStore::open(&config)?;
            if *is_full {
                insert_round(&store, bytes, 1 << 40, 64)?;
                sync_file(&path.join("slots"))?;
            }
            let time = insert_round(&store, bytes, round << 32, *step)?;
            speeds.add(bytes, time, sync_file(&path.join("slots"))?);
            drop(store);
            fs::remove_dir_all(&path)?;
        }
    }
    let mut result = serde_json::Map::new();
    for (name, _, _, speeds) in &mut cases {
        result.insert((*name).to_owned(), speeds.report(&mut plain));
    }
    result.insert(
        "plain_pwrite".to_owned(),
        json!({
            "mb_per_s": spread(&mut plain.buffered),
            "mb_per_s_with_fdatasync": spread(&mut plain.synced),
        }),
    );
    Ok(Value::Object(result))
}

/// Memory of this process in bytes, anonymous and of mapped files.
fn memory() -> Outcome<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Outcome<u64> {
        let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such field")?;
        Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse::<u64>()? * 1024)
    };
    Ok((field("RssAnon:")?, field("RssFile:")?))
}

fn bench_million(directory: &Path, chunks: u64, rounds: usize) -> Outcome<Value> {
    let path = directory.join("million");
    let chunk_size = ChunkSize::new(4096).ok_or("chunk size")?;
    let config = config(&path, chunk_size, chunks);
    {
        let store = ChunkStore::open(&config)?;
        insert_round(&store, chunks * 4096, 0, 1000)?;
    }
    let mut seconds = Vec::new();
    let mut anonymous = 0;
    for _ in 0..rounds {
        let (before, _) = memory()?;
        let start = Instant::now();
        let store = ChunkStore::open(&config)?;
        seconds.push(start.elapsed().as_secs_f64() * 1e6 / chunks as f64);
        anonymous = memory()?.0.saturating_sub(before);
        if store.stats().recovered != chunks {
            return Err(format!("{} of {chunks} chunks recovered", store.stats().recovered).into());
        }
    }
    fs::remove_dir_all(&path)?;
    Ok(json!({
        "chunks": chunks,
        "open_seconds_per_million": spread(&mut seconds),
        "rss_anonymous_bytes": anonymous,
        "rss_bytes_per_chunk": anonymous as f64 / chunks as f64,
    }))
}

fn main() -> Outcome<()> {
    let options = options()?;
    let scratch = tempfile::Builder::new().prefix("store-bench").tempdir_in(&options.directory)?;
    // First, while the process has not grown yet.
    let million = bench_million(scratch.path(), options.chunks, options.rounds)?;
    let get = bench_get(scratch.path())?;
    let insert = bench_insert(scratch.path(), options.insert_bytes, options.rounds)?;
    println!("{:#}", json!({"get": get, "insert": insert, "million": million}));
    Ok(())
}
