//! Health of the chunk store's disk: a breaker between reads and a disk that hangs.

use acstor_runclock::RunInstant;
use parking_lot::Mutex;

use crate::limits;

/// The disk of the chunk store as its readers see it.
///
/// ```text
///               LateInARow                     ProbeDue             ProbeDue
///   Answering ---------------> Hung --------------------> Probing --------.
///     ^  ^                     |  ^                       |  |  ^         |
///     |  +------CameBack-------+  +---------Late----------+  |  +---------+
///     +-------------------------CameBack---------------------+
/// ```
///
/// The page `reference/state-machines/store-disk` shows the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// Reads go to the disk.
    Answering,
    /// No read goes to the disk: what is on it only is taken for absent.
    Hung,
    /// One read is out to see.
    Probing,
}

/// Event in the life of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreEvent {
    /// A read has not come back in time.
    Late,
    /// As many reads in a row have not.
    LateInARow,
    /// A read wants the disk, and it is time to look whether it is back.
    ProbeDue,
    /// A read came back, with content or with an error, late or not.
    CameBack,
}

/// Every transition; a pair that is not listed leaves the state as it is.
pub(crate) const TRANSITIONS: [(StoreState, StoreEvent, StoreState); 6] = {
    use StoreEvent::{CameBack, Late, LateInARow, ProbeDue};
    use StoreState::{Answering, Hung, Probing};
    [
        (Answering, LateInARow, Hung),
        (Hung, ProbeDue, Probing),
        (Hung, CameBack, Answering),
        (Probing, Late, Hung),
        (Probing, ProbeDue, Probing),
        (Probing, CameBack, Answering),
    ]
};

impl StoreState {
    fn after(self, event: StoreEvent) -> StoreState {
        let row = TRANSITIONS.iter().find(|(from, on, _)| (*from, *on) == (self, event));
        row.map_or(self, |(_, _, to)| *to)
    }
}

/// The breaker.
#[derive(Debug)]
pub(crate) struct StoreHealth(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: StoreState,
    /// Reads in a row that were late.
    late: u32,
    /// When a read may look whether the disk is back; a disk that answers has none.
    probe_at: Option<RunInstant>,
}

impl StoreHealth {
    pub(crate) fn new() -> StoreHealth {
        StoreHealth(Mutex::new(Inner { state: StoreState::Answering, late: 0, probe_at: None }))
    }

    /// Asks for leave to read.
    pub(crate) fn admits(&self, now: RunInstant) -> bool {
        let mut inner = self.0.lock();
        let Some(probe_at) = inner.probe_at else { return true };
        let is_due = now >= probe_at;
        if is_due {
            inner.state = inner.state.after(StoreEvent::ProbeDue);
            inner.probe_at = Some(now + limits::STORE_PROBE_INTERVAL);
        }
        is_due
    }

    /// Notes that the disk gave a read back, with content or with an error, late or not.
    pub(crate) fn came_back(&self) {
        let mut inner = self.0.lock();
        if inner.state != StoreState::Answering {
            tracing::warn!("the disk of the chunk store answers again");
        }
        let state = inner.state.after(StoreEvent::CameBack);
        *inner = Inner { state, late: 0, probe_at: None };
    }

    /// Notes that a read has not come back in time.
    pub(crate) fn was_late(&self, now: RunInstant) {
        let mut inner = self.0.lock();
        inner.late = inner.late.saturating_add(1);
        let event = match inner.late >= limits::STORE_LATE_MAX {
            true if inner.state == StoreState::Answering => StoreEvent::LateInARow,
            _ => StoreEvent::Late,
        };
        let next = inner.state.after(event);
        if event == StoreEvent::LateInARow {
            tracing::error!(
                "the disk of the chunk store does not answer: chunks that are on it only are \
                 taken for absent; look for its errors in the kernel's log"
            );
        }
        if next != inner.state {
            inner.probe_at = Some(now + limits::STORE_PROBE_INTERVAL);
        }
        inner.state = next;
    }

    /// Whether reads go to the disk.
    pub(crate) fn is_answering(&self) -> bool {
        self.0.lock().state == StoreState::Answering
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn test_page_lists_exactly_the_transitions() {
        let page = include_str!("../../../../doc/source/reference/state-machines/store-disk.rst");
        let cell = |line: &str| {
            line.trim_start_matches(['*', '-', ' ']).trim_matches('`').trim().to_owned()
        };
        let lines: Vec<&str> = page.lines().collect();
        let rows = lines.windows(3).filter(|row| {
            row[0].starts_with("   * - ``") && row[1..].iter().all(|l| l.starts_with("     - ``"))
        });
        let listed: BTreeSet<Vec<String>> =
            rows.map(|row| row.iter().map(|line| cell(line)).collect()).collect();
        let row = |(from, on, to): &(StoreState, StoreEvent, StoreState)| {
            vec![format!("{from:?}"), format!("{on:?}"), format!("{to:?}")]
        };
        assert_eq!(listed, TRANSITIONS.iter().map(row).collect());
    }

    /// A read that was late says nothing of a disk that hangs already, nor puts the next look off.
    #[test]
    fn test_health_of_a_hung_disk_late_reads_change_nothing() {
        let health = StoreHealth::new();
        let start = RunInstant::unmeasured();
        for _ in 0..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        for _ in 0..10 {
            health.was_late(start + limits::STORE_PROBE_INTERVAL / 2);
        }
        assert!(health.admits(start + limits::STORE_PROBE_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn test_health_late_reads_in_a_row_open_the_breaker_and_one_answer_closes_it() {
        let health = StoreHealth::new();
        let start = RunInstant::unmeasured();
        for _ in 1..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        health.came_back();
        for _ in 1..limits::STORE_LATE_MAX {
            health.was_late(start);
        }
        assert!(health.is_answering() && health.admits(start), "not in a row");
        health.was_late(start);
        assert!(!health.is_answering() && !health.admits(start));
        health.came_back();
        assert!(health.is_answering() && health.admits(start));
    }

    #[tokio::test(start_paused = true)]
    async fn test_health_one_read_at_a_time_looks_whether_a_hung_disk_is_back() {
        let health = StoreHealth::new();
        let mut now = RunInstant::unmeasured();
        for _ in 0..limits::STORE_LATE_MAX {
            health.was_late(now);
        }
        for _ in 0..3 {
            now += limits::STORE_PROBE_INTERVAL;
            assert!(health.admits(now), "the probe");
            assert!(!health.admits(now), "one at a time");
            health.was_late(now);
            assert!(!health.admits(now));
        }
        now += limits::STORE_PROBE_INTERVAL;
        assert!(health.admits(now));
        now += limits::STORE_PROBE_INTERVAL;
        assert!(health.admits(now), "a probe that nobody waits for any more is not the last");
    }
}
