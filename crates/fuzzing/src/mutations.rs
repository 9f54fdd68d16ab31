//! Inputs for a decoder: valid ones, damaged at random, the same for the same seed.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Longest input that a mutation makes, bytes.
const LEN_MAX: usize = 64 << 10;
/// Most changes of one input.
const CHANGES_MAX: usize = 8;
/// Longest range that is removed, repeated or made up at once, bytes.
const RANGE_MAX: usize = 256;
/// Numbers at which lengths, counts and offsets go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// An endless row of inputs: the seeds as they are, then damaged ones.
pub struct Mutations {
    seeds: Vec<Vec<u8>>,
    untouched: usize,
    rng: ChaCha8Rng,
}

impl Mutations {
    /// Inputs made of `seeds`, valid ones of at most 64 KiB that count; of nothing where there are none.
    pub fn new(seeds: Vec<Vec<u8>>, seed: u64) -> Mutations {
        let mut seeds = if seeds.is_empty() { vec![Vec::new()] } else { seeds };
        seeds.iter_mut().for_each(|seed| seed.truncate(LEN_MAX));
        Mutations { seeds, untouched: 0, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        match self.rng.random_range(0..8) {
            0 => self.flip_bit(input),
            1 => self.put_byte(input),
            2 | 3 => self.put_edge(input),
            4 => self.remove(input),
            5 => self.repeat(input),
            6 => self.make_up(input),
            _ => self.splice(input),
        }
        input.truncate(LEN_MAX);
    }

    fn flip_bit(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.rng.random_range(0..input.len());
            input[at] ^= 1 << self.rng.random_range(0..8);
        }
    }

    fn put_byte(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.rng.random_range(0..input.len());
            input[at] = self.rng.random();
        }
    }

    /// A number near an edge, of 1 to 8 bytes, in either order, in place of what is there.
    fn put_edge(&mut self, input: &mut [u8]) {
        let width = 1 << self.rng.random_range(0..4);
        if input.len() < width {
            return;
        }
        let edge = EDGES.choose(&mut self.rng).copied().unwrap_or_default();
        let number = edge.wrapping_add(self.rng.random_range(0..5)).wrapping_sub(2);
        let mut bytes = number.to_le_bytes();
        if self.rng.random() {
            bytes[..width].reverse();
        }
        let at = self.rng.random_range(0..=input.len() - width);
        input[at..at + width].copy_from_slice(&bytes[..width]);
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.rng.random_range(0..=len);
        let end = self.rng.random_range(start..=len.min(start + RANGE_MAX));
        start..end
    }

    fn remove(&mut self, input: &mut Vec<u8>) {
        // Now and then everything from there on: what a stream that was cut looks like.
        if self.rng.random_ratio(1, 4) {
            let end = self.rng.random_range(0..=input.len());
            input.truncate(end);
        } else {
            let range = self.range(input.len());
            input.drain(range);
        }
    }

    fn repeat(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input.len());
        let repeated = input[range.clone()].to_vec();
        input.splice(range.end..range.end, repeated);
    }

    fn make_up(&mut self, input: &mut Vec<u8>) {
        let at = self.rng.random_range(0..=input.len());
        let mut made = vec![0; self.rng.random_range(1..=RANGE_MAX)];
        self.rng.fill(&mut made[..]);
        input.splice(at..at, made);
    }

    /// The end of another seed in place of the input's own.
    fn splice(&mut self, input: &mut Vec<u8>) {
        let cut = self.rng.random_range(0..=input.len());
        input.truncate(cut);
        let other = self.rng.random_range(0..self.seeds.len());
        let from = self.rng.random_range(0..=self.seeds[other].len());
        input.extend_from_slice(&self.seeds[other][from..]);
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(seed) = self.seeds.get(self.untouched) {
            self.untouched += 1;
            return Some(seed.clone());
        }
        let mut input = self.seeds.choose(&mut self.rng).cloned().unwrap_or_default();
        for _ in 0..self.rng.random_range(1..=CHANGES_MAX) {
            self.change(&mut input);
        }
        Some(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_in_every_run() {
        let seeds = || vec![vec![7; 100], vec![1, 2, 3]];
        let first: Vec<_> = Mutations::new(seeds(), 5).take(200).collect();
        let again: Vec<_> = Mutations::new(seeds(), 5).take(200).collect();
        assert_eq!(first, again);
        assert_eq!(first[..2], seeds());
        assert!(first[2..].iter().filter(|input| !seeds().contains(input)).count() > 150);
    }

    #[test]
    fn nothing_to_begin_with_is_enough() {
        let inputs: Vec<_> = Mutations::new(Vec::new(), 1).take(500).collect();
        assert!(inputs.iter().any(|input| input.len() > RANGE_MAX));
        assert!(inputs.iter().all(|input| input.len() <= LEN_MAX));
    }
}
