//! Partition table of a disk as last seen, while a guest writes it.
//!
//! A table is written in several steps, and between two of them its checksums do not match. Judged
//! as it is then, the disk would have no partitions: what is never to leave would leave. So a
//! table that was there, or is there in part, is waited for; only when it stays away is the disk
//! one without partitions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::regions::Partition;
use crate::regions::gpt::{HEADER_SECTOR, Table, USUAL_ENTRIES};
use crate::segments::record::SECTOR;

/// The last whole table.
#[derive(Debug)]
pub(crate) struct TableSeen {
    /// First byte of its entries and the byte after them, for each write to compare with.
    entries: [AtomicU64; 2],
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The disk had a table when it was last looked at.
    had_table: bool,
    /// Since when it has none that can be read.
    since: Option<Instant>,
}

impl Default for TableSeen {
    fn default() -> TableSeen {
        let entries = [USUAL_ENTRIES.start, USUAL_ENTRIES.end].map(AtomicU64::new);
        TableSeen { entries, waiting: Mutex::default() }
    }
}

impl TableSeen {
    /// Returns whether some of `first..end` (bytes of the disk) is header or entries.
    pub(crate) fn is_in(&self, first: u64, end: u64) -> bool {
        let header = HEADER_SECTOR * SECTOR;
        let [start, last] = self.entries.each_ref().map(|one| one.load(Ordering::Relaxed));
        first < header + SECTOR && end > header || first < last && end > start
    }

    /// Returns the partitions of a table, or `None` while it is to be waited for.
    pub(crate) fn settled(&self, table: Table, patience: Duration) -> Option<Vec<Partition>> {
        let mut waiting = self.waiting.lock();
        if let Table::Whole(partitions, entries) = table {
            self.entries[0].store(entries.start, Ordering::Relaxed);
            self.entries[1].store(entries.end, Ordering::Relaxed);
            *waiting = Waiting { had_table: true, since: None };
            return Some(partitions);
        }
        let is_awaited = waiting.had_table || table == Table::Damaged;
        let since = *waiting.since.get_or_insert_with(Instant::now);
        if is_awaited && since.elapsed() < patience {
            return None;
        }
        *waiting = Waiting::default();
        Some(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn whole(start: u64) -> Table {
        Table::Whole(vec![("swap".into(), 4096, 8192)], start..start + 1024)
    }

    #[test]
    fn disk_without_a_table_is_not_waited_for() {
        assert_eq!(TableSeen::default().settled(Table::Absent, LONG), Some(Vec::new()));
    }

    #[test]
    fn table_in_pieces_is_waited_for() {
        let seen = TableSeen::default();
        assert_eq!(seen.settled(Table::Damaged, LONG), None);
        assert!(seen.settled(whole(1024), LONG).is_some());
        assert_eq!(seen.settled(Table::Absent, LONG), None, "there was one");
        assert_eq!(seen.settled(Table::Damaged, Duration::ZERO), Some(Vec::new()));
        assert_eq!(seen.settled(Table::Absent, LONG), Some(Vec::new()), "there was none any more");
    }

    #[test]
    fn writes_to_header_and_entries_are_noticed_wherever_those_are() {
        let seen = TableSeen::default();
        let is_in = |seen: &TableSeen, ranges: [(u64, u64); 6]| {
            ranges.map(|(first, end)| seen.is_in(first, end))
        };
        let ranges =
            [(0, 512), (0, 513), (1023, 1024), (1024, 1025), (17408, 18432), (1 << 20, 2 << 20)];
        assert_eq!(is_in(&seen, ranges), [false, true, true, true, false, false]);
        seen.settled(whole(1 << 20), LONG);
        assert_eq!(is_in(&seen, ranges), [false, true, true, false, false, true]);
    }
}
