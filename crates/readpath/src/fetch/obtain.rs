//! Driving a flight: rounds of sources, with retries for guests, until the deadline.
//!
//! Retries happen here and nowhere else. A peer's request gets one round: the peer's own read path
//! decides what to do next, so that attempts do not multiply from host to host.

use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_selection::Backoff;
use acstor_types::RequestClass;
use tokio::sync::oneshot;

use crate::fetch::flight::{Flight, FlightFailure, FlightGuard, JoinOrStart, Obtained, Priority};
use crate::fetch::outcome::{Join, PeerSkip, Retry};
use crate::fetch::round::RoundFailure;
use crate::fetch::sources::{Sources, Want};
use crate::limits;
use crate::origin::origin_queue::{Lane, OriginAnswer};
use crate::origin::stored_place::StoredPlace;
use crate::steering::jitter;
use crate::steering::placement::Plan;
use crate::view::disk::Disk;

impl Priority {
    fn join(self) -> Join {
        match self {
            Priority::Prefetch => Join::Prefetch,
            Priority::Ahead => Join::Ahead,
            Priority::Preload => Join::Preload,
            Priority::PeerPreload | Priority::PeerAhead | Priority::Peer => Join::Peer,
            Priority::Guest => Join::Guest,
        }
    }

    pub(crate) fn lane(self) -> Lane {
        match self.class() {
            RequestClass::Ahead => Lane::Prefetch,
            RequestClass::Preload => Lane::Preload,
            RequestClass::Demand => Lane::Demand,
        }
    }
}

impl Sources {
    /// Joins the effort to obtain a chunk, or starts one. Does not wait.
    pub(crate) fn obtain(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
        want: &Want,
        priority: Priority,
        deadline: RunInstant,
    ) -> Arc<Flight> {
        let flight = match self.flights.join_or_start(&want.digest, priority, deadline) {
            JoinOrStart::Joined(flight) => {
                flight.add_place(disk, want);
                self.metrics.joined(priority.join());
                return flight;
            }
            JoinOrStart::Leader(flight) => flight,
        };
        flight.add_place(disk, want);
        let guard = FlightGuard { table: self.flights.clone(), flight: flight.clone() };
        // The chunk may have come between the caller's look and the boarding.
        if let Some((bytes, tier)) = self.chunks.local_bytes(&want.digest) {
            self.flights.finish(&flight, Ok(Obtained { bytes, tier, peer: None }));
            return flight;
        }
        self.steering.retry_budget.deposit();
        let mut plan = self.plan(want, priority);
        if let Some(peer) = plan.probe.take() {
            self.runtime.spawn(self.clone().probe(peer, *want));
        }
        let recoveries = self.origin.queue().health.recoveries();
        // Asked for here and not in the task, so that the misses of one read are gathered.
        let first = plan.starts_at_origin().then(|| self.request_origin(want, priority.lane()));
        let (first, plan) = ((first, recoveries), (plan, priority));
        let sources = self.clone();
        let want = *want;
        self.runtime.spawn(async move { sources.drive(guard, want, plan, first).await });
        flight
    }

    pub(crate) fn request_origin(
        &self,
        want: &Want,
        lane: Lane,
    ) -> oneshot::Receiver<OriginAnswer> {
        self.origin.request(want, lane)
    }

    /// Returns the sources of one round on behalf of `priority`, in order; the origin comes last
    /// for all but guesses.
    fn plan(&self, want: &Want, priority: Priority) -> Plan {
        let mut plan = self.steering.plan(want.oid, priority);
        match priority {
            Priority::Guest | Priority::Preload => {
                self.metrics.peer_skips(PeerSkip::Distance, u64::from(plan.too_far));
            }
            // A peer is never sent on to another peer.
            Priority::PeerPreload | Priority::PeerAhead | Priority::Peer => plan.peers.clear(),
            // A guess is worth one attempt, and no read of the origin for a chunk of another host.
            Priority::Prefetch | Priority::Ahead => {
                plan.peers.truncate(usize::from(plan.alternate.is_none()));
                plan.is_origin_left_out = !plan.peers.is_empty() || plan.alternate.is_some();
                plan.passed.clear();
            }
        }
        if priority == Priority::Ahead
            && plan.alternate.is_none()
            && let Some(owner) = plan.peers.first()
        {
            plan.alternate = self.exchange.holder(self, want, owner);
        }
        plan
    }

    async fn drive(
        self: Arc<Self>,
        guard: FlightGuard,
        want: Want,
        (plan, planned_for): (Plan, Priority),
        (first, recoveries): (Option<oneshot::Receiver<OriginAnswer>>, u64),
    ) {
        let flight = &guard.flight;
        let (mut plan, mut first) = (Some((plan, planned_for)), first);
        let mut attempts = Attempts::new(want, recoveries);
        loop {
            let priority = flight.demand().priority;
            // Somebody with a greater right may have joined since the plan was made.
            let round_plan = match plan.take() {
                Some((plan, planned_for)) if planned_for == priority => plan,
                Some(_) => {
                    self.origin.promote(&want.digest, priority.lane());
                    self.plan(&attempts.want, priority)
                }
                None => self.plan(&attempts.want, priority),
            };
            let want = attempts.want;
            let round = match self.round(flight, &want, priority, round_plan, first.take()).await {
                Ok(obtained) => {
                    // Kept before the flight ends: whoever misses it then finds the chunk.
                    self.chunks.note_obtained(want.digest, &obtained, flight.demand().priority);
                    self.flights.finish(flight, Ok(obtained));
                    return;
                }
                Err(round) => round,
            };
            attempts.note(flight, round);
            self.renew_places(flight, &attempts).await;
            if self.has_ended(flight, &attempts, round.failure) {
                return;
            }
            // Whoever joined with a greater right to the chunk gets a full round at once.
            let goes_on =
                flight.demand().priority != priority || round.failure == FlightFailure::Deadline;
            if !goes_on && !attempts.goes_elsewhere(flight) {
                self.pause(flight, &mut attempts).await;
            }
            if let Some(obtained) = self.look_again(flight) {
                self.flights.finish(flight, Ok(obtained));
                return;
            }
            attempts.begin(flight, self.origin.queue().health.recoveries());
        }
    }

    /// Ends the flight unless another round may bring the chunk and somebody waits for that.
    fn has_ended(&self, flight: &Flight, attempts: &Attempts, failure: FlightFailure) -> bool {
        let now = self.clock.now();
        let may_pass = failure.may_pass()
            || (failure == FlightFailure::Corrupt
                && (attempts.corrupt < limits::CORRUPT_ATTEMPTS_MAX
                    || attempts.goes_elsewhere(flight)));
        let is_late = now >= flight.demand().deadline;
        let reported = if is_late { flight.verdict() } else { failure };
        self.flights.finish_if(flight, reported, |demand| {
            let is_late = now >= demand.deadline;
            let was_extended = failure == FlightFailure::Deadline && !is_late;
            is_late || demand.priority != Priority::Guest || !(may_pass || was_extended)
        })
    }

    /// Reads again, where that needs this host's disk, what the manifests of this moment say of the places
    /// of a flight, once the chunk was not where it should be. Not for long: what is known is asked again
    /// while the disk hangs.
    async fn renew_places(&self, flight: &Flight, attempts: &Attempts) {
        if attempts.gone.is_empty() {
            return;
        }
        for (disk, index) in flight.unknown_places() {
            let demand = flight.demand();
            let soon = self.clock.now() + self.config.store_late_after;
            let (index, by) = (std::iter::once(index), soon.min(demand.deadline));
            let wants = self.wants(&disk, index, demand.priority, by).await;
            // What the manifest said before is as good as any where it cannot be read now.
            if let Ok([Some(want)]) = wants.as_deref() {
                flight.renew_place(&disk, want);
            }
        }
    }

    /// The chunk, where it has come another way since it was looked for: late, or for somebody else.
    fn look_again(&self, flight: &Flight) -> Option<Obtained> {
        let (bytes, tier) = self.chunks.local_bytes(&flight.digest)?;
        Some(Obtained { bytes, tier, peer: None })
    }

    /// Waits before the next round: with jitter, at most until the deadline; where the round before
    /// cost the origin a call, also until the budget allows another. The budget is there to spare an
    /// origin that fails: once it has come back, or is to be asked elsewhere, no token is needed. Ends
    /// early when the chunk has come another way.
    async fn pause(&self, flight: &Flight, attempts: &mut Attempts) {
        let health = &self.origin.queue().health;
        loop {
            let wait = attempts.next_wait();
            let deadline = flight.demand().deadline;
            let mut is_free = !attempts.is_paid;
            tokio::select! {
                () = self.clock.sleep_until((self.clock.now() + wait).min(deadline)) => {}
                () = health.recovered_since(attempts.recoveries) => {
                    is_free = true;
                    // Back to work soon after the origin is: spread, so as not to push it over.
                    let spread = Backoff::READ.delay(0, jitter());
                    self.clock.sleep_until((self.clock.now() + spread).min(deadline)).await;
                }
            }
            self.renew_places(flight, attempts).await;
            let now = self.clock.now();
            if now >= flight.demand().deadline || self.chunks.is_local(&flight.digest) {
                return;
            }
            if is_free
                || attempts.goes_elsewhere(flight)
                || self.steering.retry_budget.try_take(now)
            {
                self.metrics.retry(Retry::Allowed);
                return;
            }
            self.metrics.retry(Retry::Denied);
        }
    }
}

/// Attempts of a flight so far.
struct Attempts {
    /// Chunk that is asked for in this round, and its place.
    want: Want,
    /// Waits so far.
    waits: u32,
    /// Rounds so far, but for the one under way.
    rounds: usize,
    /// Rounds in which every source sent other content.
    corrupt: u32,
    /// True if the last round cost the origin a call.
    is_paid: bool,
    /// True if the origin did not have the chunk in the last round.
    is_missing: bool,
    /// Places in the origin where the chunk was found not to be, or not whole.
    gone: Vec<StoredPlace>,
    /// Recoveries of the origin when the last round began.
    recoveries: u64,
}

impl Attempts {
    fn new(want: Want, recoveries: u64) -> Attempts {
        Attempts {
            want,
            waits: 0,
            rounds: 0,
            corrupt: 0,
            is_paid: false,
            is_missing: false,
            gone: Vec::new(),
            recoveries,
        }
    }

    /// Notes how a round ended.
    fn note(&mut self, flight: &Flight, round: RoundFailure) {
        self.is_paid = round.was_origin_called;
        self.corrupt += u32::from(round.failure == FlightFailure::Corrupt);
        self.is_missing = round.failure == FlightFailure::Missing;
        if matches!(round.failure, FlightFailure::Missing | FlightFailure::Corrupt) {
            self.gone.push(self.want.place);
            flight.note_verdict(Some(round.failure));
        } else if round.failure != FlightFailure::Deadline {
            flight.note_verdict(None);
        }
    }

    /// A place in the origin that the manifests of this moment name and where the chunk was not
    /// looked for in vain, once there is one where it was.
    fn news(&self, flight: &Flight) -> Option<Want> {
        if self.gone.is_empty() {
            return None;
        }
        flight.wants().into_iter().find(|want| !self.gone.contains(&want.place))
    }

    /// Returns whether there is such a place and the round that has just ended did not ask there: a
    /// place that was asked and does not answer is no reason to hurry.
    fn goes_elsewhere(&self, flight: &Flight) -> bool {
        self.news(flight).is_some_and(|news| news.place != self.want.place)
    }

    /// Begins a round: by the manifests of this moment, not by those of the flight's start.
    fn begin(&mut self, flight: &Flight, recoveries: u64) {
        self.recoveries = recoveries;
        self.rounds += 1;
        let wants = flight.wants();
        if let Some(want) = self.news(flight) {
            self.want = want;
        } else if !wants.is_empty() {
            self.want = wants[self.rounds % wants.len()];
        }
    }

    fn next_wait(&mut self) -> Duration {
        let backoff = if self.is_missing { Backoff::MISSING_CHUNK } else { Backoff::READ };
        self.waits += 1;
        backoff.delay(self.waits - 1, jitter())
    }
}
