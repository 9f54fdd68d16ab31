//! Seeded rot of what a log has on its disk: of records that were flushed, as later ones say.

use std::io::IoSlice;
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::scenarios::memory_disk::{MemoryDisk, MemoryFile};
use crate::segments::checkpoint::read_checkpoint;
use crate::segments::disk::{LogDisk, LogFile};
use crate::segments::record::{HEADER_LEN, RECORDS_OFFSET, RecordHeader, SegmentHeader};
use crate::segments::record_index::PAGE;
use crate::segments::segment::Segment;

/// A record that a scan will find, and that must have been flushed.
struct Flushed {
    name: String,
    file: Arc<dyn LogFile>,
    offset: u64,
    record: RecordHeader,
}

/// Bits and sectors that have rotted, to be mended.
pub(crate) struct Rot {
    /// Bits that were turned around, and sectors that cannot be read: of files, as one that is dead may
    /// lose its name when the log is opened.
    flips: Vec<(Arc<dyn LogFile>, u64)>,
    broken: Vec<(Arc<MemoryFile>, u64)>,
    /// Sectors of the volume that may be lost by that.
    ranges: Vec<(u64, u64)>,
    /// A header is damaged: nobody knows what was lost.
    pub is_header: bool,
}

impl Rot {
    /// Damages some records that were flushed; `None`: there are none.
    pub(crate) fn new(disk: &MemoryDisk, rng: &mut ChaCha8Rng) -> Option<Rot> {
        let is_header = rng.random_bool(0.3);
        let records = flushed_records(disk);
        let count = records.len();
        let (flips, broken, ranges) = (Vec::new(), Vec::new(), Vec::new());
        let mut rot = Rot { flips, broken, ranges, is_header };
        let chosen = records.into_iter().filter(|_| rng.random_bool((2.0 / count as f64).min(1.0)));
        let chosen: Vec<_> = chosen.collect();
        for Flushed { name, file, offset, record } in chosen {
            if is_header {
                rot.flips.push((file, offset + rng.random_range(0..HEADER_LEN as u64)));
                continue;
            }
            let (at, len) = (offset + HEADER_LEN as u64, record.payload_len());
            if len == 0 {
                continue;
            }
            rot.ranges.push((record.first_sector, record.end_sector()));
            // A page that has nothing but content of this record: pages are read as a whole.
            let inside = (at + 1).next_multiple_of(PAGE);
            if rng.random_bool(0.3) && inside + PAGE <= at + len {
                rot.broken.push((disk.file(&name), inside));
            } else {
                rot.flips.push((file, at + rng.random_range(0..len)));
            }
        }
        rot.flip();
        rot.set_broken(true);
        (!rot.flips.is_empty() || !rot.broken.is_empty()).then_some(rot)
    }

    /// Gives back what was there before.
    pub(crate) fn mend(self) {
        self.set_broken(false);
        self.flip();
    }

    fn flip(&self) {
        for (file, offset) in &self.flips {
            let mut byte = [0];
            file.read_exact_at(&mut byte, *offset).unwrap();
            file.write_all_at(&mut [IoSlice::new(&[byte[0] ^ 1])], *offset).unwrap();
            file.sync().unwrap();
        }
    }

    fn set_broken(&self, is_broken: bool) {
        for (file, offset) in &self.broken {
            file.set_broken(*offset, is_broken);
        }
    }

    /// Checks what was read of each sector beside the rot: it is right, or an error where there is
    /// rot; `right`: what is read without it.
    #[track_caller]
    pub(crate) fn check(ranges: &[(u64, u64)], found: &[Option<u64>], right: &[u64]) {
        for ((found, right), at) in found.iter().zip(right).zip(0..) {
            let is_rotten = ranges.iter().any(|(start, end)| (*start..*end).contains(&at));
            assert!(
                *found == Some(*right) || found.is_none() && is_rotten,
                "sector {at}: {found:?}"
            );
        }
    }

    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.clone()
    }
}

/// Returns the records from the checkpoint on of which a later one says that they were flushed.
fn flushed_records(disk: &MemoryDisk) -> Vec<Flushed> {
    let checkpoint = read_checkpoint(disk).unwrap().expect("there is a checkpoint").header;
    let mut names = disk.list().unwrap();
    names.retain(|name| Segment::number_of(name) >= Some(checkpoint.segment));
    names.sort();
    let (mut sequence, mut durable) = (checkpoint.next_sequence, 0);
    let mut records = Vec::new();
    for name in names {
        let file = disk.open(&name).unwrap();
        // As who opens the log does: what the disk has counts. An error is told once.
        assert!(file.sync_and_forget().is_ok() || file.sync_and_forget().is_ok());
        let mut bytes = [0; HEADER_LEN];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let Ok(header) = SegmentHeader::parse(&bytes) else { continue };
        if header.log_id != checkpoint.log_id || Segment::number_of(&name) != Some(header.number) {
            continue;
        }
        let is_first = header.number == checkpoint.segment;
        let mut offset = if is_first { checkpoint.offset } else { RECORDS_OFFSET };
        while offset + HEADER_LEN as u64 <= header.size_bytes {
            file.read_exact_at(&mut bytes, offset).unwrap();
            let Some(record) = RecordHeader::parse(&bytes) else { break };
            if record.salt != header.salt || record.sequence != sequence {
                break;
            }
            let file = Arc::clone(&file);
            records.push(Flushed { name: name.clone(), file, offset, record });
            offset += HEADER_LEN as u64 + record.payload_len();
            durable = durable.max(record.durable);
            sequence += 1;
        }
    }
    records.retain(|found| found.record.sequence < durable);
    records
}
