//! Reasons for which a preload ended without all of its chunks; read by people.

use std::time::Duration;

use acstor_types::Digest;

use crate::fetch::flight::FlightFailure;
use crate::{LocalError, ReadError, ReadPathError, limits};

/// Reason for which a preload failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PreloadFailure {
    #[error(
        "{missing} bytes are missing, and the chunk store has room for {room} ({free} free, \
         {evictable} evictable); enlarge [store] capacity, take pins back, or preload the working set"
    )]
    NoRoom { missing: u64, room: u64, free: u64, evictable: u64 },
    #[error(
        "pinning needs {needed} bytes, and {pinnable} more may be pinned (a quarter of [store] \
         capacity); enlarge it, take other pins back, or preload without pinning"
    )]
    NoPins { needed: u64, pinnable: u64 },
    #[error(
        "{missing} of {total} bytes were evicted again while others were fetched: guests and other \
         preloads need the room; enlarge [store] capacity or pin"
    )]
    Evicted { missing: u64, total: u64 },
    #[error("chunk {index} ({digest}): {} after {attempts} attempts", reason(*failure))]
    Chunk { index: u32, digest: Digest, failure: FlightFailure, attempts: u32 },
    #[error("nothing answered for {}: is the origin there?", text(limits::PRELOAD_ORIGIN_WAIT_MAX))]
    OriginAway,
    #[error("the chunk store has no slot for more: all are pinned or in use")]
    StoreRefused,
    #[error("{0}")]
    Store(#[from] LocalError),
    #[error("{0}")]
    ReadPath(#[from] ReadPathError),
    #[error("{0}")]
    Manifest(ReadError),
    #[error("the data plane stops")]
    Stopped,
    #[error("internal error: {0}")]
    Internal(&'static str),
}

fn reason(failure: FlightFailure) -> &'static str {
    match failure {
        FlightFailure::Deadline => "no source answered in time",
        FlightFailure::Corrupt => "every source sends other content (verify the image)",
        FlightFailure::Missing => "it is not in the origin (was the image removed?)",
        FlightFailure::Unavailable => "no source answers",
        FlightFailure::Overloaded => "the sources are overloaded",
        FlightFailure::Stopped => "the data plane stops",
        FlightFailure::Internal => "internal error",
    }
}

fn text(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
