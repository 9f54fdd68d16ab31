//! A run: windows of time in which rates hold, and the events within them.
//!
//! Rates are computed exactly at the start of each window. A transfer that starts within a window
//! gets the share that its links had to give, and is in the next computation; one that ends within
//! it ends at its exact time. A window lasts at most the rules' `quantum`, and nothing is computed
//! while nothing moves: with a quantum of 0 the simulation is exact (every event ends a window),
//! with a few milliseconds it is many times faster and boot times differ by per mille.

mod ahead;
mod attempts;
mod classes;
mod exchange;
mod flights;
mod machines;
mod oracle;
mod outcome;
mod sending;

#[cfg(test)]
mod tests;

use acstor_ring::Ring;
use acstor_selection::BootProfileError;

use crate::choice::{Choice, Failure};
use crate::events::Queue;
use crate::lines::{Lines, UnknownHostError};
use crate::network::{ExtraTraffic, Network};
use crate::origin_lane::OriginLane;
use crate::programs::{Machine, Programs};
use crate::random::Random;
use crate::rules::Rules;
use crate::sender::Sender;
use crate::stores::{Stores, WALK_INTERVAL};
use crate::tree::Tree;
use ahead::Ahead;
use attempts::Attempt;
use exchange::Exchange;
use flights::Flight;
use outcome::Reporter;
pub use outcome::{Counters, Machines, Reports, Samples, Totals};

/// A flight or an attempt as it was when an event was queued for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    number: u32,
    version: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A machine opens its image.
    Open { machine: u32 },
    /// A machine's window orders more.
    FetchAhead { machine: u32 },
    /// The rendezvous host of an image hears of a miss.
    Learn { program: u32, content: u32 },
    /// A member of an image's hosts hears of misses.
    Hint { program: u32, position: u32, upto: u32 },
    /// The next operation of a machine begins.
    Operation { machine: u32 },
    /// An operation has all its chunks.
    OperationDone { machine: u32 },
    /// The next source of a flight is asked.
    Next(Ticket),
    /// The source of an attempt begins to answer.
    Answer(Ticket),
    /// It can send.
    Ready(Ticket),
    /// All bytes are there.
    Finish(Ticket),
    /// It cannot send.
    Refused(Ticket),
    /// Its source hears that somebody waits for the chunk now.
    Promoted(Ticket),
    /// Its turn ends: the rest is in the socket, or its receiver has held it up.
    TurnOver(Ticket),
    /// A host gives turns to answers that wait.
    Turns { host: u32 },
    /// A host begins reads of the origin that wait.
    OriginReads { host: u32 },
    /// A host uses another ring.
    Apply { host: u32, slot: u32 },
    /// A host's agent reports.
    Report { host: u32 },
    /// All hosts' traffic is noted.
    Sample,
    /// A host walks its store.
    Walk { host: u32 },
}

/// A data centre under way.
#[derive(Debug)]
pub struct Simulation {
    rules: Rules,
    clock: f64,
    random: Random,
    events: Queue<Event>,
    network: Network,
    stores: Stores,
    lines: Lines,
    choice: Choice,
    programs: Programs,
    machines: Vec<Machine>,
    is_alive: Vec<bool>,
    /// By host and content: when it was obtained, in chunks of the host; 0: never.
    obtained: Vec<u32>,
    /// By host and content: whether it came once and was not kept.
    was_touched: Vec<bool>,
    /// By host: chunks obtained.
    obtained_count: Vec<u32>,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    /// By host and content.
    flight_of: Vec<Option<u32>>,
    attempts: Vec<Attempt>,
    free_attempts: Vec<u32>,
    /// By host: rounds that read the origin in the place of peers.
    origin_leaves: Vec<u32>,
    /// By host.
    senders: Vec<Sender>,
    /// By host.
    origin_lanes: Vec<OriginLane>,
    ahead: Ahead,
    exchange: Exchange,
    /// Attempts that have not ended.
    live: Vec<u32>,
    reporters: Vec<Reporter>,
    samples: Samples,
    samples_max: usize,
    totals: Totals,
}

impl Simulation {
    /// Makes a data centre in which nothing has happened.
    ///
    /// `capacity` is how many chunks a store has room for, 0 without bounds; `samples_max` is how
    /// often all hosts' traffic is noted at most.
    ///
    /// # Errors
    ///
    /// When a program's profile is none.
    pub fn new(
        rules: Rules,
        tree: Tree,
        extra: ExtraTraffic,
        programs: Programs,
        capacity: u32,
        samples_max: usize,
        seed: u64,
    ) -> Result<Simulation, BootProfileError> {
        let hosts = tree.host_count();
        let contents = programs.placement.len();
        let cells = hosts as usize * contents;
        let exchange = Exchange::new(&programs, rules.exchange);
        Ok(Simulation {
            ahead: Ahead::new(&programs, hosts, exchange.is_on())?,
            exchange,
            clock: 0.0,
            random: Random::new(seed),
            events: Queue::new(),
            network: Network::new(tree, extra),
            stores: Stores::new(hosts, contents, capacity, rules.eviction),
            lines: Lines::new(hosts, programs.placement.clone(), &programs.oids),
            choice: Choice::new(&rules, hosts),
            programs,
            machines: Vec::new(),
            is_alive: vec![true; hosts as usize],
            obtained: vec![0; cells],
            was_touched: vec![false; cells],
            obtained_count: vec![0; hosts as usize],
            flights: Vec::new(),
            free_flights: Vec::new(),
            flight_of: vec![None; cells],
            attempts: Vec::new(),
            free_attempts: Vec::new(),
            origin_leaves: vec![0; hosts as usize],
            senders: vec![Sender::default(); hosts as usize],
            origin_lanes: vec![OriginLane::default(); hosts as usize],
            live: Vec::new(),
            reporters: vec![Reporter::default(); hosts as usize],
            samples: Samples::default(),
            samples_max,
            totals: Totals::new(hosts),
            rules,
        })
    }

    /// Time up to which the run has come.
    pub fn now(&self) -> f64 {
        self.clock
    }

    /// Returns for each host whether it has not left.
    pub fn is_alive(&self) -> &[bool] {
        &self.is_alive
    }

    fn hosts(&self) -> u32 {
        self.is_alive.len() as u32
    }

    fn origin(&self) -> u32 {
        self.hosts()
    }

    fn cell(&self, host: u32, content: u32) -> usize {
        host as usize * self.programs.placement.len() + content as usize
    }

    /// Makes a ring with a threshold known, and returns the number by which hosts can use it.
    ///
    /// `names` are the hosts' in the ring.
    ///
    /// # Errors
    ///
    /// When the ring has a host that the simulation has not.
    pub fn install_ring(
        &mut self,
        ring: &Ring,
        threshold: Option<u8>,
        names: &[String],
    ) -> Result<u32, UnknownHostError> {
        self.lines.install(ring, threshold, self.network.tree(), names)
    }

    /// Lets all hosts use a ring at once.
    pub fn use_ring(&mut self, slot: u32) {
        (0..self.hosts()).for_each(|host| self.lines.apply(host, slot));
    }

    /// Lets a host use a ring from a time on.
    pub fn follow_ring(&mut self, host: u32, slot: u32, at: f64) {
        self.events.push(at, Event::Apply { host, slot });
    }

    /// Returns the hosts that a host would ask for a content, first to last, as the ring in use
    /// says.
    pub fn line(&self, host: u32, content: u32) -> Vec<u32> {
        self.lines.line(host, content).into_iter().flatten().collect()
    }

    /// Puts contents into a host's store, as if they had been there when it started.
    pub fn recover(&mut self, host: u32, contents: &[u32]) {
        contents.iter().for_each(|content| self.stores.recover(host, *content));
    }

    /// Returns the number of chunks that each host has in its store.
    pub fn held(&self) -> Vec<u32> {
        self.stores.held()
    }

    /// Lets the extra traffic want so many times what it wanted at first.
    pub fn set_extra(&mut self, factor: f64) {
        self.network.set_extra(factor);
    }

    /// Queues the first report of each host.
    pub fn start_reports(&mut self, phases: &[f64]) {
        for (host, phase) in phases.iter().enumerate() {
            self.events.push(*phase, Event::Report { host: host as u32 });
        }
    }

    /// Queues the first walk of each host's store, where stores have bounds.
    pub fn start_walks(&mut self, starts: &[f64]) {
        if self.stores.is_bounded() {
            for (host, start) in starts.iter().enumerate() {
                self.events.push(*start, Event::Walk { host: host as u32 });
            }
        }
    }

    /// Queues the first sample of all hosts' traffic.
    pub fn start_samples(&mut self) {
        self.events.push(self.clock, Event::Sample);
    }

    /// Takes a host away: its machines end, nobody hears from it any more, its extra traffic ends
    /// with the next [`Simulation::set_extra`].
    pub fn leave(&mut self, host: u32) {
        self.is_alive[host as usize] = false;
        self.break_machines(host);
        self.network.cut(host);
        self.stores.clear(host);
        self.network.drop_extra(|one| one == host);
    }

    /// Runs until a time.
    pub fn advance(&mut self, until: f64) {
        while self.clock < until {
            self.network.refill(self.rules.is_elastic, self.rules.in_order);
            let upcoming = self.events.next_time();
            let is_still = self.network.moving().is_empty();
            let start = self.clock;
            if is_still && upcoming > start {
                // Counters are brought up to the next event before anybody reads them.
                self.clock = until.min(upcoming);
                self.network.count_extra(self.clock - start);
                continue;
            }
            let end = if is_still || self.rules.quantum > 0.0 {
                until.min(start + self.rules.quantum)
            } else {
                until.min(start.max(self.first_end(upcoming)))
            };
            for at in 0..self.network.moving().len() {
                let attempt = self.network.moving()[at];
                self.queue_finish(attempt, end);
                self.queue_turn_end(attempt, end);
            }
            while let Some((now, event)) = self.events.pop_until(end) {
                self.totals.events += 1;
                self.handle(event, now, end);
            }
            self.network.progress_all(end);
            self.network.count_extra(end - start);
            self.check_clocks(end);
            self.clock = end;
        }
    }

    /// Returns when something that moves ends first, or its turn.
    fn first_end(&self, upcoming: f64) -> f64 {
        let moving = self.network.moving().iter();
        let times = moving.filter_map(|attempt| {
            self.turn_end_of(*attempt).or_else(|| self.network.finish_of(*attempt))
        });
        times.fold(upcoming, f64::min)
    }

    /// Queues the end of a transfer where it is not after `end`.
    fn queue_finish(&mut self, attempt: u32, end: f64) {
        if let Some(finish) = self.network.finish_of(attempt).filter(|finish| *finish <= end) {
            self.events.push(finish, Event::Finish(self.ticket(attempt)));
        }
    }

    fn handle(&mut self, event: Event, now: f64, end: f64) {
        match event {
            Event::Open { machine } => self.open_image(machine, now),
            Event::FetchAhead { machine } => {
                self.fetch_ahead(machine, now);
                self.follow_hints(machine, now);
            }
            Event::Learn { program, content } => self.learn(program, content, now),
            Event::Hint { program, position, upto } => self.hear(program, position, upto, now),
            Event::Operation { machine } => self.start_operation(machine, now),
            Event::OperationDone { machine } => self.end_operation(machine, now),
            Event::Next(ticket) => {
                if self.flights[ticket.number as usize].version == ticket.version {
                    self.ask_next(ticket.number, now, false);
                }
            }
            Event::Apply { host, slot } => self.lines.apply(host, slot),
            Event::Report { host } => self.report(host, now),
            Event::Sample => self.sample(now),
            Event::Walk { host } => {
                self.stores.walk(&self.rules, &self.lines, &self.is_alive, host);
                self.events.push(now + WALK_INTERVAL, event);
            }
            Event::Answer(ticket) if self.is_current(ticket) => {
                if self.answer(ticket.number, now) {
                    self.start_transfer(ticket.number, now, end);
                }
            }
            Event::Ready(ticket) if self.is_current(ticket) => {
                self.start_transfer(ticket.number, now, end);
            }
            Event::Refused(ticket) if self.is_current(ticket) => {
                self.fail(ticket.number, Failure::Refused, now);
                self.skip_peers_of(ticket.number);
            }
            Event::Finish(ticket) if self.is_current(ticket) => self.arrive(ticket.number, now),
            Event::Promoted(ticket) if self.is_current(ticket) => {
                self.promote_at_source(ticket.number, now, end);
            }
            Event::TurnOver(ticket) if self.is_current(ticket) => {
                self.end_turn(ticket.number, now, end);
            }
            Event::Turns { host } => self.give_turns(host, now, end),
            Event::OriginReads { host } => self.begin_origin_reads(host, now),
            Event::Answer(_) | Event::Ready(_) | Event::Refused(_) | Event::Finish(_) => {}
            Event::Promoted(_) | Event::TurnOver(_) => {}
        }
    }
}
