//! Answering peers: what is refused, what is answered from where.

use std::time::Duration;

use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerStatus};
use acstor_types::{ChunkSize, Digest, DiskId};
use tokio::time::Instant;

use super::image::{Image, Shape};
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::{NO_HINT, ReadPathConfig};

const MILLI: Duration = Duration::from_millis(1);

fn request(image: &Image, index: usize) -> ChunkRequest {
    ChunkRequest {
        digest: image.digest(index),
        disk_id: image.id(),
        chunk_index: index as u64,
        chunk_size: image.manifest.chunk_size(),
        accepts_compressed: false,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

fn one_host(config: &ReadPathConfig) -> (World, Image) {
    let world = World::new(&["a"], config);
    let image = world.image(Shape::plain(1, 64));
    (world, image)
}

#[tokio::test(start_paused = true)]
async fn test_serve_miss_reads_the_origin_by_the_hint_and_keeps_the_chunk() {
    let (world, image) = one_host(&config());
    let path = &world.host("a").path;
    let bytes = path.serve(request(&image, 5), ClassWatch::DEMAND, soon()).await.unwrap();
    assert!(image.digest(5).matches(&bytes));
    world.flush();
    path.serve(request(&image, 5), ClassWatch::DEMAND, soon()).await.unwrap();
    assert_eq!(world.host("a").metric("acstor_serves_total{outcome=\"origin\"}"), 1);
    assert_eq!(world.host("a").metric("acstor_serves_total{outcome=\"store\"}"), 1);
    assert_eq!(world.host("a").metric("acstor_serve_bytes_total"), 2 * 4096);
}

#[tokio::test(start_paused = true)]
async fn test_serve_and_guest_share_one_flight() {
    let (world, image) = one_host(&config());
    world.origin.set_delay(10 * MILLI);
    let host = world.host("a");
    let (guest, peer) = tokio::join!(
        host.read_chunk(&image, 5),
        host.path.serve(request(&image, 5), ClassWatch::DEMAND, soon())
    );
    guest.unwrap();
    peer.unwrap();
    assert_eq!(world.origin.call_count(), 1);
    assert_eq!(host.metric("acstor_flight_joins_total{side=\"peer\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_serve_requests_that_arrive_together_are_one_call() {
    let (world, image) = one_host(&config());
    let path = &world.host("a").path;
    let serves: Vec<_> = (0..16)
        .map(|index| tokio::spawn(path.serve(request(&image, index), ClassWatch::DEMAND, soon())))
        .collect();
    for serve in serves {
        serve.await.unwrap().unwrap();
    }
    assert_eq!(world.origin.call_count(), 1, "{:?}", world.origin.calls());
}

#[tokio::test(start_paused = true)]
async fn test_serve_hint_that_the_manifest_contradicts_is_not_found() {
    let (world, image) = one_host(&config());
    let path = &world.host("a").path;
    let good = request(&image, 5);
    for wrong in [
        ChunkRequest { chunk_index: 6, ..good },
        ChunkRequest { chunk_index: 64, ..good },
        ChunkRequest { chunk_index: NO_HINT, ..good },
        ChunkRequest { disk_id: DiskId::from_bytes([9; 16]), ..good },
        ChunkRequest { digest: Digest::of(b"other"), ..good },
    ] {
        assert_eq!(
            path.serve(wrong, ClassWatch::DEMAND, soon()).await.unwrap_err(),
            PeerStatus::NotFound
        );
    }
    let wrong = ChunkRequest { chunk_size: ChunkSize::DEFAULT, ..good };
    assert_eq!(
        path.serve(wrong, ClassWatch::DEMAND, soon()).await.unwrap_err(),
        PeerStatus::Invalid
    );
    assert_eq!(world.origin.call_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_serve_draining_refuses_peers_and_keeps_guests() {
    let (world, image) = one_host(&config());
    let host = world.host("a");
    host.read_chunk(&image, 5).await.unwrap();
    host.path.set_drain(true);
    let refused =
        host.path.serve(request(&image, 5), ClassWatch::DEMAND, soon()).await.unwrap_err();
    assert_eq!(refused, PeerStatus::Overloaded);
    host.read_chunk(&image, 6).await.unwrap();
    host.path.set_drain(false);
    host.path.serve(request(&image, 5), ClassWatch::DEMAND, soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_serve_beyond_the_limit_refuses_at_once() {
    let (world, image) = one_host(&ReadPathConfig { serve_inflight_max: 4, ..config() });
    world.origin.set_delay(100 * MILLI);
    let path = &world.host("a").path;
    let start = Instant::now();
    let serves: Vec<_> = (0..10)
        .map(|index| tokio::spawn(path.serve(request(&image, index), ClassWatch::DEMAND, soon())))
        .collect();
    tokio::time::sleep(MILLI).await;
    let mut refused = 0;
    for serve in serves.into_iter().rev() {
        match serve.await.unwrap() {
            Err(PeerStatus::Overloaded) => {
                refused += 1;
                assert!(start.elapsed() < 10 * MILLI);
            }
            other => drop(other.unwrap()),
        }
    }
    assert_eq!(refused, 6);
    assert_eq!(world.host("a").metric("acstor_serves_inflight"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_serve_dropped_by_the_requester_frees_its_place() {
    let (world, image) = one_host(&ReadPathConfig { serve_inflight_max: 1, ..config() });
    world.origin.set_delay(100 * MILLI);
    let path = &world.host("a").path;
    let serve = tokio::spawn(path.serve(request(&image, 0), ClassWatch::DEMAND, soon()));
    tokio::time::sleep(MILLI).await;
    serve.abort();
    assert!(serve.await.is_err());
    path.serve(request(&image, 1), ClassWatch::DEMAND, soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_serve_origin_down_answers_at_once_and_retries_nothing() {
    let (world, image) = one_host(&config());
    world.origin.set(OriginFaultMode::Down);
    let path = &world.host("a").path;
    let start = Instant::now();
    let status = path.serve(request(&image, 0), ClassWatch::DEMAND, soon()).await.unwrap_err();
    assert_eq!(status, PeerStatus::Unavailable);
    assert!(start.elapsed() < 10 * MILLI);
    assert_eq!(world.origin.call_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_serve_late_origin_answers_before_the_requester_gives_up() {
    let (world, image) = one_host(&config());
    world.origin.set(OriginFaultMode::Hangs);
    let deadline = soon();
    let status = world
        .host("a")
        .path
        .serve(request(&image, 0), ClassWatch::DEMAND, deadline)
        .await
        .unwrap_err();
    assert_eq!(status, PeerStatus::Expired);
    assert!(deadline.saturating_duration_since(Instant::now()) >= 100 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn test_guest_that_joins_a_failing_serve_is_retried() {
    let (world, image) = one_host(&config());
    world.origin.set_delay(50 * MILLI);
    world.origin.set(OriginFaultMode::Down);
    let host = world.host("a");
    let serve = tokio::spawn(host.path.serve(request(&image, 0), ClassWatch::DEMAND, soon()));
    tokio::time::sleep(10 * MILLI).await;
    let guest = tokio::spawn(host.view(&image).read(0, 4096));
    tokio::time::sleep(100 * MILLI).await;
    world.origin.set(OriginFaultMode::Well);
    guest.await.unwrap().unwrap();
    drop(serve);
}

#[tokio::test(start_paused = true)]
async fn test_detached_disk_is_served_from_the_store_only() {
    let (world, image) = one_host(&config());
    let path = &world.host("a").path;
    path.serve(request(&image, 0), ClassWatch::DEMAND, soon()).await.unwrap();
    world.flush();
    path.detach(&image.id()).unwrap();
    path.serve(request(&image, 0), ClassWatch::DEMAND, soon()).await.unwrap();
    assert_eq!(
        path.serve(request(&image, 1), ClassWatch::DEMAND, soon()).await.unwrap_err(),
        PeerStatus::NotFound
    );
}
