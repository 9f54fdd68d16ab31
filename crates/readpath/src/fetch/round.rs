//! One round of a flight: the sources in line, a hedge where one is late, the first right answer.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use acstor_runclock::RunInstant;
use acstor_selection::peer_time;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::Tier;
use crate::fetch::attempt::{AttemptFailure, AttemptResult};
use crate::fetch::flight::{Demand, Flight, FlightFailure, Obtained, Priority};
use crate::fetch::outcome::{Hedge, PeerFetch, PeerSkip, Remapped};
use crate::fetch::sources::{Sources, Want};
use crate::origin::origin_queue::OriginAnswer;
use crate::steering::moment;
use crate::steering::peers::NO_HINT;
use crate::steering::placement::{Candidate, Plan};

/// A source that has not been asked yet.
#[derive(Debug)]
enum Next {
    Peer(Candidate),
    /// A peer, for what is on its own host.
    Alternate(Candidate),
    PreviousOwner(Candidate),
    Origin,
}

/// A source that is being asked.
struct Attempt {
    future: Pin<Box<dyn Future<Output = AttemptResult> + Send>>,
    /// The peer; `None`: the origin.
    peer: Option<Candidate>,
    tier: Tier,
    started: RunInstant,
    is_hedge: bool,
}

/// Hedges that may still be started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HedgeState {
    Possible,
    /// The share was used up: one more at the latest time for a hedge, whatever the share, lest the
    /// guest wait out the peer's deadline.
    Rescue,
    Spent,
}

/// Answers of the owners before this host about a chunk that it owns now.
#[derive(Clone, Copy)]
struct FormerOwners {
    count: usize,
    absent: usize,
}

struct Round<'a> {
    sources: &'a Arc<Sources>,
    flight: &'a Arc<Flight>,
    want: &'a Want,
    priority: Priority,
    next: VecDeque<Next>,
    running: Vec<Attempt>,
    first_origin: Option<oneshot::Receiver<OriginAnswer>>,
    was_origin_asked: bool,
    hedge: HedgeState,
    worst: RoundFailure,
    former: FormerOwners,
    /// Held while the round lasts, where the origin takes the place of an overloaded peer.
    _origin_permit: Option<OwnedSemaphorePermit>,
}

/// Reason for which a round brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundFailure {
    pub(crate) failure: FlightFailure,
    /// True if a call of the origin was spent on it; a refusal of this host's own breaker or queue
    /// costs the origin nothing.
    pub(crate) was_origin_called: bool,
}

impl RoundFailure {
    fn new(failure: FlightFailure) -> RoundFailure {
        RoundFailure { failure, was_origin_called: false }
    }
}

impl Sources {
    /// Asks the sources of `plan` until one gives the chunk; `first` is a request of the origin that
    /// was made already.
    pub(crate) async fn round(
        self: &Arc<Self>,
        flight: &Arc<Flight>,
        want: &Want,
        priority: Priority,
        plan: Plan,
        first: Option<oneshot::Receiver<OriginAnswer>>,
    ) -> Result<Obtained, RoundFailure> {
        let former = FormerOwners { count: plan.previous.len(), absent: 0 };
        let mut next = VecDeque::with_capacity(plan.peers.len() + plan.previous.len() + 3);
        next.extend(plan.previous.into_iter().map(Next::PreviousOwner));
        next.extend(plan.alternate.map(Next::Alternate));
        next.extend(plan.peers.into_iter().map(Next::Peer));
        if !plan.is_origin_left_out {
            next.push_back(Next::Origin);
        }
        next.extend(plan.passed.into_iter().map(Next::Peer));
        let may_hedge = self.config.hedge_enabled && priority.is_demand();
        let round = Round {
            sources: self,
            flight,
            want,
            priority,
            next,
            running: Vec::with_capacity(2),
            first_origin: first,
            was_origin_asked: false,
            hedge: if may_hedge { HedgeState::Possible } else { HedgeState::Spent },
            worst: RoundFailure::new(FlightFailure::Unavailable),
            former,
            _origin_permit: plan.origin_permit,
        };
        round.run().await
    }
}

impl Round<'_> {
    async fn run(mut self) -> Result<Obtained, RoundFailure> {
        loop {
            let demand = self.flight.demand();
            if self.now() >= demand.deadline {
                return Err(RoundFailure::new(FlightFailure::Deadline));
            }
            if demand.is_cancelled {
                return Err(RoundFailure::new(FlightFailure::Unavailable));
            }
            if !self.priority.is_demand() && demand.priority != self.priority {
                self.raise(demand.priority);
            }
            if self.running.is_empty() {
                let Some(next) = self.next.pop_front() else { return Err(self.worst) };
                self.start(next, &demand, false);
                continue;
            }
            if demand.origin_now {
                self.start_origin_beside_peer(&demand);
            }
            let hedge_at = self.hedge_at(&demand);
            let clock = &self.sources.clock;
            tokio::select! {
                biased;
                (position, result) = finished(&mut self.running) => {
                    let attempt = self.running.swap_remove(position);
                    if let Some(obtained) = self.conclude(attempt, result) {
                        return Ok(obtained);
                    }
                }
                () = clock.sleep_until(hedge_at.unwrap_or(demand.deadline)), if hedge_at.is_some() => {
                    self.start_hedge(&demand);
                }
                () = self.flight.changed() => {}
                () = clock.sleep_until(demand.deadline) => {}
            }
        }
    }

    fn now(&self) -> RunInstant {
        self.sources.clock.now()
    }

    fn start(&mut self, next: Next, demand: &Demand, is_hedge: bool) {
        let now = self.now();
        let sources = self.sources.clone();
        let want = *self.want;
        let attempt = match next {
            Next::Peer(candidate) => {
                self.peer_attempt(candidate, (Tier::Peer, self.want.index), demand, now)
            }
            Next::Alternate(candidate) => {
                self.peer_attempt(candidate, (Tier::Peer, NO_HINT), demand, now)
            }
            // The owner before the remap answers from its store only: it no longer reads for others.
            Next::PreviousOwner(candidate) => {
                self.peer_attempt(candidate, (Tier::PreviousOwner, NO_HINT), demand, now)
            }
            Next::Origin => {
                let first = self.first_origin.take();
                let asked = (demand.priority.lane(), self.flight.class());
                self.was_origin_asked = true;
                Some(Attempt {
                    future: Box::pin(
                        async move { sources.attempt_origin(want, asked, first).await },
                    ),
                    peer: None,
                    tier: Tier::Origin,
                    started: now,
                    is_hedge: false,
                })
            }
        };
        self.running.extend(attempt.map(|attempt| Attempt { is_hedge, ..attempt }));
    }

    fn peer_attempt(
        &self,
        candidate: Candidate,
        (tier, hint): (Tier, u64),
        demand: &Demand,
        now: RunInstant,
    ) -> Option<Attempt> {
        let left = demand.deadline.saturating_duration_since(now);
        let is_own_link_slow = self.sources.steering.is_own_link_slow();
        let peer_deadline = peer_time(is_own_link_slow, left, self.sources.config.peer_deadline);
        let is_admitted = match self.priority.is_demand() {
            true => candidate.peer.admit(peer_deadline, now),
            // A trial is for those who wait.
            false => candidate.peer.health().would_admit(peer_deadline, moment(now)),
        };
        if !is_admitted {
            self.sources.metrics.peer_skips(PeerSkip::Penalty, 1);
            return None;
        }
        let deadline = (now + peer_deadline).min(demand.deadline);
        let (sources, want) = (self.sources.clone(), *self.want);
        let (peer, flight) = (candidate.clone(), self.flight.clone());
        Some(Attempt {
            future: Box::pin(async move {
                sources.attempt_peer(candidate, want, (tier, hint), &flight, deadline).await
            }),
            peer: Some(peer),
            tier,
            started: now,
            is_hedge: false,
        })
    }

    /// Somebody wants now what was a guess, or waits for what was preloaded. Once somebody waits the
    /// attempts under way count from now on, and it may be hedged, by the origin too.
    fn raise(&mut self, priority: Priority) {
        self.priority = priority;
        self.sources.origin.promote(&self.want.digest, priority.lane());
        if priority.is_demand() {
            let now = self.now();
            self.running.iter_mut().for_each(|attempt| attempt.started = now);
            if self.sources.config.hedge_enabled {
                self.hedge = HedgeState::Possible;
            }
        }
        let asks_peers = self.running.iter().all(|attempt| attempt.peer.is_some());
        if !priority.is_guess() && asks_peers && self.next.is_empty() {
            self.next.push_back(Next::Origin);
        }
    }

    /// A peer waits for this flight, which waits for a peer: ask the origin too.
    fn start_origin_beside_peer(&mut self, demand: &Demand) {
        let asks_peer_only = self.running.iter().all(|attempt| attempt.tier == Tier::Peer);
        let origin = self.next.iter().position(|next| matches!(next, Next::Origin));
        match origin {
            Some(position) if asks_peer_only => {
                self.next.remove(position);
                self.start(Next::Origin, demand, false);
            }
            // It was left out for what was this host's own guess.
            None if asks_peer_only && self.priority.is_guess() && !self.was_origin_asked => {
                self.start(Next::Origin, demand, false);
            }
            _ => {}
        }
    }

    /// Returns the time at which the source that is being asked counts as late; `None` where no
    /// hedge may follow.
    fn hedge_at(&self, demand: &Demand) -> Option<RunInstant> {
        if self.hedge == HedgeState::Spent || self.next.is_empty() {
            return None;
        }
        let [Attempt { peer, started, .. }] = &self.running[..] else { return None };
        let peer = peer.as_ref().map(|candidate| &*candidate.peer);
        let is_rescue = self.hedge == HedgeState::Rescue;
        let allowed = demand.deadline.saturating_duration_since(*started);
        Some(*started + self.sources.steering.hedge_after(peer, is_rescue, allowed))
    }

    fn start_hedge(&mut self, demand: &Demand) {
        let is_own_link_slow = self.sources.steering.is_own_link_slow();
        if is_own_link_slow && self.hedge_at(demand).is_some_and(|at| self.now() < at) {
            return; // since it was to start
        }
        let is_rescue = is_own_link_slow || self.hedge == HedgeState::Rescue;
        if !is_rescue && !self.sources.steering.hedge_budget.try_take(self.now()) {
            self.sources.metrics.hedge(Hedge::Denied);
            self.hedge = HedgeState::Rescue;
            return;
        }
        self.hedge = HedgeState::Spent;
        while self.running.len() < 2 {
            let Some(next) = self.next.pop_front() else { return };
            self.start(next, demand, true);
        }
        self.sources.metrics.hedge(if is_rescue { Hedge::Rescued } else { Hedge::Started });
    }

    /// Counts where a chunk that another host owned before came from.
    fn note_remapped(&self, tier: Tier) {
        let FormerOwners { count, absent } = self.former;
        let outcome = match tier {
            Tier::PreviousOwner => Remapped::PreviousOwner,
            Tier::Origin if absent == count => Remapped::Cold,
            _ => Remapped::Origin,
        };
        if count > 0 {
            self.sources.metrics.remapped(outcome, self.want.chunk_size.bytes());
        }
    }

    fn conclude(&mut self, attempt: Attempt, result: AttemptResult) -> Option<Obtained> {
        match result {
            Ok(obtained) => {
                self.note_remapped(obtained.tier);
                if attempt.is_hedge {
                    self.sources.metrics.hedge(Hedge::Won);
                }
                let now = self.now();
                let is_demand = self.priority.is_demand();
                for loser in self.running.drain(..) {
                    if let Some(candidate) = loser.peer {
                        let time = now.saturating_duration_since(loser.started);
                        if is_demand {
                            candidate.peer.health().overtaken(time, moment(now));
                        }
                        self.sources.metrics.peer_fetch(PeerFetch::Overtaken);
                    }
                }
                return Some(obtained);
            }
            Err(AttemptFailure::Next) => {}
            Err(AttemptFailure::Absent) => {
                self.former.absent += usize::from(attempt.tier == Tier::PreviousOwner);
            }
            Err(AttemptFailure::PeersOriginFailed) => {
                // Its neighbours would ask the same origin: see for ourselves, once.
                self.next.retain(|next| matches!(next, Next::Origin));
            }
            Err(AttemptFailure::Origin(failure)) => {
                self.worst = RoundFailure { failure, was_origin_called: true };
            }
            Err(AttemptFailure::OriginNotCalled(failure)) => {
                self.worst = RoundFailure::new(failure);
            }
        }
        None
    }
}

/// Waits for the first attempt that ends; never polled without one.
async fn finished(running: &mut [Attempt]) -> (usize, AttemptResult) {
    poll_fn(|context| {
        for (position, attempt) in running.iter_mut().enumerate() {
            if let Poll::Ready(result) = attempt.future.as_mut().poll(context) {
                return Poll::Ready((position, result));
            }
        }
        Poll::Pending
    })
    .await
}
