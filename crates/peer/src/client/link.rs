//! Link from fetches to the task of a connection.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::pending::Submission;
use crate::CloseReason;

/// A connection as a fetch sees it. When the last clone is dropped the connection ends.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) status: Arc<LinkStatus>,
    submissions: mpsc::UnboundedSender<Submission>,
}

/// Status that the fetches and the connection's task share.
#[derive(Debug, Default)]
pub(super) struct LinkStatus {
    /// Fetches that wait for an answer.
    load: AtomicUsize,
    ended: OnceLock<CloseReason>,
}

/// One fetch's share of a link's load; freed when dropped.
pub(super) struct Load(Arc<LinkStatus>);

impl Link {
    pub(super) fn new() -> (Link, mpsc::UnboundedReceiver<Submission>) {
        // Without a bound of its own: the slots of the peer bound what is handed over.
        let (submissions, receiver) = mpsc::unbounded_channel();
        (Link { status: Arc::default(), submissions }, receiver)
    }

    /// Hands a request to the connection; when the connection has ended, its fetch learns that from
    /// the reply channel.
    pub(super) fn submit(&self, submission: Submission) -> Load {
        self.status.load.fetch_add(1, Ordering::Relaxed);
        let _ = self.submissions.send(submission);
        Load(Arc::clone(&self.status))
    }
}

impl LinkStatus {
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Notes why the connection ended; `false` where that is known already.
    pub(super) fn end(&self, reason: CloseReason) -> bool {
        self.ended.set(reason).is_ok()
    }

    /// Returns the reason for which the connection ended; [`CloseReason::Shutdown`] when its task
    /// was dropped with its runtime.
    pub(super) fn reason(&self) -> CloseReason {
        self.ended.get().copied().unwrap_or(CloseReason::Shutdown)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}
