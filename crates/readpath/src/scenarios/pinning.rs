//! Pins of head and tail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::image::{CHUNK, Image, Shape};
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::{PinReport, ReadPathError};

const TIMEOUT: Duration = Duration::from_secs(5);
const KIB: u64 = 1 << 10;

fn one_host() -> (World, Image) {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape { zero_every: 10, ..Shape::plain(1, 200) });
    (world, image)
}

#[tokio::test(start_paused = true)]
async fn test_pin_fetches_head_and_tail_and_keeps_them_there() {
    let (world, image) = one_host();
    let host = world.host("a");
    let report = host.path.pin(&image.id(), 129 * KIB, 5 * KIB, TIMEOUT).await.unwrap();
    // 33 chunks of head, 4 of them zero, and 2 of tail.
    assert_eq!(report, PinReport { pinned_bytes: 31 * CHUNK as u64, missing_bytes: 0 });
    host.store.chunks_max.store(40, Ordering::Relaxed);
    host.read(&image, 0, 200 * CHUNK).await.unwrap();
    world.flush();
    let held = host.store.digests();
    for index in (0..33).chain(198..200).filter(|index| index % 10 != 0) {
        assert!(held.contains(&image.digest(index)), "chunk {index}");
    }
    assert_eq!(host.path.pinned_bytes(&image.id()), 31 * CHUNK as u64);
}

#[tokio::test(start_paused = true)]
async fn test_pin_again_replaces_the_former_pins() {
    let (world, image) = one_host();
    let host = world.host("a");
    host.path.pin(&image.id(), 400 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(host.store.pinned(), 90);
    host.path.pin(&image.id(), 40 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(host.store.pinned(), 9);
    host.path.pin(&image.id(), 40 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(host.store.pinned(), 9);
    host.path.detach(&image.id()).unwrap();
    assert_eq!(host.store.pinned(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_pin_of_the_whole_disk_counts_each_chunk_once() {
    let (world, image) = one_host();
    let report = world.host("a").path.pin(&image.id(), u64::MAX, u64::MAX, TIMEOUT).await.unwrap();
    assert_eq!(report.pinned_bytes, 180 * CHUNK as u64);
}

#[tokio::test(start_paused = true)]
async fn test_pin_beyond_the_bound_says_what_is_missing() {
    let (world, image) = one_host();
    let host = world.host("a");
    host.store.pins_max.store(10, Ordering::Relaxed);
    let report = host.path.pin(&image.id(), 400 * KIB, 0, TIMEOUT).await.unwrap();
    let expected = PinReport { pinned_bytes: 10 * CHUNK as u64, missing_bytes: 80 * CHUNK as u64 };
    assert_eq!(report, expected);
}

#[tokio::test(start_paused = true)]
async fn test_pin_origin_down_ends_in_time_and_goes_on_later() {
    let (world, image) = one_host();
    let host = world.host("a");
    world.origin.set(OriginFaultMode::Down);
    let start = tokio::time::Instant::now();
    let report = host.path.pin(&image.id(), 400 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(report, PinReport { pinned_bytes: 0, missing_bytes: 90 * CHUNK as u64 });
    assert_eq!(start.elapsed().as_secs(), 5);
    assert_eq!(host.store.pinned(), 0);
    world.origin.set(OriginFaultMode::Well);
    tokio::time::sleep(TIMEOUT).await;
    let report = host.path.pin(&image.id(), 400 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(report.missing_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn test_pin_full_disk_is_reported_as_missing() {
    let (world, image) = one_host();
    let host = world.host("a");
    host.store.fails_writes.store(true, Ordering::Relaxed);
    let report = host.path.pin(&image.id(), 40 * KIB, 0, TIMEOUT).await.unwrap();
    assert_eq!(report, PinReport { pinned_bytes: 0, missing_bytes: 9 * CHUNK as u64 });
    assert_eq!(host.store.pinned(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_pin_of_an_unknown_disk_is_an_error() {
    let (world, image) = one_host();
    let path = &world.host("a").path;
    path.detach(&image.id()).unwrap();
    let error = path.pin(&image.id(), 1, 1, TIMEOUT).await.unwrap_err();
    assert_eq!(error, ReadPathError::NotAttached(image.id()));
}
