//! Rings as the simulation uses them: who is asked for each place, looked up in the real ring.
//!
//! The lookup is [`Ring::candidates`]. It is asked once per place and group of hosts that see the
//! same line (all hosts without a threshold, the hosts below one switch with one), and the answers
//! are kept as a table.

use std::collections::HashMap;
use std::fmt;

use acstor_ring::{HostId, Ring, Threshold};
use acstor_types::Oid;

use crate::tree::Tree;

/// Hosts of a line that are kept: candidates, and whether the asking host is among them.
pub(crate) const LINE: usize = 4;
/// Rings before the one in use that a host remembers.
pub(crate) const PREVIOUS_MAX: usize = 4;

/// The hosts to ask for a place, the owner first.
pub(crate) type Line = [Option<u32>; LINE];

/// A ring has a host that is none of the tree's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHostError(pub String);

impl fmt::Display for UnknownHostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} of a ring is none of the simulation's", self.0)
    }
}

impl std::error::Error for UnknownHostError {}

/// A ring with a threshold, as hosts use it.
#[derive(Debug)]
struct Slot {
    generation: u64,
    /// By host.
    group: Vec<u32>,
    /// By group and place.
    lines: Vec<Line>,
}

/// The rings that hosts use and remember.
#[derive(Debug)]
pub(crate) struct Lines {
    slots: Vec<Slot>,
    /// By host; `None` before the first.
    used: Vec<Option<u32>>,
    /// By host, the last one first.
    previous: Vec<[Option<u32>; PREVIOUS_MAX]>,
    placement: Vec<u32>,
    oids: Vec<Oid>,
}

impl Lines {
    pub(crate) fn new(hosts: u32, placement: Vec<u32>, oids: &[u64]) -> Lines {
        Lines {
            slots: Vec::new(),
            used: vec![None; hosts as usize],
            previous: vec![[None; PREVIOUS_MAX]; hosts as usize],
            placement,
            oids: oids.iter().copied().map(Oid).collect(),
        }
    }

    /// Looks up the lines of a ring and returns the number by which hosts use it.
    ///
    /// `names` are the hosts' in the ring.
    pub(crate) fn install(
        &mut self,
        ring: &Ring,
        threshold: Option<u8>,
        tree: &Tree,
        names: &[String],
    ) -> Result<u32, UnknownHostError> {
        let numbers: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        let host_of: Vec<u32> = ring
            .hosts()
            .iter()
            .map(|host| numbers.get(host.name.as_str()).copied())
            .zip(ring.hosts())
            .map(|(number, host)| number.ok_or_else(|| UnknownHostError(host.name.clone())))
            .collect::<Result<_, _>>()?;
        let (group, asking) = groups(tree, threshold);
        let mut lines = Vec::with_capacity(asking.len() * self.oids.len());
        for representative in &asking {
            let from = representative.and_then(|host| ring.host_id(names.get(host as usize)?));
            let threshold = threshold.filter(|_| representative.is_some());
            let threshold = threshold.map_or(Threshold::ANY, Threshold);
            lines
                .extend(self.oids.iter().map(|oid| line_of(ring, *oid, from, threshold, &host_of)));
        }
        self.slots.push(Slot { generation: ring.generation(), group, lines });
        Ok(self.slots.len() as u32 - 1)
    }

    /// Lets a host use a ring and threshold from now on.
    pub(crate) fn apply(&mut self, host: u32, slot: u32) {
        let used = &mut self.used[host as usize];
        if let Some(last) = *used {
            let generation = |slot: u32| self.slots[slot as usize].generation;
            if last != slot && generation(last) != generation(slot) {
                let previous = &mut self.previous[host as usize];
                previous.rotate_right(1);
                previous[0] = Some(last);
            }
        }
        *used = Some(slot);
    }

    /// Returns the hosts that a host asks for a content, as it knows.
    pub(crate) fn line(&self, host: u32, content: u32) -> Line {
        let Some(slot) = self.used[host as usize] else { return [None; LINE] };
        self.line_of_slot(slot, host, content)
    }

    /// Returns the owners of a content by the rings that a host remembers, the last one first.
    pub(crate) fn previous_owners(
        &self,
        host: u32,
        content: u32,
    ) -> impl Iterator<Item = Option<u32>> + '_ {
        let slots = self.previous[host as usize].iter().map_while(|slot| *slot);
        slots.map(move |slot| self.line_of_slot(slot, host, content)[0])
    }

    fn line_of_slot(&self, slot: u32, host: u32, content: u32) -> Line {
        let slot = &self.slots[slot as usize];
        let place = self.placement[content as usize] as usize;
        slot.lines[slot.group[host as usize] as usize * self.oids.len() + place]
    }
}

fn line_of(
    ring: &Ring,
    oid: Oid,
    from: Option<HostId>,
    threshold: Threshold,
    host_of: &[u32],
) -> Line {
    let mut line = [None; LINE];
    let mut candidates = ring.candidates(oid, from, threshold);
    for place in &mut line {
        *place = candidates.next_id().map(|id| host_of[usize::from(id.0)]);
    }
    line
}

/// Returns the group of each host, and a host of each group where it matters who asks.
fn groups(tree: &Tree, threshold: Option<u8>) -> (Vec<u32>, Vec<Option<u32>>) {
    let depth = tree.depth();
    let level = threshold.map_or(depth, |hops| usize::from(hops.saturating_sub(3)).div_ceil(2));
    if level + 1 >= depth {
        return (vec![0; tree.host_count() as usize], vec![None]);
    }
    let group = (0..tree.host_count()).map(|host| tree.switch_of(host, level)).collect();
    let below = tree.hosts_below(level);
    (group, (0..tree.host_count()).step_by(below as usize).map(Some).collect())
}
