//! An attached disk: what is known of it for as long as it is attached, and its manifest while that
//! is in memory.
//!
//! A manifest is 40 bytes for each chunk of the virtual size, and of most images that a host offers
//! nobody there reads anything. So a disk may be attached with a [`ManifestSource`] from which its
//! manifest is read when it is first needed, and dropped again once nobody has needed it for
//! [`crate::limits::MANIFEST_IDLE`]. Nothing else of the disk is dropped: pins, working set and records stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use acstor_types::{Digest, DiskId, ErrorKind, Manifest, ManifestHeader};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ahead::boot_recorder::BootRecorder;
use crate::ahead::read_trace::ReadTrace;
use crate::fetch::outcome::ManifestLoad;
use crate::fetch::sources::Sources;
use crate::view::disk::{CachedBytes, Disk};
use crate::view::disk_view::DiskView;
use crate::view::manifest_source::{ManifestFault, ManifestSource};
use crate::view::wanted_chunks::WantedChunks;
use crate::{ReadError, ReadPathError, limits};

/// Records of a disk that are kept whether or not its manifest is in memory.
#[derive(Debug)]
pub(crate) struct DiskRecords {
    pub(crate) trace: ArcSwapOption<ReadTrace>,
    pub(crate) boots: BootRecorder,
    /// Chunks that boots read, as learnt by all hosts.
    pub(crate) working_set: ArcSwapOption<WantedChunks>,
    pub(crate) cached: CachedBytes,
}

impl DiskRecords {
    pub(crate) fn new(chunk_count: u64) -> DiskRecords {
        DiskRecords {
            trace: ArcSwapOption::empty(),
            boots: BootRecorder::new(chunk_count),
            working_set: ArcSwapOption::empty(),
            cached: CachedBytes::default(),
        }
    }
}

/// An attached disk.
pub(crate) struct Attachment {
    pub(crate) header: ManifestHeader,
    pub(crate) records: Arc<DiskRecords>,
    /// The disk while its manifest is in memory.
    pub(crate) view: ArcSwapOption<DiskView>,
    /// Of the manifest that was published last. Held while it is read, so that it is read once.
    manifest: Mutex<Kept>,
    /// Time at which the manifest was needed last.
    used_at: Mutex<Instant>,
    is_damaged: AtomicBool,
    /// Failures in a row of the local disk to give it.
    failures: AtomicU32,
    /// Held by the one who reads the manifest for all that wait for it.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// And before it by the one who is not a guest.
    pub(crate) turn_of_others: Arc<tokio::sync::Mutex<()>>,
}

/// Place of a manifest while it is not in memory.
struct Kept {
    digest: Digest,
    /// `None`: it stays in memory.
    source: Option<Arc<dyn ManifestSource>>,
}

impl Attachment {
    /// A disk whose manifest is read when it is needed.
    pub(crate) fn offered(
        header: ManifestHeader,
        digest: Digest,
        source: Arc<dyn ManifestSource>,
    ) -> Attachment {
        Attachment::new(header, Kept { digest, source: Some(source) })
    }

    /// A disk whose manifest stays in memory.
    pub(crate) fn of(manifest: Manifest, sources: &Arc<Sources>) -> Attachment {
        let kept = Kept { digest: manifest.digest(), source: None };
        let attachment = Attachment::new(manifest.header(), kept);
        attachment.view.store(Some(Arc::new(attachment.disk_view(manifest, sources))));
        attachment
    }

    fn new(header: ManifestHeader, kept: Kept) -> Attachment {
        Attachment {
            header,
            records: Arc::new(DiskRecords::new(header.chunk_count)),
            view: ArcSwapOption::empty(),
            manifest: Mutex::new(kept),
            used_at: Mutex::new(Instant::now()),
            is_damaged: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            turn: Arc::default(),
            turn_of_others: Arc::default(),
        }
    }

    fn disk_view(&self, manifest: Manifest, sources: &Arc<Sources>) -> DiskView {
        let disk = Arc::new(Disk::new(manifest, &sources.config, self.records.clone()));
        DiskView { disk, sources: sources.clone() }
    }

    pub(crate) fn id(&self) -> DiskId {
        self.header.disk_id
    }

    /// Returns whether the manifest could not be read and never will be, as it is.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Bytes that the manifest takes in memory now.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let view = self.view.load();
        view.as_ref().map_or(0, |view| view.disk.manifest.as_bytes().len() as u64)
    }

    /// The disk, where its manifest is in memory; counts as a use of it.
    pub(crate) fn at_hand(&self) -> Option<Arc<DiskView>> {
        let view = self.view.load_full()?;
        *self.used_at.lock() = Instant::now();
        Some(view)
    }

    /// The disk for I/O: its manifest stays in memory for a while. Waits for the local disk where it
    /// is not there, and for whoever is reading it.
    ///
    /// # Errors
    /// [`ReadError::Manifest`].
    pub(crate) fn load(&self, sources: &Arc<Sources>) -> Result<Arc<DiskView>, ReadError> {
        let kept = self.manifest.lock();
        if let Some(view) = self.at_hand() {
            return Ok(view);
        }
        let view = Arc::new(self.disk_view(self.read_kept(&kept, sources)?, sources));
        self.view.store(Some(view.clone()));
        *self.used_at.lock() = Instant::now();
        Ok(view)
    }

    /// The disk for one look at it: a manifest that is not in memory is not kept there. Waits for the
    /// local disk.
    ///
    /// # Errors
    /// [`ReadError::Manifest`].
    pub(crate) fn read(&self, sources: &Arc<Sources>) -> Result<Arc<Disk>, ReadError> {
        if let Some(view) = self.view.load_full() {
            return Ok(view.disk.clone());
        }
        // Under the lock too, so that as much memory is taken once, whoever looks.
        let kept = self.manifest.lock();
        if let Some(view) = self.view.load_full() {
            return Ok(view.disk.clone());
        }
        Ok(self.disk_view(self.read_kept(&kept, sources)?, sources).disk)
    }

    fn read_kept(&self, kept: &Kept, sources: &Arc<Sources>) -> Result<Manifest, ReadError> {
        let Some(source) = &kept.source else {
            return Err(ReadError::Internal("a manifest that stays in memory is not there"));
        };
        if self.is_damaged() {
            // Reading it again would cost as much each time.
            let (disk, reason) = (self.id(), "it was found damaged before".to_owned());
            return Err(ReadError::Manifest { disk, is_damaged: true, reason });
        }
        let is_same = |manifest: &Manifest| {
            shape(manifest.header()) == shape(self.header) && manifest.digest() == kept.digest
        };
        let read = source.read().and_then(|manifest| match is_same(&manifest) {
            true => Ok(manifest),
            false => Err(ManifestFault::changed()),
        });
        let outcome = match &read {
            Ok(_) => ManifestLoad::Read,
            Err(fault) if fault.is_final() || self.is_given_up(fault) => ManifestLoad::Damaged,
            Err(_) => ManifestLoad::Failed,
        };
        if outcome == ManifestLoad::Read {
            self.failures.store(0, Ordering::Relaxed);
        }
        sources.metrics.manifest_load(outcome);
        if outcome == ManifestLoad::Damaged {
            self.is_damaged.store(true, Ordering::Release);
        }
        read.map_err(|fault| {
            let disk = self.id();
            tracing::warn!(%disk, "a manifest cannot be read: {fault}");
            let is_damaged = outcome == ManifestLoad::Damaged;
            ReadError::Manifest { disk, is_damaged, reason: fault.message }
        })
    }

    /// Counts a fault, and says whether the local disk had its chances: a bad sector stays one. That memory
    /// is short says nothing of the manifest.
    fn is_given_up(&self, fault: &ManifestFault) -> bool {
        let failed = || self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        fault.kind == ErrorKind::Unavailable && failed() >= limits::MANIFEST_FAILURES_MAX
    }

    /// Takes over a manifest of the same content, which may have moved in the origin; with a `source`
    /// it is read from there from now on.
    ///
    /// # Errors
    /// [`ReadPathError::Conflict`], [`ReadPathError::Manifest`].
    pub(crate) fn replace(
        &self,
        (header, digest): (ManifestHeader, Digest),
        manifest: Option<&Manifest>,
        source: Option<Arc<dyn ManifestSource>>,
    ) -> Result<(), ReadPathError> {
        let mut kept = self.manifest.lock();
        let view = self.view.load_full();
        if kept.digest != digest {
            if shape(header) != shape(self.header) {
                return Err(ReadPathError::Conflict(self.id()));
            }
            let read = |source: &Arc<dyn ManifestSource>| source.read();
            let new = match (manifest, &source) {
                (Some(manifest), _) => manifest.clone(),
                (None, Some(source)) => read(source).map_err(|fault| self.refused(fault))?,
                (None, None) => return Err(ReadPathError::Conflict(self.id())),
            };
            let old = match (&view, &kept.source) {
                (Some(view), _) => Some(view.disk.manifest.clone()),
                (None, Some(source)) if !self.is_damaged() => match read(source) {
                    Ok(old) => Some(old),
                    Err(fault) if fault.is_final() => None,
                    // It is asked again: guests may have other content than the new one says.
                    Err(fault) => {
                        self.is_damaged.store(self.is_given_up(&fault), Ordering::Release);
                        return Err(self.refused(fault));
                    }
                },
                // One that is damaged has nothing to say.
                (None, _) => None,
            };
            if old.is_some_and(|old| !old.has_content_of(&new)) {
                return Err(ReadPathError::Conflict(self.id()));
            }
            if let Some(view) = &view {
                view.disk.move_to(new);
            }
        }
        // The digest is that of the manifest that the source gives.
        if source.is_some() || kept.source.is_none() {
            *kept = Kept { digest, source };
            self.is_damaged.store(false, Ordering::Release);
            self.failures.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn refused(&self, fault: ManifestFault) -> ReadPathError {
        ReadPathError::Manifest { disk: self.id(), kind: fault.kind, reason: fault.message }
    }

    /// Brings a manifest that is at hand into memory for as long as its view is held.
    pub(crate) fn bring(&self, manifest: Manifest, sources: &Arc<Sources>) -> Arc<DiskView> {
        let _one_at_a_time = self.manifest.lock();
        self.at_hand().unwrap_or_else(|| {
            let view = Arc::new(self.disk_view(manifest, sources));
            self.view.store(Some(view.clone()));
            view
        })
    }

    /// Drops the manifest from memory where nobody has needed it for `idle`. `is_open`: whether a front end
    /// has the disk open.
    pub(crate) fn release_idle(&self, idle: Duration, is_open: impl Fn() -> bool) {
        // Whoever reads the manifest needs it.
        let Some(kept) = self.manifest.try_lock() else { return };
        let Some(view) = self.view.load_full() else { return };
        let is_used = || is_open() || Arc::strong_count(&view.disk) > 1;
        let now = Instant::now();
        if kept.source.is_none() || is_used() {
            *self.used_at.lock() = now;
            return;
        }
        if now.saturating_duration_since(*self.used_at.lock()) < idle {
            return;
        }
        self.view.store(None);
        // Who opened it meanwhile may have seen it in memory.
        if is_used() {
            self.view.store(Some(view));
        }
    }
}

/// Returns the part of a header that stays when the chunks move in the origin.
fn shape(header: ManifestHeader) -> ManifestHeader {
    ManifestHeader { pack_count: 0, ..header }
}
