//! Overview of all sources of a host: whether one of them is slow, or this host's own link.
//!
//! A link that is full makes everything slow that comes over it. So a source counts as late only
//! beside the others, and where all of them are slow none of them is to blame.

use std::time::Duration;

use crate::{Current, Moment, Reading, limits};

/// The state of all sources together at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overview {
    taken: Moment,
    /// Time of one chunk from the median peer; zero where nothing is known.
    pub median: Duration,
    /// True if all sources of which something new is known are slow: nothing is asked for twice.
    pub is_all_slow: bool,
    /// True if these are so many that this host's own link is to blame, or were a moment ago.
    pub is_own_link_slow: bool,
    /// Time at which they last were.
    blamed: Option<Moment>,
}

impl Overview {
    /// Takes the readings of the peers and of the origin together; `before` is the overview before.
    pub(crate) fn take(
        peers: impl IntoIterator<Item = Reading>,
        origin: Reading,
        before: Option<Overview>,
        slow_fetch: Duration,
        now: Moment,
    ) -> Overview {
        let mut known = usize::from(origin.is_known);
        let mut current = Vec::new();
        for peer in peers {
            known += usize::from(peer.is_known);
            current.extend(peer.current);
        }
        let blamed = before.and_then(|before| before.blamed);
        Overview::of(current, (origin.current, slow_fetch), (known, blamed), now)
    }

    fn of(
        mut peers: Vec<Current>,
        (origin, slow_fetch): (Option<Current>, Duration),
        (known, blamed): (usize, Option<Moment>),
        now: Moment,
    ) -> Overview {
        // The lower of two: the slower one is seen beside the faster, never beside itself.
        let median = match peers.len() {
            0 => Duration::ZERO,
            count => {
                let middle = (count - 1) / 2;
                peers.select_nth_unstable_by_key(middle, |peer| peer.estimate).1.estimate
            }
        };
        let count = peers.len() + usize::from(origin.is_some());
        let is_enough = count >= limits::OWN_LINK_SOURCES_MIN
            || (count == limits::OWN_LINK_SOURCES_ALL && known == count);
        let stands_origin_out = origin.is_some_and(|origin| {
            // What takes less than that cannot come over a full link.
            let ratio = match origin.longest < slow_fetch {
                true => limits::OWN_LINK_FAST_ORIGIN_RATIO,
                false => limits::OWN_LINK_ORIGIN_RATIO,
            };
            median > origin.longest.mul_f64(ratio)
        });
        let is_none_fast =
            !stands_origin_out && peers.iter().chain(&origin).all(|source| source.is_slow);
        let blamed = match is_none_fast {
            true if is_enough => Some(now),
            true => blamed.filter(|at| now.since(*at) < limits::OWN_LINK_MEMORY),
            false => None,
        };
        let is_all_slow = is_none_fast && (count > 0 || blamed.is_some());
        let is_own_link_slow = blamed.is_some();
        Overview { taken: now, median, is_all_slow, is_own_link_slow, blamed }
    }

    /// Returns whether it is recent enough to go by.
    pub fn is_recent(&self, now: Moment) -> bool {
        now.since(self.taken) < limits::OVERVIEW_AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(5);

    fn source(millis: u64) -> Current {
        let estimate = Duration::from_millis(millis);
        Current { estimate, longest: estimate, is_slow: millis > 5 }
    }

    fn look(peers: &[u64], origin: Option<u64>, known: usize) -> Overview {
        let peers = peers.iter().copied().map(source).collect();
        Overview::of(peers, (origin.map(source), SLOW), (known, None), Moment::ZERO)
    }

    #[test]
    fn test_own_link_is_blamed_only_where_all_are_slow_and_there_are_enough() {
        let cases: [(&[u64], Option<u64>, usize, bool); 11] = [
            (&[], None, 0, false),
            (&[50, 60], Some(40), 3, true),
            (&[50, 60, 70], None, 3, true),
            (&[50, 60, 70, 1], Some(40), 5, false),
            (&[50, 60, 70], Some(2), 4, false),
            (&[50, 60, 70], Some(10), 4, false),
            (&[15, 16, 17], Some(6), 4, true),
            (&[11, 12, 13], Some(4), 4, false),
            (&[50], Some(40), 2, true),
            (&[50], Some(40), 9, false),
            (&[50], None, 1, false),
        ];
        for (peers, origin, known, expected) in cases {
            let found = look(peers, origin, known).is_own_link_slow;
            assert_eq!(found, expected, "{peers:?} {origin:?} of {known}");
        }
    }

    #[test]
    fn test_own_link_stays_to_blame_while_nobody_says_otherwise() {
        let now = Moment::ZERO;
        let peers = |millis: &[u64]| millis.iter().copied().map(source).collect::<Vec<_>>();
        let later = |peers, seconds| {
            let now = now + Duration::from_secs(seconds);
            Overview::of(peers, (None, SLOW), (9, Some(now - Duration::from_secs(seconds))), now)
        };
        assert!(later(peers(&[50]), 1).is_own_link_slow);
        assert!(later(peers(&[]), 9).is_own_link_slow);
        assert!(!later(peers(&[]), 10).is_own_link_slow);
        assert!(!later(peers(&[50, 1]), 1).is_own_link_slow);
        let alone = Overview::of(peers(&[50]), (None, SLOW), (9, None), now);
        assert!(alone.is_all_slow && !alone.is_own_link_slow);
    }

    #[test]
    fn test_median_is_that_of_the_lower_half() {
        for (peers, expected) in [
            (&[][..], 0),
            (&[7], 7),
            (&[9, 1], 1),
            (&[9, 1, 5], 5),
            (&[60, 1, 70, 2], 2),
            (&[50, 60, 70, 80, 1, 2, 3, 4], 4),
        ] {
            assert_eq!(look(peers, None, 0).median, Duration::from_millis(expected));
        }
    }
}
