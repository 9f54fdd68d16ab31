//! The immutable ring and its lookup.

use acstor_types::Oid;

use crate::topology::TopologyIndex;
use crate::{Candidates, Host, HostId, RingError, Threshold, limits};

/// Assignment of v-nodes to hosts in one generation. Immutable.
///
/// The v-nodes cut the circle of OIDs into 2^k equal arcs, in order: v-node `i` holds the OIDs
/// whose upper k bits are `i`. Hosts are in ascending order of name.
#[derive(Clone, Debug)]
pub struct Ring {
    generation: u64,
    seed: u64,
    vnode_bits: u8,
    hosts: Box<[Host]>,
    vnodes: Box<[u16]>,
    vnode_counts: Box<[u32]>,
    topology: TopologyIndex,
}

impl Ring {
    /// Puts a ring together from what a codec or builder made; checks all of it.
    pub(crate) fn from_parts(
        generation: u64,
        seed: u64,
        hosts: Vec<Host>,
        vnodes: Vec<u16>,
    ) -> Result<Ring, RingError> {
        if generation == 0 {
            return Err(RingError::Range("generation 0 (the first is 1)"));
        }
        let vnode_bits = vnode_bits(vnodes.len() as u64)?;
        if hosts.is_empty() || hosts.len() > limits::HOSTS_MAX {
            return Err(RingError::Range("host count (1 to 16384)"));
        }
        for (position, host) in hosts.iter().enumerate() {
            host.validate()?;
            if position > 0 && hosts[position - 1].name >= host.name {
                return Err(RingError::Host {
                    name: host.name.clone(),
                    reason: "named twice, or hosts are not in ascending order of name",
                });
            }
        }
        let mut vnode_counts = vec![0; hosts.len()];
        for host in &vnodes {
            match vnode_counts.get_mut(usize::from(*host)) {
                Some(count) => *count += 1,
                None => return Err(RingError::Range("v-node of a host that does not exist")),
            }
        }
        let topology = TopologyIndex::new(&hosts, &vnode_counts)?;
        Ok(Ring {
            generation,
            seed,
            vnode_bits,
            hosts: hosts.into(),
            vnodes: vnodes.into(),
            vnode_counts: vnode_counts.into(),
            topology,
        })
    }

    /// Number of this ring; a higher one replaces a lower one. At least 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the seed that scattered the v-nodes; the builder of the next generation goes on with
    /// it.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Number of v-nodes, a power of two.
    pub fn vnode_count(&self) -> u32 {
        self.vnodes.len() as u32
    }

    /// All hosts in ascending order of name, drained ones included; a [`HostId`] is an index.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host `id`, or `None` where this ring has none.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.get(usize::from(id.0))
    }

    /// The id in this ring of the host named `name`; logarithmic in the number of hosts.
    pub fn host_id(&self, name: &str) -> Option<HostId> {
        let index = self.hosts.binary_search_by(|host| host.name.as_str().cmp(name)).ok()?;
        Some(HostId(index as u16))
    }

    /// The owner of each v-node, in the order of the circle.
    pub fn vnodes(&self) -> &[u16] {
        &self.vnodes
    }

    /// Returns the number of v-nodes that each host owns, parallel to [`Ring::hosts`].
    pub fn vnode_counts(&self) -> &[u32] {
        &self.vnode_counts
    }

    /// Returns the number of hosts that own at least one v-node.
    pub fn owner_count(&self) -> u32 {
        self.topology.owners()
    }

    /// The v-node that holds `oid`.
    #[inline]
    pub fn vnode_of(&self, oid: Oid) -> u32 {
        (oid.0 >> (64 - u32::from(self.vnode_bits))) as u32
    }

    /// Id of the host that owns `oid`. One load from a table; does not allocate.
    #[inline]
    pub fn owner_id(&self, oid: Oid) -> HostId {
        HostId(self.vnodes[self.vnode_of(oid) as usize])
    }

    /// The host that owns `oid`. Does not allocate.
    #[inline]
    pub fn owner(&self, oid: Oid) -> &Host {
        &self.hosts[usize::from(self.owner_id(oid).0)]
    }

    /// Iterates the distinct hosts that `threshold` admits, from the owner of `oid` on around the
    /// circle; what [`Candidates`] skipped is counted there.
    ///
    /// `from` is the host that asks; `None` where it is not in this ring. Hosts without v-nodes
    /// (drained ones) never appear. The first few steps do not allocate.
    ///
    /// Source: ACStor Algorithm 1, lines 7-14. Differs: the search goes on where the algorithm
    /// starts again, which finds the same host; and it can end without a host, upon which the
    /// caller reads the origin.
    pub fn candidates(
        &self,
        oid: Oid,
        from: Option<HostId>,
        threshold: Threshold,
    ) -> Candidates<'_> {
        let from = from.filter(|from| usize::from(from.0) < self.hosts.len());
        let from_owns = from.is_some_and(|from| self.vnode_counts[usize::from(from.0)] > 0);
        let eligible = self.topology.owners_within(from, from_owns, threshold);
        Candidates::new(self, self.vnode_of(oid), from, threshold, eligible)
    }

    /// Hops between two hosts: the number of switches on the way in a tree.
    ///
    /// Same host 0, same edge switch 1, same aggregate switch 3, over the root 5: with d segments
    /// in the topology of which c are common, 2 (d - c) + 1. A host of unknown topology, or
    /// that is not in this ring (`None`), is at distance 1 from every other.
    ///
    /// Source: the levels of ACStor Algorithm 2. Not for topologies that are no trees: there,
    /// give hosts that are equally near the same segment.
    pub fn distance(&self, from: Option<HostId>, to: HostId) -> u8 {
        self.topology.distance(from, to)
    }
}

/// Rings are equal when generation, seed, hosts and v-nodes are.
impl PartialEq for Ring {
    fn eq(&self, other: &Ring) -> bool {
        self.generation == other.generation
            && self.seed == other.seed
            && self.hosts == other.hosts
            && self.vnodes == other.vnodes
    }
}

impl Eq for Ring {}

/// Returns k for 2^k v-nodes within the limits.
pub(crate) fn vnode_bits(vnode_count: u64) -> Result<u8, RingError> {
    let bits = vnode_count.trailing_zeros() as u8;
    if !vnode_count.is_power_of_two()
        || !(limits::VNODE_BITS_MIN..=limits::VNODE_BITS_MAX).contains(&bits)
    {
        return Err(RingError::Range("v-node count (a power of two from 2^4 to 2^22)"));
    }
    Ok(bits)
}
