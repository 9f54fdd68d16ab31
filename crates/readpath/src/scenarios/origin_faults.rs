//! Reaction of a host to an origin that is slow, gone, damaged or overloaded.

use std::time::Duration;

use acstor_selection::limits;
use acstor_types::{Digest, PackId};
use tokio::time::Instant;

use super::image::{CHUNK, Image, Shape};
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::{ReadError, ReadPathConfig};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn one_host(config: &ReadPathConfig, chunks: usize) -> (World, Image) {
    let world = World::new(&["a"], config);
    let image = world.image(Shape::plain(1, chunks));
    (world, image)
}

/// Starts a read of each chunk at the same moment and returns the results.
async fn read_all(
    world: &World,
    image: &Image,
    chunks: impl Iterator<Item = u64>,
) -> Vec<Result<(), ReadError>> {
    let reads: Vec<_> = chunks
        .map(|index| {
            let read = world.host("a").view(image).read(index * CHUNK as u64, CHUNK);
            tokio::spawn(read)
        })
        .collect();
    let mut results = Vec::new();
    for read in reads {
        results.push(read.await.unwrap().map(|_| ()));
    }
    results
}

#[tokio::test(start_paused = true)]
async fn test_read_same_chunk_by_many_is_one_call() {
    let (world, image) = one_host(&config(), 16);
    world.origin.set_delay(5 * MILLI);
    let results = read_all(&world, &image, std::iter::repeat_n(3, 50)).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(world.origin.call_count(), 1);
    assert_eq!(world.origin.bytes(), CHUNK);
    let joins = world.host("a").metric("acstor_flight_joins_total{side=\"guest\"}");
    assert_eq!(joins, 49);
}

#[tokio::test(start_paused = true)]
async fn test_read_of_neighbours_is_one_call_per_run() {
    let run = 16 * CHUNK;
    let (world, image) = one_host(&ReadPathConfig { origin_run_max_bytes: run, ..config() }, 64);
    world.host("a").read(&image, 0, 64 * CHUNK).await.unwrap();
    let lens: Vec<usize> = world.origin.calls().iter().map(|call| call.len).collect();
    assert_eq!(lens, [run; 4]);
}

#[tokio::test(start_paused = true)]
async fn test_reads_that_arrive_together_are_gathered() {
    let (world, image) = one_host(&config(), 32);
    let results = read_all(&world, &image, 0..32).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(world.origin.call_count(), 1, "{:?}", world.origin.calls());
}

#[tokio::test(start_paused = true)]
async fn test_read_origin_down_fails_at_the_deadline_while_cached_reads_go_on() {
    let (world, image) = one_host(&config(), 64);
    let host = world.host("a");
    host.read_chunk(&image, 0).await.unwrap();
    world.flush();
    world.origin.set(OriginFaultMode::Down);
    let start = Instant::now();
    let error = host.read_chunk(&image, 40).await.unwrap_err();
    assert_eq!(error, ReadError::Deadline(30_000));
    assert_eq!(start.elapsed().as_secs(), 30);
    host.read_chunk(&image, 0).await.unwrap();
    assert_eq!(host.tier("store"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_read_waiting_when_the_origin_returns_is_served_soon() {
    let (world, image) = one_host(&config(), 64);
    world.origin.set(OriginFaultMode::Down);
    let waiting = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    // Enough misses to open the breaker.
    let others = read_all(&world, &image, 10..12);
    let origin = world.origin.clone();
    let repair = async {
        tokio::time::sleep(10 * SECOND).await;
        origin.set(OriginFaultMode::Well);
        Instant::now()
    };
    let (results, repaired) = tokio::join!(others, repair);
    waiting.await.unwrap().unwrap();
    assert!(results.iter().all(Result::is_ok));
    assert!(repaired.elapsed() <= limits::ORIGIN_OPEN_MAX + limits::BACKOFF_MAX);
    assert_eq!(world.host("a").metric("acstor_origin_up"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_origin_down_gets_no_storm() {
    let (world, image) = one_host(&config(), 1000);
    world.origin.set(OriginFaultMode::Down);
    let results = read_all(&world, &image, (0..1000).step_by(2)).await;
    assert!(results.iter().all(|result| *result == Err(ReadError::Deadline(30_000))));
    // 500 guests wait 30 s: the calls that opened the breaker, what was queued behind them, and a
    // probe per interval.
    let calls = world.origin.calls();
    let early = calls.iter().filter(|call| call.at < SECOND).count();
    assert!(calls.len() - early <= 30, "{} after the first second", calls.len() - early);
    let slowest = calls.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap();
    assert!(slowest <= limits::ORIGIN_OPEN_MAX + limits::BACKOFF_MAX, "{slowest:?}");
}

#[tokio::test(start_paused = true)]
async fn test_origin_flaky_reads_succeed_and_what_it_answers_pays_for_the_retries() {
    let (world, image) = one_host(&config(), 400);
    world.origin.set(OriginFaultMode::Flaky);
    for index in (0..400).step_by(2) {
        world.host("a").read_chunk(&image, index).await.unwrap();
    }
    assert_eq!(world.origin.call_count(), 400, "each second call fails");
    assert_eq!(world.host("a").metric("acstor_origin_retries_total{outcome=\"allowed\"}"), 200);
    let denied = world.host("a").metric("acstor_origin_retries_total{outcome=\"denied\"}");
    assert_eq!(denied, 0, "no more retries than answers");
}

#[tokio::test(start_paused = true)]
async fn test_origin_hangs_reads_end_at_the_deadline_and_late_bytes_are_kept() {
    let (world, image) = one_host(&config(), 200);
    world.origin.set(OriginFaultMode::Hangs);
    let results = read_all(&world, &image, (0..100).step_by(2)).await;
    assert!(results.iter().all(|result| *result == Err(ReadError::Deadline(30_000))));
    assert_eq!(world.origin.call_count(), 0, "calls have not returned");
    world.origin.set(OriginFaultMode::Well);
    tokio::time::sleep(SECOND).await;
    // Four threads hung; what else was queued is wanted by nobody and is not read.
    assert_eq!(world.origin.call_count(), 4);
    world.flush();
    assert_eq!(world.host("a").store.digests().len(), 4, "paid for, so kept");
    world.host("a").read_chunk(&image, 150).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_origin_damaged_chunk_is_an_error_and_spares_its_neighbours() {
    let (world, image) = one_host(&config(), 16);
    world.origin.damage(image.digest(5));
    let results = read_all(&world, &image, 0..16).await;
    for (index, result) in results.into_iter().enumerate() {
        let expected =
            if index == 5 { Err(ReadError::Corrupt { digest: image.digest(5) }) } else { Ok(()) };
        assert_eq!(result, expected);
    }
    assert_eq!(world.host("a").metric("acstor_origin_chunks_total{outcome=\"corrupt\"}"), 2);
    world.flush();
    assert!(!world.host("a").store.digests().contains(&image.digest(5)));
}

#[tokio::test(start_paused = true)]
async fn test_origin_truncated_pack_spares_what_is_left_of_it() {
    let (world, image) = one_host(&config(), 16);
    world.origin.truncate(PackId(Digest::of(&[1, 0])), 4096 + 10 * CHUNK);
    let results = read_all(&world, &image, 0..16).await;
    let readable = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(readable, 10);
    assert!(matches!(results[15], Err(ReadError::Corrupt { .. })));
}

#[tokio::test(start_paused = true)]
async fn test_origin_without_the_pack_is_looked_at_again_until_the_deadline() {
    let (world, image) = one_host(&config(), 128);
    world.origin.remove_pack(PackId(Digest::of(&[1, 0])));
    let start = Instant::now();
    let error = world.host("a").read_chunk(&image, 0).await.unwrap_err();
    assert_eq!(error, ReadError::Missing { digest: image.digest(0) });
    assert_eq!(start.elapsed().as_secs(), 30);
    let calls = world.origin.call_count();
    assert!((10..=40).contains(&calls), "{calls}");
    world.host("a").read_chunk(&image, 100).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn test_origin_queue_full_is_served_after_all() {
    let config = ReadPathConfig { origin_queue_max: 4, origin_run_max_bytes: 4096, ..config() };
    let (world, image) = one_host(&config, 128);
    world.origin.set_delay(20 * MILLI);
    let results = read_all(&world, &image, (0..128).step_by(2)).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(world.host("a").metric("acstor_origin_refusals_total{reason=\"full\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_origin_panics_is_an_error_and_the_workers_live_on() {
    let (world, image) = one_host(&config(), 16);
    world.origin.set(OriginFaultMode::Panics);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let reading = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    tokio::time::sleep(3 * SECOND).await;
    world.origin.set(OriginFaultMode::Well);
    reading.await.unwrap().unwrap();
    std::panic::set_hook(hook);
    assert!(world.host("a").metric("acstor_origin_calls_total{outcome=\"internal\"}") > 4);
}

#[tokio::test(start_paused = true)]
async fn test_origin_overloaded_is_left_alone() {
    let (world, image) = one_host(&config(), 64);
    world.origin.set(OriginFaultMode::Overloaded);
    let results = read_all(&world, &image, (0..64).step_by(2)).await;
    assert!(results.iter().all(Result::is_err));
    let late = world.origin.calls().iter().filter(|call| call.at > SECOND).count();
    assert!(late <= 30, "{late}");
}

#[tokio::test(start_paused = true)]
async fn test_read_dropped_leaves_the_others_waiting_undisturbed() {
    let (world, image) = one_host(&config(), 16);
    world.origin.set_delay(50 * MILLI);
    let leader = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    tokio::time::sleep(5 * MILLI).await;
    let follower = tokio::spawn(world.host("a").view(&image).read(0, CHUNK));
    tokio::time::sleep(5 * MILLI).await;
    leader.abort();
    follower.await.unwrap().unwrap();
    assert_eq!(world.origin.call_count(), 1);
}
