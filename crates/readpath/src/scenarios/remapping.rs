//! Changes of the ring.

use std::time::Duration;

use acstor_ring::{Host, RingBuilder};

use super::image::Shape;
use super::network::{Network, PeerFaultMode};
use super::world::{World, config, ring};
use crate::{NO_HINT, PlacementRule, ReadPathConfig};

const OLD: [(&str, u32); 3] = [("a", 0), ("b", 1), ("c", 1)];
const NEW: [(&str, u32); 3] = [("a", 2), ("b", 1), ("c", 1)];
const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn test_remap_new_owner_asks_the_previous_owner_before_the_origin() {
    let world = World::with_weights(&OLD, &config());
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, 800) });
    world.host("b").read(&image, 0, 800 * 4096).await.unwrap();
    world.flush();
    assert_eq!(world.origin.bytes(), 800 * 4096);
    world.set_ring(2, &NEW);
    // By the new owner's own guest, and by a peer that asks the new owner.
    let moved = (0..50)
        .map(|span| span * 16)
        .find(|first| {
            let oid = acstor_types::Oid::of(&image.id(), *first);
            ring(1, &OLD).owner(oid).name == "b" && ring(2, &NEW).owner(oid).name == "a"
        })
        .unwrap();
    world.host("a").read_chunk(&image, moved).await.unwrap();
    world.host("c").read_chunk(&image, moved + 1).await.unwrap();
    assert_eq!(world.host("a").tier("previous_owner"), 1);
    let served = world.host("a").metric("acstor_serves_total{outcome=\"previous_owner\"}");
    assert_eq!(served, 1);
    assert_eq!(world.origin.bytes(), 800 * 4096, "nothing left the origin twice");
    world.flush();
    assert!(world.host("a").store.digests().contains(&image.digest(moved as usize)), "it owns it");
}

const REMAPPED: &str = "acstor_remapped_chunks_total{outcome=\"previous_owner\"}";

/// Two changes before anybody asks: the owner in between never had the chunks.
#[tokio::test(start_paused = true)]
async fn test_remap_twice_within_a_short_time_finds_what_stayed_behind() {
    let world = World::with_weights(&[("a", 0), ("b", 1), ("c", 0)], &config());
    let image = world.image(Shape::plain(1, 160));
    world.host("b").read(&image, 0, 160 * 4096).await.unwrap();
    world.flush();
    let bytes = world.origin.bytes();
    world.set_ring(2, &[("a", 0), ("b", 0), ("c", 1)]);
    // Host a hears nothing of the next generation, which changes nothing for it.
    for host in ["b", "c"] {
        world.host(host).rings.set(ring(3, &[("a", 0), ("b", 0), ("c", 1)])).unwrap();
    }
    world.set_ring(4, &[("a", 1), ("b", 0), ("c", 0)]);
    world.host("a").read(&image, 0, 160 * 4096).await.unwrap();
    assert_eq!(world.origin.bytes(), bytes, "nothing left the origin again");
    assert_eq!(world.host("a").tier("previous_owner"), 160);
    assert_eq!(world.host("a").metric(REMAPPED), 160);
}

#[tokio::test(start_paused = true)]
async fn test_remap_causes_few_more_misses_than_the_weights_force() {
    let config = ReadPathConfig { placement: PlacementRule::Oid { span_chunks: 1 }, ..config() };
    let before: Vec<(&str, u32)> =
        ["a", "b", "c", "d", "e"].iter().map(|name| (*name, 10)).collect();
    let world = World::with_weights(&before, &config);
    let image = world.image(Shape::plain(1, 1000));
    let old = ring(1, &before);
    for chunk in 0..1000 {
        // By its owner, so that nobody else has it in memory.
        let owner = &old.owner(acstor_types::Oid::of(&image.id(), chunk)).name;
        world.host(owner).read_chunk(&image, chunk).await.unwrap();
    }
    world.flush();
    let bytes = world.origin.bytes();
    let hosts = before.iter().map(|(name, weight)| {
        let weight = if *name == "b" { weight / 5 } else { *weight };
        Host::new(*name, Network::address(name), weight)
    });
    let new = RingBuilder::succeeding(&old).moved_share_max(1.0).hosts(hosts).build().unwrap();
    let least = acstor_ring::least_moved_share(&old, new.hosts(), 1024);
    for host in &world.hosts {
        host.rings.set(new.clone()).unwrap();
    }
    world.host("a").read(&image, 0, 1000 * 4096).await.unwrap();
    let misses: u64 = world.hosts.iter().map(|host| host.metric(REMAPPED)).sum();
    // The chunks of an image hit the v-nodes that move by chance: 1000 of them within some 20 %.
    assert!(misses > 0 && misses as f64 <= 1.2 * least * 1000.0 + 30.0, "{misses}, least {least}");
    assert_eq!(world.origin.bytes(), bytes);
}

#[tokio::test(start_paused = true)]
async fn test_remap_what_nobody_had_is_not_blamed_on_it() {
    let world = World::with_weights(&OLD, &config());
    let image = world.image(Shape::plain(1, 400));
    world.set_ring(2, &NEW);
    let moved = world.span_of(&image, "a", 0);
    world.host("a").read_chunk(&image, moved).await.unwrap();
    world.network.set("b", PeerFaultMode::Dead);
    world.network.set("c", PeerFaultMode::Dead);
    world.host("a").read_chunk(&image, moved + 1).await.unwrap();
    let count = |outcome: &str| {
        world.host("a").metric(&format!("acstor_remapped_chunks_total{{outcome=\"{outcome}\"}}"))
    };
    assert_eq!((count("cold"), count("origin"), count("previous_owner")), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn test_remap_previous_owner_is_asked_for_what_it_has_only() {
    let world = World::with_weights(&OLD, &config());
    let image = world.image(Shape::plain(1, 400));
    world.set_ring(2, &NEW);
    let moved = world.span_of(&image, "a", 0);
    world.host("a").read_chunk(&image, moved).await.unwrap();
    let asked: Vec<_> = ["b", "c"].iter().flat_map(|host| world.network.asked(host)).collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].request.chunk_index, NO_HINT);
    assert_eq!(world.host("a").tier("origin"), 1);
    assert_eq!(world.origin.call_count(), 1, "the previous owner did not read it");
}

#[tokio::test(start_paused = true)]
async fn test_remap_dead_previous_owner_delays_nothing() {
    let world = World::with_weights(&OLD, &config());
    let image = world.image(Shape::plain(1, 400));
    world.set_ring(2, &NEW);
    world.network.set("b", PeerFaultMode::Dead);
    world.network.set("c", PeerFaultMode::Dead);
    let start = tokio::time::Instant::now();
    let moved = world.span_of(&image, "a", 0);
    world.host("a").read(&image, moved * 4096, 16 * 4096).await.unwrap();
    assert!(start.elapsed() < 100 * MILLI);
}

/// Each host believes that the other one owns the chunk; both miss it at the same moment.
#[tokio::test(start_paused = true)]
async fn test_hosts_whose_rings_disagree_do_not_wait_for_each_other() {
    let world = World::with_weights(&[("a", 1), ("b", 1)], &config());
    let image = world.image(Shape::plain(1, 16));
    world.host("a").rings.set(ring(2, &[("a", 0), ("b", 1)])).unwrap();
    world.host("b").rings.set(ring(2, &[("a", 1), ("b", 0)])).unwrap();
    let start = tokio::time::Instant::now();
    let (a, b) =
        tokio::join!(world.host("a").read_chunk(&image, 3), world.host("b").read_chunk(&image, 3),);
    a.unwrap();
    b.unwrap();
    assert!(start.elapsed() < 20 * MILLI, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn test_host_outside_the_ring_reads_through_the_owners() {
    let world = World::with_weights(&[("a", 1), ("b", 1)], &config());
    let image = world.image(Shape::plain(1, 64));
    world.set_ring(2, &[("a", 0), ("b", 1)]);
    world.host("a").read(&image, 0, 64 * 4096).await.unwrap();
    assert_eq!(world.host("a").tier("peer"), 64);
    world.flush();
    assert_eq!(world.host("b").store.digests().len(), 64);
}
