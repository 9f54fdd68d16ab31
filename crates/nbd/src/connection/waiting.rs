//! The requests of a connection that wait for the device or the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use acstor_overlay::{DeviceError, Piece};
use tokio::task::{Id, JoinSet};

use super::Request;
use crate::server::Shared;
use crate::stats::Gauge;

/// How a request that waited ended.
pub(super) enum Outcome {
    /// A read.
    Pieces(Result<Vec<Piece>, DeviceError>),
    /// Anything else.
    Done(Result<(), DeviceError>),
    /// The program failed; the request cannot be said to have happened or not.
    Failed,
}

/// The tasks of the requests that wait.
pub(super) struct Waiting {
    shared: Arc<Shared>,
    tasks: JoinSet<(Request, Outcome)>,
    /// Request of each task, for the answer when one panics.
    requests: HashMap<Id, Request>,
}

impl Waiting {
    pub(super) fn new(shared: Arc<Shared>) -> Waiting {
        Waiting { shared, tasks: JoinSet::new(), requests: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
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

    /// Returns the next request that is done, if there is one.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<(Request, Outcome)> {
        while let Poll::Ready(Some(finished)) = self.tasks.poll_join_next_with_id(cx) {
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
        None
    }
}

impl Drop for Waiting {
    /// What was begun goes on: a write may have taken effect in part. The next connection begins
    /// when it is over.
    fn drop(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        let orphan = self.shared.orphans.adopt();
        self.shared.handle.spawn(async move {
            while tasks.join_next().await.is_some() {}
            drop(orphan);
        });
    }
}
