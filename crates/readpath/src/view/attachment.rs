//! An attached disk: what is known of it for as long as it is attached, and its manifest while that
//! is in memory.
//!
//! A manifest of format 1 is 40 bytes for each chunk of the virtual size, and of most images that a host offers
//! nobody there reads anything. So a disk may be attached with a [`ManifestSource`] from which its
//! manifest is read when it is first needed, and dropped again once nobody has needed it for
//! [`crate::limits::MANIFEST_IDLE`]. Nothing else of the disk is dropped: pins, working set and records stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acstor_manifest::PageCache;
use acstor_selection::BootProfile;
use acstor_types::{Digest, DiskId};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ahead::boot_recorder::BootRecorder;
use crate::ahead::disk_boots::DiskBoots;
use crate::ahead::read_aheads::ReadAheads;
use crate::ahead::read_trace::ReadTrace;
use crate::fetch::outcome::ManifestLoad;
use crate::fetch::sources::Sources;
use crate::view::attachments::ManifestState;
use crate::view::disk::{CachedBytes, Disk};
use crate::view::disk_manifest::{DiskManifest, PagedManifest};
use crate::view::disk_map::DiskMap;
use crate::view::disk_shape::DiskShape;
use crate::view::disk_view::DiskView;
use crate::view::manifest_health::ManifestHealth;
use crate::view::manifest_source::{ManifestFault, ManifestSource};
use crate::view::wanted_chunks::WantedChunks;
use crate::{ReadError, ReadPathError};

/// Number that the files of a manifest had last, of all attachments: no others ever have the same.
static LAST_FILES: AtomicU64 = AtomicU64::new(0);

fn new_files() -> u64 {
    LAST_FILES.fetch_add(1, Ordering::Relaxed) + 1
}

/// Records of a disk that are kept whether or not its manifest is in memory.
#[derive(Debug)]
pub(crate) struct DiskRecords {
    pub(crate) trace: ArcSwapOption<ReadTrace>,
    pub(crate) boots: Arc<BootRecorder>,
    /// Boots of guests of this host, by handle.
    pub(crate) disk_boots: Arc<DiskBoots>,
    /// Orders in which boots read, as learnt by all hosts.
    pub(crate) boot_profile: ArcSwapOption<BootProfile>,
    /// Opens that are read ahead along it.
    pub(crate) read_aheads: ReadAheads,
    /// Chunks that boots read, as learnt by all hosts.
    pub(crate) working_set: ArcSwapOption<WantedChunks>,
    pub(crate) cached: CachedBytes,
    pub(crate) health: ManifestHealth,
}

impl DiskRecords {
    fn new(shape: DiskShape, sources: &Sources) -> DiskRecords {
        let boots = Arc::new(BootRecorder::new(shape.chunk_count));
        let disk_boots = DiskBoots::new(
            shape,
            sources.config.boot_window,
            boots.clone(),
            sources.finished_boots.clone(),
            sources.runtime.clone(),
        );
        DiskRecords {
            trace: ArcSwapOption::empty(),
            boots,
            disk_boots: Arc::new(disk_boots),
            boot_profile: ArcSwapOption::empty(),
            read_aheads: ReadAheads::default(),
            working_set: ArcSwapOption::empty(),
            cached: CachedBytes::default(),
            health: ManifestHealth::default(),
        }
    }
}

/// An attached disk.
pub(crate) struct Attachment {
    pub(crate) shape: DiskShape,
    pub(crate) records: Arc<DiskRecords>,
    /// The disk while its manifest is in memory.
    pub(crate) view: ArcSwapOption<DiskView>,
    /// Of the manifest that was published last. Held while it is read, so that it is read once.
    manifest: Mutex<Kept>,
    /// Time at which the manifest was needed last.
    used_at: Mutex<Instant>,
    /// Held by the one who reads the manifest for all that wait for it.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// And before it by the one who is not a guest.
    pub(crate) turn_of_others: Arc<tokio::sync::Mutex<()>>,
    /// Number of the files in which the manifest is now: others have another.
    files: AtomicU64,
    /// Number of those in which all pages were found.
    complete_files: AtomicU64,
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
        shape: DiskShape,
        digest: Digest,
        source: Arc<dyn ManifestSource>,
        sources: &Sources,
    ) -> Attachment {
        Attachment::new(shape, Kept { digest, source: Some(source) }, sources)
    }

    /// A disk whose manifest is at hand and stays so.
    ///
    /// # Errors
    /// [`ReadPathError::Manifest`].
    pub(crate) fn of(
        manifest: DiskManifest,
        sources: &Arc<Sources>,
    ) -> Result<Attachment, ReadPathError> {
        let kept = Kept { digest: manifest.digest(), source: None };
        let attachment = Attachment::new(manifest.shape(), kept, sources);
        let view = attachment.disk_view(manifest, sources);
        let view = view.map_err(|fault| attachment.refused(fault))?;
        attachment.view.store(Some(Arc::new(view)));
        Ok(attachment)
    }

    fn new(shape: DiskShape, kept: Kept, sources: &Sources) -> Attachment {
        Attachment {
            shape,
            records: Arc::new(DiskRecords::new(shape, sources)),
            view: ArcSwapOption::empty(),
            manifest: Mutex::new(kept),
            used_at: Mutex::new(Instant::now()),
            turn: Arc::default(),
            turn_of_others: Arc::default(),
            files: AtomicU64::new(new_files()),
            complete_files: AtomicU64::new(0),
        }
    }

    fn disk_view(
        &self,
        manifest: DiskManifest,
        sources: &Arc<Sources>,
    ) -> Result<DiskView, ManifestFault> {
        let records = self.records.clone();
        let disk = Disk::new(manifest, &sources.config, records, sources.page_fetches.clone())?;
        Ok(DiskView { disk: Arc::new(disk), sources: sources.clone(), is_recorded: true })
    }

    pub(crate) fn id(&self) -> DiskId {
        self.shape.disk_id
    }

    /// Returns whether the manifest could not be read and never will be, as it is.
    pub(crate) fn is_damaged(&self) -> bool {
        self.records.health.is_damaged()
    }

    /// Bytes that the manifest takes in memory now.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let view = self.view.load();
        view.as_ref().map_or(0, |view| view.disk.memory_bytes())
    }

    /// Returns the place of the manifest.
    pub(crate) fn manifest_state(&self) -> ManifestState {
        let is_damaged = self.is_damaged();
        match self.view.load().as_ref() {
            // Read by the page: some pages may be in memory, and the file is damaged all the same.
            Some(view) if !(is_damaged && view.disk.is_paged()) => ManifestState::InMemory,
            _ if is_damaged => ManifestState::Damaged,
            _ => ManifestState::OnDisk,
        }
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
        let view = Arc::new(self.read_kept(&kept, sources)?);
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
        Ok(self.read_kept(&kept, sources)?.disk)
    }

    fn read_kept(&self, kept: &Kept, sources: &Arc<Sources>) -> Result<DiskView, ReadError> {
        let Some(source) = &kept.source else {
            return Err(ReadError::Internal("a manifest that stays in memory is not there"));
        };
        let health = &self.records.health;
        if health.is_damaged() {
            // Reading it again would cost as much each time.
            let (disk, reason) = (self.id(), "it was found damaged before".to_owned());
            return Err(ReadError::Manifest { disk, is_damaged: true, reason });
        }
        let is_same = |manifest: &DiskManifest| {
            manifest.shape() == self.shape && manifest.digest() == kept.digest
        };
        let read = source.read().and_then(|manifest| match is_same(&manifest) {
            true => self.disk_view(manifest, sources),
            false => Err(ManifestFault::changed()),
        });
        let outcome = match &read {
            Ok(_) => ManifestLoad::Read,
            Err(fault) if health.failed(fault) => ManifestLoad::Damaged,
            Err(_) => ManifestLoad::Failed,
        };
        if outcome == ManifestLoad::Read {
            health.succeeded();
        }
        sources.metrics.manifest_load(outcome);
        read.map_err(|fault| {
            let disk = self.id();
            tracing::warn!(%disk, "a manifest cannot be read: {fault}");
            let is_damaged = outcome == ManifestLoad::Damaged;
            ReadError::Manifest { disk, is_damaged, reason: fault.message }
        })
    }

    /// Takes over a manifest of the same content, which may have moved in the origin; with a `source`
    /// it is read from there from now on.
    ///
    /// # Errors
    /// [`ReadPathError::Conflict`], [`ReadPathError::Manifest`].
    pub(crate) fn replace(
        &self,
        (shape, digest): (DiskShape, Digest),
        manifest: Option<&DiskManifest>,
        source: Option<Arc<dyn ManifestSource>>,
        pages: &Arc<PageCache>,
    ) -> Result<(), ReadPathError> {
        let mut kept = self.manifest.lock();
        let view = self.view.load_full();
        let is_same = kept.digest == digest;
        // The pages of the same manifest may be in another file, which is whole.
        let is_paged = view.as_ref().is_some_and(|view| view.disk.is_paged());
        if !is_same && shape != self.shape {
            return Err(ReadPathError::Conflict(self.id()));
        }
        if !is_same || is_paged {
            let new = match (manifest, &source) {
                (Some(manifest), _) => manifest.clone(),
                (None, Some(source)) => source.read().map_err(|fault| self.refused(fault))?,
                (None, None) => return Err(ReadPathError::Conflict(self.id())),
            };
            // One of format 1 is held against what is known of the content, whatever its name.
            if matches!(new, DiskManifest::Paged(_)) && new.digest() != digest {
                return Err(self.refused(ManifestFault::changed()));
            }
            let new = self.map(new, pages)?;
            if !is_same && !self.is_content_of(&new, view.as_deref(), &kept, pages)? {
                return Err(ReadPathError::Conflict(self.id()));
            }
            if let Some(view) = &view {
                view.disk.move_to(new);
                self.records.health.reset();
            }
        }
        // The digest is that of the manifest that the source gives.
        if source.is_some() || kept.source.is_none() {
            *kept = Kept { digest, source };
            self.records.health.reset();
        }
        self.note_new_files();
        Ok(())
    }

    /// Returns whether the disk has the content that `new` says, as far as what is known of it now says.
    fn is_content_of(
        &self,
        new: &DiskMap,
        view: Option<&DiskView>,
        kept: &Kept,
        pages: &Arc<PageCache>,
    ) -> Result<bool, ReadPathError> {
        let old = match (view, &kept.source) {
            (Some(view), _) => Ok(view.disk.latest()),
            (None, Some(source)) if !self.is_damaged() => {
                source.read().and_then(|old| DiskMap::new(old, pages)).map(Arc::new)
            }
            // One that is damaged has nothing to say.
            (None, _) => return Ok(true),
        };
        match old.and_then(|old| old.has_content_of(new)) {
            Ok(is_same) => Ok(is_same),
            Err(fault) if fault.is_final() && fault.absent.is_none() => Ok(true),
            // It is asked again: guests may have other content than the new one says.
            Err(fault) => {
                self.records.health.failed_to_compare(&fault);
                Err(self.refused(fault))
            }
        }
    }

    fn map(
        &self,
        manifest: DiskManifest,
        pages: &Arc<PageCache>,
    ) -> Result<DiskMap, ReadPathError> {
        DiskMap::new(manifest, pages).map_err(|fault| self.refused(fault))
    }

    fn refused(&self, fault: ManifestFault) -> ReadPathError {
        ReadPathError::Manifest { disk: self.id(), kind: fault.kind_now(), reason: fault.message }
    }

    /// The manifest, of format 2, as its files have it; `None` of format 1. Waits for the local disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn paged(&self) -> Result<Option<PagedManifest>, ManifestFault> {
        let view = self.view.load_full();
        if let Some(manifest) = view.map(|view| view.disk.latest().manifest()) {
            return Ok(match manifest {
                DiskManifest::Paged(manifest) => Some(manifest),
                DiskManifest::Whole(_) => None,
            });
        }
        let source = self.manifest.lock().source.clone();
        source.map_or(Ok(None), |source| source.read_paged())
    }

    /// Number of the files in which the manifest is now, to be read before they are.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Acquire)
    }

    fn note_new_files(&self) {
        self.files.store(new_files(), Ordering::Release);
    }

    /// Returns whether the manifest was found to be whole on this host.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete_files.load(Ordering::Acquire) == self.files()
    }

    /// Notes that the manifest is whole in the files of that number, which others may have replaced.
    pub(crate) fn set_complete(&self, files: u64) {
        self.complete_files.store(files, Ordering::Release);
    }

    /// Brings a manifest that is at hand into memory for as long as its view is held.
    ///
    /// # Errors
    /// [`ReadPathError::Manifest`].
    pub(crate) fn bring(
        &self,
        manifest: DiskManifest,
        sources: &Arc<Sources>,
    ) -> Result<Arc<DiskView>, ReadPathError> {
        let _one_at_a_time = self.manifest.lock();
        if let Some(view) = self.at_hand() {
            return Ok(view);
        }
        let view = self.disk_view(manifest, sources).map_err(|fault| self.refused(fault))?;
        let view = Arc::new(view);
        self.view.store(Some(view.clone()));
        self.note_new_files();
        self.records.health.reset();
        Ok(view)
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
