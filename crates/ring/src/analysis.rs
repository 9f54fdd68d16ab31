//! Balance of a ring, and the share that moved from one ring to the next.

use std::collections::HashMap;

use crate::{Host, Ring, apportion};

/// One host's part of the circle.
#[derive(Clone, Debug, PartialEq)]
pub struct HostShare {
    /// Name of the host.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// V-nodes that it owns.
    pub vnode_count: u32,
    /// Share of the circle that it owns, 0 to 1.
    pub share: f64,
    /// Share that its weight asks for, 0 to 1.
    pub ideal_share: f64,
    /// `share / ideal_share - 1`; `None` for a drained host.
    pub deviation: Option<f64>,
    /// Largest share of this host's v-nodes that any one other host takes over while this host does
    /// not answer, 0 to 1; 0 for a host without v-nodes and for the only host.
    pub takeover_share_max: f64,
}

/// Difference between two rings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Share of the circle whose owner changed, 0 to 1.
    pub share: f64,
    /// Least share that had to move for the new ring's weights; see [`least_moved_share`].
    pub least_share: f64,
}

/// Balance of a ring, and what moved since the previous one.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Generation of the ring.
    pub generation: u64,
    /// Number of v-nodes.
    pub vnode_count: u32,
    /// All hosts, in ascending order of name.
    pub hosts: Vec<HostShare>,
    /// Largest absolute deviation of any host that has a weight.
    pub deviation_max: f64,
    /// Moves between the rings; `None` where no previous ring was given.
    pub moved: Option<Moved>,
}

/// Measures `ring`, and what moved since `previous`. Linear in the number of v-nodes.
pub fn analyze(ring: &Ring, previous: Option<&Ring>) -> Analysis {
    let weight_sum: u64 = ring.hosts().iter().map(|host| u64::from(host.weight)).sum();
    let takeovers = takeover_counts_max(ring);
    let hosts: Vec<HostShare> = ring
        .hosts()
        .iter()
        .zip(ring.vnode_counts())
        .zip(takeovers)
        .map(|((host, vnode_count), takeover)| {
            let share = f64::from(*vnode_count) / f64::from(ring.vnode_count());
            let ideal_share = f64::from(host.weight) / (weight_sum.max(1)) as f64;
            HostShare {
                name: host.name.clone(),
                weight: host.weight,
                vnode_count: *vnode_count,
                share,
                ideal_share,
                deviation: (host.weight > 0).then(|| share / ideal_share - 1.0),
                takeover_share_max: f64::from(takeover) / f64::from((*vnode_count).max(1)),
            }
        })
        .collect();
    Analysis {
        generation: ring.generation(),
        vnode_count: ring.vnode_count(),
        deviation_max: hosts
            .iter()
            .filter_map(|host| host.deviation)
            .fold(0.0, |max, deviation| deviation.abs().max(max)),
        hosts,
        moved: previous.map(|previous| Moved {
            share: moved_share(previous, ring),
            least_share: least_moved_share(previous, ring.hosts(), ring.vnode_count()),
        }),
    }
}

/// Returns the share of the circle, 0 to 1, that belongs to another host (by name) in `new` than
/// in `old`. The rings may have different numbers of v-nodes.
pub fn moved_share(old: &Ring, new: &Ring) -> f64 {
    let renumbered: Vec<Option<u16>> =
        old.hosts().iter().map(|host| new.host_id(&host.name).map(|id| id.0)).collect();
    let count = old.vnodes().len().max(new.vnodes().len());
    let (old_part, new_part) = (count / old.vnodes().len(), count / new.vnodes().len());
    let moved = (0..count)
        .filter(|position| {
            let owner = old.vnodes()[position / old_part];
            renumbered[usize::from(owner)] != Some(new.vnodes()[position / new_part])
        })
        .count();
    moved as f64 / count as f64
}

/// Returns the least share of the circle, 0 to 1, that must move from `old` to any ring of
/// `vnode_count` v-nodes whose hosts, `hosts`, each own their exact share rounded down or up to
/// whole v-nodes.
///
/// A ring that bounds what moves can stay below it, since it does not reach these counts.
pub fn least_moved_share(old: &Ring, hosts: &[Host], vnode_count: u32) -> f64 {
    let weights: Vec<u32> = hosts.iter().map(|host| host.weight).collect();
    let quotas = apportion::quotas(&weights, vnode_count);
    let owned = |host: &Host| match old.host_id(&host.name) {
        Some(id) => {
            let owned = u64::from(old.vnode_counts()[usize::from(id.0)]);
            (owned * u64::from(vnode_count) / u64::from(old.vnode_count())) as u32
        }
        None => 0,
    };
    let owned: Vec<u32> = hosts.iter().map(owned).collect();
    let moves = apportion::least_moves(&quotas, &owned, vnode_count);
    moves as f64 / f64::from(vnode_count)
}

/// For each host the most of its v-nodes that one other host succeeds it on.
fn takeover_counts_max(ring: &Ring) -> Vec<u32> {
    let vnodes = ring.vnodes();
    let mut pairs: HashMap<(u16, u16), u32> = HashMap::new();
    let mut next: Option<u16> = None;
    let mut successor: Option<u16> = None;
    // Backwards, so that what follows a v-node is known when it is met; a first turn without
    // counting finds what follows the last one.
    for turn in 0..2 {
        for owner in vnodes.iter().rev() {
            if next != Some(*owner) {
                successor = next;
            }
            next = Some(*owner);
            if let (1, Some(successor)) = (turn, successor) {
                *pairs.entry((*owner, successor)).or_default() += 1;
            }
        }
    }
    let mut counts_max = vec![0; ring.hosts().len()];
    for ((owner, _), count) in pairs {
        let max = &mut counts_max[usize::from(owner)];
        *max = count.max(*max);
    }
    counts_max
}
