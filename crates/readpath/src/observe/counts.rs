//! The few totals that a status line shows; everything else is in the metrics.

use crate::Tier;

/// Counts of one tier's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCount {
    /// Chunks.
    pub chunks: u64,
    /// Bytes of the reads that they answered.
    pub bytes: u64,
}

/// Totals of the reads of guests since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads, failed ones too.
    pub reads: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Bytes returned.
    pub read_bytes: u64,
    /// By tier, in the order of [`Tier::ALL`].
    pub(crate) tiers: [TierCount; Tier::ALL.len()],
}

impl ReadCounts {
    /// Returns the count of the chunks that `tier` answered.
    pub fn tier(&self, tier: Tier) -> TierCount {
        self.tiers[tier.index()]
    }
}
