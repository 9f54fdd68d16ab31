//! Orders of boots of a disk that was made from another one: what is left of the other one's, by digest.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use acstor_selection::BootProfile;
use acstor_types::Digest;

/// Search in a disk for the chunks that boots of its base read.
#[derive(Debug)]
pub(crate) struct Inheritance {
    /// Of each kind the chunks of the base with content, in their order.
    kinds: Vec<Vec<(u32, Digest)>>,
    /// Places in the base of each digest that is looked for.
    wanted: HashMap<Digest, Vec<u32>>,
    /// By place in the base that in the disk.
    found: HashMap<u32, u32>,
}

impl Inheritance {
    /// Begins a search for the chunks of `profile`, of which `digest_of` tells the digests in the base;
    /// `None`: it is zeros there, which nobody fetches.
    ///
    /// # Errors
    /// Those of `digest_of`.
    pub(crate) fn of<E>(
        profile: &BootProfile,
        digest_of: impl Fn(u64) -> Result<Option<Digest>, E>,
    ) -> Result<Inheritance, E> {
        let (mut kinds, mut wanted) = (Vec::new(), HashMap::<Digest, Vec<u32>>::new());
        for number in 0..profile.kind_count() {
            let mut kind = Vec::new();
            for chunk in profile.chunks(number) {
                let Some(digest) = digest_of(u64::from(chunk))? else { continue };
                kind.push((chunk, digest));
                let places = wanted.entry(digest).or_default();
                if !places.contains(&chunk) {
                    places.push(chunk);
                }
            }
            kinds.push(kind);
        }
        Ok(Inheritance { kinds, wanted, found: HashMap::new() })
    }

    /// Notes a chunk of the disk. One that is where it was in the base stands for itself, any other for the
    /// first of its digest.
    pub(crate) fn found(&mut self, index: u64, digest: &Digest) {
        let Ok(index) = u32::try_from(index) else { return };
        for place in self.wanted.get(digest).into_iter().flatten() {
            match self.found.entry(*place) {
                Entry::Vacant(entry) => {
                    entry.insert(index);
                }
                Entry::Occupied(mut entry) if index == *place => {
                    entry.insert(index);
                }
                Entry::Occupied(_) => {}
            }
        }
    }

    /// Returns what is left of the orders: those chunks that are in the disk, where they are there.
    pub(crate) fn finish(self) -> Vec<Vec<u32>> {
        let found = &self.found;
        let left = self.kinds.iter().map(|kind| {
            let mut seen = HashSet::new();
            let chunks = kind.iter().filter_map(|(place, _)| found.get(place).copied());
            chunks.filter(|chunk| seen.insert(*chunk)).collect::<Vec<_>>()
        });
        left.filter(|kind| !kind.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use acstor_selection::BootKind;
    use proptest::prelude::*;

    use super::*;

    fn digest(content: u8) -> Digest {
        Digest::of(&[content; 64])
    }

    /// The orders that are left where the base and the disk have the given contents; 0: zeros.
    fn inherited(orders: &[&[u32]], base: &[u8], own: &[u8]) -> Vec<Vec<u32>> {
        let of = |content: u8| (content != 0).then(|| digest(content));
        let kinds = orders.iter().map(|order| BootKind { chunks: order.to_vec(), weight: 1 });
        let profile = BootProfile::new(kinds.collect()).unwrap();
        let found = Inheritance::of(&profile, |index| {
            Ok::<_, Infallible>(of(base.get(index as usize).copied().unwrap_or(0)))
        });
        let mut inheritance = found.unwrap();
        for (index, content) in (0..).zip(own) {
            of(*content).iter().for_each(|digest| inheritance.found(index, digest));
        }
        inheritance.finish()
    }

    #[test]
    fn test_chunks_that_are_still_there_keep_their_rank() {
        let base = [1, 2, 3, 4, 5, 0];
        assert_eq!(inherited(&[&[4, 0, 2, 1]], &base, &base), [[4, 0, 2, 1]]);
        // 3 was written over, 5 was moved, zeros are fetched by nobody.
        let own = [1, 2, 9, 4, 8, 5, 7];
        assert_eq!(inherited(&[&[4, 0, 5, 2, 1]], &base, &own), [[5, 0, 1]]);
    }

    #[test]
    fn test_chunk_that_is_in_several_places_stays_in_its_own() {
        let base = [7, 7, 7, 1];
        assert_eq!(inherited(&[&[2, 1, 3]], &base, &base), [[2, 1, 3]]);
        // Of those in other places one is enough.
        assert_eq!(inherited(&[&[2, 1, 3]], &base, &[0, 0, 0, 1, 0, 7, 7]), [[5, 3]]);
    }

    #[test]
    fn test_kind_of_which_nothing_is_left_is_gone() {
        assert_eq!(inherited(&[&[0, 1], &[2]], &[1, 2, 3], &[0, 0, 3]), [[2]]);
        assert!(inherited(&[&[0, 1]], &[1, 2], &[]).is_empty());
    }

    proptest! {
        #[test]
        fn test_what_is_left_is_content_that_was_read_in_its_order(
            base in prop::collection::vec(0_u8..12, 1..40), own in prop::collection::vec(0_u8..12, 0..40),
            order in prop::collection::hash_set(0_u32..40, 1..30),
        ) {
            let order: Vec<u32> = order.into_iter().filter(|at| (*at as usize) < base.len()).collect();
            for kind in inherited(&[&order], &base, &own) {
                let mut at = 0;
                for chunk in kind {
                    let content = own[chunk as usize];
                    let is_same = |place: &u32| base[*place as usize] == content;
                    let next = order[at..].iter().position(is_same);
                    prop_assert!(next.is_some() && content != 0);
                    at += next.unwrap() + 1;
                }
            }
        }
    }
}
