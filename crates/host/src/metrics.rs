//! The counters of the store, the front end and the peer connections, for Prometheus.
//!
//! The read path registers its own metrics; what the other parts count is read off here when the
//! metrics are asked for. Names and meanings are on the documentation page
//! `admin/metrics-dataplane`, which a test compares with this file.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{ClientStats, ServerStats, TlsStatus};
use acstor_store::StoreStats;
use acstor_types::RequestClass;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::multicast::Multicast;
use super::{FreeRates, Parts};

/// Reads the parts' counters off when asked.
pub(super) struct PartsCollector(pub(super) Arc<Parts>);

impl std::fmt::Debug for PartsCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartsCollector")
    }
}

impl Collector for PartsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let version = [("version", self.0.settings.version.as_str())];
        let one = ConstGauge::new(1u64);
        let mut build =
            encoder.encode_descriptor("acstor_build_info", "Release", None, one.metric_type())?;
        one.encode(build.encode_family(&version)?)?;
        for (name, help, value) in store_counters(&self.0.store.stats()) {
            counter(&mut encoder, name, help, value)?;
        }
        for (name, value) in self.0.fuse_stats().pairs() {
            let metric = format!("acstor_fuse_{name}");
            let help = "FUSE front end; see the documentation page of the metrics";
            match name.strip_suffix("_now") {
                Some(_) => gauge(&mut encoder, &metric, help, value)?,
                None => counter(&mut encoder, &metric, help, value)?,
            }
        }
        free_rates(&mut encoder, self.0.link_rates.now())?;
        if let Some(server) = self.0.peer_server_stats() {
            gauge(
                &mut encoder,
                "acstor_peer_server_connections",
                "Connections of peers open",
                server.connections_open,
            )?;
            counter(
                &mut encoder,
                "acstor_peer_server_requests",
                "Chunks asked for by peers",
                server.requests,
            )?;
            counter(
                &mut encoder,
                "acstor_peer_server_bytes_sent",
                "Bytes of chunks sent to peers",
                server.bytes_sent,
            )?;
            counter(
                &mut encoder,
                "acstor_peer_server_saved_bytes",
                "Bytes that compression took off what was sent to peers",
                server.bytes_saved,
            )?;
            let compression = server.compression;
            labelled(
                &mut encoder,
                "acstor_peer_server_compressions",
                "Chunks that peers would take compressed",
                "outcome",
                [
                    ("compressed", compression.compressed),
                    ("incompressible", compression.incompressible),
                    ("busy", compression.busy),
                    ("kept", compression.kept),
                    ("cpu_busy", compression.cpu_busy),
                ]
                .into_iter()
                .map(|(outcome, count)| (outcome.to_owned(), count)),
            )?;
            seconds(
                &mut encoder,
                "acstor_peer_server_compression_seconds",
                "Processor time of compressing chunks for peers",
                compression.time,
            )?;
            gauge(
                &mut encoder,
                "acstor_peer_server_compressed_forms_bytes",
                "Bytes of compressed chunks kept for the next who ask for them",
                compression.kept_bytes,
            )?;
            egress(&mut encoder, &server)?;
            labelled(
                &mut encoder,
                "acstor_peer_server_refusals",
                "Requests of peers refused",
                "status",
                server.refusals.iter().map(|(status, count)| (status.as_str().to_owned(), *count)),
            )?;
            labelled(
                &mut encoder,
                "acstor_peer_server_connections_closed",
                "Connections of peers that ended",
                "reason",
                server
                    .connections_closed
                    .iter()
                    .map(|(why, count)| (why.as_str().to_owned(), *count)),
            )?;
        }
        if let Some(status) = self.0.peer_tls_status() {
            tls_files(&mut encoder, &status)?;
        }
        if let Some(multicast) = &self.0.multicast {
            groups(&mut encoder, multicast)?;
        }
        let client = self.0.peer_client.stats();
        counter(
            &mut encoder,
            "acstor_peer_client_compressed_chunks",
            "Chunks that peers sent compressed",
            client.compressed_chunks,
        )?;
        counter(
            &mut encoder,
            "acstor_peer_client_saved_bytes",
            "Bytes that compression took off what peers sent",
            client.bytes_saved,
        )?;
        seconds(
            &mut encoder,
            "acstor_peer_client_decompression_seconds",
            "Processor time of decompressing chunks of peers",
            client.decompression_time,
        )?;
        told_loads(&mut encoder, &client)?;
        labelled(
            &mut encoder,
            "acstor_peer_client_bytes",
            "Bytes of chunks fetched",
            "peer",
            client.peers.iter().map(|peer| (peer.address.clone(), peer.bytes)),
        )?;
        labelled(
            &mut encoder,
            "acstor_peer_client_connect_failures",
            "Connection attempts that failed",
            "peer",
            client.peers.iter().map(|peer| (peer.address.clone(), peer.connect_failures)),
        )?;
        labelled(
            &mut encoder,
            "acstor_peer_client_connections_closed",
            "Connections to peers that ended",
            "reason",
            client.connections_closed.iter().map(|(why, count)| (why.as_str().to_owned(), *count)),
        )
    }
}

/// Free rates of this host's own link: no sample of what nobody tells.
fn free_rates(encoder: &mut DescriptorEncoder, rates: FreeRates) -> Result<(), std::fmt::Error> {
    let example = ConstGauge::new(0u64);
    let mut family = encoder.encode_descriptor(
        "acstor_link_free_bytes_per_second",
        "Bytes per second that this host's link has free, as the agent tells it",
        None,
        example.metric_type(),
    )?;
    for (direction, rate) in [("in", rates.inwards), ("out", rates.outwards)] {
        if let Some(rate) = rate {
            let labels = [("direction", direction)];
            ConstGauge::new(rate).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Loads that peers told with their last answers: no sample of a peer that told none.
fn told_loads(
    encoder: &mut DescriptorEncoder,
    client: &ClientStats,
) -> Result<(), std::fmt::Error> {
    let example = ConstGauge::new(0u64);
    let mut rates = encoder.encode_descriptor(
        "acstor_peer_told_free_bytes_per_second",
        "Bytes per second that a peer's link had to spare at its last answer",
        None,
        example.metric_type(),
    )?;
    let told = || client.peers.iter().filter_map(|peer| Some((&peer.address, peer.told?)));
    for (address, told) in told() {
        if let Some(rate) = told.free_rate {
            let labels = [("peer", address.as_str())];
            ConstGauge::new(rate).encode(rates.encode_family(&labels)?)?;
        }
    }
    let example = ConstGauge::new(0f64);
    let mut waits = encoder.encode_descriptor(
        "acstor_peer_told_wait_seconds",
        "Time that a chunk would have waited at a peer at its last answer",
        None,
        example.metric_type(),
    )?;
    for (address, told) in told() {
        let labels = [("peer", address.as_str())];
        ConstGauge::new(told.wait.as_secs_f64()).encode(waits.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The order of the answers to peers.
fn egress(encoder: &mut DescriptorEncoder, server: &ServerStats) -> Result<(), std::fmt::Error> {
    let example = ConstGauge::new(0u64);
    let mut queued = encoder.encode_descriptor(
        "acstor_peer_server_queued_answers",
        "Answers to peers that wait to be sent",
        None,
        example.metric_type(),
    )?;
    for class in RequestClass::ALL {
        let count = ConstGauge::new(server.egress.queued[class.index()]);
        count.encode(queued.encode_family(&[("class", class.as_str())])?)?;
    }
    counter(
        encoder,
        "acstor_peer_server_promotions",
        "Requests of peers that became more urgent while they waited",
        server.promotions,
    )?;
    counter(
        encoder,
        "acstor_peer_server_cancels",
        "Requests of peers that were cancelled while they waited",
        server.cancels,
    )?;
    counter(
        encoder,
        "acstor_peer_server_send_overruns",
        "Turns to send that took too long to be waited for",
        server.egress.overruns,
    )
}

fn groups(encoder: &mut DescriptorEncoder, multicast: &Multicast) -> Result<(), std::fmt::Error> {
    for (name, value) in multicast.totals.counters() {
        let help = "Multicast preloads; see the documentation page of the metrics";
        counter(encoder, &format!("acstor_multicast_{name}"), help, value)?;
    }
    gauge(
        encoder,
        "acstor_multicast_sessions",
        "Multicast sessions that this host sends",
        multicast.hub.sessions() as u64,
    )?;
    for (name, help, label, counts) in [
        (
            "acstor_multicast_sent_sessions",
            "Multicast sessions that this host sent, by their end",
            "end",
            multicast.totals.ends(),
        ),
        (
            "acstor_multicast_heard_sessions",
            "Multicast sessions that this host listened to, by the reason why it stopped",
            "finish",
            multicast.totals.finishes(),
        ),
    ] {
        let counts = counts.into_iter().map(|(value, count)| (value.to_owned(), count));
        labelled(encoder, name, help, label, counts)?;
    }
    Ok(())
}

fn tls_files(encoder: &mut DescriptorEncoder, status: &TlsStatus) -> Result<(), std::fmt::Error> {
    for (name, help, seconds) in [
        (
            "acstor_peer_certificate_not_after_timestamp_seconds",
            "When this host's certificate for peers ends",
            status.certificate_not_after,
        ),
        (
            "acstor_peer_crl_next_update_timestamp_seconds",
            "When the first of the revocation lists in use is due to be replaced",
            status.crl_next_update,
        ),
    ] {
        if let Some(seconds) = seconds {
            let metric = ConstGauge::new(seconds);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
    }
    let example = ConstGauge::new(0i64);
    let mut family = encoder.encode_descriptor(
        "acstor_peer_tls_files_usable",
        "Whether the files of TLS on the disk are those in use",
        None,
        example.metric_type(),
    )?;
    let certificates = Some(("certificates", status.certificates_usable));
    let crl = status.crl_usable.map(|is_usable| ("crl", is_usable));
    for (files, is_usable) in certificates.into_iter().chain(crl) {
        let labels = [("files", files)];
        ConstGauge::new(i64::from(is_usable)).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn store_counters(stats: &StoreStats) -> [(&'static str, &'static str, u64); 15] {
    [
        ("acstor_store_hits", "Chunks found in the chunk store", stats.hits),
        ("acstor_store_misses", "Chunks not found in the chunk store", stats.misses),
        ("acstor_store_inserted", "Chunks published", stats.inserted),
        ("acstor_store_present", "Inserts of a chunk that was there", stats.present),
        ("acstor_store_refused", "Inserts for which no slot could be had", stats.refused),
        ("acstor_store_evicted", "Chunks that left to make room", stats.evicted),
        ("acstor_store_verified", "Reads from the disk that verified", stats.verified),
        ("acstor_store_compared", "Reads of pages that had the right checksums", stats.compared),
        ("acstor_store_corrupt", "Slots that did not hold what was published", stats.corrupt),
        ("acstor_store_slot_read_errors", "Reads of a slot that failed", stats.read_errors),
        ("acstor_store_slot_write_errors", "Writes of a slot that failed", stats.write_errors),
        (
            "acstor_store_writeback_errors",
            "Times that the disk refused what the kernel had taken",
            stats.writeback_errors,
        ),
        ("acstor_store_truncations", "Files found truncated while open", stats.truncations),
        ("acstor_store_inserted_bytes", "Bytes of chunks published", stats.bytes_inserted),
        ("acstor_store_recovered", "Chunks found at the start", stats.recovered),
    ]
}

fn counter(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), std::fmt::Error> {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn seconds(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    time: Duration,
) -> Result<(), std::fmt::Error> {
    let metric = ConstCounter::new(time.as_secs_f64());
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), std::fmt::Error> {
    let metric = ConstGauge::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn labelled(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (String, u64)>,
) -> Result<(), std::fmt::Error> {
    let example = ConstCounter::new(0u64);
    let mut family = encoder.encode_descriptor(name, help, None, example.metric_type())?;
    for (value, count) in values {
        let labels = [(label, value)];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
