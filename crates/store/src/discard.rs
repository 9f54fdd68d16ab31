//! Taking chunks out of the store that nobody may have any more, and overwriting what is left of them.

use std::io::IoSlice;

use acstor_types::Digest;

use crate::StoreError;
use crate::core::Core;
use crate::directory::failed;
use crate::index::Key;

/// Result of discarding chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Discarded {
    /// Chunks that are gone.
    pub dropped: usize,
    /// Chunks that stay for now: somebody is reading them. To be asked for again.
    pub busy: usize,
}

impl Core {
    /// Takes chunks out of the store, pinned or not. The content goes before the record: a chunk that is
    /// not in the store after a kill was overwritten.
    pub(crate) fn discard(&self, digests: &[Digest]) -> Result<Discarded, StoreError> {
        let zeros = vec![0; self.chunk_bytes()];
        let mut discarded = Discarded::default();
        for digest in digests {
            match self.withdraw(digest) {
                Withdrawn::Absent => {}
                Withdrawn::Busy => discarded.busy += 1,
                Withdrawn::Slot(slot) => {
                    let overwritten = self.overwrite(slot, &zeros);
                    self.give_back(slot, true);
                    overwritten?;
                    discarded.dropped += 1;
                }
            }
        }
        Ok(discarded)
    }

    /// Takes the slot of a chunk from it, unless somebody reads it.
    fn withdraw(&self, digest: &Digest) -> Withdrawn {
        let mut index = self.index.write();
        let Some(slot) = index.find(Key::of(digest)) else { return Withdrawn::Absent };
        if !self.states.withdraw(slot) {
            return Withdrawn::Busy;
        }
        index.remove(slot);
        drop(index);
        // Before the slot is free: whoever takes it then admits it anew.
        self.policy.remove(slot);
        Withdrawn::Slot(slot)
    }

    fn overwrite(&self, slot: u32, zeros: &[u8]) -> Result<(), StoreError> {
        let offset = self.directory.geometry.slot_offset(slot);
        let slots = &*self.directory.slots;
        slots.write_all_at(&mut [IoSlice::new(zeros)], offset).map_err(|error| {
            self.note_write_error(slot, &error);
            failed("overwrite", &self.directory.slots_path)(error)
        })?;
        self.writeback.note_write(slots, offset, zeros.len() as u64).map_err(|error| {
            self.note_writeback_error(&error);
            failed("write back", &self.directory.slots_path)(error)
        })
    }
}

/// Place of a chunk that is to go.
enum Withdrawn {
    Absent,
    Busy,
    /// Its slot, which is out of the index.
    Slot(u32),
}
