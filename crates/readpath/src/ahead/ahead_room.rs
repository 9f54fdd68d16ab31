//! Bytes that this host has ordered ahead and under way, over all opens, and how many it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use acstor_selection::in_flight_bytes;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Stands for a rate that nobody told.
const UNTOLD: u64 = u64::MAX;

/// The bytes under way, against what the host's own link has free.
#[derive(Debug)]
pub(crate) struct AheadRoom {
    under_way: AtomicU64,
    /// Bytes per second that are free on the link inwards.
    free_rate: AtomicU64,
    freed: Notify,
}

/// Bytes under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWayAhead {
    room: Arc<AheadRoom>,
    bytes: u64,
}

impl AheadRoom {
    pub(crate) fn new() -> AheadRoom {
        AheadRoom {
            under_way: AtomicU64::new(0),
            free_rate: AtomicU64::new(UNTOLD),
            freed: Notify::new(),
        }
    }

    /// Takes over what is free of the link inwards, bytes per second; `None`: nobody tells.
    pub(crate) fn set_free_rate(&self, rate: Option<u64>) {
        self.free_rate.store(rate.map_or(UNTOLD, |rate| rate.min(UNTOLD - 1)), Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    /// Bytes that may be ordered now; `is_full`: the link is, by what is seen of it.
    pub(crate) fn left(&self, is_full: bool, chunk_bytes: u64) -> u64 {
        let rate = if is_full { Some(0) } else { self.free_rate() };
        in_flight_bytes(rate, chunk_bytes).saturating_sub(self.under_way())
    }

    fn free_rate(&self) -> Option<u64> {
        Some(self.free_rate.load(Ordering::Relaxed)).filter(|rate| *rate != UNTOLD)
    }

    /// Bytes on their way, which the memory for them has not seen yet.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Counts bytes in.
    pub(crate) fn enter(self: &Arc<Self>, bytes: u64) -> UnderWayAhead {
        self.under_way.fetch_add(bytes, Ordering::Relaxed);
        UnderWayAhead { room: self.clone(), bytes }
    }

    /// Ends when there is room again; enabled before the room is looked at, it misses none.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

impl Drop for UnderWayAhead {
    fn drop(&mut self) {
        self.room.under_way.fetch_sub(self.bytes, Ordering::Relaxed);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 65_536;

    #[test]
    fn test_left_follows_the_rate_that_is_told() {
        let room = Arc::new(AheadRoom::new());
        let left = || room.left(false, CHUNK);
        let untold = left();
        assert_eq!(untold, in_flight_bytes(None, CHUNK));
        let one = room.enter(CHUNK);
        assert_eq!(left(), untold - CHUNK);
        room.set_free_rate(Some(1_000_000));
        assert_eq!(left(), CHUNK, "two chunks at least");
        drop(one);
        assert_eq!(left(), 2 * CHUNK);
        room.set_free_rate(Some(0));
        assert_eq!(left(), 2 * CHUNK, "over a full link as well");
        room.set_free_rate(None);
        assert_eq!(left(), untold);
        assert_eq!(room.left(true, CHUNK), 2 * CHUNK, "nobody tells, but it is seen");
    }
}
