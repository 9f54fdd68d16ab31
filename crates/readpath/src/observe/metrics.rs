//! Counting every decision, for Prometheus.
//!
//! Counters of labelled families are resolved once, so that a hit costs two atomic additions and
//! no look-up. Histograms take a lock, so hits, which take microseconds, are not observed.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::fetch::outcome::{
    AheadBytes, Bypass, Deduplication, Hedge, Insert, Join, ManifestLoad, OriginCall, OriginChunk,
    OriginRefusal, PeerFetch, PeerSkip, Prefetch, ReadResult, Remapped, Retry, Serve, StoreRead,
};
use crate::observe::exchange_metrics::ExchangeMetrics;
use crate::observe::gauges::Gauges;
use crate::observe::metric_names as names;
use crate::observe::preload_metrics::PreloadMetrics;
use crate::origin::origin_pool::RunResult;
use crate::origin::origin_queue::{OriginFailure, OriginRun};
use crate::{InsertOutcome, OriginError, ReadCounts, ReadError, Tier, TierCount};

pub(crate) type Label = [(&'static str, &'static str); 1];

/// The counters of one family, by the index of the label value.
#[derive(Debug)]
pub(crate) struct Labelled(Vec<Counter>);

impl Labelled {
    pub(crate) fn new(
        registry: &mut Registry,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[&'static str],
    ) -> Labelled {
        let family = Family::<Label, Counter>::default();
        registry.register(name, help, family.clone());
        Labelled(
            values.iter().map(|value| family.get_or_create_owned(&[(label, *value)])).collect(),
        )
    }

    pub(crate) fn add(&self, index: usize, count: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.inc_by(count);
        }
    }

    fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, Counter::get)
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// The counters of one read path.
#[derive(Debug)]
pub(crate) struct Metrics {
    reads: Labelled,
    read_bytes: Counter,
    read_chunks: Labelled,
    read_chunk_bytes: Labelled,
    read_wait: Vec<Histogram>,
    flight_joins: Labelled,
    peer_fetches: Labelled,
    peer_fetch_bytes: Counter,
    peer_fetch_seconds: Histogram,
    peer_skips: Labelled,
    hedges: Labelled,
    bypasses: Labelled,
    peer_probes: Counter,
    peer_slow_kept: Counter,
    deduplication: Labelled,
    manifest_reads: Labelled,
    compression_welcomed: Counter,
    remapped_chunks: Labelled,
    remapped_bytes: Labelled,
    origin_calls: Labelled,
    origin_chunks: Labelled,
    origin_bytes: Counter,
    origin_call_seconds: Histogram,
    origin_refusals: Labelled,
    origin_retries: Labelled,
    serves: Labelled,
    serve_bytes: Counter,
    inserts: Labelled,
    prefetch_chunks: Labelled,
    read_ahead_bytes: Labelled,
    store_read_errors: Counter,
    store_reads: Labelled,
    pub(crate) exchange: ExchangeMetrics,
    pub(crate) preload: PreloadMetrics,
    pub(crate) gauges: Gauges,
}

fn seconds() -> Histogram {
    // 50 us to 105 s in steps of two: a hit of a peer to a read that ends at its deadline.
    Histogram::new(exponential_buckets(50e-6, 2.0, 22))
}

pub(crate) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn histogram(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = seconds();
    registry.register(name, help, histogram.clone());
    histogram
}

impl Metrics {
    /// Registers everything with `registry`.
    pub(crate) fn new(registry: &mut Registry) -> Metrics {
        let tiers: Vec<&'static str> = Tier::ALL.iter().map(|tier| tier.as_str()).collect();
        let waits = Family::<Label, Histogram>::new_with_constructor(seconds);
        registry.register(
            names::READ_WAIT_SECONDS,
            "Time that reads waited for chunks that were not on this host",
            waits.clone(),
        );
        let read_wait =
            tiers.iter().map(|tier| waits.get_or_create_owned(&[("tier", *tier)])).collect();
        let r = registry;
        Metrics {
            reads: Labelled::new(r, names::READS, "Reads", "result", ReadResult::NAMES),
            read_bytes: counter(r, names::READ_BYTES, "Bytes read"),
            read_chunks: Labelled::new(r, names::READ_CHUNKS, "Chunks read", "tier", &tiers),
            read_chunk_bytes: Labelled::new(
                r,
                names::READ_CHUNK_BYTES,
                "Bytes read by tier",
                "tier",
                &tiers,
            ),
            read_wait,
            flight_joins: Labelled::new(r, names::FLIGHT_JOINS, "Joins", "side", Join::NAMES),
            peer_fetches: Labelled::new(
                r,
                names::PEER_FETCHES,
                "Fetches from peers",
                "outcome",
                PeerFetch::NAMES,
            ),
            peer_fetch_bytes: counter(r, names::PEER_FETCH_BYTES, "Bytes fetched from peers"),
            peer_fetch_seconds: histogram(r, names::PEER_FETCH_SECONDS, "Time of fetches"),
            peer_skips: Labelled::new(
                r,
                names::PEER_SKIPS,
                "Candidates not asked",
                "reason",
                PeerSkip::NAMES,
            ),
            hedges: Labelled::new(r, names::HEDGES, "Hedges", "outcome", Hedge::NAMES),
            bypasses: Labelled::new(
                r,
                names::BYPASSES,
                "Chunks whose owner is loaded",
                "outcome",
                Bypass::NAMES,
            ),
            peer_probes: counter(r, names::PEER_PROBES, "Probes of loaded peers"),
            peer_slow_kept: counter(r, names::PEER_SLOW_KEPT, "Chunks of slow peers kept"),
            compression_welcomed: counter(
                r,
                names::COMPRESSION_WELCOMED,
                "Fetches whose answer may be compressed",
            ),
            manifest_reads: Labelled::new(
                r,
                names::MANIFEST_READS,
                "Manifests read from this host's disk",
                "outcome",
                ManifestLoad::NAMES,
            ),
            deduplication: Labelled::new(
                r,
                names::DEDUPLICATION,
                "Cold chunks of which others may have copies",
                "outcome",
                Deduplication::NAMES,
            ),
            remapped_chunks: Labelled::new(
                r,
                names::REMAPPED_CHUNKS,
                "Chunks that another host owned before",
                "outcome",
                Remapped::NAMES,
            ),
            remapped_bytes: Labelled::new(
                r,
                names::REMAPPED_BYTES,
                "Bytes of chunks that another host owned before",
                "outcome",
                Remapped::NAMES,
            ),
            origin_calls: Labelled::new(
                r,
                names::ORIGIN_CALLS,
                "Calls of the origin",
                "outcome",
                OriginCall::NAMES,
            ),
            origin_chunks: Labelled::new(
                r,
                names::ORIGIN_CHUNKS,
                "Chunks asked of the origin",
                "outcome",
                OriginChunk::NAMES,
            ),
            origin_bytes: counter(r, names::ORIGIN_BYTES, "Bytes out of the origin"),
            origin_call_seconds: histogram(r, names::ORIGIN_CALL_SECONDS, "Time of calls"),
            origin_refusals: Labelled::new(
                r,
                names::ORIGIN_REFUSALS,
                "Misses not sent to the origin",
                "reason",
                OriginRefusal::NAMES,
            ),
            origin_retries: Labelled::new(
                r,
                names::ORIGIN_RETRIES,
                "Retries of reads",
                "outcome",
                Retry::NAMES,
            ),
            serves: Labelled::new(r, names::SERVES, "Requests of peers", "outcome", Serve::NAMES),
            serve_bytes: counter(r, names::SERVE_BYTES, "Bytes sent to peers"),
            inserts: Labelled::new(
                r,
                names::INSERTS,
                "Chunks to be kept",
                "outcome",
                Insert::NAMES,
            ),
            prefetch_chunks: Labelled::new(
                r,
                names::PREFETCH_CHUNKS,
                "Chunks prefetched",
                "outcome",
                Prefetch::NAMES,
            ),
            read_ahead_bytes: Labelled::new(
                r,
                names::READ_AHEAD_BYTES,
                "Bytes read ahead along the profiles of boots",
                "outcome",
                AheadBytes::NAMES,
            ),
            exchange: ExchangeMetrics::new(r),
            preload: PreloadMetrics::new(r),
            store_read_errors: counter(r, names::STORE_READ_ERRORS, "Failed chunk store reads"),
            store_reads: Labelled::new(
                r,
                names::STORE_READS,
                "Chunks on the chunk store's disk only",
                "outcome",
                StoreRead::NAMES,
            ),
            gauges: Gauges::register(r),
        }
    }

    pub(crate) fn counts(&self) -> ReadCounts {
        let reads = self.reads.sum();
        ReadCounts {
            reads,
            read_errors: reads - self.reads.get(ReadResult::Ok.index()).min(reads),
            read_bytes: self.read_bytes.get(),
            tiers: Tier::ALL.map(|tier| TierCount {
                chunks: self.read_chunks.get(tier.index()),
                bytes: self.read_chunk_bytes.get(tier.index()),
            }),
        }
    }

    pub(crate) fn read_ok(&self, bytes: usize) {
        self.reads.add(ReadResult::Ok.index(), 1);
        self.read_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn read_failed(&self, error: &ReadError) {
        let result = match error {
            ReadError::Deadline(_) => ReadResult::Deadline,
            ReadError::Corrupt { .. } => ReadResult::Corrupt,
            ReadError::Missing { .. } => ReadResult::Missing,
            _ => ReadResult::Other,
        };
        self.reads.add(result.index(), 1);
    }

    pub(crate) fn read_chunks(&self, tier: Tier, chunks: u64, bytes: u64) {
        self.read_chunks.add(tier.index(), chunks);
        self.read_chunk_bytes.add(tier.index(), bytes);
    }

    pub(crate) fn read_wait(&self, tier: Tier, wait: Duration) {
        if let Some(histogram) = self.read_wait.get(tier.index()) {
            histogram.observe(wait.as_secs_f64());
        }
    }

    pub(crate) fn joined(&self, side: Join) {
        self.flight_joins.add(side.index(), 1);
    }

    pub(crate) fn peer_fetch(&self, outcome: PeerFetch) {
        self.peer_fetches.add(outcome.index(), 1);
    }

    /// `time`: since somebody waited for the chunk, where somebody did.
    pub(crate) fn peer_fetched(&self, bytes: usize, time: Option<Duration>) {
        self.peer_fetch(PeerFetch::Ok);
        self.peer_fetch_bytes.inc_by(bytes as u64);
        if let Some(time) = time {
            self.peer_fetch_seconds.observe(time.as_secs_f64());
        }
    }

    pub(crate) fn peer_skips(&self, reason: PeerSkip, count: u64) {
        self.peer_skips.add(reason.index(), count);
    }

    pub(crate) fn hedge(&self, outcome: Hedge) {
        self.hedges.add(outcome.index(), 1);
    }

    pub(crate) fn bypass(&self, outcome: Bypass) {
        self.bypasses.add(outcome.index(), 1);
    }

    pub(crate) fn probed(&self) {
        self.peer_probes.inc();
    }

    pub(crate) fn kept_slow(&self) {
        self.peer_slow_kept.inc();
    }

    pub(crate) fn compression_welcomed(&self) {
        self.compression_welcomed.inc();
    }

    pub(crate) fn manifest_load(&self, outcome: ManifestLoad) {
        self.manifest_reads.add(outcome.index(), 1);
    }

    pub(crate) fn deduplicated(&self, outcome: Deduplication, chunks: u64) {
        self.deduplication.add(outcome.index(), chunks);
    }

    pub(crate) fn remapped(&self, outcome: Remapped, bytes: usize) {
        self.remapped_chunks.add(outcome.index(), 1);
        self.remapped_bytes.add(outcome.index(), bytes as u64);
    }

    pub(crate) fn origin_call(&self, run: &OriginRun, result: &RunResult, time: Duration) {
        let outcome = match &result.error {
            None => OriginCall::Ok,
            Some(OriginError::NotFound { .. }) => OriginCall::NotFound,
            Some(OriginError::ShortRead { .. } | OriginError::DamagedMove { .. }) => {
                OriginCall::Damaged
            }
            Some(OriginError::Undecided { .. } | OriginError::Unavailable { .. }) => {
                OriginCall::Unavailable
            }
            Some(OriginError::Overloaded(_)) => OriginCall::Overloaded,
            Some(OriginError::Internal(_)) => OriginCall::Internal,
        };
        self.origin_calls.add(outcome.index(), result.calls);
        self.origin_call_seconds.observe(time.as_secs_f64());
        for (part, answer) in run.parts.iter().zip(&result.answers) {
            let chunk = match answer {
                Ok(_) => OriginChunk::Ok,
                Err(OriginFailure::Corrupt) => OriginChunk::Corrupt,
                Err(_) => OriginChunk::Failed,
            };
            self.origin_chunks.add(chunk.index(), 1);
            if chunk != OriginChunk::Failed {
                self.origin_bytes.inc_by(u64::from(part.place.stored_len));
            }
        }
    }

    pub(crate) fn origin_refused(&self, reason: OriginRefusal) {
        self.origin_refusals.add(reason.index(), 1);
    }

    pub(crate) fn retry(&self, outcome: Retry) {
        self.origin_retries.add(outcome.index(), 1);
    }

    pub(crate) fn served(&self, outcome: Serve, bytes: usize) {
        self.serves.add(outcome.index(), 1);
        self.serve_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn inserted(&self, outcomes: &[InsertOutcome]) {
        for outcome in outcomes {
            let outcome = match outcome {
                InsertOutcome::New => Insert::New,
                InsertOutcome::Present => Insert::Present,
                InsertOutcome::Refused => Insert::Refused,
            };
            self.inserts.add(outcome.index(), 1);
        }
    }

    pub(crate) fn insert_failed(&self, chunks: usize) {
        self.inserts.add(Insert::Failed.index(), chunks as u64);
    }

    pub(crate) fn insert_dropped(&self) {
        self.inserts.add(Insert::Dropped.index(), 1);
    }

    pub(crate) fn prefetch(&self, outcome: Prefetch, chunks: usize) {
        self.prefetch_chunks.add(outcome.index(), chunks as u64);
    }

    pub(crate) fn read_ahead(&self, outcome: AheadBytes, bytes: u64) {
        self.read_ahead_bytes.add(outcome.index(), bytes);
    }

    pub(crate) fn store_read_error(&self) {
        self.store_read_errors.inc();
    }

    pub(crate) fn store_read(&self, outcome: StoreRead) {
        self.store_reads.add(outcome.index(), 1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use acstor_testkit::pages::metric_names;

    use super::*;

    fn text() -> String {
        let mut registry = Registry::default();
        let _metrics = Metrics::new(&mut registry);
        let clock = acstor_runclock::RunClock::unmeasured();
        let runtime = crate::observe::runtime_metrics::RuntimeCollector(clock);
        registry.register_collector(Box::new(runtime));
        let pages = crate::observe::page_metrics::PageCollector(Arc::default());
        registry.register_collector(Box::new(pages));
        let _fetches = crate::observe::page_metrics::PageFetchMetrics::new(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn test_encode_exports_every_name() {
        let text = text();
        let exported: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        assert_eq!(exported, names::ALL.into_iter().collect());
    }

    #[test]
    fn test_page_describes_every_name_with_its_label_values() {
        let page = include_str!("../../../../doc/source/admin/metrics-dataplane.rst");
        assert_eq!(metric_names(page), names::ALL.into_iter().collect());
        for value in text().split('"').skip(1).step_by(2) {
            if value.parse::<f64>().is_err() {
                assert!(page.contains(&format!("``{value}``")), "label value {value}");
            }
        }
    }
}
