//! Status of a data plane; the keys are those of `DataPlane.status` in the stubs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use acstor_fuse::SessionState;
use acstor_readpath::Tier;
use acstor_ring::Threshold;
use serde_json::{Map, Value, json};

use super::{Host, HostState};

/// Most peers whose latency the status tells.
const PEERS_MAX: usize = 64;

impl Host {
    /// Returns a snapshot.
    pub fn status(&self) -> Value {
        let parts = &self.parts;
        let store = parts.store.stats();
        let chunk_bytes = parts.chunk_size.bytes() as u64;
        json!({
            "state": self.state_name(),
            "ring_generation": match parts.rings.generation() { 0 => None, number => Some(number) },
            "distance_threshold": match parts.read_path.distance_threshold() {
                Threshold::ANY => None,
                Threshold(hops) => Some(hops),
            },
            "images": parts.images.lock().len(),
            "store": {
                "capacity_bytes": store.slots * chunk_bytes,
                "used_bytes": store.slots_used * chunk_bytes,
                "chunks": store.slots_used,
                "pinned_bytes": store.pinned * chunk_bytes,
            },
            "fuse": self.fuse_status(),
            "runtime_late_ms": self.runtime_late().as_millis() as u64,
            "reads": self.reads_status(),
            "tiers": self.tiers_status(),
            "peers": self.peers_status(),
        })
    }

    fn state_name(&self) -> &'static str {
        match *self.parts.state.lock() {
            HostState::Created => "created",
            HostState::Running if self.parts.is_draining.load(Ordering::Acquire) => "draining",
            HostState::Running => "running",
            HostState::Stopped => "stopped",
        }
    }

    fn fuse_status(&self) -> Value {
        let serving = self.parts.serving.lock();
        let state = serving.fuse.as_ref().map(|session| session.state());
        json!({
            "connected": state.is_some_and(|state| !SessionState::is_final(state)),
            "taken_over": serving.is_taken_over,
            "connection": serving.fuse.as_ref().and_then(|session| session.connection()),
            "longest_request_ms": serving
                .fuse
                .as_ref()
                .map_or(0, |session| session.longest_request().as_millis() as u64),
        })
    }

    /// Returns the time for which the runtime has not run a task that was due; nothing runs before
    /// the start.
    fn runtime_late(&self) -> Duration {
        match *self.parts.state.lock() {
            HostState::Running => self.parts.runtime_pulse.late(Instant::now()),
            HostState::Created | HostState::Stopped => Duration::ZERO,
        }
    }

    fn reads_status(&self) -> Value {
        let counts = self.parts.read_path.counts();
        json!({
            "total": counts.reads,
            "errors": counts.read_errors,
            "bytes": counts.read_bytes,
            "inflight": self.parts.fuse_stats().read_waiting_now,
        })
    }

    fn tiers_status(&self) -> Value {
        let counts = self.parts.read_path.counts();
        let mut tiers = Map::new();
        for tier in Tier::ALL {
            let count = counts.tier(tier);
            let count = json!({"chunks": count.chunks, "bytes": count.bytes});
            tiers.insert(tier.as_str().into(), count);
        }
        Value::Object(tiers)
    }

    fn peers_status(&self) -> Vec<Value> {
        let milliseconds = |time: Duration| time.as_micros() as f64 / 1e3;
        let peers = self.parts.read_path.peer_latencies(PEERS_MAX);
        let described = peers.into_iter().map(|peer| {
            json!({
                "name": peer.name,
                "fetches": peer.fetches,
                "p50_ms": milliseconds(peer.p50),
                "p99_ms": milliseconds(peer.p99),
            })
        });
        described.collect()
    }

    /// Sketches the chunk store: `smallest` as numbers.
    pub fn store_sketch(&self, count: usize) -> Value {
        let sketch = self.parts.store.sketch(count);
        json!({"count": sketch.count, "smallest": sketch.smallest})
    }

    /// Describes the ring in use; `None` before the first.
    pub fn ring_info(&self) -> Option<Value> {
        let ring = self.parts.rings.load_full().current.clone()?;
        let hosts: Vec<Value> = ring
            .hosts()
            .iter()
            .zip(ring.vnode_counts())
            .map(|(host, vnodes)| {
                json!({"name": host.name, "address": host.address, "vnodes": vnodes})
            })
            .collect();
        Some(json!({
            "generation": ring.generation(),
            "vnodes": ring.vnode_count(),
            "hosts": hosts,
        }))
    }
}
