//! Working sets of boots, as seen and as told, and their coverage.

use std::time::Duration;

use acstor_types::{DiskId, ErrorKind};

use super::image::{CHUNK, Image, Shape};
use super::world::{World, config};
use crate::{Coverage, PreloadRequest, PreloadWhat, ReadPathConfig, ReadPathError, TryRead};

const WINDOW: Duration = Duration::from_secs(120);

fn world() -> (World, Image) {
    let config = ReadPathConfig { boot_window: WINDOW, prefetch_max_bytes: 1 << 20, ..config() };
    let world = World::new(&["a", "b"], &config);
    let image = world.image(Shape { zero_every: 10, ..Shape::plain(1, 900) });
    (world, image)
}

fn chunks(bitmap: &[u8]) -> Vec<usize> {
    (0..bitmap.len() * 8).filter(|index| bitmap[index / 8] >> (index % 8) & 1 == 1).collect()
}

#[tokio::test(start_paused = true)]
async fn test_only_reads_of_front_ends_count() {
    let (world, image) = world();
    let host = world.host("a");
    let view = host.view(&image);
    view.opened();
    host.read(&image, 100, 5).await.unwrap();
    host.read(&image, 15 * CHUNK as u64 - 1, 2).await.unwrap();
    // Pins, preloads, peers and prefetches are no boots.
    host.path.pin(&image.id(), 0, 8 * CHUNK as u64, Duration::from_secs(5)).await.unwrap();
    world.host("b").read(&image, 200 * CHUNK as u64, 300 * CHUNK).await.unwrap();
    let request = PreloadRequest { what: PreloadWhat::Full, rate_bytes_per_s: 0, pin: false };
    host.path.preload_start(&image.id(), request).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.flush();
    // A hit counts, and so does the end of the disk; nothing past it.
    let read = view.try_read(800 * CHUNK as u64, CHUNK).unwrap();
    assert!(matches!(read, TryRead::Ready(_)));
    view.try_read(899 * CHUNK as u64 + 5, 2 * CHUNK).unwrap();
    view.try_read(900 * CHUNK as u64, CHUNK).unwrap();
    // Who copies all of it is no guest.
    let copying = view.unrecorded().unwrap();
    copying.try_read(810 * CHUNK as u64, CHUNK).unwrap();
    copying.read(820 * CHUNK as u64, CHUNK).await.unwrap();
    tokio::time::sleep(WINDOW).await;
    view.try_read(500 * CHUNK as u64, CHUNK).unwrap();
    let seen = host.path.working_set(&image.id()).unwrap();
    assert_eq!((seen.boots, seen.chunk_count), (1, 900));
    assert_eq!(chunks(&seen.bitmap), [0, 14, 15, 800, 899]);
    assert_eq!(host.metric("acstor_working_set_boots_total"), 1);
    assert_eq!(world.host("b").path.working_set(&image.id()).unwrap().boots, 0);
}

#[tokio::test(start_paused = true)]
async fn test_coverage_counts_different_chunks_with_content() {
    let (world, image) = world();
    let host = world.host("a");
    assert_eq!(host.path.coverage(), []);
    let mut bitmap = vec![0; 113];
    bitmap[..5].fill(0xff);
    host.path.set_working_set(&image.id(), &bitmap).unwrap();
    let expected =
        |present_chunks| vec![(image.id(), Coverage { wanted_chunks: 36, present_chunks })];
    assert_eq!(host.path.coverage(), expected(0));
    host.path.pin(&image.id(), 20 * CHUNK as u64, 0, Duration::from_secs(5)).await.unwrap();
    assert_eq!(host.path.coverage(), expected(18));
    assert_eq!(host.metric("acstor_working_set_images"), 1);
    assert_eq!(host.metric("acstor_working_set_chunks"), 36);
}

#[tokio::test(start_paused = true)]
async fn test_what_is_no_bitmap_of_the_disk_is_refused_and_the_former_stays() {
    let (world, image) = world();
    let path = &world.host("a").path;
    let mut bitmap = vec![0; 113];
    bitmap[0] = 2;
    path.set_working_set(&image.id(), &bitmap).unwrap();
    bitmap[112] = 0x10; // chunk 900
    for bad in [&bitmap[..], &[0; 112], &[0; 114], &[]] {
        let error = path.set_working_set(&image.id(), bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("900"), "{error}");
    }
    assert_eq!(path.coverage()[0].1.wanted_chunks, 1);
    let unknown = DiskId::from_bytes([9; 16]);
    let expected = ReadPathError::NotAttached(unknown);
    assert_eq!(path.set_working_set(&unknown, &bitmap).unwrap_err(), expected);
    assert_eq!(path.working_set(&unknown).unwrap_err(), expected);
}
