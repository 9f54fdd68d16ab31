//! Peers to ask for a chunk, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use acstor_ring::{Ring, RingHandle, RingView, Threshold};
use acstor_types::{Digest, DiskId, Oid};
use tokio::sync::OwnedSemaphorePermit;

use crate::steering::peer_table::{Peer, PeerTable};
use crate::{PlacementRule, ReadPathConfig};

/// A peer that may be asked for a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) peer: Arc<Peer>,
    /// `ip:port`.
    pub(crate) address: Arc<str>,
}

/// The sources of one chunk before the origin, which is always the last.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Peers that come before this host, in order; empty where this host is first.
    pub(crate) peers: Vec<Candidate>,
    /// Of these, who is asked before all others, and only for what is on its own host: the first in line
    /// is overloaded, but perhaps for a moment.
    pub(crate) alternate: Option<Candidate>,
    /// True if this host owns the chunk.
    pub(crate) is_owner: bool,
    /// Owners before this host, where it is the owner, in the rings that are remembered, the latest
    /// first. A chunk that moved here is still at one of them.
    pub(crate) previous: Vec<Candidate>,
    /// Peers that are overloaded: asked after the origin.
    pub(crate) passed: Vec<Candidate>,
    /// One of them that is to be asked beside, to see whether it still is.
    pub(crate) probe: Option<Candidate>,
    /// Leave to read the origin in their place.
    pub(crate) origin_permit: Option<OwnedSemaphorePermit>,
    /// Hosts passed over because they are too far.
    pub(crate) too_far: u32,
    /// True if the origin is not to be asked.
    pub(crate) is_origin_left_out: bool,
}

impl Plan {
    /// Returns whether nobody is asked before the origin.
    pub(crate) fn starts_at_origin(&self) -> bool {
        self.peers.is_empty() && self.previous.is_empty() && !self.is_origin_left_out
    }
}

/// Looks candidates up.
#[derive(Debug)]
pub(crate) struct Placement {
    rings: Arc<RingHandle>,
    host: String,
    /// Hops. An atomic, so that a change of it never meets a lock on the way of a lookup.
    threshold: AtomicU8,
    candidates_max: usize,
}

impl PlacementRule {
    /// The position on the ring of chunk `index` of a disk, which must have content. `digest` looks a
    /// chunk's digest up: `None` for a zero chunk.
    ///
    /// # Errors
    /// That of `digest`.
    pub(crate) fn oid<E>(
        self,
        disk: &DiskId,
        index: u64,
        digest: impl Fn(u64) -> Result<Option<Digest>, E>,
    ) -> Result<Oid, E> {
        match self {
            PlacementRule::Oid { span_chunks } => Ok(Oid::of(disk, index - index % span_chunks)),
            PlacementRule::Digest { span_chunks } => {
                for index in index - index % span_chunks..=index {
                    if let Some(digest) = digest(index)? {
                        return Ok(Oid(digest.prefix_u64()));
                    }
                }
                Ok(Oid::of(disk, index))
            }
        }
    }
}

impl Placement {
    pub(crate) fn new(rings: Arc<RingHandle>, config: &ReadPathConfig) -> Placement {
        Placement {
            rings,
            host: config.host.clone(),
            threshold: AtomicU8::new(config.distance_threshold.0),
            candidates_max: config.candidates_max,
        }
    }

    /// From which distance on a host is too far, as of now.
    pub(crate) fn threshold(&self) -> Threshold {
        // Relaxed: nothing else is published with it; a lookup under way may use the one before.
        Threshold(self.threshold.load(Ordering::Relaxed))
    }

    /// Changes the distance from which on a host is too far.
    pub(crate) fn set_threshold(&self, threshold: Threshold) {
        self.threshold.store(threshold.0, Ordering::Relaxed);
    }

    /// Looks up who is asked for the chunk at `oid`, nearest in line first.
    pub(crate) fn plan(&self, oid: Oid, peers: &PeerTable) -> Plan {
        let rings = self.rings.load();
        let Some(ring) = rings.current.as_deref() else { return Plan::default() };
        let from = ring.host_id(&self.host);
        let threshold = self.threshold();
        let mut candidates = ring.candidates(oid, from, threshold);
        let mut plan = Plan::default();
        while plan.peers.len() < self.candidates_max {
            let Some(id) = candidates.next_id() else { break };
            if Some(id) == from {
                plan.is_owner = plan.peers.is_empty();
                break;
            }
            let Some(host) = ring.host(id) else { break };
            plan.peers.push(Candidate {
                peer: peers.get(&host.name),
                address: host.address.as_str().into(),
            });
        }
        plan.too_far = candidates.skipped();
        if plan.is_owner && !rings.previous.is_empty() {
            plan.previous = self.previous_owners(ring, &rings, oid, peers);
        }
        plan
    }

    /// Returns the hosts that should rather hold the chunk at `oid` than this host: its owner, the
    /// owners before, the next in line, in this order, which is the same on all hosts with the same
    /// rings, up to this host.
    pub(crate) fn better_placed(&self, oid: Oid, peers: &PeerTable) -> Vec<Candidate> {
        let rings = self.rings.load();
        let Some(ring) = rings.current.as_deref() else { return Vec::new() };
        let line = ring.candidates(oid, ring.host_id(&self.host), self.threshold());
        let mut line = line.take(self.candidates_max);
        let former = rings.previous.iter().filter_map(|previous| {
            let from = previous.host_id(&self.host);
            let name = &previous.candidates(oid, from, self.threshold()).next()?.name;
            // Who left the ring holds nothing for others.
            ring.host(ring.host_id(name)?)
        });
        let mut better: Vec<Candidate> = Vec::new();
        for host in line.next().into_iter().chain(former).chain(line) {
            if host.name == self.host {
                break;
            }
            if better.iter().all(|known| *known.peer.name != *host.name) {
                let address = host.address.as_str().into();
                better.push(Candidate { peer: peers.get(&host.name), address });
            }
        }
        better
    }

    /// Returns the hosts that were first in line for `oid` before this host, without those that are
    /// too far.
    fn previous_owners(
        &self,
        current: &Ring,
        rings: &RingView,
        oid: Oid,
        peers: &PeerTable,
    ) -> Vec<Candidate> {
        let mut owners: Vec<Candidate> = Vec::new();
        for previous in &rings.previous {
            let from = previous.host_id(&self.host);
            let mut line = previous.candidates(oid, from, self.threshold());
            let Some(owner) = line.next() else { continue };
            let is_known = owners.iter().any(|known| *known.peer.name == *owner.name);
            if is_known || owner.name == self.host {
                continue;
            }
            // It may have moved to another address since.
            let host = current.host_id(&owner.name).and_then(|id| current.host(id));
            owners.push(Candidate {
                peer: peers.get(&owner.name),
                address: host.unwrap_or(owner).address.as_str().into(),
            });
        }
        owners
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use acstor_ring::{Host, RingBuilder};
    use acstor_selection::OverloadTimes;
    use acstor_types::{ChunkLocation, ChunkSize, Entry, Manifest, ManifestBuilder, PackId};

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn ring(generation: u64, weights: [u32; 4]) -> Ring {
        let hosts = NAMES.iter().zip(weights).map(|(name, weight)| {
            Host::new(*name, format!("10.0.0.1:{}", name.as_bytes()[0]), weight)
        });
        RingBuilder::new(7).vnodes(256).generation(generation).hosts(hosts).build().unwrap()
    }

    fn oid(rule: PlacementRule, manifest: &Manifest, index: u64) -> Oid {
        let digest = |index| match manifest.entry(index) {
            Some(Entry::Chunk { digest, .. }) => Ok::<_, std::convert::Infallible>(Some(digest)),
            Some(Entry::Zero) | None => Ok(None),
        };
        rule.oid(&manifest.disk_id(), index, digest).unwrap()
    }

    fn placement(rings: &Arc<RingHandle>, host: &str, rule: PlacementRule) -> Placement {
        let config = ReadPathConfig {
            host: host.into(),
            placement: rule,
            candidates_max: 3,
            ..ReadPathConfig::default()
        };
        Placement::new(rings.clone(), &config)
    }

    fn first(placement: &Placement, oid: Oid, peers: &PeerTable) -> String {
        let plan = placement.plan(oid, peers);
        match plan.peers.first() {
            Some(peer) => peer.peer.name.to_string(),
            None => placement.host.clone(),
        }
    }

    fn manifest(number: u8, chunks: u64, is_zero: fn(u64) -> bool) -> Manifest {
        let size = ChunkSize::new(4096).unwrap();
        let disk = DiskId::from_bytes([number; 16]);
        let mut builder = ManifestBuilder::new(disk, size, chunks * 4096);
        for index in 0..chunks {
            if is_zero(index) {
                builder.push_zero();
                continue;
            }
            let pack = PackId(Digest::of(b"pack"));
            let location = ChunkLocation { pack, offset: 4096 * (index as u32 + 1) };
            builder.push_chunk(&Digest::of(&index.to_le_bytes()), location);
        }
        builder.finish().unwrap()
    }

    fn peer_table() -> PeerTable {
        PeerTable::new(4, OverloadTimes::of(Duration::from_millis(5)))
    }

    #[test]
    fn test_oid_span_sends_neighbours_to_one_owner() {
        let rings = Arc::new(RingHandle::new(ring(1, [1; 4])));
        let peers = peer_table();
        let disk = manifest(3, 64 * 16, |index| index % 16 < 3);
        for rule in
            [PlacementRule::Oid { span_chunks: 16 }, PlacementRule::Digest { span_chunks: 16 }]
        {
            let placement = placement(&rings, "a", rule);
            let owner = |index| first(&placement, oid(rule, &disk, index), &peers);
            let mut owners = std::collections::HashSet::new();
            for span in 0..64 {
                let expected = owner(span * 16 + 3);
                for index in span * 16 + 3..(span + 1) * 16 {
                    assert_eq!(owner(index), expected, "{rule:?}");
                }
                owners.insert(expected);
            }
            assert_eq!(owners.len(), 4, "{rule:?}: spans spread over all hosts");
        }
    }

    #[test]
    fn test_oid_by_digest_is_equal_for_runs_that_two_disks_have_in_common() {
        let (one, two) = (manifest(1, 64, |_| false), manifest(2, 64, |_| false));
        for span_chunks in [1, 16] {
            let rule = PlacementRule::Digest { span_chunks };
            for index in 0..64 {
                assert_eq!(oid(rule, &one, index), oid(rule, &two, index), "{index}");
            }
        }
        let by_oid = PlacementRule::Oid { span_chunks: 16 };
        assert_ne!(oid(by_oid, &one, 0), oid(by_oid, &two, 0));
    }

    #[test]
    fn test_plan_is_the_same_line_seen_from_every_host() {
        let rings = Arc::new(RingHandle::new(ring(1, [1; 4])));
        let peers = peer_table();
        for number in 0..100u64 {
            let oid = Oid(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let seen: Vec<String> = NAMES
                .iter()
                .map(|host| {
                    let placement =
                        placement(&rings, host, PlacementRule::Digest { span_chunks: 1 });
                    first(&placement, oid, &peers)
                })
                .collect();
            assert!(seen.iter().all(|owner| *owner == seen[0]), "{seen:?}");
        }
    }

    #[test]
    fn test_plan_without_a_ring_is_the_origin() {
        let rings = Arc::new(RingHandle::empty());
        let placement = placement(&rings, "a", PlacementRule::Digest { span_chunks: 1 });
        let plan = placement.plan(Oid(1), &peer_table());
        assert!(plan.peers.is_empty() && plan.previous.is_empty() && !plan.is_owner);
    }

    #[test]
    fn test_plan_after_a_remap_names_the_previous_owner() {
        let rings = Arc::new(RingHandle::new(ring(1, [0, 1, 1, 1])));
        rings.set(ring(2, [1, 1, 1, 1])).unwrap();
        let placement = placement(&rings, "a", PlacementRule::Digest { span_chunks: 1 });
        let peers = peer_table();
        let mut owned = 0;
        for number in 0..1000u64 {
            let plan = placement.plan(Oid(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)), &peers);
            if plan.is_owner {
                owned += 1;
                assert_ne!(&*plan.previous[0].peer.name, "a");
            } else {
                assert!(plan.previous.is_empty());
            }
        }
        assert!(owned > 100, "{owned}");
    }

    #[test]
    fn test_plan_names_everybody_who_owned_it_the_latest_first_and_once() {
        let rings = Arc::new(RingHandle::new(ring(1, [0, 1, 0, 0])));
        rings.set(ring(2, [0, 0, 1, 0])).unwrap();
        rings.set(ring(3, [0, 1, 0, 0])).unwrap();
        rings.set(ring(4, [0, 0, 0, 1])).unwrap();
        rings.set(ring(5, [1, 0, 0, 0])).unwrap();
        let placement = placement(&rings, "a", PlacementRule::Digest { span_chunks: 1 });
        let plan = placement.plan(Oid(7), &peer_table());
        let names: Vec<&str> = plan.previous.iter().map(|owner| &*owner.peer.name).collect();
        assert_eq!(names, ["d", "b", "c"]);
    }

    #[test]
    fn test_set_threshold_leaves_out_who_is_too_far_now_and_before() {
        let host = |name: &str, weight| {
            let place = if name < "c" { "pod-1/rack-1" } else { "pod-2/rack-1" };
            let host = Host::new(name, format!("10.0.0.1:{}", name.as_bytes()[0]), weight);
            Host { topology: place.parse().unwrap(), ..host }
        };
        let ring = |generation, weights: [u32; 4]| {
            let hosts = NAMES.iter().zip(weights).map(|(name, weight)| host(name, weight));
            RingBuilder::new(7).vnodes(256).generation(generation).hosts(hosts).build().unwrap()
        };
        let rings = Arc::new(RingHandle::new(ring(1, [0, 0, 1, 0])));
        rings.set(ring(2, [1, 0, 1, 1])).unwrap();
        let placement = placement(&rings, "a", PlacementRule::Digest { span_chunks: 1 });
        let peers = peer_table();
        assert_eq!(placement.threshold(), Threshold::ANY);
        let plans = |placement: &Placement| -> Vec<Plan> {
            let spread = |number: u64| Oid(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (0..200).map(|number| placement.plan(spread(number), &peers)).collect()
        };
        assert!(plans(&placement).iter().any(|plan| !plan.peers.is_empty()));
        assert!(plans(&placement).iter().any(|plan| !plan.previous.is_empty()));
        placement.set_threshold(Threshold(3));
        for plan in plans(&placement) {
            assert!(plan.is_owner && plan.peers.is_empty() && plan.previous.is_empty());
        }
        placement.set_threshold(Threshold(0));
        for plan in plans(&placement) {
            assert!(!plan.is_owner && plan.starts_at_origin(), "nobody is near enough");
        }
        placement.set_threshold(Threshold::ANY);
        assert!(plans(&placement).iter().any(|plan| !plan.peers.is_empty()));
    }
}
