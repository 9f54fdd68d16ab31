//! Turns of answers at their senders, and of reads of the origin.

use super::attempts::Kind;
use super::{Event, Simulation, Ticket};

impl Simulation {
    /// Lets an answer be sent: at once, or when its source has a turn for it.
    pub(super) fn start_transfer(&mut self, number: u32, now: f64, end: f64) {
        let attempt = &self.attempts[number as usize];
        let (source, flight) = (attempt.source, attempt.flight);
        if attempt.kind == Kind::Origin || self.rules.sender_answers == 0 {
            self.send(number, now, end);
            return;
        }
        let (receiver, class) = (self.flights[flight as usize].host, self.class_of(flight));
        self.senders[source as usize].add(number, receiver, class);
        self.give_turns(source, now, end);
    }

    /// Queues the answers of those who waited for one chunk, before any of them has a turn.
    pub(super) fn queue_answers(&mut self, tickets: impl Iterator<Item = Ticket>, now: f64) {
        for ticket in tickets {
            if !self.is_current(ticket) {
                continue;
            }
            let attempt = &self.attempts[ticket.number as usize];
            let (source, flight) = (attempt.source, attempt.flight);
            let (receiver, class) = (self.flights[flight as usize].host, self.class_of(flight));
            self.senders[source as usize].add(ticket.number, receiver, class);
            self.events.push(now, Event::Turns { host: source });
        }
    }

    fn send(&mut self, number: u32, now: f64, end: f64) {
        let attempt = self.attempts[number as usize];
        let flight = &self.flights[attempt.flight as usize];
        let packed = match attempt.kind {
            Kind::Origin => self.rules.origin_ratio,
            _ if attempt.is_packed => self.rules.compress_ratio,
            _ => 1.0,
        };
        let bytes = flight.bytes * packed * self.rules.wire_share;
        let ends = (attempt.source, flight.host);
        self.network.start(number, ends, bytes, attempt.started, now);
        self.queue_finish(number, end);
    }

    /// Lets a host write as many answers as it does at a time.
    pub(super) fn give_turns(&mut self, host: u32, now: f64, end: f64) {
        while let Some(number) = self.senders[host as usize].next(self.rules.sender_answers) {
            self.send(number, now, end);
            let stall = now + self.rules.sender_stall;
            self.events.push(stall, Event::TurnOver(self.ticket(number)));
            self.queue_turn_end(number, end);
        }
    }

    /// Queues the end of an answer's turn where its rest fits into the socket not after `end`.
    pub(super) fn queue_turn_end(&mut self, number: u32, end: f64) {
        if let Some(time) = self.turn_end_of(number).filter(|time| *time <= end) {
            self.events.push(time, Event::TurnOver(self.ticket(number)));
        }
    }

    /// Returns when the turn of an answer ends if its rate stays; `None`: it has none, or stalls.
    pub(super) fn turn_end_of(&self, number: u32) -> Option<f64> {
        if self.rules.sender_answers == 0 {
            return None;
        }
        let source = self.attempts[number as usize].source;
        let sender = self.senders.get(source as usize)?;
        let time = || self.network.time_of_left(number, self.rules.socket_bytes);
        sender.has_turn(number).then(time).flatten()
    }

    /// Ends the turn of an answer, if it has one still, and gives it to the next.
    pub(super) fn end_turn(&mut self, number: u32, now: f64, end: f64) {
        let source = self.attempts[number as usize].source;
        if self.senders[source as usize].end_turn(number) {
            self.give_turns(source, now, end);
        }
    }

    /// Begins as many reads of the origin as a host has at a time.
    pub(super) fn begin_origin_reads(&mut self, host: u32, now: f64) {
        while let Some(number) = self.origin_lanes[host as usize].next(self.rules.origin_reads) {
            let ticket = self.ticket(number);
            self.events.push(now + self.rules.origin_latency, Event::Answer(ticket));
        }
    }

    /// Takes an attempt that ends out of the queue in which it waits or has a turn.
    pub(super) fn leave_queues(&mut self, number: u32, now: f64) {
        let attempt = &self.attempts[number as usize];
        let (kind, source) = (attempt.kind, attempt.source);
        let host = self.flights[attempt.flight as usize].host;
        if kind == Kind::Origin {
            let is_bounded = self.rules.origin_reads > 0;
            if is_bounded && self.origin_lanes[host as usize].remove(number) {
                self.events.push(now, Event::OriginReads { host });
            }
        } else if self.rules.sender_answers > 0 && self.senders[source as usize].remove(number) {
            self.events.push(now, Event::Turns { host: source });
        }
    }
}
