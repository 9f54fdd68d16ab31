//! The members of one image's exchange, and what they miss, as the rendezvous host knows it.

use super::bounds::{HOST_HINTS_MAX, MEMBER_AGE_MAX, MEMBERS_MAX};
use super::hint_log::{Hint, HintLog, HostKey};
use super::neighbourhood::Neighbourhood;
use crate::Moment;

/// A host that takes part.
#[derive(Clone, Copy, Debug)]
struct Member {
    host: HostKey,
    rack: u64,
    renewed: Moment,
    /// Hints that it told.
    told: u32,
}

/// As many hosts take part as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeetingFull;

/// Fate of the misses that a member told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// Misses that nobody had told before.
    pub new: u32,
    /// Misses that were known.
    pub repeated: u32,
    /// Misses of a host that told too many, or beyond what is remembered.
    pub refused: u32,
}

/// One image's exchange.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// Number that this learning has and no other: what is told under another is late.
    epoch: u64,
    neighbourhood: Neighbourhood,
    /// The order so far, with those that hang on the rendezvous itself.
    pub log: HintLog,
    /// In the order in which they came.
    members: Vec<Member>,
}

impl Meeting {
    /// An exchange of which nothing is known. `epoch`: drawn at random, not 0.
    pub fn new(epoch: u64, neighbourhood: Neighbourhood) -> Meeting {
        Meeting { epoch, neighbourhood, log: HintLog::default(), members: Vec::new() }
    }

    /// The number of this learning.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of members.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Makes a host a member, or notes that it still is one; returns the member on which it hangs, `None`:
    /// on the rendezvous.
    ///
    /// # Errors
    /// [`MeetingFull`].
    pub fn join(
        &mut self,
        host: HostKey,
        rack: u64,
        now: Moment,
    ) -> Result<Option<HostKey>, MeetingFull> {
        let known = self.members.iter().position(|member| member.host == host);
        let position = known.unwrap_or(self.members.len());
        let renewed = now;
        match self.members.get_mut(position) {
            Some(member) => *member = Member { rack, renewed, ..*member },
            None if position >= MEMBERS_MAX => return Err(MeetingFull),
            None => self.members.push(Member { host, rack, renewed, told: 0 }),
        }
        let racks: Vec<u64> = self.members.iter().map(|member| member.rack).collect();
        let parent = self.neighbourhood.parent(position, &racks);
        Ok(parent.and_then(|parent| Some(self.members.get(parent)?.host)))
    }

    /// Learns what a member misses; `None`: it is none.
    pub fn learn(&mut self, from: HostKey, chunks: &[u32], now: Moment) -> Option<Learnt> {
        let member = self.members.iter_mut().find(|member| member.host == from)?;
        let mut learnt = Learnt::default();
        for chunk in chunks {
            if member.told >= HOST_HINTS_MAX {
                learnt.refused += 1;
                continue;
            }
            if self.log.push(Hint { chunk: *chunk, holder: from }, now) {
                member.told += 1;
                learnt.new += 1;
            } else {
                learnt.repeated += 1;
            }
        }
        Some(learnt)
    }

    /// Forgets members that have not said for long that they still take part; returns whether any is left.
    pub fn expire(&mut self, now: Moment) -> bool {
        self.members.retain(|member| now.since(member.renewed) < MEMBER_AGE_MAX);
        self.log.expire(now);
        !self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::neighbourhood::Order;
    use super::*;

    fn meeting(order: Order) -> Meeting {
        Meeting::new(7, Neighbourhood::new(order, 2))
    }

    #[test]
    fn test_first_miss_has_a_place_and_the_second_none() {
        let mut meeting = meeting(Order::Tree);
        let (a, b) = (HostKey(1), HostKey(2));
        assert_eq!(meeting.learn(a, &[1], Moment::ZERO), None, "no member");
        assert_eq!(meeting.join(a, 0, Moment::ZERO), Ok(None));
        assert_eq!(meeting.join(b, 0, Moment::ZERO), Ok(None));
        assert_eq!(meeting.join(HostKey(3), 0, Moment::ZERO), Ok(Some(a)));
        let learnt = |new, repeated| Some(Learnt { new, repeated, refused: 0 });
        assert_eq!(meeting.learn(a, &[5, 3, 5], Moment::ZERO), learnt(2, 1));
        assert_eq!(meeting.learn(b, &[3, 4], Moment::ZERO), learnt(1, 1));
        let order: Vec<u32> = meeting.log.since(0).iter().map(|hint| hint.chunk).collect();
        assert_eq!(order, [5, 3, 4]);
        assert_eq!(meeting.log.since(2)[0].holder, b);
    }

    #[test]
    fn test_members_that_fall_silent_leave_their_place_to_the_next() {
        let mut meeting = meeting(Order::Ring);
        let early = Moment::ZERO + Duration::from_secs(1);
        let late = early + MEMBER_AGE_MAX;
        meeting.join(HostKey(1), 0, Moment::ZERO).unwrap();
        meeting.join(HostKey(2), 0, early + Duration::from_secs(1)).unwrap();
        assert!(meeting.expire(late));
        assert_eq!(meeting.join(HostKey(2), 0, late), Ok(None), "it hung on the first");
        assert!(!meeting.expire(late + MEMBER_AGE_MAX));
    }

    #[test]
    fn test_host_that_floods_fills_its_share() {
        let mut meeting = meeting(Order::Ring);
        meeting.join(HostKey(1), 0, Moment::ZERO).unwrap();
        meeting.join(HostKey(2), 0, Moment::ZERO).unwrap();
        let flood: Vec<u32> = (0..2 * HOST_HINTS_MAX).collect();
        let learnt = meeting.learn(HostKey(1), &flood, Moment::ZERO).unwrap();
        assert_eq!((learnt.new, learnt.refused), (HOST_HINTS_MAX, HOST_HINTS_MAX));
        let honest = meeting.learn(HostKey(2), &[1 << 30], Moment::ZERO).unwrap();
        assert_eq!(honest.new, 1);
    }

    proptest! {
        /// Whoever joins, leaves and tells: all bounds hold, and each is below somebody who is there.
        #[test]
        fn proptest_members_hang_on_members(
            steps in prop::collection::vec((0u64..9, 0u64..3, 0u64..6), 1..80),
        ) {
            let mut meeting = meeting(Order::Topology);
            let mut now = Moment::ZERO;
            for (host, rack, seconds) in steps {
                now = now + Duration::from_secs(seconds);
                meeting.expire(now);
                let parent = meeting.join(HostKey(host), rack, now).unwrap();
                prop_assert!(parent != Some(HostKey(host)));
                if let Some(parent) = parent {
                    prop_assert!(meeting.learn(parent, &[], now).is_some());
                }
                prop_assert!(meeting.member_count() <= 9);
            }
        }
    }
}
