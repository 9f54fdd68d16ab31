//! Isolation of disks from one whose pack hangs: shares of the origin's threads, and of a peer.

use std::time::Duration;

use tokio::time::Instant;

use super::image::{CHUNK, Image, Shape};
use super::world::{World, config};
use crate::ReadPathConfig;

const SECOND: Duration = Duration::from_secs(1);

/// Starts so many reads, each of a chunk of its own, of an image whose packs hang.
fn hang(world: &World, image: &Image, count: u64) {
    let view = world.host("a").view(image);
    for number in 0..count {
        tokio::spawn(view.read(2 * number * CHUNK as u64, CHUNK));
    }
}

#[tokio::test(start_paused = true)]
async fn test_image_whose_packs_hang_leaves_the_origin_to_others() {
    let world = World::new(&["a"], &config());
    let hung = world.image(Shape::plain(1, 1000));
    let healthy = world.image(Shape::plain(2, 64));
    world.origin.set_delay(Duration::from_millis(1));
    world.origin.hang_packs((0..16).map(|position| Image::pack(1, position)));
    hang(&world, &hung, 500);
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.origin.stuck(), 4, "all that one disk may have");
    let start = Instant::now();
    for index in 0..64 {
        world.host("a").read_chunk(&healthy, index).await.unwrap();
    }
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}

/// Busy, not hung: a disk with many misses does not put off those of another.
#[tokio::test(start_paused = true)]
async fn test_disks_take_turns_at_a_slow_origin() {
    let config = ReadPathConfig { origin_run_max_bytes: CHUNK, ..config() };
    let world = World::new(&["a"], &config);
    let (many, few) = (world.image(Shape::plain(1, 4000)), world.image(Shape::plain(2, 64)));
    world.origin.set_delay(Duration::from_millis(10));
    hang(&world, &many, 2000);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    world.host("a").read_chunk(&few, 0).await.unwrap();
    assert!(start.elapsed() <= Duration::from_millis(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn test_image_whose_packs_hang_leaves_a_peer_to_others() {
    let world = World::with_weights(&[("a", 0), ("b", 1)], &config());
    let hung = world.image(Shape::plain(1, 1000));
    let healthy = world.image(Shape::plain(2, 64));
    world.origin.hang_packs((0..16).map(|position| Image::pack(1, position)));
    hang(&world, &hung, 500);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    world.host("a").read_chunk(&healthy, 3).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    assert_eq!(world.host("a").tier("peer"), 1);
}
