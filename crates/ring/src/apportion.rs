//! Apportionment of v-nodes to hosts.
//!
//! A host's quota is its exact share of the v-nodes, a fraction; its count is the quota rounded
//! down or up. Where there is no previous ring the largest remainders are rounded up (Hamilton's
//! method); where there is one, a count that already is one of the two stays, so that rounding
//! alone never moves a v-node.

/// A host's exact share of the v-nodes: `floor` + `remainder` / (sum of weights).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    floor: u32,
    remainder: u64,
}

impl Quota {
    fn ceil(self) -> u32 {
        self.floor + u32::from(self.remainder > 0)
    }
}

/// Splits `vnode_count` by weight; all zero where every weight is.
pub(crate) fn quotas(weights: &[u32], vnode_count: u32) -> Vec<Quota> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let quota = |weight: &u32| {
        // At most 2^22 x 2^32: no overflow.
        let product = u64::from(*weight) * u64::from(vnode_count);
        Quota {
            floor: product.checked_div(sum).unwrap_or(0) as u32,
            remainder: product.checked_rem(sum).unwrap_or(0),
        }
    };
    weights.iter().map(quota).collect()
}

/// Returns counts that sum to `vnode_count`, each a quota rounded down or up, and among those the
/// ones that differ least from `previous`.
pub(crate) fn counts(quotas: &[Quota], previous: &[u32], vnode_count: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = quotas
        .iter()
        .zip(previous)
        .map(|(quota, previous)| (*previous).clamp(quota.floor, quota.ceil()))
        .collect();
    let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let missing = i64::from(vnode_count) - sum as i64;
    // Every step from here moves one v-node more, whichever host takes it: the largest remainders
    // go up first, the smallest go down first.
    let mut order: Vec<usize> = (0..quotas.len())
        .filter(|host| {
            let limit = if missing > 0 { quotas[*host].ceil() } else { quotas[*host].floor };
            counts[*host] != limit
        })
        .collect();
    order.sort_by_key(|host| quotas[*host].remainder);
    if missing > 0 {
        order.reverse();
    }
    for host in order.into_iter().take(missing.unsigned_abs() as usize) {
        if missing > 0 {
            counts[host] += 1;
        } else {
            counts[host] -= 1;
        }
    }
    counts
}

/// The fewest v-nodes that must change hands to get from `previous` to any counts that are quotas
/// rounded down or up: what hosts have above their upper bound must go, what hosts lack to their
/// lower bound must come. V-nodes that `previous` does not account for have lost their owner.
pub(crate) fn least_moves(quotas: &[Quota], previous: &[u32], vnode_count: u32) -> u64 {
    let owned: u64 = previous.iter().map(|count| u64::from(*count)).sum();
    let (mut must_go, mut must_come) = (u64::from(vnode_count).saturating_sub(owned), 0);
    for (quota, previous) in quotas.iter().zip(previous) {
        must_go += u64::from(previous.saturating_sub(quota.ceil()));
        must_come += u64::from(quota.floor.saturating_sub(*previous));
    }
    must_go.max(must_come)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fresh(weights: &[u32], vnode_count: u32) -> Vec<u32> {
        counts(&quotas(weights, vnode_count), &vec![0; weights.len()], vnode_count)
    }

    #[test]
    fn largest_remainders_round_up() {
        assert_eq!(fresh(&[1, 1, 1], 16), [5, 5, 6]);
        assert_eq!(fresh(&[10, 20, 0, 70], 16), [2, 3, 0, 11]);
        assert_eq!(fresh(&[u32::MAX, u32::MAX], 1 << 22), [1 << 21, 1 << 21]);
    }

    #[test]
    fn rounding_alone_moves_nothing() {
        for previous in [[5, 5, 6], [6, 5, 5], [5, 6, 5]] {
            assert_eq!(counts(&quotas(&[1, 1, 1], 16), &previous, 16), previous);
        }
    }

    proptest! {
        #[test]
        fn counts_keep_quota_and_move_the_least(
            hosts in proptest::collection::vec((0u32..1000, 0u32..1000), 1..40),
            bits in 4u32..12,
        ) {
            let vnode_count = 1 << bits;
            let (mut before, mut after): (Vec<u32>, Vec<u32>) = hosts.into_iter().unzip();
            before[0] += 1;
            after[0] += 1;
            let old = fresh(&before, vnode_count);
            let quotas = quotas(&after, vnode_count);
            let new = counts(&quotas, &old, vnode_count);
            prop_assert_eq!(new.iter().sum::<u32>(), vnode_count);
            for (count, quota) in new.iter().zip(&quotas) {
                prop_assert!(*count == quota.floor || *count == quota.ceil());
            }
            let moved: u64 =
                old.iter().zip(&new).map(|(old, new)| u64::from(old.saturating_sub(*new))).sum();
            prop_assert_eq!(moved, least_moves(&quotas, &old, vnode_count));
        }
    }
}
