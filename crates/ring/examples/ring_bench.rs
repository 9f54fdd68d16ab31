//! Times lookups and builds: `cargo run --release -p acstor-ring --example ring_bench`.
//!
//! Prints a table to the standard error and JSON to the standard output. A figure is the median
//! of seven rounds, with the fastest and the slowest beside it.

use std::hint::black_box;
use std::time::Instant;

use acstor_ring::{
    Host, HostId, Ring, RingBuilder, RingError, Threshold, analyze, moved_share, recommended_vnodes,
};
use acstor_types::{DiskId, Oid};
use serde_json::{Value, json};

const ROUNDS: usize = 7;
const LOOKUPS: u64 = 1 << 20;
const RACK_HOSTS: usize = 32;
const POD_RACKS: usize = 8;

fn main() -> Result<(), RingError> {
    let mut results = Vec::new();
    for (host_count, vnode_count) in [(256, 1 << 16), (10_000, recommended_vnodes(10_000))] {
        let hosts: Vec<Host> = (0..host_count).map(host).collect::<Result<_, _>>()?;
        let ring = RingBuilder::new(1).vnodes(vnode_count).hosts(hosts.clone()).build()?;
        results.push(json!({
            "hosts": host_count,
            "vnodes": vnode_count,
            "lookups": lookups(&ring),
            "builds": builds(&ring, hosts)?,
            "takeover_share_max": takeover_share_max(&ring),
        }));
    }
    println!("{}", json!({"benchmark": "ring", "rounds": ROUNDS, "results": results}));
    Ok(())
}

fn host(number: usize) -> Result<Host, RingError> {
    let rack = number / RACK_HOSTS;
    let address = format!("10.{}.{}.1:7800", number / 256, number % 256);
    let topology = format!("pod-{}/rack-{rack}", rack / POD_RACKS).parse()?;
    Ok(Host::new(format!("compute-{number:05}"), address, 100).with_topology(topology))
}

/// Nanoseconds of one lookup of each kind, OIDs in random order.
fn lookups(ring: &Ring) -> Value {
    let from = Some(HostId(0));
    let oid = |index: u64| Oid(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let disk = DiskId::from_bytes([7; 16]);
    let first = |oid, threshold| ring.candidates(oid, from, threshold).next_id();
    json!({
        "oid": nanoseconds(ring, "OID of a chunk", |index| Oid::of(&disk, index).0),
        "owner": nanoseconds(ring, "owner", |index| u64::from(ring.owner_id(oid(index)).0)),
        "oid_and_owner": nanoseconds(ring, "OID and owner", |index| {
            ring.owner(Oid::of(&disk, index)).name.len() as u64
        }),
        "first_candidate": nanoseconds(ring, "first candidate", |index| {
            first(oid(index), Threshold::ANY).map_or(0, |host| host.0.into())
        }),
        "three_candidates": nanoseconds(ring, "three candidates", |index| {
            let candidates = ring.candidates(oid(index), from, Threshold::ANY).take(3);
            candidates.map(|host| u64::from(host.weight)).sum()
        }),
        "first_candidate_in_pod": nanoseconds(ring, "first candidate in the pod", |index| {
            first(oid(index), Threshold(5)).map_or(0, |host| host.0.into())
        }),
        "first_candidate_in_rack": nanoseconds(ring, "first candidate in the rack", |index| {
            first(oid(index), Threshold(3)).map_or(0, |host| host.0.into())
        }),
    })
}

fn nanoseconds(ring: &Ring, name: &str, lookup: impl Fn(u64) -> u64) -> Value {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let sum = (0..LOOKUPS).fold(0u64, |sum, index| sum.wrapping_add(lookup(index)));
            black_box(sum);
            start.elapsed().as_nanos() as f64 / LOOKUPS as f64
        })
        .collect();
    let figure = median(&mut rounds);
    eprintln!("{:>6} hosts  {name:<28} {:>9.1} ns", ring.hosts().len(), rounds[ROUNDS / 2]);
    figure
}

/// Milliseconds of building a ring and the generation after it, and what that one moves.
fn builds(ring: &Ring, hosts: Vec<Host>) -> Result<Value, RingError> {
    let reweighted: Vec<Host> = (hosts.iter().enumerate())
        .map(|(number, host)| Host { weight: 60 + (number as u32 * 37) % 81, ..host.clone() })
        .collect();
    let (mut fresh, mut next, mut decode) = (Vec::new(), Vec::new(), Vec::new());
    let encoded = ring.encode();
    let mut moved = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(RingBuilder::new(1).vnodes(ring.vnode_count()).hosts(hosts.clone()).build()?);
        fresh.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let built = RingBuilder::succeeding(ring).hosts(reweighted.clone()).build()?;
        next.push(start.elapsed().as_secs_f64() * 1e3);
        moved = moved_share(ring, &built);
        let start = Instant::now();
        black_box(Ring::decode(&encoded)?);
        decode.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let figures = json!({
        "fresh_ms": median(&mut fresh),
        "next_generation_ms": median(&mut next),
        "decode_ms": median(&mut decode),
        "encoded_bytes": encoded.len(),
        "moved_share": moved,
    });
    let count = ring.hosts().len();
    eprintln!("{count:>6} hosts  {:<28} {:>9.2} ms", "build", fresh[ROUNDS / 2]);
    eprintln!("{count:>6} hosts  {:<28} {:>9.2} ms", "next generation", next[ROUNDS / 2]);
    eprintln!("{count:>6} hosts  {:<28} {:>9.2} ms", "decode", decode[ROUNDS / 2]);
    Ok(figures)
}

/// The most of one host's load that any one other takes over, over all hosts.
fn takeover_share_max(ring: &Ring) -> f64 {
    let hosts = analyze(ring, None).hosts;
    let max = hosts.iter().map(|host| host.takeover_share_max).fold(0.0, f64::max);
    eprintln!("{:>6} hosts  {:<28} {max:>9.4}", ring.hosts().len(), "largest takeover share");
    max
}

/// Sorts the rounds and returns the median, the least and the most.
fn median(rounds: &mut [f64]) -> Value {
    rounds.sort_by(f64::total_cmp);
    json!({"median": rounds[ROUNDS / 2], "min": rounds[0], "max": rounds[ROUNDS - 1]})
}
