//! Bytes on their way: chunks that move, extra traffic beside them, and what hosts have carried.

use crate::fairness::{Filling, Flow};
use crate::left_share::LeftShare;
use crate::tree::{Path, Tree};

/// Share of a link that a transfer is taken to get of one that has nothing left.
const LEAST_SHARE: f64 = 0.02;
/// Rate at and below which a link is that of a host that has left.
const LOST_RATE: f64 = 1e-2;
/// Rate that is left of a dead host's link: a transfer over it stalls until its deadline.
const DEAD_RATE: f64 = 1e-3;

/// Flows between hosts that have nothing to do with chunks.
#[derive(Clone, Debug, Default)]
pub struct ExtraTraffic {
    /// By flow.
    pub source: Vec<u32>,
    /// By flow.
    pub target: Vec<u32>,
    /// Rate that each wants at first.
    pub rate: Vec<f64>,
    /// Flows without congestion control, which go past the sharing of links.
    pub inelastic: Vec<u32>,
    /// Part of a link that is left to all others at least.
    pub left_share: LeftShare,
}

/// A chunk on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Transfer {
    source: u32,
    target: u32,
    asked_at: f64,
    left: f64,
    /// Time at which `left` was true.
    mark: f64,
    /// Its index in the list of moving transfers.
    moving_at: Option<u32>,
}

/// Bytes that a host has carried since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) extra_in: f64,
    pub(crate) extra_out: f64,
    pub(crate) moved_in: f64,
    pub(crate) moved_out: f64,
}

/// The links with everything that moves over them. A transfer has the number of its attempt.
#[derive(Debug)]
pub(crate) struct Network {
    tree: Tree,
    capacity: Vec<f64>,
    extra: ExtraTraffic,
    /// Links of which chunks get more than extra traffic leaves, by how many they are; and what it
    /// leaves.
    full: Vec<(u32, f64)>,
    /// By link: chunks that move over it, for the links in `full`.
    chunks: Vec<u32>,
    /// Of the extra flows by what they want, least first.
    extra_order: Vec<u32>,
    /// The extra flows, then the transfers.
    flows: Vec<Flow>,
    filling: Filling,
    sharing: Vec<u32>,
    transfers: Vec<Transfer>,
    moving: Vec<u32>,
    /// By host, the origin last.
    carried: Vec<Carried>,
    is_dirty: bool,
    refills: u64,
}

impl Network {
    pub(crate) fn new(tree: Tree, extra: ExtraTraffic) -> Network {
        let capacity = tree.capacity().to_vec();
        let mut network = Network {
            filling: Filling::new(&capacity),
            carried: vec![Carried::default(); tree.host_count() as usize + 1],
            extra_order: Vec::new(),
            full: Vec::new(),
            chunks: vec![0; capacity.len()],
            flows: Vec::new(),
            sharing: Vec::new(),
            transfers: Vec::new(),
            moving: Vec::new(),
            is_dirty: true,
            refills: 0,
            tree,
            capacity,
            extra,
        };
        for flow in 0..network.extra.rate.len() {
            let path = network.extra_path(flow);
            network.flows.push(Flow::new(path, network.extra.rate[flow]));
        }
        for flow in &network.extra.inelastic {
            network.flows[*flow as usize].path = Path::default();
        }
        network
    }

    fn extra_path(&self, flow: usize) -> Path {
        self.tree.path(self.extra.source[flow], self.extra.target[flow])
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn carried(&self) -> &[Carried] {
        &self.carried
    }

    pub(crate) fn refills(&self) -> u64 {
        self.refills
    }

    /// The transfers that move now.
    pub(crate) fn moving(&self) -> &[u32] {
        &self.moving
    }

    /// Lets the extra traffic want so many times what it wanted at first.
    ///
    /// What is not elastic goes first; what is left, a small share at least, is for all others.
    pub(crate) fn set_extra(&mut self, factor: f64) {
        let count = self.extra.rate.len();
        for (flow, rate) in self.flows.iter_mut().zip(&self.extra.rate) {
            flow.cap = rate * factor;
        }
        let nominal = self.tree.capacity();
        let mut used = vec![0.0; nominal.len()];
        for number in &self.extra.inelastic {
            let cap = self.flows[*number as usize].cap;
            for link in self.extra_path(*number as usize).links() {
                used[*link as usize] += cap;
            }
        }
        for at in 0..self.extra.inelastic.len() {
            let number = self.extra.inelastic[at] as usize;
            let path = self.extra_path(number);
            let links = path.links().iter().map(|link| *link as usize);
            let over = links.map(|link| used[link] / nominal[link].max(1e-9));
            self.flows[number].cap /= over.fold(1.0, f64::max);
        }
        self.extra_order = (0..count as u32).collect();
        let flows = &self.flows;
        self.extra_order.sort_by(|a, b| flows[*a as usize].cap.total_cmp(&flows[*b as usize].cap));
        self.full.clear();
        for (link, capacity) in self.capacity.iter_mut().enumerate() {
            if *capacity > LOST_RATE {
                let unused = nominal[link] - used[link];
                if unused < self.extra.left_share.most() * nominal[link] {
                    self.full.push((link as u32, unused));
                } else {
                    *capacity = unused;
                }
            }
        }
        self.share_full_links();
        self.is_dirty = true;
    }

    /// Gives chunks their part of the links that extra traffic fills.
    fn share_full_links(&mut self) {
        if let LeftShare::Measured = self.extra.left_share {
            self.count_chunks();
        }
        for (link, unused) in &self.full {
            let number = *link as usize;
            if self.capacity[number] > LOST_RATE {
                let share =
                    self.extra.left_share.of(self.chunks[number], self.tree.direction(*link));
                self.capacity[number] = unused.max(share * self.tree.capacity()[number]);
            }
        }
    }

    /// Counts the chunks that move over each link.
    fn count_chunks(&mut self) {
        self.chunks.fill(0);
        let extra = self.extra.rate.len();
        for attempt in &self.moving {
            for link in self.flows[extra + *attempt as usize].path.links() {
                self.chunks[*link as usize] += 1;
            }
        }
    }

    /// Ends the extra traffic of hosts that have left, from the next [`Network::set_extra`] on.
    pub(crate) fn drop_extra(&mut self, is_gone: impl Fn(u32) -> bool) {
        for flow in 0..self.extra.rate.len() {
            if is_gone(self.extra.source[flow]) || is_gone(self.extra.target[flow]) {
                self.extra.rate[flow] = 0.0;
            }
        }
    }

    /// Lets what a host sends stall.
    pub(crate) fn cut(&mut self, host: u32) {
        self.capacity[self.tree.own_up(host) as usize] = DEAD_RATE;
        self.is_dirty = true;
    }

    /// Computes the rates of everything that moves, if anything has changed.
    pub(crate) fn refill(&mut self, is_elastic: bool, in_order: f64) {
        if !self.is_dirty {
            return;
        }
        if self.extra.left_share == LeftShare::Measured && !self.full.is_empty() {
            self.share_full_links();
        }
        let extra = self.extra.rate.len() as u32;
        self.sharing.clear();
        let mut capped: &[u32] = &[];
        if is_elastic {
            self.sharing.extend(0..extra);
            capped = &self.extra_order;
        }
        self.sharing.extend(self.moving.iter().map(|attempt| extra + attempt));
        self.filling.fill(&mut self.flows, &self.sharing, capped, &self.capacity);
        if in_order > 0.0 {
            self.favour_earlier(in_order);
        }
        self.is_dirty = false;
        self.refills += 1;
    }

    /// Takes a share of each chunk's rate away and gives it to those that were asked for first.
    ///
    /// That is what a queue does in which packets of all connections wait in the order in which
    /// they came: of chunks that one owner is asked for at once the first is there long before the
    /// last. A chunk that another link holds up takes no more than that link lets through.
    fn favour_earlier(&mut self, share: f64) {
        let extra = self.extra.rate.len();
        let links = &mut self.filling.links;
        for attempt in &self.moving {
            let flow = &mut self.flows[extra + *attempt as usize];
            let taken = share * flow.rate;
            flow.rate -= taken;
            flow.path.links().iter().for_each(|link| links[*link as usize].left += taken);
        }
        let mut by_age = self.moving.clone();
        let asked_at = |attempt: &u32| self.transfers[*attempt as usize].asked_at;
        by_age.sort_by(|a, b| asked_at(a).total_cmp(&asked_at(b)));
        for attempt in by_age {
            let flow = &mut self.flows[extra + attempt as usize];
            let left = flow.path.links().iter().map(|link| links[*link as usize].left);
            let room = left.fold(f64::INFINITY, f64::min);
            flow.rate += room;
            flow.path.links().iter().for_each(|link| links[*link as usize].left -= room);
        }
    }

    /// Lets a chunk move; until the next computation at a rate that is estimated.
    pub(crate) fn start(
        &mut self,
        attempt: u32,
        (source, target): (u32, u32),
        bytes: f64,
        asked_at: f64,
        now: f64,
    ) {
        let number = attempt as usize;
        let row = self.extra.rate.len() + number;
        if row >= self.flows.len() {
            self.flows.resize(row + 1, Flow::new(Path::default(), f64::INFINITY));
            self.transfers.resize(number + 1, Transfer::default());
        }
        let path = self.tree.chunk_path(source, target);
        let rate = self.rate_over(&path);
        for number in path.links() {
            let link = &mut self.filling.links[*number as usize];
            link.left -= rate;
            link.bottlenecked += u32::from(link.level.is_some());
        }
        self.flows[row].path = path;
        self.flows[row].rate = rate;
        let moving_at = Some(self.moving.len() as u32);
        self.transfers[number] =
            Transfer { source, target, asked_at, left: bytes, mark: now, moving_at };
        self.moving.push(attempt);
        self.is_dirty = true;
    }

    /// Returns the rate at which a transfer would begin.
    fn rate_over(&self, path: &Path) -> f64 {
        let share_of = |number: &u32| {
            let link = &self.filling.links[*number as usize];
            match link.level {
                Some(level) => {
                    let sharing = f64::from(link.bottlenecked);
                    level * sharing / (sharing + 1.0)
                }
                None => link.left.max(LEAST_SHARE * self.capacity[*number as usize]),
            }
        };
        path.links().iter().map(share_of).fold(f64::INFINITY, f64::min)
    }

    /// Returns the rate at which a chunk between two hosts, or from the origin, would begin to move.
    pub(crate) fn rate_between(&self, source: u32, target: u32) -> f64 {
        self.rate_over(&self.tree.chunk_path(source, target))
    }

    /// Returns the rate that chunks together have of a host's link outwards.
    pub(crate) fn chunk_rate_out(&self, host: u32) -> f64 {
        self.capacity[self.tree.own_up(host) as usize]
    }

    /// Returns the time at which a transfer ends if its rate stays; `None`: it stalls.
    pub(crate) fn finish_of(&self, attempt: u32) -> Option<f64> {
        let rate = self.flows[self.extra.rate.len() + attempt as usize].rate;
        let transfer = &self.transfers[attempt as usize];
        (rate > 0.0).then(|| transfer.mark + transfer.left / rate)
    }

    /// Returns the time at which so many bytes of a transfer are left if its rate stays; `None`: it
    /// stalls, or does not move.
    pub(crate) fn time_of_left(&self, attempt: u32, bytes: f64) -> Option<f64> {
        let transfer = self.transfers.get(attempt as usize)?;
        transfer.moving_at?;
        let rate = self.flows[self.extra.rate.len() + attempt as usize].rate;
        let until = (transfer.left - bytes).max(0.0);
        if until == 0.0 {
            return Some(transfer.mark);
        }
        (rate > 0.0).then(|| transfer.mark + until / rate)
    }

    /// Returns the rate that extra traffic leaves of a host's link inwards.
    pub(crate) fn free_in(&self, host: u32) -> f64 {
        self.free_of(self.tree.own_down(host))
    }

    /// Returns the rate that extra traffic leaves of a host's link outwards.
    pub(crate) fn free_out(&self, host: u32) -> f64 {
        self.free_of(self.tree.own_up(host))
    }

    fn free_of(&self, link: u32) -> f64 {
        let full = self.full.iter().find(|(number, _)| *number == link);
        full.map_or(self.capacity[link as usize], |(_, unused)| unused.max(0.0))
    }

    /// Moves bytes of a transfer up to now.
    pub(crate) fn progress(&mut self, attempt: u32, now: f64) {
        let rate = self.flows[self.extra.rate.len() + attempt as usize].rate;
        let transfer = &mut self.transfers[attempt as usize];
        let moved = transfer.left.min(rate * (now - transfer.mark));
        transfer.left -= moved;
        transfer.mark = now;
        self.carried[transfer.source as usize].moved_out += moved;
        self.carried[transfer.target as usize].moved_in += moved;
    }

    /// Moves bytes of all transfers up to now.
    pub(crate) fn progress_all(&mut self, now: f64) {
        for at in 0..self.moving.len() {
            self.progress(self.moving[at], now);
        }
    }

    /// Counts what the extra traffic carries in so many seconds.
    pub(crate) fn count_extra(&mut self, duration: f64) {
        for (flow, (source, target)) in
            self.flows.iter().zip(self.extra.source.iter().zip(&self.extra.target))
        {
            let amount = flow.rate * duration;
            self.carried[*source as usize].extra_out += amount;
            self.carried[*target as usize].extra_in += amount;
        }
    }

    /// Takes a transfer off the network, finished or not; one that has not begun is ignored.
    pub(crate) fn stop(&mut self, attempt: u32, now: f64) {
        let Some(at) = self.transfers.get(attempt as usize).and_then(|one| one.moving_at) else {
            return;
        };
        self.progress(attempt, now);
        let flow = &self.flows[self.extra.rate.len() + attempt as usize];
        for number in flow.path.links() {
            let link = &mut self.filling.links[*number as usize];
            link.left += flow.rate;
            if link.level.is_some() && link.bottlenecked > 1 {
                link.bottlenecked -= 1;
            }
        }
        self.moving.swap_remove(at as usize);
        if let Some(last) = self.moving.get(at as usize) {
            self.transfers[*last as usize].moving_at = Some(at);
        }
        self.transfers[attempt as usize].moving_at = None;
        self.is_dirty = true;
    }
}
