//! The two channels to a peer: what guests wait for, and all else.
//!
//! They have connections of their own: in one, a guest's answer waits behind what TCP and TLS have taken
//! of the others, and a lost segment of theirs stalls it. They have slots of their own, so that what is
//! read ahead takes none that a guest needs.

use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_types::RequestClass;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ClientLimits;

/// Share of a peer's slots and connections that the background has beside those of demand.
const BACKGROUND_DIVISOR: usize = 2;

/// Channel of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Requests that guests wait for.
    Demand,
    /// Requests for what is read ahead, or put in place in advance.
    Background,
}

impl Channel {
    /// Every channel; its position is its number.
    pub(super) const ALL: [Channel; 2] = [Channel::Demand, Channel::Background];
    /// Number of channels.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// The channel of a request that is not sent yet.
    pub(super) const fn of(class: RequestClass) -> Channel {
        match class {
            RequestClass::Demand => Channel::Demand,
            RequestClass::Ahead | RequestClass::Preload => Channel::Background,
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Most connections to one peer.
    pub(super) fn connections_max(self, limits: &ClientLimits) -> usize {
        self.share(limits.connections_per_peer_max)
    }

    /// Most requests in flight to one peer.
    pub(super) fn requests_max(self, limits: &ClientLimits) -> usize {
        self.share(limits.requests_in_flight_max)
    }

    fn share(self, of_demand: usize) -> usize {
        match self {
            Channel::Demand => of_demand,
            Channel::Background => (of_demand / BACKGROUND_DIVISOR).max(1),
        }
    }
}

/// The slots of one channel.
#[derive(Debug)]
pub(super) struct Slots {
    free: Semaphore,
    max: usize,
    waiting: AtomicUsize,
}

/// Counts a fetch that waits for a slot.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reason for which there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// So many wait already.
    Busy(usize),
    /// The peer is closed.
    Closed,
}

impl Slots {
    pub(super) fn new(max: usize) -> Slots {
        Slots { free: Semaphore::new(max), max, waiting: AtomicUsize::new(0) }
    }

    /// Slots that are taken.
    pub(super) fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }

    /// Waits for a slot among fewer than `waiting_max` others.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place.
    pub(super) async fn take(&self, waiting_max: usize) -> Result<SemaphorePermit<'_>, NoSlot> {
        if let Ok(slot) = self.free.try_acquire() {
            return Ok(slot);
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if waiting >= waiting_max {
            return Err(NoSlot::Busy(waiting));
        }
        self.free.acquire().await.map_err(|_| NoSlot::Closed)
    }

    /// Fails those that wait, and all that come.
    pub(super) fn close(&self) {
        self.free.close();
    }
}
