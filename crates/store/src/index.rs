//! The index: half a digest → slot, 24 bytes per slot, no allocation after it was made.
//!
//! A chained hash table whose nodes are the slots themselves. A prefix (8 of the digest's 32
//! bytes) belongs to one slot at most: a second digest with the same prefix is refused. Look-ups
//! compare 16 bytes. Two chunks that agree in them are not met by accident, and whoever could make
//! two (2^64 hashes) made both: so a hit needs no look at the slot's record on disk.

use acstor_types::Digest;

/// First 16 bytes of a digest, all of it that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The first eight bytes, big-endian.
    pub prefix: u64,
    /// The next eight bytes.
    pub rest: u64,
}

impl Key {
    pub(crate) fn of(digest: &Digest) -> Key {
        let mut rest = [0; 8];
        rest.copy_from_slice(&digest.as_bytes()[8..16]);
        Key { prefix: digest.prefix_u64(), rest: u64::from_be_bytes(rest) }
    }
}

/// Keys of the published slots.
#[derive(Debug)]
pub(crate) struct Index {
    /// First slot of each chain, plus one; 0 ends a chain. Zero so that an empty store's arrays
    /// are untouched pages.
    heads: Vec<u32>,
    /// Next slot of the chain, plus one.
    nexts: Vec<u32>,
    prefixes: Vec<u64>,
    rests: Vec<u64>,
    len: u32,
}

impl Index {
    pub(crate) fn new(slot_count: u32) -> Index {
        let slots = slot_count as usize;
        Index {
            heads: vec![0; slots],
            nexts: vec![0; slots],
            prefixes: vec![0; slots],
            rests: vec![0; slots],
            len: 0,
        }
    }

    /// Number of slots in the index.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the slot of `key`.
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        let slot = self.find_prefix(key.prefix)?;
        (self.rests[slot as usize] == key.rest).then_some(slot)
    }

    /// Returns the slot of the digest with this prefix.
    pub(crate) fn find_prefix(&self, prefix: u64) -> Option<u32> {
        let mut link = self.heads[self.chain(prefix)];
        while link != 0 {
            let slot = link - 1;
            if self.prefixes[slot as usize] == prefix {
                return Some(slot);
            }
            link = self.nexts[slot as usize];
        }
        None
    }

    /// Enters `slot`, which must not be in the index.
    ///
    /// # Errors
    /// The slot that has this prefix already; the index is unchanged.
    pub(crate) fn insert(&mut self, key: Key, slot: u32) -> Result<(), u32> {
        if let Some(occupant) = self.find_prefix(key.prefix) {
            return Err(occupant);
        }
        let chain = self.chain(key.prefix);
        self.note_key(slot, key);
        self.nexts[slot as usize] = self.heads[chain];
        self.heads[chain] = slot + 1;
        self.len += 1;
        Ok(())
    }

    /// Takes `slot` out; returns whether it was there.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let chain = self.chain(self.prefixes[slot as usize]);
        let after = self.nexts[slot as usize];
        let mut link = self.heads[chain];
        if link == slot + 1 {
            self.heads[chain] = after;
            self.len -= 1;
            return true;
        }
        while link != 0 {
            let previous = (link - 1) as usize;
            link = self.nexts[previous];
            if link == slot + 1 {
                self.nexts[previous] = after;
                self.len -= 1;
                return true;
            }
        }
        false
    }

    /// Notes the key of a slot that is not in the index yet.
    pub(crate) fn note_key(&mut self, slot: u32, key: Key) {
        self.prefixes[slot as usize] = key.prefix;
        self.rests[slot as usize] = key.rest;
    }

    /// Returns the key under which `slot` was entered, or noted, last.
    pub(crate) fn key_of(&self, slot: u32) -> Key {
        Key { prefix: self.prefixes[slot as usize], rest: self.rests[slot as usize] }
    }

    /// Returns whether `slot` is in the index under `key`.
    pub(crate) fn holds(&self, key: Key, slot: u32) -> bool {
        self.find(key) == Some(slot)
    }

    /// Returns the `count` smallest prefixes, in ascending order.
    ///
    /// Chains are in the order of the prefixes they hold, so the walk ends with the chain that
    /// completes the count; only an almost empty index is walked to its end.
    pub(crate) fn smallest(&self, count: usize) -> Vec<u64> {
        let mut found = Vec::with_capacity(count.min(self.len as usize) + 1);
        for head in &self.heads {
            if found.len() >= count {
                break;
            }
            let start = found.len();
            let mut link = *head;
            while link != 0 {
                found.push(self.prefixes[(link - 1) as usize]);
                link = self.nexts[(link - 1) as usize];
            }
            found[start..].sort_unstable();
        }
        found.truncate(count);
        found
    }

    fn chain(&self, prefix: u64) -> usize {
        // Digests are uniform, so their high bits, scaled, are the hash.
        ((u128::from(prefix) * self.heads.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Index, Key};

    fn key(prefix: u64) -> Key {
        Key { prefix, rest: !prefix }
    }

    #[test]
    fn costs_24_bytes_per_slot() {
        let index = Index::new(1000);
        let links = 4 * index.heads.capacity() + 4 * index.nexts.capacity();
        let keys = 8 * index.prefixes.capacity() + 8 * index.rests.capacity();
        assert_eq!(links + keys, 24_000);
    }

    #[test]
    fn digest_with_the_prefix_of_another_is_not_found() {
        let mut index = Index::new(4);
        assert_eq!(index.insert(key(7), 0), Ok(()));
        assert_eq!(index.find(key(7)), Some(0));
        assert_eq!(index.find(Key { prefix: 7, rest: 1 }), None);
    }

    #[test]
    fn second_digest_of_a_prefix_is_refused() {
        let mut index = Index::new(4);
        assert_eq!(index.insert(key(7), 0), Ok(()));
        assert_eq!(index.insert(key(7), 1), Err(0));
        assert!(index.remove(0));
        assert_eq!(index.insert(key(7), 1), Ok(()));
        assert!(!index.remove(0));
        assert!(index.holds(key(7), 1));
    }

    proptest! {
        /// Any sequence of inserts and removals leaves what a `HashMap` would hold, even when
        /// prefixes share chains.
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u64..24, 0u32..16), 1..200)) {
            let mut index = Index::new(16);
            let mut model: HashMap<u64, u32> = HashMap::new();
            for (number, slot) in steps {
                let prefix = number << 59 | number; // 32 values, spread over few chains
                let used = model.values().any(|other| *other == slot);
                if used {
                    model.retain(|_, other| *other != slot);
                    prop_assert!(index.remove(slot));
                } else if let Some(occupant) = model.get(&prefix) {
                    prop_assert_eq!(index.insert(key(prefix), slot), Err(*occupant));
                } else {
                    model.insert(prefix, slot);
                    prop_assert_eq!(index.insert(key(prefix), slot), Ok(()));
                }
                for number in 0u64..24 {
                    let prefix = number << 59 | number;
                    prop_assert_eq!(index.find(key(prefix)), model.get(&prefix).copied());
                }
                prop_assert_eq!(index.len() as usize, model.len());
                let mut smallest: Vec<u64> = model.keys().copied().collect();
                smallest.sort_unstable();
                smallest.truncate(5);
                prop_assert_eq!(index.smallest(5), smallest);
            }
        }
    }
}
