//! What a store's handles and guards share, and the read side: finding, verifying, condemning.
//!
//! Locks, in the order in which they may be taken together: `pins`, the policy's own, `index`.
//! `free` is taken alone. None is held during I/O, but for `pins` while one record is read.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

use acstor_types::Digest;
use parking_lot::{Mutex, RwLock};

use crate::directory::Directory;
use crate::eviction::{EvictionPolicy, TouchFilter};
use crate::format::{BLANK_RECORD, ParsedRecord, RECORD_LEN};
use crate::free_slots::FreeSlots;
use crate::index::Index;
use crate::pins::Pins;
use crate::slot_state::{Phase, SlotStates};
use crate::stats::Counters;
use crate::writeback::Writeback;

#[derive(Debug)]
pub(crate) struct Core {
    pub directory: Directory,
    pub states: SlotStates,
    /// A slot is entered when it is published and leaves before it is anything else; both happen
    /// under the write lock, so a reader that finds a slot under the read lock can guard it.
    pub index: RwLock<Index>,
    pub policy: Box<dyn EvictionPolicy>,
    pub touch_filter: TouchFilter,
    pub pins: Mutex<Pins>,
    pub free: Mutex<FreeSlots>,
    pub next_seq: AtomicU64,
    /// Grows when the slot file was found truncated: what was verified before no longer is.
    pub truncation_epoch: AtomicU64,
    pub repair: Mutex<()>,
    pub writeback: Writeback,
    pub counters: Counters,
}

/// What a slot's record says about a digest.
enum RecordCheck {
    Match,
    /// Another digest with the same prefix.
    OtherDigest,
    Lost(Loss),
}

/// Why a slot is condemned; with the part of it (record or content) that failed.
enum Loss {
    /// It is not what was published.
    Mismatch(&'static str),
    /// The kernel could not read it.
    Unreadable(&'static str, io::Error),
}

thread_local! {
    /// Where this thread reads content that it verifies.
    static VERIFY_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Core {
    /// Returns the slot of `digest` with a guard on it, and its phase.
    pub(crate) fn find(&self, digest: &Digest) -> Option<(u32, Phase)> {
        let (slot, phase) = self.find_prefix(digest)?;
        match self.check_record(slot, digest) {
            RecordCheck::Match => return Some((slot, phase)),
            RecordCheck::OtherDigest => {}
            RecordCheck::Lost(loss) => self.condemn(slot, &loss),
        }
        self.release(slot);
        None
    }

    fn find_prefix(&self, digest: &Digest) -> Option<(u32, Phase)> {
        let index = self.index.read();
        let slot = index.find(digest.prefix_u64())?;
        Some((slot, self.states.acquire(slot)?))
    }

    /// Returns the slot of `digest` with a guard on it and its content verified.
    pub(crate) fn find_verified(&self, digest: &Digest) -> Option<u32> {
        let (slot, phase) = self.find(digest)?;
        if phase != Phase::Verified
            && let Err(loss) = self.verify(slot, digest)
        {
            self.condemn(slot, &loss);
            self.release(slot);
            return None;
        }
        Some(slot)
    }

    /// Drops a guard.
    pub(crate) fn release(&self, slot: u32) {
        if let Some(blanked) = self.states.release(slot) {
            self.free.lock().give(slot, !blanked);
        }
    }

    /// Reads a part of a slot on which the caller has a guard; a failure condemns the slot.
    pub(crate) fn read_slot(&self, slot: u32, start: usize, buffer: &mut [u8]) -> io::Result<()> {
        let offset = self.directory.geometry.slot_offset(slot) + start as u64;
        self.directory.slots.read_exact_at(buffer, offset).map_err(|error| {
            let kind = error.kind();
            self.condemn(slot, &Loss::Unreadable("content", error));
            kind.into()
        })
    }

    /// Takes a slot whose content cannot be had out of the store; it is free again when its last
    /// guard is dropped. The caller has a guard on it.
    fn condemn(&self, slot: u32, loss: &Loss) {
        let mut index = self.index.write();
        if !self.states.condemn(slot) {
            return; // another reader did it
        }
        index.remove(slot);
        drop(index);
        self.policy.remove(slot);
        self.note_loss(slot, loss);
        if self.write_records(slot, &mut [IoSlice::new(&BLANK_RECORD)]).is_ok() {
            self.states.note_blanked(slot);
        }
    }

    /// Writes the records of neighbouring slots.
    pub(crate) fn write_records(&self, slot: u32, records: &mut [IoSlice<'_>]) -> io::Result<()> {
        let offset = self.directory.geometry.record_offset(slot);
        self.directory.records.write_all_at(records, offset).inspect_err(|error| {
            let count = self.counters.write_errors.add(1);
            if count.is_power_of_two() {
                let path = self.directory.records_path.display();
                tracing::warn!(%path, slot, count, %error, "cannot write record");
            }
        })
    }

    /// Returns the digests in the index of `count` slots from `first` on.
    pub(crate) fn digests_of(&self, first: u32, count: u32) -> Vec<Digest> {
        let geometry = self.directory.geometry;
        let mut bytes = vec![0; count as usize * RECORD_LEN];
        let offset = geometry.record_offset(first);
        if self.directory.records.read_exact_at(&mut bytes, offset).is_err() {
            return Vec::new(); // each of these slots is condemned when it is read
        }
        let (records, _) = bytes.as_chunks::<RECORD_LEN>();
        let index = self.index.read();
        (first..)
            .zip(records)
            .filter_map(|(slot, bytes)| {
                match ParsedRecord::parse(bytes, slot, geometry.chunk_size) {
                    ParsedRecord::Valid(record)
                        if index.holds(record.digest.prefix_u64(), slot) =>
                    {
                        Some(record.digest)
                    }
                    _ => None,
                }
            })
            .collect()
    }

    /// Reads the record of `slot`.
    fn read_record(&self, slot: u32) -> io::Result<ParsedRecord> {
        let geometry = self.directory.geometry;
        let mut bytes = [0; RECORD_LEN];
        self.directory.records.read_exact_at(&mut bytes, geometry.record_offset(slot))?;
        Ok(ParsedRecord::parse(&bytes, slot, geometry.chunk_size))
    }

    /// Compares the whole digest: the index knows its prefix only.
    ///
    /// By `pread`: a record file truncated or failing under a mapping would kill the process.
    fn check_record(&self, slot: u32, digest: &Digest) -> RecordCheck {
        match self.read_record(slot) {
            Ok(ParsedRecord::Valid(record)) if record.digest == *digest => RecordCheck::Match,
            Ok(ParsedRecord::Valid(record))
                if record.digest.prefix_u64() == digest.prefix_u64() =>
            {
                RecordCheck::OtherDigest
            }
            Ok(_) => RecordCheck::Lost(Loss::Mismatch("record")),
            Err(error) => RecordCheck::Lost(Loss::Unreadable("record", error)),
        }
    }

    /// Hashes the content of a slot on which the caller has a guard.
    fn verify(&self, slot: u32, digest: &Digest) -> Result<(), Loss> {
        let geometry = self.directory.geometry;
        let epoch = self.truncation_epoch.load(Ordering::SeqCst);
        VERIFY_BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(geometry.chunk_size.bytes(), 0);
            self.directory
                .slots
                .read_exact_at(buffer, geometry.slot_offset(slot))
                .map_err(|error| Loss::Unreadable("content", error))?;
            if digest.matches(buffer) { Ok(()) } else { Err(Loss::Mismatch("content")) }
        })?;
        if self.states.verify(slot) {
            self.counters.verified.add(1);
            if self.truncation_epoch.load(Ordering::SeqCst) != epoch {
                self.states.demote(slot);
            }
        }
        Ok(())
    }

    /// Counts a loss. A disk that lost one slot is not trusted with the others: each is hashed
    /// again at its next read. That, and the log, one in a power of two: a disk may lose a million.
    fn note_loss(&self, slot: u32, loss: &Loss) {
        let path = self.directory.path.display();
        match loss {
            Loss::Mismatch(_) => self.counters.corrupt.add(1),
            Loss::Unreadable(..) => self.counters.read_errors.add(1),
        };
        let count = self.counters.losses.add(1);
        if !count.is_power_of_two() {
            return;
        }
        match loss {
            Loss::Mismatch(what) => {
                tracing::warn!(%path, slot, what, count, "slot is corrupt: freed");
            }
            Loss::Unreadable(what, error) => {
                tracing::warn!(%path, slot, what, count, %error, "cannot read slot: freed");
            }
        }
        self.states.demote_all();
    }
}
