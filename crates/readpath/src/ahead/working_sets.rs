//! Working sets of boots: as this host saw them, as it was told them, and their coverage here.

use std::sync::Arc;

use acstor_types::DiskId;

use crate::ahead::boot_recorder::WorkingSet;
use crate::ahead::chunk_spans;
use crate::view::attachments::Attachments;
use crate::view::wanted_chunks::{Coverage, WantedChunks};
use crate::{LocalStore, ReadPathError, limits};

/// The working sets of the attached disks.
pub(crate) struct WorkingSets {
    attachments: Arc<Attachments>,
    store: Arc<dyn LocalStore>,
}

impl WorkingSets {
    pub(crate) fn new(attachments: Arc<Attachments>, store: Arc<dyn LocalStore>) -> WorkingSets {
        WorkingSets { attachments, store }
    }

    /// The chunks that guests of this host read while the disk booted, since the process started.
    pub(crate) fn recorded(&self, disk_id: &DiskId) -> Result<WorkingSet, ReadPathError> {
        let disk = self.attachments.find(disk_id)?;
        disk.records.boots.working_set().ok_or_else(|| ReadPathError::TooManyChunks {
            disk: *disk_id,
            chunks: disk.shape.chunk_count,
            max: limits::WORKING_SET_CHUNKS_MAX,
        })
    }

    /// Greatest length of a working set of a disk, bytes.
    pub(crate) fn len_max(&self, disk_id: &DiskId) -> Result<u64, ReadPathError> {
        Ok(chunk_spans::len_max(self.attachments.find(disk_id)?.shape.chunk_count))
    }

    /// Takes over the chunks that boots of the disk read, as learnt by all hosts. Blocks where the manifest
    /// is not in memory.
    pub(crate) fn set(&self, disk_id: &DiskId, bitmap: &[u8]) -> Result<(), ReadPathError> {
        let disk = self.attachments.read(disk_id)?;
        let working_set = WantedChunks::of_set(&disk, bitmap)?;
        disk.records.working_set.store(Some(Arc::new(working_set)));
        Ok(())
    }

    /// The part of each working set that was set that this host holds, in the order of ids. Touches no
    /// chunk.
    pub(crate) fn coverage(&self) -> Vec<(DiskId, Coverage)> {
        let store = &*self.store;
        let mut found: Vec<(DiskId, Coverage)> = self
            .attachments
            .all()
            .iter()
            .filter_map(|disk| {
                let working_set = disk.records.working_set.load_full()?;
                Some((disk.id(), working_set.coverage(store)))
            })
            .collect();
        found.sort_by_key(|(disk, _)| *disk);
        found
    }

    /// Number of disks with a working set, and the chunks of all of them.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let disks = self.attachments.all();
        let sets = disks.iter().filter_map(|disk| disk.records.working_set.load_full());
        sets.fold((0, 0), |(disks, chunks), set| (disks + 1, chunks + set.indexes().len()))
    }
}
