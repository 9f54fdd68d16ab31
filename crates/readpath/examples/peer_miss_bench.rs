//! `cargo run --release -p acstor-readpath --example peer_miss_bench`: prints one JSON object.
//!
//! One host that misses everything and eight peers that answer at once, from memory: the cost of a miss
//! on this host, choice of the source included, for one reader and for 64 at a time.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first surprise")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_peer::{ChunkRequest, ClassWatch};
use acstor_readpath::{
    BlockView, HostStore, Keep, OriginError, OriginRange, OriginSource, PeerFuture, PeerSource,
    ReadPath, ReadPathConfig, Seams,
};
use acstor_ring::{Host, RingBuilder, RingHandle};
use acstor_runclock::RunClock;
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Manifest, ManifestBuilder, PACK_DATA_OFFSET, PackId,
};
use bytes::Bytes;
use prometheus_client::registry::Registry;
use serde_json::json;

const CHUNK: usize = 4096;
const CHUNKS: usize = 65_536;
const READERS: usize = 64;

struct Peers(HashMap<Digest, Bytes>);

impl PeerSource for Peers {
    fn fetch(
        &self,
        _: &str,
        request: ChunkRequest,
        _: ClassWatch,
        _: tokio::time::Instant,
    ) -> PeerFuture {
        let content = self.0[&request.digest].clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(content)
        })
    }
}

struct NoOrigin;

impl OriginSource for NoOrigin {
    fn read(&self, _: &PackId, _: &mut [OriginRange]) -> Result<(), OriginError> {
        Err(OriginError::Overloaded("nothing is read from it"))
    }

    fn read_manifest(&self, _: &Digest, _: &mut OriginRange) -> Result<(), OriginError> {
        Err(OriginError::Overloaded("nothing is read from it"))
    }
}

fn image() -> (Manifest, HashMap<Digest, Bytes>) {
    let size = ChunkSize::new(CHUNK as u32).unwrap();
    let mut builder =
        ManifestBuilder::new(DiskId::from_bytes([1; 16]), size, (CHUNKS * CHUNK) as u64);
    let pack = PackId(Digest::of(b"pack"));
    let mut chunks = HashMap::new();
    for number in 0..CHUNKS {
        let content: Bytes = (number as u64 + 1).to_le_bytes().repeat(CHUNK / 8).into();
        let digest = Digest::of(&content);
        let offset = PACK_DATA_OFFSET as u32 + (number * CHUNK) as u32;
        builder.push_chunk(&digest, ChunkLocation { pack, offset });
        chunks.insert(digest, content);
    }
    (builder.finish().unwrap(), chunks)
}

/// Reads every chunk once on a host that keeps none; returns the time of each.
async fn miss(view: Arc<dyn BlockView>, readers: usize) -> (Duration, Vec<Duration>) {
    let start = Instant::now();
    let tasks: Vec<_> = (0..readers)
        .map(|reader| {
            let view = view.clone();
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(CHUNKS / readers);
                for index in (reader..CHUNKS).step_by(readers) {
                    let start = Instant::now();
                    drop(view.read((index * CHUNK) as u64, CHUNK).await.unwrap());
                    times.push(start.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::with_capacity(CHUNKS);
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    (start.elapsed(), times)
}

fn report(elapsed: Duration, mut times: Vec<Duration>) -> serde_json::Value {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as u64;
    let per_second = times.len() as f64 / elapsed.as_secs_f64();
    json!({ "misses_per_s": per_second as u64, "p50_ns": at(0.5), "p99_ns": at(0.99) })
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (manifest, chunks) = image();
    let peers = Arc::new(Peers(chunks));
    let hosts = (0..9).map(|n| {
        let name = if n == 0 { "bench".to_owned() } else { format!("peer-{n}") };
        Host::new(name, format!("10.0.0.{}:1", n + 1), u32::from(n > 0))
    });
    let ring = RingBuilder::new(7).vnodes(1024).generation(1).hosts(hosts).build().unwrap();
    let mut results = serde_json::Map::new();
    for readers in [1, READERS] {
        let directory = tempfile::tempdir().unwrap();
        let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
        let store = ChunkStore::open(&StoreConfig {
            path: directory.path().to_owned(),
            capacity_bytes: 64 << 20,
            chunk_size,
            eviction: EvictionKind::S3Fifo,
        })
        .unwrap();
        let seams = Seams {
            store: Arc::new(HostStore::new(store, chunk_size)),
            peers: peers.clone(),
            origin: Arc::new(NoOrigin),
            rings: Arc::new(RingHandle::new(ring.clone())),
            clock: RunClock::start(runtime.handle()),
        };
        let config = ReadPathConfig {
            host: "bench".into(),
            keep: Keep::Never,
            prefetch_max_bytes: 0,
            recent_bytes: 4 << 20,
            ..ReadPathConfig::default()
        };
        let handle = runtime.handle().clone();
        let path = ReadPath::new(config, seams, &mut Registry::default(), handle).unwrap();
        let view = path.attach(manifest.clone()).unwrap();
        let (elapsed, times) = runtime.block_on(miss(view, readers));
        results.insert(format!("readers_{readers}"), report(elapsed, times));
        path.stop(Duration::from_secs(10));
    }
    println!("{:#}", serde_json::Value::from(results));
}
