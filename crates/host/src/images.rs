//! Images that this host offers, and those of them that are pinned.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use acstor_fuse::Detached;
use acstor_readpath::limits::MANIFEST_IDLE;
use acstor_readpath::{DiskShape, ManifestFile, ManifestSource, ManifestState};
use acstor_types::{Digest, DiskId};
use serde_json::{Value, json};

use super::{Host, HostError, Parts};

/// Time between two looks for manifests that nobody needs: a sixth of what they may be idle.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// An attached image: what is told of it without its manifest.
pub(super) struct Attached {
    shape: DiskShape,
    digest: Digest,
}

impl Attached {
    /// Returns whether this is the name of its manifest.
    pub(super) fn has_manifest(&self, name: &Digest) -> bool {
        self.digest == *name
    }
}

/// Result of detaching an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// Nobody has it open; it is gone.
    Removed,
    /// It is open; reads go on.
    Hidden,
}

fn file_name(disk: DiskId) -> String {
    format!("{disk}.raw")
}

impl Host {
    /// Offers the image that the manifest file at `path` describes; idempotent. The manifest is read when
    /// it is needed, from the same file whatever its name is by then.
    ///
    /// With the digest of the manifest only its header is read now: what is wrong with the rest of it
    /// shows when it is needed. Without, all of it is read and checked.
    ///
    /// # Errors
    /// [`HostError`] when the manifest is invalid or other content is attached under its id.
    pub fn attach_image(
        &self,
        path: &Path,
        hidden: bool,
        digest: Option<Digest>,
    ) -> Result<Value, HostError> {
        let file = open_manifest(path)?;
        let refused = |fault| HostError::ManifestFault { path: path.to_owned(), fault };
        let (shape, digest) = match digest {
            Some(digest) => (file.shape().map_err(refused)?, digest),
            None => {
                let manifest = file.read().map_err(refused)?;
                (manifest.shape(), manifest.digest())
            }
        };
        let disk = shape.disk_id;
        let name = file_name(disk);
        let _one_at_a_time = self.parts.image_changes.lock();
        let _disks = self.parts.disk_changes.lock();
        let is_new = !self.is_attached(disk);
        let view = self.parts.read_path.offer(shape, digest, Arc::new(file))?;
        let is_listed = self.is_listed(disk);
        let outcome = match (hidden, is_listed) {
            (_, Some(true)) | (true, Some(false)) => Ok(()),
            (true, None) => self.parts.files.attach_hidden(&name, disk, view),
            (false, _) => self.parts.files.attach(&name, disk, view),
        };
        if let Err(error) = outcome {
            if is_new && !self.parts.bases.lock().contains_key(&disk) {
                // Nothing was offered; the read path must not keep what nobody can reach.
                let _ = self.parts.read_path.detach(&disk);
            }
            return Err(error.into());
        }
        let attached = Attached { shape, digest };
        let description = self.describe(disk, &attached);
        self.parts.images.lock().insert(disk, attached);
        // Also where the file was listed all the time: its manifest may be readable only now.
        self.parts.files.wake_waiting();
        Ok(description)
    }

    /// Withdraws an image; open handles go on working.
    ///
    /// # Errors
    /// [`HostError::NotAttached`].
    pub fn detach_image(&self, disk: DiskId) -> Result<Withdrawal, HostError> {
        // The kernel may take as long as a read-ahead to let go: nobody who only looks waits for it.
        let _one_at_a_time = self.parts.image_changes.lock();
        if !self.is_attached(disk) {
            return Err(HostError::NotAttached(disk));
        }
        if self.is_listed(disk) == Some(true) {
            if self.parts.files.detach(disk)? == Detached::StillOpen {
                return Ok(Withdrawal::Hidden);
            }
        } else {
            self.parts.files.sweep();
            if self.is_listed(disk).is_some() {
                return Ok(Withdrawal::Hidden);
            }
        }
        let _disks = self.parts.disk_changes.lock();
        self.parts.images.lock().remove(&disk);
        if !self.parts.bases.lock().contains_key(&disk) {
            self.parts.read_path.detach(&disk)?;
        }
        Ok(Withdrawal::Removed)
    }

    /// Fetches the first and last bytes of an image and keeps them; returns how much is pinned and
    /// how much is missing, bytes.
    ///
    /// # Errors
    /// [`HostError::NotAttached`].
    pub fn pin_image(
        &self,
        disk: DiskId,
        head_bytes: u64,
        tail_bytes: u64,
        timeout: Duration,
    ) -> Result<(u64, u64), HostError> {
        if !self.is_attached(disk) {
            return Err(HostError::NotAttached(disk));
        }
        let pinning = self.parts.read_path.pin(&disk, head_bytes, tail_bytes, timeout);
        let report = self.handle.block_on(pinning)?;
        Ok((report.pinned_bytes, report.missing_bytes))
    }

    /// Returns every attached image, in the order of ids.
    pub fn list_images(&self) -> Vec<Value> {
        let images = self.parts.images.lock();
        let mut disks: Vec<_> = images.iter().collect();
        disks.sort_by_key(|(disk, _)| **disk);
        disks.into_iter().map(|(disk, attached)| self.describe(*disk, attached)).collect()
    }

    fn is_attached(&self, disk: DiskId) -> bool {
        self.parts.images.lock().contains_key(&disk)
    }

    /// Returns whether the image is in the file system: listed, hidden, or (`None`) not at all.
    fn is_listed(&self, disk: DiskId) -> Option<bool> {
        self.parts.files.status(disk).map(|file| file.is_listed)
    }

    fn describe(&self, disk: DiskId, attached: &Attached) -> Value {
        let file = self.parts.files.status(disk);
        json!({
            "id": disk.to_string(),
            "manifest": attached.digest.to_string(),
            "size_bytes": attached.shape.size_bytes,
            "chunk_size": attached.shape.chunk_size.as_u32(),
            "chunks": attached.shape.chunk_count,
            "open_handles": file.as_ref().map_or(0, |file| file.opens),
            "hidden": file.is_some_and(|file| !file.is_listed),
            "pinned_bytes": self.parts.read_path.pinned_bytes(&disk),
            "manifest_state": self.parts.read_path.manifest_state(&disk).map_or("on-disk", name_of),
        })
    }

    /// Images whose manifest was found damaged when it was needed.
    pub fn damaged_images(&self) -> Vec<DiskId> {
        let images = self.parts.images.lock();
        let is_damaged = |disk: &DiskId| {
            matches!(self.parts.read_path.manifest_state(disk), Ok(ManifestState::Damaged))
        };
        images.keys().copied().filter(is_damaged).collect()
    }
}

fn name_of(state: ManifestState) -> &'static str {
    match state {
        ManifestState::InMemory => "in-memory",
        ManifestState::OnDisk => "on-disk",
        ManifestState::Damaged => "damaged",
    }
}

/// Drops the manifests that nobody needs from memory, for ever.
pub(super) async fn release_idle_manifests(parts: Arc<Parts>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let is_open = |disk: &DiskId| parts.files.is_open(*disk);
        parts.read_path.release_idle_manifests(MANIFEST_IDLE, is_open);
    }
}

/// Opens the file of a manifest, whose pages come, or are mended, when they are needed. Where it may not
/// be written they are fetched each time.
pub(super) fn open_to_mend(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path))
}

pub(super) fn open_manifest(path: &Path) -> Result<ManifestFile, HostError> {
    let file = open_to_mend(path).and_then(ManifestFile::new);
    file.map_err(|source| HostError::File { path: path.to_owned(), source })
}
