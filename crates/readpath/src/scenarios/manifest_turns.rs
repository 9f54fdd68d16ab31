//! Order in which many manifests are read, and errors of one that cannot be read.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch};
use acstor_types::{Entry, ErrorKind};
use tokio::time::{Instant, timeout};

use super::image::{CHUNK, Image, Shape};
use super::offering::{TestSource, offer, state};
use super::test_origin::TestOrigin;
use super::world::{World, check, config};
use crate::{BlockView, ManifestState, ReadPathError, limits};

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(20);

async fn read_soon(view: &Arc<dyn BlockView>, image: &Image) {
    let segments = timeout(SOON, view.read(0, CHUNK)).await.expect("it waits for others").unwrap();
    check(image, 0, CHUNK, &segments);
}

/// Returns the request of a peer that wants the first chunk with content of a disk.
fn request(image: &Image) -> ChunkRequest {
    let entries = (0..).zip(image.manifest.entries());
    let mut chunks = entries.filter_map(|(index, entry)| match entry {
        Entry::Chunk { digest, .. } => Some((index, digest)),
        Entry::Zero => None,
    });
    let (chunk_index, digest) = chunks.next().unwrap();
    let chunk_size = image.manifest.chunk_size();
    ChunkRequest { digest, disk_id: image.id(), chunk_index, chunk_size, accepts_compressed: false }
}

#[tokio::test]
async fn test_readers_of_one_slow_manifest_leave_the_others_their_turn() {
    let world = World::new(&["a"], &config());
    let [slow, other] =
        [1, 2].map(|number| Image::register(Shape::plain(number, 40), &world.origin));
    let (slow_view, source) = offer(&world, "a", &slow);
    let (view, _) = offer(&world, "a", &other);
    source.close();
    let waiting: Vec<_> = (0..2 * limits::MANIFEST_READS_MAX)
        .map(|_| tokio::spawn(slow_view.read(0, CHUNK)))
        .collect();
    while source.reads() == 0 {
        tokio::task::yield_now().await;
    }
    read_soon(&view, &other).await;
    source.open();
    for read in waiting {
        check(&slow, 0, CHUNK, &read.await.unwrap().unwrap());
    }
    assert_eq!(source.reads(), 1);
}

#[tokio::test]
async fn test_peers_whose_manifests_are_slow_leave_guests_their_turn() {
    let world = World::new(&["a"], &config());
    let images: Vec<Image> =
        (1..=9).map(|number| Image::register(Shape::plain(number, 40), &world.origin)).collect();
    let (guests, slow) = images.split_first().unwrap();
    let (view, _) = offer(&world, "a", guests);
    let sources: Vec<_> = slow.iter().map(|image| offer(&world, "a", image).1).collect();
    sources.iter().for_each(|source| source.close());
    let path = &world.host("a").path;
    let serve = |image| {
        tokio::spawn(path.serve(request(image), ClassWatch::DEMAND, Instant::now() + 3 * SOON))
    };
    let served: Vec<_> = slow.iter().map(serve).collect();
    while sources.iter().all(|source| source.reads() == 0) {
        tokio::task::yield_now().await;
    }
    read_soon(&view, guests).await;
    sources.iter().for_each(|source| source.open());
    for answer in served {
        assert_eq!(answer.await.unwrap().unwrap().len(), CHUNK);
    }
}

#[tokio::test]
async fn test_guest_reads_at_once_a_manifest_that_a_peer_queues_for() {
    let world = World::new(&["a"], &config());
    let images: Vec<Image> =
        (1..=9).map(|number| Image::register(Shape::plain(number, 40), &world.origin)).collect();
    let (wanted, slow) = images.split_last().unwrap();
    let (view, _) = offer(&world, "a", wanted);
    let sources: Vec<_> = slow.iter().map(|image| offer(&world, "a", image).1).collect();
    sources.iter().for_each(|source| source.close());
    let path = &world.host("a").path;
    let serve = |image| {
        tokio::spawn(path.serve(request(image), ClassWatch::DEMAND, Instant::now() + 3 * SOON))
    };
    let served: Vec<_> = images.iter().map(serve).collect();
    while sources.iter().all(|source| source.reads() == 0) {
        tokio::task::yield_now().await;
    }
    read_soon(&view, wanted).await;
    sources.iter().for_each(|source| source.open());
    for answer in served {
        assert_eq!(answer.await.unwrap().unwrap().len(), CHUNK);
    }
}

#[tokio::test(start_paused = true)]
async fn test_other_content_is_not_taken_over_because_the_manifest_cannot_be_read_now() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    let other = Image::register(Shape { zero_every: 7, ..Shape::plain(1, 40) }, &TestOrigin::new());
    let (header, digest) = (other.manifest.header(), other.manifest.digest());
    for kind in [ErrorKind::Unavailable, ErrorKind::Exhausted] {
        *source.fault.lock() = Some(kind);
        let refused = world.host("a").path.offer(header, digest, TestSource::of(&other));
        assert!(
            matches!(refused, Err(ReadPathError::Manifest { kind: found, .. }) if found == kind)
        );
    }
    *source.fault.lock() = None;
    check(&image, 0, CHUNK, &view.read(0, CHUNK).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn test_manifest_that_cannot_be_read_again_and_again_counts_as_damaged() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    let fail = async |kind, times| {
        *source.fault.lock() = Some(kind);
        for _ in 0..times {
            view.read(0, CHUNK).await.unwrap_err();
        }
        *source.fault.lock() = None;
        state(&world, &image)
    };
    // A bad sector stays one; what is short of memory says nothing of the manifest.
    let most = limits::MANIFEST_FAILURES_MAX as usize;
    assert_eq!(fail(ErrorKind::Unavailable, most - 1).await, ManifestState::OnDisk);
    check(&image, 0, CHUNK, &view.read(0, CHUNK).await.unwrap());
    world.host("a").path.release_idle_manifests(Duration::ZERO, |_| false);
    assert_eq!(fail(ErrorKind::Exhausted, 2 * most).await, ManifestState::OnDisk);
    assert_eq!(fail(ErrorKind::Unavailable, most).await, ManifestState::Damaged);
    view.read(0, CHUNK).await.unwrap_err();
    let (_, _) = offer(&world, "a", &image);
    check(&image, 0, CHUNK, &view.read(0, CHUNK).await.unwrap());
}
