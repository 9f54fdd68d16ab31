//! One peer: its pool of connections, its slots, its health and its latency.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acstor_net::Shown;
use acstor_runclock::{RunClock, RunInstant};
use acstor_selection::{Backoff, BreakerRules, BreakerState, CircuitBreaker, Moment};
use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::time::Instant;

use super::ClientShared;
use super::buffers::BufferPool;
use super::connection::Connection;
use super::connector::{Greeted, Target};
use super::latency::LatencyHistogram;
use super::link::{Link, LinkStatus};
use super::pending::{Ask, Submission};
use super::stats::{PeerCounters, PeerStats, add, get};
use crate::compression::{self, WireChunk};
use crate::{ChunkRequest, ClassWatch, ClientLimits, CloseReason, PeerError, TlsFault};

/// Fetches on the least busy connection from which another connection is worth its cost.
const LOAD_FOR_ANOTHER: usize = 4;
/// Pause before another connection is tried after one failed while others work.
const ANOTHER_PAUSE: Duration = Duration::from_secs(1);

/// One peer.
pub(super) struct Peer {
    address: String,
    socket: SocketAddr,
    client: Arc<ClientShared>,
    rules: BreakerRules,
    slots: Semaphore,
    waiting: AtomicUsize,
    pool: Mutex<Pool>,
    /// Notified when the pool got a connection or an attempt failed.
    pool_changed: Notify,
    latency: Mutex<LatencyHistogram>,
    counters: PeerCounters,
}

struct Pool {
    breaker: CircuitBreaker,
    links: Vec<Link>,
    connecting: usize,
    another_after: Option<RunInstant>,
    /// Last failure.
    cause: Option<PeerError>,
    is_closed: bool,
}

fn moment(now: RunInstant) -> Moment {
    Moment::from_nanos(now.nanos())
}

/// Counts a fetch that waits for a slot.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    pub(super) fn new(address: &str, socket: SocketAddr, client: Arc<ClientShared>) -> Peer {
        let limits = &client.limits;
        let backoff = Backoff { min: limits.backoff_min, max: limits.backoff_max };
        Peer {
            address: address.to_owned(),
            socket,
            rules: BreakerRules::connection(backoff),
            slots: Semaphore::new(limits.requests_in_flight_max),
            waiting: AtomicUsize::new(0),
            pool: Mutex::new(Pool {
                breaker: CircuitBreaker::new(),
                links: Vec::new(),
                connecting: 0,
                another_after: None,
                cause: None,
                is_closed: false,
            }),
            pool_changed: Notify::new(),
            latency: Mutex::new(LatencyHistogram::new()),
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

    /// Fetches a chunk. Dropping the future frees its slot; its late answer is discarded.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        request: ChunkRequest,
        _class: ClassWatch,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        let outcome = match self.ask(Ask::Chunk(request), deadline).await {
            Ok(WireChunk::Plain(chunk)) => Ok(chunk),
            Ok(WireChunk::Compressed(body)) => self.decompress(&body, request.chunk_size.bytes()),
            Err(error) => Err(error),
        };
        self.counters.count_fetch(&outcome);
        outcome
    }

    /// Decompresses in the task of the fetch, so that it holds up no other answer of the connection.
    fn decompress(&self, body: &[u8], chunk_size: usize) -> Result<Bytes, PeerError> {
        let mut chunk = self.client.buffers.take(chunk_size);
        chunk.resize(chunk_size, 0);
        compression::decompress(body, &mut chunk)
            .map_err(|_| PeerError::Corrupt { address: self.address.clone() })?;
        self.client.count_compressed(chunk_size - body.len());
        Ok(self.client.buffers.share(chunk))
    }

    /// Asks which of some chunks the peer keeps, 1 to [`HOLDS_MAX`](crate::frame::HOLDS_MAX).
    pub(super) async fn holds(
        self: &Arc<Self>,
        digests: Arc<[Digest]>,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        match self.ask(Ask::Holds(digests), deadline).await? {
            WireChunk::Plain(held) => Ok(held),
            // Never: only a chunk may be answered so.
            WireChunk::Compressed(_) => Err(PeerError::Corrupt { address: self.address.clone() }),
        }
    }

    async fn ask(self: &Arc<Self>, ask: Ask, deadline: Instant) -> Result<WireChunk, PeerError> {
        let deadline = self.clock().from_wall(deadline);
        let _slot = self.slot(deadline).await?;
        let link = self.link(deadline).await?;
        let (reply, answer) = oneshot::channel();
        let submitted = self.clock().now();
        let _load = link.submit(Submission { ask, deadline, submitted, reply });
        match self.clock().timeout_at(deadline, answer).await {
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

    /// Waits for one of the peer's slots, among a bounded number of others.
    async fn slot(&self, deadline: RunInstant) -> Result<SemaphorePermit<'_>, PeerError> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if waiting >= self.limits().waiting_max {
            return Err(PeerError::Busy { address: self.address.clone(), waiting });
        }
        match self.clock().timeout_at(deadline, self.slots.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(PeerError::Shutdown),
            Err(_) => Err(self.too_late()),
        }
    }

    /// Returns the least busy connection, or waits for the one that is being made.
    async fn link(self: &Arc<Self>, deadline: RunInstant) -> Result<Link, PeerError> {
        let mut waited = false;
        loop {
            let changed = self.pool_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before the look at the pool, so that no change is missed
            if let Some(link) = self.look(waited)? {
                return Ok(link);
            }
            self.clock().timeout_at(deadline, changed).await.map_err(|_| self.too_late())?;
            waited = true;
        }
    }

    /// Returns a connection if there is one, else starts to make one if that is allowed.
    fn look(self: &Arc<Self>, waited: bool) -> Result<Option<Link>, PeerError> {
        let now = self.clock().now();
        let mut pool = self.pool.lock();
        if pool.is_closed {
            return Err(PeerError::Shutdown);
        }
        if let Some(link) = pool.links.iter().min_by_key(|link| link.status.load()).cloned() {
            let is_worth_it = link.status.load() >= LOAD_FOR_ANOTHER && self.may_add(&pool, now);
            if is_worth_it {
                self.start_connecting(pool);
            }
            return Ok(Some(link));
        }
        if pool.connecting > 0 && pool.breaker.is_closed() {
            return Ok(None);
        }
        let (moment, rules) = (moment(now), &self.rules);
        // Who waited for an attempt that failed gets its error rather than making the next one.
        let is_failed = waited && pool.breaker.state() == BreakerState::Open;
        // An attempt always ends, so it needs no time as a trial, and its end no jitter here.
        if !is_failed && pool.breaker.admit(rules, Duration::ZERO, moment, 0.0).is_granted() {
            self.start_connecting(pool);
            return Ok(None);
        }
        match pool.breaker.state() {
            BreakerState::HalfOpen if waited => Ok(None),
            _ => Err(self.down(&pool, pool.breaker.retry_in(moment))),
        }
    }

    fn down(&self, pool: &Pool, retry_in: Duration) -> PeerError {
        let cause = pool.cause.clone().unwrap_or_else(|| PeerError::Disconnected {
            address: self.address.clone(),
            reason: CloseReason::Io,
        });
        if matches!(cause, PeerError::Refused { .. }) {
            // It is there and has no room: not down, whoever judges it.
            return cause;
        }
        PeerError::Down { address: self.address.clone(), retry_in, cause: Box::new(cause) }
    }

    fn may_add(&self, pool: &Pool, now: RunInstant) -> bool {
        pool.connecting == 0
            && pool.links.len() < self.limits().connections_per_peer_max
            && pool.another_after.is_none_or(|at| now >= at)
    }

    fn start_connecting(self: &Arc<Self>, mut pool: MutexGuard<'_, Pool>) {
        pool.connecting += 1;
        let attempt = Attempt { peer: Arc::clone(self), is_settled: false };
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
    fn connected(self: &Arc<Self>, outcome: Result<Greeted, PeerError>) -> Option<Connection> {
        let now = self.clock().now();
        let mut pool = self.pool.lock();
        pool.connecting -= 1;
        let connection = match outcome {
            Ok(_) if pool.is_closed => None,
            Ok(greeted) => {
                add(&self.counters.connects, 1);
                let (link, submissions) = Link::new();
                let status = Arc::clone(&link.status);
                pool.links.push(link);
                // The failures are forgotten with an answer only: a peer that accepts and closes at once stays
                // in back-off.
                pool.breaker.close();
                Some(Connection::new(Arc::clone(self), status, submissions, greeted))
            }
            Err(error) => {
                add(&self.counters.connect_failures, 1);
                self.note_failure(&mut pool, now, error);
                None
            }
        };
        drop(pool);
        self.pool_changed.notify_waiters();
        connection
    }

    fn note_failure(&self, pool: &mut Pool, now: RunInstant, error: PeerError) {
        if !pool.links.is_empty() {
            pool.another_after = Some(now + ANOTHER_PAUSE);
            return;
        }
        if pool.breaker.state() != BreakerState::Open {
            tracing::info!(%error, "peer is down");
        }
        pool.cause = Some(error);
        pool.breaker.failed(&self.rules, moment(now), rand::random());
    }

    /// Takes a connection out of the pool: it is given to no further fetch.
    pub(super) fn retire(&self, status: &Arc<LinkStatus>) {
        self.pool.lock().links.retain(|link| !Arc::ptr_eq(&link.status, status));
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
        pool.links.retain(|link| !Arc::ptr_eq(&link.status, status));
        if is_failure && !pool.is_closed {
            let error = PeerError::Disconnected { address: self.address.clone(), reason };
            self.note_failure(&mut pool, self.clock().now(), error);
        }
    }

    pub(super) fn first_answer(&self) {
        self.pool.lock().breaker.forget_failures();
    }

    pub(super) fn answered(&self, latency: Duration, is_late: bool) {
        self.latency.lock().record(latency);
        if is_late {
            add(&self.counters.late_answers, 1);
        }
    }

    pub(super) fn latency_p99(&self) -> Option<Duration> {
        self.latency.lock().p99()
    }

    pub(super) fn breaker(&self) -> BreakerState {
        self.pool.lock().breaker.state()
    }

    /// Ends the peer: fetches that were sent get their answers, every other one fails.
    pub(super) fn close(&self) {
        let mut pool = self.pool.lock();
        pool.is_closed = true;
        pool.links.clear();
        drop(pool);
        self.slots.close();
        self.pool_changed.notify_waiters();
    }

    pub(super) fn stats(&self) -> PeerStats {
        let (breaker, connections) = {
            let pool = self.pool.lock();
            (pool.breaker.state(), pool.links.len())
        };
        let free = self.slots.available_permits();
        PeerStats {
            address: self.address.clone(),
            breaker,
            connections,
            in_flight: self.limits().requests_in_flight_max.saturating_sub(free),
            connects: get(&self.counters.connects),
            connect_failures: get(&self.counters.connect_failures),
            chunks: get(&self.counters.chunks),
            bytes: get(&self.counters.bytes),
            errors: self.counters.errors(),
            late_answers: get(&self.counters.late_answers),
            latency_p99: self.latency_p99(),
        }
    }
}

/// An attempt to connect. Dropped unsettled, by a panic of its task or with its runtime, it has failed.
struct Attempt {
    peer: Arc<Peer>,
    is_settled: bool,
}

impl Attempt {
    /// Notes how it ended; returns the connection that its task shall run.
    fn settle(mut self, outcome: Result<Greeted, PeerError>) -> Option<Connection> {
        self.is_settled = true;
        self.peer.connected(outcome)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_settled {
            let cause = Arc::new(std::io::Error::other("the attempt ended early"));
            let address = self.peer.address.clone();
            drop(self.peer.connected(Err(PeerError::Connect { address, cause })));
        }
    }
}
