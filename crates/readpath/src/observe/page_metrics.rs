//! The cache of pages of manifests, and their fetches from the origin, for Prometheus.

use std::fmt::Error;
use std::sync::Arc;

use acstor_manifest::{PAGE_LEN, PageCache};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::fetch::outcome::PageFetch;
use crate::observe::metric_names as names;
use crate::observe::metrics::{Labelled, counter};

/// Reads the counts of the cache when the metrics are asked for.
#[derive(Debug)]
pub(crate) struct PageCollector(pub(crate) Arc<PageCache>);

impl Collector for PageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let stats = self.0.stats();
        let (name, help) = (names::MANIFEST_PAGES, "Pages of manifests that were needed");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (outcome, count) in [("hit", stats.hits), ("miss", stats.misses)] {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        let bytes = ConstGauge::new(stats.pages * PAGE_LEN as u64);
        let (name, help) = (names::MANIFEST_PAGE_BYTES, "Bytes of pages of manifests in memory");
        bytes.encode(encoder.encode_descriptor(name, help, None, bytes.metric_type())?)
    }
}

/// Counts of the pages that are fetched from the origin.
#[derive(Debug)]
pub(crate) struct PageFetchMetrics {
    fetched: Labelled,
    unwritten: Counter,
    failures: Counter,
}

impl PageFetchMetrics {
    /// Registers everything with `registry`.
    pub(crate) fn new(r: &mut Registry) -> PageFetchMetrics {
        PageFetchMetrics {
            fetched: Labelled::new(
                r,
                names::MANIFEST_PAGES_FETCHED,
                "Pages of manifests fetched from the origin",
                "reason",
                PageFetch::NAMES,
            ),
            unwritten: counter(
                r,
                names::MANIFEST_PAGES_UNWRITTEN,
                "Pages of manifests that were fetched and could not be kept on this host's disk",
            ),
            failures: counter(
                r,
                names::MANIFEST_FETCH_FAILURES,
                "Failed fetches of pages of manifests from the origin",
            ),
        }
    }

    pub(crate) fn fetched(&self, reason: PageFetch, pages: u64, unwritten: u64) {
        self.fetched.add(reason.index(), pages);
        self.unwritten.inc_by(unwritten);
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }
}
