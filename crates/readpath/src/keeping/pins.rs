//! Pinning the head and the tail of a disk: what Nova and QEMU read of every image first.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_types::{Digest, DiskId, ErrorKind};
use bytes::Bytes;

use crate::fetch::flight::{Flight, Priority};
use crate::fetch::sources::{Sources, Want};
use crate::keeping::pin_table::PinTable;
use crate::view::attachments::Attachments;
use crate::view::disk::Disk;
use crate::view::manifest_source::ManifestFault;
use crate::{DiskShape, InsertOutcome, LocalError, ReadPathError, limits};

/// Result of a pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinReport {
    /// Bytes of the disk that are pinned and in the chunk store; zero chunks need no pin and do
    /// not count.
    pub pinned_bytes: u64,
    /// Bytes that could not be obtained in time, or that the bound on pins refused.
    pub missing_bytes: u64,
}

/// The pinned heads and tails of the attached disks.
pub(crate) struct Pins {
    sources: Arc<Sources>,
    attachments: Arc<Attachments>,
    table: Arc<PinTable>,
}

impl Pins {
    pub(crate) fn new(
        sources: Arc<Sources>,
        attachments: Arc<Attachments>,
        table: Arc<PinTable>,
    ) -> Pins {
        Pins { sources, attachments, table }
    }

    /// Fetches the first `head_bytes` and last `tail_bytes` of a disk into the chunk store and keeps
    /// them there, in place of the disk's former pins.
    ///
    /// # Errors
    /// [`ReadPathError::NotAttached`], [`ReadPathError::Manifest`].
    ///
    /// # Cancel safety
    /// What was pinned until then stays pinned, and is unpinned by the next pin or the detach.
    pub(crate) async fn pin(
        &self,
        disk_id: &DiskId,
        head_bytes: u64,
        tail_bytes: u64,
        timeout: Duration,
    ) -> Result<PinReport, ReadPathError> {
        let disk = self.attachments.read_apart(disk_id).await?;
        let deadline = self.sources.clock.now() + timeout.min(limits::DURATION_MAX);
        let wants = self.wants(&disk, head_bytes, tail_bytes, deadline).await?;
        let keep: HashSet<Digest> = wants.iter().map(|want| want.digest).collect();
        self.table.unpin_except(disk_id, &keep);
        let mut report = PinReport::default();
        for window in wants.chunks(limits::PIN_WINDOW_CHUNKS) {
            self.pin_window(&disk, window, deadline, &mut report).await;
        }
        Ok(report)
    }

    async fn wants(
        &self,
        disk: &Arc<Disk>,
        head_bytes: u64,
        tail_bytes: u64,
        deadline: RunInstant,
    ) -> Result<Vec<Want>, ReadPathError> {
        if !disk.is_paged() {
            return wants(disk, head_bytes, tail_bytes).map_err(|fault| disk.refused(fault));
        }
        let look_up = move |disk: &Disk| wants(disk, head_bytes, tail_bytes);
        let found = self.sources.look_up(disk, Priority::Preload, deadline, look_up).await;
        found.map_err(|error| ReadPathError::Manifest {
            disk: disk.id(),
            kind: error.kind(),
            reason: error.to_string(),
        })
    }

    /// Takes the pins of a disk back.
    pub(crate) fn forget(&self, disk_id: &DiskId) {
        self.table.unpin_all(disk_id);
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
                        self.table.unpin(disk_id, &want.digest);
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
                    self.table.unpin(disk_id, &digest);
                    report.missing_bytes += len;
                }
            }
        }
    }

    /// Pins a digest for a disk, once; `false`: the bound on pins is reached.
    fn pin_digest(&self, disk_id: &DiskId, digest: &Digest) -> bool {
        let pinned = self.table.pin(disk_id, digest);
        if let Err(error) = &pinned {
            let is_bound = error.kind == ErrorKind::Exhausted;
            tracing::warn!(disk = %disk_id, is_bound, "not pinned: {error}");
        }
        pinned.is_ok()
    }
}

/// The distinct chunks with content of the head and the tail, in the order of the disk. Waits for this
/// host's disk.
fn wants(disk: &Disk, head_bytes: u64, tail_bytes: u64) -> Result<Vec<Want>, ManifestFault> {
    let DiskShape { chunk_size, chunk_count: count, size_bytes, .. } = disk.shape;
    let head = chunk_size.count_for(head_bytes.min(size_bytes));
    let tail_start = size_bytes.saturating_sub(tail_bytes);
    let tail = if tail_bytes == 0 { count } else { chunk_size.index_of(tail_start) };
    let (mut seen, mut wants) = (HashSet::new(), Vec::new());
    for range in [0..head, tail.max(head)..count] {
        disk.visit_digests(range, |index, digest| {
            if seen.insert(digest) {
                wants.extend(disk.want(index)?);
            }
            Ok(())
        })?;
    }
    Ok(wants)
}
