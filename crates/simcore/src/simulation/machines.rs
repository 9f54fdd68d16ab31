//! Machines and their operations.

use super::{Event, Simulation};
use crate::programs::{Machine, MachineState};
use crate::sender::Class;

impl Simulation {
    /// Places machines: the host of each, its program, when it starts.
    pub fn place_machines(&mut self, hosts: &[u32], programs: &[u32], starts: &[f64]) {
        for ((host, program), start) in hosts.iter().zip(programs).zip(starts) {
            let operation = self.programs.first_operation[*program as usize];
            let machine = self.machines.len() as u32;
            self.machines.push(Machine {
                host: *host,
                program: *program,
                operation,
                pending: 0,
                state: MachineState::Running,
                started: *start,
                ended: f64::NAN,
                waited: 0.0,
                since: 0.0,
                served: 0.0,
            });
            if self.ahead.knows(*program) || self.exchange.is_on() {
                self.events.push(*start, Event::Open { machine });
            }
            let first = start + self.programs.think[operation as usize];
            self.events.push(first, Event::Operation { machine });
        }
    }

    /// Returns the number of machines that still run their programs.
    pub fn unfinished(&self) -> usize {
        self.machines.iter().filter(|machine| machine.state == MachineState::Running).count()
    }

    pub(super) fn break_machines(&mut self, host: u32) {
        for machine in &mut self.machines {
            if machine.host == host && machine.state == MachineState::Running {
                machine.state = MachineState::Broken;
            }
        }
        let count = self.machines.len() as u32;
        let gone = |machine: &u32| self.machines[*machine as usize].host == host;
        let gone: Vec<u32> = (0..count).filter(gone).collect();
        gone.into_iter().for_each(|machine| self.close_image(machine));
    }

    pub(super) fn start_operation(&mut self, number: u32, now: f64) {
        let machine = &mut self.machines[number as usize];
        if machine.state != MachineState::Running {
            return;
        }
        machine.since = now;
        let (host, accesses) = (machine.host, self.programs.accesses(machine.operation));
        let has_reads = !accesses.is_empty();
        let mut pending = 0;
        for access in accesses {
            let content = self.programs.content[access];
            self.match_hint(number, content);
            let length = f64::from(self.programs.length[access]);
            let flight = if !self.rules.is_cached {
                self.new_flight(host, content, (length, Class::Demand), now)
            } else if self.is_local(host, content) {
                self.read_ahead_of(host, content);
                self.stores.touch(host, content);
                self.totals.tiers[0][host as usize] += length;
                continue;
            } else {
                let whole = (self.rules.chunk_bytes, Class::Demand);
                self.flight_of[self.cell(host, content)].unwrap_or_else(|| {
                    self.tell_miss(number, content, now);
                    self.new_flight(host, content, whole, now)
                })
            };
            self.await_by_machine(flight, number);
            self.promote(flight, now);
            pending += 1;
        }
        self.machines[number as usize].pending = pending;
        self.follow_reads(number, now);
        self.follow_hints(number, now);
        if pending == 0 {
            let wait = if has_reads { self.rules.local_latency } else { 0.0 };
            self.events.push(now + wait, Event::OperationDone { machine: number });
        }
    }

    /// Takes a chunk that was fetched ahead out of its memory, since it is read now.
    fn read_ahead_of(&mut self, host: u32, content: u32) {
        let cell = self.cell(host, content);
        if self.ahead.take(host, cell) {
            self.totals.ahead_read += self.rules.chunk_bytes;
            self.keep_read(host, content, false);
        }
    }

    pub(super) fn end_operation(&mut self, number: u32, now: f64) {
        let machine = &mut self.machines[number as usize];
        if machine.state != MachineState::Running {
            return;
        }
        machine.waited += now - machine.since;
        machine.served += self.programs.served[machine.operation as usize];
        machine.operation += 1;
        let program = machine.program as usize;
        if machine.operation == self.programs.first_operation[program + 1] {
            if !self.programs.is_loop {
                machine.state = MachineState::Ended;
                machine.ended = now;
                self.close_image(number);
                return;
            }
            machine.operation = self.programs.first_operation[program];
        }
        let think = self.programs.think[machine.operation as usize];
        self.events.push(now + think, Event::Operation { machine: number });
    }

    /// Gives a machine one of the chunks that it waits for, or an I/O error.
    pub(super) fn serve_machine(&mut self, number: u32, now: f64, is_obtained: bool) {
        let machine = &mut self.machines[number as usize];
        if is_obtained {
            machine.pending -= 1;
            if machine.pending == 0 {
                self.events.push(now, Event::OperationDone { machine: number });
            }
        } else if machine.state == MachineState::Running {
            machine.state = MachineState::Broken;
            self.totals.read_errors += 1;
            self.close_image(number);
        }
    }
}
