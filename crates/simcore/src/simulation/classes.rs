//! Classes of chunks on their way, and their change on the way.

use super::attempts::{Attempt, Kind};
use super::{Event, Simulation};
use crate::sender::Class;

impl Simulation {
    /// Returns the class of a flight, as queues and other hosts know it.
    pub(super) fn class_of(&self, flight: u32) -> Class {
        if self.rules.classes { self.flights[flight as usize].class } else { Class::Demand }
    }

    /// Makes a demand of a flight that read-ahead began, wherever its chunk is on its way.
    pub(super) fn promote(&mut self, number: u32, now: f64) {
        let flight = &mut self.flights[number as usize];
        if std::mem::replace(&mut flight.class, Class::Demand) == Class::Demand {
            return;
        }
        flight.started = now;
        self.totals.promoted += 1;
        for attempt in self.flights[number as usize].attempts.into_iter().flatten() {
            self.promote_attempt(attempt, now);
        }
    }

    /// Counts an attempt from now on as one that somebody waits for, and tells its source.
    fn promote_attempt(&mut self, number: u32, now: f64) {
        let Attempt { flight, source, kind, .. } = self.attempts[number as usize];
        let host = self.flights[flight as usize].host;
        self.choice.begin(number, host, source, now);
        let allowed = self.rules.read_deadline;
        let late = self.choice.hedge_after(&self.rules, number, false, allowed, now);
        let deadline = self.deadline_of(flight, kind, now);
        let attempt = &mut self.attempts[number as usize];
        attempt.started = now;
        attempt.hedge_at = now + late;
        attempt.until = now + deadline;
        if !self.rules.classes {
            return;
        }
        if kind != Kind::Origin {
            let heard = now + self.rules.peer_latency / 2.0;
            self.events.push(heard, Event::Promoted(self.ticket(number)));
        } else if self.rules.origin_reads > 0 {
            self.origin_lanes[host as usize].promote(number);
            self.begin_origin_reads(host, now);
        }
    }

    /// Lets the source of an attempt know that somebody waits now: its sender, or its own flight.
    pub(super) fn promote_at_source(&mut self, number: u32, now: f64, end: f64) {
        let Attempt { flight, source, .. } = self.attempts[number as usize];
        if self.rules.sender_answers > 0 {
            self.senders[source as usize].promote(number);
            self.give_turns(source, now, end);
        }
        let content = self.flights[flight as usize].content;
        if let Some(own) = self.flight_of[self.cell(source, content)] {
            self.promote(own, now);
        }
    }
}
