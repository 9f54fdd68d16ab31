//! The summary: packs that a manifest refers to, and which bytes of them it uses.
//!
//! A pack record:
//!
//! ```text
//! 0      id of the pack                               32
//! 32     bytes of all chunks that the pack holds      u32
//! 36     bytes of those that this manifest uses       u32
//! 40     first run, where it does not use all         u32
//! 44     class of the pack                            u8
//! 45     runs; none: it uses all                      u24
//! ```
//!
//! A run is a first byte of the pack and the first one after it (u32, u32): chunks side by side.

use std::ops::Range;

use acstor_types::bytes_le::{array_at, u32_at};
use acstor_types::{Digest, PACK_DATA_OFFSET, PackId};

use crate::format::form::{check_rest, records_of};
use crate::format::header::Header;
use crate::format::layout::{PACK_RECORD_LEN, PAGE_PACKS, PAGE_RUNS, RUN_LEN};
use crate::{ManifestError, PAGE_LEN, PageBytes};

/// Most runs of one pack: fewer bytes are needed to say it in no other way.
const PACK_RUNS_MAX: u32 = 0x00ff_ffff;

/// A pack, as a manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pack {
    /// Name of the pack.
    pub id: PackId,
    /// Bytes of all chunks that it holds, as they are stored, whoever uses them.
    pub stored_bytes: u32,
    /// Class of the pack, which says where the origin keeps it; of no meaning here.
    pub class: u8,
}

/// A pack and what a manifest uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// The pack.
    pub pack: Pack,
    /// Bytes of the chunks that the manifest uses, each chunk counted once.
    pub used_bytes: u32,
    pub(crate) first_run: u32,
    pub(crate) run_count: u32,
}

impl PackRecord {
    /// Returns whether every chunk of the pack is used.
    pub fn is_whole(&self) -> bool {
        self.used_bytes == self.pack.stored_bytes
    }

    /// Numbers of its runs; none where the pack is used as a whole.
    pub(crate) fn runs(&self) -> Range<u32> {
        self.first_run..self.first_run.saturating_add(self.run_count)
    }

    pub(crate) fn read(bytes: &[u8], offset: usize) -> PackRecord {
        let class_and_runs = u32_at(bytes, offset + 44);
        let [class, ..] = class_and_runs.to_le_bytes();
        PackRecord {
            pack: Pack {
                id: PackId(Digest::from_bytes(array_at(bytes, offset))),
                stored_bytes: u32_at(bytes, offset + 32),
                class,
            },
            used_bytes: u32_at(bytes, offset + 36),
            first_run: u32_at(bytes, offset + 40),
            run_count: class_and_runs >> 8,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; PACK_RECORD_LEN] {
        let mut bytes = [0; PACK_RECORD_LEN];
        bytes[..32].copy_from_slice(self.pack.id.0.as_bytes());
        bytes[32..36].copy_from_slice(&self.pack.stored_bytes.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.used_bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.first_run.to_le_bytes());
        let class_and_runs = u32::from(self.pack.class) | self.run_count << 8;
        bytes[44..].copy_from_slice(&class_and_runs.to_le_bytes());
        bytes
    }

    pub(crate) fn check(&self, runs: u32) -> Result<(), ManifestError> {
        let PackRecord { pack, used_bytes, first_run, run_count } = *self;
        if used_bytes == 0 || used_bytes > pack.stored_bytes {
            return Err(ManifestError::Corrupt("used bytes of a pack"));
        }
        let is_in_range = first_run.checked_add(run_count).is_some_and(|end| end <= runs);
        let is_expected = (run_count == 0) == self.is_whole() && run_count <= PACK_RUNS_MAX;
        if is_in_range && is_expected && (run_count > 0 || first_run == 0) {
            Ok(())
        } else {
            Err(ManifestError::Corrupt("runs of a pack"))
        }
    }
}

pub(crate) fn read_run(bytes: &[u8], offset: usize) -> Range<u32> {
    u32_at(bytes, offset)..u32_at(bytes, offset + 4)
}

fn check_run(run: &Range<u32>) -> Result<(), ManifestError> {
    if u64::from(run.start) >= PACK_DATA_OFFSET && run.start < run.end {
        Ok(())
    } else {
        Err(ManifestError::Corrupt("run of bytes in a pack"))
    }
}

/// Checks a page of pack records.
pub(crate) fn check_records(
    header: &Header,
    position: u32,
    bytes: &PageBytes,
) -> Result<(), ManifestError> {
    let records = records_of(position, header.counts().packs, PAGE_PACKS) as usize;
    check_rest(bytes, records * PACK_RECORD_LEN)?;
    (0..records).try_for_each(|slot| {
        PackRecord::read(&bytes[..], slot * PACK_RECORD_LEN).check(header.counts().runs)
    })
}

/// Checks a page of runs.
pub(crate) fn check_runs(
    header: &Header,
    position: u32,
    bytes: &PageBytes,
) -> Result<(), ManifestError> {
    let runs = records_of(position, header.counts().runs, PAGE_RUNS) as usize;
    check_rest(bytes, runs * RUN_LEN)?;
    (0..runs).try_for_each(|slot| check_run(&read_run(&bytes[..], slot * RUN_LEN)))
}

/// Checks that runs are in order, do not touch, and are as many bytes as the record says.
pub(crate) fn check_usage(record: &PackRecord, runs: &[Range<u32>]) -> Result<(), ManifestError> {
    let mut used = 0_u32;
    let mut end = 0;
    for run in runs {
        check_run(run)?;
        if run.start <= end {
            return Err(ManifestError::Corrupt("order of the runs of a pack"));
        }
        end = run.end;
        used = used.saturating_add(run.end - run.start);
    }
    if record.is_whole() || used == record.used_bytes {
        Ok(())
    } else {
        Err(ManifestError::Corrupt("used bytes of a pack"))
    }
}

/// The summary of a manifest, verified as a whole: for who wants all packs and no entry.
///
/// It lies right behind the header, so that one read of the file's beginning has both.
#[derive(Clone, Debug)]
pub struct Summary<B> {
    bytes: B,
    packs: u32,
    runs: u32,
    runs_at: usize,
}

impl<B: AsRef<[u8]>> Summary<B> {
    /// Reads the summary from the bytes of its pages, exactly those.
    ///
    /// # Errors
    /// [`ManifestError`] when they are not what the header names, or say what cannot be.
    pub fn parse(header: &Header, bytes: B) -> Result<Summary<B>, ManifestError> {
        let sections = header.sections();
        let expected = sections.summary().len() as u64 * PAGE_LEN as u64;
        let actual = bytes.as_ref().len() as u64;
        if actual != expected {
            return Err(ManifestError::Length { actual, expected });
        }
        if expected > 0 && Digest::of(bytes.as_ref()) != header.summary_digest() {
            return Err(ManifestError::Corrupt("digest of the summary"));
        }
        let runs_at = sections.pack_records.len() * PAGE_LEN;
        let (packs, runs) = (header.counts().packs, header.counts().runs);
        let summary = Summary { bytes, packs, runs, runs_at };
        let mut next_run = 0;
        for record in summary.packs() {
            record.check(runs)?;
            if record.run_count > 0 && record.first_run != next_run {
                return Err(ManifestError::Corrupt("runs of a pack"));
            }
            next_run += record.run_count;
            check_usage(&record, &summary.runs(&record))?;
        }
        if next_run != runs {
            return Err(ManifestError::Corrupt("runs of a pack"));
        }
        Ok(summary)
    }

    /// Returns the packs, in the order of their numbers.
    pub fn packs(&self) -> impl Iterator<Item = PackRecord> + '_ {
        (0..self.packs).map(|number| {
            let page = (number / PAGE_PACKS) as usize * PAGE_LEN;
            let slot = (number % PAGE_PACKS) as usize * PACK_RECORD_LEN;
            PackRecord::read(self.bytes.as_ref(), page + slot)
        })
    }

    /// Returns the bytes that are used of one of its packs, ascending; none where it is used as a
    /// whole.
    pub fn runs(&self, record: &PackRecord) -> Vec<Range<u32>> {
        let run =
            |number: u32| read_run(self.bytes.as_ref(), self.runs_at + number as usize * RUN_LEN);
        record.runs().filter(|number| *number < self.runs).map(run).collect()
    }
}
