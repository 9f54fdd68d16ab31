//! One connection of the server: requests in, answers out, in any order.
//!
//! One task owns the socket and does everything in turn: answers of requests that had to wait,
//! writing, reading. A request that can be answered at once is answered right there, without another
//! task; one that must wait gets a task of its own, so that misses of one connection run in
//! parallel. Chunks are sent in the order of [`super::egress`], refusals and small answers at once. Nothing
//! here queues without a limit: a request holds a permit until its answer is written, and refusals stop the
//! reading when they are not taken.

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use acstor_net::{DrainSignal, Stream};
use acstor_runclock::RunInstant;
use acstor_types::{Digest, RequestClass};
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::Shared;
use super::admission::Permit;
use super::egress::{EgressPort, Ticket};
use super::greeting::Greeted;
use super::output::Output;
use super::places::Place;
use super::requests::{Promotion, Request, Requests};
use crate::compression::WireChunk;
use crate::connection_state::{ConnectionEvent, ConnectionState};
use crate::exchange::{HINTED_BODY_LEN, Hints, JOINED_BODY_LEN_MAX, Join, encode_hinted};
use crate::frame::{
    Frame, FrameError, FrameKind, GET_BODY_LEN, GROUP_BODY_LEN, Get, HEADER_LEN, Header, ToldLoad,
    UNKNOWN_BODY_LEN_MAX, decode_holds, encode_held, held_len,
};
use crate::{
    ChunkRequest, ClassWatch, CloseReason, FEATURE_CLASSES, FEATURE_HINTS, FEATURE_LOAD,
    PeerStatus, Promoter,
};

/// Bytes of requests received with one call: 200 GETs, and always one whole frame.
const INPUT_CAPACITY: usize = 16 << 10;
const _: () = assert!(INPUT_CAPACITY >= HEADER_LEN + UNKNOWN_BODY_LEN_MAX);
/// Requests looked at before answers are written: bounds the time to the first answer of a burst.
const REQUESTS_PER_ROUND: usize = 16;
/// Rounds before other tasks of the runtime get their turn.
const ROUNDS_PER_POLL: usize = 16;
/// Frames in the queue beyond which nothing more is read; chunks are bounded by permits, this bounds
/// refusals to a peer that asks without reading.
const OUTPUT_FRAMES_MAX: usize = 1024;

/// A connection after HELLO.
pub(super) struct Connection {
    shared: Arc<Shared>,
    stream: Stream,
    state: ConnectionState,
    /// Reason for draining, once the connection drains.
    drain_reason: CloseReason,
    place: Place,
    /// Bytes received; those before `handled` are done with.
    input: Vec<u8>,
    handled: usize,
    output: Output,
    requests: Requests,
    /// The client's host.
    host: IpAddr,
    /// Features that both sides know.
    features: u64,
    /// This connection's place in the order in which all send.
    port: EgressPort,
    /// Room for tickets; empty between rounds.
    granted: Vec<Ticket>,
    clock: Clock,
}

/// The instants that the timeouts count from.
struct Clock {
    timer: Pin<Box<Sleep>>,
    /// The last frame that came.
    heard: RunInstant,
    /// Since when a part of a frame waits for its rest.
    partial: Option<RunInstant>,
    /// Since when the first frame of the output cannot be written.
    blocked: Option<RunInstant>,
    drain_began: Option<RunInstant>,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, greeted: Greeted) -> Connection {
        let limits = &shared.limits;
        let now = shared.clock.now();
        let clock = Clock {
            timer: Box::pin(tokio::time::sleep(limits.idle_timeout)),
            heard: now,
            partial: None,
            blocked: None,
            drain_began: None,
        };
        Connection {
            stream: greeted.stream,
            state: greeted.state,
            drain_reason: CloseReason::Drained,
            place: greeted.place,
            input: Vec::with_capacity(INPUT_CAPACITY),
            handled: 0,
            output: Output::default(),
            requests: Requests::default(),
            host: greeted.host,
            features: greeted.features,
            port: shared.egress.join(greeted.host),
            granted: Vec::new(),
            clock,
            shared,
        }
    }

    /// Serves until the connection ends; returns why. After `drain` became true the client is told to
    /// go, and what it still asks is answered.
    pub(super) async fn run(mut self, drain: &mut DrainSignal) -> CloseReason {
        let mut drain_seen = false;
        let mut evicted = Box::pin(self.place.evicted());
        let mut eviction_seen = false;
        let mut distrusted = Box::pin(self.place.distrusted());
        let reason = loop {
            tokio::select! {
                biased;
                () = distrusted.as_mut() => break CloseReason::Untrusted,
                reason = std::future::poll_fn(|cx| self.poll(cx)) => break reason,
                () = drain.requested(), if !drain_seen => {
                    drain_seen = true;
                    self.begin_drain(CloseReason::Drained);
                }
                () = evicted.as_mut(), if !eviction_seen => {
                    eviction_seen = true;
                    self.begin_drain(CloseReason::Idle);
                }
            }
        };
        if self.state.after(ConnectionEvent::Ended).is_err() {
            tracing::error!(state = ?self.state, "a connection ended twice");
        }
        // Others need not wait for the goodbye of this one.
        drop((self.port, self.requests, self.output));
        if reason.is_orderly() {
            let goodbye = tokio::io::AsyncWriteExt::shutdown(&mut self.stream);
            let _ = tokio::time::timeout(self.shared.limits.write_timeout, goodbye).await;
        }
        reason
    }

    fn begin_drain(&mut self, reason: CloseReason) {
        if let Ok(state) = self.state.after(ConnectionEvent::DrainRequested) {
            self.state = state;
            self.drain_reason = reason;
            self.clock.drain_began = Some(self.shared.clock.now());
            self.output.push_header(Header::new(FrameKind::Goodbye, 0, 0));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        for _ in 0..ROUNDS_PER_POLL {
            let round = self.poll_round(cx);
            match round {
                Ok(true) => {}
                Ok(false) => match self.poll_clock(cx) {
                    Poll::Ready(Some(reason)) => return Poll::Ready(reason),
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                },
                Err(reason) => return Poll::Ready(reason),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does what can be done without waiting; returns whether anything was done.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progressed = self.collect_answers(cx);
        progressed |= self.read_requests(cx)?;
        progressed |= self.write_answers(cx)?;
        Ok(progressed)
    }

    fn collect_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progressed = false;
        while let Poll::Ready(Some((request, answer))) = self.requests.poll_served(cx) {
            progressed = true;
            self.answer(cx, request, answer);
        }
        progressed | self.send_granted(cx)
    }

    fn write_answers(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progressed = false;
        if !self.output.is_empty() {
            match self.output.poll_write(cx, &mut self.stream) {
                Poll::Ready(Ok(completed)) => {
                    self.clock.blocked = None;
                    progressed = completed > 0;
                }
                Poll::Ready(Err(_)) => return Err(CloseReason::Io),
                Poll::Pending => {
                    self.clock.blocked.get_or_insert_with(|| self.shared.clock.now());
                }
            }
        }
        // Empty only when the socket has the last byte, and nothing of it is left in TLS.
        if self.port.has_slot() && self.output.is_empty() {
            progressed |= self.port.finish();
        }
        Ok(progressed)
    }

    /// Handles the requests at hand, then receives more.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.output.frames() >= OUTPUT_FRAMES_MAX {
            return Ok(false);
        }
        if self.handle_frames(cx)? > 0 {
            return Ok(true);
        }
        // Less than a frame is left, usually nothing.
        self.input.drain(..self.handled);
        self.handled = 0;
        match self.stream.poll_receive(cx, self.input.spare_capacity_mut(), no_room()) {
            Poll::Ready(Ok(0)) => Err(self.end_of_stream()),
            Poll::Ready(Ok(len)) => {
                // SAFETY: poll_receive initialised the first `len` bytes of the spare capacity.
                unsafe { self.input.set_len(self.input.len() + len) };
                Ok(true)
            }
            Poll::Ready(Err(error)) if is_abrupt(&error) => Err(self.end_of_stream()),
            Poll::Ready(Err(_)) => Err(CloseReason::Io),
            Poll::Pending => Ok(false),
        }
    }

    fn end_of_stream(&self) -> CloseReason {
        match self.state {
            _ if self.handled < self.input.len() => CloseReason::Truncated,
            ConnectionState::Draining => self.drain_reason,
            _ => CloseReason::PeerClosed,
        }
    }

    /// Handles whole frames of the input; returns how many.
    fn handle_frames(&mut self, cx: &mut Context<'_>) -> Result<usize, CloseReason> {
        let mut handled = 0;
        while handled < REQUESTS_PER_ROUND {
            let frame =
                Frame::decode(&self.input[self.handled..]).map_err(CloseReason::Malformed)?;
            let Some(frame) = frame else { break };
            let (header, wire_len) = (frame.header, frame.wire_len());
            let get = match header.kind {
                FrameKind::Get => {
                    let body = frame.body.first_chunk::<GET_BODY_LEN>();
                    body.map(|body| Get::decode(body, header.flags))
                }
                FrameKind::Holds => {
                    let digests = decode_holds(frame.body);
                    self.handle_holds(header.request_id, &digests);
                    None
                }
                FrameKind::Join if self.has_hints() => {
                    let join = Join::decode(frame.body, header.flags);
                    self.handle_join(header.request_id, join);
                    None
                }
                FrameKind::Hint if self.has_hints() => {
                    let hints = Hints::decode(frame.body, header.flags);
                    self.handle_hint(header.request_id, hints);
                    None
                }
                FrameKind::Group => {
                    let message = frame.body.first_chunk::<GROUP_BODY_LEN>().copied();
                    message.iter().for_each(|m| self.handle_group(header.request_id, m));
                    None
                }
                _ => None,
            };
            self.handled += wire_len;
            self.handle_frame(cx, header, get)?;
            handled += 1;
        }
        if handled > 0 {
            self.clock.heard = self.shared.clock.now();
            self.place.heard(self.clock.heard);
        }
        self.clock.partial = match (self.handled == self.input.len(), handled) {
            (true, _) => None,
            (false, 0) => Some(self.clock.partial.unwrap_or_else(|| self.shared.clock.now())),
            (false, _) => Some(self.clock.heard),
        };
        Ok(handled)
    }

    fn handle_frame(
        &mut self,
        cx: &mut Context<'_>,
        header: Header,
        get: Option<Get>,
    ) -> Result<(), CloseReason> {
        match header.kind {
            FrameKind::Get => {
                let get = get.ok_or(CloseReason::Malformed(FrameError::Length))?;
                if !get.class.is_demand() && !self.has_classes() {
                    return Err(CloseReason::Malformed(FrameError::Reserved));
                }
                self.handle_get(cx, header.request_id, &get);
            }
            FrameKind::Ping => {
                self.port.look();
                let pong = Header::new(FrameKind::Pong, 0, header.request_id);
                self.output.push_header(Header { load: self.load(), ..pong });
            }
            FrameKind::Holds | FrameKind::Group => {} // answered from their bodies
            FrameKind::Join | FrameKind::Hint if self.has_hints() => {} // and so are these
            FrameKind::Join | FrameKind::Hint => {
                self.refuse(header.request_id, PeerStatus::Unsupported);
            }
            FrameKind::Class if self.has_classes() => self.handle_class(&header),
            FrameKind::Class => self.refuse(header.request_id, PeerStatus::Unsupported),
            FrameKind::Unknown(_) => self.refuse(header.request_id, PeerStatus::Unsupported),
            FrameKind::Hello
            | FrameKind::Pong
            | FrameKind::Data
            | FrameKind::Status
            | FrameKind::Held
            | FrameKind::Grouped
            | FrameKind::Compressed
            | FrameKind::Joined
            | FrameKind::Hinted
            | FrameKind::Goodbye => return Err(CloseReason::Malformed(FrameError::Kind)),
        }
        Ok(())
    }

    fn has_classes(&self) -> bool {
        self.features & FEATURE_CLASSES != 0
    }

    fn has_hints(&self) -> bool {
        self.features & FEATURE_HINTS != 0
    }

    fn handle_class(&mut self, header: &Header) {
        let request_id = header.request_id;
        let Some(class) = header.new_class() else { return self.cancel(request_id) };
        match self.requests.promote(request_id, class) {
            Promotion::None => return,
            Promotion::Serving => {}
            Promotion::Ready(ticket) => self.port.promote(ticket, class),
        }
        super::stats::add(&self.shared.counters.promotions, 1);
    }

    /// Answers a request that nobody waits for any more, without its chunk.
    fn cancel(&mut self, request_id: u64) {
        let Some(ticket) = self.requests.cancel(request_id) else { return };
        self.port.withdraw(ticket);
        super::stats::add(&self.shared.counters.cancels, 1);
        self.output.push_status(request_id, PeerStatus::Expired);
    }

    fn handle_holds(&mut self, request_id: u64, digests: &[Digest]) {
        let bytes = held_len(digests.len()) as u64;
        let Some(permit) = self.admit(bytes, RequestClass::Demand) else {
            return self.refuse(request_id, PeerStatus::Overloaded);
        };
        let held = self.shared.chunks.holds(digests);
        self.port.look();
        self.output.push_held(request_id, encode_held(&held), (permit, self.load()));
    }

    fn handle_join(&mut self, request_id: u64, join: Result<Join, PeerStatus>) {
        let bytes = JOINED_BODY_LEN_MAX as u64;
        let Some(permit) = self.admit(bytes, RequestClass::Demand) else {
            return self.refuse(request_id, PeerStatus::Overloaded);
        };
        match join.and_then(|join| self.shared.chunks.join(&join)) {
            Ok(joined) => {
                let body = joined.encode_body();
                self.output.push_small(FrameKind::Joined, request_id, body, permit);
            }
            Err(status) => self.refuse(request_id, status),
        }
    }

    fn handle_hint(&mut self, request_id: u64, hints: Result<Hints, PeerStatus>) {
        let Some(permit) = self.admit(HINTED_BODY_LEN as u64, RequestClass::Demand) else {
            return self.refuse(request_id, PeerStatus::Overloaded);
        };
        match hints.and_then(|hints| self.shared.chunks.hint(&hints)) {
            Ok(known) => {
                let body = encode_hinted(known).to_vec();
                self.output.push_small(FrameKind::Hinted, request_id, body, permit);
            }
            Err(status) => self.refuse(request_id, status),
        }
    }

    fn handle_group(&mut self, request_id: u64, message: &[u8; GROUP_BODY_LEN]) {
        let Some(permit) = self.admit(GROUP_BODY_LEN as u64, RequestClass::Demand) else {
            return self.refuse(request_id, PeerStatus::Overloaded);
        };
        match self.shared.chunks.group(self.host, message) {
            Ok(answer) => {
                let body = answer.to_vec();
                self.output.push_small(FrameKind::Grouped, request_id, body, permit);
            }
            Err(status) => self.refuse(request_id, status),
        }
    }

    fn handle_get(&mut self, cx: &mut Context<'_>, request_id: u64, get: &Get) {
        super::stats::add(&self.shared.counters.requests, 1);
        let asked = match get.request() {
            Ok(asked) => asked,
            Err(status) => return self.refuse(request_id, status),
        };
        if get.deadline_ms == 0 {
            return self.refuse(request_id, PeerStatus::Expired);
        }
        let bytes = u64::from(get.chunk_size);
        let Some(permit) = self.admit(bytes, get.class) else {
            return self.refuse(request_id, PeerStatus::Overloaded);
        };
        let patience = std::time::Duration::from_millis(get.deadline_ms.into());
        let deadline = Instant::now() + patience.min(self.shared.limits.deadline_max);
        let class = get.class;
        let promoter = (!class.is_demand()).then(|| Promoter::new(class));
        let watch = promoter.as_ref().map_or(ClassWatch::DEMAND, Promoter::watch);
        let mut answer = self.shared.chunks.serve(asked, watch, deadline);
        let request = Request { request_id, class, promoter, permit, deadline };
        match answer.as_mut().poll(cx).map(|answer| checked(answer, &asked)) {
            Poll::Ready(Ok(chunk)) if asked.accepts_compressed => {
                self.answer_later(request, asked, async move { Ok(chunk) });
            }
            Poll::Ready(answer) => self.answer(cx, request, answer.map(WireChunk::Plain)),
            Poll::Pending => self.answer_later(request, asked, answer),
        }
    }

    /// Waits for the answer in a task of its own, and there compresses it where that is welcome.
    fn answer_later(
        &mut self,
        request: Request,
        asked: ChunkRequest,
        answer: impl Future<Output = Result<Bytes, PeerStatus>> + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        self.requests.serve(request, async move {
            let chunk = checked(answer.await, &asked)?;
            Ok(match asked.accepts_compressed {
                true => shared.compressor.offer(asked.digest, chunk).await,
                false => WireChunk::Plain(chunk),
            })
        });
    }

    /// Sends an answer, at once or when its turn comes.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        request: Request,
        answer: Result<WireChunk, PeerStatus>,
    ) {
        let chunk = match answer {
            Ok(chunk) => chunk,
            Err(status) => return self.refuse(request.request_id, status),
        };
        let ticket = self.requests.ticket();
        if self.port.offer(cx, request.class, (ticket, chunk.wire_len())) {
            self.send(request, chunk);
        } else {
            self.requests.keep(ticket, request, chunk);
        }
    }

    /// Sends the answers whose turn came meanwhile; returns whether there are any.
    fn send_granted(&mut self, cx: &mut Context<'_>) -> bool {
        let mut granted = std::mem::take(&mut self.granted);
        self.port.take_granted(cx, &mut granted);
        let is_any = !granted.is_empty();
        for ticket in granted.drain(..) {
            let Some((request, chunk)) = self.requests.take(ticket) else { continue };
            if Instant::now() < request.deadline {
                self.send(request, chunk);
            } else {
                self.refuse(request.request_id, PeerStatus::Expired);
            }
        }
        self.granted = granted;
        is_any
    }

    fn send(&mut self, request: Request, chunk: WireChunk) {
        let Request { request_id, permit, .. } = request;
        self.shared.counters.count_chunk(permit.bytes(), chunk.wire_len());
        self.output.push_chunk(request_id, chunk, (permit, self.load()));
    }

    /// The load that an answer tells; none to a client that does not know of it.
    fn load(&self) -> ToldLoad {
        if self.features & FEATURE_LOAD == 0 {
            return ToldLoad::default();
        }
        let free_rate_log2 = self.shared.free_rate_log2.load(Ordering::Relaxed);
        ToldLoad::new(self.port.wait(), free_rate_log2)
    }

    fn admit(&self, bytes: u64, class: RequestClass) -> Option<Permit> {
        Permit::take(&self.shared.budget, self.place.budget(), bytes, class)
    }

    fn refuse(&mut self, request_id: u64, status: PeerStatus) {
        self.shared.counters.count_refusal(status);
        self.output.push_status(request_id, status);
    }

    /// Waits for the next timeout; `Ready` with a reason when one expired, `Ready(None)` when there is
    /// something else to do.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<Option<CloseReason>> {
        let now = self.shared.clock.now();
        if self.port.due().is_some_and(|due| due <= now) {
            self.port.overrun();
        }
        let (due, reason) = self.next_timeout();
        if now < due {
            let next = self.port.due().map_or(due, |slot_due| slot_due.min(due));
            let wall = self.shared.clock.wall(next);
            let timer = &mut self.clock.timer;
            if timer.deadline() > wall || timer.is_elapsed() {
                timer.as_mut().reset(wall);
            }
            return timer.as_mut().poll(cx).map(|()| None);
        }
        if reason == CloseReason::Idle && self.state == ConnectionState::Serving {
            self.begin_drain(CloseReason::Idle);
            return Poll::Ready(None);
        }
        Poll::Ready(Some(reason))
    }

    /// Returns the timeout that is due first, and what it means.
    fn next_timeout(&self) -> (RunInstant, CloseReason) {
        let limits = &self.shared.limits;
        let idle = (self.clock.heard + limits.idle_timeout, CloseReason::Idle);
        let is_busy = !self.requests.is_empty() || !self.output.is_empty();
        let rest = match self.clock.drain_began {
            // The server's own drain is bounded by its caller; a client that was idle has one more
            // timeout, a longer one while it is answered: its place may be another one's.
            Some(began) if self.drain_reason == CloseReason::Idle => {
                let patience = if is_busy { limits.idle_timeout } else { limits.read_timeout };
                (began + patience, CloseReason::Idle)
            }
            Some(_) => (self.shared.clock.now() + limits.idle_timeout, CloseReason::Drained),
            None if is_busy => (self.shared.clock.now() + limits.idle_timeout, CloseReason::Idle),
            None => idle,
        };
        let blocked =
            self.clock.blocked.map(|at| (at + limits.write_timeout, CloseReason::WriteStalled));
        let partial =
            self.clock.partial.map(|at| (at + limits.read_timeout, CloseReason::ReadStalled));
        [blocked, partial]
            .into_iter()
            .flatten()
            .fold(rest, |first, next| if next.0 < first.0 { next } else { first })
    }
}

/// Returns the answer if it is one to `request`, else [`PeerStatus::Internal`].
fn checked(answer: Result<Bytes, PeerStatus>, request: &ChunkRequest) -> Result<Bytes, PeerStatus> {
    match answer {
        Ok(chunk) if chunk.len() != request.chunk_size.bytes() => {
            tracing::error!(
                digest = %request.digest,
                len = chunk.len(),
                want = request.chunk_size.bytes(),
                "the chunk server answered with another size than asked for"
            );
            Err(PeerStatus::Internal)
        }
        answer => answer,
    }
}

/// Returns whether the other side went away without a word, as a killed process does.
fn is_abrupt(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

fn no_room() -> &'static mut [MaybeUninit<u8>] {
    &mut []
}
