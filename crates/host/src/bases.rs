//! Manifests below volumes: attached once in the read path, whoever uses them.
//!
//! A disk may be an image of this host and the base of volumes at the same time; it leaves the
//! read path with the last of them.

use std::path::Path;
use std::sync::Arc;

use acstor_readpath::{BlockView, DiskManifest, ManifestSource};
use acstor_types::DiskId;

use super::images::open_manifest;
use super::{Host, HostError};

/// One use of a disk as the base of a volume; given back by [`Host::detach_base`].
pub(super) struct Base {
    pub(super) manifest: DiskManifest,
    pub(super) view: Arc<dyn BlockView>,
}

impl Host {
    /// Attaches the manifest in the file at `path` for one volume more.
    ///
    /// # Errors
    /// [`HostError`] when the manifest is invalid or other content is attached under its id.
    pub(super) fn attach_base(&self, path: &Path) -> Result<Base, HostError> {
        let manifest = open_manifest(path)?.read();
        let manifest =
            manifest.map_err(|fault| HostError::ManifestFault { path: path.to_owned(), fault })?;
        let disk = manifest.shape().disk_id;
        let _one_at_a_time = self.parts.disk_changes.lock();
        let view = self.parts.read_path.attach(manifest.clone())?;
        *self.parts.bases.lock().entry(disk).or_insert(0) += 1;
        Ok(Base { manifest, view })
    }

    /// Gives one use of a base back.
    pub(super) fn detach_base(&self, disk: DiskId) {
        let _one_at_a_time = self.parts.disk_changes.lock();
        let images = self.parts.images.lock();
        let mut bases = self.parts.bases.lock();
        let Some(uses) = bases.get_mut(&disk) else { return };
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        bases.remove(&disk);
        if !images.contains_key(&disk)
            && let Err(error) = self.parts.read_path.detach(&disk)
        {
            tracing::warn!(%error, %disk, "the base of a volume was not attached");
        }
    }
}
