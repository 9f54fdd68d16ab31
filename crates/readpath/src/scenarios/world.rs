//! Several hosts, one network, one origin.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_ring::{Host, Ring, RingBuilder, RingHandle};
use acstor_runclock::RunClock;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;

use super::image::{Image, Shape};
use super::memory_store::MemoryStore;
use super::network::{Network, NetworkPort};
use super::test_origin::TestOrigin;
use crate::{BlockView, Keep, PlacementRule, ReadError, ReadPath, ReadPathConfig, Seams, Segment};

/// Real time until the thread that writes chunks must have caught up.
const FLUSH_MAX: Duration = Duration::from_secs(120);

pub(super) struct TestHost {
    pub(super) name: String,
    pub(super) path: ReadPath,
    pub(super) store: Arc<MemoryStore>,
    pub(super) rings: Arc<RingHandle>,
    registry: Registry,
}

pub(super) struct World {
    pub(super) origin: Arc<TestOrigin>,
    pub(super) network: Arc<Network>,
    pub(super) hosts: Vec<TestHost>,
}

/// Settings of the tests: the defaults but for what a test is about.
pub(super) fn config() -> ReadPathConfig {
    ReadPathConfig {
        keep: Keep::Never,
        // The origin of the tests is polled, which looks like load; what load does is in `loading`.
        load_aware: false,
        compress_slow: false,
        placement: PlacementRule::Oid { span_chunks: 16 },
        prefetch_max_bytes: 0,
        recent_bytes: 4 << 20,
        ..ReadPathConfig::default()
    }
}

pub(super) fn ring(generation: u64, weights: &[(&str, u32)]) -> Ring {
    let hosts =
        weights.iter().map(|(name, weight)| Host::new(*name, Network::address(name), *weight));
    RingBuilder::new(11).vnodes(1024).generation(generation).hosts(hosts).build().unwrap()
}

impl World {
    /// Starts hosts that share one ring with equal weights.
    pub(super) fn new(names: &[&str], config: &ReadPathConfig) -> World {
        let weights: Vec<(&str, u32)> = names.iter().map(|name| (*name, 1)).collect();
        World::with_weights(&weights, config)
    }

    pub(super) fn with_weights(weights: &[(&str, u32)], config: &ReadPathConfig) -> World {
        let (origin, network) = (TestOrigin::new(), Network::new());
        let hosts = weights
            .iter()
            .map(|(name, _)| TestHost::start(name, ring(1, weights), config, &origin, &network))
            .collect();
        World { origin, network, hosts }
    }

    pub(super) fn host(&self, name: &str) -> &TestHost {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// Registers an image and attaches it to every host.
    pub(super) fn image(&self, shape: Shape) -> Image {
        let image = Image::register(shape, &self.origin);
        for host in &self.hosts {
            host.path.attach(image.manifest.clone()).unwrap();
        }
        image
    }

    pub(super) fn set_ring(&self, generation: u64, weights: &[(&str, u32)]) {
        for host in &self.hosts {
            host.rings.set(ring(generation, weights)).unwrap();
        }
    }

    /// First chunk of a span that `owner` owns, for spans from number `from` on.
    pub(super) fn span_of(&self, image: &Image, owner: &str, from: u64) -> u64 {
        let view = self.hosts[0].rings.load_full();
        let ring = view.current.as_ref().unwrap();
        let span = (from..)
            .find(|span| ring.owner(acstor_types::Oid::of(&image.id(), span * 16)).name == owner)
            .unwrap();
        assert!((span + 1) * 16 <= image.manifest.chunk_count(), "the image is too small");
        span * 16
    }

    /// Name of the owner of a chunk.
    pub(super) fn owner(&self, image: &Image, chunk: u64) -> String {
        let view = self.hosts[0].rings.load_full();
        let oid = acstor_types::Oid::of(&image.id(), chunk - chunk % 16);
        view.current.as_ref().unwrap().owner(oid).name.clone()
    }

    pub(super) fn flush(&self) {
        for host in &self.hosts {
            assert!(host.path.flush_inserts(FLUSH_MAX));
        }
    }
}

impl TestHost {
    /// Lets the thread that writes chunks catch up with the paused time, which runs on without it.
    pub(super) async fn catch_up(&self) {
        for _ in 0..4 {
            assert!(self.path.flush_inserts(FLUSH_MAX));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn start(
        name: &str,
        ring: Ring,
        config: &ReadPathConfig,
        origin: &Arc<TestOrigin>,
        network: &Arc<Network>,
    ) -> TestHost {
        let store = Arc::new(MemoryStore::default());
        let rings = Arc::new(RingHandle::new(ring));
        let seams = Seams {
            store: store.clone(),
            peers: Arc::new(NetworkPort { host: name.to_owned(), network: network.clone() }),
            origin: origin.clone(),
            rings: rings.clone(),
            clock: RunClock::start(&Handle::current()),
        };
        let config = ReadPathConfig { host: name.to_owned(), ..config.clone() };
        let threads = config.origin_threads;
        let mut registry = Registry::default();
        let path = ReadPath::with_workers(
            config,
            seams,
            &mut registry,
            Handle::current(),
            |queue, metrics, late_sink| {
                let port = NetworkPort { host: name.to_owned(), network: network.clone() };
                origin.start_workers(threads, queue, metrics, late_sink, port);
                Ok(())
            },
        )
        .unwrap();
        network.join(name, path.clone());
        TestHost { name: name.to_owned(), path, store, rings, registry }
    }

    pub(super) fn view(&self, image: &Image) -> Arc<dyn BlockView> {
        self.path.attach(image.manifest.clone()).unwrap()
    }

    /// Reads and compares; an error of the read is returned, a wrong byte is a panic.
    pub(super) async fn read(
        &self,
        image: &Image,
        offset: u64,
        len: usize,
    ) -> Result<(), ReadError> {
        let segments = self.view(image).read(offset, len).await?;
        check(image, offset, len, &segments);
        Ok(())
    }

    /// Reads chunk `index` whole.
    pub(super) async fn read_chunk(&self, image: &Image, index: u64) -> Result<(), ReadError> {
        let chunk = image.manifest.chunk_size().bytes();
        self.read(image, index * chunk as u64, chunk).await
    }

    /// Every value of the metrics, by name with labels.
    pub(super) fn metrics(&self) -> HashMap<String, f64> {
        self.path.refresh_gauges();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    pub(super) fn metric(&self, name: &str) -> u64 {
        *self.metrics().get(name).unwrap_or_else(|| panic!("no metric {name}")) as u64
    }

    /// Chunks that reads got from a tier.
    pub(super) fn tier(&self, tier: &str) -> u64 {
        self.metric(&format!("acstor_read_chunks_total{{tier=\"{tier}\"}}"))
    }

    pub(super) fn fetches(&self, outcome: &str) -> u64 {
        self.metric(&format!("acstor_peer_fetches_total{{outcome=\"{outcome}\"}}"))
    }
}

/// The bytes that segments stand for.
pub(super) fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        match segment {
            Segment::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            Segment::Bytes(part) => bytes.extend_from_slice(part),
            Segment::Mapped { chunk, start, len } => {
                let mut part = vec![0; *len];
                chunk.read_at(*start, &mut part).unwrap();
                bytes.extend_from_slice(&part);
            }
        }
    }
    bytes
}

pub(super) fn check(image: &Image, offset: u64, len: usize, segments: &[Segment]) {
    let start = (offset as usize).min(image.content.len());
    let end = start.saturating_add(len).min(image.content.len());
    assert!(bytes_of(segments) == image.content[start..end], "wrong bytes at {offset}+{len}");
}
