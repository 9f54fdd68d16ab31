//! Read-ahead along the profile of an image, as the data plane's own window says
//! ([`acstor_selection::ReadAhead`]).
//!
//! One window per open of an image, which is a machine. What was fetched and not read is in a memory
//! of its own per host: it reaches the store where the host owns the chunk, and when it is read.

use std::collections::HashMap;
use std::sync::Arc;

use acstor_selection::{
    AheadBalance, BootKind, BootProfile, BootProfileError, ReadAhead, in_flight_bytes,
};

use super::flights::Waiter;
use super::{Event, Simulation};
use crate::programs::{Machine, MachineState, Programs};
use crate::sender::Class;

/// Room of one host for what is fetched ahead, in chunks.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Fetched and not read.
    unread: u64,
    /// On the way.
    coming: u64,
}

/// Opens of one image on one host.
#[derive(Debug, Default)]
struct Opened {
    machines: Vec<u32>,
    /// Of those whose machines have ended.
    over: AheadBalance,
}

/// Read-ahead of all machines.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By program; none where nothing is known of any image.
    profiles: Vec<Arc<BootProfile>>,
    /// By machine: its window, while it runs.
    opens: Vec<Option<ReadAhead>>,
    /// By host and program: the machines that opened the image.
    opened: HashMap<(u32, u32), Opened>,
    /// By host and content: whether it was fetched ahead and not read. Empty without profiles.
    is_unread: Vec<bool>,
    rooms: Vec<Room>,
}

impl Ahead {
    /// Takes the profiles of all programs.
    ///
    /// # Errors
    ///
    /// When one names a chunk twice, or more chunks than a profile has.
    ///
    /// `has_hints`: hosts fetch ahead what others tell them.
    pub(super) fn new(
        programs: &Programs,
        hosts: u32,
        has_hints: bool,
    ) -> Result<Ahead, BootProfileError> {
        if programs.profile.is_empty() && !has_hints {
            return Ok(Ahead::default());
        }
        let entries = programs.first_entry.windows(2);
        let profiles = entries.map(|ends| {
            let chunks = programs.profile[ends[0] as usize..ends[1] as usize].to_vec();
            BootProfile::new(vec![BootKind { chunks, weight: 1 }]).map(Arc::new)
        });
        Ok(Ahead {
            profiles: profiles.collect::<Result<_, _>>()?,
            opens: Vec::new(),
            opened: HashMap::new(),
            is_unread: vec![false; hosts as usize * programs.placement.len()],
            rooms: vec![Room::default(); hosts as usize],
        })
    }

    /// Returns whether anything is known of a program's image.
    pub(super) fn knows(&self, program: u32) -> bool {
        self.profiles.get(program as usize).is_some_and(|profile| !profile.is_empty())
    }

    /// Returns whether a host has a content only since it was fetched ahead.
    pub(super) fn holds(&self, cell: usize) -> bool {
        self.is_unread.get(cell).copied().unwrap_or(false)
    }

    /// Bytes that other opens of a machine's image on its host ordered.
    fn beside(&self, machine: u32, key: (u32, u32)) -> AheadBalance {
        let Some(opened) = self.opened.get(&key) else { return AheadBalance::default() };
        let mut sum = opened.over;
        let others = opened.machines.iter().filter(|other| **other != machine);
        let windows = others.filter_map(|other| self.opens.get(*other as usize)?.as_ref());
        windows.for_each(|window| sum += window.balance());
        sum
    }

    /// Ends the window of a machine.
    fn close(&mut self, machine: u32, key: (u32, u32)) {
        let Some(open) = self.opens.get_mut(machine as usize).and_then(Option::take) else {
            return;
        };
        if let Some(opened) = self.opened.get_mut(&key) {
            opened.over += open.balance();
            opened.machines.retain(|other| *other != machine);
            if opened.machines.is_empty() {
                self.opened.remove(&key);
            }
        }
    }

    /// Notes that a chunk is on its way for nobody who waits.
    pub(super) fn add_coming(&mut self, host: u32) {
        self.rooms[host as usize].coming += 1;
    }

    /// Keeps a chunk until it is read.
    pub(super) fn put(&mut self, host: u32, cell: usize) {
        if !std::mem::replace(&mut self.is_unread[cell], true) {
            self.rooms[host as usize].unread += 1;
        }
    }

    /// Gives a chunk away, since it is read or nobody will; returns whether it was here.
    pub(super) fn take(&mut self, host: u32, cell: usize) -> bool {
        let was_here = self.holds(cell) && std::mem::take(&mut self.is_unread[cell]);
        if was_here {
            self.rooms[host as usize].unread -= 1;
        }
        was_here
    }
}

impl Simulation {
    /// Opens the image of a machine, and begins to fetch what its boot will read.
    pub(super) fn open_image(&mut self, machine: u32, now: f64) {
        self.join(machine, now);
        let program = self.machines[machine as usize].program as usize;
        let Some(profile) = self.ahead.profiles.get(program) else { return };
        let budget = self.rules.ahead_budget as u64;
        let chunk = self.rules.chunk_bytes as u64;
        let host = u64::from(self.machines[machine as usize].host);
        let open = ReadAhead::new(Arc::clone(profile), chunk, budget, host);
        let count = self.machines.len();
        self.ahead.opens.resize_with(count, || None);
        self.ahead.opens[machine as usize] = Some(open);
        let key = (self.machines[machine as usize].host, program as u32);
        self.ahead.opened.entry(key).or_default().machines.push(machine);
        self.fetch_ahead(machine, now);
    }

    /// Tells a machine's window of the reads of its operation, and fetches what comes next.
    pub(super) fn follow_reads(&mut self, machine: u32, now: f64) {
        let Some(Some(open)) = self.ahead.opens.get_mut(machine as usize) else { return };
        let operation = self.machines[machine as usize].operation;
        for access in self.programs.accesses(operation) {
            open.read(self.programs.content[access]);
        }
        self.fetch_ahead(machine, now);
    }

    /// Orders the next chunks of a machine's profile, as many as there is room for.
    pub(super) fn fetch_ahead(&mut self, machine: u32, now: f64) {
        let Machine { host, program, .. } = self.machines[machine as usize];
        loop {
            let room = self.room_ahead(host);
            let others = self.ahead.beside(machine, (host, program));
            let Some(Some(open)) = self.ahead.opens.get_mut(machine as usize) else { return };
            let chunks = open.next_beside(others, room);
            if chunks.is_empty() {
                return;
            }
            chunks.into_iter().for_each(|content| self.order_ahead(machine, host, content, now));
        }
    }

    fn order_ahead(&mut self, machine: u32, host: u32, content: u32, now: f64) {
        let cell = self.cell(host, content);
        if self.is_local(host, content) {
            if let Some(Some(open)) = self.ahead.opens.get_mut(machine as usize) {
                open.present(content);
            }
            return;
        }
        let flight = self.flight_of[cell].unwrap_or_else(|| {
            let whole = (self.rules.chunk_bytes, Class::Ahead);
            let made = self.new_flight(host, content, whole, now);
            self.flights[made as usize].is_ahead = true;
            made
        });
        self.ahead.add_coming(host);
        self.await_by(flight, Waiter::Ahead(machine));
    }

    /// Returns the bytes that a host may order ahead now: what its link brings soon and its memory holds.
    pub(super) fn room_ahead(&self, host: u32) -> u64 {
        let free = self.network.free_in(host);
        let Some(room) = self.ahead.rooms.get(host as usize) else { return 0 };
        let chunk = self.rules.chunk_bytes as u64;
        let coming = room.coming * chunk;
        let link = in_flight_bytes(Some(free as u64), chunk).saturating_sub(coming);
        let held = room.unread * chunk + coming;
        link.min((self.rules.ahead_budget as u64).saturating_sub(held))
    }

    /// Tells a machine's window what became of a chunk that it ordered, and orders more.
    pub(super) fn came_ahead(&mut self, machine: u32, content: u32, is_obtained: bool, now: f64) {
        let host = self.machines[machine as usize].host;
        self.ahead.rooms[host as usize].coming -= 1;
        if let Some(Some(open)) = self.ahead.opens.get_mut(machine as usize) {
            if is_obtained { open.fetched(content) } else { open.failed(content) }
        }
        if !is_obtained {
            self.match_hint(machine, content);
        }
        self.events.push(now, Event::FetchAhead { machine });
    }

    /// Closes the image of a machine: what was fetched for nobody else leaves the memory.
    pub(super) fn close_image(&mut self, machine: u32) {
        if self.ahead.rooms.is_empty() {
            return;
        }
        let of = &self.machines[machine as usize];
        let (host, program) = (of.host, of.program);
        self.ahead.close(machine, (host, program));
        let is_open = |one: &Machine| {
            (one.host, one.program) == (host, program) && one.state == MachineState::Running
        };
        if self.machines.iter().any(is_open) {
            return;
        }
        let profile = self.ahead.profiles.get(program as usize);
        let mut contents: Vec<u32> = profile.into_iter().flat_map(|one| one.chunks(0)).collect();
        contents.extend(self.exchange.known(program));
        for content in contents {
            let cell = self.cell(host, content);
            self.ahead.take(host, cell);
        }
    }
}
