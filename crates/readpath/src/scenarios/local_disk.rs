//! A chunk store whose chunks are on the disk only, and a disk that fails or hangs.
//!
//! In real time, since the disk is read by threads; what a test waits for is a condition.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::image::{CHUNK, Image, Shape};
use super::world::{TestHost, World, config};
use crate::{BlockView, LocalStore, ReadPathConfig, Segment, limits};

const CHUNKS: usize = 64;

/// One host whose store has an image, on the disk only.
fn world(late_after: Duration) -> (World, Image) {
    let world = World::new(&["a"], &ReadPathConfig { store_late_after: late_after, ..config() });
    let image = world.image(Shape::plain(1, CHUNKS));
    let chunks: Vec<_> = (0..CHUNKS)
        .map(|index| {
            let content = &image.content[index * CHUNK..(index + 1) * CHUNK];
            (image.digest(index), Bytes::copy_from_slice(content))
        })
        .collect();
    let store = &world.host("a").store;
    store.insert_many(&chunks).unwrap();
    store.is_cold.store(true, Ordering::Relaxed);
    (world, image)
}

/// Time after which no test is late by itself, however busy the machine.
const NEVER: Duration = limits::DURATION_MAX;
const SOON: Duration = Duration::from_millis(20);

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: not within a minute");
}

fn store_reads(host: &TestHost, outcome: &str) -> u64 {
    host.metric(&format!("acstor_store_reads_total{{outcome=\"{outcome}\"}}"))
}

#[tokio::test]
async fn test_chunk_on_disk_is_read_once_for_all_who_wait_and_never_by_a_front_end_thread() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.set_hung(true);
    let view = host.view(&image);
    assert!(matches!(view.try_read(0, 100).unwrap(), crate::TryRead::WouldWait));
    let reads: Vec<_> = (0..8).map(|part| tokio::spawn(view.read(part * 512, 512))).collect();
    wait_until("the disk is read", || host.store.reads.load(Ordering::Relaxed) == 1).await;
    host.store.set_hung(false);
    for (part, read) in reads.into_iter().enumerate() {
        let segments = read.await.unwrap().unwrap();
        super::world::check(&image, part as u64 * 512, 512, &segments);
    }
    assert_eq!((host.store.reads.load(Ordering::Relaxed), host.tier("store")), (1, 8));
    assert_eq!((store_reads(host, "read"), host.tier("origin")), (1, 0));
}

#[tokio::test]
async fn test_part_of_a_chunk_on_disk_is_read_without_the_rest() {
    const PAGE: usize = 512;
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.page_bytes.store(PAGE, Ordering::Relaxed);
    let mut parts = 0;
    let mut chunks = 0;
    for (offset, len) in
        [(0, PAGE), (PAGE, CHUNK - PAGE), (700, 9), (CHUNK - 100, 200), (0, 3 * CHUNK)]
    {
        host.read(&image, offset as u64, len).await.unwrap();
        let (first, last) = (offset / CHUNK, (offset + len - 1) / CHUNK);
        let whole = if len >= CHUNK { len / CHUNK } else { 0 };
        (parts, chunks) = (parts + last - first + 1 - whole, chunks + whole);
        assert_eq!(store_reads(host, "part"), parts as u64, "{len} bytes at {offset}");
        assert_eq!(store_reads(host, "read"), chunks as u64, "{len} bytes at {offset}");
    }
    assert_eq!(host.tier("origin"), 0);
}

#[tokio::test]
async fn test_part_of_a_chunk_is_read_once_for_all_who_wait_for_it() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.page_bytes.store(1024, Ordering::Relaxed);
    host.store.set_hung(true);
    let view = host.view(&image);
    let reads: Vec<_> = (0..8).map(|part| tokio::spawn(view.read(part * 512, 512))).collect();
    wait_until("the disk is read", || host.store.reads.load(Ordering::Relaxed) == 4).await;
    host.store.set_hung(false);
    for (part, read) in reads.into_iter().enumerate() {
        let segments = read.await.unwrap().unwrap();
        super::world::check(&image, part as u64 * 512, 512, &segments);
    }
    assert_eq!((host.store.reads.load(Ordering::Relaxed), store_reads(host, "part")), (4, 4));
}

#[tokio::test]
async fn test_disk_that_hangs_costs_a_read_a_moment_and_the_host_nothing() {
    let (world, image) = world(SOON);
    let host = world.host("a");
    host.store.set_hung(true);
    // One at a time, so that each is late after the one before.
    for chunk in 0..u64::from(limits::STORE_LATE_MAX) {
        host.read_chunk(&image, chunk).await.unwrap();
    }
    assert_eq!(host.tier("origin"), u64::from(limits::STORE_LATE_MAX));
    assert_eq!(store_reads(host, "late"), u64::from(limits::STORE_LATE_MAX));
    assert_eq!(host.metric("acstor_store_up"), 0);
    host.read(&image, 32 * CHUNK as u64, 16 * CHUNK).await.unwrap();
    assert!(store_reads(host, "skipped") >= 15, "all but a probe, if it was time for one");
    host.store.set_hung(false);
    wait_until("the disk is known to be back", || host.metric("acstor_store_up") == 1).await;
}

#[tokio::test]
async fn test_disk_that_hangs_does_not_hold_up_the_end() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.set_hung(true);
    let read = tokio::spawn(host.view(&image).read(0, CHUNK));
    wait_until("the disk is read", || host.store.reads.load(Ordering::Relaxed) == 1).await;
    host.path.stop(Duration::ZERO);
    let _ = read.await.unwrap();
    host.store.set_hung(false);
}

#[tokio::test]
async fn test_chunk_that_the_disk_lost_comes_from_elsewhere() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.fails_reads.store(true, Ordering::Relaxed);
    host.read_chunk(&image, 3).await.unwrap();
    assert_eq!((store_reads(host, "failed"), host.tier("origin")), (1, 1));
    assert_eq!(host.metric("acstor_store_read_errors_total"), 1);
}

#[tokio::test]
async fn test_reads_of_a_busy_disk_are_bounded() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.set_hung(true);
    let view = host.view(&image);
    let read = tokio::spawn(view.read(0, CHUNKS * CHUNK));
    let readers = limits::STORE_READERS_MAX;
    wait_until("all read", || host.store.reads.load(Ordering::Relaxed) == readers).await;
    host.store.set_hung(false);
    super::world::check(&image, 0, CHUNKS * CHUNK, &read.await.unwrap().unwrap());
    assert_eq!(host.store.reads.load(Ordering::Relaxed), CHUNKS);
}

/// Starts a read as a front end does; what it ended with comes through the channel.
fn start(
    view: &dyn BlockView,
    offset: usize,
    len: usize,
) -> oneshot::Receiver<Option<Vec<Segment>>> {
    let (ended, end) = oneshot::channel();
    view.start_read(offset as u64, len, Box::new(|segments| drop(ended.send(segments))));
    end
}

#[tokio::test]
async fn test_read_that_is_started_is_ended_by_the_thread_that_read_the_disk() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    host.store.page_bytes.store(512, Ordering::Relaxed);
    let view = host.view(&image);
    let segments = start(&*view, CHUNK + 700, 9).await.unwrap().unwrap();
    super::world::check(&image, CHUNK as u64 + 700, 9, &segments);
    assert_eq!((store_reads(host, "part"), host.tier("store")), (1, 1));
    // By two threads at once, whatever else they need, or from memory: that is for a task.
    assert!(start(&*view, CHUNK - 1, 2).try_recv().unwrap().is_none());
    assert!(start(&*view, CHUNKS * CHUNK, 1).try_recv().unwrap().is_none());
    host.store.is_cold.store(false, Ordering::Relaxed);
    assert!(start(&*view, 0, 9).try_recv().unwrap().is_none());
    host.store.clear();
    assert!(start(&*view, 0, 9).try_recv().unwrap().is_none());
    assert_eq!(host.store.reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn test_read_that_is_started_and_late_is_given_back_and_not_waited_for_again() {
    let (world, image) = world(SOON);
    let host = world.host("a");
    host.store.set_hung(true);
    let view = host.view(&image);
    assert!(start(&*view, 0, 9).await.unwrap().is_none());
    assert_eq!(store_reads(host, "late"), 1);
    host.read(&image, 0, 9).await.unwrap();
    assert_eq!((store_reads(host, "late"), store_reads(host, "skipped")), (1, 1));
    assert_eq!(host.tier("origin"), 1);
    host.store.set_hung(false);
}

#[tokio::test]
async fn test_late_reads_that_were_started_open_the_breaker() {
    let (world, image) = world(SOON);
    let host = world.host("a");
    host.store.set_hung(true);
    let view = host.view(&image);
    for chunk in 0..limits::STORE_LATE_MAX as usize {
        assert!(start(&*view, chunk * CHUNK, 9).await.unwrap().is_none());
    }
    assert_eq!(host.metric("acstor_store_up"), 0);
    assert!(start(&*view, 32 * CHUNK, 9).try_recv().unwrap().is_none(), "at once");
    host.store.set_hung(false);
    wait_until("the disk is known to be back", || host.metric("acstor_store_up") == 1).await;
    assert!(start(&*view, 33 * CHUNK, 9).await.unwrap().is_some());
}

#[tokio::test]
async fn test_read_that_is_started_is_given_back_at_the_end_and_where_the_chunk_is_lost() {
    let (world, image) = world(NEVER);
    let host = world.host("a");
    let view = host.view(&image);
    host.store.fails_reads.store(true, Ordering::Relaxed);
    assert!(start(&*view, 0, 9).await.unwrap().is_none());
    assert_eq!(store_reads(host, "failed"), 1);
    host.store.set_hung(true);
    let waiting = start(&*view, CHUNK, 9);
    wait_until("the disk is read", || host.store.reads.load(Ordering::Relaxed) == 2).await;
    host.path.stop(Duration::ZERO);
    assert!(waiting.await.unwrap().is_none());
    assert!(start(&*view, 2 * CHUNK, 9).await.unwrap().is_none());
    host.store.set_hung(false);
}
