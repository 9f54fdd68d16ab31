//! Metrics of volumes' overlays and NBD servers, for Prometheus.
//!
//! Read off when the metrics are asked for. The page `admin/metrics-volumes` describes each; a test
//! compares.

use std::fmt::Error;
use std::sync::Arc;

use acstor_nbd::{CommandStats, LATENCY_BOUNDS_US, NbdServer, NbdStats};
use acstor_overlay::{OverlayStatus, VolumeState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Parts;

/// Reads the volumes' counters off when asked.
pub(super) struct VolumesCollector(pub(super) Arc<Parts>);

impl std::fmt::Debug for VolumesCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumesCollector")
    }
}

/// One volume at one moment.
struct Observed {
    volume: String,
    overlay: OverlayStatus,
    nbd: Option<NbdStats>,
}

type Value<T> = fn(&Observed) -> T;
type CommandCounter = (&'static str, &'static str, fn(&CommandStats) -> u64);

const GAUGES: [(&str, &str, Value<f64>); 13] = [
    ("acstor_volume_size_bytes", "Size of the volume", |seen| seen.overlay.size_bytes as f64),
    ("acstor_volume_epoch", "Epoch of this host as the owner", |seen| {
        f64::from(seen.overlay.epoch)
    }),
    ("acstor_volume_dirty_bytes", "Bytes acknowledged that the origin does not have", |seen| {
        seen.overlay.dirty_bytes as f64
    }),
    ("acstor_volume_recovery_point_age_seconds", "Age of the oldest of them", |seen| {
        seen.overlay.recovery_point_age.map_or(0.0, |age| age.as_secs_f64())
    }),
    ("acstor_volume_recovery_point_late_seconds", "Age of these above their period", |seen| {
        seen.overlay.recovery_point_late.as_secs_f64()
    }),
    ("acstor_volume_held_back_seconds_per_mib", "Delay of writes for its sake", |seen| {
        seen.overlay.held_back_per_mib.as_secs_f64()
    }),
    ("acstor_volume_waiting_requests", "Requests that wait for the origin", |seen| {
        seen.overlay.waiting_requests as f64
    }),
    ("acstor_volume_waiting_seconds", "How long the oldest of them has waited", |seen| {
        seen.overlay.waiting_age.map_or(0.0, |age| age.as_secs_f64())
    }),
    ("acstor_volume_damaged_bytes", "Bytes of the local log that are damaged", |seen| {
        seen.overlay.damaged_bytes as f64
    }),
    ("acstor_volume_log_bytes", "Bytes that the local log takes", |seen| {
        seen.overlay.log_bytes as f64
    }),
    ("acstor_volume_origin_log_bytes", "Bytes pushed since the last fold", |seen| {
        seen.overlay.origin_log_bytes as f64
    }),
    ("acstor_volume_healthy", "1: served; 0: fenced or failed", |seen| {
        f64::from(u8::from(matches!(seen.overlay.state, VolumeState::Open | VolumeState::Frozen)))
    }),
    ("acstor_nbd_clients", "Clients connected", |seen| {
        seen.nbd.as_ref().map_or(0.0, |nbd| nbd.clients as f64)
    }),
];

const COUNTERS: [(&str, &str, Value<u64>); 3] = [
    ("acstor_nbd_connections", "Connections accepted", |seen| {
        seen.nbd.as_ref().map_or(0, |nbd| nbd.connections_accepted)
    }),
    ("acstor_nbd_names_refused", "Options that named no export served", |seen| {
        seen.nbd.as_ref().map_or(0, |nbd| nbd.names_refused)
    }),
    ("acstor_nbd_throttled", "Requests that waited for a limit", |seen| {
        seen.nbd.as_ref().map_or(0, |nbd| nbd.throttled)
    }),
];

const COMMAND_COUNTERS: [CommandCounter; 3] = [
    ("acstor_nbd_requests", "Requests answered", |stats| stats.requests),
    ("acstor_nbd_errors", "Of these, with an error", |stats| stats.errors),
    ("acstor_nbd_bytes", "Bytes of the successful ones", |stats| stats.bytes),
];

const SECONDS: (&str, &str) = ("acstor_nbd_request_seconds", "Time until the answer");

impl Collector for VolumesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let seen = self.observe();
        for (name, help, value) in GAUGES {
            let example = ConstGauge::new(0.0_f64);
            let mut family = encoder.encode_descriptor(name, help, None, example.metric_type())?;
            for one in &seen {
                let labels = [("volume", one.volume.as_str())];
                ConstGauge::new(value(one)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for one in &seen {
                let labels = [("volume", one.volume.as_str())];
                ConstCounter::new(value(one)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, value) in COMMAND_COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (volume, stats) in commands(&seen) {
                let labels = [("volume", volume), ("command", stats.command.as_str())];
                ConstCounter::new(value(stats)).encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = SECONDS;
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (volume, stats) in commands(&seen) {
            let labels = [("volume", volume), ("command", stats.command.as_str())];
            let (sum, buckets) = (stats.latency_sum_us as f64 / 1e6, buckets(stats));
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(
                sum,
                stats.latency.iter().sum(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

impl VolumesCollector {
    fn observe(&self) -> Vec<Observed> {
        let volumes = self.0.volumes.read();
        let mut seen: Vec<Observed> = volumes
            .iter()
            .filter_map(|(volume, open)| {
                Some(Observed {
                    volume: volume.to_string(),
                    overlay: open.owned()?.overlay.status(),
                    nbd: open.server.lock().as_ref().map(NbdServer::stats),
                })
            })
            .collect();
        seen.sort_by(|one, other| one.volume.cmp(&other.volume));
        seen
    }
}

/// The commands that were used, with their volumes.
fn commands(seen: &[Observed]) -> impl Iterator<Item = (&str, &CommandStats)> {
    seen.iter().flat_map(|one| {
        let stats = one.nbd.iter().flat_map(|nbd| &nbd.commands);
        stats.filter(|stats| stats.requests > 0).map(|stats| (one.volume.as_str(), stats))
    })
}

/// The histogram's buckets: upper bounds, seconds, and how many fell into each.
fn buckets(stats: &CommandStats) -> Vec<(f64, u64)> {
    let bounds = LATENCY_BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6);
    bounds.chain([f64::MAX]).zip(stats.latency).collect()
}

#[cfg(test)]
mod tests {
    use acstor_testkit::pages::metric_names;

    use super::{COMMAND_COUNTERS, COUNTERS, GAUGES, SECONDS};

    #[test]
    fn test_page_describes_every_metric() {
        let page = include_str!("../../../doc/source/admin/metrics-volumes.rst");
        let names = GAUGES.iter().map(|(name, ..)| *name);
        let names = names.chain(COUNTERS.iter().map(|(name, ..)| *name));
        let names = names.chain(COMMAND_COUNTERS.iter().map(|(name, ..)| *name));
        assert_eq!(metric_names(page), names.chain([SECONDS.0]).collect());
    }
}
