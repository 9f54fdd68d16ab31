//! Choice of a source by whoever knows all links, queues and stores of this moment.
//!
//! The bar for the choice of the data plane: how much longer a chunk takes from the source that was chosen
//! than from the best of those that it might have asked. In the mode that spares the origin these are the
//! peers in line, else the origin as well. The oracle is greedy: it knows everything of now and nothing of
//! what others will ask.

use std::time::Duration;

use acstor_selection::CompressionCost;

use super::attempts::Kind;
use super::{Simulation, flights::Flight};
use crate::rules::{Compress, Oracle};

/// Seconds below which no source is better than another.
const LEAST: f64 = 1e-4;

impl Simulation {
    /// Compares the first source of a plan with the best one, and asks that where the rules say so.
    pub(super) fn consult_oracle(&mut self, flight: u32, plan: &mut Vec<(u32, Kind)>) {
        let Flight { host, content, is_wanted, .. } = self.flights[flight as usize];
        if self.rules.oracle == Oracle::Off || plan.is_empty() {
            return;
        }
        let mut best = None;
        for (source, kind) in plan.iter().filter(|(_, kind)| *kind != Kind::Alternate) {
            let may = self.rules.boot_time || *kind != Kind::Origin;
            let time = self.time_from(host, *source, content);
            if may && best.is_none_or(|(_, least)| time < least) {
                best = Some(((*source, *kind), time));
            }
        }
        let Some((source, least)) = best else { return };
        if self.rules.oracle == Oracle::Chooses {
            plan.retain(|one| *one != source);
            plan.insert(0, source);
        }
        if is_wanted {
            let chosen = self.time_of_plan(host, content, plan);
            self.totals.regrets.push((chosen.max(LEAST) / least.max(LEAST)).max(1.0));
        }
    }

    /// Returns what a plan takes whose first source may lack the chunk.
    fn time_of_plan(&self, host: u32, content: u32, plan: &[(u32, Kind)]) -> f64 {
        let mut time = 0.0;
        for (source, kind) in plan {
            if *kind == Kind::Alternate && !self.is_local(*source, content) {
                time += self.rules.peer_latency;
                continue;
            }
            return time + self.time_from(host, *source, content);
        }
        time
    }

    /// Returns what a chunk takes that a host asks a source for now.
    fn time_from(&self, host: u32, source: u32, content: u32) -> f64 {
        if source == self.origin() {
            return self.time_from_origin(host);
        }
        if !self.is_alive[source as usize] {
            return self.rules.peer_deadline;
        }
        let bytes =
            self.rules.chunk_bytes * self.rules.wire_share * self.ratio_between(source, host);
        let queued = self.senders[source as usize].demand_waiting() as f64 * bytes;
        let sending = self.rules.peer_latency
            + queued / self.network.chunk_rate_out(source)
            + bytes / self.network.rate_between(source, host);
        if self.is_local(source, content) {
            return sending;
        }
        // One that is on its way is half there.
        let is_coming = self.flight_of[self.cell(source, content)].is_some();
        sending + self.time_from_origin(source) * if is_coming { 0.5 } else { 1.0 }
    }

    fn time_from_origin(&self, host: u32) -> f64 {
        let bytes = self.rules.chunk_bytes * self.rules.wire_share * self.rules.origin_ratio;
        let rate = self.network.rate_between(self.origin(), host);
        let one = self.rules.origin_latency + bytes / rate;
        let before = match self.rules.origin_reads {
            0 => 0,
            most => self.origin_lanes[host as usize].before_demand() / most as usize,
        };
        one * (1 + before) as f64
    }

    fn ratio_between(&self, source: u32, host: u32) -> f64 {
        let free = self.network.free_in(host).min(self.network.free_out(source));
        let chunk_time = Duration::from_secs_f64(self.rules.chunk_bytes / free.max(1.0));
        match self.rules.compress {
            Compress::Never => 1.0,
            Compress::WhereSlow if !CompressionCost::default().pays(chunk_time) => 1.0,
            Compress::WhereSlow | Compress::Always => self.rules.compress_ratio,
        }
    }
}
