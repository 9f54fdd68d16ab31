//! Counts and metrics.

pub(crate) mod counts;
pub(crate) mod exchange_metrics;
pub(crate) mod gauges;
pub mod metric_names;
pub(crate) mod metrics;
pub(crate) mod page_metrics;
pub(crate) mod preload_metrics;
pub(crate) mod runtime_metrics;
