//! Counters of all sessions of a host, since its start.

use std::sync::atomic::{AtomicU64, Ordering};

use super::receiving::Finish;
use crate::receiver::ReceiverStats;
use crate::sender::{SenderStats, SessionEnd};

/// Counters of what this host sent and heard.
#[derive(Debug, Default)]
pub struct Totals {
    sent: [AtomicU64; SENT.len()],
    heard: [AtomicU64; HEARD.len()],
    ends: [AtomicU64; SessionEnd::ALL.len()],
    finishes: [AtomicU64; Finish::ALL.len()],
}

/// Names of the counters of the sending side, in their order.
const SENT: [&str; 7] = [
    "sent_packets",
    "sent_bytes",
    "sent_chunks",
    "skipped_chunks",
    "epochs",
    "deaf_epochs",
    "rate_cuts",
];
/// Names of the counters of the receiving side, in their order.
const HEARD: [&str; 8] = [
    "received_packets",
    "duplicate_packets",
    "lost_packets",
    "refused_datagrams",
    "whole_chunks",
    "repaired_chunks",
    "corrupt_chunks",
    "abandoned_chunks",
];

fn sent(stats: &SenderStats) -> [u64; SENT.len()] {
    let SenderStats { packets, bytes, chunks, skipped, epochs, deaf_epochs, cuts, .. } = *stats;
    [packets, bytes, chunks, skipped, epochs, deaf_epochs, cuts]
}

fn heard(stats: &ReceiverStats) -> [u64; HEARD.len()] {
    let ReceiverStats { packets, doubles, lost, refused, whole, repaired, corrupt, given_up } =
        *stats;
    [packets, doubles, lost, refused, whole, repaired, corrupt, given_up]
}

fn add(counters: &[AtomicU64], numbers: &[u64]) {
    for (counter, number) in counters.iter().zip(numbers) {
        counter.fetch_add(*number, Ordering::Relaxed);
    }
}

impl Totals {
    /// Counts a session that this host has sent.
    pub(super) fn ended(&self, stats: &SenderStats, end: SessionEnd) {
        add(&self.sent, &sent(stats));
        let place = SessionEnd::ALL.iter().position(|one| *one == end);
        place.into_iter().for_each(|place| add(&self.ends[place..=place], &[1]));
    }

    /// Counts a session that this host has heard.
    pub(super) fn finished(&self, stats: &ReceiverStats, finish: Finish) {
        add(&self.heard, &heard(stats));
        let place = Finish::ALL.iter().position(|one| *one == finish);
        place.into_iter().for_each(|place| add(&self.finishes[place..=place], &[1]));
    }

    /// Returns every counter with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let names = SENT.iter().chain(&HEARD);
        let counters = self.sent.iter().chain(&self.heard);
        names.zip(counters).map(|(name, count)| (*name, count.load(Ordering::Relaxed))).collect()
    }

    /// Returns the number of sessions sent, by their end.
    pub fn ends(&self) -> Vec<(&'static str, u64)> {
        let ends = SessionEnd::ALL.iter().zip(&self.ends);
        ends.map(|(end, count)| (end.as_str(), count.load(Ordering::Relaxed))).collect()
    }

    /// Returns the number of sessions heard, by the reason why listening stopped.
    pub fn finishes(&self) -> Vec<(&'static str, u64)> {
        let finishes = Finish::ALL.iter().zip(&self.finishes);
        finishes.map(|(finish, count)| (finish.as_str(), count.load(Ordering::Relaxed))).collect()
    }
}
