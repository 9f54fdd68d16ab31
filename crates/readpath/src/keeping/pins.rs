//! Pinning the head and the tail of a disk: what Nova and QEMU read of every image first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_types::{Digest, DiskId, ErrorKind};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::fetch::flight::{Flight, Priority};
use crate::fetch::sources::{Sources, Want};
use crate::view::disk::Disk;
use crate::{InsertOutcome, LocalError, LocalStore, ReadPath, ReadPathError, limits};

/// The digests pinned for each disk.
pub(crate) type PinTable = Mutex<HashMap<DiskId, HashSet<Digest>>>;

/// A pin that is taken back unless it is kept.
pub(crate) struct Pinned {
    table: Arc<PinTable>,
    store: Arc<dyn LocalStore>,
    disk: DiskId,
    digest: Digest,
    is_kept: bool,
}

impl Pinned {
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut pins = self.table.lock();
        if pins.get_mut(&self.disk).is_some_and(|pinned| pinned.remove(&self.digest)) {
            self.store.unpin(&self.digest);
        }
    }
}

/// Result of a pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinReport {
    /// Bytes of the disk that are pinned and in the chunk store; zero chunks need no pin and do
    /// not count.
    pub pinned_bytes: u64,
    /// Bytes that could not be obtained in time, or that the bound on pins refused.
    pub missing_bytes: u64,
}

impl ReadPath {
    /// Fetches the first `head_bytes` and last `tail_bytes` of a disk into the chunk store and keeps
    /// them there, in place of the disk's former pins. Both are rounded up to whole chunks.
    ///
    /// Call again for what is missing; what is pinned already costs nothing then.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`].
    ///
    /// # Cancel safety
    /// What was pinned until then stays pinned, and is unpinned by the next pin or the detach.
    pub async fn pin(
        &self,
        disk_id: &DiskId,
        head_bytes: u64,
        tail_bytes: u64,
        timeout: Duration,
    ) -> Result<PinReport, ReadPathError> {
        let disk = self.disk_apart(disk_id).await?;
        let deadline = self.sources.clock.now() + timeout.min(limits::DURATION_MAX);
        let wants = wants(&disk, head_bytes, tail_bytes);
        let keep: HashSet<Digest> = wants.iter().map(|want| want.digest).collect();
        self.unpin_except(disk_id, &keep);
        let mut report = PinReport::default();
        for window in wants.chunks(limits::PIN_WINDOW_CHUNKS) {
            self.pin_window(&disk, window, deadline, &mut report).await;
        }
        Ok(report)
    }

    /// Takes the pins of a disk back, but for those of `keep`.
    pub(crate) fn unpin_except(&self, disk_id: &DiskId, keep: &HashSet<Digest>) {
        let mut pins = self.pins.lock();
        let Some(pinned) = pins.get_mut(disk_id) else { return };
        pinned.retain(|digest| {
            let is_kept = keep.contains(digest);
            if !is_kept {
                self.sources.chunks.store.unpin(digest);
            }
            is_kept
        });
        if pinned.is_empty() {
            pins.remove(disk_id);
        }
    }

    /// Bytes pinned for a disk, by preloads too.
    pub fn pinned_bytes(&self, disk_id: &DiskId) -> u64 {
        let chunk = self.sources.chunks.store.chunk_size().bytes() as u64;
        let pins = self.pins.lock();
        let preloaded = self.preload_pins.lock();
        let empty = HashSet::new();
        let pinned = pins.get(disk_id).unwrap_or(&empty);
        pinned.union(preloaded.get(disk_id).unwrap_or(&empty)).count() as u64 * chunk
    }

    /// Pins a digest for the preload of a disk; `None` where the preload has pinned it already.
    pub(crate) fn pin_preloaded(
        &self,
        disk_id: &DiskId,
        digest: &Digest,
    ) -> Result<Option<Pinned>, LocalError> {
        let mut pins = self.preload_pins.lock();
        if pins.get(disk_id).is_some_and(|pinned| pinned.contains(digest)) {
            return Ok(None);
        }
        self.sources.chunks.store.pin(digest)?;
        pins.entry(*disk_id).or_default().insert(*digest);
        let (table, store) = (self.preload_pins.clone(), self.sources.chunks.store.clone());
        Ok(Some(Pinned { table, store, disk: *disk_id, digest: *digest, is_kept: false }))
    }

    /// Takes the pins of a disk's preload back.
    pub(crate) fn unpin_preloaded(&self, disk_id: &DiskId) {
        let pinned = self.preload_pins.lock().remove(disk_id);
        for digest in pinned.iter().flatten() {
            self.sources.chunks.store.unpin(digest);
        }
    }

    async fn pin_window(
        &self,
        disk: &Arc<Disk>,
        window: &[Want],
        deadline: RunInstant,
        report: &mut PinReport,
    ) {
        let sources = &self.sources;
        let disk_id = &disk.id();
        let mut flights: Vec<(Want, Option<Arc<Flight>>)> = Vec::with_capacity(window.len());
        for want in window {
            let len = want.chunk_size.bytes() as u64;
            if !self.pin_digest(disk_id, &want.digest) {
                report.missing_bytes += len;
                continue;
            }
            let is_held = sources.chunks.store.contains(&want.digest);
            let flight = (!is_held).then(|| sources.obtain(disk, want, Priority::Guest, deadline));
            flights.push((*want, flight));
        }
        let mut obtained = Vec::new();
        for (want, flight) in flights {
            let len = want.chunk_size.bytes() as u64;
            match flight {
                None => report.pinned_bytes += len,
                Some(flight) => match flight.wait(deadline).await {
                    Ok(chunk) => obtained.push((want.digest, chunk.bytes)),
                    Err(_) => {
                        self.unpin_digest(disk_id, &want.digest);
                        report.missing_bytes += len;
                    }
                },
            }
        }
        if !obtained.is_empty() {
            self.keep_pinned(disk_id, obtained, report).await;
        }
    }

    /// Writes chunks whose pins are set; a pin means that the chunk is there, so not in background.
    async fn keep_pinned(
        &self,
        disk_id: &DiskId,
        chunks: Vec<(Digest, Bytes)>,
        report: &mut PinReport,
    ) {
        let sizes: Vec<(Digest, u64)> =
            chunks.iter().map(|(digest, bytes)| (*digest, bytes.len() as u64)).collect();
        let sources: Arc<Sources> = self.sources.clone();
        let written = self.sources.runtime.spawn_blocking(move || {
            let outcomes = sources.chunks.store.insert_many(&chunks)?;
            // Pinned is what the disk has, and nobody else may look for long.
            sources.chunks.store.finish_writeback()?;
            Ok::<_, LocalError>(outcomes)
        });
        let written = written.await;
        let outcomes = match written {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(error)) => {
                tracing::warn!(kind = error.kind.as_str(), "chunks were not pinned: {error}");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        self.sources.metrics.inserted(&outcomes);
        for (position, (digest, len)) in sizes.into_iter().enumerate() {
            match outcomes.get(position) {
                Some(InsertOutcome::New | InsertOutcome::Present) => report.pinned_bytes += len,
                Some(InsertOutcome::Refused) | None => {
                    self.unpin_digest(disk_id, &digest);
                    report.missing_bytes += len;
                }
            }
        }
    }

    /// Pins a digest for a disk, once; `false`: the bound on pins is reached.
    fn pin_digest(&self, disk_id: &DiskId, digest: &Digest) -> bool {
        let mut pins = self.pins.lock();
        if pins.get(disk_id).is_some_and(|pinned| pinned.contains(digest)) {
            return true;
        }
        match self.sources.chunks.store.pin(digest) {
            Ok(()) => {
                pins.entry(*disk_id).or_default().insert(*digest);
                true
            }
            Err(error) => {
                let is_bound = error.kind == ErrorKind::Exhausted;
                tracing::warn!(disk = %disk_id, is_bound, "not pinned: {error}");
                false
            }
        }
    }

    fn unpin_digest(&self, disk_id: &DiskId, digest: &Digest) {
        let mut pins = self.pins.lock();
        if pins.get_mut(disk_id).is_some_and(|pinned| pinned.remove(digest)) {
            self.sources.chunks.store.unpin(digest);
        }
    }
}

/// The distinct chunks with content of the head and the tail, in the order of the disk.
fn wants(disk: &Disk, head_bytes: u64, tail_bytes: u64) -> Vec<Want> {
    let size = disk.manifest.chunk_size();
    let count = disk.manifest.chunk_count();
    let head = size.count_for(head_bytes.min(disk.manifest.size_bytes()));
    let tail_start = disk.manifest.size_bytes().saturating_sub(tail_bytes);
    let tail = if tail_bytes == 0 { count } else { size.index_of(tail_start) };
    let mut seen = HashSet::new();
    (0..head)
        .chain(tail.max(head)..count)
        .filter_map(|index| disk.want(index))
        .filter(|want| seen.insert(want.digest))
        .collect()
}
