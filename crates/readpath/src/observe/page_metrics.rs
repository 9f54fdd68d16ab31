//! The cache of pages of manifests, for Prometheus.

use std::fmt::Error;
use std::sync::Arc;

use acstor_manifest::{PAGE_LEN, PageCache};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::observe::metric_names as names;

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
