//! The peers that this host met: their health behind a lock each, and their permits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_selection::{Moment, OverloadTimes, PeerHealth, Reading};
use acstor_types::DiskId;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Semaphore;

use crate::limits;
use crate::steering::moment;
use crate::steering::peer_latencies::{PeerLatency, busiest};

/// One peer, by the name that the ring gives it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Arc<str>,
    /// Fetches under way; one permit each.
    pub(crate) permits: Arc<Semaphore>,
    /// Preloads take one of these first, of which there are fewer.
    pub(crate) preload_permits: Arc<Semaphore>,
    /// And so does what is fetched ahead.
    pub(crate) ahead_permits: Arc<Semaphore>,
    shares: DiskShares,
    health: Mutex<PeerHealth>,
}

/// Shares of a peer's permits, one for each disk: not all, so that the fetches of one that hang
/// leave some to the others.
#[derive(Debug)]
struct DiskShares {
    of_each: usize,
    by_disk: Mutex<HashMap<DiskId, Arc<Semaphore>>>,
}

impl DiskShares {
    fn new(inflight_max: usize) -> DiskShares {
        let left = inflight_max / limits::DISK_SHARE_LEFT_DIVISOR;
        let of_each = (inflight_max - left).max(1);
        DiskShares { of_each, by_disk: Mutex::default() }
    }

    fn of(&self, disk: DiskId) -> Arc<Semaphore> {
        let mut by_disk = self.by_disk.lock();
        if by_disk.len() >= limits::DISK_SHARES_MAX {
            by_disk.retain(|_, share| Arc::strong_count(share) > 1);
        }
        by_disk.entry(disk).or_insert_with(|| Arc::new(Semaphore::new(self.of_each))).clone()
    }
}

impl Peer {
    fn new(name: &str, inflight_max: usize, times: OverloadTimes) -> Peer {
        let preload_max = inflight_max / limits::PRELOAD_PERMITS_DIVISOR;
        let ahead_max = inflight_max / limits::AHEAD_PERMITS_DIVISOR;
        Peer {
            name: name.into(),
            permits: Arc::new(Semaphore::new(inflight_max)),
            preload_permits: Arc::new(Semaphore::new(preload_max.max(1))),
            ahead_permits: Arc::new(Semaphore::new(ahead_max.max(1))),
            shares: DiskShares::new(inflight_max),
            health: Mutex::new(PeerHealth::new(times)),
        }
    }

    /// The permits that fetches for one disk share.
    pub(crate) fn disk_share(&self, disk: DiskId) -> Arc<Semaphore> {
        self.shares.of(disk)
    }

    /// Returns the health of the peer. Held for a moment only, and with no other peer's.
    pub(crate) fn health(&self) -> MutexGuard<'_, PeerHealth> {
        self.health.lock()
    }

    /// Asks for leave to fetch from the peer; `trial_time` is how long a fetch may take at most.
    pub(crate) fn admit(&self, trial_time: Duration, now: RunInstant) -> bool {
        self.health().admit(trial_time, moment(now))
    }

    fn latency(&self, now: Moment) -> Option<PeerLatency> {
        let found = self.health().latency(now)?;
        let name = self.name.to_string();
        Some(PeerLatency { name, fetches: found.fetches, p50: found.p50, p99: found.p99 })
    }
}

/// The peers met so far.
#[derive(Debug)]
pub(crate) struct PeerTable {
    peers: RwLock<HashMap<String, Arc<Peer>>>,
    inflight_max: usize,
    times: OverloadTimes,
}

impl PeerTable {
    pub(crate) fn new(inflight_max: usize, times: OverloadTimes) -> PeerTable {
        PeerTable { peers: RwLock::default(), inflight_max, times }
    }

    /// Returns what is known of a peer.
    pub(crate) fn get(&self, name: &str) -> Arc<Peer> {
        if let Some(peer) = self.peers.read().get(name) {
            return peer.clone();
        }
        let mut peers = self.peers.write();
        if peers.len() >= limits::PEERS_TRACKED_MAX {
            // Hosts come and go for years; what is forgotten is learnt again within seconds.
            peers.clear();
        }
        peers
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Peer::new(name, self.inflight_max, self.times)))
            .clone()
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Peer>> {
        self.peers.read().values().cloned().collect()
    }

    /// Their part in the overview of all sources.
    pub(crate) fn readings(&self, slow_fetch: Duration, now: Moment) -> Vec<Reading> {
        let reading = |peer: &Arc<Peer>| peer.health().delay().reading(slow_fetch, now);
        self.peers.read().values().map(reading).collect()
    }

    /// Returns the latencies of recent fetches from the peers that answered.
    pub(crate) fn latencies(&self, now: RunInstant) -> Vec<PeerLatency> {
        let now = moment(now);
        self.peers.read().values().filter_map(|peer| peer.latency(now)).collect()
    }

    /// As [`PeerTable::latencies`], of at most `max` peers, those first that this host fetched most from.
    pub(crate) fn busiest(&self, max: usize, now: RunInstant) -> Vec<PeerLatency> {
        busiest(self.latencies(now), max)
    }

    /// Returns the number of peers whose breaker is not closed now.
    pub(crate) fn open(&self) -> usize {
        self.peers.read().values().filter(|peer| !peer.health().breaker().is_closed()).count()
    }
}
