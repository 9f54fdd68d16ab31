//! A host that stands still, and finds everybody late when it runs again.
//!
//! Time jumps ahead while tasks wait: as in a process that was stopped, or found no free processor, all
//! timers that were due in the meantime are due at once, and the answers of others come behind them.

use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance, sleep};

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::world::{World, config};
use crate::{ReadError, ReadPathConfig, Segment};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const HOSTS: [&str; 3] = ["a", "b", "c"];

type Read = JoinHandle<Result<Vec<Segment>, ReadError>>;

/// Hosts that have each other's answers, and an image of which the owners have every chunk.
async fn acquainted(config: &ReadPathConfig) -> (World, Image) {
    let world = World::new(&HOSTS, config);
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, 800) });
    world.origin.set_delay(20 * MILLI);
    for host in HOSTS {
        for chunk in (0..800).filter(|chunk| world.owner(&image, *chunk) == host) {
            world.host(host).read_chunk(&image, chunk).await.unwrap();
        }
    }
    world.flush();
    for owner in ["b", "c"] {
        let first = world.span_of(&image, owner, 20);
        for chunk in (first..first + 16).chain(first..first + 16) {
            world.host("a").read_chunk(&image, chunk).await.unwrap();
        }
    }
    for owner in ["b", "c"] {
        // Late enough to be under way when the host stops.
        world.network.set(owner, PeerFaultMode::Slow(5 * MILLI));
    }
    (world, image)
}

/// Starts to read the first chunks of an owner's first span.
async fn start_reads(world: &World, image: &Image, owner: &str, count: u64) -> Vec<Read> {
    let first = world.span_of(image, owner, 0);
    let view = world.host("a").view(image);
    let reads = (first..first + count).map(|chunk| view.read(chunk * CHUNK as u64, CHUNK));
    let reads = reads.map(tokio::spawn).collect();
    // They are asked, and no answer is there.
    sleep(MILLI).await;
    reads
}

async fn served(reads: Vec<Read>) {
    for read in reads {
        read.await.unwrap().unwrap();
    }
}

/// Returns the counters of host a that count against others.
fn judged(world: &World) -> Vec<(String, u64)> {
    let host = world.host("a");
    let counts = [
        "acstor_peers_circuit_open",
        "acstor_peers_loaded",
        "acstor_peer_fetches_total{outcome=\"timeout\"}",
        "acstor_peer_fetches_total{outcome=\"dead\"}",
        "acstor_peer_fetches_total{outcome=\"overtaken\"}",
        "acstor_hedges_total{outcome=\"started\"}",
        "acstor_hedges_total{outcome=\"rescued\"}",
        "acstor_hedges_total{outcome=\"denied\"}",
        "acstor_origin_refusals_total{reason=\"timeout\"}",
        "acstor_read_chunks_total{tier=\"origin\"}",
    ];
    let counts = counts.map(|name| (name.to_owned(), host.metric(name)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn test_host_that_stood_still_judges_no_peer_and_asks_nobody_else() {
    for time in [SECOND, 3 * SECOND, 10 * SECOND, 600 * SECOND] {
        let (world, image) = acquainted(&config()).await;
        let before = judged(&world);
        let calls = world.origin.call_count();
        let mut reads = start_reads(&world, &image, "b", 8).await;
        reads.extend(start_reads(&world, &image, "c", 8).await);
        advance(time).await;
        served(reads).await;
        assert_eq!((judged(&world), world.origin.call_count()), (before, calls), "{time:?}");
        let host = world.host("a");
        assert_eq!(host.metric("acstor_runtime_stalls_total"), 1);
        let stalled = host.metrics()["acstor_runtime_stalled_seconds_total"];
        assert!((stalled - time.as_secs_f64()).abs() < 0.1, "{stalled} of {time:?}");
    }
}

/// Standstills of a second with some seconds between: no load of anybody's.
#[tokio::test(start_paused = true)]
async fn test_host_that_stands_still_now_and_then_takes_nobody_for_slow() {
    let config = ReadPathConfig { load_aware: true, ..config() };
    let (world, image) = acquainted(&config).await;
    let calls = world.origin.call_count();
    let first = world.span_of(&image, "b", 0);
    for round in 0..20 {
        let read = tokio::spawn(world.host("a").view(&image).read(first * CHUNK as u64, CHUNK));
        sleep(MILLI).await;
        advance(SECOND).await;
        read.await.unwrap().unwrap();
        for chunk in first + 1..first + 16 {
            sleep(150 * MILLI).await;
            world.host("a").read_chunk(&image, chunk).await.unwrap();
        }
        let loaded = world.host("a").metric("acstor_peers_loaded");
        assert_eq!((loaded, world.origin.call_count()), (0, calls), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_peer_that_is_silent_is_found_in_its_time_by_a_host_that_runs() {
    let config = ReadPathConfig { hedge_enabled: false, ..config() };
    let (world, image) = acquainted(&config).await;
    world.network.set("b", PeerFaultMode::Stalled);
    let start = Instant::now();
    served(start_reads(&world, &image, "b", 1).await).await;
    assert!(start.elapsed() < config.peer_deadline + 100 * MILLI, "{:?}", start.elapsed());
    assert_eq!(world.host("a").fetches("timeout"), 1);
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_peer_that_is_silent_is_found_after_a_standstill_in_what_was_left() {
    let config = ReadPathConfig { hedge_enabled: false, ..config() };
    let (world, image) = acquainted(&config).await;
    world.network.set("b", PeerFaultMode::Stalled);
    let reads = start_reads(&world, &image, "b", 1).await;
    sleep(SECOND).await;
    advance(100 * SECOND).await;
    let resumed = Instant::now();
    served(reads).await;
    let waited = resumed.elapsed();
    assert!(waited > 900 * MILLI && waited < 1100 * MILLI, "{waited:?}");
    assert_eq!(world.host("a").fetches("timeout"), 1);
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
}

/// A host that never runs on time: later, but found.
#[tokio::test(start_paused = true)]
async fn test_peer_that_is_silent_is_found_by_a_host_that_is_always_late() {
    let config = ReadPathConfig { hedge_enabled: false, ..config() };
    let (world, image) = acquainted(&config).await;
    world.network.set("b", PeerFaultMode::Stalled);
    let reads = start_reads(&world, &image, "b", 1).await;
    let start = Instant::now();
    while !reads.iter().all(JoinHandle::is_finished) {
        advance(200 * MILLI).await;
        for _ in 0..50 {
            yield_now().await;
        }
        assert!(start.elapsed() < 5 * config.peer_deadline, "not found");
    }
    assert!(start.elapsed() > config.peer_deadline);
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_hedge_of_a_late_peer_comes_after_a_standstill_too() {
    let (world, image) = acquainted(&config()).await;
    world.network.set("b", PeerFaultMode::Stalled);
    let reads = start_reads(&world, &image, "b", 1).await;
    advance(100 * SECOND).await;
    let resumed = Instant::now();
    served(reads).await;
    let latest = config().hedge_max + 100 * MILLI;
    assert!(resumed.elapsed() < latest, "{:?}", resumed.elapsed());
    assert_eq!(world.host("a").metric("acstor_hedges_total{outcome=\"won\"}"), 1);
}

/// Nor is the origin down, or a read over, because this host stood still.
#[tokio::test(start_paused = true)]
async fn test_host_that_stood_still_finds_the_origin_up_and_fails_no_read() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape { chunks_per_pack: 1, ..Shape::plain(1, 64) });
    world.origin.set_delay(50 * MILLI);
    let view = world.host("a").view(&image);
    let reads: Vec<Read> =
        (0..16).map(|chunk| tokio::spawn(view.read(4 * chunk * CHUNK as u64, CHUNK))).collect();
    sleep(MILLI).await;
    advance(3 * config().read_deadline).await;
    served(reads).await;
    let host = world.host("a");
    assert_eq!(host.metric("acstor_origin_up"), 1);
    assert_eq!(host.metric("acstor_origin_refusals_total{reason=\"timeout\"}"), 0);
    assert_eq!(world.origin.call_count(), 16, "each chunk once");
}

/// Nor does the disk of the chunk store hang; one that does is found all the same.
#[tokio::test(start_paused = true)]
async fn test_host_that_stood_still_finds_its_disk_answering() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape::plain(1, 8));
    let host = world.host("a");
    host.read_chunk(&image, 0).await.unwrap();
    world.flush();
    host.store.is_cold.store(true, std::sync::atomic::Ordering::Relaxed);
    host.store.set_hung(true);
    let late = "acstor_store_reads_total{outcome=\"late\"}";
    let digest = image.digest(0);
    let reading = host.path.sources.chunks.reader.start(&digest, 0..CHUNK).unwrap();
    let waiting = tokio::spawn(reading.wait());
    sleep(MILLI).await;
    advance(100 * SECOND).await;
    sleep(MILLI).await;
    assert_eq!(host.metric(late), 0, "it was not asked for a second of this host's time");
    assert_eq!(waiting.await.unwrap(), None);
    assert_eq!(host.metric(late), 1);
    host.store.set_hung(false);
}
