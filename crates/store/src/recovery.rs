//! Opening a store: the records are scanned once, in order, and the index is built from them.

use std::io::{self, IoSlice};
use std::ops::Range;

use acstor_types::ChunkSize;

use crate::directory::Directory;
use crate::eviction::EvictionPolicy;
use crate::format::{BLANK_RECORD, ParsedRecord, RECORD_LEN};
use crate::free_slots::FreeSlots;
use crate::index::{Index, Key};
use crate::limits;
use crate::slot_state::SlotStates;

/// Records that are tried on their own after a larger read failed (4 KiB).
const RECORDS_PER_PAGE: u32 = 64;

/// Result of the scan.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub index: Index,
    pub states: SlotStates,
    pub free: FreeSlots,
    /// Sequence number of the next insert.
    pub next_seq: u64,
    /// Records that were damaged; they are blank now.
    pub damaged: u64,
    /// Records that could not be read; their slots are suspects.
    pub unreadable: u64,
}

struct Scan<'a> {
    /// Learns the keys of the slots; they are entered in the order of their sequence numbers.
    index: &'a mut Index,
    free: FreeSlots,
    /// Sequence number and slot of the valid records.
    found: Vec<(u64, u32)>,
    /// Slots whose record is damaged.
    stale: Vec<u32>,
    /// Number of slots whose record cannot be read; perhaps the next open can.
    unreadable: u64,
}

/// Reads every record, enters the valid ones as unverified and blanks the others.
///
/// Of two records of one digest (a crash between publishing the second and blanking it) the newer
/// one stays.
pub(crate) fn recover(directory: &Directory, policy: &dyn EvictionPolicy) -> Recovered {
    let slot_count = directory.geometry.slot_count;
    let mut index = Index::new(slot_count);
    let states = SlotStates::new(slot_count);
    let mut scan = Scan {
        index: &mut index,
        free: FreeSlots::new(slot_count),
        found: Vec::new(),
        stale: Vec::new(),
        unreadable: 0,
    };
    scan.read_all(directory);
    let Scan { mut free, mut found, mut stale, unreadable, .. } = scan;
    let damaged = stale.len() as u64;
    found.sort_unstable();
    for (_, slot) in &found {
        let key = index.key_of(*slot);
        states.recover(*slot);
        if let Err(older) = index.insert(key, *slot) {
            index.remove(older);
            policy.remove(older);
            states.forget_recovered(older);
            stale.push(older);
            let entered = index.insert(key, *slot);
            debug_assert_eq!(entered, Ok(()));
        }
        policy.admit_recovered(*slot, key.prefix);
    }
    for slot in stale {
        let blanked = directory.records.write_all_at(
            &mut [IoSlice::new(&BLANK_RECORD)],
            directory.geometry.record_offset(slot),
        );
        free.give(slot, blanked.is_err());
    }
    let next_seq = found.last().map_or(1, |(seq, _)| seq.saturating_add(1));
    Recovered { index, states, free, next_seq, damaged, unreadable }
}

impl Scan<'_> {
    fn read_all(&mut self, directory: &Directory) {
        let slot_count = directory.geometry.slot_count;
        let mut buffer = vec![0; limits::SCAN_RECORDS.min(slot_count as usize) * RECORD_LEN];
        let mut first = 0;
        while first < slot_count {
            let count = (slot_count - first).min(limits::SCAN_RECORDS as u32);
            if self.read(directory, first, count, &mut buffer).is_err() {
                self.read_pages(directory, first..first + count, &mut buffer);
            }
            first += count;
        }
    }

    /// Reads a range page by page: one bad spot must not cost the whole range.
    fn read_pages(&mut self, directory: &Directory, slots: Range<u32>, buffer: &mut [u8]) {
        for first in slots.clone().step_by(RECORDS_PER_PAGE as usize) {
            let count = (slots.end - first).min(RECORDS_PER_PAGE);
            if let Err(error) = self.read(directory, first, count, buffer) {
                let path = directory.records_path.display();
                tracing::error!(%path, first, count, %error, "cannot read records");
                self.unreadable += u64::from(count);
                (first..first + count).for_each(|slot| self.free.give(slot, true));
            }
        }
    }

    fn read(
        &mut self,
        directory: &Directory,
        first: u32,
        count: u32,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let geometry = directory.geometry;
        let bytes = &mut buffer[..count as usize * RECORD_LEN];
        directory.records.read_exact_at(bytes, geometry.record_offset(first))?;
        self.add_records(bytes, first, geometry.chunk_size);
        Ok(())
    }

    fn add_records(&mut self, bytes: &[u8], first: u32, chunk_size: ChunkSize) {
        let (records, _) = bytes.as_chunks::<RECORD_LEN>();
        for (slot, record) in (first..).zip(records) {
            match ParsedRecord::parse(record, slot, chunk_size) {
                ParsedRecord::Valid(record) => {
                    self.index.note_key(slot, Key::of(&record.digest));
                    self.found.push((record.seq, slot));
                }
                ParsedRecord::Blank => self.free.give(slot, false),
                ParsedRecord::Damaged => self.stale.push(slot),
            }
        }
    }
}
