//! Working sets of boots: as this host saw them, as it was told them, and their coverage here.

use std::sync::Arc;

use acstor_types::DiskId;

use crate::ahead::boot_recorder::WorkingSet;
use crate::view::wanted_chunks::{Coverage, WantedChunks};
use crate::{ReadPath, ReadPathError, limits};

impl ReadPath {
    /// Which chunks guests of this host read while the disk booted, since the process started.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::TooManyChunks`].
    pub fn working_set(&self, disk_id: &DiskId) -> Result<WorkingSet, ReadPathError> {
        let disk = self.attached_disk(disk_id)?;
        disk.records.boots.working_set().ok_or_else(|| ReadPathError::TooManyChunks {
            disk: *disk_id,
            chunks: disk.header.chunk_count,
            max: limits::WORKING_SET_CHUNKS_MAX,
        })
    }

    /// Length of the bitmap of an attached disk, bytes.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub fn bitmap_len(&self, disk_id: &DiskId) -> Result<u64, ReadPathError> {
        let disk = self.attached_disk(disk_id)?;
        Ok(crate::ahead::boot_recorder::bitmap_len(disk.header.chunk_count))
    }

    /// Takes over which chunks boots of the disk read, as learnt by all hosts. Blocks where the manifest
    /// is not in memory.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`]; [`ReadPathError::WorkingSet`] when it is no bitmap of this
    /// disk; [`ReadPathError::TooManyChunks`]. What was set before stays.
    pub fn set_working_set(&self, disk_id: &DiskId, bitmap: &[u8]) -> Result<(), ReadPathError> {
        let disk = self.read_disk(disk_id)?;
        let working_set = WantedChunks::of_bitmap(&disk, bitmap)?;
        disk.records.working_set.store(Some(Arc::new(working_set)));
        Ok(())
    }

    /// How much of each working set that was set this host holds, in the order of ids. Touches no
    /// chunk.
    pub fn coverage(&self) -> Vec<(DiskId, Coverage)> {
        let store = &*self.sources.chunks.store;
        let mut found: Vec<(DiskId, Coverage)> = self
            .attached()
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
    pub(crate) fn working_set_totals(&self) -> (usize, usize) {
        let disks = self.attached();
        let sets = disks.iter().filter_map(|disk| disk.records.working_set.load_full());
        sets.fold((0, 0), |(disks, chunks), set| (disks + 1, chunks + set.indexes().len()))
    }
}
