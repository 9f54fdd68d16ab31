//! Counters of a client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acstor_selection::BreakerState;
use acstor_types::ErrorKind;
use bytes::Bytes;

use crate::{CloseReason, PeerError, Told};

/// Counters of a client since its start.
#[derive(Clone, Debug)]
pub struct ClientStats {
    /// Each peer that is known now.
    pub peers: Vec<PeerStats>,
    /// Chunks that came compressed, from peers that are forgotten too.
    pub compressed_chunks: u64,
    /// Bytes that compression took off them on the wire.
    pub bytes_saved: u64,
    /// Bytes of all chunks that peers might have compressed, as they are.
    pub compressible_bytes: u64,
    /// Time that decompressing took, on one processor.
    pub decompression_time: Duration,
    /// Bytes that it made in that time.
    pub decompressed_bytes: u64,
    /// Connections that ended, by reason; every reason is listed.
    pub connections_closed: Vec<(CloseReason, u64)>,
}

impl ClientStats {
    /// Connections that ended for `reason`.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.connections_closed.iter().find(|(each, _)| *each == reason).map_or(0, |(_, n)| *n)
    }
}

/// Counters of one peer since it is known, and its state now.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// The peer, `ip:port`.
    pub address: String,
    /// State of its circuit breaker: it decides whether a connection is tried.
    pub breaker: BreakerState,
    /// Connections open now.
    pub connections: usize,
    /// Fetches in flight now.
    pub in_flight: usize,
    /// Connections made.
    pub connects: u64,
    /// Connection attempts that failed.
    pub connect_failures: u64,
    /// Chunks fetched.
    pub chunks: u64,
    /// Bytes of those chunks, decompressed.
    pub bytes: u64,
    /// Fetches that failed, by kind; every kind is listed.
    pub errors: Vec<(ErrorKind, u64)>,
    /// Answers to fetches that nobody waited for any more; discarded.
    pub late_answers: u64,
    /// Latency that 99 of 100 recent answers kept.
    pub latency_p99: Option<Duration>,
    /// Load that it told with its last answer, of whatever class; `None` before, and of an older release.
    pub told: Option<Told>,
}

impl PeerStats {
    /// Fetches that failed with an error of `kind`.
    pub fn failed(&self, kind: ErrorKind) -> u64 {
        self.errors.iter().find(|(each, _)| *each == kind).map_or(0, |(_, n)| *n)
    }
}

/// The counters of one peer.
#[derive(Debug, Default)]
pub(super) struct PeerCounters {
    pub(super) connects: AtomicU64,
    pub(super) connect_failures: AtomicU64,
    pub(super) chunks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) late_answers: AtomicU64,
    errors: [AtomicU64; ErrorKind::ALL.len()],
}

impl PeerCounters {
    pub(super) fn count_fetch(&self, outcome: &Result<Bytes, PeerError>) {
        match outcome {
            Ok(chunk) => {
                add(&self.chunks, 1);
                add(&self.bytes, chunk.len() as u64);
            }
            Err(error) => {
                let kind = error.kind();
                if let Some(position) = ErrorKind::ALL.iter().position(|each| *each == kind) {
                    add(&self.errors[position], 1);
                }
            }
        }
    }

    pub(super) fn errors(&self) -> Vec<(ErrorKind, u64)> {
        ErrorKind::ALL.into_iter().zip(self.errors.iter().map(get)).collect()
    }
}

/// Counters of compression, all peers.
#[derive(Debug, Default)]
pub(super) struct CompressionCounters {
    pub(super) chunks: AtomicU64,
    pub(super) bytes_saved: AtomicU64,
    pub(super) compressible_bytes: AtomicU64,
    pub(super) nanos: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Reasons why connections ended.
#[derive(Debug)]
pub(super) struct CloseCounters([AtomicU64; CloseReason::COUNT]);

impl CloseCounters {
    pub(super) fn new() -> CloseCounters {
        CloseCounters(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(super) fn count(&self, reason: CloseReason) {
        add(&self.0[reason.index()], 1);
    }

    pub(super) fn snapshot(&self) -> Vec<(CloseReason, u64)> {
        CloseReason::all().zip(self.0.iter().map(get)).collect()
    }
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

pub(super) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
