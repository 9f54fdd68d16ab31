//! Asking one source once.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{ChunkRequest, ClassWatch, PeerError, PeerStatus};
use acstor_runclock::RunInstant;
use acstor_selection::{is_silence, limits};
use acstor_types::{ErrorKind, RequestClass};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::fetch::flight::{Flight, FlightFailure, Obtained};
use crate::fetch::outcome::{OriginRefusal, PeerFetch, PeerSkip};
use crate::fetch::sources::{Sources, Want};
use crate::origin::origin_queue::{Lane, OriginAnswer, OriginFailure};
use crate::steering::peer_table::Peer;
use crate::steering::placement::Candidate;
use crate::steering::underway::Underway;
use crate::steering::{jitter, moment};
use crate::{OriginError, Tier};

/// A fetch as the estimates of its source see it: from the time on at which somebody waits for the chunk.
/// What nobody waits for gives way by design, and says nothing of the source.
struct Judged {
    started: RunInstant,
    underway: Underway,
}

/// Reason for which a source did not give the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptFailure {
    /// Ask the next one.
    Next,
    /// The peer has it not; ask the next one.
    Absent,
    /// The peer is well but its origin is not.
    PeersOriginFailed,
    /// The origin's answer.
    Origin(FlightFailure),
    /// Reason for which the origin was not called.
    OriginNotCalled(FlightFailure),
}

pub(crate) type AttemptResult = Result<Obtained, AttemptFailure>;

impl Sources {
    /// Fetches a chunk from a peer and verifies it; with `NO_HINT` only if it is on the peer's host.
    pub(crate) async fn attempt_peer(
        self: Arc<Self>,
        candidate: Candidate,
        want: Want,
        (tier, hint): (Tier, u64),
        flight: &Flight,
        deadline: RunInstant,
    ) -> AttemptResult {
        let peer = &candidate.peer;
        let class = flight.class();
        let background = match class.current() {
            RequestClass::Demand => None,
            RequestClass::Ahead => self.background(&peer.ahead_permits, flight, deadline).await,
            RequestClass::Preload => self.background(&peer.preload_permits, flight, deadline).await,
        };
        let Some(_permits) = self.permits(peer, &want, deadline).await else {
            self.metrics.peer_skips(PeerSkip::Busy, 1);
            return Err(AttemptFailure::Next);
        };
        let request = ChunkRequest {
            digest: want.digest,
            disk_id: want.disk,
            chunk_index: hint,
            chunk_size: want.chunk_size,
            accepts_compressed: self.steering.accepts_compressed(peer),
        };
        let (answer, judged) = self.ask_peer(&candidate, request, class, deadline).await;
        drop(background);
        // Before the fetch is timed, which is the younger news where somebody waited.
        if answer.is_ok()
            && let Some(told) = self.peers.told(&candidate.address)
        {
            self.steering.hear(peer, told);
        }
        let judged = judged.map(|judged| {
            if answer.is_ok() {
                judged.underway.answered();
            }
            (self.clock.since(judged.started), deadline.saturating_duration_since(judged.started))
        });
        match answer {
            Ok(bytes) => {
                self.verify_peer(&candidate, &want, tier, bytes, judged.map(|(time, _)| time))
            }
            Err(error) => Err(self.peer_failed(&candidate, &error, judged)),
        }
    }

    /// Asks a peer, in the class that the flight has at each moment; until `deadline`, or as long after it
    /// as a fetch takes at most where it was promoted on its way.
    async fn ask_peer(
        self: &Arc<Self>,
        candidate: &Candidate,
        request: ChunkRequest,
        mut class: ClassWatch,
        deadline: RunInstant,
    ) -> (Result<Bytes, PeerError>, Option<Judged>) {
        let judge = || {
            self.steering.hedge_budget.deposit();
            Judged { started: self.clock.now(), underway: self.steering.begin(&candidate.peer) }
        };
        let mut judged = class.current().is_demand().then(judge);
        let mut until = deadline;
        let latest = match judged.is_some() {
            true => deadline,
            false => deadline + self.config.peer_deadline,
        };
        let by = self.clock.wall(latest);
        let fetch = self.peers.fetch(&candidate.address, request, class.clone(), by);
        tokio::pin!(fetch);
        loop {
            tokio::select! {
                biased;
                answer = &mut fetch => return (answer, judged),
                class = class.changed(), if judged.is_none() => {
                    if class.is_demand() {
                        judged = Some(judge());
                        until = latest.min(self.clock.now() + self.config.peer_deadline);
                    }
                }
                () = self.clock.sleep_until(until) => {
                    let address = candidate.address.to_string();
                    return (Err(PeerError::Deadline { address }), judged);
                }
            }
        }
    }

    /// Asks an overloaded peer for a chunk that is had elsewhere, to see how long it takes now.
    pub(crate) async fn probe(self: Arc<Self>, candidate: Candidate, want: Want) {
        let peer = &candidate.peer;
        let Ok(_permit) = peer.permits.clone().try_acquire_owned() else { return };
        self.metrics.probed();
        let request = ChunkRequest {
            digest: want.digest,
            disk_id: want.disk,
            chunk_index: want.index,
            chunk_size: want.chunk_size,
            accepts_compressed: self.steering.accepts_compressed(peer),
        };
        let deadline = self.clock.now() + self.config.peer_deadline;
        let started = self.clock.now();
        let underway = self.steering.begin(peer);
        let (class, by) = (ClassWatch::DEMAND, self.clock.wall(deadline));
        let fetch = self.peers.fetch(&candidate.address, request, class, by);
        if let Ok(Ok(bytes)) = self.clock.timeout_at(deadline, fetch).await
            && want.digest.matches(&bytes)
        {
            underway.answered();
            self.steering.note_probe(peer, self.clock.since(started));
        }
    }

    /// Takes one of the peer's permits and one of the disk's share of them.
    async fn permits(
        &self,
        peer: &Peer,
        want: &Want,
        deadline: RunInstant,
    ) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let share = peer.disk_share(want.disk);
        let share = self.clock.timeout_at(deadline, share.acquire_owned()).await.ok()?.ok()?;
        let permits = peer.permits.clone();
        let permit = self.clock.timeout_at(deadline, permits.acquire_owned()).await.ok()?.ok()?;
        Some((permit, share))
    }

    /// Takes one of the permits of those for whom nobody waits; none once somebody waits for the chunk, who
    /// then need not wait behind its like, or when none is to be had in time.
    async fn background(
        &self,
        permits: &Arc<Semaphore>,
        flight: &Flight,
        deadline: RunInstant,
    ) -> Option<OwnedSemaphorePermit> {
        let permit = self.clock.timeout_at(deadline, permits.clone().acquire_owned());
        tokio::select! {
            permit = permit => permit.ok()?.ok(),
            () = flight.demanded() => None,
        }
    }

    fn verify_peer(
        &self,
        candidate: &Candidate,
        want: &Want,
        tier: Tier,
        bytes: Bytes,
        time: Option<Duration>,
    ) -> AttemptResult {
        let peer = &candidate.peer;
        if bytes.len() != want.chunk_size.bytes() || !want.digest.matches(&bytes) {
            peer.health().corrupt(self.config.lie_penalty, moment(self.clock.now()));
            self.metrics.peer_fetch(PeerFetch::Corrupt);
            tracing::error!(
                peer = &*peer.name, digest = %want.digest,
                "peer sent wrong content and is not asked for a while: check its disk and memory"
            );
            return Err(AttemptFailure::Next);
        }
        if let Some(time) = time {
            peer.health().answered(time, moment(self.clock.now()));
        }
        self.metrics.peer_fetched(bytes.len(), time);
        if time.is_some() && self.steering.keeps(peer) {
            // Lest it be fetched from there a second time.
            self.metrics.kept_slow();
            self.chunks.insert(want.digest, bytes.clone());
        }
        Ok(Obtained { bytes, tier, peer: Some(peer.name.clone()) })
    }

    /// Notes the failure of a fetch; `judged`: the time since somebody waited for it and the time that it
    /// had from then on, where somebody did.
    fn peer_failed(
        &self,
        candidate: &Candidate,
        error: &PeerError,
        judged: Option<(Duration, Duration)>,
    ) -> AttemptFailure {
        let peer = &candidate.peer;
        if let Some((time, allowed)) = judged {
            self.blame(peer, error, time, allowed);
        }
        let (outcome, failure) = match error {
            PeerError::Refused { status, .. } => refusal(*status),
            // This host's own bound on what it asks of the peer.
            PeerError::Busy { .. } => (PeerFetch::Refused, AttemptFailure::Next),
            PeerError::Corrupt { .. } => {
                peer.health().corrupt(self.config.lie_penalty, moment(self.clock.now()));
                tracing::error!("{error}; it is not asked for a while");
                (PeerFetch::Corrupt, AttemptFailure::Next)
            }
            PeerError::Deadline { .. } => (PeerFetch::Timeout, AttemptFailure::Next),
            error if error.kind() == ErrorKind::Unavailable => {
                (PeerFetch::Dead, AttemptFailure::Next)
            }
            _ => (PeerFetch::Rejected, AttemptFailure::Next),
        };
        self.metrics.peer_fetch(outcome);
        tracing::debug!(peer = &*peer.name, "fetch failed: {error}");
        failure
    }

    /// Tells a peer's breaker and estimates of a failure for which somebody waited.
    fn blame(&self, peer: &Peer, error: &PeerError, time: Duration, allowed: Duration) {
        let now = moment(self.clock.now());
        match error {
            PeerError::Refused { .. } => peer.health().refused(),
            PeerError::Busy { .. } | PeerError::Corrupt { .. } => {}
            // A fetch that the read's own deadline cut short says nothing of the peer.
            PeerError::Deadline { .. } => {
                if is_silence(time, allowed, self.config.peer_deadline) {
                    peer.health().timed_out(time, now, jitter());
                }
            }
            error if error.kind() == ErrorKind::Unavailable => {
                peer.health().unreachable(time, now, jitter());
            }
            _ => peer.health().failed(now, jitter()),
        }
    }

    /// Reads a chunk from the origin; `first`: it was asked for already.
    pub(crate) async fn attempt_origin(
        self: Arc<Self>,
        want: Want,
        (lane, mut class): (Lane, ClassWatch),
        first: Option<oneshot::Receiver<OriginAnswer>>,
    ) -> AttemptResult {
        let receiver = first.unwrap_or_else(|| self.request_origin(&want, lane));
        let answers = self.origin.queue().health.answers();
        // What waits behind others in its lane says nothing of the origin.
        let mut underway = (lane == Lane::Demand).then(|| self.steering.begin_origin());
        let answer = self.clock.timeout(self.config.origin_deadline, receiver);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                class = class.changed(), if underway.is_none() => {
                    underway = class.is_demand().then(|| self.steering.begin_origin());
                }
            }
        };
        let failure = match answer {
            Ok(Ok(Ok(bytes))) => {
                if let Some(underway) = underway {
                    underway.answered();
                }
                self.steering.retry_budget.earn(limits::RETRY_PER_SUCCESS);
                return Ok(Obtained { bytes, tier: Tier::Origin, peer: None });
            }
            Ok(Ok(Err(failure))) => self.origin_failed(failure),
            Ok(Err(_)) => AttemptFailure::OriginNotCalled(FlightFailure::Stopped),
            Err(_) => {
                self.metrics.origin_refused(OriginRefusal::Timeout);
                self.origin_timed_out(&want, lane, answers)
            }
        };
        Err(failure)
    }

    /// Notes that a chunk did not come in time. What waited for its turn while others were answered
    /// says nothing of the origin, and what waited in a lane that gives way to others never does.
    fn origin_timed_out(&self, want: &Want, lane: Lane, answers_before: u64) -> AttemptFailure {
        let queue = self.origin.queue();
        let was_called = queue.is_underway(&want.digest, want.place);
        let is_silent = lane == Lane::Demand && queue.health.answers() == answers_before;
        if was_called || is_silent {
            queue.health.failed(Instant::now());
        }
        match was_called {
            true => AttemptFailure::Origin(FlightFailure::Unavailable),
            false => AttemptFailure::OriginNotCalled(FlightFailure::Overloaded),
        }
    }

    fn origin_failed(&self, failure: OriginFailure) -> AttemptFailure {
        match failure {
            OriginFailure::Source(error) => AttemptFailure::Origin(match error {
                OriginError::NotFound { .. } => FlightFailure::Missing,
                OriginError::ShortRead { .. } | OriginError::DamagedMove { .. } => {
                    FlightFailure::Corrupt
                }
                OriginError::Overloaded(_) => FlightFailure::Overloaded,
                OriginError::Undecided { .. }
                | OriginError::Unavailable { .. }
                | OriginError::Internal(_) => FlightFailure::Unavailable,
            }),
            OriginFailure::Corrupt => AttemptFailure::Origin(FlightFailure::Corrupt),
            OriginFailure::Down => {
                self.metrics.origin_refused(OriginRefusal::Down);
                AttemptFailure::OriginNotCalled(FlightFailure::Unavailable)
            }
            OriginFailure::Full => {
                self.metrics.origin_refused(OriginRefusal::Full);
                AttemptFailure::OriginNotCalled(FlightFailure::Overloaded)
            }
            OriginFailure::Stopped => AttemptFailure::OriginNotCalled(FlightFailure::Stopped),
        }
    }
}

fn refusal(status: PeerStatus) -> (PeerFetch, AttemptFailure) {
    match status {
        PeerStatus::Overloaded | PeerStatus::ShuttingDown => {
            (PeerFetch::Refused, AttemptFailure::Next)
        }
        PeerStatus::NotFound => (PeerFetch::NotFound, AttemptFailure::Absent),
        PeerStatus::Unavailable | PeerStatus::Expired => {
            (PeerFetch::Unavailable, AttemptFailure::PeersOriginFailed)
        }
        _ => (PeerFetch::Rejected, AttemptFailure::Next),
    }
}
