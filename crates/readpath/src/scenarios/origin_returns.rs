//! Waiting reads once their origin answers again, or has the chunk elsewhere.

use std::time::Duration;

use acstor_selection::limits;
use acstor_types::PackId;
use tokio::time::Instant;

use super::image::{CHUNK, Image, Shape};
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::{ReadError, ReadPathConfig};

const SECOND: Duration = Duration::from_secs(1);

fn one_host(config: &ReadPathConfig, chunks: usize) -> (World, Image) {
    let world = World::new(&["a"], config);
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, chunks) });
    (world, image)
}

/// Reads of `len` bytes each that begin at the same moment, far from each other.
struct Reads(Vec<tokio::task::JoinHandle<Result<(), ReadError>>>);

impl Reads {
    fn start(world: &World, image: &Image, count: usize, len: usize) -> Reads {
        let view = world.host("a").view(image);
        let apart = (image.content.len() / count) as u64;
        let offset = |number: usize| number as u64 * (apart - apart % CHUNK as u64);
        let reads = (0..count).map(|number| view.read(offset(number), len));
        Reads(reads.map(|read| tokio::spawn(async { read.await.map(|_| ()) })).collect())
    }

    async fn failed(self) -> usize {
        let mut failed = 0;
        for read in self.0 {
            failed += usize::from(read.await.unwrap().is_err());
        }
        failed
    }
}

/// Has an origin do so for a time while reads begin; returns how many failed, and how long after its
/// return the last one ended.
async fn outage(
    fault_mode: OriginFaultMode,
    time: Duration,
    count: usize,
    len: usize,
) -> (usize, Duration) {
    let (world, image) = one_host(&config(), 4 * count * len.div_ceil(CHUNK));
    world.origin.set(fault_mode);
    let reads = Reads::start(&world, &image, count, len);
    tokio::time::sleep(time).await;
    world.origin.set(OriginFaultMode::Well);
    let returned = Instant::now();
    (reads.failed().await, returned.elapsed())
}

#[tokio::test(start_paused = true)]
async fn test_origin_away_for_seconds_is_no_error_however_many_wait() {
    for count in [200, 1000] {
        let (failed, late) = outage(OriginFaultMode::Down, 2 * SECOND, count, CHUNK).await;
        assert_eq!(failed, 0, "of {count}");
        assert!(late <= limits::ORIGIN_OPEN_MAX + limits::BACKOFF_MAX, "{count}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_origin_stalled_for_longer_than_its_deadline_is_no_error() {
    for count in [200, 1000] {
        let (failed, late) = outage(OriginFaultMode::Hangs, 12 * SECOND, count, CHUNK).await;
        assert_eq!(failed, 0, "of {count}");
        assert!(late <= SECOND, "{count}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_large_reads_beside_a_stalled_origin_are_no_errors() {
    let (failed, late) = outage(OriginFaultMode::Hangs, 12 * SECOND, 12, 16 * CHUNK).await;
    assert_eq!(failed, 0);
    assert!(late <= SECOND, "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn test_origin_away_for_seconds_is_no_error_on_one_of_three_hosts() {
    let world = World::new(&["a", "b", "c"], &config());
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, 2400) });
    world.origin.set(OriginFaultMode::Down);
    let reads = Reads::start(&world, &image, 600, CHUNK);
    tokio::time::sleep(3 * SECOND).await;
    world.origin.set(OriginFaultMode::Well);
    assert_eq!(reads.failed().await, 0);
}

/// Nothing is left to retry with, and the origin stays away: the chunk comes to this host another way.
#[tokio::test(start_paused = true)]
async fn test_waiting_read_finds_what_came_to_this_host_meanwhile() {
    let (world, image) = one_host(&config(), 8);
    let host = world.host("a");
    world.origin.set(OriginFaultMode::Down);
    let read = tokio::spawn(host.view(&image).read(0, CHUNK));
    tokio::time::sleep(5 * SECOND).await;
    let chunk = bytes::Bytes::copy_from_slice(&image.content[..CHUNK]);
    host.path.sources.chunks.insert(image.digest(0), chunk);
    let came = Instant::now();
    let segments = read.await.unwrap().unwrap();
    super::world::check(&image, 0, CHUNK, &segments);
    assert!(came.elapsed() <= limits::BACKOFF_MAX, "{:?}", came.elapsed());
}

fn first_pack() -> PackId {
    Image::pack(1, 0)
}

fn other_pack() -> PackId {
    Image::pack(9, 9)
}

/// The host was away for longer than a collected pack is kept, and its guests start first.
#[tokio::test(start_paused = true)]
async fn test_read_of_a_missing_pack_waits_for_the_manifest_that_names_another() {
    let (world, image) = one_host(&config(), 8);
    world.origin.copy_pack(first_pack(), other_pack());
    world.origin.remove_pack(first_pack());
    let read = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    tokio::time::sleep(5 * SECOND).await;
    assert!(!read.is_finished());
    let moved = image.moved(first_pack(), other_pack());
    world.host("a").path.attach(moved.manifest.clone()).unwrap();
    let published = Instant::now();
    let segments = read.await.unwrap().unwrap();
    super::world::check(&image, 0, CHUNK, &segments);
    assert!(published.elapsed() <= limits::BACKOFF_MAX, "{:?}", published.elapsed());
}

/// The new manifest comes while the origin is away: what it names is asked for at the pace of any retry.
#[tokio::test(start_paused = true)]
async fn test_read_that_is_sent_elsewhere_while_the_origin_is_away_does_not_spin() {
    let (world, image) = one_host(&config(), 8);
    let host = world.host("a");
    world.origin.copy_pack(first_pack(), other_pack());
    world.origin.remove_pack(first_pack());
    let read = tokio::spawn(host.view(&image).read(0, CHUNK));
    tokio::time::sleep(5 * SECOND).await;
    world.origin.set(OriginFaultMode::Down);
    let moved = image.moved(first_pack(), other_pack());
    host.path.attach(moved.manifest.clone()).unwrap();
    let rounds = || {
        let refused = host.metric("acstor_origin_refusals_total{reason=\"down\"}");
        world.origin.call_count() + refused as usize
    };
    let before = rounds();
    for _ in 0..500 {
        // Time passes though somebody may be busy without a pause.
        tokio::time::advance(SECOND / 50).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(rounds() - before <= 30, "{} rounds", rounds() - before);
    }
    world.origin.set(OriginFaultMode::Well);
    super::world::check(&image, 0, CHUNK, &read.await.unwrap().unwrap());
}

/// A read that waits for a pack that hangs goes where the new manifest says.
#[tokio::test(start_paused = true)]
async fn test_read_of_a_hung_pack_follows_the_manifest() {
    let (world, image) = one_host(&config(), 8);
    world.origin.copy_pack(first_pack(), other_pack());
    world.origin.hang_packs([first_pack()]);
    let read = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    tokio::time::sleep(SECOND).await;
    let moved = image.moved(first_pack(), other_pack());
    world.host("a").path.attach(moved.manifest.clone()).unwrap();
    let start = Instant::now();
    super::world::check(&image, 0, CHUNK, &read.await.unwrap().unwrap());
    let late = config().origin_deadline + limits::BACKOFF_MAX;
    assert!(start.elapsed() <= late, "{:?}", start.elapsed());
    assert_eq!(world.origin.stuck(), 1, "the old pack hangs on");
    world.origin.release_packs();
}

/// Two disks share a chunk, and the pack that the first one's manifest names hangs.
#[tokio::test(start_paused = true)]
async fn test_read_of_a_hung_pack_goes_where_a_twin_disk_has_the_chunk() {
    let (world, image) = one_host(&config(), 8);
    let host = world.host("a");
    world.origin.copy_pack(first_pack(), other_pack());
    world.origin.hang_packs([first_pack()]);
    let hung = tokio::spawn(host.view(&image).read(0, CHUNK));
    tokio::time::sleep(SECOND).await;
    let twin = image.moved(first_pack(), other_pack()).twin(2);
    let start = Instant::now();
    let other = tokio::spawn(host.path.attach(twin.manifest).unwrap().read(0, CHUNK));
    for read in [hung, other] {
        super::world::check(&image, 0, CHUNK, &read.await.unwrap().unwrap());
    }
    let late = config().origin_deadline + limits::BACKOFF_MAX;
    assert!(start.elapsed() <= late, "{:?}", start.elapsed());
    assert_eq!(world.origin.stuck(), 1, "the first disk's pack hangs on");
    world.origin.release_packs();
}

/// Two disks share a chunk, and only the second one's manifest says where it is.
#[tokio::test(start_paused = true)]
async fn test_read_joins_the_flight_of_a_stale_disk_and_both_are_served() {
    let (world, image) = one_host(&config(), 8);
    let host = world.host("a");
    world.origin.copy_pack(first_pack(), other_pack());
    world.origin.remove_pack(first_pack());
    let stale = tokio::spawn(host.view(&image).read(0, CHUNK));
    tokio::time::sleep(SECOND).await;
    let twin = image.moved(first_pack(), other_pack()).twin(2);
    let start = Instant::now();
    let other = tokio::spawn(host.path.attach(twin.manifest).unwrap().read(0, CHUNK));
    for read in [stale, other] {
        super::world::check(&image, 0, CHUNK, &read.await.unwrap().unwrap());
    }
    assert!(start.elapsed() <= limits::BACKOFF_MAX, "{:?}", start.elapsed());
}

/// One thread, so that a prefetch has none: what it waits for says nothing of the origin.
#[tokio::test(start_paused = true)]
async fn test_sequential_reader_that_pauses_is_served_by_one_thread() {
    let config = ReadPathConfig { origin_threads: 1, prefetch_max_bytes: 1 << 20, ..config() };
    let (world, image) = one_host(&config, 2000);
    let host = world.host("a");
    for number in 0..16 {
        host.read(&image, (number * 32 * CHUNK) as u64, 32 * CHUNK).await.unwrap();
    }
    assert!(host.metric("acstor_prefetch_chunks_total{outcome=\"issued\"}") > 5);
    // Longer than a prefetch waits for its turn.
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(host.metric("acstor_origin_up"), 1);
    let start = Instant::now();
    host.read(&image, (16 * 32 * CHUNK) as u64, 32 * CHUNK).await.unwrap();
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}
