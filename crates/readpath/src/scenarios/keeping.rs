//! Placement of kept chunks: the keep policy, the recent chunks, a store that fails.

use std::sync::atomic::Ordering;

use super::image::{CHUNK, Image, Shape};
use super::world::{World, config};
use crate::{Keep, PlacementRule, ReadPathConfig};

fn world(keep: Keep) -> (World, Image, u64) {
    let world = World::new(&["a", "b"], &ReadPathConfig { keep, ..config() });
    let image = world.image(Shape::plain(1, 160));
    let chunk = world.span_of(&image, "b", 0);
    (world, image, chunk)
}

/// Reads a chunk of host b on host a, forgetting in between what is only in memory.
async fn read_twice(world: &World, image: &Image, chunk: u64) -> usize {
    for _ in 0..2 {
        world.host("a").read_chunk(image, chunk).await.unwrap();
        // 4 MiB of other chunks push it out of the recent ones.
        let filler = world.image(Shape { chunks_per_pack: 256, ..Shape::plain(9, 1100) });
        world.host("a").read(&filler, 0, 1100 * CHUNK).await.unwrap();
    }
    world.flush();
    let digest = image.digest(chunk as usize);
    assert!(world.host("b").store.digests().contains(&digest), "the owner keeps it always");
    usize::from(world.host("a").store.digests().contains(&digest))
}

#[tokio::test(start_paused = true)]
async fn test_keep_never_leaves_chunks_to_their_owner() {
    let (world, image, chunk) = world(Keep::Never);
    assert_eq!(read_twice(&world, &image, chunk).await, 0);
    assert_eq!(
        world.network.asked("b").iter().filter(|a| a.request.disk_id == image.id()).count(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn test_keep_second_touch_keeps_at_the_second_fetch() {
    let (world, image, chunk) = world(Keep::SecondTouch);
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    world.flush();
    assert!(world.host("a").store.digests().is_empty());
    assert_eq!(read_twice(&world, &image, chunk).await, 1);
}

#[tokio::test(start_paused = true)]
async fn test_keep_always_keeps_at_once() {
    let (world, image, chunk) = world(Keep::Always);
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_small_reads_of_one_chunk_are_one_fetch_even_when_nothing_is_kept() {
    let (world, image, chunk) = world(Keep::Never);
    for part in 0..16u64 {
        let offset = chunk * CHUNK as u64 + part * 256;
        world.host("a").read(&image, offset, 256).await.unwrap();
    }
    assert_eq!(world.network.asked("b").len(), 1);
    assert_eq!(world.host("a").tier("recent"), 15);
}

#[tokio::test(start_paused = true)]
async fn test_origin_chunks_of_a_dead_owner_are_kept_by_who_read_them() {
    let (world, image, chunk) = world(Keep::Never);
    world.network.set("b", super::network::PeerFaultMode::Dead);
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_store_that_cannot_be_written_costs_nothing_but_the_keeping() {
    let (world, image, _) = world(Keep::Always);
    for host in &world.hosts {
        host.store.fails_writes.store(true, Ordering::Relaxed);
    }
    world.host("a").read(&image, 0, 160 * CHUNK).await.unwrap();
    world.flush();
    assert!(world.host("a").metric("acstor_inserts_total{outcome=\"failed\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_panic_of_the_store_ends_no_thread_that_keeps_chunks() {
    let (world, image, _) = world(Keep::Always);
    let host = world.host("a");
    host.store.panics_writes.store(true, Ordering::Relaxed);
    host.read(&image, 0, 16 * CHUNK).await.unwrap();
    world.flush();
    assert!(host.metric("acstor_inserts_total{outcome=\"failed\"}") > 0);
    host.store.panics_writes.store(false, Ordering::Relaxed);
    host.read(&image, 16 * CHUNK as u64, 16 * CHUNK).await.unwrap();
    world.flush();
    assert!(host.metric("acstor_inserts_total{outcome=\"new\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_insert_queue_full_drops_and_counts() {
    let config = ReadPathConfig { insert_queue_bytes: 4 << 20, ..config() };
    let world = World::new(&["a"], &config);
    let image = world.image(Shape { chunks_per_pack: 256, ..Shape::plain(1, 2000) });
    // The thread that keeps chunks sees none of them while the runtime's thread is busy here.
    world.host("a").read(&image, 0, 2000 * CHUNK).await.unwrap();
    world.flush();
    let kept = world.host("a").metric("acstor_inserts_total{outcome=\"new\"}");
    let dropped = world.host("a").metric("acstor_inserts_total{outcome=\"dropped\"}");
    assert_eq!(kept + dropped, 2000);
    assert_eq!(kept as usize, world.host("a").store.digests().len());
}

#[tokio::test(start_paused = true)]
async fn test_digest_placement_sends_equal_chunks_of_two_disks_to_one_owner() {
    let config = ReadPathConfig { placement: PlacementRule::Digest { span_chunks: 1 }, ..config() };
    let world = World::new(&["a", "b", "c"], &config);
    let image = world.image(Shape::plain(1, 100));
    world.host("a").read(&image, 0, 100 * CHUNK).await.unwrap();
    world.host("b").read(&image, 0, 100 * CHUNK).await.unwrap();
    world.flush();
    let kept: usize = world.hosts.iter().map(|host| host.store.digests().len()).sum();
    assert_eq!(kept, 100);
    assert!(world.hosts.iter().all(|host| !host.store.digests().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn test_equal_chunks_of_two_disks_are_kept_once_on_a_host() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape::plain(1, 100));
    let twin = image.twin(2);
    world.host("a").path.attach(twin.manifest.clone()).unwrap();
    world.host("a").read(&image, 0, 100 * CHUNK).await.unwrap();
    world.flush();
    world.host("a").read(&twin, 0, 100 * CHUNK).await.unwrap();
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), 100);
    assert_eq!(world.origin.bytes(), 100 * CHUNK);
    assert_eq!(world.host("a").tier("store"), 100, "the second disk's are the first one's");
}
