//! Reaction of a host to peers that are dead, late, corrupt or busy.

use std::time::Duration;

use acstor_peer::PeerStatus;
use acstor_selection::limits;
use tokio::time::Instant;

use super::image::{Image, Shape};
use super::network::PeerFaultMode;
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::ReadPathConfig;

const HOSTS: [&str; 3] = ["a", "b", "c"];
const MILLI: Duration = Duration::from_millis(1);

fn world(config: &ReadPathConfig) -> (World, Image) {
    let world = World::new(&HOSTS, config);
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, 1600) });
    (world, image)
}

/// Makes what host a knows of its peers: fast answers, enough for a p99.
async fn acquaint(world: &World, image: &Image) {
    for owner in ["b", "c"] {
        for span in 0..3 {
            let first = world.span_of(image, owner, span * 12 + 40);
            for chunk in first..first + 16 {
                world.host("a").read_chunk(image, chunk).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn test_peer_first_in_line_reads_the_origin_and_keeps_the_chunk() {
    let (world, image) = world(&config());
    let chunk = world.span_of(&image, "b", 0);
    for reader in ["a", "c", "b"] {
        world.host(reader).read_chunk(&image, chunk).await.unwrap();
        world.flush();
    }
    assert_eq!(world.origin.call_count(), 1);
    assert_eq!(world.host("a").tier("peer"), 1);
    assert_eq!(world.host("c").tier("peer"), 1);
    assert_eq!(world.host("b").tier("store"), 1);
    assert!(world.host("a").store.digests().is_empty(), "keep = never");
}

#[tokio::test(start_paused = true)]
async fn test_neighbours_asked_of_a_peer_leave_the_origin_in_one_call() {
    let (world, image) = world(&config());
    let first = world.span_of(&image, "b", 0);
    world.host("a").read(&image, first * 4096, 16 * 4096).await.unwrap();
    assert_eq!(world.network.asked("b").len(), 16);
    assert_eq!(world.origin.call_count(), 1, "{:?}", world.origin.calls());
}

#[tokio::test(start_paused = true)]
async fn test_lying_peer_is_counted_and_left_alone_and_nobody_sees_its_bytes() {
    for fault_mode in [PeerFaultMode::Lies, PeerFaultMode::ShortAnswers] {
        let (world, image) = world(&config());
        world.network.set("b", fault_mode);
        let first = world.span_of(&image, "b", 0);
        // Compared byte by byte.
        world.host("a").read_chunk(&image, first).await.unwrap();
        assert_eq!(world.host("a").fetches("corrupt"), 1);
        assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
        assert_eq!(world.host("a").metric("acstor_peers_penalised"), 1, "its former name");
        for chunk in first + 1..first + 16 {
            world.host("a").read_chunk(&image, chunk).await.unwrap();
        }
        assert_eq!(world.network.asked("b").len(), 1, "penalised");
        assert!(world.host("a").metric("acstor_peer_skips_total{reason=\"penalty\"}") >= 15);
        world.network.set("b", PeerFaultMode::Well);
        tokio::time::sleep(Duration::from_secs(61)).await;
        let other = world.span_of(&image, "b", first / 16 + 1);
        world.host("a").read_chunk(&image, other).await.unwrap();
        assert_eq!(world.network.asked("b").len(), 2, "asked again after the penalty");
        assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 0);
    }
}

/// A right answer that was on its way when the peer lied says nothing of its disk and memory.
#[tokio::test(start_paused = true)]
async fn test_penalty_of_a_lying_peer_outlasts_what_was_under_way() {
    let (world, image) = world(&config());
    let first = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Slow(100 * MILLI));
    let under_way = tokio::spawn(world.host("a").view(&image).read(first * 4096, 4096));
    tokio::time::sleep(10 * MILLI).await;
    world.network.set("b", PeerFaultMode::Lies);
    world.host("a").read_chunk(&image, first + 1).await.unwrap();
    assert_eq!(world.host("a").fetches("corrupt"), 1);
    world.network.set("b", PeerFaultMode::Well);
    let before = world.host("a").fetches("ok");
    under_way.await.unwrap().unwrap();
    assert_eq!(world.host("a").fetches("ok"), before + 1, "the answer came");
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
    tokio::time::sleep(Duration::from_secs(55)).await;
    world.host("a").read_chunk(&image, first + 2).await.unwrap();
    assert_eq!(world.network.asked("b").len(), 2, "still left alone");
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.host("a").read_chunk(&image, first + 3).await.unwrap();
    assert_eq!(world.network.asked("b").len(), 3, "asked again after the penalty");
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_dead_peer_costs_one_refused_connection_and_then_nothing() {
    let (world, image) = world(&config());
    world.network.set("b", PeerFaultMode::Dead);
    let first = world.span_of(&image, "b", 0);
    let start = Instant::now();
    for chunk in first..first + 16 {
        world.host("a").read_chunk(&image, chunk).await.unwrap();
    }
    assert!(start.elapsed() < 200 * MILLI, "{:?}", start.elapsed());
    assert_eq!(world.network.asked("b").len(), 1);
    assert_eq!(world.host("a").fetches("dead"), 1);
    // The next in line keeps what it read, so that the dead host's chunks leave the origin once.
    world.flush();
    let kept = world.host("c").store.digests().len() + world.host("a").store.digests().len();
    assert_eq!(kept, 16);
}

#[tokio::test(start_paused = true)]
async fn test_stalled_peer_is_hedged_after_its_p99() {
    let (world, image) = world(&config());
    acquaint(&world, &image).await;
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Stalled);
    let start = Instant::now();
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= 20 * MILLI && waited <= 30 * MILLI, "{waited:?}: hedge_min and a fetch");
    assert_eq!(world.host("a").metric("acstor_hedges_total{outcome=\"won\"}"), 1);
    assert_eq!(world.host("a").fetches("overtaken"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_unknown_stalled_peer_is_hedged_at_the_upper_bound() {
    let (world, image) = world(&config());
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Stalled);
    let start = Instant::now();
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited <= 1050 * MILLI, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn test_hedges_stay_within_their_share() {
    let (world, image) = world(&config());
    acquaint(&world, &image).await;
    // Both peers become ten times slower than the lower bound: everything is late.
    world.network.set("b", PeerFaultMode::Slow(200 * MILLI));
    world.network.set("c", PeerFaultMode::Slow(200 * MILLI));
    let fetches_before = world.network.asked_count();
    let reads: Vec<_> = (0..600u64)
        .map(|chunk| tokio::spawn(world.host("a").view(&image).read(chunk * 4096, 4096)))
        .collect();
    for read in reads {
        read.await.unwrap().unwrap();
    }
    let host = world.host("a");
    let started = host.metric("acstor_hedges_total{outcome=\"started\"}");
    let fetches = (world.network.asked_count() - fetches_before) as u64;
    assert!(host.metric("acstor_hedges_total{outcome=\"denied\"}") > 0);
    assert!(started > 0 && started <= 4 + 6 + fetches / 20, "{started} of {fetches}");
}

#[tokio::test(start_paused = true)]
async fn test_hedge_disabled_waits_for_the_peer_deadline() {
    let (world, image) = world(&ReadPathConfig { hedge_enabled: false, ..config() });
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Stalled);
    let start = Instant::now();
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(world.host("a").fetches("timeout"), 1);
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 1);
}

#[tokio::test(start_paused = true)]
async fn test_refusing_peer_is_passed_over_and_stays_trusted() {
    let (world, image) = world(&config());
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Refuses(PeerStatus::Overloaded));
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    assert_eq!(world.host("a").fetches("refused"), 1);
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 0);
    assert_eq!(world.origin.call_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_peer_whose_origin_fails_sends_the_reader_to_the_origin_itself() {
    let (world, image) = world(&config());
    let chunk = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Refuses(PeerStatus::Unavailable));
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    assert_eq!(world.host("a").tier("origin"), 1);
    assert_eq!(world.network.asked("c").len(), 0, "it would ask the same origin");
}

#[tokio::test(start_paused = true)]
async fn test_origin_down_for_all_hosts_is_not_multiplied_by_them() {
    let (world, image) = world(&config());
    world.origin.set(OriginFaultMode::Down);
    let mut reads = Vec::new();
    for host in &world.hosts {
        for chunk in (0..400u64).step_by(4) {
            reads.push(tokio::spawn(host.view(&image).read(chunk * 4096, 4096)));
        }
    }
    for read in reads {
        assert!(read.await.unwrap().is_err());
    }
    let calls = world.origin.calls();
    let late = calls.iter().filter(|call| call.at > Duration::from_secs(1)).count();
    // 300 reads wait for 30 s on three hosts: a probe per interval and host.
    assert!(late <= 3 * 35, "{late}");
}

#[tokio::test(start_paused = true)]
async fn test_origin_slow_for_the_owner_does_not_penalise_the_owner() {
    let config = ReadPathConfig { hedge_enabled: false, ..config() };
    let (world, image) = world(&config);
    let chunk = world.span_of(&image, "b", 0);
    world.origin.set_delay(Duration::from_secs(3));
    world.host("a").read_chunk(&image, chunk).await.unwrap();
    assert_eq!(world.host("a").fetches("unavailable"), 1, "it said so in time");
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_all_peers_dead_every_read_is_served_by_the_origin() {
    let (world, image) = world(&config());
    world.network.set("b", PeerFaultMode::Dead);
    world.network.set("c", PeerFaultMode::Dead);
    let start = Instant::now();
    world.host("a").read(&image, 0, 400 * 4096).await.unwrap();
    assert!(start.elapsed() < 200 * MILLI);
    assert_eq!(world.origin.bytes(), 400 * 4096);
}

#[tokio::test(start_paused = true)]
async fn test_dead_peer_that_returns_is_trusted_again_by_itself() {
    let (world, image) = world(&config());
    world.network.set("b", PeerFaultMode::Dead);
    let first = world.span_of(&image, "b", 0);
    world.host("a").read_chunk(&image, first).await.unwrap();
    world.network.set("b", PeerFaultMode::Well);
    tokio::time::sleep(limits::PEER_OPEN_MAX).await;
    world.host("a").read_chunk(&image, first + 1).await.unwrap();
    assert_eq!(world.host("a").metric("acstor_peers_circuit_open"), 0);
    assert_eq!(world.host("a").fetches("ok"), 2, "c, then b");
}

#[tokio::test(start_paused = true)]
async fn test_fetches_in_flight_from_one_peer_are_bounded() {
    let (world, image) = world(&ReadPathConfig { peer_inflight_max: 4, ..config() });
    let first = world.span_of(&image, "b", 0);
    world.network.set("b", PeerFaultMode::Slow(100 * MILLI));
    let start = Instant::now();
    world.host("a").read(&image, first * 4096, 16 * 4096).await.unwrap();
    let asked = world.network.asked("b");
    assert_eq!(asked.len(), 16);
    for number in 4..16 {
        let gap = asked[number].at - asked[number - 4].at;
        assert!(gap >= 100 * MILLI, "{gap:?}");
    }
    assert!(start.elapsed() >= 400 * MILLI);
}
