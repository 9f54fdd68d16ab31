//! Hosts of the ring by the numbers that hints have.

use std::collections::HashMap;
use std::sync::Arc;

use acstor_ring::{Ring, RingHandle, Threshold};
use acstor_selection::exchange::HostKey;
use acstor_types::{DiskId, Oid};
use arc_swap::ArcSwap;

use crate::fetch::sources::Sources;
use crate::limits;

/// A host to talk to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) key: HostKey,
    pub(super) name: Arc<str>,
    /// `ip:port`.
    pub(super) address: Arc<str>,
    /// Number of its rack; equal for hosts of the same one, and for those of which nothing is known.
    rack: u64,
}

/// The hosts of one generation of the ring.
#[derive(Debug, Default)]
struct Hosts {
    generation: u64,
    by_key: HashMap<HostKey, Target>,
}

/// Looks hosts up.
pub(super) struct Directory {
    rings: Arc<RingHandle>,
    hosts: ArcSwap<Hosts>,
}

impl Directory {
    pub(super) fn new(rings: Arc<RingHandle>) -> Directory {
        Directory { rings, hosts: ArcSwap::default() }
    }

    /// The hosts of the ring of this moment.
    fn hosts(&self) -> Arc<Hosts> {
        let rings = self.rings.load();
        let Some(ring) = rings.current.as_deref() else { return Arc::default() };
        let known = self.hosts.load_full();
        if known.generation == ring.generation() {
            return known;
        }
        let hosts = Arc::new(Hosts::of(ring));
        self.hosts.store(hosts.clone());
        hosts
    }

    /// Returns a host by its number; `None`: the ring has none.
    pub(super) fn host(&self, key: HostKey) -> Option<Target> {
        self.hosts().by_key.get(&key).cloned()
    }

    pub(super) fn rack(&self, key: HostKey) -> Option<u64> {
        self.hosts().by_key.get(&key).map(|host| host.rack)
    }

    /// Number of hosts.
    pub(super) fn len(&self) -> usize {
        self.hosts().by_key.len()
    }

    /// Returns whether a host may be asked for chunks: it is not too far.
    pub(super) fn is_near(&self, target: &Target, sources: &Sources) -> bool {
        let rings = self.rings.load();
        let Some(ring) = rings.current.as_deref() else { return false };
        let threshold = sources.steering.placement.threshold();
        let from = ring.host_id(&sources.config.host);
        let to = ring.host_id(&target.name);
        to.is_some_and(|to| threshold.admits(ring.distance(from, to)))
    }

    /// Returns the candidates for the rendezvous host of a disk, the first in line first: the same on all
    /// hosts that have the same ring.
    pub(super) fn rendezvous(&self, disk: &DiskId) -> Vec<Target> {
        let rings = self.rings.load();
        let Some(ring) = rings.current.as_deref() else { return Vec::new() };
        let line = ring.candidates(Oid::rendezvous(disk), None, Threshold::ANY);
        let line = line.take(limits::RENDEZVOUS_CANDIDATES);
        line.map(|host| target(&host.name, &host.address, &host.topology.to_string())).collect()
    }

    /// Returns whether a host is one of the candidates for the rendezvous host of a disk.
    pub(super) fn is_rendezvous(&self, disk: &DiskId, key: HostKey) -> bool {
        self.rendezvous(disk).iter().any(|candidate| candidate.key == key)
    }
}

impl Hosts {
    fn of(ring: &Ring) -> Hosts {
        let targets = ring.hosts().iter().map(|host| {
            let target = target(&host.name, &host.address, &host.topology.to_string());
            (target.key, target)
        });
        Hosts { generation: ring.generation(), by_key: targets.collect() }
    }
}

fn target(name: &str, address: &str, topology: &str) -> Target {
    Target {
        key: HostKey(Oid::host_number(name)),
        name: name.into(),
        address: address.into(),
        rack: Oid::host_number(topology),
    }
}
