//! Preloads that listen before they fetch.

use std::sync::Arc;
use std::time::Duration;

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::image::{CHUNK, Image, Shape};
use super::world::{TestHost, World, config};
use crate::{
    FedChunk, FeedFuture, FeedRequest, LocalStore, PreloadFeed, PreloadRequest, PreloadState,
    PreloadWhat,
};

const CHUNKS: usize = 200;
const FULL: PreloadRequest =
    PreloadRequest { what: PreloadWhat::Full, rate_bytes_per_s: 0, pin: false };

/// Passes on every `step`-th chunk that is missing, then waits for `time`.
struct SteppedFeed {
    content: Vec<u8>,
    step: u64,
    time: Duration,
    asked: Mutex<Vec<usize>>,
}

impl PreloadFeed for SteppedFeed {
    fn feed(&self, request: FeedRequest, chunks: mpsc::Sender<FedChunk>) -> FeedFuture {
        self.asked.lock().push(request.missing.len());
        let mut missing: Vec<(u64, Digest)> = request.missing.into_iter().collect();
        missing.retain(|(index, _)| index.is_multiple_of(self.step));
        let chunk = |index: u64| {
            let begin = index as usize * CHUNK;
            Bytes::copy_from_slice(&self.content[begin..begin + CHUNK])
        };
        let passed: Vec<FedChunk> =
            missing.into_iter().map(|(index, digest)| (index, digest, chunk(index))).collect();
        let time = self.time;
        Box::pin(async move {
            for chunk in passed {
                let _ = chunks.send(chunk).await;
            }
            sleep(time).await;
        })
    }
}

fn fed(host: &TestHost, image: &Image, step: u64, time: Duration) -> Arc<SteppedFeed> {
    let content = image.content.clone();
    let feed = Arc::new(SteppedFeed { content, step, time, asked: Mutex::default() });
    host.path.set_preload_feed(feed.clone());
    feed
}

fn world() -> (World, Image) {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape::plain(1, CHUNKS));
    (world, image)
}

/// Waits until the preload has ended; returns its state.
async fn ended(host: &TestHost) -> PreloadState {
    let start = Instant::now();
    loop {
        host.catch_up().await;
        let state = host.path.preload_status()[0].state;
        if state.has_ended() {
            return state;
        }
        assert!(start.elapsed() < Duration::from_secs(20_000), "{state:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn holds_all(host: &TestHost, image: &Image) -> bool {
    let chunks = image.content.chunks(CHUNK);
    chunks.map(Digest::of).all(|digest| host.store.contains(&digest))
}

#[tokio::test(start_paused = true)]
async fn test_preload_that_is_fed_whole_fetches_nothing() {
    let (world, image) = world();
    let host = world.host("a");
    let feed = fed(host, &image, 1, Duration::ZERO);
    host.path.preload_start(&image.id(), FULL).unwrap();
    assert_eq!(ended(host).await, PreloadState::Done);
    assert!(holds_all(host, &image));
    assert_eq!((world.origin.bytes(), &feed.asked.lock()[..]), (0, &[CHUNKS][..]));
    let status = host.path.preload_status().pop().unwrap();
    assert_eq!(status.fetched_bytes, (CHUNKS * CHUNK) as u64);
    // What is there already is nobody's business.
    host.path.preload_start(&image.id(), FULL).unwrap();
    assert_eq!(ended(host).await, PreloadState::Done);
    assert_eq!(feed.asked.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_preload_fetches_what_did_not_come() {
    for step in [2, 7, 1_000_000] {
        let (world, image) = world();
        let host = world.host("a");
        fed(host, &image, step, Duration::from_secs(3));
        host.path.preload_start(&image.id(), FULL).unwrap();
        assert_eq!(ended(host).await, PreloadState::Done);
        assert!(holds_all(host, &image));
        assert!(world.origin.bytes() < CHUNKS * CHUNK, "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_preload_that_listens_can_be_stopped() {
    let (world, image) = world();
    let host = world.host("a");
    let feed = fed(host, &image, 2, Duration::from_secs(1_000_000));
    host.path.preload_start(&image.id(), FULL).unwrap();
    while feed.asked.lock().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    host.path.preload_stop(&image.id()).unwrap();
    assert_eq!(ended(host).await, PreloadState::Stopped);
    assert_eq!(world.origin.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_chunks_for_a_sender_are_those_of_a_preload_and_are_not_kept() {
    let (world, image) = world();
    let host = world.host("a");
    let chunks = host.path.preload_chunks(&image.id(), PreloadWhat::Full).unwrap();
    assert_eq!(chunks, (0..CHUNKS as u64).collect::<Vec<_>>());
    assert!(host.path.can_preload(&image.id(), PreloadWhat::Full));
    assert!(!host.path.can_preload(&image.id(), PreloadWhat::WorkingSet), "no boot is known");
    let bytes = host.path.preload_chunk(image.id(), 3).await.unwrap();
    assert_eq!(bytes, image.content[3 * CHUNK..4 * CHUNK]);
    assert!(host.path.preload_chunk(image.id(), 1 << 40).await.is_none());
}
