//! Knowledge of which hosts have a chunk of one image.

use std::collections::HashMap;

use super::bounds::{HINTS_MAX, HOLDERS_MAX};
use super::hint_log::HostKey;

/// Hosts that have chunks of one image, as hints told; bounded.
#[derive(Clone, Debug, Default)]
pub struct Holders(HashMap<u32, [Option<HostKey>; HOLDERS_MAX]>);

impl Holders {
    /// Notes that a host has a chunk. What is known stays; nothing is noted beyond the bound.
    pub fn note(&mut self, chunk: u32, host: HostKey) {
        if self.0.len() >= HINTS_MAX && !self.0.contains_key(&chunk) {
            return;
        }
        let known = self.0.entry(chunk).or_default();
        if !known.contains(&Some(host))
            && let Some(free) = known.iter_mut().find(|holder| holder.is_none())
        {
            *free = Some(host);
        }
    }

    /// The hosts that have a chunk, the first that was told of first.
    pub fn of(&self, chunk: u32) -> impl Iterator<Item = HostKey> + '_ {
        self.0.get(&chunk).into_iter().flatten().flatten().copied()
    }
}

/// Returns the position of the better of the first two sources, given what this host has outstanding at
/// each: the one with less, of equal ones the first. `None` where there is none.
///
/// Source: Mitzenmacher, *The power of two choices*, 2001: never the best of all, which all would choose.
pub fn less_loaded(outstanding: &[usize]) -> Option<usize> {
    match outstanding {
        [] => None,
        [_] => Some(0),
        [first, second, ..] => Some(usize::from(second < first)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_holders_are_the_first_that_were_told() {
        let mut holders = Holders::default();
        [3, 3, 4, 5].into_iter().for_each(|host| holders.note(7, HostKey(host)));
        assert_eq!(holders.of(7).collect::<Vec<_>>(), [HostKey(3), HostKey(4)]);
        assert_eq!(holders.of(8).count(), 0);
        (0..2 * HINTS_MAX as u32).for_each(|chunk| holders.note(chunk, HostKey(1)));
        assert_eq!(holders.0.len(), HINTS_MAX);
    }

    proptest! {
        /// The better of two has never more outstanding than the other.
        #[test]
        fn proptest_less_loaded_is_the_better_of_the_first_two(
            outstanding in prop::collection::vec(0usize..9, 0..5),
        ) {
            match less_loaded(&outstanding) {
                None => prop_assert!(outstanding.is_empty()),
                Some(chosen) => {
                    let first = &outstanding[..outstanding.len().min(2)];
                    prop_assert_eq!(Some(&first[chosen]), first.iter().min());
                }
            }
        }
    }
}
