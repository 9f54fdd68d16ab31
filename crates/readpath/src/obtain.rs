//! Driving a flight: rounds of sources, with retries for guests, until the deadline.
//!
//! Retries happen here and nowhere else. A peer's request gets one round: the peer's own read path
//! decides what to do next, so that attempts do not multiply from host to host.

use std::sync::Arc;

use acstor_types::Oid;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::disk::Disk;
use crate::flight::{Boarding, Flight, FlightFailure, FlightGuard, Obtained, Side};
use crate::origin_queue::{Lane, OriginAnswer};
use crate::outcome::{Join, PeerSkip, Retry};
use crate::placement::Plan;
use crate::sources::{Sources, Want};
use crate::{jitter, limits};

impl Side {
    fn join(self) -> Join {
        match self {
            Side::Prefetch => Join::Prefetch,
            Side::Preload => Join::Preload,
            Side::Peer => Join::Peer,
            Side::Guest => Join::Guest,
        }
    }

    pub(crate) fn lane(self) -> Lane {
        match self {
            Side::Prefetch => Lane::Prefetch,
            Side::Preload => Lane::Preload,
            Side::Peer | Side::Guest => Lane::Demand,
        }
    }
}

impl Sources {
    /// Joins the effort to obtain a chunk, or starts one. Does not wait.
    pub(crate) fn obtain(
        self: &Arc<Self>,
        disk: &Disk,
        want: &Want,
        side: Side,
        deadline: Instant,
    ) -> Arc<Flight> {
        let flight = match self.flights.board(&want.digest, side, deadline) {
            Boarding::Joined(flight) => {
                self.metrics.joined(side.join());
                return flight;
            }
            Boarding::Lead(flight) => flight,
        };
        let guard = FlightGuard { table: self.flights.clone(), flight: flight.clone() };
        // The chunk may have come between the caller's look and the boarding.
        if self.is_local(&want.digest)
            && let Some((bytes, tier)) = self.local_bytes(&want.digest)
        {
            self.flights.finish(&flight, Ok(Obtained { bytes, tier, peer: None }));
            return flight;
        }
        self.retry_budget.deposit();
        let oid = self.placement.oid(&disk.manifest, want.index);
        let mut plan = self.plan(oid, side);
        if let Some(peer) = plan.probe.take() {
            self.runtime.spawn(self.clone().probe(peer, *want));
        }
        // Asked for here and not in the task, so that the misses of one read are gathered.
        let first = plan.starts_at_origin().then(|| self.request_origin(want, side.lane()));
        let sources = self.clone();
        let want = *want;
        self.runtime
            .spawn(async move { sources.drive(guard, want, oid, (plan, side), first).await });
        flight
    }

    pub(crate) fn request_origin(
        &self,
        want: &Want,
        lane: Lane,
    ) -> oneshot::Receiver<OriginAnswer> {
        self.origin.request(want.digest, want.location, want.chunk_size.bytes(), lane)
    }

    /// Who is asked in one round on behalf of `side`; the origin comes last for all but prefetches.
    fn plan(&self, oid: Oid, side: Side) -> Plan {
        let mut plan = self.placement.plan(oid, &self.peer_table);
        self.steer(&mut plan, side);
        match side {
            Side::Guest | Side::Preload => {
                self.metrics.peer_skips(PeerSkip::Distance, u64::from(plan.too_far));
            }
            // A peer is never sent on to another peer.
            Side::Peer => plan.peers.clear(),
            // A guess is worth one attempt, and no read of the origin for a chunk of another host.
            Side::Prefetch => {
                plan.peers.truncate(usize::from(plan.stand_in.is_none()));
                plan.is_origin_left_out = !plan.peers.is_empty() || plan.stand_in.is_some();
                plan.loaded.clear();
            }
        }
        plan
    }

    async fn drive(
        self: Arc<Self>,
        guard: FlightGuard,
        want: Want,
        oid: Oid,
        (plan, planned_for): (Plan, Side),
        first: Option<oneshot::Receiver<OriginAnswer>>,
    ) {
        let flight = &guard.flight;
        let (mut plan, mut first) = (Some((plan, planned_for)), first);
        let (mut retries, mut corrupt) = (0, 0);
        loop {
            let side = flight.wishes().side;
            // Somebody with a greater right may have joined since the plan was made.
            let round_plan = match plan.take() {
                Some((plan, planned_for)) if planned_for == side => plan,
                Some(_) => {
                    self.origin.promote(&want.digest);
                    self.plan(oid, side)
                }
                None => self.plan(oid, side),
            };
            let was_origin_called;
            let failure = match self.round(flight, &want, side, round_plan, first.take()).await {
                Ok(obtained) => {
                    // Kept before the flight ends: whoever misses it then finds the chunk.
                    self.keep(want.digest, &obtained, flight.wishes().side);
                    self.flights.finish(flight, Ok(obtained));
                    return;
                }
                Err(round) => {
                    was_origin_called = round.was_origin_called;
                    round.failure
                }
            };
            corrupt += u32::from(failure == FlightFailure::Corrupt);
            let now = Instant::now();
            let may_pass = failure.may_pass()
                || (failure == FlightFailure::Corrupt && corrupt < limits::CORRUPT_ATTEMPTS_MAX);
            let reported =
                if now >= flight.wishes().deadline { FlightFailure::Deadline } else { failure };
            let has_ended = self.flights.finish_if(flight, reported, |wishes| {
                let is_late = now >= wishes.deadline;
                let was_extended = failure == FlightFailure::Deadline && !is_late;
                is_late || wishes.side != Side::Guest || !(may_pass || was_extended)
            });
            if has_ended {
                return;
            }
            // Whoever joined with a greater right to the chunk gets a full round at once.
            if flight.wishes().side == side && failure != FlightFailure::Deadline {
                self.pause(flight, &mut retries, was_origin_called).await;
            }
        }
    }

    /// Waits before the next round: with jitter, at most until the deadline; where the round before
    /// cost the origin a call (`is_paid`), also until the budget allows another.
    async fn pause(&self, flight: &Flight, retries: &mut u32, is_paid: bool) {
        loop {
            let wait = jitter::backoff(*retries, limits::BACKOFF_MIN, limits::BACKOFF_MAX);
            *retries += 1;
            let until = (Instant::now() + wait).min(flight.wishes().deadline);
            let health = &self.origin.queue().health;
            if health.is_up() {
                sleep_until(until).await;
            } else {
                // Back to work soon after the origin is: spread, so as not to push it over.
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = health.recovered() => {
                        tokio::time::sleep(jitter::backoff(0, limits::BACKOFF_MIN, limits::BACKOFF_MAX)).await;
                    }
                }
            }
            let now = Instant::now();
            if now >= flight.wishes().deadline {
                return;
            }
            if !is_paid || self.retry_budget.try_take(now) {
                self.metrics.retry(Retry::Allowed);
                return;
            }
            self.metrics.retry(Retry::Denied);
        }
    }
}
