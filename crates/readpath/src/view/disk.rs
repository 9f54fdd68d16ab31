//! An attached disk: its manifest and what this host remembers of its readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acstor_types::{DiskId, Entry, Manifest};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ahead::read_trace::ReadTrace;
use crate::ahead::streams::StreamTable;
use crate::fetch::sources::Want;
use crate::origin::stored_place::StoredPlace;
use crate::view::attachment::DiskRecords;
use crate::view::extents::ExtentMap;
use crate::{LocalStore, ReadPathConfig, limits};

/// One immutable disk state.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) manifest: Manifest,
    /// The manifest of the same content that was published last, where the chunks moved.
    moved: ArcSwapOption<Manifest>,
    /// True if there is one: nothing else is looked at in a read of a disk whose chunks did not
    /// move.
    has_moved: AtomicBool,
    pub(crate) extents: ExtentMap,
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
    pub(crate) fn new(
        manifest: Manifest,
        config: &ReadPathConfig,
        records: Arc<DiskRecords>,
    ) -> Disk {
        let chunk = manifest.chunk_size().bytes();
        Disk {
            extents: ExtentMap::of(&manifest),
            streams: StreamTable::new(config.prefetch_max_bytes, chunk),
            records,
            moved: ArcSwapOption::empty(),
            has_moved: AtomicBool::new(false),
            manifest,
        }
    }

    /// Reads the origin where `manifest`, which has the same content, says from now on.
    pub(crate) fn move_to(&self, manifest: Manifest) {
        self.moved.store(Some(Arc::new(manifest)));
        self.has_moved.store(true, Ordering::Release);
    }

    /// The manifest that was published last.
    #[cfg(test)]
    pub(crate) fn latest_manifest(&self) -> Manifest {
        self.moved.load().as_ref().map_or_else(|| self.manifest.clone(), |m| Manifest::clone(m))
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        if !self.has_moved.load(Ordering::Acquire) {
            return self.manifest.entry(index);
        }
        match self.moved.load().as_ref() {
            Some(moved) => moved.entry(index),
            None => self.manifest.entry(index),
        }
    }

    pub(crate) fn id(&self) -> DiskId {
        self.manifest.disk_id()
    }

    /// Bytes of a read of `len` at `offset` that lie before the end of the disk.
    pub(crate) fn clip(&self, offset: u64, len: usize) -> usize {
        let left = self.manifest.size_bytes().saturating_sub(offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }

    /// Returns the number of chunks that a clipped read touches.
    pub(crate) fn piece_count(&self, offset: u64, len: usize) -> usize {
        if len == 0 {
            return 0;
        }
        let size = self.manifest.chunk_size();
        (size.index_of(offset + len as u64 - 1) - size.index_of(offset) + 1) as usize
    }

    /// Cuts a clipped read at the chunks' bounds.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let size = self.manifest.chunk_size();
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

    /// Returns what must be obtained for chunk `index`; `None` for a zero chunk or past the end.
    pub(crate) fn want(&self, index: u64) -> Option<Want> {
        match self.entry(index)? {
            Entry::Zero => None,
            Entry::Chunk { digest, location } => Some(Want {
                digest,
                place: StoredPlace::plain(location, self.manifest.chunk_size()),
                disk: self.id(),
                index,
                chunk_size: self.manifest.chunk_size(),
            }),
        }
    }

    /// The last count of this host's bytes of the disk, and whether it is time for a new one.
    pub(crate) fn cached_bytes(&self) -> (u64, bool) {
        let cached = &self.records.cached;
        let is_stale = cached.stale_at.lock().is_none_or(|at| Instant::now() >= at);
        let is_due = is_stale && !cached.is_counting.swap(true, Ordering::Relaxed);
        (cached.last(), is_due)
    }

    /// Counts this host's bytes of the disk: a look-up per chunk, so not for an I/O thread.
    pub(crate) fn count_cached_bytes(&self, store: &dyn LocalStore) -> u64 {
        let started = Instant::now();
        let chunk = self.manifest.chunk_size().bytes() as u64;
        let held = self
            .manifest
            .entries()
            .filter(|entry| match entry {
                Entry::Zero => false,
                Entry::Chunk { digest, .. } => store.contains(digest),
            })
            .count() as u64;
        let bytes = (held * chunk).min(self.manifest.size_bytes());
        self.records.cached.bytes.store(bytes, Ordering::Relaxed);
        let age = limits::CACHED_BYTES_AGE.max(started.elapsed() * COUNT_SHARE_DIVISOR);
        *self.records.cached.stale_at.lock() = Some(Instant::now() + age);
        self.records.cached.is_counting.store(false, Ordering::Relaxed);
        bytes
    }

    /// Notes that a front end read `len` bytes, clipped, at `offset`.
    #[inline]
    pub(crate) fn note_read(&self, offset: u64, len: usize) {
        if len > 0 {
            let size = self.manifest.chunk_size();
            self.records.boots.note(size.index_of(offset), size.index_of(offset + len as u64 - 1));
        }
    }

    pub(crate) fn trace(&self) -> Option<Arc<ReadTrace>> {
        self.records.trace.load_full()
    }
}
