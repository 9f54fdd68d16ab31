//! The requests of one connection that wait: for their chunk, or for their turn to be sent.
//!
//! A request that waits for its chunk does so in a task of its own, so that misses of one connection run in
//! parallel. Each is numbered here, by a ticket: the numbers of the client need not be different.

use std::collections::HashMap;
use std::task::{Context, Poll};

use acstor_types::RequestClass;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use super::admission::Permit;
use super::egress::Ticket;
use crate::compression::WireChunk;
use crate::{PeerStatus, Promoter};

/// A request that was admitted and is not answered.
pub(super) struct Request {
    /// The client's number of it.
    pub(super) request_id: u64,
    pub(super) class: RequestClass,
    /// Tells whoever gets the chunk of a promotion; `None` where there can be none.
    pub(super) promoter: Option<Promoter>,
    pub(super) permit: Permit,
    pub(super) deadline: Instant,
}

/// Stage of a request that waits.
enum Stage {
    /// Its chunk, in a task.
    Serving(AbortHandle),
    /// Its turn to be sent.
    Ready(WireChunk),
}

struct Waiting {
    request: Request,
    stage: Stage,
}

/// The requests of one connection that wait.
#[derive(Default)]
pub(super) struct Requests {
    tasks: JoinSet<Result<WireChunk, PeerStatus>>,
    by_task: HashMap<Id, Ticket>,
    waiting: HashMap<Ticket, Waiting>,
    /// The request that waits under a number of the client's; of several the last.
    by_request: HashMap<u64, Ticket>,
    next: Ticket,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.tasks.is_empty()
    }

    /// Returns a ticket that no request has.
    pub(super) fn ticket(&mut self) -> Ticket {
        self.next += 1;
        self.next
    }

    /// Waits for the answer of `request` in a task.
    pub(super) fn serve(
        &mut self,
        request: Request,
        answer: impl Future<Output = Result<WireChunk, PeerStatus>> + Send + 'static,
    ) {
        let (ticket, deadline) = (self.ticket(), request.deadline);
        let task = self.tasks.spawn(async move {
            let in_time = tokio::time::timeout_at(deadline, answer).await;
            in_time.unwrap_or(Err(PeerStatus::Expired))
        });
        self.by_task.insert(task.id(), ticket);
        self.insert(ticket, request, Stage::Serving(task));
    }

    /// Returns the next request whose task is done, with the answer.
    pub(super) fn poll_served(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(Request, Result<WireChunk, PeerStatus>)>> {
        loop {
            let Poll::Ready(Some(finished)) = self.tasks.poll_join_next_with_id(cx) else {
                return Poll::Pending;
            };
            let (id, answer) = match finished {
                Ok(served) => served,
                Err(failure) if failure.is_cancelled() => (failure.id(), Err(PeerStatus::Expired)),
                Err(failure) => {
                    tracing::error!(%failure, "serving a chunk failed");
                    (failure.id(), Err(PeerStatus::Internal))
                }
            };
            let ticket = self.by_task.remove(&id);
            // One that was cancelled is answered already.
            if let Some(waiting) = ticket.and_then(|ticket| self.remove(ticket)) {
                return Poll::Ready(Some((waiting.request, answer)));
            }
        }
    }

    /// Keeps a request whose chunk is at hand and waits to be sent.
    pub(super) fn keep(&mut self, ticket: Ticket, request: Request, chunk: WireChunk) {
        self.insert(ticket, request, Stage::Ready(chunk));
    }

    /// Takes a request that waited to be sent; `None` when it is not there any more.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(Request, WireChunk)> {
        match self.remove(ticket)? {
            Waiting { request, stage: Stage::Ready(chunk) } => Some((request, chunk)),
            Waiting { stage: Stage::Serving(_), .. } => None,
        }
    }

    /// Makes a request as urgent as `class`; returns its ticket if it waits to be sent. Nothing happens to
    /// one that is not there, or as urgent already: it may have been answered.
    pub(super) fn promote(&mut self, request_id: u64, class: RequestClass) -> Promotion {
        let Some(ticket) = self.by_request.get(&request_id).copied() else {
            return Promotion::None;
        };
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return Promotion::None };
        let Waiting { request, stage } = waiting;
        if class <= request.class {
            return Promotion::None;
        }
        request.class = class;
        if class.is_demand() {
            request.permit.promote();
        }
        if let Some(promoter) = &request.promoter {
            promoter.promote(class);
        }
        match stage {
            Stage::Serving(_) => Promotion::Serving,
            Stage::Ready(_) => Promotion::Ready(ticket),
        }
    }

    /// Drops a request that nobody waits for any more, and its work; returns its ticket, or `None` for one
    /// that is not there: it may have been answered.
    pub(super) fn cancel(&mut self, request_id: u64) -> Option<Ticket> {
        let ticket = self.by_request.get(&request_id).copied()?;
        if let Stage::Serving(task) = self.remove(ticket)?.stage {
            task.abort();
        }
        Some(ticket)
    }

    fn insert(&mut self, ticket: Ticket, request: Request, stage: Stage) {
        self.by_request.insert(request.request_id, ticket);
        self.waiting.insert(ticket, Waiting { request, stage });
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        let request_id = waiting.request.request_id;
        if self.by_request.get(&request_id) == Some(&ticket) {
            self.by_request.remove(&request_id);
        }
        Some(waiting)
    }
}

/// Outcome of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promotion {
    /// Nothing to promote.
    None,
    /// The request waits for its chunk.
    Serving,
    /// The request waits to be sent, under this ticket.
    Ready(Ticket),
}
