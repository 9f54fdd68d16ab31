//! The requests of one connection that wait: for their chunk, or for their turn to be sent.
//!
//! A request that waits for its chunk does so in a task of its own, so that misses of one connection run in
//! parallel. Each is numbered here, by a ticket: the numbers of the client need not be different.

use std::collections::HashMap;
use std::task::{Context, Poll};

use acstor_types::RequestClass;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::admission::Permit;
use super::egress::Ticket;
use crate::PeerStatus;
use crate::compression::WireChunk;

/// A request that was admitted and is not answered.
pub(super) struct Request {
    /// The client's number of it.
    pub(super) request_id: u64,
    pub(super) class: RequestClass,
    pub(super) permit: Permit,
    pub(super) deadline: Instant,
}

/// A request, and what is known of its answer.
struct Waiting {
    request: Request,
    /// `None` while its task waits for it.
    chunk: Option<WireChunk>,
}

/// The requests of one connection that wait.
#[derive(Default)]
pub(super) struct Requests {
    tasks: JoinSet<Result<WireChunk, PeerStatus>>,
    by_task: HashMap<Id, Ticket>,
    waiting: HashMap<Ticket, Waiting>,
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
        self.waiting.insert(ticket, Waiting { request, chunk: None });
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
                Err(failure) => {
                    tracing::error!(%failure, "serving a chunk failed");
                    (failure.id(), Err(PeerStatus::Internal))
                }
            };
            let ticket = self.by_task.remove(&id);
            if let Some(waiting) = ticket.and_then(|ticket| self.waiting.remove(&ticket)) {
                return Poll::Ready(Some((waiting.request, answer)));
            }
        }
    }

    /// Keeps a request whose chunk is at hand and waits to be sent.
    pub(super) fn keep(&mut self, ticket: Ticket, request: Request, chunk: WireChunk) {
        self.waiting.insert(ticket, Waiting { request, chunk: Some(chunk) });
    }

    /// Takes a request that waited to be sent; `None` when it is not there any more.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(Request, WireChunk)> {
        let Waiting { request, chunk } = self.waiting.remove(&ticket)?;
        Some((request, chunk?))
    }
}
