//! The ghost queue: digests of chunks that left not long ago, without their content.

/// Fingerprints in sets of four; the oldest of a set makes room. 4 bytes per entry.
///
/// Differs from the paper's FIFO of object ids: order is kept within a set only, so an entry
/// lives about as long as it would in one queue of the same length, and 32 bits stand for a
/// digest (a false match, one in a billion, costs a chunk a place in the wrong queue).
#[derive(Debug)]
pub(crate) struct Ghost {
    /// Newest first; 0 is none.
    sets: Vec<[u32; WAYS]>,
}

const WAYS: usize = 4;

impl Ghost {
    pub(crate) fn new(entries: u32) -> Ghost {
        Ghost { sets: vec![[0; WAYS]; (entries as usize).div_ceil(WAYS).max(1)] }
    }

    pub(crate) fn insert(&mut self, prefix: u64) {
        let (set, fingerprint) = self.place(prefix);
        let set = &mut self.sets[set];
        let last = set.iter().position(|entry| *entry == fingerprint).unwrap_or(WAYS - 1);
        set.copy_within(..last, 1);
        set[0] = fingerprint;
    }

    /// Removes the entry of `prefix`; returns whether there was one.
    pub(crate) fn take(&mut self, prefix: u64) -> bool {
        let (set, fingerprint) = self.place(prefix);
        let set = &mut self.sets[set];
        let Some(position) = set.iter().position(|entry| *entry == fingerprint) else {
            return false;
        };
        set.copy_within(position + 1.., position);
        set[WAYS - 1] = 0;
        true
    }

    /// The set comes from the high bits of the prefix, the fingerprint from the low ones.
    fn place(&self, prefix: u64) -> (usize, u32) {
        let set = ((u128::from(prefix) * self.sets.len() as u128) >> 64) as usize;
        (set, (prefix as u32).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Ghost;

    #[test]
    fn remembers_the_last_few_of_each_set() {
        let mut ghost = Ghost::new(4);
        (1..=5).for_each(|prefix| ghost.insert(prefix));
        assert!(!ghost.take(1), "pushed out");
        assert!(ghost.take(3));
        assert!(!ghost.take(3), "taken");
        ghost.insert(2);
        ghost.insert(6);
        ghost.insert(7);
        assert!(!ghost.take(4), "the oldest after 2 was renewed");
        assert!(ghost.take(2) && ghost.take(5) && ghost.take(6) && ghost.take(7));
    }
}
