//! Length limit of a local log.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::VolumeConfig;
use crate::limits;
use crate::segments::record::{HEADER_LEN, RECORDS_OFFSET, SECTOR};

/// Segments of a log beside those that the rule of compaction allows: the head, the one that is ready
/// for when it is full, the one that is kept for copies, and those that are dead until a checkpoint
/// says so ([`DEAD_MIN`]).
///
/// [`DEAD_MIN`]: crate::segments::checkpoints::DEAD_MIN
const SEGMENTS_IN_USE: u64 = 3 + crate::segments::checkpoints::DEAD_MIN;

impl VolumeConfig {
    /// Returns the most bytes that the local log of a disk of `size_bytes` may take: what is
    /// configured or, where that is 0, what a log has whose whole disk is alive in it, in the smallest
    /// records there are, and that has all the dead content that compaction leaves. So a guest that
    /// overwrites all of its disk, however often, has room.
    pub fn quota_for(&self, size_bytes: u64) -> u64 {
        if self.quota_bytes > 0 {
            return self.quota_bytes;
        }
        // As many records are alive as the map has extents; each begins with a header.
        let records = (size_bytes / SECTOR).min(limits::EXTENTS_MAX as u64);
        let alive = size_bytes + records * HEADER_LEN as u64;
        // A segment has a header, and an end that is too short for one more record.
        let lost = RECORDS_OFFSET + self.log_sizes(0).record_bytes() as u64 + HEADER_LEN as u64;
        let usable = self.segment_bytes - lost;
        let segments = (limits::COMPACTION_FACTOR * alive).div_ceil(usable);
        let more = limits::COMPACTION_SEGMENTS + SEGMENTS_IN_USE;
        (segments + more).saturating_mul(self.segment_bytes)
    }

    /// Returns the sizes of the local log of a disk of `size_bytes`.
    pub(crate) fn log_sizes(&self, quota_bytes: u64) -> LogConfig {
        LogConfig {
            segment_bytes: self.segment_bytes,
            quota_bytes,
            reserve_bytes: self.reserve_bytes,
        }
    }
}

/// Sizes of a local log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogConfig {
    pub segment_bytes: u64,
    pub quota_bytes: u64,
    /// Bytes of the file system that a new segment must leave free.
    pub reserve_bytes: u64,
}

impl LogConfig {
    /// Most payload of one record.
    pub(crate) fn record_bytes(&self) -> usize {
        limits::RECORD_BYTES_MAX.min(self.segment_bytes / 4) as usize
    }
}

/// Most bytes that a local log may have.
#[derive(Debug)]
pub(crate) struct Quota {
    /// As the log was opened.
    pub(crate) sizes: LogConfig,
    /// Those of `sizes` until the disk grows.
    quota_bytes: AtomicU64,
}

impl Quota {
    pub(crate) fn new(sizes: LogConfig) -> Quota {
        Quota { sizes, quota_bytes: AtomicU64::new(sizes.quota_bytes) }
    }

    /// Most segments that the quota allows.
    pub(crate) fn segments_max(&self) -> u64 {
        let quota = self.quota_bytes.load(Ordering::Acquire);
        (quota / self.sizes.segment_bytes).max(limits::SEGMENTS_MIN)
    }

    /// Sizes with the quota as it is now.
    pub(crate) fn now(&self) -> LogConfig {
        LogConfig { quota_bytes: self.quota_bytes.load(Ordering::Acquire), ..self.sizes }
    }

    /// Lets the log become as long as `quota_bytes`, where it might not.
    pub(crate) fn raise(&self, quota_bytes: u64) {
        self.quota_bytes.fetch_max(quota_bytes, Ordering::AcqRel);
    }
}
