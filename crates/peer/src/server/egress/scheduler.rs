//! The order in which answers leave: pure, with the time passed in.
//!
//! One connection that may write holds a slot, for a few answers of one class, which are then sent whole.
//! There are few slots, so that what becomes urgent waits for few answers; a slot that takes much longer
//! than is typical goes on without counting, so that nobody waits for a receiver that is slow or gone.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_types::RequestClass;

use super::round_robin::RoundRobin;
use super::service_time::ServiceTime;

/// Typical times that a slot may take.
const OVERRUN_FACTOR: u32 = 4;
/// Longest time that a slot counts, whatever is typical: where all is slow, order matters less than that
/// everybody gets on.
const SLOT_TIME_MAX: Duration = Duration::from_millis(250);

/// A connection, as long as it is open.
pub(super) type PortId = usize;
/// An answer of a connection, numbered by the connection.
pub(in super::super) type Ticket = u64;

/// Limits of the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Slots at a time.
    pub(super) slots_max: usize,
    /// Bytes of the answers of one slot; one answer may be more.
    pub(super) slot_bytes: usize,
    /// Time that a slot counts at least.
    pub(super) slot_time_min: Duration,
    /// Time after which preloads get a slot though others wait.
    pub(super) preload_interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queued {
    ticket: Ticket,
    bytes: usize,
}

/// Slot of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// None: it may not write answers.
    None,
    /// One that counts.
    Held { since: RunInstant, bytes: usize },
    /// One that took too long: it no longer counts, and its answers are still written.
    Overrun { since: RunInstant, bytes: usize },
}

#[derive(Debug)]
struct Port {
    host: IpAddr,
    queues: [VecDeque<Queued>; RequestClass::COUNT],
    slot: Slot,
    /// Answers that may be written and were not handed out yet.
    granted: Vec<Ticket>,
}

/// Answers that wait, and who may write.
#[derive(Debug)]
pub(super) struct Scheduler {
    rules: Rules,
    ports: Vec<Option<Port>>,
    free: Vec<PortId>,
    /// Ports without a slot that have answers of the class.
    waiting: [RoundRobin; RequestClass::COUNT],
    queued: [usize; RequestClass::COUNT],
    queued_bytes: [u64; RequestClass::COUNT],
    slots_held: usize,
    preload_due: Option<RunInstant>,
    service_time: ServiceTime,
    overruns: u64,
}

impl Scheduler {
    pub(super) fn new(rules: Rules) -> Scheduler {
        Scheduler {
            rules,
            ports: Vec::new(),
            free: Vec::new(),
            waiting: Default::default(),
            queued: [0; RequestClass::COUNT],
            queued_bytes: [0; RequestClass::COUNT],
            slots_held: 0,
            preload_due: None,
            service_time: ServiceTime::new(),
            overruns: 0,
        }
    }

    /// Adds a connection of `host`.
    pub(super) fn join(&mut self, host: IpAddr) -> PortId {
        let port = Port { host, queues: Default::default(), slot: Slot::None, granted: Vec::new() };
        match self.free.pop() {
            Some(id) => {
                self.ports[id] = Some(port);
                id
            }
            None => {
                self.ports.push(Some(port));
                self.ports.len() - 1
            }
        }
    }

    /// Takes out a connection with its answers and its slot; adds to `granted` who may write now.
    pub(super) fn leave(&mut self, id: PortId, now: RunInstant, granted: &mut Vec<PortId>) {
        self.stop_waiting(id);
        let Some(port) = self.ports.get_mut(id).and_then(Option::take) else { return };
        for (class, queue) in port.queues.iter().enumerate() {
            self.queued[class] -= queue.len();
            self.queued_bytes[class] -= queue.iter().map(|each| each.bytes as u64).sum::<u64>();
        }
        if matches!(port.slot, Slot::Held { .. }) {
            self.slots_held -= 1;
        }
        self.free.push(id);
        self.dispatch(now, granted);
    }

    /// Queues an answer; returns whether it may be written at once, and then does not queue it.
    pub(super) fn offer(
        &mut self,
        id: PortId,
        class: RequestClass,
        (ticket, bytes): (Ticket, usize),
        now: RunInstant,
    ) -> bool {
        let has_room = self.slots_held < self.rules.slots_max;
        let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) else { return false };
        if has_room && port.slot == Slot::None {
            // Nobody waits: who may would have the slot.
            port.slot = Slot::Held { since: now, bytes };
            self.slots_held += 1;
            return true;
        }
        if class == RequestClass::Preload && self.queued[class.index()] == 0 {
            self.preload_due = Some(now + self.rules.preload_interval);
        }
        self.enqueue(id, class, Queued { ticket, bytes });
        false
    }

    /// Ends the slot of a port: its answers are written. Adds to `granted` who may write now, maybe the
    /// same one.
    pub(super) fn finish(&mut self, id: PortId, now: RunInstant, granted: &mut Vec<PortId>) {
        let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) else { return };
        let (since, bytes) = match std::mem::replace(&mut port.slot, Slot::None) {
            Slot::None => return,
            Slot::Held { since, bytes } => {
                self.slots_held -= 1;
                (since, bytes)
            }
            Slot::Overrun { since, bytes } => (since, bytes),
        };
        self.service_time.record(bytes, now.saturating_duration_since(since));
        for class in RequestClass::ALL {
            if !port.queues[class.index()].is_empty() {
                self.waiting[class.index()].push(port.host, id);
            }
        }
        self.dispatch(now, granted);
    }

    /// Lets a slot that takes too long go on without counting; adds to `granted` who may write now.
    pub(super) fn overrun(&mut self, id: PortId, now: RunInstant, granted: &mut Vec<PortId>) {
        let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) else { return };
        let Slot::Held { since, bytes } = port.slot else { return };
        port.slot = Slot::Overrun { since, bytes };
        self.slots_held -= 1;
        self.overruns += 1;
        self.dispatch(now, granted);
    }

    /// Returns the instant at which the slot of a port stops counting; `None` where none counts.
    pub(super) fn slot_due(&self, id: PortId) -> Option<RunInstant> {
        match self.ports.get(id)?.as_ref()?.slot {
            Slot::Held { since, bytes } => {
                let typical = self.service_time.of(bytes as u64).saturating_mul(OVERRUN_FACTOR);
                Some(since + typical.min(SLOT_TIME_MAX).max(self.rules.slot_time_min))
            }
            Slot::None | Slot::Overrun { .. } => None,
        }
    }

    /// Hands out the answers that a port may write now.
    pub(super) fn take_granted(&mut self, id: PortId, tickets: &mut Vec<Ticket>) {
        if let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) {
            tickets.append(&mut port.granted);
        }
    }

    /// Moves a queued answer to the end of a class; returns whether it was queued, in any class.
    pub(super) fn promote(&mut self, id: PortId, ticket: Ticket, class: RequestClass) -> bool {
        let Some(queued) = self.dequeue(id, ticket) else { return false };
        self.enqueue(id, class, queued);
        true
    }

    /// Takes an answer out of its queue; returns whether it was queued. One that was granted is not.
    pub(super) fn withdraw(&mut self, id: PortId, ticket: Ticket) -> bool {
        self.dequeue(id, ticket).is_some()
    }

    /// Time that a demand which came now would wait for a slot, typically.
    pub(super) fn demand_wait(&self) -> Duration {
        if self.slots_held < self.rules.slots_max {
            return Duration::ZERO;
        }
        let before = self.queued_bytes[RequestClass::Demand.index()] + self.rules.slot_bytes as u64;
        self.service_time.of(before) / self.rules.slots_max as u32
    }

    /// Answers that wait, by class.
    pub(super) fn queued(&self) -> [usize; RequestClass::COUNT] {
        self.queued
    }

    /// Slots that took too long.
    pub(super) fn overruns(&self) -> u64 {
        self.overruns
    }

    fn enqueue(&mut self, id: PortId, class: RequestClass, queued: Queued) {
        let class = class.index();
        let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) else { return };
        if port.slot == Slot::None && port.queues[class].is_empty() {
            self.waiting[class].push(port.host, id);
        }
        port.queues[class].push_back(queued);
        self.queued[class] += 1;
        self.queued_bytes[class] += queued.bytes as u64;
    }

    fn dequeue(&mut self, id: PortId, ticket: Ticket) -> Option<Queued> {
        let port = self.ports.get_mut(id)?.as_mut()?;
        let (class, position) = port.queues.iter().enumerate().find_map(|(class, queue)| {
            Some((class, queue.iter().position(|each| each.ticket == ticket)?))
        })?;
        let queued = port.queues[class].remove(position)?;
        self.queued[class] -= 1;
        self.queued_bytes[class] -= queued.bytes as u64;
        if port.slot == Slot::None && port.queues[class].is_empty() {
            self.waiting[class].remove(port.host, id);
        }
        Some(queued)
    }

    /// Gives free slots to those that wait, and adds them to `granted`.
    fn dispatch(&mut self, now: RunInstant, granted: &mut Vec<PortId>) {
        while self.slots_held < self.rules.slots_max {
            let Some((id, class)) = self.next(now) else { return };
            self.grant(id, class, now);
            granted.push(id);
        }
    }

    fn next(&mut self, now: RunInstant) -> Option<(PortId, RequestClass)> {
        let preload = RequestClass::Preload;
        if self.preload_due.is_some_and(|due| now >= due)
            && let Some(id) = self.waiting[preload.index()].pop()
        {
            return Some((id, preload));
        }
        RequestClass::ALL
            .into_iter()
            .find_map(|class| Some((self.waiting[class.index()].pop()?, class)))
    }

    /// Gives a slot to a port that waits, for as many answers of a class as one slot is for.
    fn grant(&mut self, id: PortId, class: RequestClass, now: RunInstant) {
        self.stop_waiting(id);
        let Some(port) = self.ports.get_mut(id).and_then(Option::as_mut) else { return };
        let queue = &mut port.queues[class.index()];
        let mut bytes = 0;
        while let Some(first) = queue.front()
            && (bytes == 0 || bytes + first.bytes <= self.rules.slot_bytes)
        {
            bytes += first.bytes;
            port.granted.push(first.ticket);
            queue.pop_front();
            self.queued[class.index()] -= 1;
        }
        self.queued_bytes[class.index()] -= bytes as u64;
        port.slot = Slot::Held { since: now, bytes };
        self.slots_held += 1;
        if class == RequestClass::Preload {
            self.preload_due = Some(now + self.rules.preload_interval);
        }
    }

    fn stop_waiting(&mut self, id: PortId) {
        let Some(port) = self.ports.get(id).and_then(Option::as_ref) else { return };
        if port.slot != Slot::None {
            return;
        }
        for (waiting, queue) in self.waiting.iter_mut().zip(&port.queues) {
            if !queue.is_empty() {
                waiting.remove(port.host, id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
