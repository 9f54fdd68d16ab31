//! Disks as a front end sees them.

use acstor_types::{ChunkSize, DiskId, ManifestBuilder};

use super::image::{CHUNK, Image, Shape};
use super::test_origin::TestOrigin;
use super::world::{World, bytes_of, check, config};
use crate::{ExtentKind, ReadError, ReadPathError, Segment, TryRead, limits};

fn one_host(shape: Shape) -> (World, Image) {
    let world = World::new(&["a"], &config());
    let image = world.image(shape);
    (world, image)
}

const MIXED: Shape = Shape { number: 1, chunks: 40, zero_every: 3, chunks_per_pack: 64, cut: 1000 };

#[tokio::test(start_paused = true)]
async fn test_try_read_before_the_chunk_is_here_would_wait() {
    let (world, image) = one_host(MIXED);
    let view = world.host("a").view(&image);
    assert!(matches!(view.try_read(0, 2 * CHUNK).unwrap(), TryRead::WouldWait));
    assert_eq!(world.origin.call_count(), 0, "try_read starts nothing");
    view.read(0, 2 * CHUNK).await.unwrap();
    let TryRead::Ready(segments) = view.try_read(0, 2 * CHUNK).unwrap() else { panic!() };
    check(&image, 0, 2 * CHUNK, &segments);
}

#[tokio::test(start_paused = true)]
async fn test_try_read_of_zero_chunks_needs_no_source() {
    let (world, image) = one_host(Shape { zero_every: 1, ..Shape::plain(1, 40) });
    let view = world.host("a").view(&image);
    let TryRead::Ready(segments) = view.try_read(100, 30 * CHUNK).unwrap() else { panic!() };
    assert!(matches!(segments[..], [Segment::Zeros(len)] if len == 30 * CHUNK));
    assert_eq!(world.host("a").tier("zero"), 31);
}

#[tokio::test(start_paused = true)]
async fn test_read_any_offset_is_cut_at_the_end() {
    let (world, image) = one_host(MIXED);
    let size = image.content.len() as u64;
    let host = world.host("a");
    for (offset, len) in [
        (0, 0),
        (0, 1),
        (1, 4095),
        (4095, 2),
        (4095, 3 * 4096 + 7),
        (size - 1, 1),
        (size - 1, 4096),
        (size, 4096),
        (size + 1, 1),
        (u64::MAX, 4096),
        (u64::MAX - 1, usize::MAX),
        (0, usize::MAX),
    ] {
        host.read(&image, offset, len).await.unwrap();
        let view = host.view(&image);
        let TryRead::Ready(segments) = view.try_read(offset, len).unwrap() else { panic!() };
        let end = offset.saturating_add(len as u64).min(size);
        assert_eq!(bytes_of(&segments).len() as u64, end.saturating_sub(offset));
    }
}

#[tokio::test(start_paused = true)]
async fn test_read_longer_than_the_limit_is_refused() {
    let world = World::new(&["a"], &config());
    let size = 2 * limits::READ_LEN_MAX as u64;
    let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
    let mut builder = ManifestBuilder::new(DiskId::from_bytes([5; 16]), chunk_size, size);
    (0..chunk_size.count_for(size)).for_each(|_| builder.push_zero());
    let view = world.host("a").path.attach(builder.finish().unwrap()).unwrap();
    let len = limits::READ_LEN_MAX + 1;
    let expected = ReadError::TooLong { len, max: limits::READ_LEN_MAX };
    assert_eq!(view.try_read(0, len).unwrap_err(), expected);
    assert_eq!(view.read(0, len).await.unwrap_err(), expected);
    view.read(0, len - 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_next_extent_follows_the_manifest() {
    let (world, image) = one_host(MIXED);
    let view = world.host("a").view(&image);
    let chunk = CHUNK as u64;
    assert_eq!(view.next_extent(0, ExtentKind::Hole), Some(0));
    assert_eq!(view.next_extent(0, ExtentKind::Data), Some(chunk));
    assert_eq!(view.next_extent(chunk + 5, ExtentKind::Data), Some(chunk + 5));
    assert_eq!(view.next_extent(chunk + 5, ExtentKind::Hole), Some(3 * chunk));
    assert_eq!(view.next_extent(39 * chunk, ExtentKind::Data), None);
    assert_eq!(view.next_extent(view.size_bytes(), ExtentKind::Hole), None);
}

#[tokio::test(start_paused = true)]
async fn test_cached_bytes_counts_what_the_store_holds() {
    let (world, image) = one_host(Shape::plain(1, 40));
    let view = world.host("a").view(&image);
    view.read(0, 10 * CHUNK).await.unwrap();
    world.flush();
    assert_eq!(view.cached_bytes(), 0, "counted in the background");
    tokio::time::sleep(limits::CACHED_BYTES_AGE).await;
    assert_eq!(view.cached_bytes(), 10 * CHUNK as u64);
}

#[tokio::test(start_paused = true)]
async fn test_attach_twice_is_one_disk_and_another_manifest_is_refused() {
    let (world, image) = one_host(MIXED);
    let path = &world.host("a").path;
    path.attach(image.manifest.clone()).unwrap();
    assert_eq!(path.disks(), [image.id()]);
    let other = Image::register(Shape { zero_every: 4, ..MIXED }, &TestOrigin::new());
    let error = path.attach(other.manifest.clone()).err().unwrap();
    assert_eq!(error, ReadPathError::Conflict(image.id()));
    let view = path.attach(image.manifest.clone()).unwrap();
    path.detach(&image.id()).unwrap();
    assert_eq!(path.detach(&image.id()).unwrap_err(), ReadPathError::NotAttached(image.id()));
    view.read(0, CHUNK).await.unwrap();
    path.attach(other.manifest).unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_attach_same_content_elsewhere_moves_open_views() {
    let world = World::new(&["a"], &config());
    let before = Image::register(Shape::plain(1, 40), &world.origin);
    let view = world.host("a").path.attach(before.manifest.clone()).unwrap();
    let after =
        Image::register(Shape { chunks_per_pack: 8, ..Shape::plain(1, 40) }, &TestOrigin::new());
    assert_ne!(before.manifest.digest(), after.manifest.digest());
    world.host("a").path.attach(after.manifest.clone()).unwrap();
    let error = view.read(30 * CHUNK as u64, CHUNK).await.unwrap_err();
    assert!(matches!(error, ReadError::Missing { .. }), "{error}: read at the new place");
    assert_eq!(
        world.host("a").path.disk(&before.id()).unwrap().latest_manifest().digest(),
        after.manifest.digest()
    );
    world.host("a").path.attach(before.manifest.clone()).unwrap();
    let segments = view.read(30 * CHUNK as u64, CHUNK).await.unwrap();
    check(&before, 30 * CHUNK as u64, CHUNK, &segments);
}

#[tokio::test(start_paused = true)]
async fn test_attach_other_chunk_size_is_refused() {
    let world = World::new(&["a"], &config());
    let mut builder = ManifestBuilder::new(DiskId::from_bytes([5; 16]), ChunkSize::DEFAULT, 65_536);
    builder.push_zero();
    let error = world.host("a").path.attach(builder.finish().unwrap()).err().unwrap();
    assert!(error.to_string().contains("65536") && error.to_string().contains("4096"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn test_trace_records_reads_and_what_each_chunk_waited_for() {
    let (world, image) = one_host(MIXED);
    world.origin.set_delay(std::time::Duration::from_millis(1));
    let host = world.host("a");
    assert_eq!(host.path.trace_get(&image.id()).unwrap(), "");
    host.path.trace_start(&image.id(), 100).unwrap();
    let view = host.view(&image);
    view.read(100, 2 * CHUNK).await.unwrap();
    view.try_read(CHUNK as u64, 10).unwrap();
    let text = host.path.trace_get(&image.id()).unwrap();
    let records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = records.iter().map(|r| r["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["read", "chunk", "chunk", "chunk", "read", "chunk"]);
    let tiers: Vec<&str> = records.iter().filter_map(|r| r["tier"].as_str()).collect();
    assert_eq!(tiers[..3], ["zero", "origin", "origin"]);
    // Waiting to be written, or written by now.
    assert!(["recent", "store"].contains(&tiers[3]), "{tiers:?}");
    assert_eq!(
        (records[0]["offset"].as_u64(), records[0]["length"].as_u64()),
        (Some(100), Some(8192))
    );
    let covered: u64 = records[1..4].iter().map(|r| r["length"].as_u64().unwrap()).sum();
    assert_eq!(covered, 8192);
    assert!(records[2]["wait_us"].as_u64() > Some(0));
    host.path.trace_stop(&image.id()).unwrap();
    assert_eq!(host.path.trace_get(&image.id()).unwrap(), "");
}

#[tokio::test(start_paused = true)]
async fn test_stop_fails_what_waits_and_keeps_what_came() {
    let (world, image) = one_host(MIXED);
    let host = world.host("a");
    host.read(&image, 0, 2 * CHUNK).await.unwrap();
    host.path.stop(std::time::Duration::from_secs(5));
    assert_eq!(host.store.digests().len(), 1);
    assert_eq!(host.read(&image, 4 * CHUNK as u64, 1).await.unwrap_err(), ReadError::Stopped);
    host.read(&image, CHUNK as u64, 1).await.unwrap();
}
