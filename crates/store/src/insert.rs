//! The write side: taking slots, writing them in runs, publishing.
//!
//! The order per slot, which makes a crash at any instruction harmless: the index entry goes
//! first, then the old record is blanked, then the data is written, then the new record, then the
//! slot enters the index. There is no fsync: after a power cut a record may have reached the disk
//! before its data, and the first read of the slot finds that out.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use acstor_types::Digest;

use crate::core::Core;
use crate::directory::failed;
use crate::format::{BLANK_RECORD, RECORD_LEN, Record};
use crate::free_slots::Taken;
use crate::index::Key;
use crate::slot_state::Phase;
use crate::{Inserted, StoreError, limits};

/// Slots taken for inserts, in ascending order; dropping it releases those not published.
struct Reservation<'a> {
    core: &'a Core,
    slots: Vec<Taken>,
    /// Count of the slots that are settled: published, or released.
    settled: usize,
    /// Count of the slots that were written to, or to which a write was tried.
    attempted: usize,
}

/// Result of publishing a slot that was filled.
enum Published {
    Yes,
    /// Another insert published a chunk with this prefix first, in this slot.
    Beaten,
}

impl Core {
    /// Stores up to [`limits::BATCH_BYTES_MAX`] of chunks; one outcome per chunk, in order.
    pub(crate) fn insert_batch(
        &self,
        chunks: &[(&Digest, &[u8])],
    ) -> Result<Vec<Inserted>, StoreError> {
        self.check_contents(chunks)?;
        let mut outcomes = vec![Inserted::Refused; chunks.len()];
        let mut absent = Vec::with_capacity(chunks.len());
        for (position, (digest, _)) in chunks.iter().enumerate() {
            if self.contains(digest) {
                outcomes[position] = Inserted::Present;
                self.counters.present.add(1);
            } else {
                absent.push(position);
            }
        }
        if absent.is_empty() {
            return Ok(outcomes);
        }
        let mut reservation = self.reserve(absent.len());
        let epoch = self.restore_length()?;
        // Chunks get slots in ascending order: neighbours are written together.
        while let Some(run) = reservation.next_run() {
            let members = &absent[reservation.settled..run.len() + reservation.settled];
            self.fill_run(&run, members, chunks)?;
            for (taken, position) in run.iter().zip(members) {
                let (digest, content) = chunks[*position];
                self.page_sums.note(taken.slot, digest, content);
                outcomes[*position] = self.settle(taken, digest, epoch);
                reservation.settled += 1;
            }
        }
        let refused = absent.len() - reservation.slots.len();
        self.counters.refused.add(refused as u64);
        Ok(outcomes)
    }

    /// Returns whether the store has the chunk, without counting it as a use.
    pub(crate) fn contains(&self, digest: &Digest) -> bool {
        self.find(digest).is_some_and(|(slot, _)| {
            self.release(slot);
            true
        })
    }

    fn check_contents(&self, chunks: &[(&Digest, &[u8])]) -> Result<(), StoreError> {
        let expected = self.directory.geometry.chunk_size.bytes();
        for (digest, content) in chunks {
            if content.len() != expected {
                return Err(StoreError::WrongSize { given: content.len(), expected });
            }
            if !digest.matches(content) {
                return Err(StoreError::WrongDigest(**digest));
            }
        }
        Ok(())
    }

    /// Takes up to `count` slots: free ones, then those of chunks that leave, then suspects.
    fn reserve(&self, count: usize) -> Reservation<'_> {
        let mut slots = Vec::with_capacity(count);
        {
            let mut free = self.free.lock();
            slots.extend(std::iter::from_fn(|| free.take()).take(count));
        }
        while slots.len() < count
            && let Some(slot) = self.policy.evict(&mut |slot| self.reclaim(slot))
        {
            self.counters.evicted.add(1);
            slots.push(Taken { slot, is_stale: true, is_suspect: false });
        }
        if slots.len() < count {
            let mut free = self.free.lock();
            let missing = count - slots.len();
            slots.extend(std::iter::from_fn(|| free.take_any()).take(missing));
        }
        for taken in &slots {
            self.states.take(taken.slot); // those that were reclaimed are Filling already
        }
        slots.sort_unstable_by_key(|taken| taken.slot);
        Reservation { core: self, slots, settled: 0, attempted: 0 }
    }

    /// Takes a slot from its chunk unless it is in use; returns the chunk's digest prefix.
    fn reclaim(&self, slot: u32) -> Option<u64> {
        let mut index = self.index.write();
        if !self.states.reclaim(slot) {
            return None;
        }
        let key = index.key_of(slot);
        index.remove(slot);
        Some(key.prefix)
    }

    /// Finds out whether the slot file was cut short under us, and if so makes it whole before a
    /// write behind its end would turn lost chunks into zeros that look published.
    fn restore_length(&self) -> Result<u64, StoreError> {
        let (slots, path) = (&self.directory.slots, &self.directory.slots_path);
        let expected = self.directory.geometry.slots_len();
        let is_short = || slots.size_bytes().map(|size| size < expected);
        if is_short().map_err(failed("examine", path))? {
            let _one_at_a_time = self.repair.lock();
            if is_short().map_err(failed("examine", path))? {
                self.counters.truncations.add(1);
                tracing::error!(path = %path.display(), "slot file was truncated: lengthened again");
                self.doubt_all();
                slots.preallocate(expected).map_err(|source| StoreError::Preallocate {
                    path: path.clone(),
                    size_bytes: expected,
                    source,
                })?;
                self.note_whole();
            }
        }
        Ok(self.doubt_epoch.load(Ordering::SeqCst))
    }

    /// Writes the data, then the records of a run of neighbouring slots.
    fn fill_run(
        &self,
        run: &[Taken],
        members: &[usize],
        chunks: &[(&Digest, &[u8])],
    ) -> Result<(), StoreError> {
        let geometry = self.directory.geometry;
        let first = run[0].slot;
        let records_failed = || failed("write", &self.directory.records_path);
        if run.iter().any(|taken| taken.is_stale) {
            let mut blank = vec![IoSlice::new(&BLANK_RECORD); run.len()];
            self.write_records(first, &mut blank).map_err(records_failed())?;
        }
        let mut data: Vec<_> =
            members.iter().map(|position| IoSlice::new(chunks[*position].1)).collect();
        let offset = geometry.slot_offset(first);
        self.directory.slots.write_all_at(&mut data, offset).map_err(|error| {
            self.note_write_error(first, &error);
            failed("write", &self.directory.slots_path)(error)
        })?;
        let len = (run.len() * geometry.chunk_size.bytes()) as u64;
        self.writeback.note_write(&*self.directory.slots, offset, len).map_err(|error| {
            self.note_writeback_error(&error);
            failed("write back", &self.directory.slots_path)(error)
        })?;

        let mut records = Vec::with_capacity(run.len() * RECORD_LEN);
        for (taken, position) in run.iter().zip(members) {
            let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
            let record = Record { digest: *chunks[*position].0, seq, slot: taken.slot };
            records.extend_from_slice(&record.encode(geometry.chunk_size));
        }
        self.write_records(first, &mut [IoSlice::new(&records)]).map_err(records_failed())
    }

    /// Publishes a slot, or gives it back when another insert of the chunk was faster.
    fn settle(&self, taken: &Taken, digest: &Digest, epoch: u64) -> Inserted {
        match self.publish(taken.slot, digest, epoch) {
            Published::Yes => {
                self.counters.inserted.add(1);
                self.free.lock().note_insert(taken);
                Inserted::New
            }
            Published::Beaten => {
                self.give_back(taken.slot, true);
                // The winner may be another digest with the same prefix: then it is not there.
                if self.contains(digest) {
                    self.counters.present.add(1);
                    Inserted::Present
                } else {
                    self.counters.refused.add(1);
                    Inserted::Refused
                }
            }
        }
    }

    /// Frees a slot that was taken; blanks its record first if that may be needed.
    pub(crate) fn give_back(&self, slot: u32, is_stale: bool) {
        let is_stale =
            is_stale && self.write_records(slot, &mut [IoSlice::new(&BLANK_RECORD)]).is_err();
        self.states.abandon(slot);
        self.free.lock().give(slot, is_stale);
    }

    fn publish(&self, slot: u32, digest: &Digest, epoch: u64) -> Published {
        let key = Key::of(digest);
        let pins = self.pins.lock();
        let is_pinned = pins.contains(digest);
        if !is_pinned {
            // Before the slot can be found, so that whoever condemns it finds it in the policy.
            self.policy.admit(slot, key.prefix);
        }
        let mut index = self.index.write();
        if index.insert(key, slot).is_err() {
            drop(index);
            self.policy.remove(slot);
            return Published::Beaten;
        }
        self.states.publish(slot, Phase::Verified, is_pinned);
        drop(index);
        drop(pins);
        if self.doubt_epoch.load(Ordering::SeqCst) != epoch {
            self.states.demote(slot);
        }
        Published::Yes
    }

    /// Writes back what was inserted and looks how it went.
    pub(crate) fn finish_writeback(&self) -> Result<(), StoreError> {
        self.writeback.finish(&*self.directory.slots).map_err(|error| {
            self.note_writeback_error(&error);
            failed("write back", &self.directory.slots_path)(error)
        })
    }

    pub(crate) fn note_write_error(&self, slot: u32, error: &io::Error) {
        let count = self.counters.write_errors.add(1);
        if count.is_power_of_two() {
            let path = self.directory.slots_path.display();
            tracing::warn!(%path, slot, count, %error, "cannot write slot");
        }
    }
}

impl Reservation<'_> {
    /// Returns the next slots, as many as are neighbours, to be written at once.
    fn next_run(&mut self) -> Option<Vec<Taken>> {
        let slots = &self.slots[self.settled..];
        let first = slots.first()?.slot;
        let run: Vec<_> = slots
            .iter()
            .zip(first..)
            .take_while(|(taken, next)| taken.slot == *next)
            .map(|(taken, _)| *taken)
            .take(limits::WRITE_PARTS_MAX)
            .collect();
        self.attempted = self.settled + run.len();
        Some(run)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        for (position, taken) in self.slots.iter().enumerate().skip(self.settled) {
            if position < self.attempted {
                // The write failed: its record may be anything, and so may the next write.
                self.core.states.abandon(taken.slot);
                self.core.free.lock().give(taken.slot, true);
            } else {
                self.core.give_back(taken.slot, taken.is_stale);
            }
        }
    }
}
