//! Hosts that preload one image at the same time, over real sockets on the loopback.
//!
//! How much comes by multicast depends on the machine's load, and so does whether anything does; that every host
//! has every chunk in the end, with the right content, does not.

#[path = "../../tests/host_settings/mod.rs"]
mod host_settings;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as WallInstant};

use acstor_peer::PeerServer;
use acstor_readpath::{OriginError, OriginRange, OriginSource};
use acstor_ring::{Host as RingHost, RingBuilder};
use acstor_testkit::pages::metric_names;
use acstor_types::{ChunkLocation, ManifestBuilder, PACK_DATA_OFFSET, PackId};
use tempfile::TempDir;

use super::*;
use crate::Host;
use crate::lifecycle::peer_config;

const CHUNK: usize = 65_536;
const CHUNKS: usize = 60;
const HOSTS: [&str; 5] = ["host-1", "host-2", "host-3", "host-4", "host-5"];
/// Bound of every wait; far above what it takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn chunk(index: usize) -> Vec<u8> {
    (0..CHUNK).map(|place| ((place + 7) * (index + 3) % 251) as u8).collect()
}

/// An origin with one pack, which counts the chunks read.
#[derive(Default)]
struct CountingOrigin(AtomicU64);

impl OriginSource for CountingOrigin {
    fn read(&self, _pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        for range in ranges {
            let first = (range.offset as usize - PACK_DATA_OFFSET as usize) / CHUNK;
            let chunks = range.buffer.len() / CHUNK;
            self.0.fetch_add(chunks as u64, Ordering::Relaxed);
            let content: Vec<u8> = (first..first + chunks).flat_map(chunk).collect();
            range.buffer.copy_from_slice(&content);
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, _range: &mut OriginRange) -> Result<(), OriginError> {
        Err(OriginError::NotFound { pack: name.to_string() })
    }
}

fn settings(name: &str, directory: &Path, group: &str) -> Settings {
    Settings {
        origin_posix_root: None,
        multicast_group: Some(group.into()),
        ..host_settings::small(name, directory)
    }
}

fn disk() -> DiskId {
    DiskId::from_bytes([9; 16])
}

fn manifest(directory: &Path) -> std::path::PathBuf {
    let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
    let mut builder = ManifestBuilder::new(disk(), chunk_size, (CHUNKS * CHUNK) as u64);
    for index in 0..CHUNKS {
        let offset = (PACK_DATA_OFFSET as usize + index * CHUNK) as u32;
        let location = ChunkLocation { pack: PackId(Digest::of(b"pack")), offset };
        builder.push_chunk(&Digest::of(&chunk(index)), location);
    }
    let path = directory.join("manifest");
    std::fs::write(&path, builder.finish().unwrap().as_bytes()).unwrap();
    path
}

struct TestHost {
    host: Host,
    _peers: PeerServer,
    _directory: TempDir,
}

/// Opens the hosts, and has them know each other and the image.
fn hosts(group: &str, origin: &Arc<CountingOrigin>) -> Vec<TestHost> {
    let listeners = HOSTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let members = HOSTS.iter().zip(&listeners).map(|(name, listener)| {
        RingHost::new(*name, listener.local_addr().unwrap().to_string(), 1)
    });
    let ring = RingBuilder::new(11).vnodes(1024).generation(1).hosts(members).build().unwrap();
    HOSTS
        .iter()
        .zip(listeners)
        .map(|(name, listener)| start(name, listener, &ring, group, origin))
        .collect()
}

fn start(
    name: &str,
    listener: TcpListener,
    ring: &acstor_ring::Ring,
    group: &str,
    origin: &Arc<CountingOrigin>,
) -> TestHost {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(name, directory.path(), group);
    let config = peer_config(&settings);
    let host = Host::open(settings, Some(origin.clone())).unwrap();
    host.parts.rings.set(ring.clone()).unwrap();
    host.attach_image(&manifest(directory.path()), true, None).unwrap();
    let hub = host.parts.multicast.as_ref().map(|multicast| multicast.hub.clone());
    let chunks = Arc::new(GroupChunks { read_path: host.parts.read_path.clone(), hub });
    let inside = host.handle.enter();
    let clock = host.parts.read_path.clock();
    let peers = PeerServer::start_by(listener, chunks, &config, clock).unwrap();
    drop(inside);
    TestHost { host, _peers: peers, _directory: directory }
}

/// Waits until the preload of a host has ended; returns its state.
fn ended(host: &Host) -> String {
    let since = WallInstant::now();
    loop {
        let status = host.preload_status();
        let state = status[0]["state"].as_str().unwrap().to_owned();
        if ["done", "failed", "stopped"].contains(&state.as_str()) {
            return format!("{state} {}", status[0]["error"]);
        }
        assert!(since.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn preload(hosts: &[TestHost]) {
    let request = acstor_readpath::PreloadRequest {
        what: PreloadWhat::Full,
        rate_bytes_per_s: 0,
        pin: false,
    };
    for TestHost { host, .. } in hosts {
        host.preload_start(disk(), request).unwrap();
    }
    for TestHost { host, .. } in hosts {
        assert_eq!(ended(host), "done null");
        for index in 0..CHUNKS {
            let digest = Digest::of(&chunk(index));
            assert!(host.parts.store.contains(&digest), "{index}");
        }
    }
}

fn total(hosts: &[TestHost], name: &str) -> u64 {
    let counters = hosts.iter().filter_map(|host| host.host.parts.multicast.as_ref());
    let of = |multicast: &Multicast| {
        multicast.totals.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
    };
    counters.map(of).sum()
}

#[test]
fn test_preload_of_five_hosts_is_whole_and_they_listen_first() {
    let origin = Arc::new(CountingOrigin::default());
    let hosts = hosts("239.255.70.98:17421", &origin);
    preload(&hosts);
    // All but the sender have joined, or were told that there is nothing to join.
    let heard: u64 = hosts
        .iter()
        .filter_map(|host| host.host.parts.multicast.as_ref())
        .flat_map(|multicast| multicast.totals.finishes())
        .map(|(_, count)| count)
        .sum();
    let (whole, read) = (total(&hosts, "whole_chunks"), origin.0.load(Ordering::Relaxed));
    eprintln!("{heard} listened, {whole} chunks came by multicast, {read} from the origin");
    assert_eq!(heard, 4);
    let text = hosts[0].host.metrics_text().unwrap();
    assert!(text.contains("acstor_multicast_whole_chunks_total"), "{text}");
}

#[test]
fn test_preload_is_whole_whether_or_not_the_group_is_heard() {
    let origin = Arc::new(CountingOrigin::default());
    // Whether a group of IPv6 is heard on the loopback is the machine's affair.
    let hosts = hosts("[ff02::7070]:17422", &origin);
    preload(&hosts);
}

#[test]
fn test_group_config_refuses_what_leaves_the_segment() {
    let group = |group: &str| group_config(group, "192.0.2.1");
    assert!(group("239.255.70.15:7421").is_ok());
    for wrong in ["224.0.1.1:7421", "192.0.2.9:7421", "239.255.70.15", "[ff0e::1]:7421"] {
        let error = group(wrong).unwrap_err();
        assert!(matches!(error, HostError::Setting { name: "multicast_group", .. }), "{error}");
    }
    assert!(group_config("239.255.70.15:7421", "eth0").is_err());
}

#[test]
fn test_part_is_what_its_code_means() {
    for what in [PreloadWhat::WorkingSet, PreloadWhat::Full] {
        assert_eq!(part(code(what)), Some(what));
    }
    assert_eq!((part(0), part(3)), (None, None));
}

#[test]
fn test_page_describes_every_metric_with_its_label_values() {
    let page = include_str!("../../../../doc/source/admin/metrics-multicast.rst");
    let totals = Totals::default();
    let counters = totals.counters().into_iter().map(|(name, _)| name);
    let others = ["sessions", "sent_sessions", "heard_sessions"];
    let names: BTreeSet<_> =
        counters.chain(others).map(|name| format!("acstor_multicast_{name}")).collect();
    assert_eq!(metric_names(page), names.iter().map(String::as_str).collect());
    for (value, _) in totals.ends().into_iter().chain(totals.finishes()) {
        assert!(page.contains(&format!("``{value}``")), "label value {value}");
    }
}
