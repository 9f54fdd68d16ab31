//! Worth of compressing a chunk on its way.

use std::time::Duration;

use crate::limits;

/// Returns whether a chunk that takes so long over the narrower of the two links, at the rate that is free
/// of it, comes sooner compressed: where the bytes that are saved take longer than compressing.
pub fn compression_pays(chunk_time: Duration) -> bool {
    chunk_time.mul_f64(limits::COMPRESSION_SAVES) > limits::COMPRESSION_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_compression_pays_over_a_gigabit_and_not_over_ten() {
        let over = |bits: u64| Duration::from_nanos(65_536 * 8 * 1_000_000_000 / bits);
        assert!(compression_pays(over(1_000_000_000)));
        assert!(!compression_pays(over(2_000_000_000)));
        assert!(!compression_pays(over(10_000_000_000)));
        assert!(compression_pays(Duration::MAX / 2));
    }
}
