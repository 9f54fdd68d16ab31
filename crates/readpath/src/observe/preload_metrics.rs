//! Counting what boots read and what preloads do, for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::fetch::outcome::{BootOutcome, PreloadChunk, PreloadEnd, PreloadHint};
use crate::observe::metric_names as names;
use crate::observe::metrics::{Label, Labelled, counter};
use crate::preload::PreloadState;

/// The counters of working sets and preloads.
#[derive(Debug)]
pub(crate) struct PreloadMetrics {
    jobs: Vec<(PreloadState, Gauge)>,
    ended: Labelled,
    chunks: Labelled,
    bytes: Counter,
    yield_seconds: Counter<f64, AtomicU64>,
    hints: Labelled,
    boots: Counter,
    boot_orders: Labelled,
    images: Gauge,
    wanted: Gauge,
}

impl PreloadMetrics {
    pub(crate) fn new(registry: &mut Registry) -> PreloadMetrics {
        let r = registry;
        let jobs = Family::<Label, Gauge>::default();
        r.register(names::PRELOAD_JOBS, "Preloads that have not ended", jobs.clone());
        let yield_seconds = Counter::default();
        r.register(
            names::PRELOAD_YIELD_SECONDS,
            "Time that preloads gave way",
            yield_seconds.clone(),
        );
        let (images, wanted) = (Gauge::default(), Gauge::default());
        r.register(names::WORKING_SET_IMAGES, "Disks with a working set", images.clone());
        r.register(names::WORKING_SET_CHUNKS, "Chunks of the working sets", wanted.clone());
        PreloadMetrics {
            jobs: PreloadState::ALL
                .into_iter()
                .filter(|state| !state.has_ended())
                .map(|state| (state, jobs.get_or_create_owned(&[("state", state.as_str())])))
                .collect(),
            ended: Labelled::new(
                r,
                names::PRELOADS_ENDED,
                "Preloads that ended",
                "outcome",
                PreloadEnd::NAMES,
            ),
            chunks: Labelled::new(
                r,
                names::PRELOAD_CHUNKS,
                "Chunks of preloads",
                "outcome",
                PreloadChunk::NAMES,
            ),
            bytes: counter(r, names::PRELOAD_BYTES, "Bytes that preloads brought"),
            yield_seconds,
            hints: Labelled::new(
                r,
                names::PRELOAD_HINTS,
                "Hints to preload",
                "outcome",
                PreloadHint::NAMES,
            ),
            boots: counter(r, names::WORKING_SET_BOOTS, "Boots seen"),
            boot_orders: Labelled::new(
                r,
                names::BOOT_ORDERS,
                "Orders of boots",
                "outcome",
                BootOutcome::NAMES,
            ),
            images,
            wanted,
        }
    }

    pub(crate) fn set_jobs(&self, counts: [usize; PreloadState::ALL.len()]) {
        for (state, gauge) in &self.jobs {
            let counted = PreloadState::ALL.iter().zip(counts).find(|(other, _)| *other == state);
            gauge.set(counted.map_or(0, |(_, count)| count as i64));
        }
    }

    pub(crate) fn set_working_sets(&self, (images, chunks): (usize, usize)) {
        self.images.set(images as i64);
        self.wanted.set(chunks as i64);
    }

    pub(crate) fn ended(&self, outcome: PreloadEnd) {
        self.ended.add(outcome.index(), 1);
    }

    pub(crate) fn chunk(&self, outcome: PreloadChunk) {
        self.chunks.add(outcome.index(), 1);
    }

    pub(crate) fn bytes(&self, bytes: u64) {
        self.bytes.inc_by(bytes);
    }

    pub(crate) fn gave_way(&self, time: Duration) {
        self.yield_seconds.inc_by(time.as_secs_f64());
    }

    pub(crate) fn hint(&self, outcome: PreloadHint) {
        self.hints.add(outcome.index(), 1);
    }

    pub(crate) fn boot(&self) {
        self.boots.inc();
    }

    pub(crate) fn boot_order(&self, outcome: BootOutcome) {
        self.boot_orders.add(outcome.index(), 1);
    }
}
