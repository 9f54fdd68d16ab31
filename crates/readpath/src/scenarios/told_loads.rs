//! Loads that peers tell with their answers: a prior for what no guest has waited for yet.

use std::time::Duration;

use acstor_ring::Threshold;
use acstor_types::Oid;
use tokio::time::sleep;

use super::image::{CHUNK, Image, Shape};
use super::world::{TestHost, World, config};
use crate::steering::peers::NO_HINT;
use crate::{ReadPathConfig, encode_order};

const MILLI: Duration = Duration::from_millis(1);
/// A link of 1 Gbit/s of which nothing is taken.
const IDLE: u64 = 125_000_000;

/// First chunks of spans for which host `a` asks these hosts, in this order.
fn chunks_of(world: &World, image: &Image, line: [&str; 2]) -> Vec<u64> {
    let view = world.hosts[0].rings.load_full();
    let ring = view.current.as_ref().unwrap();
    let is_asked = |chunk: &u64| {
        let oid = Oid::of(&image.id(), *chunk);
        let candidates = ring.candidates(oid, ring.host_id("a"), Threshold::ANY);
        candidates.take(2).map(|host| host.name.as_str()).eq(line)
    };
    (0..image.manifest.chunk_count()).step_by(16).filter(is_asked).collect()
}

async fn read(host: &TestHost, image: &Image, chunk: u64) {
    host.read(image, chunk * CHUNK as u64, CHUNK).await.unwrap();
}

/// Requests to a host for what it holds itself.
fn alternate_requests(world: &World, host: &str) -> usize {
    world.network.asked(host).iter().filter(|asked| asked.request.chunk_index == NO_HINT).count()
}

/// Has a chunk fetched ahead, for which no guest waits.
async fn read_ahead(host: &TestHost, image: &Image, chunk: u64) {
    host.path.set_boot_profile(&image.id(), &encode_order(&[chunk as u32])).unwrap();
    let view = host.view(image);
    view.opened();
    sleep(100 * MILLI).await;
    view.closed();
    sleep(MILLI).await;
}

#[tokio::test(start_paused = true)]
async fn test_owner_that_told_a_full_link_is_asked_after_the_next_in_line() {
    let world = World::new(&["a", "b", "c"], &ReadPathConfig { load_aware: true, ..config() });
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 4096) });
    let host = world.host("a");
    let chunks = chunks_of(&world, &image, ["b", "c"]);
    read(host, &image, chunks[0]).await;
    read(host, &image, chunks_of(&world, &image, ["c", "b"])[0]).await;
    world.network.tell("b", Duration::ZERO, Some(2));
    world.network.tell("c", Duration::ZERO, Some(IDLE));
    read(host, &image, chunks[1]).await;
    assert_eq!(alternate_requests(&world, "c"), 0, "what a guest waited for was timed");
    read_ahead(host, &image, chunks[2]).await;
    read(host, &image, chunks[3]).await;
    assert_eq!(alternate_requests(&world, "c"), 1, "its answer ahead told a full link");
    read(host, &image, chunks[4]).await;
    assert_eq!(alternate_requests(&world, "c"), 1, "the owner was asked then, and timed");
    world.network.tell("b", Duration::ZERO, Some(IDLE));
    read_ahead(host, &image, chunks[5]).await;
    read(host, &image, chunks[6]).await;
    assert_eq!(alternate_requests(&world, "c"), 1, "a free link wins");
    assert_eq!(alternate_requests(&world, "b"), 0);
}
