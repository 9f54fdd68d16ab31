//! Counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::CloseReason;

/// The commands that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Trim,
    /// Writes of zeroes.
    WriteZeroes,
    /// Prefetches.
    Cache,
    /// Questions about the status of a range.
    BlockStatus,
    /// A number that is no command of this server.
    Other,
}

impl CommandKind {
    /// Every kind.
    pub const ALL: [CommandKind; 8] = [
        CommandKind::Read,
        CommandKind::Write,
        CommandKind::Flush,
        CommandKind::Trim,
        CommandKind::WriteZeroes,
        CommandKind::Cache,
        CommandKind::BlockStatus,
        CommandKind::Other,
    ];

    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            CommandKind::Read => "read",
            CommandKind::Write => "write",
            CommandKind::Flush => "flush",
            CommandKind::Trim => "trim",
            CommandKind::WriteZeroes => "write_zeroes",
            CommandKind::Cache => "cache",
            CommandKind::BlockStatus => "block_status",
            CommandKind::Other => "other",
        }
    }
}

/// Upper bounds of the latency buckets, microseconds; one more bucket has no bound.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    1_000_000, 5_000_000, 30_000_000,
];
const BUCKETS: usize = LATENCY_BOUNDS_US.len() + 1;

/// Counts of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandStats {
    /// The command.
    pub command: CommandKind,
    /// Requests answered.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes of the ranges of the requests that succeeded.
    pub bytes: u64,
    /// Requests by the time from their arrival to the last byte of their answer: not above each of
    /// [`LATENCY_BOUNDS_US`] (not cumulated), then the rest.
    pub latency: [u64; BUCKETS],
    /// Sum of the requests' latencies, microseconds.
    pub latency_sum_us: u64,
}

/// Counters of a server since its start, and what is in flight now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdStats {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now, the handshake included.
    pub connections_open: u64,
    /// Connections in transmission now: clients.
    pub clients: u64,
    /// Failed calls of accept(2).
    pub accept_errors: u64,
    /// Connections that ended, by reason; every reason is listed.
    pub connections_closed: Vec<(CloseReason, u64)>,
    /// Each command.
    pub commands: Vec<CommandStats>,
    /// Options that named another export than is served, or none where it has to be named.
    pub names_refused: u64,
    /// Requests that were given to the device and are not answered yet, now.
    pub requests_waiting: u64,
    /// Times that reading paused because of the export's rates.
    pub throttled: u64,
    /// Answers whose mapped bytes were not in memory and were brought there first.
    pub populated: u64,
    /// Answers whose mapped bytes could not be had, and were read another way.
    pub mapped_faults: u64,
}

impl NbdStats {
    /// Returns the counters of `command`.
    pub fn command(&self, command: CommandKind) -> Option<&CommandStats> {
        self.commands.iter().find(|stats| stats.command == command)
    }

    /// Connections that ended for `reason`.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.connections_closed.iter().find(|(each, _)| *each == reason).map_or(0, |(_, n)| *n)
    }
}

#[derive(Debug, Default)]
struct CommandCounters {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    latency_sum_us: AtomicU64,
}

/// A request as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) command: CommandKind,
    pub(crate) bytes: u64,
    pub(crate) is_error: bool,
    pub(crate) time: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) clients: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) names_refused: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) populated: AtomicU64,
    pub(crate) mapped_faults: AtomicU64,
    closed: [AtomicU64; CloseReason::COUNT],
    commands: [CommandCounters; CommandKind::ALL.len()],
}

impl Counters {
    pub(crate) fn count_closed(&self, reason: CloseReason) {
        add(&self.closed[reason.index()], 1);
    }

    pub(crate) fn count_answer(&self, answered: Answered) {
        let counters = &self.commands[answered.command as usize];
        add(&counters.requests, 1);
        if answered.is_error {
            add(&counters.errors, 1);
        } else if answered.bytes > 0 {
            add(&counters.bytes, answered.bytes);
        }
        let us = u64::try_from(answered.time.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        add(&counters.latency[bucket], 1);
        add(&counters.latency_sum_us, us);
    }

    pub(crate) fn snapshot(&self) -> NbdStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NbdStats {
            connections_accepted: get(&self.accepted),
            connections_open: get(&self.open),
            clients: get(&self.clients),
            accept_errors: get(&self.accept_errors),
            connections_closed: CloseReason::all().zip(self.closed.iter().map(get)).collect(),
            commands: CommandKind::ALL
                .into_iter()
                .zip(&self.commands)
                .map(|(command, counters)| CommandStats {
                    command,
                    requests: get(&counters.requests),
                    errors: get(&counters.errors),
                    bytes: get(&counters.bytes),
                    latency: std::array::from_fn(|bucket| get(&counters.latency[bucket])),
                    latency_sum_us: get(&counters.latency_sum_us),
                })
                .collect(),
            names_refused: get(&self.names_refused),
            requests_waiting: get(&self.waiting),
            throttled: get(&self.throttled),
            populated: get(&self.populated),
            mapped_faults: get(&self.mapped_faults),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds one to a gauge while it lives, also when its task is aborted.
pub(crate) struct Gauge<'a>(&'a AtomicU64);

impl<'a> Gauge<'a> {
    pub(crate) fn count(gauge: &'a AtomicU64) -> Gauge<'a> {
        add(gauge, 1);
        Gauge(gauge)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answered, CommandKind, Counters, LATENCY_BOUNDS_US};

    #[test]
    fn test_count_answer_goes_to_its_command_and_bucket() {
        let counters = Counters::default();
        for (us, is_error) in [(25, false), (26, true), (40_000_000, false)] {
            counters.count_answer(Answered {
                command: CommandKind::Write,
                bytes: 4096,
                is_error,
                time: Duration::from_micros(us),
            });
        }
        let stats = counters.snapshot();
        let write = stats.command(CommandKind::Write).unwrap();
        assert_eq!((write.requests, write.errors, write.bytes), (3, 1, 8192));
        assert_eq!(write.latency[0], 1, "a bound belongs to its bucket");
        assert_eq!(write.latency[1], 1);
        assert_eq!(write.latency[LATENCY_BOUNDS_US.len()], 1);
        assert_eq!(write.latency_sum_us, 40_000_051);
        assert_eq!(stats.command(CommandKind::Read).unwrap().requests, 0);
    }

    #[test]
    fn test_kinds_are_in_order() {
        for (position, kind) in CommandKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, position);
        }
    }
}
