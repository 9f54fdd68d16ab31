//! Configuration that a volume is opened with, and the status that it reports.

use std::path::PathBuf;
use std::time::Duration;

use acstor_readpath::DiskManifest;
use acstor_types::{ChunkSize, DiskId};

use crate::{Durability, LogRange, OverlayError, limits};

/// Settings of one volume on this host.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Directory of this volume's local log.
    pub directory: PathBuf,
    /// Most bytes of the local log; 0: what a disk of that size may need, [`quota_for`].
    ///
    /// [`quota_for`]: VolumeConfig::quota_for
    pub quota_bytes: u64,
    /// Bytes of the file system that local logs leave free: a write that would need a new segment
    /// beyond it finds no space.
    pub reserve_bytes: u64,
    /// Bytes of one segment of it; a change counts for new segments.
    pub segment_bytes: u64,
    /// Most bytes per second that pushes send to the origin while nobody waits for them.
    pub push_rate: Option<u64>,
    /// Longest wait of a request for an origin that does nothing, where the durability sets none;
    /// then the request fails. `None`: without limit.
    pub io_timeout: Option<Duration>,
    /// Chunk size of the manifest of a volume that had none.
    pub chunk_size: ChunkSize,
}

impl VolumeConfig {
    pub(crate) fn check(&self) -> Result<(), OverlayError> {
        let (min, max) = (limits::SEGMENT_BYTES_MIN, limits::SEGMENT_BYTES_MAX);
        if !(min..=max).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(4096) {
            return Err(OverlayError::Invalid(format!(
                "a segment of {} bytes is not a multiple of 4096 from {min} to {max} \
                 ([volumes] segment_bytes)",
                self.segment_bytes
            )));
        }
        let least = self.segment_bytes * limits::SEGMENTS_MIN;
        if self.quota_bytes > 0 && self.quota_bytes < least {
            return Err(OverlayError::Invalid(format!(
                "a quota of {} bytes has no room for {} segments: {least} bytes are needed \
                 ([volumes] quota_bytes)",
                self.quota_bytes,
                limits::SEGMENTS_MIN
            )));
        }
        Ok(())
    }
}

/// Fields of the volume's record at the moment of opening.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The volume.
    pub volume: DiskId,
    /// Epoch of this host's ownership. A local log of this epoch is resumed without the origin
    /// being asked; one of another epoch is an error.
    pub epoch: u32,
    /// First slot of this epoch that the record does not list.
    pub next: u64,
    /// Size of the disk, bytes.
    pub size_bytes: u64,
    /// The manifest that the base shows; `None`: there is no base.
    pub manifest: Option<DiskManifest>,
    /// Closed ranges that lie over the manifest.
    pub logs: Vec<LogRange>,
    /// Durability of the regions: it decides when writes are acknowledged, and what travels.
    pub durability: Durability,
}

impl Opening {
    pub(crate) fn check(&self) -> Result<(), OverlayError> {
        self.durability.check()?;
        let invalid = |what: &str| Err(OverlayError::Invalid(format!("the record {what}")));
        let max = acstor_types::limits::DISK_SIZE_MAX;
        if self.size_bytes > max || !self.size_bytes.is_multiple_of(crate::SECTOR_BYTES) {
            return invalid("has a size that no disk has");
        }
        if self.logs.len() > limits::LOG_RANGES_MAX {
            return invalid("lists too many ranges of logs");
        }
        if self.next == 0 || self.logs.iter().any(|range| range.first > range.last) {
            return invalid("has sequence numbers out of range");
        }
        Ok(())
    }
}

/// A moment of a volume that is on the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushPoint {
    /// The owner's epoch.
    pub epoch: u32,
    /// Last slot that is filled; one before the epoch's first when nothing was pushed.
    pub sequence: u64,
}

/// State of a volume.
///
/// ```text
/// Open <-> Frozen        freeze, thaw or its deadline
/// Open, Frozen -> Fenced another host owns the volume
/// Open, Frozen -> Failed the local disk failed to sync
/// any -> Closed          close, release
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeState {
    /// Reads and writes are served.
    Open,
    /// Writes wait.
    Frozen,
    /// Another host owns the volume: writes fail.
    Fenced,
    /// The local disk failed: writes fail until the volume is opened anew.
    Failed,
    /// Every request fails.
    Closed,
}

impl VolumeState {
    /// Returns the state's name as status and logs write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            VolumeState::Open => "open",
            VolumeState::Frozen => "frozen",
            VolumeState::Fenced => "fenced",
            VolumeState::Failed => "failed",
            VolumeState::Closed => "closed",
        }
    }

    /// Returns whether reads and writes are served, at once or after a thaw.
    pub const fn is_healthy(self) -> bool {
        matches!(self, VolumeState::Open | VolumeState::Frozen)
    }
}

/// A volume's figures at one moment.
#[derive(Clone, Debug)]
pub struct OverlayStatus {
    /// State of the volume.
    pub state: VolumeState,
    /// The owner's epoch.
    pub epoch: u32,
    /// Size of the disk, bytes.
    pub size_bytes: u64,
    /// Last slot that is filled; `None` until the origin was asked after a restart.
    pub pushed_sequence: Option<u64>,
    /// Bytes that are to be on the origin and are not.
    pub dirty_bytes: u64,
    /// Age of the oldest of them.
    pub recovery_point_age: Option<Duration>,
    /// By how much a write-back region's oldest write is past its period.
    pub recovery_point_late: Duration,
    /// Delay of the answer per MiB that guests write, for the recovery point's sake.
    pub held_back_per_mib: Duration,
    /// Requests that wait for the origin.
    pub waiting_requests: u64,
    /// For how long the oldest of them has waited.
    pub waiting_age: Option<Duration>,
    /// Bytes of records of the local log that are not what was written, or that a push could not read.
    /// What the origin has of them comes from there at the next read, and is counted no more; reads
    /// of the others fail, and the origin does not get them.
    pub damaged_bytes: u64,
    /// Bytes of the local log's segments.
    pub log_bytes: u64,
    /// Bytes of them that are the newest content of their place.
    pub live_bytes: u64,
    /// Bytes of log objects over the manifest; those from before a restart are counted as what
    /// the local log has of their content.
    pub origin_log_bytes: u64,
    /// Number of them; those from before a restart are counted at the first push.
    pub origin_log_objects: u64,
    /// Durability of the regions: it decides when writes are acknowledged, and what travels.
    pub durability: Durability,
    /// Error of the last push, checkpoint or reclaiming, until one succeeds.
    pub error: Option<String>,
}
