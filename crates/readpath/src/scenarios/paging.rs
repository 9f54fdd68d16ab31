//! Disks whose manifests are read by the page: sparse as they may be, damaged, on a disk that hangs.

use std::sync::Arc;
use std::time::Duration;

use acstor_manifest::PAGE_LEN;
use acstor_types::ErrorKind;
use tokio::time::{sleep, timeout};

use super::image::CHUNK;
use super::paged_image::{PagedImage, PagedSource};
use super::world::{World, bytes_of, config};
use crate::view::wanted_chunks::WantedChunks;
use crate::{
    BlockView, ExtentKind, ManifestSource, ManifestState, PreloadRequest, PreloadState,
    PreloadWhat, ReadError, ReadPathConfig, ReadPathError, Reader, TryRead,
};

/// As many chunks as a disk may have: 4 TiB of those of these tests, 64 TiB of the default ones.
const SIZE: u64 = (1 << 30) * CHUNK as u64;
const SOON: Duration = Duration::from_secs(20);

/// Data in the first span, on both sides of the border of two, and in the last chunk.
fn indexes() -> Vec<u64> {
    let middle = (1 << 29) + 8192;
    (0..40).chain(middle - 4..middle + 4).chain([(1 << 30) - 1]).collect()
}

fn sparse(world: &World, place: &str) -> PagedImage {
    PagedImage::register(1, SIZE, indexes(), place, &world.origin)
}

fn offer(world: &World, host: &str, image: &PagedImage) -> (Arc<dyn BlockView>, Arc<PagedSource>) {
    let source = image.source();
    let (shape, digest) = (image.shape(), image.header().name());
    let view = world.host(host).path.offer(shape, digest, source.clone()).unwrap();
    (view, source)
}

async fn read(view: &Arc<dyn BlockView>, image: &PagedImage, first: u64, count: u64) {
    let segments = view.read(first * CHUNK as u64, count as usize * CHUNK).await.unwrap();
    let expected: Vec<u8> = (first..first + count).flat_map(|at| image.chunk(at)).collect();
    assert!(bytes_of(&segments) == expected, "wrong bytes at chunk {first}");
}

/// The page of the entry of the first chunk.
fn entry_page(image: &PagedImage) -> u32 {
    image.header().sections().entries.start
}

#[tokio::test(start_paused = true)]
async fn test_sparse_disk_of_the_largest_size_is_read_at_the_cost_of_its_data() {
    let world = World::new(&["a"], &config());
    let image = sparse(&world, "first");
    let (view, source) = offer(&world, "a", &image);
    assert_eq!(view.size_bytes(), SIZE);
    assert!(matches!(view.try_read(0, CHUNK), Ok(TryRead::WouldWait)));
    read(&view, &image, 0, 16).await;
    assert_eq!(world.origin.call_count(), 1, "neighbours of any length are one call");
    for index in indexes() {
        read(&view, &image, index, 1).await;
        read(&view, &image, index.saturating_sub(3), 3).await;
    }
    read(&view, &image, 1 << 20, 200).await;
    let pages = source.pages.reads();
    assert!(pages < 40, "{pages} pages were read");
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), indexes().len());
    assert!(matches!(view.try_read(0, CHUNK), Ok(TryRead::Ready(_))));
    assert_eq!(source.pages.reads(), pages, "all of them are in memory");
    let counted = |outcome| format!("acstor_manifest_pages_total{{outcome=\"{outcome}\"}}");
    let host = world.host("a");
    assert_eq!(host.metric(&counted("miss")), pages as u64, "each is read once");
    assert_eq!(host.metric("acstor_manifest_page_bytes"), (pages * PAGE_LEN) as u64);
    assert!(host.metric(&counted("hit")) > host.metric(&counted("miss")));
}

#[tokio::test(start_paused = true)]
async fn test_small_gap_between_chunks_is_read_and_thrown_away() {
    let world = World::new(&["a"], &config());
    let image = sparse(&world, "first");
    let (view, _source) = offer(&world, "a", &image);
    // The pages, so that the next reads are looked up together.
    read(&view, &image, 15, 1).await;
    let before = world.origin.call_count();
    tokio::join!(read(&view, &image, 0, 3), read(&view, &image, 4, 1));
    assert_eq!(world.origin.call_count() - before, 1, "a fifth of the run is a small gap");
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), 5, "what nobody wanted is not kept");
}

#[tokio::test(start_paused = true)]
async fn test_extents_are_known_once_they_are_prepared() {
    let world = World::new(&["a"], &config());
    let image = sparse(&world, "first");
    let (view, _source) = offer(&world, "a", &image);
    view.prepare().unwrap().await.unwrap();
    let hole = 40 * CHUNK as u64;
    assert_eq!(view.next_extent(hole, ExtentKind::Data), Some(hole), "all may be data");
    let middle = ((1 << 29) + 8192 - 4) * CHUNK as u64;
    for (at, kind, expected) in [
        (0, ExtentKind::Hole, Some(hole)),
        (hole, ExtentKind::Data, Some(middle)),
        (middle + 5, ExtentKind::Hole, Some(middle + 8 * CHUNK as u64)),
        (SIZE - 1, ExtentKind::Hole, Some(SIZE)),
        (SIZE, ExtentKind::Hole, None),
    ] {
        if let Some(preparing) = view.prepare_extent(at, kind) {
            preparing.await.unwrap();
        }
        assert_eq!(view.next_extent(at, kind), expected, "{at} {kind:?}");
        assert!(view.prepare_extent(at, kind).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn test_flipped_bit_of_a_page_is_an_error_until_the_disk_is_offered_anew() {
    let world = World::new(&["a"], &config());
    let image = sparse(&world, "first");
    let (view, source) = offer(&world, "a", &image);
    source.pages.damage(entry_page(&image));
    read(&view, &image, 100, 5).await;
    let error = view.read(0, CHUNK).await.unwrap_err();
    assert!(matches!(error, ReadError::Manifest { is_damaged: true, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let path = &world.host("a").path;
    assert_eq!(path.manifest_state(&image.shape().disk_id).unwrap(), ManifestState::Damaged);
    let (again, _) = offer(&world, "a", &image);
    assert_ne!(path.manifest_state(&image.shape().disk_id).unwrap(), ManifestState::Damaged);
    for view in [view, again] {
        read(&view, &image, 0, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn test_flipped_bit_of_a_page_is_cured_by_the_same_manifest_in_another_file() {
    for is_offered in [false, true] {
        let world = World::new(&["a"], &config());
        let image = sparse(&world, "first");
        let path = &world.host("a").path;
        let offered = is_offered.then(|| offer(&world, "a", &image));
        let source = image.source();
        source.pages.damage(entry_page(&image));
        let below = path.attach(source.read().unwrap()).unwrap();
        assert!(below.read(0, CHUNK).await.is_err());
        let state = || path.manifest_state(&image.shape().disk_id).unwrap();
        assert_eq!(state(), ManifestState::Damaged);
        let again = path.attach(image.source().read().unwrap()).unwrap();
        assert_ne!(state(), ManifestState::Damaged);
        for view in [below, again].into_iter().chain(offered.map(|(view, _)| view)) {
            read(&view, &image, 0, 3).await;
        }
    }
}

#[tokio::test]
async fn test_reads_of_pages_in_memory_go_on_while_the_local_disk_is_held() {
    let world = World::new(&["a"], &config());
    let image = Arc::new(sparse(&world, "first"));
    let (view, source) = offer(&world, "a", &image);
    read(&view, &image, 0, 1).await;
    source.pages.hold();
    // More than there are permits: no thread of the runtime waits with them.
    let middle = (1 << 29) + 8192;
    let held: Vec<_> = (0..40)
        .map(|_| {
            let (view, image) = (view.clone(), image.clone());
            tokio::spawn(async move { read(&view, &image, middle, 1).await })
        })
        .collect();
    let before = source.pages.reads();
    while source.pages.reads() == before {
        tokio::task::yield_now().await;
    }
    timeout(SOON, read(&view, &image, 0, 1)).await.expect("its chunk is here");
    timeout(SOON, read(&view, &image, 1, 4)).await.expect("its pages are in memory");
    assert!(held.iter().all(|read| !read.is_finished()));
    source.pages.release();
    for read in held {
        read.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn test_owner_reads_compressed_chunks_for_a_peer() {
    let world = World::new(&["a", "b"], &config());
    let image = sparse(&world, "first");
    let (view, _) = offer(&world, "a", &image);
    let (_, source) = offer(&world, "b", &image);
    for index in indexes() {
        read(&view, &image, index, 1).await;
    }
    assert!(source.pages.reads() > 0, "b owns some of them");
    assert!(world.host("a").tier("peer") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_moved_chunks_are_read_from_the_new_place_and_other_content_is_refused() {
    let world = World::new(&["a"], &config());
    let before = sparse(&world, "first");
    let (view, _) = offer(&world, "a", &before);
    read(&view, &before, 0, 1).await;
    let after = sparse(&world, "second");
    let (_, source) = offer(&world, "a", &after);
    let calls = world.origin.call_count();
    read(&view, &before, 20, 1).await;
    assert!(source.pages.reads() > 0);
    let call = &world.origin.calls()[calls];
    let pack = acstor_types::PackId(acstor_types::Digest::of(b"second 1 1"));
    assert_eq!(call.pack, pack);
    let other = PagedImage::register(1, SIZE, [5], "third", &world.origin);
    let path = &world.host("a").path;
    let refused = path.offer(other.shape(), other.header().name(), other.source()).err().unwrap();
    assert!(matches!(refused, ReadPathError::Conflict(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn test_boot_of_disk_of_the_largest_size_is_recorded_told_and_preloaded() {
    let config = ReadPathConfig { boot_window: Duration::from_secs(120), ..config() };
    let world = World::new(&["a", "b"], &config);
    let image = sparse(&world, "first");
    let (view, _) = offer(&world, "a", &image);
    let (_other, _) = offer(&world, "b", &image);
    view.opened();
    let boots = view.boots().unwrap();
    boots.opened(false);
    let booted = [3, (1 << 29) + 8192, (1 << 30) - 1];
    for chunk in booted.into_iter().chain([1 << 25]) {
        // The last one is zeros.
        boots.arrived(Reader::Cached, chunk * CHUNK as u64, 4096);
        read(&view, &image, chunk, 1).await;
    }
    let seen = world.host("a").path.working_set(&image.shape().disk_id).unwrap();
    assert_eq!((seen.boots, seen.chunk_count), (1, 1 << 30));
    assert!(seen.bitmap.len() < 4 << 10, "{} bytes", seen.bitmap.len());
    let host = world.host("b");
    assert!(
        (seen.bitmap.len() as u64) < host.path.working_set_len_max(&image.shape().disk_id).unwrap()
    );
    for bad in [&seen.bitmap[1..], &[]] {
        let error = host.path.set_working_set(&image.shape().disk_id, bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    host.path.set_working_set(&image.shape().disk_id, &seen.bitmap).unwrap();
    assert_eq!(host.path.coverage()[0].1.wanted_chunks, 3);
    let request = PreloadRequest { what: PreloadWhat::WorkingSet, rate_bytes_per_s: 0, pin: false };
    host.path.preload_start(&image.shape().disk_id, request).unwrap();
    let is_done = || host.path.preload_status()[0].state == PreloadState::Done;
    timeout(SOON, async {
        while !is_done() {
            host.catch_up().await;
            sleep(Duration::from_millis(10)).await
        }
    })
    .await
    .unwrap();
    assert_eq!(host.path.coverage()[0].1.present_chunks, 3);
}

#[tokio::test(start_paused = true)]
async fn test_disk_of_the_largest_size_is_preloaded_whole_by_its_content() {
    let world = World::new(&["a"], &config());
    let image = sparse(&world, "first");
    let (view, _) = offer(&world, "a", &image);
    let path = &world.host("a").path;
    let estimate = path.preload_estimate(&image.shape().disk_id, PreloadWhat::Full).unwrap();
    assert_eq!(estimate.total_bytes, (image.chunks.len() * CHUNK) as u64);
    read(&view, &image, 0, 1).await;
    let disk = path.disk(&image.shape().disk_id).unwrap();
    let content = image.chunks.len();
    assert_eq!(WantedChunks::all_up_to(content, &disk).unwrap().indexes().len(), content);
    let refused = WantedChunks::all_up_to(content - 1, &disk).unwrap_err();
    assert_eq!(
        refused,
        ReadPathError::TooMuchContent { disk: image.shape().disk_id, max: content - 1 }
    );
}
