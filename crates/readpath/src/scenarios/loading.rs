//! Owners whose links are full of other traffic: never slower than a cache of one's own.
//!
//! The same boots over the same links, once with every miss read from the origin and kept (local
//! cache) and once through the ring. Links carry what other traffic leaves of 1 Gb/s, scaled to
//! chunks of 4 KiB (1/16 of the real ones, and so is the rate); the origin's is ten times as wide.

mod compressing;
mod even_storm;

use std::time::Duration;

use tokio::time::Instant;

use super::image::{CHUNK, Image, Shape};
use super::link::Link;
use super::network::PeerFaultMode;
use super::world::{World, config};
use crate::steering::peers::NO_HINT;
use crate::{Keep, Prefer, ReadPathConfig};

/// A 64 KiB chunk on an idle 1 Gb/s link takes 0.52 ms, and so does a chunk here.
const LINK: f64 = 125e6 / 16.0;
const ORIGIN_LINK: f64 = 2.0 * LINK;
const ORIGIN_DELAY: Duration = Duration::from_millis(2);
const HOSTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Loaded owners, their load, and how long boots may take in terms of those with a local cache. What is
/// learnt in the first second of a boot of three costs something; and where all owners are slow, but no
/// slower than a storm makes them, the origin must not be asked, and a cache of one's own wins.
const CASES: [(usize, f64, f64); 7] = [
    (8, 0.0, 0.9),
    (1, 0.95, 1.05),
    (2, 0.95, 1.5),
    (4, 0.9, 1.45),
    (8, 0.8, 2.2),
    (8, 0.9, 3.4),
    (8, 0.95, 1.5),
];
/// By case: how long boots that prefer time may take, in terms of those with a local cache. Where all owners
/// are loaded, and none more than others, a third of the chunks still comes from them.
const BOOT_TIME_MOST: [f64; 7] = [1.0, 1.0, 1.0, 1.0, 1.1, 2.2, 1.5];
const CHUNKS: usize = 1600;
/// Ten times three seconds.
const LONG_BOOT_IMAGES: u8 = 10;
/// Bytes that a boot reads at a time: as recorded, mostly a chunk or less, now and then read-ahead.
const READS_CHUNKS: [usize; 8] = [1, 1, 1, 1, 2, 1, 4, 1];

fn adaptive() -> ReadPathConfig {
    ReadPathConfig { load_aware: true, keep: Keep::SecondTouch, ..config() }
}

/// Times of the booting hosts.
#[derive(Debug, Default)]
struct Boots {
    total: Duration,
    waits: Vec<Duration>,
    origin_bytes: usize,
}

impl Boots {
    fn percentile(&self, percent: usize) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits[(waits.len() * percent / 100).min(waits.len() - 1)]
    }
}

fn world(config: &ReadPathConfig, threshold: u8, loads: &[(&str, f64)]) -> (World, Image) {
    let config =
        ReadPathConfig { distance_threshold: acstor_ring::Threshold(threshold), ..config.clone() };
    let world = World::new(&HOSTS, &config);
    let image = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(1, CHUNKS) });
    world.origin.set_link(Link::new(ORIGIN_LINK, 0.0));
    world.origin.set_delay(ORIGIN_DELAY);
    for host in HOSTS {
        world.network.set_link(host, Link::new(LINK, 0.0));
    }
    for (host, load) in loads {
        world.network.set_load(host, *load);
    }
    (world, image)
}

/// Boots a guest on each of `hosts` at the same time: stretches of the image, in an order of its own
/// each, read one after the other as a guest's boot does.
async fn boot(world: &World, image: &Image, hosts: &[&str]) -> Boots {
    let start = Instant::now();
    let before = world.origin.bytes();
    let boots = hosts.iter().enumerate().map(|(guest, name)| {
        let view = world.host(name).view(image);
        let seed = u64::from(name.as_bytes()[0]) + 5 * guest as u64;
        let content = &image.content;
        async move {
            let mut waits = Vec::new();
            for step in 0..100u64 {
                // 100 of 100 stretches of 16 chunks, none twice: 37 has no divisor in common with 100.
                let mut chunk = (step * 37 + seed * 13) % 100 * 16;
                let end = chunk + 12;
                for count in READS_CHUNKS {
                    if chunk + count as u64 > end {
                        break;
                    }
                    let (offset, len) = (chunk * CHUNK as u64, count * CHUNK);
                    let asked = Instant::now();
                    let segments = view.read(offset, len).await.unwrap();
                    waits.push(asked.elapsed());
                    let expected = &content[offset as usize..offset as usize + len];
                    assert!(super::world::bytes_of(&segments) == expected, "wrong bytes");
                    chunk += count as u64;
                }
            }
            waits
        }
    });
    let waits: Vec<Duration> = join_all(boots).await.into_iter().flatten().collect();
    Boots { total: start.elapsed(), waits, origin_bytes: world.origin.bytes() - before }
}

async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

async fn measure(
    config: &ReadPathConfig,
    threshold: u8,
    loads: &[(&str, f64)],
    hosts: &[&str],
) -> Boots {
    let (world, image) = world(config, threshold, loads);
    boot(&world, &image, hosts).await
}

fn loaded(count: usize, load: f64) -> Vec<(&'static str, f64)> {
    HOSTS.iter().rev().take(count).map(|host| (*host, load)).collect()
}

/// One table for reading: `cargo test -p acstor-readpath loading -- --nocapture`.
fn report(name: &str, load: f64, boots: &Boots) {
    println!(
        "{name:>24} load {load:.2}: total {:>7.1?} p50 {:>7.2?} p99 {:>7.2?} origin {:>5} KiB",
        boots.total,
        boots.percentile(50),
        boots.percentile(99),
        boots.origin_bytes >> 10,
    );
}

#[tokio::test(start_paused = true)]
async fn test_boots_are_never_slower_than_with_a_cache_of_ones_own() {
    let booting = &HOSTS;
    for (owners, load, most) in CASES {
        let loads = loaded(owners, load);
        let local = measure(&adaptive(), 0, &loads, booting).await;
        let ours = measure(&adaptive(), u8::MAX, &loads, booting).await;
        println!("-- {owners} of 8 owners loaded");
        report("local cache", load, &local);
        report("load-aware", load, &ours);
        let ratio = ours.total.as_secs_f64() / local.total.as_secs_f64();
        assert!(ratio <= most, "{owners} owners at {load}: {ratio:.2} of a local cache's time");
        assert!(ours.origin_bytes <= local.origin_bytes * 102 / 100);
    }
}

/// The operator's other choice, of an origin with two links of a host: owners' links may be as full as they
/// like.
#[tokio::test(start_paused = true)]
async fn test_boots_that_prefer_time_are_as_fast_as_with_a_cache_of_ones_own() {
    let config = ReadPathConfig { prefer: Prefer::BootTime, ..adaptive() };
    for ((owners, load, _), most) in CASES.into_iter().zip(BOOT_TIME_MOST) {
        let loads = loaded(owners, load);
        let local = measure(&config, 0, &loads, &HOSTS).await;
        let ours = measure(&config, u8::MAX, &loads, &HOSTS).await;
        report("local cache", load, &local);
        report("boot-time", load, &ours);
        let ratio = ours.total.as_secs_f64() / local.total.as_secs_f64();
        assert!(ratio <= most, "{owners} owners at {load}: {ratio:.2}");
        assert!(ours.origin_bytes <= local.origin_bytes * 102 / 100);
    }
}

/// A guest that reads for half a minute: what is learnt in the first second is no longer felt.
#[tokio::test(start_paused = true)]
async fn test_long_boot_from_loaded_owners_is_as_fast_as_with_a_cache_of_ones_own() {
    let loads = loaded(8, 0.95);
    let mut totals = Vec::new();
    for threshold in [0, u8::MAX] {
        let (world, first) = world(&adaptive(), threshold, &loads);
        let mut total = boot(&world, &first, &HOSTS).await.total;
        for seed in 2..=LONG_BOOT_IMAGES {
            let next = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(seed, CHUNKS) });
            total += boot(&world, &next, &HOSTS).await.total;
        }
        totals.push(total);
    }
    println!("long boot: local cache {:.1?}, load-aware {:.1?}", totals[0], totals[1]);
    assert!(totals[1] <= totals[0] * 125 / 100, "{totals:?}");
}

/// A storm as its hosts see it: all want a chunk at once, whose owner is slow for that moment.
#[tokio::test(start_paused = true)]
async fn test_queueing_burst_before_an_owner_makes_no_read_of_the_origin_beyond_the_cold_one() {
    let (world, image) = world(&adaptive(), u8::MAX, &[]);
    let mut wanted = 0;
    for step in 0..100u64 {
        let chunk = step * 37 % 100 * 16;
        let owner = world.owner(&image, chunk);
        world.network.set(&owner, PeerFaultMode::Slow(Duration::from_millis(step % 4 * 4)));
        for part in 0..4 {
            let reads = HOSTS.iter().map(|host| world.host(host).read_chunk(&image, chunk + part));
            join_all(reads).await.into_iter().for_each(Result::unwrap);
            wanted += 1;
            world.network.set(&owner, PeerFaultMode::Well);
        }
    }
    assert_eq!(world.origin.bytes(), wanted * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn test_owner_whose_link_is_full_is_left() {
    let (world, image) = world(&adaptive(), u8::MAX, &loaded(1, 0.98));
    let boots = boot(&world, &image, &HOSTS).await;
    report("one owner's link full", 0.98, &boots);
    // Its share of the chunks, each to seven others, were 1050.
    let served = world.host("h").metric("acstor_serve_bytes_total") as usize / CHUNK;
    assert!(served < 400, "{served} chunks over the full link");
    assert!(boots.percentile(98) <= Duration::from_millis(40), "{:?}", boots.percentile(98));
    let bypasses = |outcome: &str| -> u64 {
        let name = format!("acstor_bypasses_total{{outcome=\"{outcome}\"}}");
        HOSTS.iter().map(|host| world.host(host).metric(&name)).sum()
    };
    assert!(bypasses("peer") > 300, "{}", bypasses("peer"));
    let without_hint = |host: &&str| {
        world
            .network
            .asked(host)
            .iter()
            .filter(|asked| asked.request.chunk_index == NO_HINT)
            .count()
    };
    let held = HOSTS.iter().map(without_hint).sum::<usize>() as u64;
    assert!(held > 0 && held == bypasses("held"), "{held} of {}", bypasses("held"));
    assert!(bypasses("origin") < 100, "mostly the next in line: {}", bypasses("origin"));
}

/// Two guests of one image behind a link of which one fiftieth is left, for peers and origin alike.
#[tokio::test(start_paused = true)]
async fn test_host_behind_a_full_link_fetches_no_byte_twice() {
    let (world, image) = world(&adaptive(), u8::MAX, &[]);
    // What the others have is warm.
    boot(&world, &image, &HOSTS[1..]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.network.set_link_in("a", Link::new(LINK, 0.98));
    let boots = boot(&world, &image, &["a", "a"]).await;
    report("own link full", 0.98, &boots);
    let host = world.host("a");
    let received = world.network.received("a");
    assert_eq!(host.metric("acstor_own_link_slow"), 1);
    let owned = (0..100).filter(|stretch| world.owner(&image, stretch * 16) == "a").count();
    let needed = (100 - owned) * 12 * CHUNK;
    assert!(received <= needed, "{received} bytes for {needed}");
    for outcome in ["started", "rescued"] {
        let hedges = host.metric(&format!("acstor_hedges_total{{outcome=\"{outcome}\"}}"));
        assert_eq!(hedges, 0, "{outcome}");
    }
    assert_eq!(host.metric("acstor_peer_probes_total"), 0);
    // The link is well again.
    world.network.set_link_in("a", Link::new(LINK, 0.0));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(host.metric("acstor_own_link_slow"), 0);
}

/// A narrow origin and owners whose links are full: a cache of one's own would ask the origin for all.
#[tokio::test(start_paused = true)]
async fn test_slow_owners_and_a_slow_origin_are_no_slower_than_the_origin_alone() {
    for (owners, load) in [(8, 0.8), (4, 0.95)] {
        let loads = loaded(owners, load);
        let narrow = |threshold| {
            let (world, image) = world(&adaptive(), threshold, &loads);
            world.origin.set_link(Link::new(ORIGIN_LINK / 4.0, 0.0));
            world.origin.set_delay(5 * ORIGIN_DELAY);
            (world, image)
        };
        let (local_world, image) = narrow(0);
        let local = boot(&local_world, &image, &HOSTS).await;
        let (our_world, image) = narrow(u8::MAX);
        let ours = boot(&our_world, &image, &HOSTS).await;
        report("local cache", load, &local);
        report("load-aware", load, &ours);
        let ratio = ours.total.as_secs_f64() / local.total.as_secs_f64();
        assert!(ratio <= 1.1, "{owners} at {load}: {ratio:.2}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_even_traffic_costs_nothing_and_load_much_without_looking() {
    let unaware = ReadPathConfig { load_aware: false, ..adaptive() };
    for (owners, load, most) in [(8, 0.0, 1.03), (4, 0.9, 0.5)] {
        let loads = loaded(owners, load);
        let static_ = measure(&unaware, u8::MAX, &loads, &HOSTS).await;
        let ours = measure(&adaptive(), u8::MAX, &loads, &HOSTS).await;
        report("not load-aware", load, &static_);
        report("load-aware", load, &ours);
        let ratio = ours.total.as_secs_f64() / static_.total.as_secs_f64();
        assert!(ratio <= most, "{owners} owners at {load}: {ratio:.2}");
    }
}

/// Without a word, as in a power cut: connections stand and are silent, or no new ones can be made.
#[tokio::test(start_paused = true)]
async fn test_half_of_the_hosts_gone_at_once_holds_nobody_up() {
    for fault_mode in [PeerFaultMode::Stalled, PeerFaultMode::Gone] {
        half_of_the_hosts_gone(fault_mode).await;
    }
}

async fn half_of_the_hosts_gone(fault_mode: PeerFaultMode) {
    let (world, image) = world(&adaptive(), u8::MAX, &[]);
    for host in &HOSTS[4..] {
        world.network.set(host, fault_mode);
    }
    let boots = boot(&world, &image, &HOSTS[..4]).await;
    report(&format!("half of the hosts gone, {fault_mode:?}"), 0.0, &boots);
    // Both of the hosts that come before the origin may be gone, and no longer than it takes to see that.
    let worst = boots.waits.iter().max().copied().unwrap();
    assert!(worst <= config().peer_deadline + Duration::from_millis(100), "{worst:?}");
    assert!(boots.percentile(99) <= Duration::from_millis(100), "{:?}", boots.percentile(99));
    assert!(boots.total <= Duration::from_secs(10), "{:?}", boots.total);
}

#[tokio::test(start_paused = true)]
async fn test_owner_that_recovers_is_asked_again() {
    let (world, image) = world(&adaptive(), u8::MAX, &loaded(4, 0.95));
    boot(&world, &image, &HOSTS[..2]).await;
    assert!(world.host("a").metric("acstor_peers_loaded") >= 3);
    assert!(world.host("a").metric("acstor_bypasses_total{outcome=\"peer\"}") > 0);
    for host in HOSTS {
        world.network.set_load(host, 0.0);
    }
    // Another image: of this one much is still in memory.
    let other = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(2, CHUNKS) });
    boot(&world, &other, &HOSTS[..2]).await;
    assert!(world.host("a").metric("acstor_peer_probes_total") > 0);
    assert_eq!(world.host("a").metric("acstor_peers_loaded"), 0);
    let fetched = world.host("a").fetches("ok");
    let third = world.image(Shape { chunks_per_pack: 200, ..Shape::plain(3, CHUNKS) });
    boot(&world, &third, &["a"]).await;
    assert!(world.host("a").fetches("ok") > fetched + 600, "through the owners again");
}
