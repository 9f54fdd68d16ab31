//! Obtaining one chunk: whom a host asks, in which order, and what it keeps.
//!
//! One flight per host and chunk, whoever waits; the owner before the last remaps, the peers that
//! come before this host on the ring, the origin; one hedge per round; a peer's request is passed
//! on to nobody but the owner before. Not modelled: preloads, prefetch of sequential reads, bounds on
//! what is in flight for those who wait.

use super::attempts::Kind;
use super::{Event, Simulation, Ticket};
use crate::choice::Order;
use crate::lines::{LINE, Line};
use crate::rules::Keep;
use crate::sender::Class;

/// Attempts of a flight that are counted; a probe, which nothing waits for, is one more.
pub(super) const RUNNING_MAX: usize = 3;
const BACKOFF_MIN: f64 = 0.05;
const BACKOFF_MAX: f64 = 2.0;

/// Hedges that a flight may still have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hedging {
    #[default]
    Possible,
    /// No more.
    Spent,
    /// Only when it is very late.
    Rescue,
}

/// Waiter for a flight: a machine, what fetches ahead for it, or another host's attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Machine(u32),
    /// The read-ahead of a machine, or the hints that its host follows.
    Ahead(u32),
    /// The attempt of another host's flight.
    Attempt(Ticket),
}

/// A chunk that a host is obtaining.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub(super) version: u32,
    pub(super) host: u32,
    pub(super) content: u32,
    pub(super) bytes: f64,
    pub(super) started: f64,
    /// True if a machine of this host waits.
    pub(super) is_wanted: bool,
    /// True if read-ahead of this host began it.
    pub(super) is_ahead: bool,
    pub(super) class: Class,
    /// True if this host owns the chunk.
    pub(super) is_owner: bool,
    pub(super) hedging: Hedging,
    probe: Option<u32>,
    round: u32,
    /// Sources of the round; `None` before it.
    plan: Option<Vec<(u32, Kind)>>,
    /// Number of sources of the plan that were asked or left out.
    next: usize,
    /// True if the round reads the origin in the place of peers.
    has_origin_leave: bool,
    pub(super) running: u32,
    /// The probe is the last.
    pub(super) attempts: [Option<u32>; RUNNING_MAX + 1],
    waiters: Vec<Waiter>,
}

impl Flight {
    pub(super) fn has_next(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| self.next < plan.len())
    }

    /// Takes the origin out of those who are still to be asked, if it is one.
    pub(super) fn take_origin(&mut self) -> Option<u32> {
        let next = self.next;
        let plan = self.plan.as_mut()?;
        let at = plan.iter().skip(next).position(|(_, kind)| *kind == Kind::Origin)?;
        Some(plan.remove(next + at).0)
    }

    /// Leaves out all that are still to be asked but the origin.
    pub(super) fn keep_only_origin(&mut self) {
        let origin = self.take_origin();
        if let Some(plan) = &mut self.plan {
            plan.truncate(self.next);
            plan.extend(origin.map(|origin| (origin, Kind::Origin)));
        }
    }
}

impl Simulation {
    /// Returns whether a host has a chunk, in its store, fetched ahead or obtained a moment ago.
    pub(super) fn is_local(&self, host: u32, content: u32) -> bool {
        if self.stores.has(host, content) || self.ahead.holds(self.cell(host, content)) {
            return true;
        }
        let obtained = self.obtained[self.cell(host, content)];
        obtained > 0 && self.obtained_count[host as usize] - obtained < self.rules.recent_chunks
    }

    /// Starts to obtain a chunk and returns the number of the flight.
    pub(super) fn new_flight(
        &mut self,
        host: u32,
        content: u32,
        (bytes, class): (f64, Class),
        now: f64,
    ) -> u32 {
        let number = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(Flight::default());
            self.flights.len() as u32 - 1
        });
        let flight = &mut self.flights[number as usize];
        *flight = Flight {
            version: flight.version,
            host,
            content,
            bytes,
            class,
            started: now,
            waiters: std::mem::take(&mut flight.waiters),
            ..Flight::default()
        };
        let ticket = Ticket { number, version: flight.version };
        if self.rules.is_cached {
            let cell = self.cell(host, content);
            self.flight_of[cell] = Some(number);
        }
        self.events.push(now, Event::Next(ticket));
        number
    }

    pub(super) fn await_by_machine(&mut self, flight: u32, machine: u32) {
        let flight = &mut self.flights[flight as usize];
        flight.waiters.push(Waiter::Machine(machine));
        flight.is_wanted = true;
    }

    pub(super) fn await_by(&mut self, flight: u32, waiter: Waiter) {
        self.flights[flight as usize].waiters.push(waiter);
    }

    pub(super) fn await_by_attempt(&mut self, flight: u32, attempt: u32) {
        let ticket = self.ticket(attempt);
        self.flights[flight as usize].waiters.push(Waiter::Attempt(ticket));
    }

    /// Asks the next source of a flight; without one repeats the round, or gives up.
    pub(super) fn ask_next(&mut self, number: u32, now: f64, is_hedge: bool) {
        if self.flights[number as usize].plan.is_none() {
            self.make_plan(number);
        }
        while let Some((source, kind)) = self.take_planned(number) {
            let deadline = self.deadline_of(number, kind, now);
            if kind != Kind::Origin && !self.admits(number, source, deadline, now) {
                continue;
            }
            self.start_attempt(number, source, (kind, is_hedge), deadline, now);
            let flight = &mut self.flights[number as usize];
            if let Some(probe) = flight.probe.take()
                && flight.attempts[RUNNING_MAX].is_none()
            {
                let deadline = self.rules.peer_deadline;
                self.start_attempt(number, probe, (Kind::Probe, false), deadline, now);
            }
            return;
        }
        let flight = &mut self.flights[number as usize];
        if flight.running > 0 {
            return;
        }
        if !flight.is_wanted || now - flight.started >= self.rules.read_deadline {
            self.release(number, now, false);
        } else {
            let wait = BACKOFF_MAX.min(BACKOFF_MIN * f64::from(1_u32 << flight.round.min(10)));
            flight.round += 1;
            flight.plan = None;
            self.give_leave_back(number);
            let flight = &self.flights[number as usize];
            let ticket = Ticket { number, version: flight.version };
            self.events.push(now + wait, Event::Next(ticket));
        }
    }

    /// Returns whether a flight may ask a peer. Read-ahead makes no trial of a peer that failed, as its
    /// fetches tell nothing.
    fn admits(&mut self, number: u32, source: u32, deadline: f64, now: f64) -> bool {
        let flight = &self.flights[number as usize];
        match flight.class {
            Class::Demand => self.choice.admit(flight.host, source, deadline, now),
            Class::Ahead => self.choice.is_well(flight.host, source),
        }
    }

    fn take_planned(&mut self, number: u32) -> Option<(u32, Kind)> {
        let flight = &mut self.flights[number as usize];
        let planned = flight.plan.as_ref()?.get(flight.next).copied()?;
        flight.next += 1;
        Some(planned)
    }

    /// Writes the sources of a round, first the one to ask first.
    fn make_plan(&mut self, number: u32) {
        let origin = self.origin();
        let flight = &self.flights[number as usize];
        let (host, content) = (flight.host, flight.content);
        let is_own = flight.is_wanted || flight.is_ahead;
        let mut plan = Vec::with_capacity(LINE);
        let mut probe = None;
        if self.rules.uses_peers {
            let line = self.lines.line(host, content);
            let is_owner = line[0] == Some(host);
            self.flights[number as usize].is_owner = is_owner;
            if is_owner {
                self.add_previous(&mut plan, host, content);
                plan.push((origin, Kind::Origin));
            } else if is_own {
                probe = self.add_peers(&mut plan, number, line);
            } else {
                plan.push((origin, Kind::Origin));
            }
        } else {
            plan.push((origin, Kind::Origin));
        }
        let flight = &mut self.flights[number as usize];
        flight.next = 0;
        flight.hedging = Hedging::Possible;
        flight.probe = probe;
        flight.plan = Some(plan);
    }

    /// Adds the peers before this host and the origin, in the order that their loads leave; returns
    /// who is to be probed.
    fn add_peers(&mut self, plan: &mut Vec<(u32, Kind)>, flight: u32, line: Line) -> Option<u32> {
        let host = self.flights[flight as usize].host;
        let before = line.iter().take(self.rules.candidates_max as usize).map_while(|one| *one);
        let peers: Vec<u32> = before.take_while(|one| *one != host).collect();
        let of = &self.flights[flight as usize];
        let is_guest = of.is_wanted || (of.is_ahead && self.rules.boot_time);
        let (rules, random) = (&self.rules, &mut self.random);
        let mut order = self.choice.order(rules, host, (&peers, is_guest), random, self.clock);
        if order.wants_origin() && !self.takes_leave(flight) {
            order = Order { is_own_link_slow: order.is_own_link_slow, ..Order::default() };
        }
        self.totals.slow_links += u64::from(order.is_own_link_slow);
        self.totals.bypasses += u64::from(order.is_bypass);
        self.totals.origin_first += u64::from(order.is_origin_first);
        if order.is_origin_first {
            plan.push((self.origin(), Kind::Origin));
        }
        plan.extend(order.alternate.map(|at| (peers[at], Kind::Alternate)));
        let is_passed = |at: usize| order.passed >> at & 1 == 1;
        let in_line = peers.iter().enumerate().filter(|(at, _)| !is_passed(*at));
        plan.extend(in_line.map(|(_, peer)| (*peer, Kind::Peer)));
        if !order.is_origin_first {
            plan.push((self.origin(), Kind::Origin));
        }
        let passed = peers.iter().enumerate().filter(|(at, _)| is_passed(*at));
        plan.extend(passed.map(|(_, peer)| (*peer, Kind::Peer)));
        self.totals.passed_over += u64::from(order.passed.count_ones());
        self.consult_oracle(flight, plan);
        order.probe.map(|at| peers[at])
    }

    /// Asks for leave to read the origin in the place of peers.
    fn takes_leave(&mut self, flight: u32) -> bool {
        let flight = &mut self.flights[flight as usize];
        let most = self.choice.origin_reads(flight.host, self.clock);
        let leaves = &mut self.origin_leaves[flight.host as usize];
        let may = (*leaves as usize) < most;
        *leaves += u32::from(may);
        flight.has_origin_leave = may;
        may
    }

    fn give_leave_back(&mut self, flight: u32) {
        let flight = &mut self.flights[flight as usize];
        let had = std::mem::take(&mut flight.has_origin_leave);
        self.origin_leaves[flight.host as usize] -= u32::from(had);
    }

    fn add_previous(&self, plan: &mut Vec<(u32, Kind)>, host: u32, content: u32) {
        let owners = self.lines.previous_owners(host, content);
        for owner in owners.take(self.rules.previous_rings as usize).flatten() {
            if owner != host && !plan.iter().any(|(known, _)| *known == owner) {
                plan.push((owner, Kind::Previous));
            }
        }
    }

    /// Keeps a chunk for a moment, and in the store where this host is to have it.
    ///
    /// `is_dear`: it cost a read of the origin or of a slow peer, or moved here with the ring.
    pub(super) fn keep(&mut self, number: u32, is_dear: bool) {
        let Flight { host, content, is_owner, is_wanted, is_ahead, .. } =
            self.flights[number as usize];
        let is_owner = !self.rules.uses_peers || is_owner;
        if is_owner && self.stores.holders(content) > 0 && self.rules.uses_peers {
            self.totals.remap_misses += 1;
        }
        if is_ahead && !is_wanted && !is_owner {
            let cell = self.cell(host, content);
            self.ahead.put(host, cell);
            return;
        }
        self.keep_read(host, content, is_owner || is_dear || !is_wanted);
    }

    /// Keeps a chunk that was read for a moment, and in the store if it must be there or came once
    /// before.
    pub(super) fn keep_read(&mut self, host: u32, content: u32, is_kept: bool) {
        let cell = self.cell(host, content);
        self.obtained_count[host as usize] += 1;
        self.obtained[cell] = self.obtained_count[host as usize];
        let mut is_kept = is_kept || self.rules.keep == Keep::Always;
        if self.rules.keep == Keep::SecondTouch && !is_kept {
            is_kept = std::mem::replace(&mut self.was_touched[cell], true);
        }
        if is_kept && !self.stores.has(host, content) {
            self.stores.put(host, content);
        }
    }

    /// Ends a flight and tells all who wait for it.
    pub(super) fn release(&mut self, number: u32, now: f64, is_obtained: bool) {
        if let Some(probe) = self.flights[number as usize].attempts[RUNNING_MAX] {
            self.choice.dropped(probe, now);
            self.remove_attempt(probe, now);
        }
        let content = self.flights[number as usize].content;
        let mut waiters = std::mem::take(&mut self.flights[number as usize].waiters);
        let mut ready = Vec::new();
        for waiter in waiters.drain(..).rev() {
            match waiter {
                Waiter::Machine(machine) => self.serve_machine(machine, now, is_obtained),
                Waiter::Ahead(machine) => self.came_ahead(machine, content, is_obtained, now),
                Waiter::Attempt(ticket) if is_obtained && self.rules.sender_answers > 0 => {
                    ready.push(ticket);
                }
                Waiter::Attempt(ticket) if self.is_current(ticket) => {
                    let event = if is_obtained { Event::Ready } else { Event::Refused };
                    self.events.push(now, event(ticket));
                }
                Waiter::Attempt(_) => {}
            }
        }
        self.queue_answers(ready.into_iter().rev(), now);
        self.give_leave_back(number);
        let flight = &mut self.flights[number as usize];
        flight.waiters = waiters;
        flight.version += 1;
        let cell =
            self.cell(self.flights[number as usize].host, self.flights[number as usize].content);
        if self.flight_of[cell] == Some(number) {
            self.flight_of[cell] = None;
        }
        self.free_flights.push(number);
    }
}
