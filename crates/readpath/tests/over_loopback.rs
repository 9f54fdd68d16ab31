//! The real parts together: chunk stores on disk, peers over TCP, an origin directory, threads.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise")]

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, PeerClient, PeerConfig, PeerServer, Security,
    ServeFuture,
};
use acstor_readpath::{
    BlockView, HostStore, Keep, PosixPackReader, ReadError, ReadPath, ReadPathConfig, Seams,
    Segment, TryRead, Walk,
};
use acstor_ring::{Host, RingBuilder, RingHandle};
use acstor_runclock::RunClock;
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::{
    ChunkLocation, ChunkSize, DedupScope, Digest, DiskId, Entry, Manifest, ManifestBuilder,
    PackHeader, PackId,
};
use prometheus_client::registry::Registry;

const CHUNK: usize = 65_536;
const CHUNKS: usize = 256;
const CHUNKS_PER_PACK: usize = 100;
const HOSTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

struct Image {
    manifest: Manifest,
    content: Vec<u8>,
}

fn chunk(index: usize) -> Vec<u8> {
    let seed = Digest::of(&index.to_le_bytes());
    seed.as_bytes().iter().copied().cycle().take(CHUNK).collect()
}

/// Writes an image's packs into an origin directory; every eighth chunk is zero.
fn register(origin: &Path, scope: Option<&DedupScope>) -> Image {
    let name = |index: usize| Digest::of_in(scope, &chunk(index));
    let size = ChunkSize::DEFAULT;
    let mut builder =
        ManifestBuilder::new(DiskId::from_bytes([4; 16]), size, (CHUNKS * CHUNK) as u64);
    let mut content = Vec::new();
    let header = PackHeader { chunk_size: size, chunk_count: CHUNKS_PER_PACK as u32 };
    let stored: Vec<usize> = (0..CHUNKS).filter(|index| index % 8 != 0).collect();
    let packs: Vec<(PackId, Vec<u8>)> = stored
        .chunks(CHUNKS_PER_PACK)
        .map(|indices| {
            let mut bytes = header.encode();
            let mut digests = Vec::new();
            for index in indices {
                digests.extend_from_slice(name(*index).as_bytes());
                bytes.extend_from_slice(&chunk(*index));
            }
            (PackId::of_digests(&digests), bytes)
        })
        .collect();
    let mut stored = 0;
    for index in 0..CHUNKS {
        if index % 8 == 0 {
            builder.push_zero();
            content.resize(content.len() + CHUNK, 0);
            continue;
        }
        let pack = packs[stored / CHUNKS_PER_PACK].0;
        let offset = header.chunk_offset((stored % CHUNKS_PER_PACK) as u32) as u32;
        builder.push_chunk(&name(index), ChunkLocation { pack, offset });
        content.extend_from_slice(&chunk(index));
        stored += 1;
    }
    for (pack, bytes) in packs {
        let path = PosixPackReader::new(origin).path(&pack);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    Image { manifest: builder.finish().unwrap(), content }
}

struct RealHost {
    path: ReadPath,
    view: Arc<dyn BlockView>,
    server: Option<PeerServer>,
    registry: Registry,
    _store: tempfile::TempDir,
}

struct Cluster {
    image: Image,
    origin: PathBuf,
    hosts: Vec<RealHost>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn start(config: &ReadPathConfig) -> Cluster {
        Cluster::start_with(config, None, &[])
    }

    /// Starts hosts with an image whose chunks have names in a scope; `liars` answer their peers
    /// with content of other chunks.
    fn start_with(config: &ReadPathConfig, scope: Option<&str>, liars: &[usize]) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let origin = directory.path().join("origin");
        fs::create_dir_all(origin.join("packs")).unwrap();
        let image = register(&origin, scope.map(DedupScope::new).as_ref());
        let listeners: Vec<TcpListener> =
            (0..HOSTS).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let members = listeners.iter().enumerate().map(|(number, listener)| {
            let address = listener.local_addr().unwrap().to_string();
            Host::new(format!("host-{number}"), address, 1)
        });
        let ring = RingBuilder::new(5).vnodes(1024).generation(1).hosts(members).build().unwrap();
        let hosts = listeners
            .into_iter()
            .enumerate()
            .map(|(number, listener)| {
                let config = ReadPathConfig { host: format!("host-{number}"), ..config.clone() };
                let rings = Arc::new(RingHandle::new(ring.clone()));
                let is_liar = liars.contains(&number);
                RealHost::start(config, listener, rings, &origin, &image, is_liar)
            })
            .collect();
        Cluster { image, origin, hosts, _directory: directory }
    }

    /// Reads a range on one host as a front end does, and compares it.
    async fn read(&self, host: usize, offset: usize, len: usize) -> Result<(), ReadError> {
        let view = &self.hosts[host].view;
        let segments = match view.try_read(offset as u64, len)? {
            TryRead::Ready(segments) => segments,
            TryRead::WouldWait => view.read(offset as u64, len).await?,
        };
        let end = (offset + len).min(self.image.content.len());
        assert!(bytes_of(&segments) == self.image.content[offset..end], "wrong bytes at {offset}");
        Ok(())
    }

    /// Reads the whole disk on every host at once; `stride` scatters the order per host.
    async fn read_all(self: &Arc<Self>, len: usize) -> usize {
        let mut readers = Vec::new();
        for host in 0..HOSTS {
            let cluster = self.clone();
            readers.push(tokio::spawn(async move {
                let (mut failures, reads) = (0, CHUNKS * CHUNK / len);
                for number in 0..reads {
                    let offset = (number + host * reads / HOSTS) % reads * len;
                    failures += usize::from(cluster.read(host, offset, len).await.is_err());
                }
                failures
            }));
        }
        let mut failures = 0;
        for reader in readers {
            failures += reader.await.unwrap();
        }
        failures
    }

    fn sum(&self, metric: &str) -> u64 {
        self.hosts.iter().map(|host| host.metric(metric)).sum()
    }

    fn stop(&self) {
        for host in &self.hosts {
            host.path.stop(PATIENCE);
        }
    }
}

impl RealHost {
    fn start(
        config: ReadPathConfig,
        listener: TcpListener,
        rings: Arc<RingHandle>,
        origin: &Path,
        image: &Image,
        is_liar: bool,
    ) -> RealHost {
        let directory = tempfile::tempdir().unwrap();
        let store = ChunkStore::open(&StoreConfig {
            path: directory.path().to_owned(),
            capacity_bytes: 64 << 20,
            chunk_size: ChunkSize::DEFAULT,
            eviction: EvictionKind::S3Fifo,
        })
        .unwrap();
        let peers = PeerConfig::new(Security::Plain);
        let clock = RunClock::start(&tokio::runtime::Handle::current());
        let seams = Seams {
            store: Arc::new(HostStore::new(store, ChunkSize::DEFAULT)),
            peers: Arc::new(PeerClient::by(&peers, clock.clone()).unwrap()),
            origin: Arc::new(PosixPackReader::new(origin)),
            rings,
            clock: clock.clone(),
        };
        let mut registry = Registry::default();
        let runtime = tokio::runtime::Handle::current();
        let path = ReadPath::new(config, seams, &mut registry, runtime).unwrap();
        let view = path.attach(image.manifest.clone()).unwrap();
        let chunks: Arc<dyn ChunkServer> =
            if is_liar { Arc::new(OtherChunks) } else { Arc::new(path.clone()) };
        let server = PeerServer::start_by(listener, chunks, &peers, clock).unwrap();
        RealHost { path, view, server: Some(server), registry, _store: directory }
    }

    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
    }
}

/// Answers each request with the content of the next chunk.
struct OtherChunks;

impl ChunkServer for OtherChunks {
    fn serve(
        &self,
        request: ChunkRequest,
        _class: ClassWatch,
        _: tokio::time::Instant,
    ) -> ServeFuture {
        Box::pin(async move { Ok(chunk(request.chunk_index as usize + 1).into()) })
    }
}

fn bytes_of(segments: &[Segment]) -> Vec<u8> {
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

fn config() -> ReadPathConfig {
    // Hedges depend on how busy the machine is; they have tests of their own.
    ReadPathConfig { hedge_enabled: false, ..ReadPathConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_four_hosts_read_everything_and_each_chunk_leaves_the_origin_once() {
    let cluster = Arc::new(Cluster::start(&config()));
    assert_eq!(cluster.read_all(CHUNK * 4).await, 0);
    let union = (CHUNKS - CHUNKS / 8) * CHUNK;
    assert_eq!(cluster.sum("acstor_origin_bytes_total"), union as u64);
    for host in &cluster.hosts {
        assert!(host.path.flush_inserts(PATIENCE));
    }
    // Warm: the owners answer, the origin is not needed.
    fs::rename(cluster.origin.join("packs"), cluster.origin.join("gone")).unwrap();
    assert_eq!(cluster.read_all(4096 * 5).await, 0);
    assert_eq!(cluster.sum("acstor_origin_bytes_total"), union as u64);
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_host_killed_under_reads_costs_no_error() {
    let mut cluster = Cluster::start(&config());
    let server = cluster.hosts[1].server.take().unwrap();
    let cluster = Arc::new(cluster);
    let killer = async {
        while cluster.sum("acstor_origin_bytes_total") < (32 * CHUNK) as u64 {
            tokio::task::yield_now().await;
        }
        drop(server);
    };
    let (failures, ()) = tokio::join!(cluster.read_all(CHUNK * 2), killer);
    assert_eq!(failures, 0);
    assert_eq!(cluster.read_all(CHUNK * 16).await, 0);
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_damaged_pack_is_an_error_for_its_chunks_and_never_bytes() {
    let config = ReadPathConfig { keep: Keep::Always, ..config() };
    let cluster = Arc::new(Cluster::start(&config));
    let pack = cluster.image.manifest.pack(1).unwrap();
    let path = PosixPackReader::new(&cluster.origin).path(&pack);
    let mut bytes = fs::read(&path).unwrap();
    for position in [4096 + 100, 4096 + 7 * CHUNK] {
        bytes[position] ^= 0x40;
    }
    fs::write(&path, bytes).unwrap();
    let mut damaged = HashSet::new();
    for host in 0..HOSTS {
        for index in 0..CHUNKS {
            match cluster.read(host, index * CHUNK, CHUNK).await {
                Ok(()) => {}
                Err(ReadError::Corrupt { .. }) => drop(damaged.insert(index)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(damaged.len(), 2);
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_origin_gone_cached_reads_go_on_and_the_rest_recovers() {
    let config = ReadPathConfig {
        read_deadline: Duration::from_secs(20),
        origin_deadline: Duration::from_secs(1),
        prefetch_max_bytes: 0,
        ..config()
    };
    let cluster = Arc::new(Cluster::start(&config));
    cluster.read(0, CHUNK, 20 * CHUNK).await.unwrap();
    let (packs, gone) = (cluster.origin.join("packs"), cluster.origin.join("gone"));
    // An unmounted origin: the packs that are open stay readable, those that are not do not.
    fs::rename(&packs, &gone).unwrap();
    let waiting = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.read(0, 200 * CHUNK, 24 * CHUNK).await })
    };
    while cluster.sum("acstor_origin_calls_total{outcome=\"unavailable\"}") < 2 {
        tokio::task::yield_now().await;
    }
    cluster.read(0, CHUNK, 20 * CHUNK).await.unwrap();
    fs::rename(&gone, &packs).unwrap();
    waiting.await.unwrap().unwrap();
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_copies_that_two_better_placed_hosts_keep_are_given_up() {
    let config = ReadPathConfig {
        keep: Keep::Always,
        copies_max: 2,
        candidates_max: HOSTS,
        prefetch_max_bytes: 0,
        ..config()
    };
    let cluster = Arc::new(Cluster::start(&config));
    assert_eq!(cluster.read_all(CHUNK * 4).await, 0);
    for host in &cluster.hosts {
        assert!(host.path.flush_inserts(PATIENCE));
    }
    let demoted = || cluster.sum("acstor_deduplication_chunks_total{outcome=\"demoted\"}");
    for _ in 0..2 {
        for host in &cluster.hosts {
            host.path.deduplicate_some(&mut Walk::default()).await;
        }
    }
    let stored = (CHUNKS - CHUNKS / 8) as u64;
    // What its owner was asked for several times may count as used lately there, and stays.
    assert!(demoted() <= 2 * stored, "{} of four copies each of {stored}", demoted());
    assert!(demoted() >= stored, "{} of four copies each of {stored}", demoted());
    fs::rename(cluster.origin.join("packs"), cluster.origin.join("gone")).unwrap();
    assert_eq!(cluster.read_all(CHUNK).await, 0);
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_chunks_of_a_project_are_read_and_shared_as_others_are() {
    let config = ReadPathConfig { keep: Keep::Always, ..config() };
    let cluster = Arc::new(Cluster::start_with(&config, Some("a project"), &[]));
    assert_eq!(cluster.read_all(CHUNK * 4).await, 0);
    let union = (CHUNKS - CHUNKS / 8) * CHUNK;
    assert_eq!(cluster.sum("acstor_origin_bytes_total"), union as u64);
    for host in &cluster.hosts {
        assert!(host.path.flush_inserts(PATIENCE));
    }
    fs::rename(cluster.origin.join("packs"), cluster.origin.join("gone")).unwrap();
    assert_eq!(cluster.read_all(4096 * 5).await, 0);
    assert_eq!(cluster.sum("acstor_peer_fetches_total{outcome=\"corrupt\"}"), 0);
    // Asked over the wire: who has the content for one project has it for no other.
    let client = PeerClient::new(&PeerConfig::new(Security::Plain)).unwrap();
    let address = cluster.hosts[0].server.as_ref().unwrap().local_addr().to_string();
    let content = chunk(1);
    let names = [Some("a project"), Some("another"), None]
        .map(|scope| Digest::of_in(scope.map(DedupScope::new).as_ref(), &content));
    let later = tokio::time::Instant::now() + PATIENCE;
    assert_eq!(client.holds(&address, &names, later).await.unwrap(), [true, false, false]);
    for (name, is_had) in names.into_iter().zip([true, false, false]) {
        let request = ChunkRequest {
            digest: name,
            disk_id: DiskId::from_bytes([4; 16]),
            chunk_index: 1,
            chunk_size: ChunkSize::DEFAULT,
            accepts_compressed: false,
        };
        let answer = client.fetch(&address, request, ClassWatch::DEMAND, later).await;
        assert_eq!(answer.is_ok_and(|bytes| *bytes == *content), is_had);
    }
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_peers_that_answer_other_content_for_a_projects_names_are_not_believed() {
    let cluster = Arc::new(Cluster::start_with(&config(), Some("a project"), &[1, 2, 3]));
    for index in 0..CHUNKS {
        cluster.read(0, index * CHUNK, CHUNK).await.unwrap();
    }
    assert!(cluster.sum("acstor_peer_fetches_total{outcome=\"corrupt\"}") > 0);
    for entry in cluster.image.manifest.entries() {
        let Entry::Chunk { digest, .. } = entry else { continue };
        assert_eq!(DedupScope::of_digest(&digest), Some(DedupScope::new("a project")));
    }
    cluster.stop();
}
