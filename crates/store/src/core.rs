//! State that a store's handles and guards share, and the read side: finding, verifying,
//! condemning.
//!
//! Locks, in the order in which they may be taken together: `pins`, the policy's own, `index`.
//! `free` is taken alone. None is held during I/O.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use acstor_diskio::residency;
use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::directory::Directory;
use crate::eviction::{EvictionPolicy, TouchFilter};
use crate::format::{BLANK_RECORD, ParsedRecord, RECORD_LEN};
use crate::free_slots::FreeSlots;
use crate::index::{Index, Key};
use crate::page_sums::PageSums;
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
    /// Grows when the slot file was found truncated, or a write was lost on its way to the disk: what
    /// was verified before no longer is.
    pub doubt_epoch: AtomicU64,
    /// The length to which the slot file was found cut when a mapped answer failed last, bytes;
    /// `u64::MAX`: it is whole.
    pub cut_to: AtomicU64,
    pub repair: Mutex<()>,
    pub writeback: Writeback,
    pub page_sums: PageSums,
    pub counters: Counters,
}

/// Place of a digest's chunk, as far as that is known without I/O.
pub(crate) enum Place {
    /// Verified and in memory; the slot has a guard.
    Memory(u32),
    /// The bytes wanted: their pages are in memory and are what their checksums say.
    Copy(Bytes),
    /// In a slot of which this much must be read, and compared or hashed, before anybody may have it.
    Disk(Range<usize>),
    Absent,
}

/// Reason for which a slot is condemned, with the part of it that failed.
enum Loss {
    /// It is not what was published.
    Mismatch(&'static str),
    /// The kernel could not read it.
    Unreadable(&'static str, io::Error),
}

thread_local! {
    /// Buffer into which this thread reads content that it verifies.
    static VERIFY_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Core {
    /// Returns the slot of `digest` with a guard on it, and its phase; no I/O.
    pub(crate) fn find(&self, digest: &Digest) -> Option<(u32, Phase)> {
        let index = self.index.read();
        let slot = index.find(Key::of(digest))?;
        Some((slot, self.states.acquire(slot)?))
    }

    /// Returns where the chunk is of which `len` bytes from `start` on are wanted; no I/O.
    ///
    /// A verified slot whose pages have left memory is no longer verified: what comes back is what
    /// the disk has there, which may have rotted, or never have been written.
    pub(crate) fn place(&self, digest: &Digest, start: usize, len: usize) -> Place {
        let Some((slot, phase)) = self.find(digest) else { return Place::Absent };
        if phase == Phase::Verified {
            // In this order: what is read from the disk in between is verified no more.
            if self.is_mapped(slot, start, len) && self.states.phase(slot) == Phase::Verified {
                return Place::Memory(slot);
            }
            self.states.demote(slot);
        }
        let place = self.place_pages(slot, digest, start, len);
        self.release(slot);
        place
    }

    /// Returns whether a part of a slot is in memory and mapped. Maps the slot where it is all in
    /// memory, which costs more than all else about a hit: once, and not at each of them.
    fn is_mapped(&self, slot: u32, start: usize, len: usize) -> bool {
        if self.states.is_mapped(slot) {
            return self.is_resident(slot, start, len);
        }
        let is_mapped = self.is_resident(slot, 0, self.chunk_bytes())
            && residency::populate(self.mapped(slot), self.chunk_bytes()).is_ok();
        if is_mapped {
            self.states.note_mapped(slot);
        }
        is_mapped
    }

    /// Returns the address of a slot in the mapping.
    pub(crate) fn mapped(&self, slot: u32) -> *const u8 {
        let offset = self.directory.geometry.slot_offset(slot) as usize;
        self.directory.mapping.as_ptr().wrapping_add(offset)
    }

    pub(crate) fn is_resident(&self, slot: u32, start: usize, len: usize) -> bool {
        let offset = self.directory.geometry.slot_offset(slot) + start as u64;
        self.directory.slots.is_resident(self.mapped(slot).wrapping_add(start), offset, len)
    }

    /// Returns the slot of `digest` with a guard on it and its content verified.
    pub(crate) fn find_verified(&self, digest: &Digest) -> Option<u32> {
        if let Place::Memory(slot) = self.place(digest, 0, self.chunk_bytes()) {
            return Some(slot);
        }
        let (slot, _) = self.find(digest)?;
        let verified = VERIFY_BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(self.chunk_bytes(), 0);
            self.read_verified(slot, digest, buffer)
        });
        if verified.is_err() {
            self.release(slot);
            return None;
        }
        Some(slot)
    }

    /// Returns whether memory has a part of a slot on which the caller has a guard, as it was
    /// published.
    pub(crate) fn is_at_hand(&self, slot: u32, start: usize, len: usize) -> bool {
        // In this order: what is read from the disk in between is verified no more.
        self.is_resident(slot, start, len) && self.states.phase(slot) == Phase::Verified
    }

    /// Counts a use of a slot on which the caller has a guard.
    pub(crate) fn touch(&self, slot: u32) {
        if self.touch_filter.is_new_use(slot) {
            self.policy.touch(slot);
        }
        self.counters.hits.add(1);
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.directory.geometry.chunk_size.bytes()
    }

    /// Drops a guard.
    pub(crate) fn release(&self, slot: u32) {
        if let Some(blanked) = self.states.release(slot) {
            self.free.lock().give(slot, !blanked);
        }
    }

    /// Reads a part of the chunk of a slot on which the caller has a guard. What is not in memory is
    /// hashed first; a failure condemns the slot.
    pub(crate) fn read_part(
        &self,
        slot: u32,
        digest: &Digest,
        start: usize,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if self.try_read(slot, start, buffer) {
            return Ok(());
        }
        if buffer.len() == self.chunk_bytes() {
            return self.read_verified(slot, digest, buffer);
        }
        VERIFY_BUFFER.with_borrow_mut(|chunk| {
            chunk.resize(self.chunk_bytes(), 0);
            self.read_verified(slot, digest, chunk)?;
            buffer.copy_from_slice(&chunk[start..start + buffer.len()]);
            Ok(())
        })
    }

    /// Reads a part of the chunk of a slot on which the caller has a guard, if it is verified and in
    /// memory.
    pub(crate) fn try_read(&self, slot: u32, start: usize, buffer: &mut [u8]) -> bool {
        let offset = self.directory.geometry.slot_offset(slot) + start as u64;
        if self.states.phase(slot) != Phase::Verified {
            return false;
        }
        // Looked at afterwards again: a page may leave memory and come back from the disk in between.
        let is_read = self.is_resident(slot, start, buffer.len())
            && self.directory.slots.try_read_at(buffer, offset)
            && self.states.phase(slot) == Phase::Verified;
        if !is_read {
            self.states.demote(slot);
        }
        is_read
    }

    /// Reads the chunk of a slot on which the caller has a guard, and hashes it; a failure condemns
    /// the slot.
    pub(crate) fn read_verified(
        &self,
        slot: u32,
        digest: &Digest,
        content: &mut [u8],
    ) -> io::Result<()> {
        self.verify(slot, digest, content).map_err(|loss| {
            let kind = match &loss {
                Loss::Mismatch(_) => io::ErrorKind::InvalidData,
                Loss::Unreadable(_, error) => error.kind(),
            };
            self.condemn(slot, &loss);
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
            return Vec::new(); // the chunks can still be read, but not be named
        }
        let (records, _) = bytes.as_chunks::<RECORD_LEN>();
        let index = self.index.read();
        (first..)
            .zip(records)
            .filter_map(|(slot, bytes)| {
                match ParsedRecord::parse(bytes, slot, geometry.chunk_size) {
                    ParsedRecord::Valid(record) if index.holds(Key::of(&record.digest), slot) => {
                        Some(record.digest)
                    }
                    _ => None,
                }
            })
            .collect()
    }

    /// Fills `content` with the chunk of a slot on which the caller has a guard, and hashes it.
    fn verify(&self, slot: u32, digest: &Digest, content: &mut [u8]) -> Result<(), Loss> {
        let epoch = self.doubt_epoch.load(Ordering::SeqCst);
        self.directory
            .slots
            .read_exact_at(content, self.directory.geometry.slot_offset(slot))
            .map_err(|error| Loss::Unreadable("content", error))?;
        if !digest.matches(content) {
            return Err(Loss::Mismatch("content"));
        }
        self.page_sums.note(slot, digest, content);
        if self.states.verify(slot) {
            self.counters.verified.add(1);
            if self.doubt_epoch.load(Ordering::SeqCst) != epoch {
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

    /// Ends the trust in everything verified so far.
    pub(crate) fn doubt_all(&self) {
        self.doubt_epoch.fetch_add(1, Ordering::SeqCst);
        self.states.demote_all();
    }

    /// Notes that an answer could not be sent which mapped bytes of a slot are a part of: the slot is
    /// hashed before it is used again. Where the file was cut so is every other one, once for each
    /// length: what is hashed after that is there.
    pub(crate) fn note_fault(&self, slot: u32) {
        self.states.demote(slot);
        let expected = self.directory.geometry.slots_len();
        let len = self.directory.slots.size_bytes().unwrap_or(0);
        if len >= expected {
            self.note_whole();
        } else if self.cut_to.swap(len, Ordering::SeqCst) != len {
            let path = self.directory.slots_path.display();
            tracing::warn!(%path, slot, len, expected, "the file was cut: every chunk is hashed again");
            self.doubt_all();
        }
    }

    /// Notes that the slot file is as long as it has to be.
    pub(crate) fn note_whole(&self) {
        self.cut_to.store(u64::MAX, Ordering::SeqCst);
    }

    /// Notes that a write which the kernel had taken did not reach the disk. It does not say which:
    /// everything is hashed before it is served again.
    pub(crate) fn note_writeback_error(&self, error: &io::Error) {
        let count = self.counters.writeback_errors.add(1);
        if count.is_power_of_two() {
            let path = self.directory.slots_path.display();
            tracing::error!(
                %path, count, %error,
                "the disk refused chunks that were written: every chunk is hashed again"
            );
        }
        self.doubt_all();
    }
}
