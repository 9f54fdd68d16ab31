//! The disks that are attached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_types::{Digest, DiskId};
use arc_swap::ArcSwap;

use crate::fetch::sources::Sources;
use crate::view::attachment::Attachment;
use crate::view::disk::Disk;
use crate::view::disk_manifest::DiskManifest;
use crate::view::disk_shape::DiskShape;
use crate::view::manifest_source::ManifestSource;
use crate::view::offered_view::OfferedView;
use crate::{BlockView, ReadPathError, limits};

/// Place of an attached disk's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestState {
    /// In memory.
    InMemory,
    /// In the file from which it was offered; it is read when it is needed.
    OnDisk,
    /// There too, and found damaged: the disk cannot be read until it is attached anew.
    Damaged,
}

/// Outcome of an attachment.
enum Entered {
    New(Arc<Attachment>),
    Present(Arc<Attachment>),
}

/// The attached disks of one host.
pub(crate) struct Attachments {
    sources: Arc<Sources>,
    by_disk: ArcSwap<HashMap<DiskId, Arc<Attachment>>>,
}

impl Attachments {
    pub(crate) fn new(sources: Arc<Sources>) -> Attachments {
        Attachments { sources, by_disk: ArcSwap::default() }
    }

    /// Attaches a disk whose manifest is at hand, or returns the view of one that is attached with the same
    /// content, which is read from the new place where its chunks moved.
    pub(crate) fn attach(
        &self,
        manifest: DiskManifest,
    ) -> Result<Arc<dyn BlockView>, ReadPathError> {
        let shape = manifest.shape();
        let make = || Attachment::of(manifest.clone(), &self.sources);
        let attachment = match self.enter(&shape, make)? {
            Entered::New(attachment) => attachment,
            Entered::Present(attachment) => {
                let (named, pages) = ((shape, manifest.digest()), &self.sources.pages);
                attachment.replace(named, Some(&manifest), None, pages)?;
                attachment
            }
        };
        let view = attachment.bring(manifest, &self.sources)?;
        self.sources.attached.notify_one();
        // One of its own: that the disk is held is how the attachment knows that it is in use.
        Ok(Arc::new(view.again(true)))
    }

    /// Attaches a disk whose manifest `source` gives when it is needed.
    pub(crate) fn offer(
        &self,
        shape: DiskShape,
        digest: Digest,
        source: Arc<dyn ManifestSource>,
    ) -> Result<Arc<dyn BlockView>, ReadPathError> {
        let make = || Ok(Attachment::offered(shape, digest, source.clone(), &self.sources));
        let attachment = match self.enter(&shape, make)? {
            Entered::New(attachment) => attachment,
            Entered::Present(attachment) => {
                attachment.replace((shape, digest), None, Some(source), &self.sources.pages)?;
                attachment
            }
        };
        self.sources.attached.notify_one();
        Ok(Arc::new(OfferedView { attachment, sources: self.sources.clone(), is_recorded: true }))
    }

    /// Finds the attachment of a disk, or enters the one that is made.
    fn enter(
        &self,
        shape: &DiskShape,
        make: impl FnOnce() -> Result<Attachment, ReadPathError>,
    ) -> Result<Entered, ReadPathError> {
        let (ours, theirs) = (self.sources.chunks.store.chunk_size(), shape.chunk_size);
        let id = shape.disk_id;
        if ours != theirs {
            let (ours, theirs) = (ours.as_u32(), theirs.as_u32());
            return Err(ReadPathError::ChunkSize { disk: id, theirs, ours });
        }
        if let Some(attachment) = self.get(&id) {
            return Ok(Entered::Present(attachment));
        }
        let new = Arc::new(make()?);
        let mut outcome = Ok(Entered::New(new.clone()));
        self.by_disk.rcu(|disks| {
            outcome = match disks.get(&id) {
                // Somebody else attached it at the same time.
                Some(other) => Ok(Entered::Present(other.clone())),
                None if disks.len() >= limits::DISKS_MAX => {
                    Err(ReadPathError::TooManyDisks(limits::DISKS_MAX))
                }
                None => Ok(Entered::New(new.clone())),
            };
            let mut disks = HashMap::clone(disks);
            if let Ok(Entered::New(new)) = &outcome {
                disks.insert(id, new.clone());
            }
            disks
        });
        outcome
    }

    /// Takes a disk out; views of it go on working.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`].
    pub(crate) fn remove(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.find(disk_id)?;
        self.by_disk.rcu(|disks| {
            let mut disks = HashMap::clone(disks);
            disks.remove(disk_id);
            disks
        });
        Ok(())
    }

    /// Ids of the disks, in no order.
    pub(crate) fn ids(&self) -> Vec<DiskId> {
        self.by_disk.load().keys().copied().collect()
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Attachment>> {
        self.by_disk.load().values().cloned().collect()
    }

    pub(crate) fn get(&self, disk_id: &DiskId) -> Option<Arc<Attachment>> {
        self.by_disk.load().get(disk_id).cloned()
    }

    /// As [`Attachments::get`], with the error of a disk that is not attached.
    pub(crate) fn find(&self, disk_id: &DiskId) -> Result<Arc<Attachment>, ReadPathError> {
        self.get(disk_id).ok_or(ReadPathError::NotAttached(*disk_id))
    }

    /// Returns the place of a disk's manifest.
    pub(crate) fn manifest_state(&self, disk_id: &DiskId) -> Result<ManifestState, ReadPathError> {
        Ok(self.find(disk_id)?.manifest_state())
    }

    /// Drops from memory the manifests that can be read again and that nobody has needed for `idle`.
    pub(crate) fn release_idle_manifests(&self, idle: Duration, is_open: impl Fn(&DiskId) -> bool) {
        for attachment in self.all() {
            attachment.release_idle(idle, || is_open(&attachment.id()));
        }
    }

    /// The disk for one look at it; waits for the local disk where its manifest is not in memory.
    pub(crate) fn read(&self, disk_id: &DiskId) -> Result<Arc<Disk>, ReadPathError> {
        let read = self.find(disk_id)?.read(&self.sources);
        read.map_err(|error| ReadPathError::Manifest {
            disk: *disk_id,
            kind: error.kind(),
            reason: error.to_string(),
        })
    }

    /// As [`Attachments::read`], for a task.
    pub(crate) async fn read_apart(
        self: &Arc<Self>,
        disk_id: &DiskId,
    ) -> Result<Arc<Disk>, ReadPathError> {
        if let Some(view) = self.find(disk_id)?.view.load_full() {
            return Ok(view.disk.clone());
        }
        let (attachments, disk) = (self.clone(), *disk_id);
        let read = self.sources.runtime.spawn_blocking(move || attachments.read(&disk)).await;
        read.unwrap_or(Err(ReadPathError::NotAttached(*disk_id)))
    }
}
