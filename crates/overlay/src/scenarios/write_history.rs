//! The history of writes to a log, and what of it a log that was opened again must hold: the state
//! after some write, none older than the last that was synced.

use crate::log::LocalLog;
use crate::scenarios::extent_reading::read_extent;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::range_set::RangeSet;

/// Sectors of the disk under test.
pub(crate) const SECTORS: u64 = 192;
pub(crate) const SECTOR: usize = 512;
/// Times that a sector is read: each fault that is armed hits once.
const READS_MAX: usize = 64;

/// Content of a sector: address and number of the write that made it; zeros for write 0.
pub(crate) fn stamp(sector: u64, write: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if write > 0 {
        for half in bytes.chunks_exact_mut(16) {
            half[..8].copy_from_slice(&sector.to_le_bytes());
            half[8..].copy_from_slice(&write.to_le_bytes());
        }
    }
    bytes
}

/// Returns the number of the write that made the sector's content; panics when it is torn.
pub(crate) fn write_of(sector: u64, bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[8..16]);
    let write = u64::from_le_bytes(number);
    assert_eq!(bytes, stamp(sector, write), "sector {sector} is torn");
    write
}

/// Returns the number of the write that made each sector.
pub(crate) fn read_state(log: &LocalLog) -> Vec<u64> {
    let map = log.map();
    let mut state = vec![0; SECTORS as usize];
    for extent in map.extents.range(0, SECTORS) {
        for at in extent.start..extent.end {
            let place = extent.place.advance(at - extent.start);
            let mut bytes = [0; SECTOR];
            let one = Extent { start: at, end: at + 1, place };
            let mut reads = 0..READS_MAX;
            while let Err(error) = read_extent(&map.segments, &one, &mut bytes) {
                assert!(reads.next().is_some(), "cannot read sector {at}: {error}");
            }
            state[at as usize] = write_of(at, &bytes);
            assert!(place != Place::Zero || state[at as usize] == 0);
        }
    }
    state
}

/// Returns the number of the write that made each sector; `None`: it cannot be read.
pub(crate) fn read_sectors(log: &LocalLog) -> Vec<Option<u64>> {
    let map = log.map();
    let mut state = vec![Some(0); SECTORS as usize];
    for extent in map.extents.range(0, SECTORS) {
        for at in extent.start..extent.end {
            let place = extent.place.advance(at - extent.start);
            let mut bytes = [0; SECTOR];
            let one = Extent { start: at, end: at + 1, place };
            let read = read_extent(&map.segments, &one, &mut bytes);
            state[at as usize] = read.ok().map(|()| write_of(at, &bytes));
        }
    }
    state
}

/// History of a log since it was opened.
pub(crate) struct WriteHistory {
    /// The state that was found when it was opened.
    base: Vec<u64>,
    /// Every acknowledged or attempted write since: range, number or 0 for zeros.
    writes: Vec<(u64, u64, u64)>,
    /// Number of `writes` that a sync has covered.
    synced: usize,
    dirty: RangeSet,
    number: u64,
}

impl WriteHistory {
    pub(crate) fn new() -> WriteHistory {
        let base = vec![0; SECTORS as usize];
        WriteHistory { base, writes: Vec::new(), synced: 0, dirty: RangeSet::default(), number: 0 }
    }

    /// Writes to a range, or zeroes it; returns whether that was acknowledged.
    pub(crate) fn write(&mut self, log: &LocalLog, start: u64, end: u64, is_zero: bool) -> bool {
        self.number += 1;
        let number = if is_zero { 0 } else { self.number };
        let outcome = if is_zero {
            log.zero(start, end - start)
        } else {
            let data: Vec<u8> = (start..end).flat_map(|at| stamp(at, number)).collect();
            log.write(start, &data)
        };
        match outcome {
            Ok(_) => {
                self.writes.push((start, end, number));
                self.dirty.insert(start, end);
            }
            // A write of several records may have been done in part: the parts count one by one.
            Err(_) if is_zero => {}
            Err(_) => self.note_partial(log, start, end, number),
        }
        outcome.is_ok()
    }

    fn note_partial(&mut self, log: &LocalLog, start: u64, end: u64, number: u64) {
        let state = read_state(log);
        let done = (start..end).take_while(|at| state[*at as usize] == number).last();
        if let Some(last) = done {
            self.writes.push((start, last + 1, number));
            self.dirty.insert(start, last + 1);
        }
    }

    /// Syncs; returns whether that succeeded.
    pub(crate) fn sync(&mut self, log: &LocalLog) -> bool {
        let is_synced = log.sync(log.appended()).is_ok();
        if is_synced {
            self.synced = self.writes.len();
        }
        is_synced
    }

    /// Notes that the origin has everything.
    pub(crate) fn pushed(&mut self) {
        self.dirty = RangeSet::default();
    }

    /// Checks that the content is the state after some write, none older than the last that was
    /// synced; `is_all`: the state after the last write.
    pub(crate) fn check(&mut self, log: &LocalLog, is_all: bool) {
        let found = read_state(log);
        let mut state = self.base.clone();
        let mut matching = None;
        for count in 0..=self.writes.len() {
            if count > 0 {
                let (start, end, number) = self.writes[count - 1];
                state[start as usize..end as usize].fill(number);
            }
            let least = if is_all { self.writes.len() } else { self.synced };
            if count >= least && state == found {
                matching = Some(count);
            }
        }
        let record_bytes = log.records.files.quota.sizes.record_bytes() as u64;
        let Some(count) = matching.or_else(|| self.partial_match(&found, record_bytes)) else {
            panic!("no prefix of the writes: synced {} of {}", self.synced, self.writes.len());
        };
        let dirty = log.map().all_dirty();
        // What was pushed may count as dirty again, never the other way round.
        for (start, end) in self.dirty.iter() {
            for at in start..end {
                // A lost write of zeros over zeros looks as if it were there.
                let is_there = found[at as usize] == self.last_of(at) && found[at as usize] > 0;
                let is_dirty = dirty.overlaps(at, at + 1);
                assert!(is_dirty || !is_there || count < self.writes.len(), "{at} is not dirty");
            }
        }
        self.base = found;
        self.writes.clear();
        self.synced = 0;
        self.dirty = dirty;
    }

    fn last_of(&self, at: u64) -> u64 {
        let last = self.writes.iter().rev().find(|(start, end, _)| (*start..*end).contains(&at));
        last.map_or(self.base[at as usize], |(_, _, number)| *number)
    }

    /// A write longer than a record may have survived in part: record by record, in order.
    fn partial_match(&self, found: &[u64], record_bytes: u64) -> Option<usize> {
        let mut state = self.base.clone();
        for (count, (start, end, number)) in self.writes.iter().enumerate() {
            for at in *start..*end {
                state[at as usize] = *number;
                let is_record = ((at + 1 - start) * SECTOR as u64).is_multiple_of(record_bytes);
                if is_record && count >= self.synced && state == found {
                    return Some(count + 1);
                }
            }
        }
        None
    }
}
