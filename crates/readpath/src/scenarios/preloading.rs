//! Preloads: what they bring, at which rate, and to whom they give way.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::test_origin::OriginFaultMode;
use super::world::{TestHost, World, config};
use crate::{
    PreloadRequest, PreloadState, PreloadStatus, PreloadWhat, ReadPathConfig, ReadPathError,
};

const CHUNKS: usize = 2000;
const MILLI: Duration = Duration::from_millis(1);
const FULL: PreloadRequest =
    PreloadRequest { what: PreloadWhat::Full, rate_bytes_per_s: 0, pin: false };

fn shape() -> Shape {
    Shape { chunks_per_pack: 128, ..Shape::plain(1, CHUNKS) }
}

fn world(names: &[&str]) -> (World, Image) {
    let world = World::new(names, &config());
    let image = world.image(shape());
    (world, image)
}

fn status(host: &TestHost, image: &Image) -> PreloadStatus {
    let mut found = host.path.preload_status();
    found.retain(|status| status.disk == image.id());
    found.pop().expect("a preload")
}

/// Waits until a preload is in one of some states.
async fn wait_for(host: &TestHost, image: &Image, states: &[PreloadState]) -> PreloadStatus {
    let start = Instant::now();
    loop {
        host.catch_up().await;
        let status = status(host, image);
        if states.contains(&status.state) {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(20_000), "{status:?}");
        sleep(5 * MILLI).await;
    }
}

async fn wait_ended(host: &TestHost, image: &Image) -> PreloadStatus {
    use PreloadState::{Done, Failed, Stopped};
    wait_for(host, image, &[Done, Failed, Stopped]).await
}

async fn done(host: &TestHost, image: &Image) -> PreloadStatus {
    let status = wait_ended(host, image).await;
    assert_eq!((status.state, &status.error), (PreloadState::Done, &None), "{status:?}");
    assert_eq!(status.remaining_bytes, 0);
    status
}

/// Bitmap of some chunks.
fn bitmap(chunks: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut bitmap = vec![0; CHUNKS.div_ceil(8)];
    for chunk in chunks {
        bitmap[chunk / 8] |= 1 << (chunk % 8);
    }
    bitmap
}

/// Keeps reads of a guest waiting: each misses and takes as long as the origin.
fn misses_for_ever(host: &TestHost, image: &Image) -> tokio::task::JoinHandle<()> {
    let view = host.view(image);
    tokio::spawn(async move {
        for index in (0..u64::MAX).map(|number| number % CHUNKS as u64) {
            let _ = view.read(index * CHUNK as u64, CHUNK).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn test_full_preload_brings_everything_and_the_origin_may_go() {
    for names in [&["a"][..], &["a", "b", "c"][..]] {
        let (world, image) = world(names);
        let host = world.host("a");
        let started = host.path.preload_start(&image.id(), FULL).unwrap();
        assert_eq!(started.state, PreloadState::Queued);
        let ended = done(host, &image).await;
        assert_eq!(ended.total_bytes, (CHUNKS * CHUNK) as u64);
        assert_eq!((ended.present_bytes, ended.fetched_bytes), (0, ended.total_bytes));
        assert_eq!(host.store.digests().len(), CHUNKS, "whatever keep says");
        assert_eq!(world.origin.bytes(), CHUNKS * CHUNK, "nothing left the origin twice");
        world.origin.set(OriginFaultMode::Down);
        for name in &names[1..] {
            world.network.set(name, PeerFaultMode::Dead);
        }
        host.read(&image, 0, CHUNKS * CHUNK).await.unwrap();
        assert_eq!(host.metric("acstor_recent_bytes"), 0, "room for what guests read");
    }
}

#[tokio::test(start_paused = true)]
async fn test_neighbours_leave_the_origin_in_long_runs() {
    let (world, image) = world(&["a"]);
    world.origin.set_delay(5 * MILLI);
    world.host("a").path.preload_start(&image.id(), FULL).unwrap();
    done(world.host("a"), &image).await;
    // 16 packs of 128 chunks, batches of 256 chunks.
    assert!(world.origin.call_count() <= 24, "{}", world.origin.call_count());
    let starts: Vec<u64> = world.origin.calls().iter().map(|call| call.offset).collect();
    assert!(starts.iter().filter(|offset| **offset == starts[0]).count() >= 12, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn test_working_set_preload_brings_what_was_set_and_no_zeros() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape { zero_every: 10, ..shape() });
    let host = world.host("a");
    let request = PreloadRequest { what: PreloadWhat::WorkingSet, ..FULL };
    let unknown = host.path.preload_start(&image.id(), request).unwrap_err();
    assert_eq!(unknown, ReadPathError::NoWorkingSet(image.id()));
    host.path.set_working_set(&image.id(), &bitmap((100..200).chain([1999]))).unwrap();
    host.read_chunk(&image, 101).await.unwrap();
    world.flush();
    let estimate = host.path.preload_estimate(&image.id(), request.what).unwrap();
    assert_eq!(estimate.total_bytes, 91 * CHUNK as u64);
    assert_eq!(estimate.missing_bytes, 90 * CHUNK as u64);
    host.path.preload_start(&image.id(), request).unwrap();
    let ended = done(host, &image).await;
    assert_eq!(ended.present_bytes, CHUNK as u64);
    assert_eq!(ended.fetched_bytes, 90 * CHUNK as u64);
    let wanted: HashSet<_> =
        (100..200).chain([1999]).filter(|i| i % 10 != 0).map(|i| image.digest(i)).collect();
    assert_eq!(host.store.digests(), wanted);
}

#[tokio::test(start_paused = true)]
async fn test_rate_is_held_within_5_per_cent_and_follows_a_change() {
    let (world, image) = world(&["a", "b"]);
    let host = world.host("a");
    let rate = 200_000;
    let start = Instant::now();
    host.path
        .preload_start(&image.id(), PreloadRequest { rate_bytes_per_s: rate, ..FULL })
        .unwrap();
    for _ in 0..200 {
        sleep(100 * MILLI).await;
        host.catch_up().await;
    }
    let share = status(host, &image).fetched_bytes as f64 / (rate * 20) as f64;
    assert!((0.95..=1.05).contains(&share), "{share}");
    let recent = status(host, &image).recent_bytes_per_s;
    assert!((180_000..=220_000).contains(&recent), "{recent}");
    let changed = PreloadRequest { rate_bytes_per_s: 0, ..FULL };
    assert_eq!(host.path.preload_start(&image.id(), changed).unwrap().request, changed);
    done(host, &image).await;
    assert!(start.elapsed() < Duration::from_secs(22), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn test_preload_gives_way_to_guests_that_wait_and_goes_on_after_them() {
    let (world, image) = world(&["a"]);
    let other = Image::register(Shape::plain(2, 64), &world.origin);
    let host = world.host("a");
    host.path.attach(other.manifest.clone()).unwrap();
    world.origin.set(OriginFaultMode::Hangs);
    let view = host.view(&image);
    let read = tokio::spawn(async move { view.read(0, CHUNK).await.map(|_| ()) });
    sleep(10 * MILLI).await;
    assert_eq!(host.metric("acstor_reads_waiting"), 1);
    host.path.preload_start(&other.id(), FULL).unwrap();
    let yielding = wait_for(host, &other, &[PreloadState::Yielding]).await;
    assert_eq!(yielding.fetched_bytes, 0);
    sleep(500 * MILLI).await;
    assert_eq!(world.origin.call_count(), 0, "the hanging call is the guest's");
    world.origin.set(OriginFaultMode::Well);
    read.await.unwrap().unwrap();
    let start = Instant::now();
    done(host, &other).await;
    assert!(start.elapsed() < 500 * MILLI);
    assert!(host.metrics()["acstor_preload_yield_seconds_total"] > 0.4);
}

#[tokio::test(start_paused = true)]
async fn test_guests_that_never_stop_waiting_leave_a_batch_a_second() {
    let (world, image) = world(&["a"]);
    let other = Image::register(Shape::plain(2, 64), &world.origin);
    let slow = Image::register(Shape::plain(3, CHUNKS), &world.origin);
    let host = world.host("a");
    for attached in [&other, &slow] {
        host.path.attach(attached.manifest.clone()).unwrap();
    }
    // A small store, so that the guest's reads go on missing.
    world.origin.set_delay(50 * MILLI);
    let readers: Vec<_> = [&image, &slow].map(|image| misses_for_ever(host, image)).into();
    sleep(20 * MILLI).await;
    let start = Instant::now();
    let request = PreloadRequest { rate_bytes_per_s: 32 * CHUNK as u64, ..FULL };
    host.path.preload_start(&other.id(), request).unwrap();
    done(host, &other).await;
    // 64 chunks in batches of 8, one per second of waiting at the latest.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(took > Duration::from_secs(4), "it did give way: {took:?}");
    readers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn test_guest_that_wants_a_chunk_in_flight_gets_it_first() {
    let config = ReadPathConfig { origin_threads: 2, ..config() };
    let world = World::new(&["a"], &config);
    let image = world.image(shape());
    let host = world.host("a");
    world.origin.set_delay(100 * MILLI);
    host.path.preload_start(&image.id(), FULL).unwrap();
    sleep(50 * MILLI).await;
    // The window holds all 2000 chunks; the last waits behind many runs.
    let start = Instant::now();
    host.read_chunk(&image, 1999).await.unwrap();
    assert!(start.elapsed() <= 220 * MILLI, "{:?}", start.elapsed());
    let joins = host.metric("acstor_flight_joins_total{side=\"guest\"}");
    assert_eq!(joins, 1, "one effort for both");
    done(host, &image).await;
    assert_eq!(world.origin.bytes(), CHUNKS * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn test_one_origin_thread_is_enough() {
    let config = ReadPathConfig { origin_threads: 1, ..config() };
    let world = World::new(&["a"], &config);
    let image = world.image(shape());
    world.host("a").path.preload_start(&image.id(), FULL).unwrap();
    done(world.host("a"), &image).await;
}

#[tokio::test(start_paused = true)]
async fn test_origin_away_is_waited_for_and_said() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape::plain(1, 40));
    let host = world.host("a");
    world.origin.set(OriginFaultMode::Down);
    host.path.preload_start(&image.id(), FULL).unwrap();
    let waiting = wait_for(host, &image, &[PreloadState::Waiting]).await;
    assert_eq!(waiting.fetched_bytes, 0);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(status(host, &image).state, PreloadState::Waiting);
    let calls = world.origin.call_count();
    assert!(calls < 400, "{calls} calls in ten minutes: probes only");
    world.origin.set(OriginFaultMode::Well);
    let start = Instant::now();
    done(host, &image).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn test_origin_away_for_too_long_fails_the_preload() {
    let world = World::new(&["a"], &config());
    let image = world.image(Shape::plain(1, 40));
    world.origin.set(OriginFaultMode::Down);
    world.host("a").path.preload_start(&image.id(), FULL).unwrap();
    sleep(Duration::from_secs(3550)).await;
    assert_eq!(status(world.host("a"), &image).state, PreloadState::Waiting);
    sleep(Duration::from_secs(60)).await;
    let ended = wait_ended(world.host("a"), &image).await;
    assert_eq!(ended.state, PreloadState::Failed);
    assert!(ended.error.unwrap().contains("nothing answered for 3600 s"));
}

#[tokio::test(start_paused = true)]
async fn test_flaky_origin_is_retried() {
    let (world, image) = world(&["a"]);
    world.origin.set(OriginFaultMode::Flaky);
    world.host("a").path.preload_start(&image.id(), FULL).unwrap();
    done(world.host("a"), &image).await;
    assert!(world.host("a").metric("acstor_preload_chunks_total{outcome=\"retried\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_damaged_chunk_fails_the_preload_after_bounded_attempts() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    world.origin.damage(image.digest(7));
    host.path.preload_start(&image.id(), FULL).unwrap();
    let ended = wait_ended(host, &image).await;
    assert_eq!(ended.state, PreloadState::Failed);
    let error = ended.error.unwrap();
    assert!(error.contains("chunk 7 ") && error.contains("after 5 attempts"), "{error}");
    assert_eq!(host.metric("acstor_preload_ended_total{outcome=\"failed\"}"), 1);
    assert_eq!(host.metric("acstor_flights"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_stopped_preload_keeps_what_it_brought_and_starts_again_there() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    let request = PreloadRequest { rate_bytes_per_s: 100 * CHUNK as u64, ..FULL };
    host.path.preload_start(&image.id(), request).unwrap();
    sleep(Duration::from_secs(5)).await;
    host.catch_up().await;
    host.path.preload_stop(&image.id()).unwrap();
    let stopped = status(host, &image);
    assert_eq!(stopped.state, PreloadState::Stopped);
    assert!(stopped.fetched_bytes > 400 * CHUNK as u64);
    sleep(Duration::from_secs(5)).await;
    world.flush();
    let held = host.store.digests().len();
    assert!(held * CHUNK >= stopped.fetched_bytes as usize && held < 600, "{held}");
    host.path.preload_stop(&image.id()).unwrap();
    host.path.preload_start(&image.id(), FULL).unwrap();
    let ended = done(host, &image).await;
    assert_eq!(ended.present_bytes, (held * CHUNK) as u64);
    assert_eq!(world.origin.bytes(), CHUNKS * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn test_preloads_beyond_the_bound_are_queued() {
    let world = World::new(&["a"], &config());
    let images: Vec<Image> = (1..5).map(|number| world.image(Shape::plain(number, 200))).collect();
    let host = world.host("a");
    let slow = PreloadRequest { rate_bytes_per_s: 40 * CHUNK as u64, ..FULL };
    for image in &images {
        host.path.preload_start(&image.id(), slow).unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let queued = |host: &TestHost| host.metric("acstor_preload_jobs{state=\"queued\"}");
    assert_eq!(queued(host), 2);
    let first = host.path.preload_status();
    let states: Vec<PreloadState> = first.iter().map(|status| status.state).collect();
    use PreloadState::{Queued, Running};
    assert_eq!(states, [Running, Running, Queued, Queued]);
    host.path.preload_stop(&images[2].id()).unwrap();
    done(host, &images[3]).await;
    assert_eq!(queued(host), 0);
}

#[tokio::test(start_paused = true)]
async fn test_more_than_the_store_can_keep_fails_before_anything_is_fetched() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    host.store.chunks_max.store(1500, Ordering::Relaxed);
    host.path.preload_start(&image.id(), FULL).unwrap();
    let ended = wait_ended(host, &image).await;
    assert_eq!(ended.state, PreloadState::Failed);
    assert_eq!(ended.total_bytes, (CHUNKS * CHUNK) as u64);
    let error = ended.error.unwrap();
    let numbers = [CHUNKS * CHUNK, 1500 * CHUNK].map(|number| number.to_string());
    assert!(numbers.iter().all(|number| error.contains(number)), "{error}");
    assert_eq!(world.origin.call_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_pinned_chunks_of_others_count_as_no_room() {
    let (world, image) = world(&["a"]);
    let other = world.image(Shape::plain(2, 300));
    let host = world.host("a");
    host.store.chunks_max.store(2200, Ordering::Relaxed);
    host.path.pin(&other.id(), u64::MAX, 0, Duration::from_secs(5)).await.unwrap();
    host.path.preload_start(&image.id(), FULL).unwrap();
    assert_eq!(wait_ended(host, &image).await.state, PreloadState::Failed);
    host.path.pin(&other.id(), 0, 0, Duration::from_secs(5)).await.unwrap();
    host.path.preload_start(&image.id(), FULL).unwrap();
    done(host, &image).await;
}

#[tokio::test(start_paused = true)]
async fn test_pins_of_a_preload_stay_until_one_without_pins_or_the_detach() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    let pinning = PreloadRequest { pin: true, ..FULL };
    host.read(&image, 0, 100 * CHUNK).await.unwrap();
    world.flush();
    host.path.preload_start(&image.id(), pinning).unwrap();
    done(host, &image).await;
    assert_eq!(host.store.pinned(), CHUNKS);
    assert_eq!(host.path.pinned_bytes(&image.id()), (CHUNKS * CHUNK) as u64);
    let other = world.image(Shape::plain(2, 500));
    host.store.chunks_max.store(CHUNKS + 10, Ordering::Relaxed);
    host.read(&other, 0, 500 * CHUNK).await.unwrap();
    world.flush();
    assert!((0..CHUNKS).all(|index| host.store.digests().contains(&image.digest(index))));
    // The head and tail of the same image come and go without them.
    host.path.pin(&image.id(), 1, 1, Duration::from_secs(5)).await.unwrap();
    host.path.pin(&image.id(), 0, 0, Duration::from_secs(5)).await.unwrap();
    assert_eq!(host.store.pinned(), CHUNKS);
    host.path.preload_start(&image.id(), FULL).unwrap();
    done(host, &image).await;
    assert_eq!(host.store.pinned(), 0);
    host.path.preload_start(&image.id(), pinning).unwrap();
    done(host, &image).await;
    host.path.detach(&image.id()).unwrap();
    assert_eq!(host.store.pinned(), 0);
    assert_eq!(host.path.preload_status(), []);
}

#[tokio::test(start_paused = true)]
async fn test_more_than_may_be_pinned_fails_with_the_numbers() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    host.store.pins_max.store(100, Ordering::Relaxed);
    host.path.preload_start(&image.id(), PreloadRequest { pin: true, ..FULL }).unwrap();
    let ended = wait_ended(host, &image).await;
    assert_eq!(ended.state, PreloadState::Failed);
    let error = ended.error.unwrap();
    assert!(error.contains("pinning needs 8192000 bytes, and 409600 more"), "{error}");
    assert_eq!((host.store.pinned(), world.origin.call_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn test_pins_of_what_did_not_arrive_are_taken_back() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    world.origin.damage(image.digest(7));
    host.path.preload_start(&image.id(), PreloadRequest { pin: true, ..FULL }).unwrap();
    assert_eq!(wait_ended(host, &image).await.state, PreloadState::Failed);
    world.flush();
    let held = host.store.digests().len();
    assert!(host.store.pinned() <= held, "{} of {held}", host.store.pinned());
}

#[tokio::test(start_paused = true)]
async fn test_full_disk_fails_the_preload_with_the_stores_words() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    host.store.fails_writes.store(true, Ordering::Relaxed);
    host.path.preload_start(&image.id(), FULL).unwrap();
    let ended = wait_ended(host, &image).await;
    assert_eq!(ended.state, PreloadState::Failed);
    assert!(ended.error.unwrap().contains("injected"));
}

#[tokio::test(start_paused = true)]
async fn test_detached_and_unknown_images() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    world.origin.set_delay(100 * MILLI);
    host.path.preload_start(&image.id(), FULL).unwrap();
    sleep(10 * MILLI).await;
    host.path.detach(&image.id()).unwrap();
    assert_eq!(host.path.preload_status(), []);
    let unknown = ReadPathError::NotAttached(image.id());
    assert_eq!(host.path.preload_start(&image.id(), FULL).unwrap_err(), unknown);
    assert_eq!(host.path.preload_stop(&image.id()).unwrap_err(), unknown);
    assert_eq!(host.path.preload_estimate(&image.id(), FULL.what).unwrap_err(), unknown);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(host.metric("acstor_flights"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_hint_preloads_the_working_set_once_and_at_its_rate() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    let hints = |outcome: &str| {
        host.metric(&format!("acstor_preload_hints_total{{outcome=\"{outcome}\"}}"))
    };
    let hint = async |rate| {
        host.path.preload_hint(image.id(), rate);
        sleep(MILLI).await;
    };
    hint(1000).await;
    assert_eq!(hints("unknown"), 1);
    host.path.set_working_set(&image.id(), &bitmap(0..400)).unwrap();
    hint(0).await;
    assert_eq!(hints("off"), 1);
    let rate = 100 * CHUNK as u64;
    let start = Instant::now();
    hint(rate).await;
    hint(rate).await;
    assert_eq!((hints("started"), hints("busy")), (1, 1));
    let ended = done(host, &image).await;
    assert!(ended.is_hint && ended.request.rate_bytes_per_s == rate);
    let took = start.elapsed().as_secs_f64();
    assert!((3.5..4.3).contains(&took), "{took}");
    hint(rate).await;
    assert_eq!(hints("complete"), 1);
    // Somebody's own preload is not replaced by a hint, and keeps its pins.
    host.path.preload_start(&image.id(), PreloadRequest { pin: true, ..FULL }).unwrap();
    done(host, &image).await;
    host.store.clear();
    hint(0).await;
    hint(rate).await;
    assert_eq!(hints("started"), 2);
    assert_eq!(host.store.pinned(), CHUNKS);
}

#[tokio::test(start_paused = true)]
async fn test_another_request_replaces_the_job() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    host.path.set_working_set(&image.id(), &bitmap(0..100)).unwrap();
    host.path.preload_start(&image.id(), PreloadRequest { rate_bytes_per_s: 1, ..FULL }).unwrap();
    sleep(Duration::from_secs(1)).await;
    let request = PreloadRequest { what: PreloadWhat::WorkingSet, ..FULL };
    host.path.preload_start(&image.id(), request).unwrap();
    let ended = done(host, &image).await;
    assert_eq!(ended.request, request);
    assert_eq!(host.metric("acstor_preload_ended_total{outcome=\"stopped\"}"), 1);
    assert_eq!(host.path.preload_status().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_stopped_read_path_ends_preloads() {
    let (world, image) = world(&["a"]);
    let host = world.host("a");
    host.path.preload_start(&image.id(), PreloadRequest { rate_bytes_per_s: 1, ..FULL }).unwrap();
    sleep(Duration::from_secs(1)).await;
    host.path.stop(Duration::ZERO);
    assert_eq!(status(host, &image).state, PreloadState::Stopped);
    host.path.preload_start(&image.id(), FULL).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.origin.bytes(), CHUNK, "nothing runs after the stop");
}
