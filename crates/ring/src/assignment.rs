//! Reassignment of v-nodes: those that change hands, and their new owners.

use crate::scatter::Scatter;
use crate::{Host, Ring, Similarity};

/// Marks a v-node whose owner is not in the new ring, or that never had one.
pub(crate) const NO_OWNER: u16 = u16::MAX;

/// Moves v-nodes until each host has as many as `targets` says, or `moves_max` have moved.
///
/// `vnodes` holds indexes into `hosts`, or [`NO_OWNER`]; v-nodes without an owner are always
/// given one. Both the v-nodes that a host gives up and those that it receives are random, so that
/// the successors of a host on the circle stay a random sample of all others. With `similarity`, a
/// giver's v-nodes first go to the receivers most similar to it.
pub(crate) fn reassign(
    vnodes: &mut [u16],
    hosts: &[Host],
    targets: &[u32],
    scatter: &mut Scatter,
    moves_max: usize,
    similarity: Option<(&Ring, &Similarity<'_>)>,
) {
    let mut groups = Groups::of(vnodes, hosts.len());
    let moving = choose_moving(&mut groups, targets, scatter, moves_max);
    let mut slots: Vec<u16> = Vec::with_capacity(moving.len());
    for (host, target) in targets.iter().enumerate() {
        let missing = (*target as usize).saturating_sub(groups.of_host(host).len());
        slots.extend(std::iter::repeat_n(host as u16, missing));
    }
    scatter.shuffle(&mut slots);
    slots.truncate(moving.len());
    let (moving, slots) = match similarity {
        Some((previous, similarity)) => {
            give_to_similar(vnodes, hosts, moving, slots, previous, similarity)
        }
        None => (moving, slots),
    };
    for (vnode, receiver) in moving.into_iter().zip(slots) {
        vnodes[vnode as usize] = receiver;
    }
}

/// V-nodes by owner.
struct Groups {
    vnodes: Vec<u32>,
    /// Start of each host's v-nodes in `vnodes`; those without an owner come last.
    starts: Vec<usize>,
}

impl Groups {
    fn of(owners: &[u16], host_count: usize) -> Groups {
        let group = |owner: u16| usize::from(owner).min(host_count);
        let mut starts = vec![0; host_count + 2];
        for owner in owners {
            starts[group(*owner) + 1] += 1;
        }
        for host in 0..=host_count {
            starts[host + 1] += starts[host];
        }
        let mut next = starts.clone();
        let mut vnodes = vec![0; owners.len()];
        for (vnode, owner) in owners.iter().enumerate() {
            let next = &mut next[group(*owner)];
            vnodes[*next] = vnode as u32;
            *next += 1;
        }
        Groups { vnodes, starts }
    }

    fn of_host(&mut self, host: usize) -> &mut [u32] {
        &mut self.vnodes[self.starts[host]..self.starts[host + 1]]
    }
}

/// Returns the v-nodes to move: those without an owner, then random ones of hosts that have too
/// many, at most `moves_max` in all unless more have no owner.
fn choose_moving(
    groups: &mut Groups,
    targets: &[u32],
    scatter: &mut Scatter,
    moves_max: usize,
) -> Vec<u32> {
    let mut surplus = Vec::new();
    for (host, target) in targets.iter().enumerate() {
        let owned = groups.of_host(host);
        let excess = owned.len().saturating_sub(*target as usize);
        scatter.choose_first(owned, excess);
        surplus.extend_from_slice(&owned[..excess]);
    }
    scatter.shuffle(&mut surplus);
    let mut moving = groups.of_host(targets.len()).to_vec();
    surplus.truncate(moves_max.saturating_sub(moving.len()));
    moving.extend(surplus);
    moving
}

/// Gives v-nodes to the receivers most similar to their owner in `previous`, the giver of most
/// v-nodes first; returns the v-nodes and slots that remain because nobody is similar.
fn give_to_similar(
    vnodes: &mut [u16],
    hosts: &[Host],
    moving: Vec<u32>,
    slots: Vec<u16>,
    previous: &Ring,
    similarity: &Similarity<'_>,
) -> (Vec<u32>, Vec<u16>) {
    let growth = (vnodes.len() / previous.vnodes().len()).trailing_zeros();
    let mut slots_left = vec![0; hosts.len()];
    for slot in &slots {
        slots_left[usize::from(*slot)] += 1;
    }
    let mut given: Vec<Vec<u32>> = vec![Vec::new(); previous.hosts().len()];
    for vnode in moving {
        given[usize::from(previous.vnodes()[(vnode >> growth) as usize])].push(vnode);
    }
    let mut givers: Vec<usize> =
        (0..given.len()).filter(|giver| !given[*giver].is_empty()).collect();
    givers.sort_by_key(|giver| std::cmp::Reverse(given[*giver].len()));
    let mut remaining = Vec::new();
    for giver in givers {
        let mut receivers: Vec<(f64, usize)> = (0..hosts.len())
            .filter(|receiver| slots_left[*receiver] > 0)
            .map(|receiver| (similarity(&previous.hosts()[giver], &hosts[receiver]), receiver))
            .filter(|(similarity, _)| similarity.is_finite() && *similarity > 0.0)
            .collect();
        receivers.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let mut giving = given[giver].iter();
        for (_, receiver) in receivers {
            let room: usize = slots_left[receiver];
            for vnode in giving.by_ref().take(room) {
                vnodes[*vnode as usize] = receiver as u16;
                slots_left[receiver] -= 1;
            }
        }
        remaining.extend(giving);
    }
    let slots = slots.into_iter().filter(|slot| {
        let left = &mut slots_left[usize::from(*slot)];
        let is_left = *left > 0;
        *left -= usize::from(is_left);
        is_left
    });
    (remaining, slots.collect())
}
