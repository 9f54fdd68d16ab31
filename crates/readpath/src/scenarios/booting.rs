//! Working sets of boots, as seen and as told, and their coverage.

use std::time::Duration;

use acstor_types::{DiskId, ErrorKind};

use super::image::{CHUNK, Image, Shape};
use super::world::{World, config};
use crate::{
    BlockView, Coverage, PreloadRequest, PreloadWhat, ReadPath, ReadPathConfig, ReadPathError,
    Reader, RecordedBoot, TryRead, encode_order, limits,
};

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

/// Opens as a front end does.
fn open(view: &dyn BlockView, is_direct: bool) {
    view.opened();
    view.boots().unwrap().opened(is_direct);
}

/// Tells of a read as a front end does.
fn arrive(view: &dyn BlockView, reader: Reader, offset: u64, len: usize) {
    view.boots().unwrap().arrived(reader, offset, len);
}

/// The orders of the boot profile of a disk.
fn profile(path: &ReadPath, disk: &DiskId) -> Vec<Vec<u32>> {
    let profile = path.boot_profile(disk).unwrap();
    let of = |kind| profile.iter().flat_map(|profile| profile.chunks(kind)).collect();
    (0..profile.as_ref().map_or(0, |profile| profile.kind_count())).map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn test_only_reads_of_front_ends_count() {
    let (world, image) = world();
    let host = world.host("a");
    let view = host.view(&image);
    open(&*view, false);
    arrive(&*view, Reader::Cached, 100, 5);
    host.read(&image, 100, 5).await.unwrap();
    arrive(&*view, Reader::Cached, 15 * CHUNK as u64 - 1, 2);
    host.read(&image, 15 * CHUNK as u64 - 1, 2).await.unwrap();
    // Pins, preloads, peers and prefetches are no boots.
    host.path.pin(&image.id(), 0, 8 * CHUNK as u64, Duration::from_secs(5)).await.unwrap();
    world.host("b").read(&image, 200 * CHUNK as u64, 300 * CHUNK).await.unwrap();
    let request = PreloadRequest { what: PreloadWhat::Full, rate_bytes_per_s: 0, pin: false };
    host.path.preload_start(&image.id(), request).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.flush();
    // A hit counts, and so does the end of the disk; nothing past it.
    arrive(&*view, Reader::Cached, 800 * CHUNK as u64, CHUNK);
    let read = view.try_read(800 * CHUNK as u64, CHUNK).unwrap();
    assert!(matches!(read, TryRead::Ready(_)));
    arrive(&*view, Reader::Cached, 899 * CHUNK as u64 + 5, 2 * CHUNK);
    arrive(&*view, Reader::Cached, 900 * CHUNK as u64, CHUNK);
    tokio::time::sleep(WINDOW).await;
    arrive(&*view, Reader::Cached, 500 * CHUNK as u64, CHUNK);
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

#[tokio::test(start_paused = true)]
async fn test_order_of_a_boot_is_told_until_it_is_acknowledged() {
    let (world, image) = world();
    let host = world.host("a");
    let view = host.view(&image);
    open(&*view, true);
    let order: Vec<u32> = [0, 899].into_iter().chain((100..150).rev()).collect();
    for chunk in &order {
        arrive(&*view, Reader::Direct(5), u64::from(*chunk) * CHUNK as u64, 4096);
    }
    // What others fetch, whatever for, is no part of it.
    host.path.pin(&image.id(), 8 * CHUNK as u64, 0, Duration::from_secs(5)).await.unwrap();
    world.host("b").read(&image, 200 * CHUNK as u64, 30 * CHUNK).await.unwrap();
    assert_eq!(host.path.recorded_boots(0), []);
    tokio::time::sleep(limits::BOOT_TIME_MAX).await;
    let told = host.path.recorded_boots(0);
    let [RecordedBoot { number, disk, chunk_count: 900, order: found }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((disk, found), (&image.id(), &order));
    assert_eq!(host.path.recorded_boots(number - 1), told);
    assert_eq!(host.path.recorded_boots(*number), []);
    assert_eq!(host.metric("acstor_boot_orders_total{outcome=\"recorded\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_boot_profile_is_taken_over_whole_or_not_at_all() {
    let (world, image) = world();
    let path = &world.host("a").path;
    let id = image.id();
    assert!(profile(path, &id).is_empty());
    path.set_boot_profile(&id, &encode_order(&[3, 899, 0])).unwrap();
    assert_eq!(profile(path, &id), [[3, 899, 0]]);
    for bad in [&encode_order(&[900])[..], b"", &[0; 30]] {
        let error = path.set_boot_profile(&id, bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("900"), "{error}");
    }
    assert_eq!(profile(path, &id), [[3, 899, 0]]);
    let none = [&b"ACSTRANK\x01\0\0\0"[..], &[0; 4]].concat();
    path.set_boot_profile(&id, &none).unwrap();
    assert!(path.boot_profile(&id).unwrap().is_none());
    let unknown = DiskId::from_bytes([9; 16]);
    let expected = ReadPathError::NotAttached(unknown);
    assert_eq!(path.set_boot_profile(&unknown, &none).unwrap_err(), expected);
}

#[tokio::test(start_paused = true)]
async fn test_disk_inherits_the_boot_profile_of_another_by_digest() {
    let (world, image) = world();
    let path = &world.host("a").path;
    let (other, stranger) = (image.twin(2), world.image(Shape::plain(3, 100)));
    path.attach(other.manifest.clone()).unwrap();
    assert!(!path.inherit_boot_profile(&image.id(), &other.id()).unwrap());
    // Chunk 10 is zeros.
    path.set_boot_profile(&image.id(), &encode_order(&[5, 10, 3])).unwrap();
    assert!(!path.inherit_boot_profile(&image.id(), &stranger.id()).unwrap());
    assert!(path.boot_profile(&stranger.id()).unwrap().is_none());
    assert!(path.inherit_boot_profile(&image.id(), &other.id()).unwrap());
    assert_eq!(profile(path, &other.id()), [[5, 3]]);
    // What a disk has of its own stays.
    path.set_boot_profile(&other.id(), &encode_order(&[8])).unwrap();
    assert!(!path.inherit_boot_profile(&image.id(), &other.id()).unwrap());
    assert_eq!(profile(path, &other.id()), [[8]]);
}
