//! One order for the answers of all connections.
//!
//! Connections that write at the same time share the link, so that each answer takes as long as all of
//! them together, a guest's as long as what is only read ahead. So an answer waits here until its
//! connection may write it; see [`scheduler`] for the order. Where nobody competes an answer goes at once:
//! that takes an uncontended lock before and after it.

mod round_robin;
mod scheduler;
mod service_time;

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use acstor_runclock::{RunClock, RunInstant};
use acstor_types::RequestClass;
use parking_lot::Mutex;

use crate::ServerLimits;
pub(super) use scheduler::Ticket;
use scheduler::{PortId, Rules, Scheduler};

/// The answers of all connections of a server.
#[derive(Debug)]
pub(super) struct Egress {
    clock: RunClock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    /// Tasks of the connections that wait, by port.
    wakers: Vec<Option<Waker>>,
    /// Ports that were granted a slot in the step at hand; empty between steps.
    granted: Vec<PortId>,
}

/// Answers that wait, and what became of the slots, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressStats {
    /// Answers that wait for their turn now, by class; see [`RequestClass::index`].
    pub queued: [u64; RequestClass::COUNT],
    /// Times that a connection took so long that the next one was let write as well.
    pub overruns: u64,
}

/// One connection's end of the order. Dropping it drops what it has queued, and lets the next one write.
#[derive(Debug)]
pub(super) struct EgressPort {
    egress: Arc<Egress>,
    id: PortId,
    /// Answers that were queued and neither taken nor withdrawn.
    queued: usize,
    has_slot: bool,
    /// Instant at which the slot stops counting.
    due: Option<RunInstant>,
    /// Time that a demand waits for a slot, when this port last looked.
    wait: Duration,
}

impl Egress {
    pub(super) fn new(limits: &ServerLimits, clock: RunClock) -> Arc<Egress> {
        let rules = Rules {
            slots_max: limits.send_slots_max,
            slot_bytes: limits.send_slot_bytes,
            slot_time_min: limits.send_slot_time,
            preload_interval: limits.preload_interval,
        };
        let scheduler = Scheduler::new(rules);
        let state = State { scheduler, wakers: Vec::new(), granted: Vec::new() };
        Arc::new(Egress { clock, state: Mutex::new(state) })
    }

    /// Adds a connection of `host`.
    pub(super) fn join(self: &Arc<Self>, host: IpAddr) -> EgressPort {
        let mut state = self.state.lock();
        let id = state.scheduler.join(host);
        if state.wakers.len() <= id {
            state.wakers.resize(id + 1, None);
        }
        drop(state);
        EgressPort {
            egress: Arc::clone(self),
            id,
            queued: 0,
            has_slot: false,
            due: None,
            wait: Duration::ZERO,
        }
    }

    pub(super) fn stats(&self) -> EgressStats {
        let state = self.state.lock();
        EgressStats {
            queued: state.scheduler.queued().map(|count| count as u64),
            overruns: state.scheduler.overruns(),
        }
    }

    /// Takes a step that may grant slots, and wakes the connections of others that got one.
    fn step(&self, id: PortId, step: impl FnOnce(&mut Scheduler, RunInstant, &mut Vec<PortId>)) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State { scheduler, wakers, granted } = &mut *state;
        step(scheduler, now, granted);
        let others = granted.drain(..).filter(|each| *each != id);
        let woken: Vec<Waker> = others.filter_map(|each| wakers[each].take()).collect();
        // Without the lock: a task that runs at once takes it.
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl EgressPort {
    /// Returns whether the connection may write answers.
    pub(super) fn has_slot(&self) -> bool {
        self.has_slot
    }

    /// Offers an answer of `bytes` bytes; returns whether it may be written at once. If not, its ticket
    /// comes out of [`EgressPort::take_granted`], and the task of `cx` is woken then.
    pub(super) fn offer(
        &mut self,
        cx: &Context<'_>,
        class: RequestClass,
        (ticket, bytes): (Ticket, usize),
    ) -> bool {
        let now = self.egress.clock.now();
        let mut state = self.egress.state.lock();
        let at_once = state.scheduler.offer(self.id, class, (ticket, bytes), now);
        if at_once {
            self.has_slot = true;
            self.due = state.scheduler.slot_due(self.id);
        } else {
            self.queued += 1;
            state.keep_waker(self.id, cx);
        }
        self.wait = state.scheduler.demand_wait();
        at_once
    }

    /// Adds the answers that may be written by now to `tickets`.
    pub(super) fn take_granted(&mut self, cx: &Context<'_>, tickets: &mut Vec<Ticket>) {
        if self.queued == 0 {
            return;
        }
        let before = tickets.len();
        let mut state = self.egress.state.lock();
        state.scheduler.take_granted(self.id, tickets);
        let count = tickets.len() - before;
        if count > 0 {
            self.queued = self.queued.saturating_sub(count);
            self.has_slot = true;
            self.due = state.scheduler.slot_due(self.id);
            self.wait = state.scheduler.demand_wait();
        }
        if self.queued > 0 {
            state.keep_waker(self.id, cx);
        }
    }

    /// Makes a queued answer one of `class`; nothing happens to one that was granted.
    pub(super) fn promote(&mut self, ticket: Ticket, class: RequestClass) {
        self.egress.state.lock().scheduler.promote(self.id, ticket, class);
    }

    /// Takes a queued answer out; nothing happens to one that was granted or never queued.
    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        if self.queued > 0 && self.egress.state.lock().scheduler.withdraw(self.id, ticket) {
            self.queued -= 1;
        }
    }

    /// Ends the slot: what was granted is written. Returns whether more may have been granted.
    pub(super) fn finish(&mut self) -> bool {
        self.has_slot = false;
        self.due = None;
        let id = self.id;
        self.egress.step(id, |scheduler, now, granted| scheduler.finish(id, now, granted));
        self.queued > 0
    }

    /// Time that a demand would wait for a slot, as of the last answer that was offered or granted.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Looks again how long a demand would wait for a slot.
    pub(super) fn look(&mut self) {
        self.wait = self.egress.state.lock().scheduler.demand_wait();
    }

    /// Instant at which the slot stops counting; `None` where none counts.
    pub(super) fn due(&self) -> Option<RunInstant> {
        self.due
    }

    /// Lets others write as well: this connection takes too long.
    pub(super) fn overrun(&mut self) {
        self.due = None;
        let id = self.id;
        self.egress.step(id, |scheduler, now, granted| scheduler.overrun(id, now, granted));
    }
}

impl State {
    fn keep_waker(&mut self, id: PortId, cx: &Context<'_>) {
        let waker = &mut self.wakers[id];
        if !waker.as_ref().is_some_and(|kept| kept.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}

impl Drop for EgressPort {
    fn drop(&mut self) {
        let id = self.id;
        self.egress.state.lock().wakers[id] = None;
        self.egress.step(id, |scheduler, now, granted| scheduler.leave(id, now, granted));
    }
}
