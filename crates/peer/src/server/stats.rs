//! Counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{CompressionStats, EgressStats};
use crate::{CloseReason, PeerStatus};

/// Counters of a server since its start, and what is in flight now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Failed calls of accept(2), such as for want of file descriptors.
    pub accept_errors: u64,
    /// Connections that ended, by reason; every reason is listed.
    pub connections_closed: Vec<(CloseReason, u64)>,
    /// GETs received.
    pub requests: u64,
    /// Chunks sent (handed to the stream whole).
    pub chunks_sent: u64,
    /// Bytes of those chunks, as they are in the store.
    pub bytes_sent: u64,
    /// Bytes that compression took off them.
    pub bytes_saved: u64,
    /// Requests that became more urgent while they waited.
    pub promotions: u64,
    /// Requests that were cancelled while they waited.
    pub cancels: u64,
    /// Outcomes of compression, of answers for which it was welcome.
    pub compression: CompressionStats,
    /// Answers that wait to be sent, and what became of their turns.
    pub egress: EgressStats,
    /// Refusals sent, by status; every status of version 1 is listed.
    pub refusals: Vec<(PeerStatus, u64)>,
    /// Requests in flight now.
    pub requests_in_flight: u64,
    /// Bytes of the chunks in flight now.
    pub bytes_in_flight: u64,
}

impl ServerStats {
    /// Connections that ended for `reason`.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.connections_closed.iter().find(|(each, _)| *each == reason).map_or(0, |(_, n)| *n)
    }

    /// Refusals with `status`.
    pub fn refused(&self, status: PeerStatus) -> u64 {
        self.refusals.iter().find(|(each, _)| *each == status).map_or(0, |(_, n)| *n)
    }
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) chunks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) saved: AtomicU64,
    pub(super) promotions: AtomicU64,
    pub(super) cancels: AtomicU64,
    closed: [AtomicU64; CloseReason::COUNT],
    refusals: [AtomicU64; PeerStatus::ALL.len()],
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters {
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            promotions: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
            closed: std::array::from_fn(|_| AtomicU64::new(0)),
            refusals: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    pub(super) fn count_closed(&self, reason: CloseReason) {
        add(&self.closed[reason.index()], 1);
    }

    pub(super) fn count_refusal(&self, status: PeerStatus) {
        if let Some(position) = PeerStatus::ALL.iter().position(|each| *each == status) {
            add(&self.refusals[position], 1);
        }
    }

    /// Counts a chunk of `bytes` bytes of which `sent` go over the wire.
    pub(super) fn count_chunk(&self, bytes: u64, sent: usize) {
        add(&self.chunks, 1);
        add(&self.bytes, bytes);
        add(&self.saved, bytes.saturating_sub(sent as u64));
    }

    pub(super) fn snapshot(
        &self,
        requests_in_flight: usize,
        bytes_in_flight: u64,
        compression: CompressionStats,
        egress: EgressStats,
    ) -> ServerStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            connections_accepted: get(&self.accepted),
            connections_open: get(&self.open),
            accept_errors: get(&self.accept_errors),
            connections_closed: CloseReason::all().zip(self.closed.iter().map(get)).collect(),
            requests: get(&self.requests),
            chunks_sent: get(&self.chunks),
            bytes_sent: get(&self.bytes),
            bytes_saved: get(&self.saved),
            promotions: get(&self.promotions),
            cancels: get(&self.cancels),
            compression,
            egress,
            refusals: PeerStatus::ALL.into_iter().zip(self.refusals.iter().map(get)).collect(),
            requests_in_flight: requests_in_flight as u64,
            bytes_in_flight,
        }
    }
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
