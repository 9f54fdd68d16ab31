//! The chunks of a preload for those who send them to others.

use std::sync::Arc;

use acstor_types::DiskId;
use bytes::Bytes;

use super::room::wanted;
use super::{PreloadWhat, Preloads};
use crate::ReadPathError;
use crate::fetch::flight::Priority;

impl Preloads {
    /// Returns whether a preload of this part of a disk is possible; from memory.
    pub(crate) fn can_bring(&self, disk_id: &DiskId, what: PreloadWhat) -> bool {
        let Some(disk) = self.attachments.get(disk_id) else { return false };
        match what {
            PreloadWhat::WorkingSet => disk.records.working_set.load().is_some(),
            PreloadWhat::Full => true,
        }
    }

    /// Returns the indexes of the chunks that a preload would bring, ascending. Blocks where the manifest is not
    /// in memory.
    ///
    /// # Errors
    /// [`ReadPathError`].
    pub(crate) fn chunks(
        &self,
        disk_id: &DiskId,
        what: PreloadWhat,
    ) -> Result<Vec<u64>, ReadPathError> {
        let disk = self.attachments.read(disk_id)?;
        let wanted = wanted(&disk, what)?;
        Ok(wanted.indexes().iter().copied().map(u64::from).collect())
    }

    /// Brings a chunk as a preload does, and does not keep it; `None` where it cannot be had in time.
    pub(crate) async fn chunk(self: Arc<Self>, disk_id: DiskId, index: u64) -> Option<Bytes> {
        let sources = &self.sources;
        let deadline = sources.clock.now() + sources.config.read_deadline;
        let attachment = self.attachments.get(&disk_id)?;
        let view =
            sources.manifest_loads.load(sources, &attachment, Priority::Preload).await.ok()?;
        let indexes = std::iter::once(index);
        let wants = sources.wants(&view.disk, indexes, Priority::Preload, deadline).await.ok()?;
        let want = wants.into_iter().next().flatten()?;
        let flight = sources.obtain(&view.disk, &want, Priority::Preload, deadline);
        Some(flight.wait(deadline).await.ok()?.bytes)
    }
}
