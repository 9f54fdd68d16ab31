//! The chunks that are pinned in the store, by the disk that they are pinned for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use acstor_types::{Digest, DiskId};
use parking_lot::Mutex;

use crate::{LocalError, LocalStore};

/// The pins of one purpose: each digest is pinned in the store once for each disk.
pub(crate) struct PinTable {
    store: Arc<dyn LocalStore>,
    by_disk: Mutex<HashMap<DiskId, HashSet<Digest>>>,
}

/// A pin that is taken back unless it is kept.
pub(crate) struct Pinned {
    table: Arc<PinTable>,
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
        if !self.is_kept {
            self.table.unpin(&self.disk, &self.digest);
        }
    }
}

impl PinTable {
    pub(crate) fn new(store: Arc<dyn LocalStore>) -> PinTable {
        PinTable { store, by_disk: Mutex::default() }
    }

    /// Pins a digest for a disk; `false`: it is pinned for it already.
    pub(crate) fn pin(&self, disk: &DiskId, digest: &Digest) -> Result<bool, LocalError> {
        let mut by_disk = self.by_disk.lock();
        if by_disk.get(disk).is_some_and(|pinned| pinned.contains(digest)) {
            return Ok(false);
        }
        self.store.pin(digest)?;
        by_disk.entry(*disk).or_default().insert(*digest);
        Ok(true)
    }

    /// Pins a digest for a disk until it turns out whether the pin is kept; `None`: it is pinned for it
    /// already.
    pub(crate) fn try_pin(
        self: &Arc<Self>,
        disk: &DiskId,
        digest: &Digest,
    ) -> Result<Option<Pinned>, LocalError> {
        let (table, disk, digest) = (self.clone(), *disk, *digest);
        let is_new = self.pin(&disk, &digest)?;
        Ok(is_new.then(|| Pinned { table, disk, digest, is_kept: false }))
    }

    /// Takes one pin of a disk back.
    pub(crate) fn unpin(&self, disk: &DiskId, digest: &Digest) {
        let mut by_disk = self.by_disk.lock();
        if by_disk.get_mut(disk).is_some_and(|pinned| pinned.remove(digest)) {
            self.store.unpin(digest);
        }
    }

    /// Takes the pins of a disk back, but for those of `keep`.
    pub(crate) fn unpin_except(&self, disk: &DiskId, keep: &HashSet<Digest>) {
        let mut by_disk = self.by_disk.lock();
        let Some(pinned) = by_disk.get_mut(disk) else { return };
        pinned.retain(|digest| {
            let is_kept = keep.contains(digest);
            if !is_kept {
                self.store.unpin(digest);
            }
            is_kept
        });
        if pinned.is_empty() {
            by_disk.remove(disk);
        }
    }

    /// Takes all pins of a disk back.
    pub(crate) fn unpin_all(&self, disk: &DiskId) {
        let pinned = self.by_disk.lock().remove(disk);
        for digest in pinned.iter().flatten() {
            self.store.unpin(digest);
        }
    }

    /// Adds the digests pinned for a disk to others.
    pub(crate) fn add_to(&self, digests: &mut HashSet<Digest>, disk: &DiskId) {
        digests.extend(self.by_disk.lock().get(disk).into_iter().flatten());
    }

    /// Counts the digests that this table or another one has pinned for a disk.
    pub(crate) fn count_with(&self, other: &PinTable, disk: &DiskId) -> usize {
        let (ours, theirs) = (self.by_disk.lock(), other.by_disk.lock());
        let none = HashSet::new();
        let pinned = ours.get(disk).unwrap_or(&none);
        pinned.union(theirs.get(disk).unwrap_or(&none)).count()
    }
}
