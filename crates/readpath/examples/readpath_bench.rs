//! `cargo run --release -p acstor-readpath --example readpath_bench`: prints one JSON object.
//!
//! One host, a real chunk store in a temporary directory, an origin in memory, no peers. Figures:
//! `try_read` hits (p50, p99, ns; also while what a boot reads is recorded), a miss from the origin (us), origin calls per MiB of a sequential
//! and of a random reader, and the CPU time per GiB of hits.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first surprise")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_peer::{ChunkRequest, ClassWatch, PeerError};
use acstor_readpath::{
    BlockView, HostStore, OriginError, OriginRange, OriginSource, PeerFuture, PeerSource, ReadPath,
    ReadPathConfig, Reader, Seams, TryRead,
};
use acstor_ring::RingHandle;
use acstor_runclock::RunClock;
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Manifest, ManifestBuilder, PACK_DATA_OFFSET, PackId,
};
use prometheus_client::registry::Registry;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::json;

const MIB: usize = 1 << 20;
const CHUNK: usize = 65_536;
const CHUNKS: usize = 4096;
const CHUNKS_PER_PACK: usize = 1024;

struct NoPeers;

impl PeerSource for NoPeers {
    fn fetch(
        &self,
        address: &str,
        _: ChunkRequest,
        _: ClassWatch,
        _: tokio::time::Instant,
    ) -> PeerFuture {
        let address = address.to_owned();
        Box::pin(async move { Err(PeerError::Deadline { address }) })
    }
}

struct MemoryOrigin {
    packs: HashMap<PackId, Vec<u8>>,
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl OriginSource for MemoryOrigin {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let content = &self.packs[pack];
        self.calls.fetch_add(1, Ordering::Relaxed);
        for range in ranges {
            let start = range.offset as usize;
            let len = range.buffer.len();
            range.buffer.copy_from_slice(&content[start..start + len]);
            self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, _: &mut OriginRange) -> Result<(), OriginError> {
        Err(OriginError::NotFound { pack: name.to_string() })
    }
}

/// A disk of random content and its packs.
fn image() -> (Manifest, HashMap<PackId, Vec<u8>>) {
    let mut random = StdRng::seed_from_u64(7);
    let size = ChunkSize::DEFAULT;
    let mut builder =
        ManifestBuilder::new(DiskId::from_bytes([1; 16]), size, (CHUNKS * CHUNK) as u64);
    let mut packs = HashMap::new();
    for number in 0..CHUNKS / CHUNKS_PER_PACK {
        let pack = PackId(Digest::of(&[number as u8]));
        let mut content = vec![0; PACK_DATA_OFFSET as usize + CHUNKS_PER_PACK * CHUNK];
        random.fill_bytes(&mut content);
        for position in 0..CHUNKS_PER_PACK {
            let offset = PACK_DATA_OFFSET as usize + position * CHUNK;
            let digest = Digest::of(&content[offset..offset + CHUNK]);
            builder.push_chunk(&digest, ChunkLocation { pack, offset: offset as u32 });
        }
        packs.insert(pack, content);
    }
    (builder.finish().unwrap(), packs)
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    manifest: Manifest,
    origin: Arc<MemoryOrigin>,
}

struct Host {
    _directory: tempfile::TempDir,
    path: ReadPath,
    view: Arc<dyn BlockView>,
    registry: Registry,
}

impl Host {
    /// Returns the outcomes of the chunks that were to be kept.
    fn inserts(&self) -> serde_json::Value {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let prefix = "acstor_inserts_total{outcome=\"";
        let counts = text.lines().filter_map(|line| {
            let (outcome, count) = line.strip_prefix(prefix)?.split_once("\"} ")?;
            Some((outcome.to_owned(), json!(count.parse::<u64>().ok()?)))
        });
        counts.collect::<serde_json::Map<_, _>>().into()
    }
}

impl Bench {
    fn new() -> Bench {
        let (manifest, packs) = image();
        let origin =
            Arc::new(MemoryOrigin { packs, calls: AtomicU64::new(0), bytes: AtomicU64::new(0) });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Bench { runtime: runtime.unwrap(), manifest, origin }
    }

    /// A host whose chunk store is empty.
    fn host(&self) -> Host {
        let directory = tempfile::tempdir().unwrap();
        let store = ChunkStore::open(&StoreConfig {
            path: directory.path().to_owned(),
            capacity_bytes: (CHUNKS * CHUNK * 2) as u64,
            chunk_size: ChunkSize::DEFAULT,
            eviction: EvictionKind::S3Fifo,
        })
        .unwrap();
        let seams = Seams {
            store: Arc::new(HostStore::new(store, ChunkSize::DEFAULT)),
            peers: Arc::new(NoPeers),
            origin: self.origin.clone(),
            rings: Arc::new(RingHandle::empty()),
            clock: RunClock::start(self.runtime.handle()),
        };
        let config = ReadPathConfig { host: "bench".into(), ..ReadPathConfig::default() };
        let handle = self.runtime.handle().clone();
        let mut registry = Registry::default();
        let path = ReadPath::new(config, seams, &mut registry, handle).unwrap();
        let view = path.attach(self.manifest.clone()).unwrap();
        self.origin.calls.store(0, Ordering::Relaxed);
        self.origin.bytes.store(0, Ordering::Relaxed);
        Host { _directory: directory, path, view, registry }
    }

    /// Reads as a front end does; returns whether it was a hit.
    fn read(&self, host: &Host, offset: u64, len: usize) -> bool {
        if let TryRead::Ready(segments) = host.view.try_read(offset, len).unwrap() {
            drop(segments);
            return true;
        }
        drop(self.runtime.block_on(host.view.read(offset, len)).unwrap());
        false
    }

    /// Reads until everything is in the chunk store; returns how many MiB the first pass found missing
    /// there: a disk that is slower than the origin makes the bounded queue of inserts drop some.
    fn warm_up(&self, host: &Host) -> usize {
        let mut first = None;
        for _ in 0..100 {
            assert!(host.path.flush_inserts(Duration::from_secs(60)));
            let offsets = (0..(CHUNKS * CHUNK) as u64).step_by(MIB);
            let missing = offsets.filter(|offset| !self.read(host, *offset, MIB)).count();
            first = first.or(Some(missing));
            if missing == 0 {
                break;
            }
        }
        assert!(host.path.flush_inserts(Duration::from_secs(60)));
        first.unwrap()
    }

    fn calls_per_mib(&self, read_mib: f64) -> serde_json::Value {
        let calls = self.origin.calls.load(Ordering::Relaxed) as f64;
        let bytes = self.origin.bytes.load(Ordering::Relaxed) as f64 / MIB as f64;
        json!({ "calls_per_mib": calls / bytes, "origin_mib": bytes, "read_mib": read_mib })
    }
}

fn percentiles(mut times: Vec<Duration>) -> serde_json::Value {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as u64;
    json!({ "p50": at(0.5), "p99": at(0.99), "count": times.len() })
}

/// Warm hits at random offsets.
fn hits(bench: &Bench, host: &Host, len: usize) -> serde_json::Value {
    let boots = host.view.boots().unwrap();
    let mut random = StdRng::seed_from_u64(9);
    let slots = (CHUNKS * CHUNK / len) as u64;
    let offsets: Vec<u64> =
        (0..200_000).map(|_| random.random_range(0..slots) * len as u64).collect();
    offsets.iter().take(20_000).for_each(|offset| assert!(bench.read(host, *offset, len)));
    let times = offsets
        .iter()
        .map(|offset| {
            let start = Instant::now();
            // As a front end does.
            boots.arrived(Reader::Direct(1), *offset, len);
            let read = host.view.try_read(*offset, len).unwrap();
            let time = start.elapsed();
            assert!(matches!(read, TryRead::Ready(_)));
            time
        })
        .collect();
    percentiles(times)
}

fn hits_while_booting(bench: &Bench, host: &Host) -> serde_json::Value {
    host.view.opened();
    let boots = host.view.boots().unwrap();
    boots.opened(true);
    boots.arrived(Reader::Direct(1), 0, 512);
    hits(bench, host, 4096)
}

fn misses(bench: &Bench) -> serde_json::Value {
    let host = bench.host();
    let times = (0..CHUNKS as u64 / 3)
        .map(|number| {
            let start = Instant::now();
            // Every third chunk, from the end: neither sequential nor neighbours.
            let index = CHUNKS as u64 - 1 - number * 3;
            assert!(!bench.read(&host, index * CHUNK as u64, 4096));
            start.elapsed()
        })
        .collect();
    let result = percentiles(times);
    host.path.stop(Duration::from_secs(10));
    result
}

fn sequential(bench: &Bench) -> (Host, serde_json::Value) {
    let host = bench.host();
    let start = Instant::now();
    for offset in (0..(CHUNKS * CHUNK) as u64).step_by(MIB) {
        bench.read(&host, offset, MIB);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut result = bench.calls_per_mib((CHUNKS * CHUNK / MIB) as f64);
    result["mb_per_s"] = json!((CHUNKS * CHUNK) as f64 / 1e6 / seconds);
    assert!(host.path.flush_inserts(Duration::from_secs(60)));
    result["inserts"] = host.inserts();
    result["mib_not_kept"] = json!(bench.warm_up(&host));
    (host, result)
}

/// Reads as a boot does: short runs here and there.
fn random_boot(bench: &Bench) -> serde_json::Value {
    let host = bench.host();
    let mut random = StdRng::seed_from_u64(3);
    let mut read = 0;
    for _ in 0..400 {
        let mut offset = random.random_range(0..(CHUNKS * CHUNK - MIB) as u64) / 4096 * 4096;
        for _ in 0..random.random_range(1..4) {
            let len = random.random_range(1..33) * 4096;
            bench.read(&host, offset, len);
            offset += len as u64;
            read += len;
        }
    }
    let result = bench.calls_per_mib(read as f64 / MIB as f64);
    host.path.stop(Duration::from_secs(10));
    result
}

fn main() {
    let bench = Bench::new();
    let (warm, sequential) = sequential(&bench);
    let report = json!({
        "try_read_hit_ns_4k": hits(&bench, &warm, 4096),
        "try_read_hit_ns_64k": hits(&bench, &warm, CHUNK),
        "try_read_hit_ns_1m": hits(&bench, &warm, MIB),
        "try_read_hit_ns_4k_in_boot_window": hits_while_booting(&bench, &warm),
        "miss_memory_origin_ns": misses(&bench),
        "sequential": sequential,
        "random_boot": random_boot(&bench),
    });
    warm.path.stop(Duration::from_secs(10));
    println!("{report:#}");
}
