//! Boots that are read ahead along a profile: right ones, wrong ones, and what goes before them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerStatus, Promoter};
use acstor_selection::{BootKind, BootProfile, limits as selection_limits};
use acstor_types::RequestClass;
use tokio::time::{Instant, sleep};

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::offering::offer;
use super::world::{TestHost, World, check, config};
use crate::{BlockView, Keep, ReadPathConfig, TryRead, limits};

const MILLI: Duration = Duration::from_millis(1);
/// Time that a guest of these tests thinks before each read.
const THINK: Duration = Duration::from_millis(4);
const FLOOR: u64 = selection_limits::READ_AHEAD_FLOOR;

/// Chunks of an image all over it, in the order of a boot.
fn order(chunks: u64, count: usize) -> Vec<u32> {
    let mut at = 1_u64;
    let mut seen = HashSet::new();
    let next = || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((at >> 33) % chunks) as u32)
    };
    std::iter::from_fn(next).filter(|chunk| seen.insert(*chunk)).take(count).collect()
}

/// Gives a host the profile of an image with one kind of boot.
fn set(host: &TestHost, image: &Image, chunks: &[u32]) {
    let kind = BootKind { chunks: chunks.to_vec(), weight: 1 };
    let profile = Arc::new(BootProfile::new(vec![kind]).unwrap());
    host.path.records(&image.id()).unwrap().boot_profile.store(Some(profile));
}

fn world(names: &[&str], config: &ReadPathConfig) -> (World, Image) {
    let world = World::new(names, config);
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 4096) });
    world.origin.set_delay(5 * MILLI);
    (world, image)
}

fn ahead(host: &TestHost, outcome: &str) -> u64 {
    host.metric(&format!("acstor_read_ahead_bytes_total{{outcome=\"{outcome}\"}}"))
}

/// Reads a chunk as a front end does.
async fn read(view: &Arc<dyn BlockView>, image: &Image, chunk: u32) {
    let offset = u64::from(chunk) * CHUNK as u64;
    let segments = match view.try_read(offset, CHUNK).unwrap() {
        TryRead::Ready(segments) => segments,
        TryRead::WouldWait => view.read(offset, CHUNK).await.unwrap(),
    };
    check(image, offset, CHUNK, &segments);
}

/// Boots from an image; returns the time that it took.
async fn boot(host: &TestHost, image: &Image, chunks: &[u32]) -> Duration {
    let view = host.view(image);
    let start = Instant::now();
    view.opened();
    for chunk in chunks {
        sleep(THINK).await;
        read(&view, image, *chunk).await;
    }
    let time = start.elapsed();
    view.closed();
    sleep(MILLI).await;
    time
}

#[tokio::test(start_paused = true)]
async fn test_boot_with_a_right_profile_takes_little_more_than_its_think_time() {
    let config = ReadPathConfig { origin_threads: 16, ..config() };
    for names in [&["a"][..], &["a", "b", "c"][..]] {
        let chunks = order(4096, 1500);
        let think = THINK * 1500;
        let (plain, image) = world(names, &config);
        let without = boot(plain.host("a"), &image, &chunks).await;
        assert!(without > think * 3 / 2, "{without:?}");
        let (world, image) = world(names, &config);
        let host = world.host("a");
        set(host, &image, &chunks);
        let with = boot(host, &image, &chunks).await;
        assert!(with <= think * 11 / 10, "{with:?} of {think:?}, without it {without:?}");
        let (used, late) = (ahead(host, "used"), ahead(host, "late"));
        assert!(ahead(host, "ordered") <= 1500 * CHUNK as u64, "each once");
        assert!(used + late >= 1400 * CHUNK as u64, "{used} and {late}");
        assert_eq!(ahead(host, "wasted"), 0);
        assert!(world.origin.bytes() <= plain.origin.bytes(), "nothing left the origin twice");
        assert!(world.origin.call_count() < plain.origin.call_count(), "neighbours together");
    }
}

#[tokio::test(start_paused = true)]
async fn test_profile_of_another_image_costs_the_floor_and_hardly_any_time() {
    let all = order(4096, 3000);
    let (booted, other) = all.split_at(1000);
    for names in [&["a"][..], &["a", "b", "c"][..]] {
        let (plain, image) = world(names, &config());
        let without = boot(plain.host("a"), &image, booted).await;
        let (world, image) = world(names, &config());
        let host = world.host("a");
        set(host, &image, other);
        let with = boot(host, &image, booted).await;
        assert!(with <= without * 103 / 100, "{with:?} instead of {without:?}");
        assert_eq!(ahead(host, "ordered"), FLOOR);
        assert_eq!(ahead(host, "wasted"), FLOOR);
        assert_eq!(ahead(host, "used") + ahead(host, "late"), 0);
        assert!(world.origin.bytes() as u64 <= plain.origin.bytes() as u64 + FLOOR);
    }
}

#[tokio::test(start_paused = true)]
async fn test_profile_of_a_larger_image_names_chunks_that_are_not_there() {
    let (world, image) = world(&["a"], &config());
    let host = world.host("a");
    set(host, &image, &(4000..9000).collect::<Vec<_>>());
    boot(host, &image, &[1, 2, 4000]).await;
    assert_eq!(ahead(host, "ordered"), 96 * CHUNK as u64);
    assert_eq!(host.metric("acstor_flights"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_offered_image_is_read_ahead_with_the_manifest_that_its_open_brings() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 64), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    let host = world.host("a");
    set(host, &image, &(0..64).collect::<Vec<_>>());
    assert_eq!(source.reads(), 0);
    view.opened();
    while world.origin.bytes() < 64 * CHUNK {
        sleep(MILLI).await;
    }
    assert_eq!(source.reads(), 1);
    read(&view, &image, 7).await;
    assert_eq!(ahead(host, "used"), CHUNK as u64);
    view.closed();
    sleep(limits::LEFT_AHEAD_AGE_MAX + MILLI).await;
    assert_eq!(ahead(host, "wasted"), 63 * CHUNK as u64);
}

#[tokio::test(start_paused = true)]
async fn test_demand_goes_before_read_ahead_at_the_owner_and_at_its_origin() {
    // One thread: only what somebody waits for is ever read.
    let config = ReadPathConfig { origin_threads: 1, ..config() };
    for owner in ["a", "b"] {
        let (world, image) = world(&["a", "b"], &config);
        let host = world.host("a");
        let first = world.span_of(&image, owner, 0) as u32;
        let other = world.span_of(&image, owner, u64::from(first) / 16 + 1);
        set(host, &image, &(first..first + 16).collect::<Vec<_>>());
        let view = host.view(&image);
        view.opened();
        sleep(50 * MILLI).await;
        assert_eq!(ahead(host, "ordered"), 16 * CHUNK as u64);
        assert_eq!(world.origin.call_count(), 0, "read-ahead waits in its lane");
        for chunk in [other as u32, first + 3] {
            let start = Instant::now();
            read(&view, &image, chunk).await;
            assert!(start.elapsed() <= 10 * MILLI, "{chunk} of {owner}: {:?}", start.elapsed());
        }
        assert_eq!(world.origin.bytes(), 2 * CHUNK, "the guest's own reads only");
        assert_eq!(ahead(host, "late"), CHUNK as u64);
        if owner == "b" {
            assert_eq!(world.network.asked("b").len(), 17, "promoted, not asked for again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn test_close_takes_back_what_nobody_waits_for() {
    let config = ReadPathConfig { origin_threads: 1, ..config() };
    for owner in ["a", "b"] {
        let (world, image) = world(&["a", "b"], &config);
        let host = world.host("a");
        let first = world.span_of(&image, owner, 0) as u32;
        set(host, &image, &(first..first + 16).collect::<Vec<_>>());
        let view = host.view(&image);
        view.opened();
        sleep(50 * MILLI).await;
        assert_eq!(host.metric("acstor_flights"), 16);
        view.closed();
        sleep(50 * MILLI).await;
        assert_eq!(host.metric("acstor_flights"), 0);
        assert_eq!(world.host(owner).metric("acstor_flights"), 0);
        read(&view, &image, first + 3).await;
        assert_eq!(world.origin.bytes(), CHUNK);
        assert_eq!(ahead(host, "wasted"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn test_full_memory_holds_no_more_than_its_bound_and_the_boot_goes_on() {
    let budget = 40 * CHUNK;
    let config = ReadPathConfig { read_ahead_bytes: budget, ..config() };
    let (world, image) = world(&["a", "b", "c"], &config);
    let host = world.host("a");
    let chunks = order(4096, 600);
    set(host, &image, &chunks);
    let view = host.view(&image);
    view.opened();
    for chunk in chunks {
        sleep(THINK).await;
        read(&view, &image, chunk).await;
        assert!(host.metric("acstor_read_ahead_held_bytes") <= budget as u64);
    }
    assert!(ahead(host, "used") >= 500 * CHUNK as u64, "{}", ahead(host, "used"));
    view.closed();
    sleep(limits::LEFT_AHEAD_AGE_MAX + MILLI).await;
    assert_eq!(host.metric("acstor_read_ahead_held_bytes"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_inspection_leaves_what_it_brought_to_the_boot_after_it() {
    let (world, image) = world(&["a", "b", "c"], &config());
    let host = world.host("a");
    let chunks = order(4096, 300);
    set(host, &image, &chunks);
    let view = host.view(&image);
    view.opened();
    sleep(Duration::from_secs(1)).await;
    read(&view, &image, chunks[0]).await;
    view.closed();
    sleep(Duration::from_secs(1)).await;
    let (asked, bytes) = (world.network.asked_count(), world.origin.bytes());
    assert!(asked > 100 && bytes == 300 * CHUNK);
    boot(host, &image, &chunks).await;
    assert_eq!((world.network.asked_count(), world.origin.bytes()), (asked, bytes));
    assert_eq!(ahead(host, "ordered"), 300 * CHUNK as u64);
    let (used, late) = (ahead(host, "used") / CHUNK as u64, ahead(host, "late") / CHUNK as u64);
    assert!(used >= asked as u64, "{used} used and {late} late of {asked}");
}

#[tokio::test(start_paused = true)]
async fn test_read_ahead_is_kept_and_counts_as_touched_only_when_it_is_read() {
    let config = ReadPathConfig { keep: Keep::Always, ..config() };
    let (world, image) = world(&["a", "b"], &config);
    let host = world.host("a");
    let first = world.span_of(&image, "b", 0) as u32;
    set(host, &image, &(first..first + 16).collect::<Vec<_>>());
    let view = host.view(&image);
    view.opened();
    sleep(100 * MILLI).await;
    world.flush();
    assert_eq!(host.store.digests(), HashSet::new());
    assert_eq!(host.metric("acstor_read_ahead_held_bytes"), 16 * CHUNK as u64);
    read(&view, &image, first + 1).await;
    world.flush();
    assert_eq!(host.store.digests(), HashSet::from([image.digest(first as usize + 1)]));
    assert_eq!(host.tier("recent"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_streams_are_silent_where_a_profile_leads() {
    let config = ReadPathConfig { prefetch_max_bytes: 1 << 20, ..config() };
    let (world, image) = world(&["a", "b"], &config);
    let host = world.host("a");
    let chunks: Vec<u32> = (0..2000).collect();
    set(host, &image, &chunks);
    boot(host, &image, &chunks).await;
    assert_eq!(host.metric("acstor_prefetch_chunks_total{outcome=\"issued\"}"), 0);
    // What no profile names is followed as ever.
    boot(host, &image, &(2000..3500).collect::<Vec<_>>()).await;
    assert!(host.metric("acstor_prefetch_chunks_total{outcome=\"issued\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_nothing_is_ordered_without_memory_or_profile() {
    let chunks: Vec<u32> = (0..64).collect();
    let off = ReadPathConfig { read_ahead_bytes: 0, ..config() };
    for (config, is_profiled) in [(off, true), (config(), false)] {
        let (world, image) = world(&["a", "b"], &config);
        let host = world.host("a");
        if is_profiled {
            set(host, &image, &chunks);
        }
        boot(host, &image, &chunks).await;
        assert_eq!(ahead(host, "ordered"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn test_room_under_way_follows_the_rate_that_is_told() {
    let (world, image) = world(&["a", "b"], &ReadPathConfig { origin_threads: 1, ..config() });
    let host = world.host("a");
    set(host, &image, &(0..64).collect::<Vec<_>>());
    // Full: no more than keeps it busy, behind all demand.
    host.path.set_free_rate(Some(0));
    host.view(&image).opened();
    sleep(50 * MILLI).await;
    assert_eq!(host.metric("acstor_flights"), 2);
    host.path.set_free_rate(Some(1_000_000));
    sleep(50 * MILLI).await;
    assert_eq!(host.metric("acstor_flights"), 4, "20 ms at that rate");
}

#[tokio::test(start_paused = true)]
async fn test_guests_that_boot_one_after_the_other_on_a_host_are_both_read_ahead() {
    let config = ReadPathConfig { origin_threads: 16, ..config() };
    let (world, image) = world(&["a", "b", "c"], &config);
    let host = world.host("a");
    let chunks = order(4096, 1000);
    set(host, &image, &chunks);
    let think = THINK * 1000;
    let (one, other) = tokio::join!(boot(host, &image, &chunks), async {
        sleep(Duration::from_secs(1)).await;
        boot(host, &image, &chunks).await
    });
    assert!(one <= think * 11 / 10 && other <= think * 11 / 10, "{one:?} {other:?} of {think:?}");
    assert!(world.origin.bytes() <= 1000 * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn test_serve_answers_in_the_class_of_the_request_and_promotes_with_it() {
    for class in [RequestClass::Ahead, RequestClass::Preload] {
        // No thread but for demand, and one for preloads.
        let (world, image) = world(&["a"], &ReadPathConfig { origin_threads: 1, ..config() });
        // The thread that preloads may have is busy.
        let other = world.image(Shape::plain(2, 64));
        world.origin.hang_packs([Image::pack(2, 0)]);
        let path = &world.host("a").path;
        let busy = request(&other, 0);
        let by = Instant::now() + Duration::from_secs(9);
        let held = Promoter::new(RequestClass::Preload);
        let _held = tokio::spawn(path.serve(busy, held.watch(), by));
        sleep(10 * MILLI).await;
        let promoter = Promoter::new(class);
        let served = tokio::spawn(path.serve(request(&image, 5), promoter.watch(), by));
        sleep(500 * MILLI).await;
        assert!(!served.is_finished(), "{class:?} waits in its lane");
        promoter.promote(RequestClass::Demand);
        let start = Instant::now();
        assert!(image.digest(5).matches(&served.await.unwrap().unwrap()));
        assert!(start.elapsed() <= 10 * MILLI);
        world.origin.release_packs();
    }
}

fn request(image: &Image, index: usize) -> ChunkRequest {
    ChunkRequest {
        digest: image.digest(index),
        disk_id: image.id(),
        chunk_index: index as u64,
        chunk_size: image.manifest.chunk_size(),
        accepts_compressed: false,
    }
}

#[tokio::test(start_paused = true)]
async fn test_read_ahead_that_waits_tells_nothing_of_a_peer() {
    let (world, image) = world(&["a", "b"], &config());
    let host = world.host("a");
    let first = world.span_of(&image, "b", 0) as u32;
    set(host, &image, &(first..first + 16).collect::<Vec<_>>());
    world.network.set("b", PeerFaultMode::Stalled);
    host.view(&image).opened();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(host.fetches("timeout"), 16);
    assert_eq!(host.metric("acstor_peers_circuit_open"), 0);
    assert_eq!(host.metric("acstor_hedges_total{outcome=\"started\"}"), 0);
    // The same silence with a guest that waits for it is one.
    host.read_chunk(&image, u64::from(first)).await.unwrap();
    assert_eq!(host.metric("acstor_hedges_total{outcome=\"started\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_promoted_fetch_counts_from_its_promotion() {
    let config = ReadPathConfig { origin_threads: 1, ..config() };
    let (world, image) = world(&["a", "b"], &config);
    let host = world.host("a");
    let first = world.span_of(&image, "b", 0) as u32;
    set(host, &image, &(first..first + 16).collect::<Vec<_>>());
    let view = host.view(&image);
    view.opened();
    sleep(Duration::from_secs(1)).await;
    assert!(host.path.peer_latencies(9).is_empty());
    read(&view, &image, first).await;
    let latencies = host.path.peer_latencies(9);
    assert_eq!(latencies.len(), 1);
    assert_eq!(latencies[0].fetches, 1);
    assert!(latencies[0].p99 <= 20 * MILLI, "{latencies:?}");
}

#[tokio::test(start_paused = true)]
async fn test_owner_keeps_half_of_its_permits_for_demand() {
    let config = ReadPathConfig { origin_threads: 1, serve_inflight_max: 4, ..config() };
    let (world, image) = world(&["a"], &config);
    let path = &world.host("a").path;
    let by = Instant::now() + Duration::from_secs(9);
    let ahead = Promoter::new(RequestClass::Ahead);
    let waiting: Vec<_> = (0..2)
        .map(|index| tokio::spawn(path.serve(request(&image, index), ahead.watch(), by)))
        .collect();
    sleep(10 * MILLI).await;
    let refused = path.serve(request(&image, 2), ahead.watch(), by).await;
    assert_eq!(refused.unwrap_err(), PeerStatus::Overloaded);
    let served = path.serve(request(&image, 2), ClassWatch::DEMAND, by).await;
    assert!(image.digest(2).matches(&served.unwrap()));
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
}
