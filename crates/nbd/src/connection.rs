//! One connection in transmission: requests in, answers out, in any order.
//!
//! One task owns the socket and does everything in turn: answers of requests that had to wait,
//! reading, writing. What the device has at hand is answered right there, several answers with one
//! system call, straight from the mapped pieces; what must wait gets a task of its own. Nothing here
//! queues without a limit: a request counts against the connection's and the servers' bytes from its
//! header until its answer is sent, and a connection without room is not read from.
//!
//! Must never: answer a request twice or not at all without closing, hold a payload that no limit
//! counts, or call the device for a request in another order than the requests came.

mod admission;
mod clock;
mod execution;
mod input;
mod output;
mod read_reply;
mod spare_payload;
mod status_reply;
mod waiting;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use acstor_net::{DrainSignal, Stream};
use acstor_overlay::{DeviceUse, Piece};
use tokio::time::Instant;

use self::clock::Clock;
use self::input::{Input, Stage};
use self::output::{Output, SendError};
use self::spare_payload::SparePayload;
use self::waiting::Waiting;
use crate::CloseReason;
use crate::connection_state::{ConnectionEvent, ConnectionState};
use crate::export::style_of;
use crate::handshake::{Agreed, Contexts, is_gone};
use crate::memory::Lease;
use crate::protocol::{Command, ExportRules, HeaderStyle, ReplyShape, RequestHeader};
use crate::server::Shared;
use crate::stats::{Answered, CommandKind};

/// Rounds before other tasks of the runtime get their turn.
const ROUNDS_PER_POLL: usize = 16;

/// Number of the next client of this process.
static NEXT_CLIENT: AtomicU64 = AtomicU64::new(0);

/// The pieces of an answer on their way from the disk.
type Rescue = Pin<Box<dyn Future<Output = io::Result<Vec<Piece>>> + Send>>;

/// A request from its header to the last byte of its answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    header: RequestHeader,
    command: Command,
    kind: CommandKind,
    arrived: Instant,
    /// Bytes counted against the limits.
    memory: u64,
}

/// A connection in transmission.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    stream: Stream,
    state: ConnectionState,
    /// Reason for draining, once the connection drains.
    drain_reason: CloseReason,
    shape: ReplyShape,
    style: HeaderStyle,
    contexts: Contexts,
    input: Input,
    stage: Stage,
    spare: SparePayload,
    output: Output,
    /// Reads what the first answer has lost; nothing is sent meanwhile.
    rescue: Option<Rescue>,
    waiting: Waiting,
    lease: Lease,
    /// Requests whose answers are not sent whole.
    in_flight: usize,
    clock: Clock,
    /// Told of each read as it arrives.
    usage: Option<Box<dyn DeviceUse>>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, agreed: Agreed) -> Connection {
        let client = NEXT_CLIENT.fetch_add(1, Ordering::Relaxed);
        Connection {
            usage: shared.export.device().opened(client),
            lease: Lease::new(Arc::clone(&shared.memory), Arc::clone(&shared.config.memory)),
            waiting: Waiting::new(Arc::clone(&shared)),
            stream: agreed.stream,
            state: agreed.state,
            drain_reason: CloseReason::Drained,
            shape: agreed.shape,
            style: style_of(agreed.shape),
            contexts: agreed.contexts,
            input: Input::new(),
            stage: Stage::Header,
            spare: SparePayload::default(),
            output: Output::default(),
            rescue: None,
            in_flight: 0,
            clock: Clock::new(),
            shared,
        }
    }

    /// Serves until the connection ends; returns why. When `drain` says so, nothing more is read, and
    /// the connection ends once everything is answered.
    pub(crate) async fn run(mut self, drain: &mut DrainSignal) -> CloseReason {
        let mut drain_seen = false;
        let reason = loop {
            tokio::select! {
                biased;
                reason = std::future::poll_fn(|cx| self.poll(cx)) => break reason,
                () = drain.requested(), if !drain_seen => {
                    drain_seen = true;
                    self.begin_drain(CloseReason::Drained);
                }
            }
        };
        if self.state.after(ConnectionEvent::Ended).is_err() {
            tracing::error!(state = ?self.state, "an NBD connection ended twice");
        }
        if reason.is_orderly() {
            let goodbye = tokio::io::AsyncWriteExt::shutdown(&mut self.stream);
            let _ = tokio::time::timeout(self.shared.config.write_timeout, goodbye).await;
        }
        reason
    }

    fn begin_drain(&mut self, reason: CloseReason) {
        if let Ok(state) = self.state.after(ConnectionEvent::DrainRequested) {
            self.state = state;
            self.drain_reason = reason;
            // A request of which only a part came was not begun; the client repeats it elsewhere.
            self.stage = Stage::Header;
            self.clock.partial = None;
        }
    }

    fn is_draining(&self) -> bool {
        self.state == ConnectionState::Draining
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        for _ in 0..ROUNDS_PER_POLL {
            match self.poll_round(cx) {
                Ok(true) => {}
                Ok(false) => match self.poll_clock(cx) {
                    Poll::Ready(Some(reason)) => return Poll::Ready(reason),
                    Poll::Ready(None) => {}
                    Poll::Pending => {
                        if self.in_flight == 0 {
                            self.spare.drop_it();
                        }
                        return Poll::Pending;
                    }
                },
                Err(reason) => return Poll::Ready(reason),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does what can be done without waiting; returns whether anything was done.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progressed = self.collect_answers(cx)?;
        progressed |= self.read_requests(cx)?;
        progressed |= self.write_answers(cx)?;
        if self.is_draining() && self.waiting.is_empty() && self.output.is_empty() {
            return Err(self.drain_reason);
        }
        Ok(progressed)
    }

    /// Handles the requests at hand, else receives more.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.is_draining() {
            return Ok(false);
        }
        if self.handle_input(cx)? {
            return Ok(true);
        }
        if self.is_draining() || matches!(self.stage, Stage::Admission { .. }) {
            return Ok(false);
        }
        self.input.compact();
        let payload = self.stage.room();
        match self.stream.poll_receive(cx, payload, self.input.room()) {
            Poll::Ready(Ok(0)) => Err(self.end_of_stream()),
            Poll::Ready(Ok(len)) => {
                // SAFETY: `len` bytes of the payload's room, then of the input's, are initialised.
                unsafe {
                    let of_payload = self.stage.received(len);
                    self.input.received(len - of_payload);
                }
                Ok(true)
            }
            Poll::Ready(Err(error)) if is_gone(&error) => Err(self.end_of_stream()),
            Poll::Ready(Err(_)) => Err(CloseReason::Io),
            Poll::Pending => Ok(false),
        }
    }

    fn end_of_stream(&self) -> CloseReason {
        if matches!(self.stage, Stage::Header) && self.input.is_empty() {
            CloseReason::ClientClosed
        } else {
            CloseReason::Truncated
        }
    }

    fn write_answers(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.output.is_empty() || !self.is_rescued(cx)? {
            return Ok(false);
        }
        match self.output.poll_write(cx, &mut self.stream) {
            Poll::Ready(Ok(len)) => {
                self.clock.blocked = None;
                self.account_for_ended();
                Ok(len > 0)
            }
            Poll::Ready(Err(SendError::Lost)) => self.rescue_answer(),
            Poll::Ready(Err(SendError::Fault)) => {
                self.output.note_fault();
                self.rescue_answer()
            }
            Poll::Ready(Err(SendError::Stream(error))) if is_gone(&error) => {
                Err(self.end_of_stream())
            }
            Poll::Ready(Err(SendError::Stream(_))) => Err(CloseReason::Io),
            Poll::Pending => {
                self.clock.blocked.get_or_insert_with(Instant::now);
                Ok(false)
            }
        }
    }

    /// Mapped bytes went away between the look at them and the answer: has them read another way.
    /// Not here: a disk that hangs would hold everybody whose turn it is on this thread.
    fn rescue_answer(&mut self) -> Result<bool, CloseReason> {
        crate::stats::add(&self.shared.counters.mapped_faults, 1);
        let (shared, pieces) = (Arc::clone(&self.shared), self.output.take_first_answer());
        self.rescue = Some(Box::pin(async move {
            shared.page_reader.bring(pieces, true, &shared.counters).await
        }));
        // The client is not what is waited for.
        self.clock.blocked = None;
        Ok(true)
    }

    /// Returns whether no answer waits for its bytes to be read another way.
    fn is_rescued(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let Some(rescue) = &mut self.rescue else { return Ok(true) };
        let Poll::Ready(outcome) = rescue.as_mut().poll(cx) else { return Ok(false) };
        self.rescue = None;
        match outcome {
            Ok(pieces) => {
                self.output.put_first_answer(pieces);
                Ok(true)
            }
            // A part may be sent already, so that no error can be told: the client asks again.
            Err(error) => {
                tracing::warn!(%error, "the bytes of an answer cannot be read");
                Err(CloseReason::AnswerLost)
            }
        }
    }

    /// Counts the answers that were sent whole, and frees what they held.
    fn account_for_ended(&mut self) {
        let mut now = None;
        while let Some(end) = self.output.next_ended() {
            let now = *now.get_or_insert_with(Instant::now);
            self.in_flight -= 1;
            self.lease.give_back(end.request.memory);
            self.shared.counters.count_answer(Answered {
                command: end.request.kind,
                bytes: end.request.counted_bytes(),
                is_error: end.is_error,
                time: now.saturating_duration_since(end.request.arrived),
            });
        }
    }

    fn rules(&self) -> ExportRules {
        let export = &self.shared.export;
        let (minimum_block, _, maximum_payload) = export.block_sizes();
        ExportRules {
            size_bytes: export.device().size_bytes(),
            is_read_only: export.is_read_only(),
            minimum_block,
            maximum_payload,
            has_chunks: self.shape != ReplyShape::Simple,
            has_contexts: self.contexts.any(),
            style: self.style,
        }
    }

    /// Waits for the next timeout; `Ready` with a reason when one expired, `Ready(None)` when there is
    /// something else to do.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<Option<CloseReason>> {
        self.clock.poll(cx, &self.shared.config)
    }
}

impl Request {
    /// Bytes that it moves, for the limits. To trim or zero any length costs a record without
    /// content, and `mkfs` discards whole disks.
    fn moved_bytes(&self) -> u64 {
        match self.command {
            Command::WriteZeroes { .. } | Command::Trim { .. } => 0,
            _ => self.counted_bytes(),
        }
    }

    /// Bytes of the range, for the statistics.
    fn counted_bytes(&self) -> u64 {
        match self.command {
            Command::Read { len, .. } | Command::Write { len, .. } => len as u64,
            Command::WriteZeroes { len, .. }
            | Command::Trim { len, .. }
            | Command::Cache { len, .. } => len,
            Command::BlockStatus { .. }
            | Command::Flush
            | Command::Nothing
            | Command::Disconnect => 0,
        }
    }
}

/// A timer that is armed only when it is due earlier than before.
type Timer = Pin<Box<tokio::time::Sleep>>;
