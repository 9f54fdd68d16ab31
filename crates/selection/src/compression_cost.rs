//! Cost of compressing a chunk for its way, against the time that it saves there.

use std::time::Duration;

use crate::limits;

/// Cost and effect of compression, as this host has measured them lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressionCost {
    /// Share of their bytes that chunks had on the wire, of those that might be compressed.
    pub ratio: f64,
    /// Time of compressing one chunk and decompressing it, on a processor of this host: the other end is taken
    /// for as fast.
    pub time: Duration,
    /// True if the processors of this host have time for it.
    pub is_cpu_free: bool,
}

impl Default for CompressionCost {
    /// Cost that is taken for true before anything is measured.
    fn default() -> CompressionCost {
        CompressionCost {
            ratio: limits::COMPRESSION_RATIO_UNSEEN,
            time: limits::COMPRESSION_TIME_UNSEEN,
            is_cpu_free: true,
        }
    }
}

impl CompressionCost {
    /// Returns whether a chunk that takes so long over its way is there sooner compressed.
    pub fn pays(&self, transfer: Duration) -> bool {
        let saved = transfer.mul_f64((1.0 - self.ratio).clamp(0.0, 1.0));
        self.is_cpu_free && saved > self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_compression_pays_where_it_saves_more_time_than_it_takes() {
        let micros = Duration::from_micros;
        let cost = CompressionCost { ratio: 0.5, time: micros(200), is_cpu_free: true };
        assert!(cost.pays(micros(520)), "64 KiB at 1 Gbit/s");
        assert!(!cost.pays(micros(400)));
        assert!(!cost.pays(micros(52)), "at 10 Gbit/s");
        assert!(!CompressionCost { ratio: 0.95, ..cost }.pays(micros(520)));
        assert!(CompressionCost { ratio: 0.95, ..cost }.pays(Duration::from_millis(50)));
        assert!(!CompressionCost { is_cpu_free: false, ..cost }.pays(Duration::from_secs(1)));
        for ratio in [1.5, f64::INFINITY] {
            assert!(!CompressionCost { ratio, ..cost }.pays(Duration::MAX), "{ratio}");
        }
    }

    #[test]
    fn test_cost_that_is_not_measured_pays_over_a_gigabit_and_not_over_ten() {
        let cost = CompressionCost::default();
        let over = |bits: u64| Duration::from_nanos(65_536 * 8 * 1_000_000_000 / bits);
        assert!(cost.pays(over(1_000_000_000)));
        assert!(!cost.pays(over(2_000_000_000)));
        assert!(!cost.pays(over(10_000_000_000)));
        assert!(cost.pays(Duration::MAX / 2));
    }
}
