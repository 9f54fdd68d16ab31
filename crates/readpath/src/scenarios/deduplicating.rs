//! Copies beyond what the pool needs are given up, and never the last ones.

use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::world::{World, config, ring};
use crate::view::deduplication::Walk;
use crate::{Keep, LocalStore, ReadPathConfig};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const CHUNKS: usize = 64;

/// Hosts that all have every chunk of an image.
async fn everywhere(copies_max: usize) -> (World, Image) {
    let config = ReadPathConfig { keep: Keep::Always, copies_max, candidates_max: 4, ..config() };
    let world = World::new(&HOSTS, &config);
    let image = world.image(Shape::plain(1, CHUNKS));
    for host in &world.hosts {
        host.read(&image, 0, CHUNKS * 4096).await.unwrap();
    }
    world.flush();
    (world, image)
}

/// Returns the number of hosts that mean to keep a chunk.
fn copies(world: &World, image: &Image, index: usize) -> usize {
    world.hosts.iter().filter(|host| host.path.responder.claims.keeps(&image.digest(index))).count()
}

async fn rounds(world: &World, count: usize) {
    for _ in 0..count {
        for host in &world.hosts {
            host.path.deduplicate_some(&mut Walk::default()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn test_copies_beyond_the_threshold_are_given_up_by_those_placed_worst() {
    for copies_max in [1, 2, 3] {
        let (world, image) = everywhere(copies_max).await;
        rounds(&world, 2).await;
        let held: Vec<usize> = (0..CHUNKS).map(|index| copies(&world, &image, index)).collect();
        assert_eq!(held, [copies_max; CHUNKS], "{copies_max}");
        for index in 0..CHUNKS as u64 {
            let oid = acstor_types::Oid::of(&image.id(), index - index % 16);
            let owner = ring(1, &HOSTS.map(|host| (host, 1))).owner(oid).name.clone();
            assert!(world.host(&owner).path.responder.claims.keeps(&image.digest(index as usize)));
        }
        let demoted = "acstor_deduplication_chunks_total{outcome=\"demoted\"}";
        let sum: u64 = world.hosts.iter().map(|host| host.metric(demoted)).sum();
        assert_eq!(sum, (CHUNKS * (4 - copies_max)) as u64);
        assert_eq!(world.hosts[0].store.digests().len(), CHUNKS, "until the room is needed");
    }
}

#[tokio::test(start_paused = true)]
async fn test_what_a_host_wants_for_itself_or_cannot_ask_about_stays() {
    let (world, image) = everywhere(1).await;
    let path = &world.host("a").path;
    path.set_working_set(&image.id(), &[0xff; CHUNKS / 8]).unwrap();
    for host in ["a", "b"] {
        for peer in HOSTS {
            world
                .network
                .set(peer, if host == "a" { PeerFaultMode::Well } else { PeerFaultMode::Dead });
        }
        world.host(host).path.deduplicate_some(&mut Walk::default()).await;
        let kept = (0..CHUNKS)
            .filter(|index| world.host(host).path.responder.claims.keeps(&image.digest(*index)));
        assert_eq!(kept.count(), CHUNKS, "{host}");
    }
    let wanted = "acstor_deduplication_chunks_total{outcome=\"wanted\"}";
    assert_eq!(world.host("a").metric(wanted), CHUNKS as u64);
    assert_eq!(world.host("b").path.responder.claims.offered(), 0, "claimed again");
}

/// More and more images on all hosts: four copies of each chunk do not fit, two of all do.
async fn grow(copies_max: usize) -> (World, Vec<Image>) {
    const STORE_CHUNKS: usize = 1150;
    let config = ReadPathConfig { keep: Keep::Always, copies_max, candidates_max: 4, ..config() };
    let members = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 0)];
    let world = World::with_weights(&members, &config);
    for host in &world.hosts {
        host.store.chunks_max.store(STORE_CHUNKS, Ordering::Relaxed);
    }
    let mut images = Vec::new();
    for number in 1..=5 {
        let image = world.image(Shape { chunks_per_pack: 256, ..Shape::plain(number, 300) });
        for host in HOSTS {
            world.host(host).read(&image, 0, 300 * CHUNK).await.unwrap();
        }
        world.flush();
        if copies_max > 0 {
            rounds(&world, 3).await;
        }
        for host in HOSTS {
            let used = world.host(host).store.usage().used_bytes as usize;
            assert!(used <= STORE_CHUNKS * CHUNK);
        }
        images.push(image);
    }
    (world, images)
}

#[tokio::test(start_paused = true)]
async fn test_growing_copies_come_down_to_the_threshold_and_make_room() {
    let (world, images) = grow(2).await;
    for image in &images {
        for index in 0..300 {
            assert_eq!(copies(&world, image, index), 2, "{:?} {index}", image.id());
        }
    }
    let before = world.origin.bytes();
    assert_eq!(before, 5 * 300 * CHUNK, "each chunk left the origin once");
    // Compared byte by byte, by a host that owns nothing and has nothing.
    for image in &images {
        world.host("e").read(image, 0, 300 * CHUNK).await.unwrap();
    }
    assert_eq!(world.origin.bytes(), before, "all of it is in the pool");
    let (unlimited, images) = grow(0).await;
    let before = unlimited.origin.bytes();
    for image in &images {
        unlimited.host("e").read(image, 0, 300 * CHUNK).await.unwrap();
    }
    let again = (unlimited.origin.bytes() - before) / CHUNK;
    assert!(again > 300, "{again} chunks were pushed out by copies of others");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Hosts with rings of their own, each of which may believe that all others are placed better;
    /// all at once, requests in any order: the copies never go below the threshold.
    #[test]
    fn proptest_no_interleaving_gives_the_last_copies_up(
        copies_max in 1usize..3,
        weights in prop::collection::vec(prop::array::uniform4(0u32..3), 4),
        starts in prop::array::uniform4(prop::collection::vec(0u64..6, 3)),
        delays in prop::array::uniform4(0u64..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (world, image) = everywhere(copies_max).await;
            for (host, weights) in world.hosts.iter().zip(&weights) {
                let mut weights: Vec<(&str, u32)> =
                    HOSTS.into_iter().zip(weights.iter().copied()).collect();
                weights[0].1 += u32::from(weights.iter().all(|(_, weight)| *weight == 0));
                host.rings.set(ring(2, &weights)).unwrap();
            }
            for (host, delay) in HOSTS.iter().zip(delays) {
                let delay = Duration::from_millis(delay);
                world.network.set(host, PeerFaultMode::Slow(delay));
            }
            let walks: Vec<_> = world
                .hosts
                .iter()
                .zip(starts)
                .map(|(host, pauses)| {
                    let path = host.path.clone();
                    tokio::spawn(async move {
                        for pause in pauses {
                            tokio::time::sleep(Duration::from_millis(pause)).await;
                            path.deduplicate_some(&mut Walk::default()).await;
                        }
                    })
                })
                .collect();
            for walk in walks {
                walk.await.unwrap();
            }
            for index in 0..CHUNKS {
                let kept = copies(&world, &image, index);
                assert!(kept >= copies_max, "chunk {index}: {kept} of {copies_max}");
            }
        });
    }
}
