//! Reports of agents, and the result of a run.

use super::{Event, Simulation};
use crate::network::Carried;
use crate::programs::MachineState;

/// The last report of a host, and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporter {
    at: f64,
    rates: [f64; 4],
    counted_at: f64,
    counted: [f64; 4],
}

impl Default for Reporter {
    fn default() -> Reporter {
        Reporter { at: -1.0, rates: [0.0; 4], counted_at: 0.0, counted: [0.0; 4] }
    }
}

/// The last report of each host.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// By host: when it was made; negative before the first.
    pub at: Vec<f64>,
    /// By host, four each: extra traffic received and sent, chunks received and sent.
    pub rates: Vec<f64>,
}

/// Traffic that hosts have carried since the start, bytes by host.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Extra traffic.
    pub extra_in: Vec<f64>,
    /// Extra traffic.
    pub extra_out: Vec<f64>,
    /// Chunks.
    pub moved_in: Vec<f64>,
    /// Chunks.
    pub moved_out: Vec<f64>,
}

/// All hosts' traffic at some times.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Time of each sample.
    pub at: Vec<f64>,
    /// By sample and host: bytes in and out since the start.
    pub carried: Vec<f64>,
}

/// State and times of the machines, each by machine.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// State of each: it runs, has ended, or is broken.
    pub state: Vec<MachineState>,
    /// Time of its start.
    pub started: Vec<f64>,
    /// Time of its end; not a number where it has not ended.
    pub ended: Vec<f64>,
    /// Seconds that it waited for its disk.
    pub waited: Vec<f64>,
    /// Bytes that it read and wrote.
    pub served: Vec<f64>,
}

/// Sums over a run.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Bytes read from the origin.
    pub origin_bytes: f64,
    /// Of these what some host held.
    pub origin_again: f64,
    /// Of these what a hedge read.
    pub origin_again_hedge: f64,
    /// Of these what an owner read.
    pub origin_again_remap: f64,
    /// Second sources that were asked.
    pub hedges: u64,
    /// Those that the budget did not allow.
    pub hedges_denied: u64,
    /// Those that were first.
    pub hedges_won: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Chunks that an owner obtained while another host had them.
    pub remap_misses: u64,
    /// Attempts that were given up.
    pub timeouts: u64,
    /// Peers that were asked.
    pub peer_fetches: u64,
    /// Peers that came after the origin.
    pub passed_over: u64,
    /// Rounds in which the origin took the place of all peers.
    pub bypasses: u64,
    /// Rounds in which the origin was asked before all peers.
    pub origin_first: u64,
    /// Chunks that came compressed.
    pub packed: u64,
    /// Rounds of a host whose own link was full.
    pub slow_links: u64,
    /// Bytes that read-ahead brought before anybody waited for them, to hosts that do not own them.
    pub ahead_bytes: f64,
    /// Of these what was read.
    pub ahead_read: f64,
    /// Misses that hosts told others.
    pub hints: u64,
    /// Chunks on their way ahead that somebody began to wait for.
    pub promoted: u64,
    /// Times of the sources that were chosen beside the best ones, where they are measured.
    pub regrets: Vec<f64>,
    /// Events handled.
    pub events: u64,
    /// By tier and host, bytes: local, peer, previous owner, origin.
    pub tiers: [Vec<f64>; 4],
}

impl Totals {
    pub(super) fn new(hosts: u32) -> Totals {
        Totals {
            origin_bytes: 0.0,
            origin_again: 0.0,
            origin_again_hedge: 0.0,
            origin_again_remap: 0.0,
            hedges: 0,
            hedges_denied: 0,
            hedges_won: 0,
            read_errors: 0,
            remap_misses: 0,
            timeouts: 0,
            peer_fetches: 0,
            passed_over: 0,
            bypasses: 0,
            origin_first: 0,
            packed: 0,
            slow_links: 0,
            ahead_bytes: 0.0,
            ahead_read: 0.0,
            hints: 0,
            promoted: 0,
            regrets: Vec::new(),
            events: 0,
            tiers: std::array::from_fn(|_| vec![0.0; hosts as usize]),
        }
    }
}

impl Simulation {
    /// Sums so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns how often all rates were computed.
    pub fn refills(&self) -> u64 {
        self.network.refills()
    }

    /// All hosts' traffic at the times of the samples so far.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the traffic that hosts have carried.
    pub fn counters(&self) -> Counters {
        let of = |field: fn(&Carried) -> f64| self.carried().iter().map(field).collect();
        Counters {
            extra_in: of(|one| one.extra_in),
            extra_out: of(|one| one.extra_out),
            moved_in: of(|one| one.moved_in),
            moved_out: of(|one| one.moved_out),
        }
    }

    /// The last report of each host.
    pub fn reports(&self) -> Reports {
        Reports {
            at: self.reporters.iter().map(|one| one.at).collect(),
            rates: self.reporters.iter().flat_map(|one| one.rates).collect(),
        }
    }

    /// Returns the state and the times of the machines.
    pub fn machines(&self) -> Machines {
        Machines {
            state: self.machines.iter().map(|machine| machine.state).collect(),
            started: self.machines.iter().map(|machine| machine.started).collect(),
            ended: self.machines.iter().map(|machine| machine.ended).collect(),
            waited: self.machines.iter().map(|machine| machine.waited).collect(),
            served: self.machines.iter().map(|machine| machine.served).collect(),
        }
    }

    /// By host, without the origin.
    fn carried(&self) -> &[Carried] {
        &self.network.carried()[..self.is_alive.len()]
    }

    /// Takes a host's rates since its last report, as its agent tells them.
    pub(super) fn report(&mut self, host: u32, now: f64) {
        let carried = self.carried()[host as usize];
        let last = &mut self.reporters[host as usize];
        let duration = self.clock - last.counted_at; // the clock is when the counters are of
        if duration > 0.0 && self.is_alive[host as usize] {
            let counters =
                [carried.extra_in, carried.extra_out, carried.moved_in, carried.moved_out];
            for (index, counter) in counters.into_iter().enumerate() {
                last.rates[index] = (counter - last.counted[index]) / duration;
                last.counted[index] = counter;
            }
            last.counted_at = self.clock;
            last.at = now;
        }
        let jitter = self.rules.report_jitter * self.random.unit();
        let next = now + self.rules.report_interval * (1.0 - jitter);
        self.events.push(next, Event::Report { host });
    }

    pub(super) fn sample(&mut self, now: f64) {
        if self.samples.at.len() >= self.samples_max {
            return;
        }
        self.samples.at.push(now);
        let sums = self.network.carried()[..self.is_alive.len()]
            .iter()
            .map(|one| one.extra_in + one.extra_out + one.moved_in + one.moved_out);
        self.samples.carried.extend(sums);
        self.events.push(now + self.rules.sample_interval, Event::Sample);
    }
}
