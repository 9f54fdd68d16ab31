//! Opening a store: the records are scanned once, in order, and the index is built from them.

use std::io::{self, IoSlice};

use acstor_types::ChunkSize;

use crate::directory::Directory;
use crate::eviction::EvictionPolicy;
use crate::format::{BLANK_RECORD, ParsedRecord, RECORD_LEN};
use crate::free_slots::FreeSlots;
use crate::index::Index;
use crate::limits;
use crate::slot_state::SlotStates;

/// Records that are tried on their own after a larger read failed (4 KiB).
const RECORDS_PER_PAGE: u32 = 64;

/// What the scan found.
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

#[derive(Default)]
struct Scan {
    /// Sequence number, slot, digest prefix.
    found: Vec<(u64, u32, u64)>,
    /// Slots whose record is damaged.
    stale: Vec<u32>,
    /// Slots whose record cannot be read; perhaps the next open can.
    unreadable: Vec<u32>,
    blank: Vec<u32>,
}

/// Reads every record, enters the valid ones as unverified and blanks the others.
///
/// Of two records of one digest (a crash between publishing the second and blanking it) the newer
/// one stays.
pub(crate) fn recover(directory: &Directory, policy: &dyn EvictionPolicy) -> Recovered {
    let slot_count = directory.geometry.slot_count;
    let mut index = Index::new(slot_count);
    let states = SlotStates::new(slot_count);
    let mut free = FreeSlots::new(slot_count);

    let mut scan = scan(directory);
    let damaged = scan.stale.len() as u64;
    let unreadable = scan.unreadable.len() as u64;
    for slot in &scan.unreadable {
        free.give(*slot, true);
    }
    for slot in &scan.blank {
        free.give(*slot, false);
    }
    scan.found.sort_unstable();
    for (_, slot, prefix) in &scan.found {
        states.recover(*slot);
        if let Err(older) = index.insert(*prefix, *slot) {
            index.remove(older);
            policy.remove(older);
            states.forget_recovered(older);
            scan.stale.push(older);
            let entered = index.insert(*prefix, *slot);
            debug_assert_eq!(entered, Ok(()));
        }
        policy.admit_recovered(*slot, *prefix);
    }
    for slot in scan.stale {
        let blanked = directory.records.write_all_at(
            &mut [IoSlice::new(&BLANK_RECORD)],
            directory.geometry.record_offset(slot),
        );
        free.give(slot, blanked.is_err());
    }
    let next_seq = scan.found.last().map_or(1, |(seq, ..)| seq.saturating_add(1));
    Recovered { index, states, free, next_seq, damaged, unreadable }
}

fn scan(directory: &Directory) -> Scan {
    let slot_count = directory.geometry.slot_count;
    let mut scan = Scan::default();
    let mut buffer = vec![0; limits::SCAN_RECORDS.min(slot_count as usize) * RECORD_LEN];
    let mut first = 0;
    while first < slot_count {
        let count = (slot_count - first).min(limits::SCAN_RECORDS as u32);
        if scan.read(directory, first, count, &mut buffer).is_err() {
            // One bad spot must not cost the whole step.
            for page in (first..first + count).step_by(RECORDS_PER_PAGE as usize) {
                let count = (first + count - page).min(RECORDS_PER_PAGE);
                if let Err(error) = scan.read(directory, page, count, &mut buffer) {
                    let path = directory.records_path.display();
                    tracing::error!(%path, page, count, %error, "cannot read records");
                    scan.unreadable.extend(page..page + count);
                }
            }
        }
        first += count;
    }
    scan
}

impl Scan {
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
                    self.found.push((record.seq, slot, record.digest.prefix_u64()));
                }
                ParsedRecord::Blank => self.blank.push(slot),
                ParsedRecord::Damaged => self.stale.push(slot),
            }
        }
    }
}
