//! First storms of an image of which nobody has a profile: hosts tell each other what they miss.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::exchange::{HintRole, Hints, Join, JoinRole};
use acstor_peer::{ChunkServer, PeerStatus};
use acstor_selection::exchange::bounds::{FRAME_HINTS_MAX, UNMATCHED_MAX};
use acstor_selection::exchange::{Hint, HostKey, Neighbourhood, Order};
use acstor_types::Oid;
use tokio::time::sleep;

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::world::{TestHost, World, check, config};
use crate::{BlockView, ReadPathConfig, TryRead};

const MILLI: Duration = Duration::from_millis(1);
/// Time that a guest of these tests thinks before each read.
const THINK: Duration = Duration::from_millis(4);
/// Time between the starts of two hosts: half of a boot that nobody helps. One that starts sooner catches up
/// with the one before, and misses with it from then on.
const SPREAD: Duration = Duration::from_secs(2);
/// Chunks that a boot reads.
const BOOT: u32 = 400;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn on(order: Order) -> ReadPathConfig {
    ReadPathConfig { exchange: Some(Neighbourhood::new(order, 2)), ..config() }
}

fn world(config: &ReadPathConfig) -> (World, Image) {
    let world = World::new(&NAMES, config);
    let image = world.image(Shape { chunks_per_pack: 128, ..Shape::plain(1, 1024) });
    world.origin.set_delay(5 * MILLI);
    (world, image)
}

/// The chunks of a boot, in its order.
fn boot_order() -> impl Iterator<Item = u32> {
    (0..BOOT).map(|at| at * 37 % 1024)
}

async fn read(view: &Arc<dyn BlockView>, image: &Image, chunk: u32) {
    let offset = u64::from(chunk) * CHUNK as u64;
    let segments = match view.try_read(offset, CHUNK).unwrap() {
        TryRead::Ready(segments) => segments,
        TryRead::WouldWait => view.read(offset, CHUNK).await.unwrap(),
    };
    check(image, offset, CHUNK, &segments);
}

async fn boot(host: &TestHost, image: &Image, after: Duration) {
    sleep(after).await;
    let view = host.view(image);
    view.opened();
    for chunk in boot_order() {
        sleep(THINK).await;
        read(&view, image, chunk).await;
    }
    view.closed();
    sleep(MILLI).await;
}

async fn storm(world: &World, image: &Image) {
    let [a, b, c, d] = NAMES.map(|name| world.host(name));
    tokio::join!(
        boot(a, image, Duration::ZERO),
        boot(b, image, SPREAD),
        boot(c, image, SPREAD * 2),
        boot(d, image, SPREAD * 3),
    );
}

fn bytes(host: &TestHost, outcome: &str) -> u64 {
    host.metric(&format!("acstor_exchange_bytes_total{{outcome=\"{outcome}\"}}"))
}

fn hints(host: &TestHost, outcome: &str) -> u64 {
    host.metric(&format!("acstor_exchange_hints_total{{outcome=\"{outcome}\"}}"))
}

/// Names of the candidates for the rendezvous host, the first in line first.
fn candidates(world: &World, image: &Image) -> Vec<String> {
    let rings = world.hosts[0].rings.load_full();
    let ring = rings.current.as_ref().unwrap();
    let line = ring.candidates(Oid::rendezvous(&image.id()), None, acstor_ring::Threshold::ANY);
    line.map(|host| host.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn test_first_storm_follows_hints_and_reads_the_origin_once() {
    for order in Order::ALL {
        let (world, image) = world(&on(order));
        storm(&world, &image).await;
        let union = u64::from(BOOT) * CHUNK as u64;
        assert!(world.origin.bytes() as u64 <= union * 105 / 100, "{order:?}");
        for name in &NAMES[1..] {
            let host = world.host(name);
            let (matched, late) = (bytes(host, "matched"), bytes(host, "late"));
            assert!(matched > union / 2, "{order:?} {name}: {matched} and {late} late");
            assert_eq!(bytes(host, "unmatched"), 0, "{order:?} {name}");
            assert_eq!(hints(host, "used") * CHUNK as u64, matched + late);
            for _ in 0..10_000 {
                if host.metric("acstor_exchanges") == 0 {
                    break;
                }
                sleep(MILLI).await;
            }
            assert_eq!(host.metric("acstor_exchanges"), 0, "it is over");
        }
        let served: u64 = NAMES
            .iter()
            .map(|name| world.host(name).metric("acstor_exchange_joins_total{outcome=\"served\"}"))
            .sum();
        assert!(served >= 4, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_rendezvous_that_is_killed_is_followed_by_the_next_and_learns_anew() {
    let (world, image) = world(&on(Order::Tree));
    let line = candidates(&world, &image);
    let killed = async {
        sleep(SPREAD * 3 / 2).await;
        world.network.set(&line[0], PeerFaultMode::Dead);
    };
    // The guests of the killed host read on: only others do not reach it.
    tokio::join!(storm(&world, &image), killed);
    let next = world.host(&line[1]);
    assert!(next.metric("acstor_exchange_joins_total{outcome=\"served\"}") > 0);
    assert!(hints(next, "new") > 0, "it has learnt");
    let last = NAMES.iter().rev().find(|name| **name != line[0]).unwrap();
    assert!(bytes(world.host(last), "matched") > 0);
}

#[tokio::test(start_paused = true)]
async fn test_hints_that_lie_cost_the_threshold_and_change_nothing_else() {
    let (world, image) = world(&on(Order::Ring));
    let line = candidates(&world, &image);
    let liar = HostKey(Oid::host_number("d"));
    let rendezvous = world.host(&line[0]);
    let role = JoinRole::Rendezvous;
    let join = Join { disk_id: image.id(), epoch: 0, host: liar, from: 0, role };
    let joined = rendezvous.path.join(&join).unwrap();
    // Chunks that no boot reads, and chunks that are not there; once, twice, and late.
    let lies: Vec<u32> =
        (0..1024).filter(|chunk| !boot_order().any(|read| read == *chunk)).collect();
    let lies: Vec<u32> = lies.into_iter().chain([5000, u32::MAX]).collect();
    for _ in 0..2 {
        for lies in lies.chunks(FRAME_HINTS_MAX) {
            let hints = lies.iter().map(|chunk| Hint { chunk: *chunk, holder: liar }).collect();
            let (disk_id, epoch) = (image.id(), joined.epoch);
            let role = HintRole::Misses;
            let hints = Hints { disk_id, epoch, sender: liar, first: 0, role, hints };
            rendezvous.path.hint(&hints).unwrap();
        }
    }
    let [a, b] = ["a", "b"].map(|name| world.host(name));
    tokio::join!(boot(a, &image, Duration::ZERO), boot(b, &image, SPREAD));
    for host in [a, b] {
        assert!(bytes(host, "unmatched") <= UNMATCHED_MAX);
        assert!(hints(host, "refused") > 0, "the image has no such chunk");
    }
    assert!(hints(rendezvous, "repeated") as usize >= lies.len());
}

#[tokio::test(start_paused = true)]
async fn test_strangers_are_refused_and_counted() {
    let (world, image) = world(&on(Order::Ring));
    let line = candidates(&world, &image);
    let rendezvous = world.host(&line[0]);
    let (disk_id, role) = (image.id(), JoinRole::Rendezvous);
    let stranger = HostKey(77);
    let join = Join { disk_id, epoch: 0, host: stranger, from: 0, role };
    assert_eq!(rendezvous.path.join(&join).unwrap_err(), PeerStatus::Invalid, "of no ring");
    let join = Join { host: HostKey(Oid::host_number("a")), ..join };
    assert_eq!(world.host(&line[3]).path.join(&join).unwrap_err(), PeerStatus::NotFound);
    let as_member = Join { role: JoinRole::Member, ..join };
    assert_eq!(rendezvous.path.join(&as_member).unwrap_err(), PeerStatus::NotFound);
    for role in [HintRole::Misses, HintRole::Order] {
        let hints = vec![Hint { chunk: 1, holder: stranger }];
        let hints = Hints { disk_id, epoch: 9, sender: stranger, first: 0, role, hints };
        assert_eq!(rendezvous.path.hint(&hints).unwrap_err(), PeerStatus::NotFound);
    }
    assert_eq!(hints(rendezvous, "strange"), 2);
}

#[tokio::test(start_paused = true)]
async fn test_exchange_that_is_off_says_nothing_and_asks_nobody() {
    let (world, image) = world(&config());
    storm(&world, &image).await;
    let a = world.host("a");
    assert_eq!(a.metric("acstor_exchange_joins_total{outcome=\"failed\"}"), 0);
    let (disk_id, role) = (image.id(), JoinRole::Rendezvous);
    let join = Join { disk_id, epoch: 0, host: HostKey(1), from: 0, role };
    assert_eq!(a.path.join(&join).unwrap_err(), PeerStatus::Unsupported);
    assert_eq!(bytes(a, "ordered"), 0);
}

#[test]
fn test_orders_are_those_of_python() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/neighbourhoods.json");
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let order = Order::from_name(case["order"].as_str().unwrap()).unwrap();
        let fan_out = case["fan_out"].as_u64().unwrap() as u32;
        let neighbourhood = Neighbourhood::new(order, fan_out);
        let racks: Vec<u64> = case["racks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rack| rack.as_str().unwrap().parse().unwrap())
            .collect();
        let parents: Vec<Option<usize>> =
            (0..racks.len()).map(|position| neighbourhood.parent(position, &racks)).collect();
        let expected: Vec<Option<usize>> = case["parents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|parent| parent.as_u64().map(|parent| parent as usize))
            .collect();
        assert_eq!(parents, expected, "{case}");
    }
}
