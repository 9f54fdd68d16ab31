//! Gauges: values that are read off when the metrics are asked for.

use std::sync::Arc;

use acstor_ring::RingHandle;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::ahead::working_sets::WorkingSets;
use crate::fetch::serve::Responder;
use crate::fetch::sources::Sources;
use crate::observe::metric_names as names;
use crate::preload::Preloads;
use crate::view::attachments::Attachments;

/// Values that are read off when the metrics are asked for.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) flights: Gauge,
    pub(crate) peers_circuit_open: Gauge,
    pub(crate) origin_up: Gauge,
    pub(crate) origin_queue_chunks: Gauge,
    pub(crate) serves_inflight: Gauge,
    pub(crate) insert_queue_bytes: Gauge,
    pub(crate) recent_bytes: Gauge,
    pub(crate) read_ahead_held_bytes: Gauge,
    pub(crate) exchanges: Gauge,
    pub(crate) exchange_meetings: Gauge,
    pub(crate) store_capacity_bytes: Gauge,
    pub(crate) store_used_bytes: Gauge,
    pub(crate) store_pinned_bytes: Gauge,
    pub(crate) ring_generation: Gauge,
    pub(crate) disks: Gauge,
    pub(crate) manifests_in_memory: Gauge,
    pub(crate) manifest_bytes: Gauge,
    pub(crate) manifests_partial: Gauge,
    pub(crate) reads_waiting: Gauge,
    pub(crate) distance_threshold: Gauge,
    pub(crate) peers_loaded: Gauge,
    pub(crate) own_link_slow: Gauge,
    pub(crate) store_up: Gauge,
}

impl Gauges {
    pub(super) fn register(registry: &mut Registry) -> Gauges {
        let gauges = Gauges::default();
        let mut add = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        add(names::FLIGHTS, "Efforts to obtain a chunk under way", &gauges.flights);
        for name in [names::PEERS_CIRCUIT_OPEN, names::FORMER_PEERS_CIRCUIT_OPEN] {
            add(name, "Peers whose circuit breaker is not closed", &gauges.peers_circuit_open);
        }
        add(names::ORIGIN_UP, "Whether the origin answers", &gauges.origin_up);
        add(
            names::ORIGIN_QUEUE_CHUNKS,
            "Chunks waiting for the origin",
            &gauges.origin_queue_chunks,
        );
        add(names::SERVES_INFLIGHT, "Requests of peers being answered", &gauges.serves_inflight);
        add(names::INSERT_QUEUE_BYTES, "Bytes waiting to be kept", &gauges.insert_queue_bytes);
        add(names::RECENT_BYTES, "Bytes of recent chunks in memory", &gauges.recent_bytes);
        add(
            names::READ_AHEAD_HELD_BYTES,
            "Bytes of chunks read ahead, in memory",
            &gauges.read_ahead_held_bytes,
        );
        add(names::EXCHANGES, "Exchanges in which this host takes part", &gauges.exchanges);
        add(
            names::EXCHANGE_MEETINGS,
            "Exchanges of which this host is the rendezvous host",
            &gauges.exchange_meetings,
        );
        add(
            names::STORE_CAPACITY_BYTES,
            "Capacity of the chunk store",
            &gauges.store_capacity_bytes,
        );
        add(names::STORE_USED_BYTES, "Bytes in the chunk store", &gauges.store_used_bytes);
        add(names::STORE_PINNED_BYTES, "Bytes pinned", &gauges.store_pinned_bytes);
        add(names::RING_GENERATION, "Generation of the ring in use", &gauges.ring_generation);
        add(
            names::DISTANCE_THRESHOLD,
            "Hops from which on a host is not asked",
            &gauges.distance_threshold,
        );
        add(names::PEERS_LOADED, "Peers slower than the origin", &gauges.peers_loaded);
        add(names::OWN_LINK_SLOW, "Whether all sources are slow", &gauges.own_link_slow);
        add(names::STORE_UP, "Whether the chunk store's disk answers", &gauges.store_up);
        add(names::DISKS, "Disks attached", &gauges.disks);
        add(
            names::MANIFESTS_IN_MEMORY,
            "Disks whose manifest is in memory",
            &gauges.manifests_in_memory,
        );
        add(names::MANIFEST_BYTES, "Bytes of manifests in memory", &gauges.manifest_bytes);
        add(
            names::MANIFESTS_PARTIAL,
            "Manifests not known to be whole on this host",
            &gauges.manifests_partial,
        );
        add(names::READS_WAITING, "Reads that wait", &gauges.reads_waiting);
        gauges
    }
}

/// Reads the gauges of one read path off its parts.
pub(crate) struct GaugeReader {
    pub(crate) sources: Arc<Sources>,
    pub(crate) attachments: Arc<Attachments>,
    pub(crate) preloads: Arc<Preloads>,
    pub(crate) working_sets: Arc<WorkingSets>,
    pub(crate) responder: Arc<Responder>,
    pub(crate) rings: Arc<RingHandle>,
}

impl GaugeReader {
    /// Brings the gauges up to date.
    pub(crate) fn refresh(&self) {
        let gauges = &self.sources.metrics.gauges;
        self.refresh_sources(gauges);
        self.refresh_store(gauges);
        self.refresh_disks(gauges);
        gauges.serves_inflight.set(self.responder.in_flight() as i64);
        gauges.ring_generation.set(as_gauge(self.rings.generation()));
        let preload = &self.sources.metrics.preload;
        preload.set_jobs(self.preloads.counts());
        preload.set_working_sets(self.working_sets.totals());
    }

    fn refresh_sources(&self, gauges: &Gauges) {
        let sources = &self.sources;
        let (queue, steering) = (sources.origin.queue(), &sources.steering);
        gauges.flights.set(sources.flights.len() as i64);
        gauges.peers_circuit_open.set(steering.peers.open() as i64);
        gauges.origin_up.set(i64::from(queue.health.is_up()));
        gauges.origin_queue_chunks.set(queue.depth() as i64);
        gauges.distance_threshold.set(i64::from(steering.placement.threshold().0));
        gauges.peers_loaded.set(steering.overloaded_peers() as i64);
        gauges.own_link_slow.set(i64::from(steering.is_own_link_slow()));
        gauges.reads_waiting.set(sources.waiting_reads.count() as i64);
    }

    fn refresh_store(&self, gauges: &Gauges) {
        let chunks = &self.sources.chunks;
        let usage = chunks.store.usage();
        gauges.store_up.set(i64::from(chunks.reader.is_answering()));
        gauges.insert_queue_bytes.set(chunks.inserter.bytes() as i64);
        gauges.recent_bytes.set(chunks.recent.bytes() as i64);
        gauges.read_ahead_held_bytes.set(as_gauge(chunks.ahead.bytes()));
        let (exchanges, meetings) = self.sources.exchange.counts();
        gauges.exchanges.set(exchanges as i64);
        gauges.exchange_meetings.set(meetings as i64);
        gauges.store_capacity_bytes.set(as_gauge(usage.capacity_bytes));
        gauges.store_used_bytes.set(as_gauge(usage.used_bytes));
        gauges.store_pinned_bytes.set(as_gauge(usage.pinned_bytes));
    }

    fn refresh_disks(&self, gauges: &Gauges) {
        let attached = self.attachments.all();
        let in_memory: Vec<u64> =
            attached.iter().map(|disk| disk.memory_bytes()).filter(|bytes| *bytes > 0).collect();
        gauges.disks.set(attached.len() as i64);
        gauges.manifests_in_memory.set(in_memory.len() as i64);
        let partial = attached.iter().filter(|disk| !disk.is_complete()).count();
        gauges.manifests_partial.set(partial as i64);
        gauges.manifest_bytes.set(as_gauge(in_memory.iter().sum()));
    }
}

fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
