//! Preloads: bringing a disk, or what its boots read, into the chunk store ahead of its readers.
//!
//! One job per disk, few at a time. A job goes the way of any miss (single flight, ring, hedges,
//! origin), behind everybody else: its own lane at the origin, half of a peer's permits, nothing new
//! while a read of a guest waits, and never faster than its rate.

mod failure;
mod feed;
mod job;
mod preloads;
mod rate_limit;
mod recent_rate;
mod room;
mod run;
mod sending;
mod state;

use std::time::SystemTime;

use acstor_types::DiskId;

pub use feed::{FedChunk, FeedFuture, FeedRequest, PreloadFeed};
pub(crate) use job::Job;
pub(crate) use preloads::Preloads;
pub(crate) use room::Room;
pub use state::PreloadState;

/// Chunks that a preload brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadWhat {
    /// Chunks that boots of the disk have read, as learnt by all hosts.
    WorkingSet,
    /// The whole disk.
    Full,
}

impl PreloadWhat {
    /// The word of the admin protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            PreloadWhat::WorkingSet => "working-set",
            PreloadWhat::Full => "full",
        }
    }

    /// Parses a word of the admin protocol.
    pub fn parse(text: &str) -> Option<PreloadWhat> {
        [PreloadWhat::WorkingSet, PreloadWhat::Full].into_iter().find(|what| what.as_str() == text)
    }
}

/// Request for a preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreloadRequest {
    /// Part of the disk to bring.
    pub what: PreloadWhat,
    /// Most bytes per second; 0: no limit.
    pub rate_bytes_per_s: u64,
    /// True if what is brought is to be kept from being evicted.
    pub pin: bool,
}

/// Progress of a preload.
#[derive(Clone, Debug, PartialEq)]
pub struct PreloadStatus {
    /// The disk.
    pub disk: DiskId,
    /// Request, with the rate of now.
    pub request: PreloadRequest,
    /// True if somebody touching the image started it.
    pub is_hint: bool,
    /// State of the preload.
    pub state: PreloadState,
    /// Bytes of the different chunks with content that are wanted; 0 while queued.
    pub total_bytes: u64,
    /// Those of them that were there, or that others brought.
    pub present_bytes: u64,
    /// Those that this preload brought.
    pub fetched_bytes: u64,
    /// Those that are missing.
    pub remaining_bytes: u64,
    /// Bytes brought per second of late.
    pub recent_bytes_per_s: u64,
    /// Time of the request.
    pub started_at: SystemTime,
    /// Reason for a failure.
    pub error: Option<String>,
}

/// Bytes that a preload would bring, and the room there is for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreloadEstimate {
    /// Bytes of the different chunks with content that are wanted.
    pub total_bytes: u64,
    /// Those that are not in the chunk store.
    pub missing_bytes: u64,
    /// Bytes of the chunk store that hold nothing.
    pub free_bytes: u64,
    /// Bytes held that are neither pinned nor wanted.
    pub evictable_bytes: u64,
    /// Bytes that may still be pinned.
    pub pinnable_bytes: u64,
}
