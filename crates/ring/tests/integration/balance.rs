//! Balance: hosts own their weight's share of v-nodes, of OIDs, and of a dead host's load.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use acstor_ring::{Host, HostId, Ring, RingBuilder, Threshold, analyze, recommended_vnodes};
use acstor_types::{DiskId, Oid};
use proptest::prelude::*;

fn hosts(weights: &[u32]) -> Vec<Host> {
    let host = |(number, weight): (usize, &u32)| {
        let address = format!("10.0.{}.{}:7800", number / 256, number % 256);
        Host::new(format!("compute-{number:05}"), address, *weight)
    };
    weights.iter().enumerate().map(host).collect()
}

fn ring(weights: &[u32], seed: u64) -> Ring {
    RingBuilder::new(seed).hosts(hosts(weights)).build().unwrap()
}

/// Chunks that each host owns, of `disk_count` disks of `chunk_count` chunks.
fn chunks_owned(ring: &Ring, disk_count: u8, chunk_count: u64) -> Vec<u64> {
    let mut owned = vec![0; ring.hosts().len()];
    for disk in 0..disk_count {
        let disk = DiskId::from_bytes([disk; 16]);
        for chunk in 0..chunk_count {
            owned[usize::from(ring.owner_id(Oid::of(&disk, chunk)).0)] += 1;
        }
    }
    owned
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The figure: within 5 % of the weights at 256 hosts.
    #[test]
    fn vnodes_follow_weights_within_5_percent_at_256_hosts(
        // Ratios up to 1:12; the lightest host still has 21 v-nodes, of which one is below 5 %.
        weights in proptest::collection::vec(100u32..=1200, 256),
        seed in any::<u64>(),
    ) {
        let ring = ring(&weights, seed);
        let analysis = analyze(&ring, None);
        prop_assert!(analysis.deviation_max <= 0.05, "{}", analysis.deviation_max);
    }

    #[test]
    fn any_weights_are_followed_within_one_vnode(
        weights in proptest::collection::vec(prop_oneof![Just(0), 1u32..100, any::<u32>()], 1..300),
        seed in any::<u64>(),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let ring = ring(&weights, seed);
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        for (weight, count) in weights.iter().zip(ring.vnode_counts()) {
            let quota = f64::from(*weight) / sum * f64::from(ring.vnode_count());
            prop_assert!((f64::from(*count) - quota).abs() < 1.0 + 1e-6, "{count} for {quota}");
            prop_assert!(*weight > 0 || *count == 0);
        }
    }
}

#[test]
fn chunks_follow_weights_within_5_percent_at_256_hosts() {
    let weights: Vec<u32> = (0..256).map(|host| 500 + host * 4).collect();
    let ring = ring(&weights, 7);
    // 16,384 chunks for a host of mean weight: sampling alone gives 0.8 % (standard deviation).
    let owned = chunks_owned(&ring, 64, 65_536);
    let (chunk_sum, weight_sum) = (owned.iter().sum::<u64>(), weights.iter().sum::<u32>());
    for (owned, weight) in owned.iter().zip(&weights) {
        let ideal = chunk_sum as f64 * f64::from(*weight) / f64::from(weight_sum);
        let deviation = *owned as f64 / ideal - 1.0;
        assert!(deviation.abs() < 0.05, "weight {weight}: {owned} of {ideal}");
    }
}

#[test]
fn ten_thousand_hosts_are_balanced_within_1_percent() {
    let vnode_count = recommended_vnodes(10_000);
    let ring =
        RingBuilder::new(1).vnodes(vnode_count).hosts(hosts(&[100; 10_000])).build().unwrap();
    assert!(analyze(&ring, None).deviation_max < 0.01);
}

#[test]
fn recommended_vnodes_stay_within_limits() {
    assert_eq!(recommended_vnodes(0), 1 << 16);
    assert_eq!(recommended_vnodes(512), 1 << 16);
    assert_eq!(recommended_vnodes(513), 1 << 17);
    assert_eq!(recommended_vnodes(usize::MAX), 1 << 21);
}

/// Share of the dead host's chunks that each other host takes over, by the candidates' order.
fn takeovers(ring: &Ring, dead: HostId) -> Vec<f64> {
    let mut taken = vec![0u32; ring.hosts().len()];
    let mut lost = 0;
    let arc = u64::MAX / u64::from(ring.vnode_count());
    for vnode in 0..u64::from(ring.vnode_count()) {
        let mut candidates = ring.candidates(Oid(vnode * (arc + 1)), None, Threshold::ANY);
        if candidates.next_id() == Some(dead) {
            taken[usize::from(candidates.next_id().unwrap().0)] += 1;
            lost += 1;
        }
    }
    taken.iter().map(|taken| f64::from(*taken) / f64::from(lost)).collect()
}

#[test]
fn dead_hosts_load_spreads_over_all_others() {
    let ring = ring(&[100; 32], 3);
    for dead in 0..32 {
        let shares = takeovers(&ring, HostId(dead));
        for (host, share) in
            shares.iter().enumerate().filter(|(host, _)| *host != usize::from(dead))
        {
            // 66 of 2,048 v-nodes expected, standard deviation 8.
            assert!((1.0 / 62.0..1.0 / 15.5).contains(share), "{dead} to {host}: {share}");
        }
    }
}

#[test]
fn dead_hosts_load_still_spreads_after_many_generations() {
    let mut ring = ring(&[100; 32], 3);
    for step in 0..100u32 {
        let name = format!("compute-{:05}", step % 32);
        let weight = 50 + step * 37 % 101;
        ring = RingBuilder::succeeding(&ring).weight(&name, weight).unwrap().build().unwrap();
    }
    let weight_sum: u32 = ring.hosts().iter().map(|host| host.weight).sum();
    for dead in 0..32 {
        let others = f64::from(weight_sum - ring.hosts()[usize::from(dead)].weight);
        for (host, share) in takeovers(&ring, HostId(dead)).iter().enumerate() {
            if host != usize::from(dead) {
                let expected = f64::from(ring.hosts()[host].weight) / others;
                let ratio = share / expected;
                assert!((0.4..2.0).contains(&ratio), "{dead} to {host}: {ratio}");
            }
        }
    }
}

#[test]
fn removed_hosts_vnodes_spread_over_all_others() {
    let before = ring(&[100; 64], 5);
    let after = RingBuilder::succeeding(&before).remove("compute-00007").unwrap().build().unwrap();
    for (host, count) in after.hosts().iter().zip(after.vnode_counts()) {
        let gained =
            count - before.vnode_counts()[usize::from(before.host_id(&host.name).unwrap().0)];
        assert!((15..=18).contains(&gained), "{}: {gained} of 1,024", host.name);
    }
}

#[test]
fn analysis_tells_who_takes_over() {
    let ring = ring(&[100, 100, 200], 11);
    let analysis = analyze(&ring, None);
    for (host, share) in analysis.hosts.iter().enumerate() {
        let expected = takeovers(&ring, HostId(host as u16)).into_iter().fold(0.0, f64::max);
        assert!((share.takeover_share_max - expected).abs() < 1e-9);
    }
    assert_eq!(analyze(&self::ring(&[1], 1), None).hosts[0].takeover_share_max, 0.0);
}
