//! Scheduling lag of this read path's runtime, for Prometheus.

use std::fmt::Error;

use acstor_runclock::RunClock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::observe::metric_names as names;

/// Reads the clock when the metrics are asked for.
#[derive(Debug)]
pub(crate) struct RuntimeCollector(pub(crate) RunClock);

impl Collector for RuntimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let totals = self.0.totals();
        let stalls = ConstCounter::new(totals.stalls);
        let help = "Times that the runtime was late to run a task";
        let kind = stalls.metric_type();
        stalls.encode(encoder.encode_descriptor(names::RUNTIME_STALLS, help, None, kind)?)?;
        let stalled = ConstCounter::new(totals.stalled.as_secs_f64());
        let (name, help) = (names::RUNTIME_STALLED_SECONDS, "Time by which it was late");
        stalled.encode(encoder.encode_descriptor(name, help, None, stalled.metric_type())?)?;
        let lag = ConstGauge::new(totals.lag.as_secs_f64());
        let (name, help) = (names::RUNTIME_LAG_SECONDS, "Time by which it is late now");
        lag.encode(encoder.encode_descriptor(name, help, None, lag.metric_type())?)
    }
}
