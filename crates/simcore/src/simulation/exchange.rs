//! Hints between hosts that boot the same image at once (collective content exchange).
//!
//! A host that misses a chunk of an image tells the image's rendezvous host, which keeps the order of
//! first misses and passes each on to all members: the hosts that have opened the image. These
//! fetch the chunks in that order, from whom they would fetch them anyway, as long as less than a
//! threshold of what they fetched on hints waits unread; beyond it they also send none.
//!
//! Source: Nicolae and Rafique, *Leveraging Collaborative Content Exchange for On-Demand VM
//! Multi-Deployments in IaaS Clouds*, 2013, algorithms 1 and 3. Differs: chunks are pulled, not
//! pushed. Hints take time and no bandwidth; the rendezvous host does not fail.

use std::collections::HashSet;

use acstor_selection::exchange::{Neighbourhood, Order};

use super::flights::Waiter;
use super::{Event, Simulation};
use crate::programs::{MachineState, Programs};
use crate::rules::HintOrder;
use crate::sender::Class;

/// A host that has opened an image.
#[derive(Clone, Copy, Debug)]
struct Member {
    host: u32,
    /// Its first machine of the image.
    machine: u32,
    /// Hints that it has heard of, of the order.
    heard: u32,
    /// Hints that it has dealt with.
    next: u32,
    /// Chunks that it ordered on hints and has not read.
    unmatched: u32,
}

/// Knowledge of the rendezvous host of an image.
#[derive(Clone, Debug, Default)]
struct Image {
    /// Contents in the order in which the first of their misses was heard of.
    order: Vec<u32>,
    known: HashSet<u32>,
    /// In the order in which they came.
    members: Vec<Member>,
}

/// Hints of all images.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// By program; none where hosts tell each other nothing.
    images: Vec<Image>,
    /// Host and content of what was ordered on a hint and is not read, with its program.
    ordered: HashSet<(u32, u32, u32)>,
}

impl Exchange {
    pub(super) fn new(programs: &Programs, order: HintOrder) -> Exchange {
        let count = match order {
            HintOrder::Nowhere => 0,
            HintOrder::Ring | HintOrder::KRing | HintOrder::Tree => {
                programs.first_operation.len() - 1
            }
        };
        Exchange { images: vec![Image::default(); count], ordered: HashSet::new() }
    }

    pub(super) fn is_on(&self) -> bool {
        !self.images.is_empty()
    }

    /// The contents that are known of an image.
    pub(super) fn known(&self, program: u32) -> &[u32] {
        self.images.get(program as usize).map_or(&[], |image| &image.order)
    }

    fn member(&mut self, program: u32, host: u32) -> Option<&mut Member> {
        let members = &mut self.images.get_mut(program as usize)?.members;
        members.iter_mut().find(|member| member.host == host)
    }
}

/// Returns how many hosts a hint goes through to the member at a position, itself included.
fn hops(order: HintOrder, position: u32, fan_out: u32) -> u32 {
    let order = match order {
        HintOrder::Nowhere => return 0,
        HintOrder::Ring => Order::Ring,
        HintOrder::KRing => Order::KRing,
        HintOrder::Tree => Order::Tree,
    };
    Neighbourhood::new(order, fan_out).hops(position)
}

impl Simulation {
    /// Makes a machine's host a member of its image's hosts: it hears what is known after a round trip.
    pub(super) fn join(&mut self, machine: u32, now: f64) {
        let (host, program) = self.place_of(machine);
        let Some(image) = self.exchange.images.get_mut(program as usize) else { return };
        if image.members.iter().any(|member| member.host == host) {
            return;
        }
        let position = image.members.len() as u32;
        image.members.push(Member { host, machine, heard: 0, next: 0, unmatched: 0 });
        let upto = image.order.len() as u32;
        let heard = now + self.rules.peer_latency;
        self.events.push(heard, Event::Hint { program, position, upto });
    }

    /// Tells the rendezvous host of an image what a machine misses.
    pub(super) fn tell_miss(&mut self, machine: u32, content: u32, now: f64) {
        let (host, program) = self.place_of(machine);
        let most = self.unmatched_max();
        let Some(member) = self.exchange.member(program, host) else { return };
        if member.unmatched < most {
            self.totals.hints += 1;
            let heard = now + self.rules.peer_latency / 2.0;
            self.events.push(heard, Event::Learn { program, content });
        }
    }

    /// Learns of the first miss of a chunk, and passes it on to all members.
    pub(super) fn learn(&mut self, program: u32, content: u32, now: f64) {
        let Some(image) = self.exchange.images.get_mut(program as usize) else { return };
        if !image.known.insert(content) {
            return;
        }
        image.order.push(content);
        let upto = image.order.len() as u32;
        for position in 0..image.members.len() as u32 {
            let hops = hops(self.rules.exchange, position, self.rules.exchange_fan_out);
            let heard = now + f64::from(hops) * self.rules.peer_latency / 2.0;
            self.events.push(heard, Event::Hint { program, position, upto });
        }
    }

    /// Lets a member know the order up to a hint.
    pub(super) fn hear(&mut self, program: u32, position: u32, upto: u32, now: f64) {
        let Some(image) = self.exchange.images.get_mut(program as usize) else { return };
        let Some(member) = image.members.get_mut(position as usize) else { return };
        member.heard = member.heard.max(upto);
        let machine = member.machine;
        self.follow_hints(machine, now);
    }

    /// Fetches what a machine's host was told of, in its order, as much as there is room for.
    pub(super) fn follow_hints(&mut self, machine: u32, now: f64) {
        let (host, program) = self.place_of(machine);
        let most = self.unmatched_max();
        let chunk = self.rules.chunk_bytes as u64;
        loop {
            let room = self.room_ahead(host);
            let Some(member) = self.exchange.member(program, host) else { return };
            let is_over = member.unmatched >= most || member.next >= member.heard;
            if is_over || room < chunk {
                return;
            }
            let (next, machine) = (member.next, member.machine);
            member.next += 1;
            if self.machines[machine as usize].state != MachineState::Running {
                return;
            }
            let content = self.exchange.images[program as usize].order[next as usize];
            self.order_hinted(machine, content, now);
        }
    }

    fn order_hinted(&mut self, machine: u32, content: u32, now: f64) {
        let (host, program) = self.place_of(machine);
        let cell = self.cell(host, content);
        if self.is_local(host, content) || self.flight_of[cell].is_some() {
            return;
        }
        if let Some(member) = self.exchange.member(program, host) {
            member.unmatched += 1;
        }
        self.exchange.ordered.insert((host, content, program));
        let flight = self.new_flight(host, content, (self.rules.chunk_bytes, Class::Ahead), now);
        self.flights[flight as usize].is_ahead = true;
        self.ahead.add_coming(host);
        self.await_by(flight, Waiter::Ahead(machine));
    }

    /// Takes a chunk out of what was ordered on hints: it is read, or could not be had.
    pub(super) fn match_hint(&mut self, machine: u32, content: u32) {
        let (host, program) = self.place_of(machine);
        if self.exchange.is_on()
            && self.exchange.ordered.remove(&(host, content, program))
            && let Some(member) = self.exchange.member(program, host)
        {
            member.unmatched -= 1;
        }
    }

    fn unmatched_max(&self) -> u32 {
        (self.rules.exchange_unmatched / self.rules.chunk_bytes) as u32
    }

    /// The host of a machine and its program.
    fn place_of(&self, machine: u32) -> (u32, u32) {
        let machine = &self.machines[machine as usize];
        (machine.host, machine.program)
    }
}
