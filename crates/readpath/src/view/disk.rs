//! An attached disk: its manifest and what this host remembers of its readers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acstor_types::{Digest, DiskId, Oid};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ahead::read_trace::ReadTrace;
use crate::ahead::streams::StreamTable;
use crate::fetch::sources::Want;
use crate::pages::page_fetches::PageFetches;
use crate::view::attachment::DiskRecords;
use crate::view::disk_manifest::{DiskManifest, Level};
use crate::view::disk_map::{Content, DiskMap, MapFault};
use crate::view::disk_shape::DiskShape;
use crate::view::extents::ExtentMap;
use crate::view::manifest_source::{AbsentPage, ManifestFault};
use crate::{
    ExtentKind, LocalStore, PlacementRule, ReadError, ReadPathConfig, ReadPathError, limits,
};

/// One immutable disk state.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) shape: DiskShape,
    fetches: Arc<PageFetches>,
    map: Arc<DiskMap>,
    /// The map of the same content that was published last, where the chunks or the pages moved.
    moved: ArcSwapOption<DiskMap>,
    /// True if there is one: nothing else is looked at in a read of a disk whose chunks did not
    /// move.
    has_moved: AtomicBool,
    /// `None`: the map knows them.
    extents: Option<ExtentMap>,
    placement: PlacementRule,
    pub(crate) streams: StreamTable,
    /// They outlive the time for which the manifest is in memory.
    pub(crate) records: Arc<DiskRecords>,
}

/// Bytes of a disk that this host holds, as counted last.
#[derive(Debug, Default)]
pub(crate) struct CachedBytes {
    bytes: AtomicU64,
    is_counting: AtomicBool,
    /// Time at which the last count is too old; `None`: there was none.
    stale_at: Mutex<Option<Instant>>,
}

impl CachedBytes {
    /// The last count, however long ago.
    pub(crate) fn last(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A count may take one part in this many of the time.
const COUNT_SHARE_DIVISOR: u32 = 100;

/// The part of a read that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) index: u64,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Disk {
    /// A disk of `manifest`, whose pages are kept, and fetched where they are not here, by `fetches`.
    ///
    /// # Errors
    /// [`ManifestFault`] when the levels of the manifest do not fit each other.
    pub(crate) fn new(
        manifest: DiskManifest,
        config: &ReadPathConfig,
        records: Arc<DiskRecords>,
        fetches: Arc<PageFetches>,
    ) -> Result<Disk, ManifestFault> {
        let extents = match &manifest {
            DiskManifest::Whole(manifest) => Some(ExtentMap::of(manifest)),
            DiskManifest::Paged(_) => None,
        };
        let shape = manifest.shape();
        Ok(Disk {
            streams: StreamTable::new(config.prefetch_max_bytes, shape.chunk_size.bytes()),
            map: Arc::new(DiskMap::new(manifest, fetches.pages())?),
            fetches,
            placement: config.placement,
            records,
            moved: ArcSwapOption::empty(),
            has_moved: AtomicBool::new(false),
            shape,
            extents,
        })
    }

    /// Reads the origin where `map`, which has the same content, says from now on.
    pub(crate) fn move_to(&self, map: DiskMap) {
        self.moved.store(Some(Arc::new(map)));
        self.has_moved.store(true, Ordering::Release);
    }

    /// The map that was published last.
    pub(crate) fn latest(&self) -> Arc<DiskMap> {
        self.moved.load_full().unwrap_or_else(|| self.map.clone())
    }

    /// The manifest that was published last.
    #[cfg(test)]
    pub(crate) fn latest_manifest(&self) -> DiskManifest {
        self.latest().manifest()
    }

    fn with_map<T>(&self, look_up: impl FnOnce(&DiskMap) -> T) -> T {
        if !self.has_moved.load(Ordering::Acquire) {
            return look_up(&self.map);
        }
        match self.moved.load().as_ref() {
            Some(moved) => look_up(moved),
            None => look_up(&self.map),
        }
    }

    pub(crate) fn id(&self) -> DiskId {
        self.shape.disk_id
    }

    /// Bytes that its manifest takes in memory for as long as it is there.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.map.manifest().memory_bytes()
    }

    /// Returns whether a look-up may have to wait for this host's disk.
    pub(crate) fn is_paged(&self) -> bool {
        self.with_map(DiskMap::is_paged)
    }

    /// Notes a fault of the manifest; returns the error of a read for it.
    pub(crate) fn read_error(&self, fault: ManifestFault) -> ReadError {
        let disk = self.id();
        tracing::warn!(%disk, "a page of a manifest cannot be read: {fault}");
        let is_damaged = self.records.health.failed(&fault);
        ReadError::Manifest { disk, is_damaged, reason: fault.message }
    }

    /// Notes a fault of the manifest; returns the error of a call for it.
    pub(crate) fn refused(&self, fault: ManifestFault) -> ReadPathError {
        self.records.health.failed(&fault);
        ReadPathError::Manifest { disk: self.id(), kind: fault.kind_now(), reason: fault.message }
    }

    /// Bytes of a read of `len` at `offset` that lie before the end of the disk.
    pub(crate) fn clip(&self, offset: u64, len: usize) -> usize {
        let left = self.shape.size_bytes.saturating_sub(offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }

    /// Returns the number of chunks that a clipped read touches.
    pub(crate) fn piece_count(&self, offset: u64, len: usize) -> usize {
        if len == 0 {
            return 0;
        }
        let size = self.shape.chunk_size;
        (size.index_of(offset + len as u64 - 1) - size.index_of(offset) + 1) as usize
    }

    /// Cuts a clipped read at the chunks' bounds.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let size = self.shape.chunk_size;
        let chunk = size.bytes() as u64;
        let end = offset + len as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at % chunk;
            let len = (chunk - start).min(end - at);
            let piece =
                Piece { index: size.index_of(at), start: start as usize, len: len as usize };
            at += len;
            Some(piece)
        })
    }

    /// The digest of chunk `index`; `None` for a zero chunk or past the end. Does not wait.
    ///
    /// # Errors
    /// [`MapFault`].
    pub(crate) fn digest_at_hand(&self, index: u64) -> Result<Option<Digest>, MapFault> {
        self.with_map(|map| map.digest_at_hand(index))
    }

    /// As [`Disk::digest_at_hand`], but waits for this host's disk, and for the origin where it has to: not
    /// for a look-up of [`crate::fetch::sources::Sources::look_up`].
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn digest(&self, index: u64) -> Result<Option<Digest>, ManifestFault> {
        let mut before = None;
        loop {
            match self.with_map(|map| map.digest(index)) {
                Err(fault) => self.bring_on_thread(fault, &mut before)?,
                found => return found,
            }
        }
    }

    /// The level that a page is absent from.
    pub(crate) fn level(&self, absent: &AbsentPage) -> Option<Level> {
        match self.latest().manifest() {
            DiskManifest::Paged(manifest) => manifest.level(&absent.manifest).cloned(),
            DiskManifest::Whole(_) => None,
        }
    }

    /// Brings the page for want of which a look-up failed, unless it was brought just `before`.
    fn bring_on_thread(
        &self,
        fault: ManifestFault,
        before: &mut Option<AbsentPage>,
    ) -> Result<(), ManifestFault> {
        match fault.absent.and_then(|absent| Some((absent, self.level(&absent)?))) {
            Some((absent, level)) if before.replace(absent) != Some(absent) => {
                self.fetches.bring_on_thread(&level, absent)
            }
            _ => Err(fault),
        }
    }

    /// Returns what must be obtained for chunk `index`; `None` for a zero chunk or past the end. Does not
    /// wait.
    ///
    /// # Errors
    /// [`MapFault`].
    pub(crate) fn want_at_hand(&self, index: u64) -> Result<Option<Want>, MapFault> {
        self.with_map(|map| match map.content_at_hand(index)? {
            None => Ok(None),
            Some(content) => self.want_of(index, content, |index| map.digest_at_hand(index)),
        })
    }

    /// As [`Disk::want_at_hand`], but waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn want(&self, index: u64) -> Result<Option<Want>, ManifestFault> {
        self.with_map(|map| match map.content(index)? {
            None => Ok(None),
            Some(content) => self.want_of(index, content, |index| map.digest(index)),
        })
    }

    fn want_of<E>(
        &self,
        index: u64,
        Content { digest, place }: Content,
        digest_at: impl Fn(u64) -> Result<Option<Digest>, E>,
    ) -> Result<Option<Want>, E> {
        let (disk, chunk_size) = (self.id(), self.shape.chunk_size);
        let oid = self.placement.oid(&disk, index, digest_at)?;
        Ok(Some(Want { digest, place, disk, index, chunk_size, oid }))
    }

    /// The position on the ring of chunk `index`, which must have content. Waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn oid(&self, index: u64) -> Result<Oid, ManifestFault> {
        self.with_map(|map| self.placement.oid(&self.id(), index, |index| map.digest(index)))
    }

    /// Calls `visit` with each chunk with content within `range`, ascending, until it is refused; at a cost
    /// by the number of such chunks. Waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn visit_digests(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(u64, Digest) -> Result<(), ManifestFault>,
    ) -> Result<(), ManifestFault> {
        let map = self.latest();
        let pass = map.pass()?;
        let mut digests = pass.digests(range);
        digests.try_for_each(|found| found.and_then(|(index, digest)| visit(index, digest)))
    }

    /// As [`Disk::visit_digests`], of all chunks, but has the pages brought that are not here.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn visit_all_digests(
        &self,
        mut visit: impl FnMut(u64, Digest) -> Result<(), ManifestFault>,
    ) -> Result<(), ManifestFault> {
        let (mut next, mut before) = (0, None);
        loop {
            let visited = self.visit_digests(next..self.shape.chunk_count, |index, digest| {
                visit(index, digest)?;
                next = index + 1;
                Ok(())
            });
            match visited {
                Ok(()) => return Ok(()),
                Err(fault) => self.bring_on_thread(fault, &mut before)?,
            }
        }
    }

    /// As [`crate::BlockView::next_extent`]: what is not in memory counts as data.
    pub(crate) fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        let size = self.shape.size_bytes;
        let unknown = || match kind {
            ExtentKind::Data => offset,
            ExtentKind::Hole => size,
        };
        match &self.extents {
            Some(extents) => extents.next(offset, kind),
            None => self
                .with_map(|map| map.extent_at_hand(offset, kind))
                .unwrap_or_else(|| (offset < size).then(unknown)),
        }
    }

    /// Returns whether [`Disk::next_extent`] knows the answer.
    pub(crate) fn knows_extent(&self, offset: u64, kind: ExtentKind) -> bool {
        self.extents.is_some() || self.with_map(|map| map.extent_at_hand(offset, kind)).is_some()
    }

    /// Reads what [`Disk::next_extent`] needs. Waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn bring_extent(&self, offset: u64, kind: ExtentKind) -> Result<(), ManifestFault> {
        self.with_map(|map| map.bring_extent(offset, kind))
    }

    /// The last count of this host's bytes of the disk, and whether it is time for a new one.
    pub(crate) fn cached_bytes(&self) -> (u64, bool) {
        let cached = &self.records.cached;
        let is_stale = cached.stale_at.lock().is_none_or(|at| Instant::now() >= at);
        let is_due = is_stale && !cached.is_counting.swap(true, Ordering::Relaxed);
        (cached.last(), is_due)
    }

    /// Counts this host's bytes of the disk: a look-up per chunk with content, so not for an I/O thread.
    pub(crate) fn count_cached_bytes(&self, store: &dyn LocalStore) -> u64 {
        let started = Instant::now();
        let chunk = self.shape.chunk_size.bytes() as u64;
        let mut held = 0;
        let counted = self.visit_digests(0..self.shape.chunk_count, |_, digest| {
            held += u64::from(store.contains(&digest));
            Ok(())
        });
        let bytes = match counted {
            Ok(()) => (held * chunk).min(self.shape.size_bytes),
            // At least so much: no page is brought for a count.
            Err(fault) if fault.absent.is_some() => (held * chunk).min(self.shape.size_bytes),
            Err(fault) => {
                self.read_error(fault);
                self.records.cached.last()
            }
        };
        self.records.cached.bytes.store(bytes, Ordering::Relaxed);
        let age = limits::CACHED_BYTES_AGE.max(started.elapsed() * COUNT_SHARE_DIVISOR);
        *self.records.cached.stale_at.lock() = Some(Instant::now() + age);
        self.records.cached.is_counting.store(false, Ordering::Relaxed);
        bytes
    }

    pub(crate) fn trace(&self) -> Option<Arc<ReadTrace>> {
        self.records.trace.load_full()
    }
}
