//! Survey of a host before a preload: the chunks that it has, and the room for the others.

use std::collections::HashSet;
use std::sync::Arc;

use acstor_types::{Digest, DiskId};

use super::failure::PreloadFailure;
use super::{Job, PreloadEstimate, PreloadWhat};
use crate::keeping::pin_table::{PinTable, Pinned};
use crate::view::disk::Disk;
use crate::view::wanted_chunks::WantedChunks;
use crate::{LocalError, LocalStore, ReadPathError};

/// Result of a survey of the chunk store.
pub(crate) struct Survey {
    pub(crate) estimate: PreloadEstimate,
    /// Bytes that a preload which pins would pin anew.
    pub(crate) unpinned_bytes: u64,
    /// Indexes of the chunks that are not there, ascending.
    pub(crate) missing: Vec<u32>,
    present: Vec<Digest>,
}

/// The chunks that a preload wants now.
///
/// # Errors
/// [`ReadPathError::NoWorkingSet`]; as [`WantedChunks::all`].
pub(crate) fn wanted(disk: &Disk, what: PreloadWhat) -> Result<Arc<WantedChunks>, ReadPathError> {
    match what {
        PreloadWhat::WorkingSet => {
            disk.records.working_set.load_full().ok_or(ReadPathError::NoWorkingSet(disk.id()))
        }
        PreloadWhat::Full => Ok(Arc::new(WantedChunks::all(disk)?)),
    }
}

/// The room for preloads in the chunk store.
pub(crate) struct Room {
    store: Arc<dyn LocalStore>,
    /// Pins of heads and tails.
    pins: Arc<PinTable>,
    /// Pins of preloads, which a pin of head and tail leaves alone.
    preload_pins: Arc<PinTable>,
}

impl Room {
    pub(crate) fn new(
        store: Arc<dyn LocalStore>,
        pins: Arc<PinTable>,
        preload_pins: Arc<PinTable>,
    ) -> Room {
        Room { store, pins, preload_pins }
    }

    /// Chunks that are pinned for a disk, by a preload too.
    pub(crate) fn pinned_chunks(&self, disk_id: &DiskId) -> usize {
        self.pins.count_with(&self.preload_pins, disk_id)
    }

    /// Pins a digest for the preload of a disk; `None` where the preload has pinned it already.
    pub(super) fn try_pin(
        &self,
        disk_id: &DiskId,
        digest: &Digest,
    ) -> Result<Option<Pinned>, LocalError> {
        self.preload_pins.try_pin(disk_id, digest)
    }

    /// Takes the pins of a disk's preload back.
    pub(super) fn unpin(&self, disk_id: &DiskId) {
        self.preload_pins.unpin_all(disk_id);
    }

    /// Looks at every wanted chunk: not for a thread that must not wait.
    ///
    /// # Errors
    /// [`ReadPathError::Manifest`].
    pub(super) fn survey(
        &self,
        disk: &Disk,
        wanted: &WantedChunks,
    ) -> Result<Survey, ReadPathError> {
        let store = &self.store;
        let pinned = self.pinned_digests(&disk.id());
        let (mut missing, mut present) = (Vec::new(), Vec::new());
        let (mut unpinned, mut evictable_wanted) = (0_u64, 0_u64);
        for index in wanted.indexes() {
            let digest = disk.digest(u64::from(*index)).map_err(|fault| disk.refused(fault))?;
            let Some(digest) = digest else { continue };
            let is_present = store.contains(&digest);
            if !pinned.contains(&digest) {
                unpinned += 1;
                evictable_wanted += u64::from(is_present);
            }
            if is_present {
                present.push(digest);
            } else {
                missing.push(*index);
            }
        }
        let chunk = store.chunk_size().bytes() as u64;
        let usage = store.usage();
        let estimate = PreloadEstimate {
            total_bytes: (missing.len() + present.len()) as u64 * chunk,
            missing_bytes: missing.len() as u64 * chunk,
            free_bytes: usage.capacity_bytes.saturating_sub(usage.used_bytes),
            // Pins whose chunks are not there yet are counted too: they will need their slots.
            evictable_bytes: usage
                .used_bytes
                .saturating_sub(usage.pinned_bytes)
                .saturating_sub(evictable_wanted * chunk),
            pinnable_bytes: usage.pinned_max_bytes.saturating_sub(usage.pinned_bytes),
        };
        Ok(Survey { estimate, unpinned_bytes: unpinned * chunk, missing, present })
    }

    /// Looks what is missing, checks that there is room for it, and sees to it that what is there
    /// stays. Blocks.
    pub(super) fn prepare(&self, disk: &Disk, job: &Job) -> Result<Survey, PreloadFailure> {
        let request = job.request();
        if !request.pin && !job.is_hint() {
            self.unpin(&job.disk);
        }
        let survey = self.survey(disk, &*wanted(disk, request.what)?)?;
        let PreloadEstimate { missing_bytes: missing, free_bytes: free, .. } = survey.estimate;
        let evictable = survey.estimate.evictable_bytes;
        let room = free + evictable;
        job.surveyed(survey.estimate.total_bytes, missing);
        if missing > room {
            return Err(PreloadFailure::NoRoom { missing, room, free, evictable });
        }
        let (needed, pinnable) = (survey.unpinned_bytes, survey.estimate.pinnable_bytes);
        if request.pin && needed > pinnable {
            return Err(PreloadFailure::NoPins { needed, pinnable });
        }
        for digest in &survey.present {
            if !request.pin {
                self.store.favor(digest);
            } else if let Some(pin) = self.try_pin(&job.disk, digest)? {
                pin.keep();
            }
        }
        Ok(survey)
    }

    fn pinned_digests(&self, disk_id: &DiskId) -> HashSet<Digest> {
        let mut pinned = HashSet::new();
        self.pins.add_to(&mut pinned, disk_id);
        self.preload_pins.add_to(&mut pinned, disk_id);
        pinned
    }
}
