//! One connection of the client: one task that owns the socket, sends what fetches hand to it and
//! gives answers back.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use acstor_net::{Shown, Stream};
use acstor_runclock::RunInstant;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep};

use super::connector::Greeted;
use super::input::{Event, Input};
use super::link::{Change, LinkStatus, Requests};
use super::peer::{Peer, Waited};
use super::pending::{Answer, Ask, PendingTable, Submission};
use crate::connection_state::{ConnectionEvent, ConnectionState};
use crate::frame::{FrameKind, Get, Header, ToldLoad, encode_group, encode_holds};
use crate::{
    ClientLimits, CloseReason, FEATURE_CLASSES, FEATURE_COMPRESSED, FEATURE_LOAD, FEATURES,
    PeerStatus,
};

/// Events handled before new requests are sent.
const EVENTS_PER_ROUND: usize = 16;
/// Rounds before other tasks of the runtime get their turn.
const ROUNDS_PER_POLL: usize = 16;
/// Most requests in flight on a connection, whatever the server allows. Requests whose fetch was
/// dropped count until they are answered.
const REQUESTS_MAX: usize = 1024;

/// A connection after HELLO, with the task's state.
pub(super) struct Connection {
    peer: Arc<Peer>,
    status: Arc<LinkStatus>,
    stream: Stream,
    shown: Option<Shown>,
    state: ConnectionState,
    drain_reason: CloseReason,
    requests: Requests,
    /// True if no fetch can hand over another request.
    is_detached: bool,
    pending: PendingTable,
    pending_max: usize,
    /// Features that both sides know.
    features: u64,
    input: Input,
    /// Frames that are not written yet.
    output: Vec<u8>,
    unflushed: bool,
    answers: u64,
    watch: Watch,
    _in_pool: InPool,
}

/// Takes a connection out of the pool whose task panics, or is dropped with its runtime.
struct InPool {
    peer: Arc<Peer>,
    status: Arc<LinkStatus>,
}

impl Drop for InPool {
    fn drop(&mut self) {
        if self.status.end(CloseReason::Shutdown) {
            self.peer.connection_dropped(&self.status);
        }
    }
}

/// Notices silence: looks at what changed since the last tick, so that nothing is timed on the way of
/// a request.
struct Watch {
    timer: Pin<Box<Sleep>>,
    received: u64,
    answers: u64,
    /// Time at which the unanswered PING was sent.
    probed: Option<RunInstant>,
    idle_since: RunInstant,
    idle_timeout: Duration,
}

impl Connection {
    pub(super) fn new(
        peer: Arc<Peer>,
        status: Arc<LinkStatus>,
        requests: Requests,
        greeted: Greeted,
    ) -> Connection {
        let limits = peer.limits();
        let watch = Watch {
            timer: Box::pin(tokio::time::sleep(limits.probe_after)),
            received: 0,
            answers: 0,
            probed: None,
            idle_since: peer.clock().now(),
            idle_timeout: idle_timeout(limits, greeted.hello.idle_timeout_ms),
        };
        Connection {
            stream: greeted.stream,
            shown: greeted.shown,
            state: greeted.state,
            drain_reason: CloseReason::Shutdown,
            requests,
            is_detached: false,
            pending: PendingTable::default(),
            pending_max: REQUESTS_MAX.min(greeted.hello.requests_in_flight_max as usize),
            features: FEATURES & greeted.hello.features,
            input: Input::new(peer.buffers(), FEATURES & greeted.hello.features),
            output: Vec::new(),
            unflushed: false,
            answers: 0,
            watch,
            _in_pool: InPool { peer: Arc::clone(&peer), status: Arc::clone(&status) },
            peer,
            status,
        }
    }

    /// Carries requests until the connection ends, then tells the peer why.
    pub(super) async fn run(mut self) {
        let reason = std::future::poll_fn(|cx| self.poll(cx)).await;
        if self.state.after(ConnectionEvent::Ended).is_err() {
            tracing::error!(state = ?self.state, "a connection ended twice");
        }
        self.status.end(reason);
        self.peer.connection_ended(&self.status, reason, self.answers > 0);
        let limit = self.peer.limits().connect_timeout;
        let Connection { mut stream, requests, pending, .. } = self;
        // Their fetches learn now that no answer will come.
        drop((requests, pending));
        if reason.is_orderly() {
            let _ = tokio::time::timeout(limit, stream.shutdown()).await;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        for _ in 0..ROUNDS_PER_POLL {
            match self.poll_round(cx) {
                Err(reason) => return Poll::Ready(reason),
                Ok(_) if self.is_finished() => return Poll::Ready(self.drain_reason),
                Ok(true) => {}
                Ok(false) => match self.poll_watch(cx) {
                    Poll::Ready(Some(reason)) => return Poll::Ready(reason),
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progressed = self.take_submissions(cx);
        progressed |= self.take_changes(cx);
        progressed |= self.write(cx)?;
        progressed |= self.read(cx)?;
        Ok(progressed)
    }

    fn is_finished(&self) -> bool {
        self.is_detached && self.pending.is_empty() && self.output.is_empty() && !self.unflushed
    }

    fn take_submissions(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progressed = false;
        while self.pending.len() < self.pending_max && !self.is_detached {
            match self.requests.submissions.poll_recv(cx) {
                Poll::Ready(Some((number, submission))) => {
                    progressed = true;
                    self.send(number, submission);
                }
                Poll::Ready(None) => self.is_detached = true,
                Poll::Pending => break,
            }
        }
        progressed
    }

    fn take_changes(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progressed = false;
        while let Poll::Ready(Some(change)) = self.requests.changes.poll_recv(cx) {
            progressed = true;
            self.note(change);
        }
        progressed
    }

    /// Tells the peer what changed, if it has the request and knows classes. What is not sent yet will be
    /// sent as it is then, or not at all.
    fn note(&mut self, change: Change) {
        let now = self.peer.clock().now();
        let (Change::Promoted(number, _) | Change::Dropped(number)) = change;
        let Some((id, pending)) = self.pending.find(number) else { return };
        let told = match change {
            Change::Promoted(_, class) if class > pending.class => {
                pending.class = class;
                if class.is_demand() {
                    pending.demanded = Some(now);
                }
                Some(class)
            }
            Change::Promoted(..) => return,
            Change::Dropped(_) => {
                pending.is_cancelled = true;
                None
            }
        };
        if self.features & FEATURE_CLASSES != 0 {
            self.output.extend_from_slice(&Header::class(told, id).encode());
        }
    }

    fn send(&mut self, number: u64, mut submission: Submission) {
        if submission.reply.is_closed() {
            return; // nobody waits any more
        }
        let needed = submission.ask.feature();
        if self.features & needed != needed {
            let _ = submission.reply.send(Err(PeerStatus::Unsupported));
            return;
        }
        if let Ask::Chunk(request) = &mut submission.ask {
            request.accepts_compressed &= self.features & FEATURE_COMPRESSED != 0;
        }
        let (pending, ask) = submission.into_pending(number);
        let class = pending.class;
        let left = pending.deadline.saturating_duration_since(self.peer.clock().now()).as_millis();
        let deadline_ms = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        let id = self.pending.insert(pending);
        match ask {
            Ask::Chunk(request) => {
                let mut get = Get::new(&request, deadline_ms);
                if self.features & FEATURE_CLASSES != 0 {
                    get.class = class;
                }
                self.output.extend_from_slice(&get.encode(id));
            }
            Ask::Holds(digests) => {
                self.output.extend(encode_holds(&digests, id).unwrap_or_default())
            }
            Ask::Join(join) => self.output.extend(join.encode(id)),
            Ask::Hint(hints) => self.output.extend(hints.encode(id).unwrap_or_default()),
            Ask::Group(message) => self.output.extend(encode_group(&message, id)),
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progressed = false;
        while !self.output.is_empty() {
            match self.stream.poll_send(cx, &[IoSlice::new(&self.output)]) {
                Poll::Ready(Ok(0)) => return Err(CloseReason::Io),
                Poll::Ready(Ok(len)) => {
                    self.output.drain(..len);
                    self.unflushed = true;
                    progressed = true;
                }
                Poll::Ready(Err(error)) => return Err(socket_failed(&error)),
                Poll::Pending => return Ok(progressed),
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(socket_failed(&error)),
                Poll::Pending => {}
            }
        }
        Ok(progressed)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        for handled in 0..EVENTS_PER_ROUND {
            match self.input.poll_event(cx, &mut self.stream, &self.pending) {
                Poll::Ready(Ok(Event::Answer(id, answer, load))) => {
                    // A refusal tells no load.
                    if answer.is_ok() {
                        self.hear(load);
                    }
                    self.give(id, answer)?;
                }
                Poll::Ready(Ok(Event::Pong(load))) => self.hear(load),
                Poll::Ready(Ok(Event::Goodbye)) => self.begin_drain(CloseReason::Drained),
                Poll::Ready(Err(CloseReason::PeerClosed))
                    if self.state == ConnectionState::Draining =>
                {
                    return Err(self.drain_reason);
                }
                Poll::Ready(Err(reason)) => return Err(reason),
                Poll::Pending => return Ok(handled > 0),
            }
        }
        Ok(true)
    }

    fn hear(&self, load: ToldLoad) {
        if self.features & FEATURE_LOAD != 0 {
            self.peer.hear(load);
        }
    }

    fn give(&mut self, id: u64, answer: Answer) -> Result<(), CloseReason> {
        let pending = self.pending.take(id).ok_or(CloseReason::UnexpectedAnswer)?;
        if self.answers == 0 {
            self.peer.first_answer();
        }
        self.answers += 1;
        let is_in_vain = pending.is_cancelled && answer.is_err();
        let is_late = pending.reply.send(answer).is_err();
        if pending.expected.0 == FrameKind::Data {
            let time = pending.demanded.map(|since| self.peer.clock().since(since));
            let waited = time.map(if is_in_vain { Waited::InVain } else { Waited::For });
            self.peer.answered(waited, is_late);
        }
        Ok(())
    }

    /// Takes the connection out of the pool; it ends when every fetch that has it is done.
    fn begin_drain(&mut self, reason: CloseReason) {
        if let Ok(state) = self.state.after(ConnectionEvent::DrainRequested) {
            self.state = state;
            self.drain_reason = reason;
            self.peer.retire(&self.status);
        }
    }

    /// Waits for the next tick; `Ready` with a reason when the connection must be given up.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Option<CloseReason>> {
        if self.watch.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let outcome = self.tick(self.peer.clock().now());
        let limits = self.peer.limits();
        let wait = match self.watch.probed {
            Some(_) => limits.probe_after.min(limits.probe_timeout),
            None => limits.probe_after,
        };
        self.watch.timer.as_mut().reset(Instant::now() + wait);
        Poll::Ready(outcome)
    }

    fn tick(&mut self, now: RunInstant) -> Option<CloseReason> {
        if let Some(shown) = &mut self.shown
            && let Err(fault) = self.peer.recheck(shown)
        {
            tracing::info!(peer = self.peer.address(), %fault, "a connected peer is left");
            return Some(CloseReason::Untrusted);
        }
        let is_silent = self.input.received() == self.watch.received;
        let no_answers = self.answers == self.watch.answers;
        self.watch.received = self.input.received();
        self.watch.answers = self.answers;
        if !is_silent || !self.pending.is_empty() {
            self.watch.idle_since = now;
        }
        if self.pending.is_empty() || !is_silent {
            self.watch.probed = None;
        }
        if self.pending.is_empty() {
            if now - self.watch.idle_since >= self.watch.idle_timeout {
                self.begin_drain(CloseReason::Idle);
            }
            return None;
        }
        let limits = self.peer.limits();
        if no_answers && self.pending.any_due_before(now - limits.probe_timeout) {
            return Some(CloseReason::AnswersOverdue);
        }
        match self.watch.probed {
            None if is_silent => {
                self.output.extend_from_slice(&Header::new(FrameKind::Ping, 0, 0).encode());
                self.watch.probed = Some(now);
                None
            }
            Some(at) if now - at >= limits.probe_timeout => Some(CloseReason::ProbeTimeout),
            _ => None,
        }
    }
}

/// The client closes first, so that no request meets a connection that the server is closing.
fn idle_timeout(limits: &ClientLimits, server_ms: u32) -> Duration {
    match server_ms {
        0 => limits.idle_timeout,
        ms => limits.idle_timeout.min(Duration::from_millis(ms.into()) * 3 / 4),
    }
}

fn socket_failed(error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => CloseReason::PeerClosed,
        _ => CloseReason::Io,
    }
}
