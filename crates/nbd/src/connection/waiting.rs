//! The requests of a connection that wait for the device or the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use acstor_overlay::{DeviceError, Piece};
use bytes::Bytes;
use tokio::task::{Id, JoinSet};

use super::Request;
use crate::server::Shared;
use crate::stats::Gauge;

/// Result of a request that waited.
pub(super) enum Outcome {
    /// A read.
    Pieces(Result<Vec<Piece>, DeviceError>),
    /// A question about a range, with its payload, whose answer is at hand now.
    Prepared(Bytes),
    /// Anything else.
    Done(Result<(), DeviceError>),
    /// The program failed; the request cannot be said to have happened or not.
    Failed,
}

/// The tasks of the requests that wait.
pub(super) struct Waiting {
    shared: Arc<Shared>,
    tasks: JoinSet<(Request, Outcome)>,
    /// Tasks of requests that have taken effect: only their answers are due.
    applied: JoinSet<(Request, Outcome)>,
    /// Request of each task, for the answer when one panics.
    requests: HashMap<Id, Request>,
}

impl Waiting {
    pub(super) fn new(shared: Arc<Shared>) -> Waiting {
        let (tasks, applied) = (JoinSet::new(), JoinSet::new());
        Waiting { shared, tasks, applied, requests: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.applied.is_empty()
    }

    /// Lets `outcome` run on its own; `keep` is held until it is done.
    pub(super) fn spawn<K: Send + 'static>(
        &mut self,
        request: Request,
        keep: K,
        outcome: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let task = self.tasks.spawn(async move {
            let _gauge = Gauge::count(&shared.counters.waiting);
            let outcome = outcome.await;
            drop(keep);
            (request, outcome)
        });
        self.requests.insert(task.id(), request);
    }

    /// Waits for the answer of a request that has taken effect. It can change nothing any more, so
    /// nobody waits for it once its connection has ended.
    pub(super) fn spawn_applied(
        &mut self,
        request: Request,
        outcome: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let task = self.applied.spawn(async move {
            let _gauge = Gauge::count(&shared.counters.waiting);
            (request, outcome.await)
        });
        self.requests.insert(task.id(), request);
    }

    /// Returns the next request that is done, if there is one.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<(Request, Outcome)> {
        loop {
            let finished = match self.tasks.poll_join_next_with_id(cx) {
                Poll::Ready(Some(finished)) => finished,
                _ => match self.applied.poll_join_next_with_id(cx) {
                    Poll::Ready(Some(finished)) => finished,
                    _ => return None,
                },
            };
            match finished {
                Ok((id, done)) => {
                    self.requests.remove(&id);
                    return Some(done);
                }
                Err(failure) => {
                    tracing::error!(%failure, "an NBD request failed in this program");
                    if let Some(request) = self.requests.remove(&failure.id()) {
                        return Some((request, Outcome::Failed));
                    }
                }
            }
        }
    }
}

impl Drop for Waiting {
    /// Lets requests that were begun go on: a write may have taken effect in part. The next
    /// connection begins when they are over. Those that have taken effect whole end here: their
    /// client asks again.
    fn drop(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        let late = self.shared.export.late_responses().begin();
        self.shared.handle.spawn(async move {
            while tasks.join_next().await.is_some() {}
            drop(late);
        });
    }
}
