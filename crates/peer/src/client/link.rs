//! Link from fetches to the task of a connection.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use acstor_types::RequestClass;
use tokio::sync::mpsc;

use super::channel::Channel;
use super::pending::Submission;
use crate::CloseReason;

/// A connection as a fetch sees it. When the last clone is dropped the connection ends.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) status: Arc<LinkStatus>,
    submissions: mpsc::UnboundedSender<(u64, Submission)>,
    changes: mpsc::UnboundedSender<Change>,
}

/// Receiving ends of a link, of the connection's task.
pub(super) struct Requests {
    /// Requests, each with its number.
    pub(super) submissions: mpsc::UnboundedReceiver<(u64, Submission)>,
    pub(super) changes: mpsc::UnboundedReceiver<Change>,
}

/// News of a request that was handed over, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is of this class now.
    Promoted(u64, RequestClass),
    /// Nobody waits for it any more.
    Dropped(u64),
}

/// Status that the fetches and the connection's task share.
#[derive(Debug)]
pub(super) struct LinkStatus {
    channel: Channel,
    /// Fetches that wait for an answer.
    load: AtomicUsize,
    submitted: AtomicU64,
    ended: OnceLock<CloseReason>,
}

/// One fetch's request on a link: its share of the link's load. Dropped unsettled, the connection learns
/// that nobody waits.
pub(super) struct Sent {
    status: Arc<LinkStatus>,
    changes: mpsc::UnboundedSender<Change>,
    number: u64,
    is_settled: bool,
}

impl Link {
    pub(super) fn new(channel: Channel) -> (Link, Requests) {
        // Without bounds of their own: the slots of the peer bound what is handed over.
        let (submissions, of_submissions) = mpsc::unbounded_channel();
        let (changes, of_changes) = mpsc::unbounded_channel();
        let status = Arc::new(LinkStatus {
            channel,
            load: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            ended: OnceLock::new(),
        });
        let requests = Requests { submissions: of_submissions, changes: of_changes };
        (Link { status, submissions, changes }, requests)
    }

    /// Hands a request to the connection; when the connection has ended, its fetch learns that from
    /// the reply channel.
    pub(super) fn submit(&self, submission: Submission) -> Sent {
        self.status.load.fetch_add(1, Ordering::Relaxed);
        let number = self.status.submitted.fetch_add(1, Ordering::Relaxed);
        let _ = self.submissions.send((number, submission));
        let (status, changes) = (Arc::clone(&self.status), self.changes.clone());
        Sent { status, changes, number, is_settled: false }
    }
}

impl LinkStatus {
    pub(super) fn channel(&self) -> Channel {
        self.channel
    }

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

impl Sent {
    /// Tells the connection that the request is of another class now.
    pub(super) fn promote(&mut self, class: RequestClass) {
        let _ = self.changes.send(Change::Promoted(self.number, class));
    }

    /// Notes that the answer came, or that none will.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.status.load.fetch_sub(1, Ordering::Relaxed);
        if !self.is_settled {
            let _ = self.changes.send(Change::Dropped(self.number));
        }
    }
}
