//! Seeded randomness that is the same on every platform and in every release.
//!
//! ChaCha's stream is fixed by its definition; everything derived from it is spelled out here,
//! since the sampling functions of general crates may change between their versions.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Draws the random numbers of one build.
pub(crate) struct Scatter(ChaCha8Rng);

impl Scatter {
    /// The stream of one generation of the rings that share `seed`.
    pub(crate) fn new(seed: u64, generation: u64) -> Scatter {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&generation.to_le_bytes());
        key[16..].copy_from_slice(b"acstor-ring-1\0\0\0");
        Scatter(ChaCha8Rng::from_seed(key))
    }

    /// A number below `bound`, which is at most 2^32; its bias is below 2^-32.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Brings `count` random elements to the front, in random order (Fisher-Yates).
    pub(crate) fn choose_first<T>(&mut self, items: &mut [T], count: usize) {
        for position in 0..count.min(items.len()) {
            let other = position + self.below(items.len() - position);
            items.swap(position, other);
        }
    }

    /// Shuffles all of `items`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.choose_first(items, items.len());
    }
}

#[cfg(test)]
mod tests {
    use super::Scatter;

    #[test]
    fn equal_seeds_shuffle_equally() {
        let shuffled = |seed, generation| {
            let mut items: Vec<u32> = (0..64).collect();
            Scatter::new(seed, generation).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(1, 1), shuffled(1, 1));
        assert_ne!(shuffled(1, 1), shuffled(2, 1));
        assert_ne!(shuffled(1, 1), shuffled(1, 2));
    }

    #[test]
    fn chosen_elements_are_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Scatter::new(7, 1).choose_first(&mut items, 10);
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
