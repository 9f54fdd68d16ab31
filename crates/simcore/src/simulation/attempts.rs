//! The sources that a flight asks, one after the other or beside each other.

use super::flights::{Hedging, RUNNING_MAX};
use super::{Event, Simulation, Ticket};
use crate::choice::Failure;
use crate::sender::Class;

/// Kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A peer that comes before this host in line.
    #[default]
    Peer,
    /// The owner in a ring before, which is asked for what it holds only.
    Previous,
    Origin,
    /// A peer that is asked for what it holds only; what it gives counts as a peer's.
    Alternate,
    /// A loaded peer that is asked beside all others, to see how long it takes now.
    Probe,
}

impl Kind {
    /// The tier of what came from it; 0 is the host's own.
    fn tier(self) -> usize {
        match self {
            Kind::Peer | Kind::Alternate | Kind::Probe => 1,
            Kind::Previous => 2,
            Kind::Origin => 3,
        }
    }
}

/// A source that a flight asks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempt {
    version: u32,
    pub(super) flight: u32,
    pub(super) source: u32,
    pub(super) kind: Kind,
    is_hedge: bool,
    pub(super) is_packed: bool,
    /// Time at which somebody began to wait for it.
    pub(super) started: f64,
    pub(super) hedge_at: f64,
    pub(super) until: f64,
    /// Its index in the list of attempts that have not ended.
    live_at: u32,
}

impl Simulation {
    pub(super) fn ticket(&self, attempt: u32) -> Ticket {
        Ticket { number: attempt, version: self.attempts[attempt as usize].version }
    }

    pub(super) fn is_current(&self, ticket: Ticket) -> bool {
        self.attempts[ticket.number as usize].version == ticket.version
    }

    pub(super) fn start_attempt(
        &mut self,
        flight: u32,
        source: u32,
        (kind, is_hedge): (Kind, bool),
        deadline: f64,
        now: f64,
    ) {
        let number = self.free_attempts.pop().unwrap_or_else(|| {
            self.attempts.push(Attempt::default());
            self.attempts.len() as u32 - 1
        });
        let of = &mut self.flights[flight as usize];
        let (host, class) = (of.host, of.class);
        if kind == Kind::Probe {
            of.attempts[RUNNING_MAX] = Some(number);
        } else {
            let free = of.attempts[..RUNNING_MAX].iter_mut().find(|one| one.is_none());
            if let Some(place) = free {
                *place = Some(number);
            }
            of.running += 1;
        }
        let reader_deadline = of.started + self.rules.read_deadline;
        let live_at = self.live.len() as u32;
        self.live.push(number);
        let mut latency = self.rules.origin_latency;
        let mut is_packed = false;
        if kind != Kind::Origin {
            if kind != Kind::Probe && class == Class::Demand {
                self.choice.earn_hedge(host);
            }
            let free = self.network.free_in(host).min(self.network.free_out(source));
            let chunk_time = self.rules.chunk_bytes / free.max(1.0);
            is_packed = self.choice.asks_packed(&self.rules, (host, source), chunk_time, now);
            self.totals.peer_fetches += 1;
            latency = self.rules.peer_latency;
            if is_packed {
                latency += self.rules.compress_latency;
            }
        }
        // What is fetched ahead waits by design: it tells nothing of its source, and is not hedged.
        let mut hedge_at = f64::INFINITY;
        if class == Class::Demand {
            self.choice.begin(number, host, source, now);
            let allowed = reader_deadline - now;
            hedge_at = now + self.choice.hedge_after(&self.rules, number, false, allowed, now);
        }
        if kind != Kind::Origin && !self.is_alive[source as usize] {
            latency = self.choice.silence(&self.rules, number, &mut self.random, now);
        }
        let version = self.attempts[number as usize].version;
        self.attempts[number as usize] = Attempt {
            version,
            flight,
            source,
            kind,
            is_hedge,
            is_packed,
            started: now,
            hedge_at,
            until: now + deadline,
            live_at,
        };
        if kind == Kind::Origin && self.rules.origin_reads > 0 {
            let class = self.class_of(flight);
            self.origin_lanes[host as usize].add(number, class);
            self.begin_origin_reads(host, now);
        } else {
            self.events.push(now + latency, Event::Answer(Ticket { number, version }));
        }
    }

    /// Returns the longest time that a source may take.
    pub(super) fn deadline_of(&mut self, flight: u32, kind: Kind, now: f64) -> f64 {
        if kind == Kind::Origin {
            return self.rules.origin_deadline;
        }
        let flight = &self.flights[flight as usize];
        if flight.class == Class::Ahead {
            return self.rules.read_deadline;
        }
        let left = (flight.started + self.rules.read_deadline - now).max(0.0);
        self.choice.peer_deadline(&self.rules, flight.host, left, now)
    }

    /// Lets a source begin to answer; returns whether it can send at once.
    pub(super) fn answer(&mut self, number: u32, now: f64) -> bool {
        let Attempt { source, kind, flight, .. } = self.attempts[number as usize];
        if kind == Kind::Origin {
            return true;
        }
        if !self.is_alive[source as usize] {
            self.answer_of_dead(number, now);
            return false;
        }
        let content = self.flights[flight as usize].content;
        if self.is_local(source, content) {
            self.stores.touch(source, content);
            return true;
        }
        if matches!(kind, Kind::Previous | Kind::Alternate) {
            self.fail(number, Failure::Refused, now);
            return false;
        }
        let class = self.class_of(flight);
        let own = match self.flight_of[self.cell(source, content)] {
            None => self.new_flight(source, content, (self.rules.chunk_bytes, class), now),
            Some(own) => {
                if class == Class::Demand {
                    self.promote(own, now);
                }
                if self.asks_only_peers(own) {
                    // It might wait for us in its turn: the origin is asked at once.
                    self.ask_origin(own, now);
                }
                own
            }
        };
        self.await_by_attempt(own, number);
        false
    }

    fn answer_of_dead(&mut self, number: u32, now: f64) {
        let wait = self.choice.silence(&self.rules, number, &mut self.random, now);
        if wait > 0.0 {
            // It was asked before it died.
            self.events.push(now + wait, Event::Answer(self.ticket(number)));
            return;
        }
        self.fail(number, Failure::Unreachable, now);
    }

    /// Asks the origin beside the peers that are being asked, if it was not asked yet.
    fn ask_origin(&mut self, flight: u32, now: f64) {
        if let Some(origin) = self.flights[flight as usize].take_origin() {
            let deadline = self.rules.origin_deadline;
            self.start_attempt(flight, origin, (Kind::Origin, false), deadline, now);
        }
    }

    fn asks_only_peers(&self, flight: u32) -> bool {
        let flight = &self.flights[flight as usize];
        let mut running = flight.attempts[..RUNNING_MAX].iter().flatten().peekable();
        let is_running = running.peek().is_some();
        let is_peer = |attempt: &u32| {
            matches!(self.attempts[*attempt as usize].kind, Kind::Peer | Kind::Alternate)
        };
        is_running && running.all(is_peer)
    }

    /// Ends an attempt that brought nothing; the next source follows unless another one runs.
    pub(super) fn fail(&mut self, number: u32, failure: Failure, now: f64) {
        let Attempt { flight, kind, started, until, .. } = self.attempts[number as usize];
        if kind == Kind::Probe {
            self.choice.dropped(number, now);
            self.remove_attempt(number, now);
            return;
        }
        let (allowed, random) = (until - started, &mut self.random);
        self.choice.failed(&self.rules, number, failure, allowed, random, now);
        self.remove_attempt(number, now);
        let of = &self.flights[flight as usize];
        if of.running == 0 {
            let ticket = Ticket { number: flight, version: of.version };
            self.events.push(now, Event::Next(ticket));
        }
    }

    /// Leaves out the peers of a flight of which an attempt has ended: it was refused since the
    /// source's own flight failed, and others would ask the same origin.
    pub(super) fn skip_peers_of(&mut self, number: u32) {
        let Attempt { flight, kind, .. } = self.attempts[number as usize];
        if kind != Kind::Probe {
            self.flights[flight as usize].keep_only_origin();
        }
    }

    /// Takes what an attempt brought: keeps it, and gives it to all who wait.
    pub(super) fn arrive(&mut self, number: u32, now: f64) {
        let attempt = self.attempts[number as usize];
        if attempt.kind == Kind::Probe {
            self.choice.answered_probe(number, now);
            self.remove_attempt(number, now);
            return;
        }
        self.totals.packed += u64::from(attempt.is_packed);
        let is_slow = self.choice.answered(&self.rules, number, now);
        if attempt.kind == Kind::Origin {
            self.count_origin(&attempt);
        }
        self.totals.hedges_won += u64::from(attempt.is_hedge);
        let flight = &self.flights[attempt.flight as usize];
        if flight.is_wanted {
            self.totals.tiers[attempt.kind.tier()][flight.host as usize] += flight.bytes;
        } else if flight.is_ahead && !flight.is_owner {
            self.totals.ahead_bytes += flight.bytes;
        }
        self.remove_attempt(number, now);
        for other in self.flights[attempt.flight as usize].attempts.into_iter().flatten() {
            if self.attempts[other as usize].kind == Kind::Probe {
                continue; // it ends with the flight
            }
            self.choice.overtaken(other, now);
            self.remove_attempt(other, now);
        }
        if self.rules.is_cached {
            self.keep(attempt.flight, is_slow || attempt.kind.tier() != Kind::Peer.tier());
        }
        self.release(attempt.flight, now, true);
    }

    fn count_origin(&mut self, attempt: &Attempt) {
        let flight = &self.flights[attempt.flight as usize];
        self.totals.origin_bytes += flight.bytes;
        if self.stores.holders(flight.content) == 0 {
            return;
        }
        self.totals.origin_again += flight.bytes;
        if attempt.is_hedge {
            self.totals.origin_again_hedge += flight.bytes;
        } else if flight.is_owner || !(flight.is_wanted || flight.is_ahead) {
            self.totals.origin_again_remap += flight.bytes;
        }
    }

    /// Forgets an attempt; what is queued for it is void from now on.
    pub(super) fn remove_attempt(&mut self, number: u32, now: f64) {
        self.network.stop(number, now);
        self.leave_queues(number, now);
        let attempt = &mut self.attempts[number as usize];
        attempt.version += 1;
        let (at, flight, kind) = (attempt.live_at, attempt.flight, attempt.kind);
        self.live.swap_remove(at as usize);
        if let Some(last) = self.live.get(at as usize) {
            self.attempts[*last as usize].live_at = at;
        }
        let flight = &mut self.flights[flight as usize];
        if kind != Kind::Probe {
            flight.running -= 1;
        }
        for place in &mut flight.attempts {
            if *place == Some(number) {
                *place = None;
            }
        }
        self.free_attempts.push(number);
    }

    /// Hedges what is late and gives up what is too late.
    pub(super) fn check_clocks(&mut self, now: f64) {
        let mut at = 0;
        while let Some(number) = self.live.get(at).copied() {
            let attempt = self.attempts[number as usize];
            if now >= attempt.until {
                self.totals.timeouts += 1;
                self.fail(number, Failure::TimedOut, now);
                continue; // another one is in its place
            }
            let may_hedge = self.rules.hedge_enabled && attempt.kind != Kind::Probe;
            if may_hedge && now >= attempt.hedge_at {
                self.hedge(number, now);
            }
            at += 1;
        }
    }

    /// Asks a second source beside one that is late, where the budget allows.
    fn hedge(&mut self, number: u32, now: f64) {
        let attempt = self.attempts[number as usize];
        let flight = &self.flights[attempt.flight as usize];
        let (host, hedging) = (flight.host, flight.hedging);
        if hedging == Hedging::Spent || flight.running != 1 || !flight.has_next() {
            return;
        }
        let allowed = flight.started + self.rules.read_deadline - attempt.started;
        let is_own_link_slow = self.choice.is_own_link_slow(&self.rules, host, now);
        let is_rescue = is_own_link_slow || hedging == Hedging::Rescue;
        if is_rescue {
            let wait = self.choice.hedge_after(&self.rules, number, true, allowed, now);
            self.attempts[number as usize].hedge_at = attempt.started + wait;
            if now < attempt.started + wait {
                return;
            }
        } else if !self.choice.take_hedge(host, now) {
            self.totals.hedges_denied += 1;
            self.flights[attempt.flight as usize].hedging = Hedging::Rescue;
            return;
        }
        self.flights[attempt.flight as usize].hedging = Hedging::Spent;
        self.totals.hedges += 1;
        self.ask_next(attempt.flight, now, true);
    }
}
