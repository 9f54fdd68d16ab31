//! The hosts' chunk stores: what each has, and what leaves one that is full.
//!
//! The order in which chunks leave is that of the data plane's own policies
//! ([`acstor_store::eviction`]). A walk demotes copies which enough hosts placed better by the ring
//! keep (ACStor, section 3.5); it looks at all that it may in one go, where the data plane goes on
//! at its next one in stores of more than 3,840 chunks. Pins and working sets are not modelled.

use acstor_store::EvictionKind;
use acstor_store::eviction::{EvictionPolicy, TouchFilter};

use crate::lines::Lines;
use crate::rules::{Eviction, Rules};

/// Between two walks of a host, seconds.
pub(crate) const WALK_INTERVAL: f64 = 20.0;
/// Chunks that a walk looks at.
const WALK_CHUNKS: usize = 960;
/// Share of a store that is in use before copies are given up.
const WALK_FILL_SHARE: f64 = 0.75;

const NO_SLOT: u32 = u32::MAX;

/// A store with room for so many chunks.
#[derive(Debug)]
struct Bounded {
    policy: Box<dyn EvictionPolicy>,
    touches: TouchFilter,
    /// By content.
    slot_of: Vec<u32>,
    /// By slot.
    content_of: Vec<u32>,
    free: Vec<u32>,
}

/// All stores.
#[derive(Debug)]
pub(crate) struct Stores {
    contents: usize,
    /// By host and content.
    has: Vec<bool>,
    /// By content: hosts that have it.
    holders: Vec<u32>,
    /// By host; empty without bounds.
    bounded: Vec<Bounded>,
    is_counted_by_use: bool,
}

/// Spreads the numbers of contents as the prefixes of digests are.
fn prefix_of(content: u32) -> u64 {
    let mut mixed = u64::from(content).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Stores {
    /// Makes empty stores; with a capacity of 0 they have no bounds.
    pub(crate) fn new(hosts: u32, contents: usize, capacity: u32, eviction: Eviction) -> Stores {
        let kind = match eviction {
            Eviction::Fifo => EvictionKind::Fifo,
            Eviction::S3Fifo => EvictionKind::S3Fifo,
        };
        let bounded = |_| Bounded {
            policy: kind.policy(capacity),
            touches: TouchFilter::new(),
            slot_of: vec![NO_SLOT; contents],
            content_of: vec![0; capacity as usize],
            free: (0..capacity).rev().collect(),
        };
        Stores {
            contents,
            has: vec![false; hosts as usize * contents],
            holders: vec![0; contents],
            bounded: if capacity > 0 { (0..hosts).map(bounded).collect() } else { Vec::new() },
            is_counted_by_use: eviction == Eviction::S3Fifo,
        }
    }

    pub(crate) fn is_bounded(&self) -> bool {
        !self.bounded.is_empty()
    }

    pub(crate) fn has(&self, host: u32, content: u32) -> bool {
        self.has[host as usize * self.contents + content as usize]
    }

    /// Returns the number of hosts that have a chunk.
    pub(crate) fn holders(&self, content: u32) -> u32 {
        self.holders[content as usize]
    }

    /// Returns the number of chunks that each host has.
    pub(crate) fn held(&self) -> Vec<u32> {
        let count = |row: &[bool]| row.iter().filter(|has| **has).count() as u32;
        self.has.chunks(self.contents.max(1)).map(count).collect()
    }

    /// Puts a chunk that a host does not have into its store.
    pub(crate) fn put(&mut self, host: u32, content: u32) {
        if self.is_bounded() {
            let slot = self.make_room(host);
            let store = &mut self.bounded[host as usize];
            store.assign(content, slot);
            store.policy.admit(slot, prefix_of(content));
        }
        self.set(host, content, true);
    }

    /// Puts a chunk into a store with room, as one that was there when the host started.
    pub(crate) fn recover(&mut self, host: u32, content: u32) {
        if let Some(store) = self.bounded.get_mut(host as usize)
            && let Some(slot) = store.free.pop()
        {
            store.assign(content, slot);
            store.policy.admit_recovered(slot, prefix_of(content));
        }
        self.set(host, content, true);
    }

    /// Notes that a chunk is read from a store; reads of one chunk in a row are one use.
    pub(crate) fn touch(&mut self, host: u32, content: u32) {
        if !self.is_counted_by_use || !self.has(host, content) {
            return;
        }
        if let Some(store) = self.bounded.get(host as usize) {
            let slot = store.slot_of[content as usize];
            if store.touches.is_new_use(slot) {
                store.policy.touch(slot);
            }
        }
    }

    /// Demotes the cold copies of which enough hosts that are placed better keep one.
    pub(crate) fn walk(&mut self, rules: &Rules, lines: &Lines, is_alive: &[bool], host: u32) {
        let store = &self.bounded[host as usize];
        let capacity = store.content_of.len();
        if ((capacity - store.free.len()) as f64) < WALK_FILL_SHARE * capacity as f64 {
            return;
        }
        let (cold, _) = store.policy.coldest(None, WALK_CHUNKS);
        for slot in cold {
            let content = self.bounded[host as usize].content_of[slot as usize];
            if self.is_spare(rules, lines, is_alive, host, content) {
                self.bounded[host as usize].policy.demote(slot);
            }
        }
    }

    /// Returns whether as many hosts keep a chunk as should, of those that come before this one.
    fn is_spare(
        &self,
        rules: &Rules,
        lines: &Lines,
        is_alive: &[bool],
        host: u32,
        content: u32,
    ) -> bool {
        let line = lines.line(host, content);
        if line[0].is_none() || line[0] == Some(host) {
            return false;
        }
        let keeps = |one: Option<u32>| {
            u32::from(one.is_some_and(|one| is_alive[one as usize] && self.keeps(one, content)))
        };
        let mut copies = keeps(line[0]);
        let mut known = vec![line[0]];
        for owner in lines.previous_owners(host, content).take(rules.previous_rings as usize) {
            if owner == Some(host) {
                return false;
            }
            if !known.contains(&owner) {
                copies += keeps(owner);
                known.push(owner);
            }
        }
        let others = line.iter().take(rules.candidates_max as usize).skip(1);
        for one in others.take_while(|one| one.is_some() && **one != Some(host)) {
            copies += keeps(*one);
        }
        copies >= rules.copies_max
    }

    /// Returns whether a host has a chunk and is not about to give it up.
    fn keeps(&self, host: u32, content: u32) -> bool {
        let is_leaving = self.bounded.get(host as usize).is_some_and(|store| {
            let slot = store.slot_of[content as usize];
            slot != NO_SLOT && store.policy.is_demoted(slot)
        });
        self.has(host, content) && !is_leaving
    }

    /// Forgets all that a host has.
    pub(crate) fn clear(&mut self, host: u32) {
        for content in 0..self.contents as u32 {
            if self.has(host, content) {
                self.set(host, content, false);
            }
        }
    }

    fn make_room(&mut self, host: u32) -> u32 {
        let store = &mut self.bounded[host as usize];
        if let Some(slot) = store.free.pop() {
            return slot;
        }
        let content_of = &store.content_of;
        let evicted = store.policy.evict(&mut |slot| Some(prefix_of(content_of[slot as usize])));
        // Of a full store that nothing pins a policy always gives one up.
        let slot = evicted.unwrap_or(0);
        let content = store.content_of[slot as usize];
        store.slot_of[content as usize] = NO_SLOT;
        self.set(host, content, false);
        slot
    }

    fn set(&mut self, host: u32, content: u32, has: bool) {
        self.has[host as usize * self.contents + content as usize] = has;
        let holders = &mut self.holders[content as usize];
        *holders = if has { *holders + 1 } else { *holders - 1 };
    }
}

impl Bounded {
    fn assign(&mut self, content: u32, slot: u32) {
        self.slot_of[content as usize] = slot;
        self.content_of[slot as usize] = content;
    }
}

#[cfg(test)]
mod tests {
    use acstor_ring::{Host, RingBuilder};

    use super::*;
    use crate::tree::{Shape, Tree};

    const HOSTS: u32 = 4;
    const ROOM: u32 = 40;

    /// A full store of each of four hosts, with the same chunks, and lines over them.
    fn full(eviction: Eviction) -> (Stores, Lines) {
        let contents = 2 * ROOM;
        let mut stores = Stores::new(HOSTS, contents as usize, ROOM, eviction);
        for host in 0..HOSTS {
            (0..ROOM).for_each(|content| stores.put(host, content));
        }
        let oids: Vec<u64> = (0..contents).map(prefix_of).collect();
        let mut lines = Lines::new(HOSTS, (0..contents).collect(), &oids);
        let names: Vec<String> = (0..HOSTS).map(|host| format!("h{host}")).collect();
        let hosts = names.iter().map(|name| Host::new(name, "10.0.0.1:1", 100));
        let ring = RingBuilder::new(7).vnodes(256).generation(1).hosts(hosts).build().unwrap();
        let shape = Shape {
            fanout: vec![HOSTS],
            rates: vec![1.0],
            root_rate: None,
            origin_rate: 1.0,
            storage_rate: None,
            processor_rate: None,
        };
        let slot = lines.install(&ring, None, &Tree::new(&shape).unwrap(), &names).unwrap();
        (0..HOSTS).for_each(|host| lines.apply(host, slot));
        (stores, lines)
    }

    fn rules(copies_max: u32) -> Rules {
        Rules::read(|name| {
            Ok::<_, ()>(match name {
                "copies_max" => f64::from(copies_max),
                "candidates_max" => 2.0,
                "previous_rings" => 4.0,
                _ => 0.0,
            })
        })
        .unwrap()
    }

    fn keepers(stores: &Stores, content: u32) -> Vec<u32> {
        (0..HOSTS).filter(|host| stores.keeps(*host, content)).collect()
    }

    #[test]
    fn copies_beyond_the_threshold_leave_first_and_never_the_last() {
        for copies_max in [1, 2] {
            let (mut stores, lines) = full(Eviction::S3Fifo);
            for host in 0..HOSTS {
                stores.walk(&rules(copies_max), &lines, &[true; 4], host);
            }
            for content in 0..ROOM {
                let kept = keepers(&stores, content);
                assert_eq!(kept.len() as u32, copies_max);
                assert!(kept.contains(&lines.line(0, content)[0].unwrap()), "its owner");
            }
            stores.put(0, ROOM);
            assert_eq!(stores.held()[0], ROOM);
            let gone: Vec<u32> = (0..ROOM).filter(|content| !stores.has(0, *content)).collect();
            assert_eq!(gone.len(), 1);
            assert_eq!(keepers(&stores, gone[0]).len() as u32, copies_max, "one that is spare");
            assert_eq!(stores.holders(gone[0]), HOSTS - 1);
        }
    }

    #[test]
    fn chunks_in_use_and_those_of_a_store_with_room_are_let_alone() {
        let (mut stores, lines) = full(Eviction::S3Fifo);
        for host in 0..HOSTS {
            (0..ROOM).for_each(|content| stores.touch(host, content));
            stores.walk(&rules(1), &lines, &[true; 4], host);
        }
        assert!((0..ROOM).all(|content| keepers(&stores, content).len() as u32 == HOSTS));
        let mut roomy = Stores::new(HOSTS, 2 * ROOM as usize, 2 * ROOM, Eviction::S3Fifo);
        for host in 0..HOSTS {
            (0..ROOM).for_each(|content| roomy.put(host, content));
            roomy.walk(&rules(1), &lines, &[true; 4], host);
        }
        assert!((0..ROOM).all(|content| keepers(&roomy, content).len() as u32 == HOSTS));
    }

    #[test]
    fn dead_hosts_keep_nothing() {
        let (mut stores, lines) = full(Eviction::S3Fifo);
        stores.walk(&rules(1), &lines, &[false, true, false, false], 1);
        assert!((0..ROOM).all(|content| keepers(&stores, content).contains(&1)));
    }

    #[test]
    fn oldest_leaves_whatever_its_use() {
        let (mut stores, _) = full(Eviction::Fifo);
        (0..9).for_each(|_| stores.touch(0, 0));
        stores.put(0, ROOM);
        assert!(!stores.has(0, 0) && stores.has(0, 1) && stores.has(0, ROOM));
        stores.clear(0);
        assert_eq!(stores.held(), [0, ROOM, ROOM, ROOM]);
    }
}
