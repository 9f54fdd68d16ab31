//! Place of a host in the network, and distance of two hosts.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::host::is_name_byte;
use crate::{Host, HostId, RingError, limits};

/// Path of switches above a host, from the root down, such as `pod-2/rack-17`; empty: unknown.
///
/// The paper's three-level tree has paths of two segments, the aggregate and the edge switch; the
/// root is common to all and has no segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Topology(Vec<String>);

impl Topology {
    /// The topology of a host of which nothing is known.
    pub const UNKNOWN: Topology = Topology(Vec::new());

    /// The segments, the one nearest to the root first.
    pub fn segments(&self) -> &[String] {
        &self.0
    }

    /// Returns whether nothing is known of the host's place.
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Topology {
    type Err = RingError;

    /// Takes a path such as `pod-2/rack-17`; the empty text is [`Topology::UNKNOWN`].
    fn from_str(text: &str) -> Result<Topology, RingError> {
        if text.is_empty() {
            return Ok(Topology::UNKNOWN);
        }
        if text.split('/').count() > limits::TOPOLOGY_DEPTH_MAX {
            return Err(RingError::Range("topology has more than 4 segments"));
        }
        let mut segments = Vec::new();
        for segment in text.split('/') {
            if segment.is_empty() || segment.len() > limits::TOPOLOGY_SEGMENT_LEN_MAX {
                return Err(RingError::Range("topology segment is empty or above 63 bytes"));
            }
            if !segment.bytes().all(is_name_byte) {
                return Err(RingError::Range(
                    "topology segment has a character other than letters, digits and -_.@",
                ));
            }
            segments.push(segment.to_owned());
        }
        Ok(Topology(segments))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Distance from which on a host is too far to be asked, hops.
///
/// A host is a candidate when its distance is *below* the threshold: Algorithm 1, line 9, so that
/// the thresholds of Algorithm 2 apply as they are. In the three-level tree: 7 admits every host,
/// 5 those under the same aggregate switch (root switches are loaded), 3 those under the same edge
/// switch (aggregate switches are loaded), 1 only the host itself, 0 nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Threshold(pub u8);

impl Threshold {
    /// Admits every host in any topology.
    pub const ANY: Threshold = Threshold(u8::MAX);

    /// Returns whether a host at `distance` hops may be asked.
    pub const fn admits(self, distance: u8) -> bool {
        distance < self.0
    }
}

impl Default for Threshold {
    fn default() -> Threshold {
        Threshold::ANY
    }
}

const UNKNOWN_DISTANCE: u8 = 1;
/// Level 0 is the root, level d the switch of the path's d-th segment.
const LEVELS: usize = limits::TOPOLOGY_DEPTH_MAX + 1;

/// The topology of all hosts of a ring, as numbers: one per switch.
#[derive(Clone, Debug)]
pub(crate) struct TopologyIndex {
    depth: usize,
    /// Per host the switches above it by level; `None`: unknown.
    switches: Vec<Option<[u32; LEVELS]>>,
    /// Per switch how many hosts below it own a v-node.
    owners_below: Vec<u32>,
    owners_unknown: u32,
    owners: u32,
}

impl TopologyIndex {
    /// Numbers the switches; `vnode_counts` is parallel to `hosts`.
    pub(crate) fn new(hosts: &[Host], vnode_counts: &[u32]) -> Result<TopologyIndex, RingError> {
        let mut index = TopologyIndex {
            depth: 0,
            switches: Vec::with_capacity(hosts.len()),
            owners_below: vec![0],
            owners_unknown: 0,
            owners: 0,
        };
        let mut numbers: HashMap<&[String], u32> = HashMap::new();
        for (host, vnode_count) in hosts.iter().zip(vnode_counts) {
            let owner = u32::from(*vnode_count > 0);
            index.owners += owner;
            let segments = host.topology.segments();
            if segments.is_empty() {
                index.owners_unknown += owner;
                index.switches.push(None);
                continue;
            }
            if index.depth != 0 && index.depth != segments.len() {
                return Err(RingError::Host {
                    name: host.name.clone(),
                    reason: "its topology has another number of segments than the other hosts'",
                });
            }
            index.depth = segments.len();
            let mut above = [0; LEVELS];
            for level in 1..=segments.len() {
                let next = index.owners_below.len() as u32;
                above[level] = *numbers.entry(&segments[..level]).or_insert(next);
                if above[level] == next {
                    index.owners_below.push(0);
                }
            }
            for switch in &above[..=segments.len()] {
                index.owners_below[*switch as usize] += owner;
            }
            index.switches.push(Some(above));
        }
        Ok(index)
    }

    /// Hosts that own at least one v-node.
    pub(crate) fn owners(&self) -> u32 {
        self.owners
    }

    /// Hops from `from` to `to`; see [`crate::Ring::distance`].
    pub(crate) fn distance(&self, from: Option<HostId>, to: HostId) -> u8 {
        let Some(from) = from else { return UNKNOWN_DISTANCE };
        if from == to {
            return 0;
        }
        match (self.above(from), self.above(to)) {
            (Some(from), Some(to)) => {
                let mut common = self.depth;
                while from[common] != to[common] {
                    common -= 1; // level 0, the root, is common to all
                }
                2 * (self.depth - common) as u8 + 1
            }
            _ => UNKNOWN_DISTANCE,
        }
    }

    /// Returns the number of hosts that own v-nodes and that `threshold` admits, seen from `from`.
    ///
    /// Exactly the hosts that a walk around the circle can find, so that the walk can stop.
    pub(crate) fn owners_within(
        &self,
        from: Option<HostId>,
        from_owns: bool,
        threshold: Threshold,
    ) -> u32 {
        if !threshold.admits(UNKNOWN_DISTANCE) {
            return u32::from(threshold.admits(0) && from_owns);
        }
        match from.and_then(|from| self.above(from)) {
            None => self.owners,
            Some(above) => {
                let levels_up = (usize::from(threshold.0) - 2) / 2;
                let top = self.depth - levels_up.min(self.depth);
                self.owners_below[above[top] as usize] + self.owners_unknown
            }
        }
    }

    fn above(&self, host: HostId) -> Option<&[u32; LEVELS]> {
        self.switches.get(usize::from(host.0)).and_then(Option::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(paths: &[&str]) -> TopologyIndex {
        let hosts: Vec<Host> = paths
            .iter()
            .enumerate()
            .map(|(number, path)| {
                Host::new(format!("h{number}"), "10.0.0.1:1", 1)
                    .with_topology(path.parse().unwrap())
            })
            .collect();
        TopologyIndex::new(&hosts, &vec![1; hosts.len()]).unwrap()
    }

    #[test]
    fn distance_counts_the_switches_on_the_way() {
        let index = index(&["a/1", "a/1", "a/2", "b/1", ""]);
        let from = Some(HostId(0));
        assert_eq!(index.distance(from, HostId(0)), 0);
        assert_eq!(index.distance(from, HostId(1)), 1);
        assert_eq!(index.distance(from, HostId(2)), 3);
        assert_eq!(index.distance(from, HostId(3)), 5);
        assert_eq!(index.distance(from, HostId(4)), 1);
        assert_eq!(index.distance(None, HostId(3)), 1);
    }

    #[test]
    fn hosts_within_a_threshold_are_those_whose_distance_it_admits() {
        let index = index(&["a/1", "a/1", "a/2", "b/1", "b/1", "", ""]);
        for from in (0..7).map(|host| Some(HostId(host))).chain([None]) {
            for threshold in (0..=10).map(Threshold) {
                let expected = (0..7)
                    .filter(|to| threshold.admits(index.distance(from, HostId(*to))))
                    .count() as u32;
                let actual = index.owners_within(from, from.is_some(), threshold);
                assert_eq!(actual, expected, "{from:?} {threshold:?}");
            }
        }
    }

    #[test]
    fn paths_of_different_depth_are_refused() {
        let hosts = ["a/1", "a"]
            .map(|path| Host::new("h", "10.0.0.1:1", 1).with_topology(path.parse().unwrap()));
        assert!(matches!(TopologyIndex::new(&hosts, &[1, 1]), Err(RingError::Host { .. })));
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in ["/", "a/", "/a", "a//b", "a b", "1/2/3/4/5", &"x".repeat(64)] {
            assert!(path.parse::<Topology>().is_err(), "{path}");
        }
    }
}
