//! Manifests below volumes: attached once in the read path, whoever uses them.
//!
//! A disk may be an image of this host and the base of volumes at the same time; it leaves the
//! read path with the last of them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use acstor_readpath::{
    BlockView, DiskManifest, ManifestFault, ManifestFile, ManifestSource, ManifestState,
};
use acstor_types::{Digest, DiskId, ErrorKind};

use super::images::{open_manifest, open_to_mend};
use super::volumes::OwnedVolume;
use super::{Host, HostError, Parts};

/// One use of a disk as the base of a volume; given back by [`Parts::detach_base`].
pub(super) struct Base {
    pub(super) manifest: DiskManifest,
    pub(super) view: Arc<dyn BlockView>,
}

/// Returns the manifest, unless it has another name: a file that is whole may be that of another disk.
fn named(manifest: DiskManifest, name: Digest) -> Result<DiskManifest, ManifestFault> {
    let found = manifest.digest();
    if found == name {
        return Ok(manifest);
    }
    let message = format!("it is manifest {found} and not {name}");
    Err(ManifestFault::new(ErrorKind::Corrupt, message))
}

/// Name of the manifest in the file at `path`, of whichever format.
///
/// # Errors
/// [`HostError::Base`] when it is none, [`HostError::File`].
pub fn manifest_name(path: &Path) -> Result<Digest, HostError> {
    let manifest = open_levels(path)?.read();
    let manifest = manifest.map_err(|fault| HostError::Base { path: path.to_owned(), fault })?;
    Ok(manifest.digest())
}

/// Opens the manifest in the file at `path`, and those that it is a delta of, which lie beside it under
/// their names: `<digest>.manifest`.
fn open_levels(path: &Path) -> Result<ManifestFile, HostError> {
    let refused = |fault| HostError::Base { path: path.to_owned(), fault };
    let mut manifest = open_manifest(path)?;
    while let Some(base) = manifest.next_base().map_err(refused)? {
        let below = open_to_mend(&path.with_file_name(format!("{base}.manifest")));
        let below = below.and_then(|file| manifest.push_base(file));
        below.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::NotFound => ErrorKind::Corrupt,
                _ => ErrorKind::Unavailable,
            };
            let message = format!("manifest {base}, which it is a delta of: {error}");
            refused(ManifestFault::new(kind, message))
        })?;
    }
    Ok(manifest)
}

impl Host {
    /// Attaches the manifest of that name, in the file at `path`, for one volume more.
    ///
    /// # Errors
    /// [`HostError::Base`] when the file is not that manifest, or other content is attached under its id.
    pub(super) fn attach_base(&self, path: &Path, name: Digest) -> Result<Base, HostError> {
        let manifest = open_levels(path)?.read().and_then(|manifest| named(manifest, name));
        let manifest =
            manifest.map_err(|fault| HostError::Base { path: path.to_owned(), fault })?;
        let disk = manifest.shape().disk_id;
        let _one_at_a_time = self.parts.disk_changes.lock();
        let view = self.parts.read_path.attach(manifest.clone())?;
        *self.parts.bases.lock().entry(disk).or_insert(0) += 1;
        self.inherit_from_image(&manifest);
        Ok(Base { manifest, view })
    }

    /// Returns whether a page of the manifest below a volume was found damaged in its file.
    pub(super) fn is_base_damaged(&self, owned: &OwnedVolume) -> bool {
        let disk = owned.base.lock().as_ref().map(|base| base.shape().disk_id);
        let is_damaged = |disk: DiskId| {
            matches!(self.parts.read_path.manifest_state(&disk), Ok(ManifestState::Damaged))
        };
        owned.is_base_damaged.load(Ordering::Acquire) || disk.is_some_and(is_damaged)
    }
}

impl Parts {
    /// Gives one use of a base back.
    pub(super) fn detach_base(&self, disk: DiskId) {
        let _one_at_a_time = self.disk_changes.lock();
        let images = self.images.lock();
        let mut bases = self.bases.lock();
        let Some(uses) = bases.get_mut(&disk) else { return };
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        bases.remove(&disk);
        if !images.contains_key(&disk)
            && let Err(error) = self.read_path.detach(&disk)
        {
            tracing::warn!(%error, %disk, "the base of a volume was not attached");
        }
    }
}
