//! The walk around the circle that finds whom to ask for a chunk.

use crate::{Host, HostId, Ring, Threshold};

/// Distinct hosts in the order of the circle, without those that are too far.
///
/// Made by [`Ring::candidates`]. Ends when every host that the threshold admits has appeared; one
/// step costs as many table loads as v-nodes are passed, on average the share of admitted hosts
/// inverted.
#[derive(Debug)]
pub struct Candidates<'r> {
    ring: &'r Ring,
    from: Option<HostId>,
    threshold: Threshold,
    position: usize,
    eligible_left: u32,
    skipped: u32,
    seen: SeenHosts,
}

impl<'r> Candidates<'r> {
    pub(crate) fn new(
        ring: &'r Ring,
        vnode: u32,
        from: Option<HostId>,
        threshold: Threshold,
        eligible: u32,
    ) -> Candidates<'r> {
        Candidates {
            ring,
            from,
            threshold,
            position: vnode as usize,
            eligible_left: eligible,
            skipped: 0,
            seen: SeenHosts::default(),
        }
    }

    /// Returns the id of the next candidate; advances like [`Iterator::next`].
    pub fn next_id(&mut self) -> Option<HostId> {
        let vnodes = self.ring.vnodes();
        // Each admitted host owns a v-node, so the walk meets it within one turn.
        while self.eligible_left > 0 {
            let host = HostId(vnodes[self.position]);
            self.position = (self.position + 1) & (vnodes.len() - 1);
            if !self.seen.insert(host, self.ring.hosts().len()) {
                continue;
            }
            if self.threshold.admits(self.ring.distance(self.from, host)) {
                self.eligible_left -= 1;
                return Some(host);
            }
            self.skipped += 1;
        }
        None
    }

    /// Returns the number of distinct hosts that have been passed over so far because they are too
    /// far.
    pub fn skipped(&self) -> u32 {
        self.skipped
    }
}

impl<'r> Iterator for Candidates<'r> {
    type Item = &'r Host;

    fn next(&mut self) -> Option<&'r Host> {
        let id = self.next_id()?;
        self.ring.host(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.eligible_left as usize, Some(self.eligible_left as usize))
    }
}

impl ExactSizeIterator for Candidates<'_> {}
impl std::iter::FusedIterator for Candidates<'_> {}

const SEEN_INLINE: usize = 8;

/// The hosts already met: the first few in place, a bit per host once there are more.
#[derive(Debug, Default)]
struct SeenHosts {
    first: [u16; SEEN_INLINE],
    first_len: usize,
    bits: Vec<u64>,
}

impl SeenHosts {
    /// Adds a host; returns whether it is new.
    fn insert(&mut self, host: HostId, host_count: usize) -> bool {
        if self.bits.is_empty() {
            let first = &self.first[..self.first_len];
            if first.contains(&host.0) {
                return false;
            }
            if self.first_len < SEEN_INLINE {
                self.first[self.first_len] = host.0;
                self.first_len += 1;
                return true;
            }
            self.bits = vec![0; host_count.div_ceil(64)];
            for seen in self.first {
                self.bits[usize::from(seen) / 64] |= 1 << (seen % 64);
            }
        }
        let word = &mut self.bits[usize::from(host.0) / 64];
        let bit = 1 << (host.0 % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}
