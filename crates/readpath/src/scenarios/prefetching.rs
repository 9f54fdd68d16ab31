//! Fetching ahead of sequential readers.

use std::time::Duration;

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::world::{TestHost, World, config};
use crate::ReadPathConfig;
use crate::fetch::flight::Priority;

const MILLI: Duration = Duration::from_millis(1);
const READ: usize = 32 * CHUNK;

fn world(names: &[&str]) -> (World, Image) {
    let config = ReadPathConfig { prefetch_max_bytes: 1 << 20, ..config() };
    let world = World::new(names, &config);
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 2000) });
    world.origin.set_delay(5 * MILLI);
    (world, image)
}

fn prefetched(host: &TestHost, outcome: &str) -> u64 {
    host.metric(&format!("acstor_prefetch_chunks_total{{outcome=\"{outcome}\"}}"))
}

/// Reads as a front end does: at hand if possible.
async fn read(host: &TestHost, image: &Image, offset: u64, len: usize) {
    let view = host.view(image);
    let segments = match view.try_read(offset, len).unwrap() {
        crate::TryRead::Ready(segments) => segments,
        crate::TryRead::WouldWait => view.read(offset, len).await.unwrap(),
    };
    super::world::check(image, offset, len, &segments);
    tokio::time::sleep(10 * MILLI).await;
}

#[tokio::test(start_paused = true)]
async fn test_sequential_reads_are_fetched_ahead_and_nothing_twice() {
    for names in [&["a"][..], &["a", "b", "c"][..]] {
        let (world, image) = world(names);
        let host = world.host("a");
        for number in 0..62 {
            read(host, &image, (number * READ) as u64, READ).await;
        }
        let (issued, used) = (prefetched(host, "issued"), prefetched(host, "used"));
        assert!(used > 1000, "used {used} of {issued}");
        assert!(used * 10 >= issued * 8, "used {used} of {issued}");
        assert!(world.origin.bytes() <= 2000 * CHUNK, "nothing left the origin twice");
        assert!(host.tier("recent") + host.tier("store") > 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn test_random_reads_fetch_nothing_ahead() {
    let (world, image) = world(&["a"]);
    let mut position = 1u64;
    for _ in 0..300 {
        position = position
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        read(world.host("a"), &image, (position >> 33) % 1900 * CHUNK as u64, CHUNK).await;
    }
    assert_eq!(prefetched(world.host("a"), "issued"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_stream_that_ends_wastes_at_most_a_quarter() {
    let (world, image) = world(&["a"]);
    for number in 0..20 {
        read(world.host("a"), &image, (number * READ) as u64, READ).await;
    }
    let ahead = world.origin.bytes() - 20 * READ;
    assert!(ahead > 0 && ahead <= 20 * READ / 4, "{ahead}");
}

#[tokio::test(start_paused = true)]
async fn test_prefetch_never_takes_the_last_thread_from_demand() {
    // Each chunk is a call, so that the prefetch has more of them than there are threads.
    let origin_run_max_bytes = CHUNK;
    let config = ReadPathConfig { prefetch_max_bytes: 1 << 20, origin_run_max_bytes, ..config() };
    let world = World::new(&["a"], &config);
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 2000) });
    // Where the stream goes nothing returns.
    world.origin.hang_packs((4..8).map(|position| Image::pack(1, position)));
    for number in 0..16 {
        read(world.host("a"), &image, (number * READ) as u64, READ).await;
    }
    let queue = world.host("a").path.sources.origin.queue();
    assert_eq!(world.origin.stuck(), 2, "the prefetch has its share of the four threads");
    assert!(queue.depth() > 4, "and would take all: {}", queue.depth());
    let start = tokio::time::Instant::now();
    world.host("a").read_chunk(&image, 1990).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "demand of another part finds a free thread");
    assert_eq!(world.origin.stuck(), 2, "which was none of those");
    world.origin.release_packs();
}

#[tokio::test(start_paused = true)]
async fn test_demand_that_meets_a_stalled_prefetch_is_hedged() {
    let (world, image) = world(&["a", "b"]);
    let host = world.host("a");
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Stalled);
    let disk = host.path.disk(&image.id()).unwrap();
    let want = disk.want(chunk).unwrap().unwrap();
    let later = host.path.clock().now() + Duration::from_secs(10);
    let flight = host.path.sources.obtain(&disk, &want, Priority::Prefetch, later);
    let start = tokio::time::Instant::now();
    host.read_chunk(&image, chunk).await.unwrap();
    assert!(start.elapsed() <= Duration::from_millis(1050), "{:?}", start.elapsed());
    assert_eq!(world.network.asked("b").len(), 1);
    assert!(flight.wait(later).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn test_demand_promotes_the_prefetch_that_it_meets() {
    // One thread: the prefetch lane has none, so that only demand is ever read.
    let config = ReadPathConfig { origin_threads: 1, prefetch_max_bytes: 1 << 20, ..config() };
    for head_start in [Duration::ZERO, 50 * MILLI] {
        let world = World::new(&["a"], &config);
        let image = world.image(Shape::plain(1, 64));
        let host = world.host("a");
        let disk = host.path.disk(&image.id()).unwrap();
        let later = host.path.clock().now() + Duration::from_secs(10);
        let want = disk.want(3).unwrap().unwrap();
        host.path.sources.obtain(&disk, &want, Priority::Prefetch, later);
        if !head_start.is_zero() {
            tokio::time::sleep(head_start).await;
        }
        assert_eq!(world.origin.call_count(), 0);
        let start = tokio::time::Instant::now();
        host.read_chunk(&image, 3).await.unwrap();
        assert!(start.elapsed() <= 10 * MILLI, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn test_prefetch_off_fetches_nothing_ahead() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 2000) });
    for number in 0..60 {
        read(world.host("a"), &image, (number * READ) as u64, READ).await;
    }
    assert_eq!(prefetched(world.host("a"), "issued"), 0);
    assert_eq!(world.origin.bytes(), 60 * READ);
}

#[tokio::test(start_paused = true)]
async fn test_demand_that_meets_its_prefetch_does_not_read_twice() {
    let (world, image) = world(&["a"]);
    world.origin.set_delay(30 * MILLI);
    let view = world.host("a").view(&image);
    for number in 0..60 {
        let offset = (number * READ) as u64;
        let segments = view.read(offset, READ).await.unwrap();
        super::world::check(&image, offset, READ, &segments);
    }
    let joins = world.host("a").metric("acstor_flight_joins_total{side=\"guest\"}");
    assert!(joins > 0, "demand caught up with the prefetch");
    assert!(world.origin.bytes() <= 60 * READ + (1 << 20));
}
