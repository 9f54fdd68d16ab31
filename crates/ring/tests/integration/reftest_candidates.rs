//! Candidates against a plain reading of ACStor Algorithm 1.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use acstor_ring::{Host, HostId, Ring, RingBuilder, Threshold};
use acstor_types::Oid;
use proptest::prelude::*;

/// Algorithm 1, lines 7-14: find the owner among the hosts that are left; when it is not near
/// enough, remove it and begin again. Returns it and how many were removed on the way.
fn algorithm_1(
    ring: &Ring,
    oid: Oid,
    from: Option<HostId>,
    threshold: Threshold,
    left: &mut Vec<u16>,
) -> (Option<HostId>, u32) {
    let count = u64::from(ring.vnode_count());
    let first = (u128::from(oid.0) * u128::from(count)) >> 64;
    for removed in 0.. {
        let dest = (0..count)
            .map(|step| ring.vnodes()[((first as u64 + step) % count) as usize])
            .find(|host| left.contains(host));
        let Some(dest) = dest else { return (None, removed) };
        left.retain(|host| *host != dest);
        if ring.distance(from, HostId(dest)) < threshold.0 {
            return (Some(HostId(dest)), removed);
        }
    }
    unreachable!()
}

fn ring(placed: &[(u8, u8, bool, u32)], seed: u64) -> Ring {
    let hosts = placed.iter().enumerate().map(|(number, (pod, rack, known, weight))| {
        let path = if *known { format!("pod-{pod}/rack-{rack}") } else { String::new() };
        Host::new(format!("h{number:02}"), "10.0.0.1:7800", *weight)
            .with_topology(path.parse().unwrap())
    });
    let spare = Host::new("spare", "10.0.0.1:7800", 1);
    RingBuilder::new(seed).vnodes(256).hosts(hosts.chain([spare])).build().unwrap()
}

proptest! {
    #[test]
    fn candidates_are_those_of_algorithm_1(
        placed in proptest::collection::vec((0u8..3, 0u8..3, any::<bool>(), 0u32..4), 1..30),
        seed in any::<u64>(),
        oid in any::<u64>(),
        from in proptest::option::of(0u16..32),
        threshold in 0u8..9,
    ) {
        let ring = ring(&placed, seed);
        let threshold = Threshold(threshold);
        // An id from elsewhere is as good as none.
        let known = from.map(HostId).filter(|from| ring.host(*from).is_some());
        let mut left: Vec<u16> = (0..ring.hosts().len() as u16).collect();
        let mut candidates = ring.candidates(Oid(oid), from.map(HostId), threshold);
        let mut skipped = 0;
        loop {
            let (expected, removed) = algorithm_1(&ring, Oid(oid), known, threshold, &mut left);
            let count = candidates.len();
            prop_assert_eq!(candidates.next_id(), expected);
            if expected.is_none() {
                prop_assert_eq!(count, 0);
                break;
            }
            skipped += removed;
            prop_assert_eq!(candidates.skipped(), skipped);
        }
        prop_assert_eq!(candidates.next_id(), None);
    }
}

#[test]
fn first_candidate_is_the_owner() {
    let ring = ring(&[(0, 0, true, 5), (1, 1, true, 5), (0, 1, false, 5)], 1);
    for step in 0..1000u64 {
        let oid = Oid(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let first = ring.candidates(oid, None, Threshold::ANY).next();
        assert_eq!(first, Some(ring.owner(oid)));
    }
}

#[test]
fn ends_of_the_circle_belong_to_the_first_and_last_vnode() {
    let ring = ring(&[(0, 0, true, 1)], 1);
    assert_eq!(ring.vnode_of(Oid(0)), 0);
    assert_eq!(ring.vnode_of(Oid(u64::MAX)), 255);
    assert_eq!(ring.candidates(Oid(u64::MAX), None, Threshold::ANY).count(), 2);
}

#[test]
fn threshold_1_leaves_only_the_asking_host_itself() {
    let ring = ring(&[(0, 0, true, 1), (0, 0, true, 1)], 1);
    let names: Vec<&str> = ring
        .candidates(Oid(1), Some(HostId(1)), Threshold(1))
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["h01"]);
}
