//! One peer: its connections, its slots, its health and its latency.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acstor_net::Shown;
use acstor_runclock::{RunClock, RunInstant};
use acstor_selection::{Backoff, BreakerRules, BreakerState};
use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, SemaphorePermit, oneshot};
use tokio::time::Instant;

use super::ClientShared;
use super::buffers::BufferPool;
use super::channel::{Channel, NoSlot, Slots};
use super::connection::Connection;
use super::connector::{Greeted, Target};
use super::latency::LatencyHistogram;
use super::link::{Link, LinkStatus};
use super::pending::{Ask, Submission};
use super::pool::{Look, Pool};
use super::stats::{PeerCounters, PeerStats, add, get};
use crate::compression::{self, WireChunk};
use crate::exchange::{Hints, Join, Joined, decode_hinted};
use crate::frame::{GROUP_BODY_LEN, ToldLoad};
use crate::{ChunkRequest, ClassWatch, ClientLimits, CloseReason, PeerError, TlsFault, Told};

/// One peer.
pub(super) struct Peer {
    address: String,
    socket: SocketAddr,
    client: Arc<ClientShared>,
    rules: BreakerRules,
    slots: [Slots; Channel::COUNT],
    pool: Mutex<Pool>,
    /// Notified when the pool got a connection or an attempt failed.
    pool_changed: Notify,
    latency: Mutex<LatencyHistogram>,
    told: Mutex<Option<Told>>,
    counters: PeerCounters,
}

impl Peer {
    pub(super) fn new(address: &str, socket: SocketAddr, client: Arc<ClientShared>) -> Peer {
        let limits = &client.limits;
        let backoff = Backoff { min: limits.backoff_min, max: limits.backoff_max };
        Peer {
            address: address.to_owned(),
            socket,
            rules: BreakerRules::connection(backoff),
            slots: Channel::ALL.map(|channel| Slots::new(channel.requests_max(limits))),
            pool: Mutex::new(Pool::new()),
            pool_changed: Notify::new(),
            latency: Mutex::new(LatencyHistogram::new()),
            told: Mutex::new(None),
            counters: PeerCounters::default(),
            client,
        }
    }

    pub(super) fn limits(&self) -> &ClientLimits {
        &self.client.limits
    }

    pub(super) fn clock(&self) -> &RunClock {
        &self.client.clock
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Looks at what the peer showed again if the files of TLS changed.
    pub(super) fn recheck(&self, shown: &mut Shown) -> Result<(), TlsFault> {
        let Some(files) = &self.client.tls else { return Ok(()) };
        let identity = files.current();
        shown.recheck(&identity, |chain| {
            let host_name = self.client.host_name(&self.address);
            identity.recheck_server(chain, self.socket.ip(), host_name.as_deref())
        })
    }

    pub(super) fn buffers(&self) -> Arc<BufferPool> {
        Arc::clone(&self.client.buffers)
    }

    /// Fetches a chunk. Dropping the future frees its slot, and tells the peer that nobody waits; what
    /// still comes is discarded.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        let outcome = match self.ask(Ask::Chunk(request), class, deadline).await {
            Ok(WireChunk::Plain(chunk)) => Ok(chunk),
            Ok(WireChunk::Compressed(body)) => self.decompress(&body, request.chunk_size.bytes()),
            Err(error) => Err(error),
        };
        self.counters.count_fetch(&outcome);
        if request.accepts_compressed
            && let Ok(chunk) = &outcome
        {
            add(&self.client.compression.compressible_bytes, chunk.len() as u64);
        }
        outcome
    }

    /// Decompresses in the task of the fetch, so that it holds up no other answer of the connection.
    fn decompress(&self, body: &[u8], chunk_size: usize) -> Result<Bytes, PeerError> {
        let mut chunk = self.client.buffers.take(chunk_size);
        chunk.resize(chunk_size, 0);
        let begun = std::time::Instant::now();
        compression::decompress(body, &mut chunk)
            .map_err(|_| PeerError::Corrupt { address: self.address.clone() })?;
        self.client.count_compressed(chunk_size, chunk_size - body.len(), begun.elapsed());
        Ok(self.client.buffers.share(chunk))
    }

    /// Asks which of some chunks the peer keeps, 1 to [`HOLDS_MAX`](crate::frame::HOLDS_MAX).
    pub(super) async fn holds(
        self: &Arc<Self>,
        digests: Arc<[Digest]>,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        self.ask_small(Ask::Holds(digests), deadline).await
    }

    /// Asks to take part in an exchange.
    pub(super) async fn join(
        self: &Arc<Self>,
        join: Join,
        deadline: Instant,
    ) -> Result<Joined, PeerError> {
        let body = self.ask_small(Ask::Join(join), deadline).await?;
        Joined::decode(&body).ok_or_else(|| PeerError::Corrupt { address: self.address.clone() })
    }

    /// Sends hints, 1 to [`FRAME_HINTS_MAX`](acstor_selection::exchange::bounds::FRAME_HINTS_MAX).
    pub(super) async fn hint(
        self: &Arc<Self>,
        hints: Arc<Hints>,
        deadline: Instant,
    ) -> Result<u32, PeerError> {
        let body = self.ask_small(Ask::Hint(hints), deadline).await?;
        decode_hinted(&body).ok_or_else(|| PeerError::Corrupt { address: self.address.clone() })
    }

    /// Asks for what is small, at once.
    async fn ask_small(self: &Arc<Self>, ask: Ask, deadline: Instant) -> Result<Bytes, PeerError> {
        match self.ask(ask, ClassWatch::DEMAND, deadline).await? {
            WireChunk::Plain(body) => Ok(body),
            // Never: only a chunk may be answered so.
            WireChunk::Compressed(_) => Err(PeerError::Corrupt { address: self.address.clone() }),
        }
    }

    /// Sends a message of a multicast preload, and returns the answer.
    pub(super) async fn group(
        self: &Arc<Self>,
        message: &[u8; GROUP_BODY_LEN],
        deadline: Instant,
    ) -> Result<[u8; GROUP_BODY_LEN], PeerError> {
        let ask = Ask::Group(Box::new(*message));
        let answer = match self.ask(ask, ClassWatch::DEMAND, deadline).await? {
            WireChunk::Plain(answer) => answer.first_chunk().copied(),
            WireChunk::Compressed(_) => None,
        };
        // Never: only such an answer is let through.
        answer.ok_or_else(|| PeerError::Corrupt { address: self.address.clone() })
    }

    async fn ask(
        self: &Arc<Self>,
        ask: Ask,
        mut class: ClassWatch,
        deadline: Instant,
    ) -> Result<WireChunk, PeerError> {
        let deadline = self.clock().from_wall(deadline);
        let (_slot, link) = self.place(&mut class, deadline).await?;
        let (reply, answer) = oneshot::channel();
        let submitted = self.clock().now();
        let of_link = class.clone();
        let mut sent = link.submit(Submission { ask, class: of_link, deadline, submitted, reply });
        tokio::pin!(answer);
        let answered = async {
            loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => return answer,
                    class = class.changed() => sent.promote(class),
                }
            }
        };
        let outcome = self.clock().timeout_at(deadline, answered).await;
        if outcome.is_ok() {
            sent.settle();
        }
        match outcome {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(status))) => {
                Err(PeerError::Refused { address: self.address.clone(), status })
            }
            Ok(Err(_)) => {
                let reason = link.status.reason();
                Err(PeerError::Disconnected { address: self.address.clone(), reason })
            }
            Err(_) => Err(self.too_late()),
        }
    }

    fn too_late(&self) -> PeerError {
        PeerError::Deadline { address: self.address.clone() }
    }

    /// Waits for a slot and a connection of the request's channel. One that is promoted meanwhile waits
    /// with its new like from then on.
    async fn place(
        self: &Arc<Self>,
        class: &mut ClassWatch,
        deadline: RunInstant,
    ) -> Result<(SemaphorePermit<'_>, Link), PeerError> {
        loop {
            let channel = Channel::of(class.current());
            let placed = async {
                let slot = self.slot(channel, deadline).await?;
                Ok((slot, self.link(channel, deadline).await?))
            };
            let moved = async {
                while Channel::of(class.current()) == channel {
                    class.changed().await;
                }
            };
            tokio::select! {
                biased;
                placed = placed => return placed,
                () = moved => {}
            }
        }
    }

    /// Waits for one of the peer's slots, among a bounded number of others.
    async fn slot(
        &self,
        channel: Channel,
        deadline: RunInstant,
    ) -> Result<SemaphorePermit<'_>, PeerError> {
        let slot = self.slots[channel.index()].take(self.limits().waiting_max);
        match self.clock().timeout_at(deadline, slot).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(NoSlot::Busy(waiting))) => {
                Err(PeerError::Busy { address: self.address.clone(), waiting })
            }
            Ok(Err(NoSlot::Closed)) => Err(PeerError::Shutdown),
            Err(_) => Err(self.too_late()),
        }
    }

    /// Returns the least busy connection of a channel, or waits for the one that is being made.
    async fn link(
        self: &Arc<Self>,
        channel: Channel,
        deadline: RunInstant,
    ) -> Result<Link, PeerError> {
        let mut waited = false;
        loop {
            let changed = self.pool_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before the look at the pool, so that no change is missed
            if let Some(link) = self.look(channel, waited)? {
                return Ok(link);
            }
            self.clock().timeout_at(deadline, changed).await.map_err(|_| self.too_late())?;
            waited = true;
        }
    }

    /// Returns a connection if there is one, else starts to make one if that is allowed.
    fn look(self: &Arc<Self>, channel: Channel, waited: bool) -> Result<Option<Link>, PeerError> {
        let now = self.clock().now();
        let mut pool = self.pool.lock();
        match pool.look(channel, self.limits(), &self.rules, (now, waited)) {
            Look::Use { link, connect } => {
                if connect {
                    self.start_connecting(channel, pool);
                }
                Ok(Some(link))
            }
            Look::Wait => Ok(None),
            Look::Connect => {
                self.start_connecting(channel, pool);
                Ok(None)
            }
            Look::Down(retry_in) => Err(self.down(&pool, retry_in)),
            Look::Closed => Err(PeerError::Shutdown),
        }
    }

    fn down(&self, pool: &Pool, retry_in: Duration) -> PeerError {
        let cause = pool.cause().cloned().unwrap_or_else(|| PeerError::Disconnected {
            address: self.address.clone(),
            reason: CloseReason::Io,
        });
        if matches!(cause, PeerError::Refused { .. }) {
            // It is there and has no room: not down, whoever judges it.
            return cause;
        }
        PeerError::Down { address: self.address.clone(), retry_in, cause: Box::new(cause) }
    }

    fn start_connecting(self: &Arc<Self>, channel: Channel, mut pool: MutexGuard<'_, Pool>) {
        pool.begin(channel);
        let attempt = Attempt { peer: Arc::clone(self), channel, is_settled: false };
        // Without the lock: a runtime that goes down drops the task at once, and the attempt takes it.
        drop(pool);
        // A task of its own: the connection must come about when the fetch that wanted it is dropped.
        tokio::spawn(async move {
            let outcome = attempt.peer.connect().await;
            if let Some(connection) = attempt.settle(outcome) {
                connection.run().await;
            }
        });
    }

    async fn connect(&self) -> Result<Greeted, PeerError> {
        let target = Target {
            address: &self.address,
            socket: self.socket,
            host_name: self.client.host_name(&self.address),
            identity: self.client.tls.as_ref().map(|files| files.current()),
            requests_in_flight_max: self.limits().requests_in_flight_max,
        };
        let limit = self.limits().connect_timeout;
        self.clock().timeout(limit, target.connect()).await.unwrap_or_else(|_| {
            let text = format!("no connection within {} ms", limit.as_millis());
            let cause = Arc::new(std::io::Error::new(std::io::ErrorKind::TimedOut, text));
            Err(PeerError::Connect { address: self.address.clone(), cause })
        })
    }

    /// Notes how an attempt ended; returns the connection that its task shall run.
    fn connected(
        self: &Arc<Self>,
        channel: Channel,
        outcome: Result<Greeted, PeerError>,
    ) -> Option<Connection> {
        let now = self.clock().now();
        let mut pool = self.pool.lock();
        pool.end(channel);
        let connection = match outcome {
            Ok(greeted) => {
                let (link, requests) = Link::new(channel);
                let status = Arc::clone(&link.status);
                pool.connected(link).map(|_| {
                    add(&self.counters.connects, 1);
                    Connection::new(Arc::clone(self), status, requests, greeted)
                })
            }
            Err(error) => {
                add(&self.counters.connect_failures, 1);
                self.note_failure(&mut pool, channel, now, error);
                None
            }
        };
        drop(pool);
        self.pool_changed.notify_waiters();
        connection
    }

    fn note_failure(&self, pool: &mut Pool, channel: Channel, now: RunInstant, error: PeerError) {
        let text = error.to_string();
        if pool.failed(channel, &self.rules, now, error) {
            tracing::info!(error = text, "peer is down");
        }
    }

    /// Takes a connection out of the pool: it is given to no further fetch.
    pub(super) fn retire(&self, status: &Arc<LinkStatus>) {
        self.pool.lock().remove(status);
    }

    /// Notes the end of a connection.
    pub(super) fn connection_ended(
        &self,
        status: &Arc<LinkStatus>,
        reason: CloseReason,
        was_of_use: bool,
    ) {
        let is_failure = !reason.is_orderly() || (reason == CloseReason::PeerClosed && !was_of_use);
        self.take_out(status, reason, is_failure);
        tracing::debug!(peer = self.address, %reason, "connection ended");
    }

    /// Notes that the task of a connection was dropped, or panicked: what ends so is not begun anew at
    /// once.
    pub(super) fn connection_dropped(&self, status: &Arc<LinkStatus>) {
        self.take_out(status, status.reason(), true);
    }

    fn take_out(&self, status: &Arc<LinkStatus>, reason: CloseReason, is_failure: bool) {
        self.client.closed.count(reason);
        let mut pool = self.pool.lock();
        pool.remove(status);
        if is_failure {
            let error = PeerError::Disconnected { address: self.address.clone(), reason };
            self.note_failure(&mut pool, status.channel(), self.clock().now(), error);
        }
    }

    pub(super) fn first_answer(&self) {
        self.pool.lock().answered();
    }

    /// Notes an answer to a fetch; `waited` is how long a guest waited for it, if one did.
    pub(super) fn answered(&self, waited: Option<Waited>, is_late: bool) {
        if let Some(waited) = waited {
            let mut latency = self.latency.lock();
            match waited {
                Waited::For(time) => latency.record(time),
                // It would have taken longer still. Shorter ones say nothing.
                Waited::InVain(time) if latency.p99().is_some_and(|p99| time > p99) => {
                    latency.record(time);
                }
                Waited::InVain(_) => {}
            }
        }
        if is_late {
            add(&self.counters.late_answers, 1);
        }
    }

    /// Notes the load that the peer told.
    pub(super) fn hear(&self, load: ToldLoad) {
        *self.told.lock() = Some(Told::new(load, self.clock().now()));
    }

    pub(super) fn told(&self) -> Option<Told> {
        *self.told.lock()
    }

    pub(super) fn latency_p99(&self) -> Option<Duration> {
        self.latency.lock().p99()
    }

    pub(super) fn breaker(&self) -> BreakerState {
        self.pool.lock().breaker()
    }

    /// Ends the peer: fetches that were sent get their answers, every other one fails.
    pub(super) fn close(&self) {
        self.pool.lock().close();
        self.slots.iter().for_each(Slots::close);
        self.pool_changed.notify_waiters();
    }

    pub(super) fn stats(&self) -> PeerStats {
        let (breaker, connections) = {
            let pool = self.pool.lock();
            (pool.breaker(), pool.connections())
        };
        PeerStats {
            address: self.address.clone(),
            breaker,
            connections,
            in_flight: self.slots.iter().map(Slots::taken).sum(),
            connects: get(&self.counters.connects),
            connect_failures: get(&self.counters.connect_failures),
            chunks: get(&self.counters.chunks),
            bytes: get(&self.counters.bytes),
            errors: self.counters.errors(),
            late_answers: get(&self.counters.late_answers),
            latency_p99: self.latency_p99(),
            told: self.told(),
        }
    }
}

/// Time that a guest waited for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Until the answer came.
    For(Duration),
    /// Until it gave up.
    InVain(Duration),
}

/// An attempt to connect. Dropped unsettled, by a panic of its task or with its runtime, it has failed.
struct Attempt {
    peer: Arc<Peer>,
    channel: Channel,
    is_settled: bool,
}

impl Attempt {
    /// Notes how it ended; returns the connection that its task shall run.
    fn settle(mut self, outcome: Result<Greeted, PeerError>) -> Option<Connection> {
        self.is_settled = true;
        self.peer.connected(self.channel, outcome)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_settled {
            let cause = Arc::new(std::io::Error::other("the attempt ended early"));
            let address = self.peer.address.clone();
            let outcome = Err(PeerError::Connect { address, cause });
            drop(self.peer.connected(self.channel, outcome));
        }
    }
}
