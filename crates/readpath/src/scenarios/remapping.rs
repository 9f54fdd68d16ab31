//! What happens when the ring changes.

use std::time::Duration;

use super::image::Shape;
use super::network::PeerMood;
use super::world::{World, config, ring};
use crate::NO_HINT;

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
    world.network.set("b", PeerMood::Dead);
    world.network.set("c", PeerMood::Dead);
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
