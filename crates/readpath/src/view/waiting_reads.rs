//! Count of guests' reads that wait for peers or the origin.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The reads of guests that wait this moment.
#[derive(Debug, Default)]
pub(crate) struct WaitingReads {
    count: AtomicUsize,
    none: Notify,
}

/// One read that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingRead<'a>(&'a WaitingReads);

impl WaitingReads {
    /// Counts a read in.
    pub(crate) fn enter(&self) -> WaitingRead<'_> {
        self.count.fetch_add(1, Ordering::AcqRel);
        WaitingRead(self)
    }

    /// Returns the number of reads that wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until none waits.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(crate) async fn none(&self) {
        loop {
            let none = self.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for WaitingRead<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn test_none_ends_with_the_last_read() {
        let reads = WaitingReads::default();
        reads.none().await;
        let (first, second) = (reads.enter(), reads.enter());
        assert_eq!(reads.count(), 2);
        drop(first);
        let a_while = Duration::from_secs(1);
        assert!(timeout(a_while, reads.none()).await.is_err(), "one still waits");
        tokio::join!(reads.none(), async {
            tokio::task::yield_now().await;
            drop(second);
        });
        assert_eq!(reads.count(), 0);
    }
}
