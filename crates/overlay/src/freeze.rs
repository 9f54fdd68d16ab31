//! Freeze of a volume that is in force, and those who wait for its end. That writes are frozen is a part of
//! the log's head: an append looks there.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The freezes of a volume, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Freezes {
    thawed: Notify,
    /// Moved on by each freeze and each thaw that was asked for.
    number: AtomicU64,
}

impl Freezes {
    /// Begins another freeze, or ends the one in force; returns its number.
    pub(crate) fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns whether nothing came after freeze `number`.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        self.number.load(Ordering::Acquire) == number
    }

    /// Lets those go on who wait for a thaw.
    pub(crate) fn wake_waiting(&self) {
        self.thawed.notify_waiters();
    }

    /// The next thaw.
    pub(crate) fn thawed(&self) -> Notified<'_> {
        self.thawed.notified()
    }
}
