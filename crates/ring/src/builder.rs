//! Making a ring, and the next generation of a ring.

use crate::apportion;
use crate::assignment::{NO_OWNER, reassign};
use crate::ring::vnode_bits;
use crate::scatter::Scatter;
use crate::{Host, Ring, RingError, limits};

/// Share of the first host's chunks that the second one holds as well, from 0 (nothing) to 1.
///
/// The first is a host of the previous ring that gives v-nodes up, the second a host of the new
/// one that receives some. Values that are not positive numbers mean nothing.
pub type Similarity<'a> = dyn Fn(&Host, &Host) -> f64 + 'a;

/// Builds rings.
///
/// Counts of v-nodes follow the weights, each rounded up or down; from one generation to the next
/// only as many v-nodes move as the new counts force. Equal inputs give equal rings on every
/// platform: what is random comes from the seed and the generation.
///
/// Source: ACStor §3.6. Differs: weights are relative and the number of v-nodes is fixed, so
/// Equation (1) decides their proportions only.
///
/// # Examples
/// ```
/// use acstor_ring::{Host, RingBuilder};
///
/// let hosts = [Host::new("a", "10.0.0.1:7800", 100), Host::new("b", "10.0.0.2:7800", 100)];
/// let ring = RingBuilder::new(42).hosts(hosts).build()?;
/// let next = RingBuilder::succeeding(&ring).weight("b", 50)?.build()?;
/// assert_eq!(next.generation(), 2);
/// # Ok::<(), acstor_ring::RingError>(())
/// ```
pub struct RingBuilder<'a> {
    previous: Option<&'a Ring>,
    generation: Option<u64>,
    seed: u64,
    vnode_count: u32,
    hosts: Vec<Host>,
    moved_share_max: f64,
    similarity: Option<&'a Similarity<'a>>,
}

impl<'a> RingBuilder<'a> {
    /// Starts the first ring of a deployment; `seed` scatters its v-nodes.
    pub fn new(seed: u64) -> RingBuilder<'a> {
        RingBuilder {
            previous: None,
            generation: None,
            seed,
            vnode_count: limits::VNODES_DEFAULT,
            hosts: Vec::new(),
            moved_share_max: 1.0,
            similarity: None,
        }
    }

    /// Starts the generation after `previous`, with its hosts, weights, v-nodes and seed.
    pub fn succeeding(previous: &'a Ring) -> RingBuilder<'a> {
        RingBuilder {
            previous: Some(previous),
            vnode_count: previous.vnode_count(),
            hosts: previous.hosts().to_vec(),
            ..RingBuilder::new(previous.seed())
        }
    }

    /// Sets the number of v-nodes: a power of two from 2^4 to 2^22, [`limits::VNODES_DEFAULT`]
    /// where it is not set. A succeeding ring may have more than the previous one, not fewer: each
    /// v-node is cut in equal parts, and only what the finer rounding forces moves.
    pub fn vnodes(mut self, count: u32) -> Self {
        self.vnode_count = count;
        self
    }

    /// Sets the generation; where it is not set, the one after the previous ring's, or 1.
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Replaces all hosts.
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = Host>) -> Self {
        self.hosts = hosts.into_iter().collect();
        self
    }

    /// Adds a host, or replaces the one of the same name.
    pub fn host(mut self, host: Host) -> Self {
        self.hosts.retain(|other| other.name != host.name);
        self.hosts.push(host);
        self
    }

    /// Takes a host out at once; weight 0 drains it and keeps it known.
    ///
    /// # Errors
    /// [`RingError::UnknownHost`].
    pub fn remove(mut self, name: &str) -> Result<Self, RingError> {
        let count = self.hosts.len();
        self.hosts.retain(|host| host.name != name);
        if self.hosts.len() == count {
            return Err(RingError::UnknownHost(name.to_owned()));
        }
        Ok(self)
    }

    /// Sets the weight of a host; 0 drains it.
    ///
    /// # Errors
    /// [`RingError::UnknownHost`].
    pub fn weight(mut self, name: &str, weight: u32) -> Result<Self, RingError> {
        match self.hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.weight = weight,
            None => return Err(RingError::UnknownHost(name.to_owned())),
        }
        Ok(self)
    }

    /// Bounds the share of the circle that may move, from 0 to 1 (the default).
    ///
    /// V-nodes of hosts that are gone move in any case and count towards the bound. A bounded
    /// build leaves the counts short of the weights; building again gets nearer.
    pub fn moved_share_max(mut self, share: f64) -> Self {
        self.moved_share_max = share;
        self
    }

    /// Lets v-nodes go to the receivers that already hold most of what the giver holds.
    ///
    /// Source: ACStor §3.6 (v-node mapping adjustment). It changes which v-nodes go where, never
    /// how many. Not useful together with a dead giver whose content nobody shares: such v-nodes
    /// are scattered as usual.
    pub fn similarity(mut self, similarity: &'a Similarity<'a>) -> Self {
        self.similarity = Some(similarity);
        self
    }

    /// Builds the ring.
    ///
    /// # Errors
    /// [`RingError::Fenced`] when the generation is not above the previous one,
    /// [`RingError::NoWeight`] when nobody has a weight, [`RingError::Host`] or
    /// [`RingError::Range`] when a host or a parameter is not acceptable.
    pub fn build(mut self) -> Result<Ring, RingError> {
        let generation = self.next_generation()?;
        let bits = vnode_bits(u64::from(self.vnode_count))?;
        if !(0.0..=1.0).contains(&self.moved_share_max) {
            return Err(RingError::Range("moved share (0 to 1)"));
        }
        if self.hosts.len() > limits::HOSTS_MAX {
            return Err(RingError::Range("host count (1 to 16384)"));
        }
        if self.hosts.iter().all(|host| host.weight == 0) {
            return Err(RingError::NoWeight);
        }
        self.hosts.sort_by(|left, right| left.name.cmp(&right.name));
        let mut vnodes = self.inherited_vnodes(1 << bits)?;
        let weights: Vec<u32> = self.hosts.iter().map(|host| host.weight).collect();
        let quotas = apportion::quotas(&weights, self.vnode_count);
        let owned = count_owned(&vnodes, self.hosts.len());
        let targets = apportion::counts(&quotas, &owned, self.vnode_count);
        let moves_max = (self.moved_share_max * f64::from(self.vnode_count)) as usize;
        reassign(
            &mut vnodes,
            &self.hosts,
            &targets,
            &mut Scatter::new(self.seed, generation),
            moves_max,
            self.previous.zip(self.similarity),
        );
        Ring::from_parts(generation, self.seed, self.hosts, vnodes)
    }

    fn next_generation(&self) -> Result<u64, RingError> {
        let Some(previous) = self.previous else { return Ok(self.generation.unwrap_or(1)) };
        let current = previous.generation();
        let offered = match self.generation {
            Some(generation) => generation,
            None => current
                .checked_add(1)
                .ok_or(RingError::Range("no generation is left after the previous one"))?,
        };
        if offered <= current {
            return Err(RingError::Fenced { offered, current });
        }
        Ok(offered)
    }

    /// Returns the previous owner of each v-node in the new numbering of hosts, which are sorted.
    fn inherited_vnodes(&self, vnode_count: usize) -> Result<Vec<u16>, RingError> {
        let Some(previous) = self.previous else { return Ok(vec![NO_OWNER; vnode_count]) };
        if vnode_count < previous.vnodes().len() {
            return Err(RingError::Range("v-node count below the previous ring's"));
        }
        let parts = vnode_count / previous.vnodes().len();
        let renumbered: Vec<u16> = previous
            .hosts()
            .iter()
            .map(|old| match self.hosts.binary_search_by(|host| host.name.cmp(&old.name)) {
                Ok(index) => index as u16,
                Err(_) => NO_OWNER,
            })
            .collect();
        let owners = previous.vnodes().iter().map(|owner| renumbered[usize::from(*owner)]);
        Ok(owners.flat_map(|owner| std::iter::repeat_n(owner, parts)).collect())
    }
}

fn count_owned(vnodes: &[u16], host_count: usize) -> Vec<u32> {
    let mut owned = vec![0; host_count];
    for owner in vnodes {
        if let Some(count) = owned.get_mut(usize::from(*owner)) {
            *count += 1;
        }
    }
    owned
}

/// Returns a number of v-nodes that keeps rounding below 1 % for `host_count` hosts of equal
/// weight: at least 128 for each, within the limits of a ring.
pub fn recommended_vnodes(host_count: usize) -> u32 {
    let wanted = (host_count.min(limits::HOSTS_MAX) as u32 * 128).next_power_of_two();
    wanted.clamp(limits::VNODES_DEFAULT, 1 << limits::VNODE_BITS_MAX)
}
