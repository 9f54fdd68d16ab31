//! A run's own sequence of random numbers.

/// Xorshift with 63 bits of state; repeatable by seed, independent of platform.
#[derive(Debug)]
pub(crate) struct Random(u64);

const MASK: u64 = (1 << 63) - 1;

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let scattered = u128::from(seed) * 2_654_435_761 + 88_172_645_463_325_252;
        Random((scattered % (1 << 62)) as u64 | 1)
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 ^= (self.0 << 13) & MASK;
        self.0 ^= self.0 >> 7;
        self.0 ^= (self.0 << 17) & MASK;
        f64::from(self.0 as u32) / 4_294_967_296.0
    }

    /// Returns `least` doubled so many times, at most `most`, less a random part of up to a half.
    pub(crate) fn backoff(&mut self, doublings: u32, least: f64, most: f64) -> f64 {
        let full = most.min(least * f64::from(1_u32 << doublings.min(20)));
        full * (1.0 - 0.5 * self.unit())
    }
}
