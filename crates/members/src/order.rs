//! The order in which members are asked.

use std::time::Duration;

/// A member as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Position in the configuration.
    pub(crate) position: usize,
    /// True if it shall have what is read in the end.
    pub(crate) is_assigned: bool,
    /// Time that a call of it takes now; `None`: it was never asked.
    pub(crate) estimate: Option<Duration>,
}

/// Brings candidates into the order in which they are asked: assigned ones first, of these the one
/// with the least time, of equals the first in the configuration. One that was never asked takes no
/// time, so that its time becomes known.
pub(crate) fn sort(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by_key(|one| {
        (!one.is_assigned, one.estimate.unwrap_or(Duration::ZERO), one.position)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MEMBERS_MAX;

    const ESTIMATES: [Option<u64>; 4] = [None, Some(0), Some(1), Some(9)];

    fn candidate(position: usize, code: usize) -> Candidate {
        let estimate = ESTIMATES[code % ESTIMATES.len()].map(Duration::from_millis);
        Candidate { position, is_assigned: code >= ESTIMATES.len(), estimate }
    }

    /// Returns whether `one` may be asked before `other`, by the words of RFD 38.
    fn may_precede(one: &Candidate, other: &Candidate) -> bool {
        if one.is_assigned != other.is_assigned {
            return one.is_assigned;
        }
        let time = |of: &Candidate| of.estimate.map_or(0, |time| time.as_millis());
        time(one) < time(other) || time(one) == time(other) && one.position < other.position
    }

    #[test]
    fn test_order_of_all_combinations_of_up_to_four_members() {
        let codes = 2 * ESTIMATES.len();
        for count in 1..=MEMBERS_MAX {
            for combination in 0..codes.pow(count as u32) {
                let code = |position: usize| combination / codes.pow(position as u32) % codes;
                let mut found: Vec<_> = (0..count).map(|at| candidate(at, code(at))).collect();
                sort(&mut found);
                for pair in found.windows(2) {
                    assert!(may_precede(&pair[0], &pair[1]), "{found:?}");
                }
                let mut positions: Vec<_> = found.iter().map(|one| one.position).collect();
                positions.sort_unstable();
                assert!(positions.into_iter().eq(0..count), "everybody once: {found:?}");
            }
        }
    }
}
