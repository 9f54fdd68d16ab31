//! Latencies of recent fetches by peer, for people and for the policy service.

use std::time::Duration;

/// Latencies of recent fetches from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLatency {
    /// Its name in the ring.
    pub name: String,
    /// Right answers since this host knows it.
    pub fetches: u64,
    /// Median time of a fetch; up to a fifth too high.
    pub p50: Duration,
    /// 99th percentile of the time of a fetch; up to a fifth too high.
    pub p99: Duration,
}

/// Returns at most `max` of the peers, those first that this host fetched most from.
pub(super) fn busiest(mut peers: Vec<PeerLatency>, max: usize) -> Vec<PeerLatency> {
    peers.sort_by(|a, b| b.fetches.cmp(&a.fetches).then_with(|| a.name.cmp(&b.name)));
    peers.truncate(max);
    peers
}

#[cfg(test)]
mod tests {
    use acstor_runclock::RunInstant;
    use acstor_selection::{OverloadTimes, limits};

    use super::*;
    use crate::steering::moment;
    use crate::steering::peer_table::PeerTable;

    #[test]
    fn test_busiest_come_first_and_no_more_than_asked_for() {
        let table = PeerTable::new(1, OverloadTimes::of(Duration::from_millis(5)));
        for (name, answers) in [("few", 1), ("b", 50), ("many", 900), ("a", 50), ("none", 0)] {
            let peer = table.get(name);
            (0..answers).for_each(|_| {
                peer.health().answered(Duration::from_millis(3), moment(RunInstant::unmeasured()))
            });
        }
        let now = RunInstant::unmeasured();
        let found = busiest(table.latencies(now), 3);
        let names: Vec<_> = found.iter().map(|peer| (peer.name.as_str(), peer.fetches)).collect();
        assert_eq!(names, [("many", 900), ("a", 50), ("b", 50)]);
        for peer in busiest(table.latencies(now), 9) {
            let bounds = Duration::from_millis(3)..Duration::from_micros(3700);
            assert!(bounds.contains(&peer.p50) && bounds.contains(&peer.p99), "{peer:?}");
        }
        assert_eq!(busiest(table.latencies(now), 9).len(), 4, "who never answered is not told");
        assert_eq!(table.latencies(now + limits::LATENCY_AGE_MAX), []);
    }
}
