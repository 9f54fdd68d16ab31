//! `cargo run -p acstor-readpath --example placement_bench`: prints one JSON object.
//!
//! What the placement rule and the keep policy cost. Four hosts in one process, joined by function
//! calls, boot two images that share half of their content: the first boot of each host at the same
//! time, then a second guest on each host. Everything is counted and nothing is timed, so the
//! profile does not matter. Used by RFD 3 and RFD 4.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first surprise")]

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerError};
use acstor_readpath::{
    BlockView, InsertOutcome, Keep, LocalChunk, LocalError, LocalLook, LocalStore, LocalUsage,
    OriginError, OriginRange, OriginSource, PeerFuture, PeerSource, PlacementRule, ReadPath,
    ReadPathConfig, Seams, TryRead,
};
use acstor_ring::{Host, RingBuilder, RingHandle};
use acstor_runclock::RunClock;
use acstor_store::Discarded;
use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Manifest, ManifestBuilder, PACK_DATA_OFFSET, PackId,
};
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::{Value, json};

const CHUNK: usize = 65_536;
const CHUNKS: usize = 4096;
const CHUNKS_PER_PACK: usize = 1024;
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const BOOT_RUNS: usize = 700;

#[derive(Default)]
struct MemoryStore(Mutex<HashMap<Digest, Bytes>>);

impl LocalStore for MemoryStore {
    fn chunk_size(&self) -> ChunkSize {
        ChunkSize::DEFAULT
    }

    fn look(&self, digest: &Digest, _start: usize, _len: usize) -> LocalLook {
        let found = self.0.lock().get(digest).cloned();
        found.map_or(LocalLook::Absent, |bytes| LocalLook::Memory(LocalChunk::Bytes(bytes)))
    }

    fn read(&self, digest: &Digest, part: &Range<usize>) -> Result<Option<Bytes>, LocalError> {
        Ok(self.0.lock().get(digest).map(|chunk| chunk.slice(part.clone())))
    }

    fn contains(&self, digest: &Digest) -> bool {
        self.0.lock().contains_key(digest)
    }

    fn likely_contains(&self, prefix: u64) -> bool {
        self.0.lock().keys().any(|digest| digest.prefix_u64() == prefix)
    }

    fn favor(&self, _: &Digest) {}

    fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<InsertOutcome>, LocalError> {
        self.0.lock().extend(chunks.iter().cloned());
        Ok(vec![InsertOutcome::New; chunks.len()])
    }

    fn pin(&self, _: &Digest) -> Result<(), LocalError> {
        Ok(())
    }

    fn unpin(&self, _: &Digest) {}

    fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError> {
        let mut chunks = self.0.lock();
        let dropped = digests.iter().filter(|digest| chunks.remove(digest).is_some()).count();
        Ok(Discarded { dropped, busy: 0 })
    }

    fn usage(&self) -> LocalUsage {
        LocalUsage::default()
    }
}

#[derive(Default)]
struct MemoryOrigin {
    packs: HashMap<PackId, Vec<u8>>,
}

impl OriginSource for MemoryOrigin {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        for range in ranges {
            let start = range.offset as usize;
            let len = range.buffer.len();
            range.buffer.copy_from_slice(&self.packs[pack][start..start + len]);
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, _: &mut OriginRange) -> Result<(), OriginError> {
        Err(OriginError::NotFound { pack: name.to_string() })
    }
}

/// The other hosts, by address; function calls instead of a network.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<HashMap<String, ReadPath>>>);

impl PeerSource for Network {
    fn fetch(
        &self,
        address: &str,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: tokio::time::Instant,
    ) -> PeerFuture {
        let (network, address) = (self.clone(), address.to_owned());
        Box::pin(async move {
            let path = network.0.lock().get(&address).cloned().unwrap();
            let answer = path.serve(request, class, deadline).await;
            answer.map_err(|status| PeerError::Refused { address, status })
        })
    }
}

/// Two images; the second has every other 4 MiB of the first and own content in between.
fn images() -> (Vec<Manifest>, MemoryOrigin) {
    let mut random = StdRng::seed_from_u64(7);
    let mut origin = MemoryOrigin::default();
    let mut manifests = Vec::new();
    let mut first: Vec<(Digest, ChunkLocation)> = Vec::new();
    for number in 0..2u8 {
        let disk = DiskId::from_bytes([number + 1; 16]);
        let mut builder = ManifestBuilder::new(disk, ChunkSize::DEFAULT, (CHUNKS * CHUNK) as u64);
        let mut stored = 0;
        for index in 0..CHUNKS {
            if number == 1 && (index / 64) % 2 == 0 {
                builder.push_chunk(&first[index].0, first[index].1);
                continue;
            }
            let pack = PackId(Digest::of(&[number, (stored / CHUNKS_PER_PACK) as u8]));
            let offset = PACK_DATA_OFFSET as usize + stored % CHUNKS_PER_PACK * CHUNK;
            let content = origin.packs.entry(pack).or_default();
            content.resize(offset + CHUNK, 0);
            random.fill_bytes(&mut content[offset..]);
            let digest = Digest::of(&content[offset..]);
            let location = ChunkLocation { pack, offset: offset as u32 };
            builder.push_chunk(&digest, location);
            if number == 0 {
                first.push((digest, location));
            }
            stored += 1;
        }
        manifests.push(builder.finish().unwrap());
    }
    (manifests, origin)
}

/// Runs of 4 KiB to 1 MiB here and there, as the kernel's read-ahead of a booting guest makes them.
fn boot_trace() -> Vec<(u64, usize)> {
    let mut random = StdRng::seed_from_u64(3);
    (0..BOOT_RUNS)
        .map(|_| {
            let len = 4096 << random.random_range(0..9);
            let places = ((CHUNKS * CHUNK - len) / 4096) as u64;
            (random.random_range(0..places) * 4096, len)
        })
        .collect()
}

struct BenchHost {
    path: ReadPath,
    views: Vec<Arc<dyn BlockView>>,
    store: Arc<MemoryStore>,
    registry: Registry,
}

struct Setup {
    hosts: Vec<BenchHost>,
    trace: Vec<(u64, usize)>,
    union_bytes: usize,
}

impl Setup {
    fn new(placement: PlacementRule, keep: Keep) -> Setup {
        let (manifests, origin) = images();
        let origin: Arc<MemoryOrigin> = Arc::new(origin);
        let network = Network::default();
        let members = HOSTS
            .iter()
            .enumerate()
            .map(|(n, name)| Host::new(*name, format!("10.0.0.{}:7420", n + 1), 1));
        let ring = RingBuilder::new(5).vnodes(16_384).generation(1).hosts(members).build().unwrap();
        let trace = boot_trace();
        let union_bytes = union_bytes(&manifests, &trace);
        let hosts = HOSTS
            .iter()
            .enumerate()
            .map(|(number, name)| {
                let store = Arc::new(MemoryStore::default());
                let config = ReadPathConfig {
                    host: (*name).to_owned(),
                    placement,
                    keep,
                    hedge_enabled: false,
                    ..ReadPathConfig::default()
                };
                let seams = Seams {
                    store: store.clone(),
                    peers: Arc::new(network.clone()),
                    origin: origin.clone(),
                    rings: Arc::new(RingHandle::new(ring.clone())),
                    clock: RunClock::start(&tokio::runtime::Handle::current()),
                };
                let mut registry = Registry::default();
                let runtime = tokio::runtime::Handle::current();
                let path = ReadPath::new(config, seams, &mut registry, runtime).unwrap();
                network.0.lock().insert(format!("10.0.0.{}:7420", number + 1), path.clone());
                let views = manifests.iter().map(|m| path.attach(m.clone()).unwrap()).collect();
                BenchHost { path, views, store, registry }
            })
            .collect();
        Setup { hosts, trace, union_bytes }
    }

    /// Boots one guest per host and image, all at once.
    async fn boot(&self) {
        let mut guests = Vec::new();
        for host in &self.hosts {
            for view in &host.views {
                let (view, trace) = (view.clone(), self.trace.clone());
                guests.push(tokio::spawn(async move {
                    for (offset, len) in trace {
                        if let TryRead::WouldWait = view.try_read(offset, len).unwrap() {
                            view.read(offset, len).await.unwrap();
                        }
                    }
                }));
            }
        }
        for guest in guests {
            guest.await.unwrap();
        }
        for host in &self.hosts {
            assert!(host.path.flush_inserts(std::time::Duration::from_secs(60)));
        }
    }

    fn sum(&self, name: &str) -> f64 {
        let value = |host: &BenchHost| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &host.registry).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap().parse::<f64>().unwrap()
        };
        self.hosts.iter().map(value).sum()
    }

    fn report(&self) -> Value {
        let mib = |bytes: f64| (bytes / 1e4 / 1.048_576).round() / 100.0;
        let kept: Vec<usize> = self.hosts.iter().map(|host| host.store.0.lock().len()).collect();
        let most = kept.iter().max().copied().unwrap_or(0) as f64;
        let mean = kept.iter().sum::<usize>() as f64 / kept.len() as f64;
        json!({
            "origin_mib": mib(self.sum("acstor_origin_bytes_total")),
            "origin_per_union": self.sum("acstor_origin_bytes_total") / self.union_bytes as f64,
            "origin_calls_per_mib": self.sum("acstor_origin_calls_total{outcome=\"ok\"}")
                / (self.sum("acstor_origin_bytes_total") / 1_048_576.0),
            "peer_mib": mib(self.sum("acstor_peer_fetch_bytes_total")),
            "kept_mib": mib(mean * 4.0 * CHUNK as f64),
            "fullest_per_mean": most / mean,
        })
    }
}

/// Bytes of the distinct chunks that the boots of all images touch.
fn union_bytes(manifests: &[Manifest], trace: &[(u64, usize)]) -> usize {
    let mut digests = HashSet::new();
    for manifest in manifests {
        for (offset, len) in trace {
            for index in offset / CHUNK as u64..=(offset + *len as u64 - 1) / CHUNK as u64 {
                digests.insert(format!("{:?}", manifest.entry(index)));
            }
        }
    }
    digests.len() * CHUNK
}

async fn measure(placement: PlacementRule, keep: Keep) -> Value {
    let setup = Setup::new(placement, keep);
    setup.boot().await;
    let first = setup.report();
    setup.boot().await;
    let report = json!({
        "placement": format!("{placement:?}"), "keep": format!("{keep:?}"),
        "first_boots": first, "with_second_boots": setup.report(),
    });
    for host in &setup.hosts {
        host.path.stop(std::time::Duration::from_secs(10));
    }
    report
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut reports = Vec::new();
    for span_chunks in [1, 4, 16, 64] {
        reports.push(measure(PlacementRule::Oid { span_chunks }, Keep::SecondTouch).await);
    }
    for span_chunks in [1, 4, 16, 64] {
        reports.push(measure(PlacementRule::Digest { span_chunks }, Keep::SecondTouch).await);
    }
    for keep in [Keep::Never, Keep::Always] {
        reports.push(measure(PlacementRule::Oid { span_chunks: 16 }, keep).await);
    }
    println!("{:#}", Value::from(reports));
}
