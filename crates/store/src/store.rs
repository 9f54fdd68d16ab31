//! The store's handle: what the read path and the registration of pins call.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::core::{Core, Place};
use crate::directory::{Directory, random_seed};
use crate::disk::{Disk, HostDisk};
use crate::eviction::TouchFilter;
use crate::guard::ChunkGuard;
use crate::index::Key;
use crate::page_sums::PageSums;
use crate::pins::Pins;
use crate::recovery::recover;
use crate::stats::Counters;
use crate::writeback::Writeback;
use crate::{Discarded, Sketch, StoreConfig, StoreError, StoreStats, limits};

/// Result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Inserted {
    /// The chunk was written and published.
    New,
    /// The chunk was there already.
    Present,
    /// No slot could be had: every one is pinned, guarded or being filled; or another digest with
    /// the same first eight bytes has one. The chunk is not stored.
    Refused,
}

/// Place of a chunk, as far as that is known without I/O.
#[derive(Debug)]
pub enum Look {
    /// In memory, and what the digest names.
    Memory(ChunkGuard),
    /// The bytes wanted, in memory and what the digest names: other bytes of the chunk are not.
    Copy(Bytes),
    /// On the disk: [`ChunkStore::read`] of this part of the chunk brings it, or finds out that it is
    /// lost.
    Disk(Range<usize>),
    /// Not in the store.
    Absent,
}

/// Position of a walk from the cold end of a store; the default is at the cold end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Option<u32>);

impl Cursor {
    /// Returns whether the walk is at the cold end: at its beginning, or through.
    pub fn is_at_cold_end(self) -> bool {
        self.0.is_none()
    }
}

/// The chunks that one host keeps on its disk. Cheap to clone; the lock on the directory is given
/// up when the last clone and the last guard are dropped.
///
/// Any number of threads may call it. No call waits for another one's I/O, and a hit takes no
/// exclusive lock (with the policies S3-FIFO and FIFO).
#[derive(Clone, Debug)]
pub struct ChunkStore {
    core: Arc<Core>,
}

impl ChunkStore {
    /// Opens the store, creating it when absent; reads every record (under a second per million).
    ///
    /// A changed capacity is taken over: a larger one adds slots, a smaller one drops the chunks
    /// of the slots past the new end. A changed chunk size empties the store.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it open, [`StoreError::Version`] when a
    /// newer release wrote it, [`StoreError::Capacity`] when the size is out of range,
    /// [`StoreError::Preallocate`] when the disk has no room for it, [`StoreError::Io`] else.
    pub fn open(config: &StoreConfig) -> Result<ChunkStore, StoreError> {
        ChunkStore::open_on(config, &HostDisk)
    }

    /// Opens the store with its two large files on `disk`: for tests with disks that fail.
    ///
    /// # Errors
    /// As [`ChunkStore::open`].
    pub fn open_on(config: &StoreConfig, disk: &dyn Disk) -> Result<ChunkStore, StoreError> {
        let directory = Directory::open(config, disk)?;
        let slot_count = directory.geometry.slot_count;
        let policy = config.eviction.policy(slot_count);
        let recovered = recover(&directory, &*policy);
        let counters = Counters::default();
        counters.corrupt.add(recovered.damaged);
        counters.read_errors.add(recovered.unreadable);
        counters.recovered.add(recovered.index.len().into());
        tracing::info!(
            path = %config.path.display(),
            slots = slot_count,
            chunks = recovered.index.len(),
            damaged = recovered.damaged,
            eviction = %config.eviction,
            "chunk store open"
        );
        let page_sums = PageSums::new(
            slot_count,
            config.chunk_size,
            limits::PAGE_SUMS_BYTES_MAX,
            random_seed()?,
        );
        let core = Core {
            directory,
            states: recovered.states,
            index: RwLock::new(recovered.index),
            policy,
            touch_filter: TouchFilter::new(),
            pins: Mutex::new(Pins::new(slot_count)),
            free: Mutex::new(recovered.free),
            next_seq: AtomicU64::new(recovered.next_seq),
            doubt_epoch: AtomicU64::new(0),
            cut_to: AtomicU64::new(u64::MAX),
            repair: Mutex::new(()),
            writeback: Writeback::default(),
            page_sums,
            counters,
        };
        Ok(ChunkStore { core: Arc::new(core) })
    }

    /// Looks a chunk up of which `len` bytes from `start` on are wanted, without any I/O.
    pub fn look(&self, digest: &Digest, start: usize, len: usize) -> Look {
        match self.core.place(digest, start, len) {
            Place::Memory(slot) => {
                self.core.touch(slot);
                Look::Memory(ChunkGuard::new(Arc::clone(&self.core), slot, *digest))
            }
            Place::Copy(bytes) => Look::Copy(bytes),
            Place::Disk(part) => Look::Disk(part),
            Place::Absent => {
                self.core.counters.misses.add(1);
                Look::Absent
            }
        }
    }

    /// Reads `part` of the chunk by one read of the disk; `None` when the store does not have it. Pages
    /// whose checksums are known are compared with them; else the chunk is read whole and hashed.
    ///
    /// Content that is not what the digest names and a read that fails are misses, counted in
    /// [`StoreStats::corrupt`] and [`StoreStats::read_errors`], and the slot is freed.
    pub fn read(&self, digest: &Digest, part: &Range<usize>) -> Option<Bytes> {
        let content = self.core.read_range(digest, part);
        if content.is_none() {
            self.core.counters.misses.add(1);
        }
        content
    }

    /// Returns the chunk, or `None` when the store does not have it.
    ///
    /// A chunk that is in memory and verified comes without I/O; any other is read and hashed, as
    /// by [`ChunkStore::read`].
    ///
    /// # Errors
    /// None today: whatever a disk can do to a chunk makes it a miss.
    pub fn get(&self, digest: &Digest) -> Result<Option<ChunkGuard>, StoreError> {
        let Some(slot) = self.core.find_verified(digest) else {
            self.core.counters.misses.add(1);
            return Ok(None);
        };
        self.core.touch(slot);
        Ok(Some(ChunkGuard::new(Arc::clone(&self.core), slot, *digest)))
    }

    /// Returns whether the store has the chunk; does not count as a use of it, and does not hash
    /// its content.
    pub fn contains(&self, digest: &Digest) -> bool {
        self.core.contains(digest)
    }

    /// As [`ChunkStore::contains`], of the digest with this [`Digest::prefix_u64`] and without a guard
    /// being taken: for look-ups by the million.
    pub fn likely_contains(&self, prefix: u64) -> bool {
        self.core.index.read().find_prefix(prefix).is_some()
    }

    /// Counts as two uses of the chunk, so that a scan-resistant policy takes it for one in use and
    /// not for part of a scan; nothing happens when the store does not have it.
    pub fn favor(&self, digest: &Digest) {
        let Some((slot, _)) = self.core.find(digest) else { return };
        for _ in 0..2 {
            self.core.policy.touch(slot);
        }
        self.core.release(slot);
    }

    /// Looks at up to `count` chunks from the cold end on; returns those that were not used lately and
    /// are not pinned, and moves the cursor on. Empty for a policy that knows no cold end.
    pub fn coldest(&self, cursor: &mut Cursor, count: usize) -> Vec<Digest> {
        let (slots, next) = self.core.policy.coldest(cursor.0, count);
        cursor.0 = next;
        slots.into_iter().flat_map(|slot| self.core.digests_of(slot, 1)).collect()
    }

    /// Makes a chunk leave before all others, unless it is used before; nothing happens when the
    /// store does not have it or it is pinned.
    pub fn demote(&self, digest: &Digest) {
        let Some((slot, _)) = self.core.find(digest) else { return };
        self.core.policy.demote(slot);
        self.core.release(slot);
    }

    /// As [`ChunkStore::likely_contains`], but not for a chunk that was demoted and not used since.
    pub fn keeps(&self, digest: &Digest) -> bool {
        let slot = self.core.index.read().find(Key::of(digest));
        slot.is_some_and(|slot| !self.core.policy.is_demoted(slot))
    }

    /// Stores a chunk. Once this returns `New` the chunk survives a kill of the process.
    ///
    /// # Errors
    /// [`StoreError::WrongSize`] or [`StoreError::WrongDigest`] when `content` is not the chunk
    /// that `digest` names; [`StoreError::Io`] when the disk fails: nothing was published then.
    pub fn insert(&self, digest: &Digest, content: &[u8]) -> Result<Inserted, StoreError> {
        let outcomes = self.core.insert_batch(&[(digest, content)])?;
        Ok(outcomes[0])
    }

    /// Stores chunks, neighbouring slots in one write; one outcome per chunk, in order.
    ///
    /// # Errors
    /// The first error of [`ChunkStore::insert`]; the chunks published before it stay.
    pub fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<Inserted>, StoreError> {
        let step = (limits::BATCH_BYTES_MAX / self.chunk_size().bytes()).max(1);
        let mut outcomes = Vec::with_capacity(chunks.len());
        for step in chunks.chunks(step) {
            let step: Vec<_> =
                step.iter().map(|(digest, content)| (digest, content.as_ref())).collect();
            outcomes.extend(self.core.insert_batch(&step)?);
        }
        Ok(outcomes)
    }

    /// Writes back what was inserted so far, waits for it, and looks how it went. Inserts do so by
    /// themselves after each [`limits::WRITEBACK_BYTES`]; this is for the last ones. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk refused a write that the kernel had taken: every chunk is
    /// hashed before it is served again.
    pub fn finish_writeback(&self) -> Result<(), StoreError> {
        self.core.finish_writeback()
    }

    /// Keeps the chunk of this digest from being evicted, now or once it is inserted. Counted:
    /// each pin needs one [`ChunkStore::unpin`]. Not kept over a restart.
    ///
    /// # Errors
    /// [`StoreError::PinLimit`] when a quarter of the slots would be exceeded.
    pub fn pin(&self, digest: &Digest) -> Result<(), StoreError> {
        let core = &self.core;
        let mut pins = core.pins.lock();
        let limit = pins.limit();
        if pins.add(digest).ok_or(StoreError::PinLimit { limit })?
            && let Some((slot, _)) = core.find(digest)
        {
            if core.states.set_pinned(slot, true) {
                core.policy.remove(slot);
            }
            core.release(slot);
        }
        Ok(())
    }

    /// Takes back one [`ChunkStore::pin`] of this digest; one that is not pinned is ignored.
    pub fn unpin(&self, digest: &Digest) {
        let core = &self.core;
        let mut pins = core.pins.lock();
        if pins.take_back(digest)
            && let Some((slot, _)) = core.find(digest)
        {
            if core.states.is_pinned(slot) && core.states.set_pinned(slot, false) {
                core.policy.admit(slot, digest.prefix_u64());
                if !core.states.phase(slot).is_published() {
                    core.policy.remove(slot); // condemned meanwhile, maybe before we admitted it
                }
            }
            core.release(slot);
        }
    }

    /// Takes chunks out of the store for good, pinned or not, and overwrites them with zeros. Chunks that
    /// somebody reads just now stay. A pin stays, too: the chunk is pinned again once it is inserted.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk refuses to overwrite one: that one is out of the store all the
    /// same, those after it are not.
    pub fn discard(&self, digests: &[Digest]) -> Result<Discarded, StoreError> {
        self.core.discard(digests)
    }

    /// Returns the counters and gauges.
    pub fn stats(&self) -> StoreStats {
        let core = &self.core;
        let geometry = core.directory.geometry;
        let counters = &core.counters;
        let slots = u64::from(geometry.slot_count);
        let inserted = counters.inserted.get();
        let (pinned, pinned_max) = {
            let pins = core.pins.lock();
            (pins.len() as u64, pins.limit() as u64)
        };
        StoreStats {
            slots,
            slots_used: slots - u64::from(core.free.lock().len()),
            pinned,
            pinned_max,
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            inserted,
            present: counters.present.get(),
            refused: counters.refused.get(),
            evicted: counters.evicted.get(),
            verified: counters.verified.get(),
            compared: counters.compared.get(),
            corrupt: counters.corrupt.get(),
            read_errors: counters.read_errors.get(),
            write_errors: counters.write_errors.get(),
            writeback_errors: counters.writeback_errors.get(),
            truncations: counters.truncations.get(),
            bytes_inserted: inserted * geometry.chunk_size.bytes() as u64,
            recovered: counters.recovered.get(),
        }
    }

    /// Returns the digests of the chunks held, in the order of their slots. Chunks that come or go
    /// meanwhile may or may not be among them.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        let slot_count = self.core.directory.geometry.slot_count;
        let step = limits::SCAN_RECORDS as u32;
        (0..slot_count)
            .step_by(limits::SCAN_RECORDS)
            .flat_map(move |first| self.core.digests_of(first, step.min(slot_count - first)))
    }

    /// Returns the sketch of the chunks held: their number and the `count` smallest digest prefixes,
    /// at most [`limits::SKETCH_MAX`].
    ///
    /// Costs microseconds and no I/O; a scan of 4 bytes per slot where the store is almost empty.
    pub fn sketch(&self, count: usize) -> Sketch {
        let index = self.core.index.read();
        let smallest = index.smallest(count.min(limits::SKETCH_MAX));
        Sketch { count: index.len().into(), smallest }
    }

    /// Size of every chunk.
    pub fn chunk_size(&self) -> ChunkSize {
        self.core.directory.geometry.chunk_size
    }

    /// Identity of the store: made when its superblock was, kept over restarts.
    pub fn store_id(&self) -> [u8; 16] {
        self.core.directory.store_id
    }
}
