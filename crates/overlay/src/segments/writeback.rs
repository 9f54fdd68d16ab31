//! Early write-back of appended pages, before a sync makes the kernel wait for them.
//!
//! What is overwritten within seconds never needs to reach the disk: its segment is dead before a
//! checkpoint or a flush wants it, and the next records go over its pages while they are in memory.
//! So writing starts by age, and by a share of memory where a writer is quicker than that: left
//! alone the kernel keeps a tenth of memory dirty and then makes every writer of the host wait.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits;
use crate::segments::record_log::RecordLog;
use crate::segments::segment::Segment;

/// Age at which appended bytes are written: what a flush after a longer pause need not wait for.
const AGE: Duration = Duration::from_secs(5);
/// Time between two positions that are remembered: ages are as exact as this.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// Share of memory that one log may leave to be written.
const MEMORY_SHARE: u64 = 32;

/// A position in the log: number of a segment, and an offset in it.
type Position = (u32, u64);

/// Progress of asking the kernel to write: the position asked for, and past ends of the log by
/// time.
#[derive(Debug, Default)]
pub(crate) struct Writeback(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    asked: Position,
    /// Ends of the log that are not `AGE` old, and when they were seen.
    marks: VecDeque<(Position, Instant)>,
}

impl State {
    /// Notes where the log ends now; returns how far it is old.
    fn old_at(&mut self, end: Position, now: Instant) -> Position {
        let mut old = self.asked;
        while let Some((mark, _)) = self.marks.front().filter(|(_, seen)| now - *seen >= AGE) {
            old = old.max(*mark);
            self.marks.pop_front();
        }
        let is_due = |(mark, seen): &(Position, Instant)| *mark < end && now - *seen >= MARK_EVERY;
        if end > self.asked && self.marks.back().is_none_or(is_due) {
            self.marks.push_back((end, now));
        }
        old
    }
}

impl Writeback {
    /// Asks the kernel to start writing what is old, or more than may be left. Not for a writer: the
    /// request itself may wait.
    pub(crate) fn start(&self, records: &RecordLog, now: Instant) {
        let mut state = self.0.lock();
        let (segments, end) = {
            let head = records.head();
            let mut segments: Vec<_> = head.unsynced.to_vec();
            segments.push(Arc::clone(&head.segment));
            (segments, (head.segment.number, head.offset))
        };
        let mut until = state.old_at(end, now);
        let left = pending(&segments, until, end).map(|(_, from, to)| to - from).sum::<u64>();
        if left > limits::WRITEBACK_BYTES_MAX.min(memory_share()) {
            until = end;
        }
        for (segment, from, to) in pending(&segments, state.asked, until) {
            segment.file.start_writeback(from, to - from);
        }
        state.asked = state.asked.max(until);
    }
}

/// Returns what of living segments lies between two positions: dead ones need not be written.
fn pending(
    segments: &[Arc<Segment>],
    from: Position,
    to: Position,
) -> impl Iterator<Item = (&Segment, u64, u64)> {
    segments.iter().filter(|segment| segment.live() > 0).filter_map(move |segment| {
        let begin = if segment.number == from.0 { from.1 } else { 0 };
        let end = if segment.number == to.0 { to.1 } else { segment.size_bytes };
        let is_between = (from.0..=to.0).contains(&segment.number) && begin < end;
        is_between.then_some((&**segment, begin, end))
    })
}

/// Bytes of this host's memory that one log may leave to be written.
fn memory_share() -> u64 {
    static SHARE: OnceLock<u64> = OnceLock::new();
    *SHARE.get_or_init(|| {
        // SAFETY: takes and returns numbers only.
        let known =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        let bytes = |number: i64| u64::try_from(number).unwrap_or(0);
        let memory = bytes(known.0).saturating_mul(bytes(known.1));
        (memory / MEMORY_SHARE).max(limits::WRITEBACK_BYTES_MIN)
    })
}

#[cfg(test)]
mod tests {
    use acstor_types::DiskId;

    use super::*;
    use crate::log::LocalLog;
    use crate::regions::RegionMap;
    use crate::regions::durability::Durability;
    use crate::scenarios::memory_disk::MemoryDisk;
    use crate::segments::disk::LogDisk;
    use crate::segments::quota::LogConfig;
    use crate::segments::recovery::create_log;

    const CONFIG: LogConfig =
        LogConfig { segment_bytes: 64 << 10, quota_bytes: 6400 << 10, reserve_bytes: 0 };

    fn new_log(disk: &MemoryDisk) -> LocalLog {
        let shared: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let regions = Arc::new(RegionMap::new(&Durability::default(), &[]));
        let log = create_log(&shared, CONFIG, regions).unwrap();
        log.checkpoint(DiskId::from_bytes([3; 16]), 1).unwrap();
        log
    }

    #[test]
    fn what_is_old_is_written_once() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let asked = |seconds| {
            let before = disk.faults.calls("writeback");
            log.upkeep.writeback.start(&log.records, at(seconds));
            disk.faults.calls("writeback") - before
        };
        log.write(0, &[1; 4096]).unwrap();
        assert_eq!([asked(0), asked(1), asked(4)], [0; 3]);
        log.write(8, &[1; 4096]).unwrap();
        assert_eq!([asked(4), asked(5), asked(6), asked(8)], [0, 1, 0, 0]);
        assert_eq!([asked(9), asked(10), asked(60), asked(120)], [1, 0, 0, 0]);
    }

    #[test]
    fn dead_segments_are_not_written() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        for _ in 0..30 {
            log.write(0, &[1; 16 << 10]).unwrap();
        }
        let begin = Instant::now();
        log.upkeep.writeback.start(&log.records, begin);
        log.upkeep.writeback.start(&log.records, begin + AGE);
        assert!(log.head().unsynced.len() > 5);
        assert_eq!(disk.faults.calls("writeback"), 1, "the one that is alive");
    }

    #[test]
    fn marks_are_few() {
        let mut state = State::default();
        let begin = Instant::now();
        for number in 0..10_000 {
            let old = state.old_at((1, number), begin + Duration::from_millis(number));
            state.asked = old;
            assert!(state.marks.len() <= 6);
            assert!(number < 6000 || old.1 + 6100 >= number, "{number}: {old:?}");
        }
    }
}
