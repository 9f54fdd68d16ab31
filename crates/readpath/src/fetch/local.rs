//! The seam to this host's chunk store.

use std::ops::Range;

use acstor_store::{ChunkGuard, ChunkStore, Cursor, Discarded, Inserted, Look, StoreError};
use acstor_types::{ChunkSize, Digest, ErrorKind};
use bytes::Bytes;

/// Place of a chunk on this host, as far as that is known without I/O.
#[derive(Clone, Debug)]
pub enum LocalLook {
    /// At hand.
    Memory(LocalChunk),
    /// On the disk: [`LocalStore::read`] of this part of the chunk brings it.
    Disk(Range<usize>),
    /// Not here.
    Absent,
}

/// A chunk that is on this host.
#[derive(Clone, Debug)]
pub enum LocalChunk {
    /// In the mapped slot file; while this lives the slot is not reused.
    Mapped(ChunkGuard),
    /// In memory.
    Bytes(Bytes),
    /// In memory, as much of it as was wanted.
    Part(Bytes),
}

/// Outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// The chunk was written.
    New,
    /// The chunk was there already.
    Present,
    /// There is no slot that may be reused.
    Refused,
}

/// Reason for which the chunk store could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("chunk store: {message}")]
pub struct LocalError {
    /// Kind, which says what a caller can do about it.
    pub kind: ErrorKind,
    /// The store's own text.
    pub message: String,
}

/// Fill of a chunk store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalUsage {
    /// Bytes that the store may hold.
    pub capacity_bytes: u64,
    /// Bytes of the chunks held.
    pub used_bytes: u64,
    /// Bytes of the chunks pinned.
    pub pinned_bytes: u64,
    /// Most bytes that may be pinned.
    pub pinned_max_bytes: u64,
}

/// The digests held on this host's disk.
///
/// The caller guarantees that inserted content matches its digest. The implementation must return
/// exactly the chunk that the digest names or nothing, from any thread. Only [`LocalStore::read`],
/// [`LocalStore::insert_many`], [`LocalStore::finish_writeback`] and [`LocalStore::coldest`] may wait,
/// for the local disk.
pub trait LocalStore: Send + Sync + 'static {
    /// Size of every chunk of the store.
    fn chunk_size(&self) -> ChunkSize;
    /// Looks a chunk up of which `len` bytes from `start` on are wanted.
    fn look(&self, digest: &Digest, start: usize, len: usize) -> LocalLook;
    /// Reads a part of a chunk from the disk; `None` where the store has it not (or no longer intact).
    ///
    /// # Errors
    /// [`LocalError`] when the disk fails; the read path counts it and takes it for a miss.
    fn read(&self, digest: &Digest, part: &Range<usize>) -> Result<Option<Bytes>, LocalError>;
    /// Returns whether the store has a chunk, without touching its eviction state.
    fn contains(&self, digest: &Digest) -> bool;
    /// As [`LocalStore::contains`], of a digest of which the prefix ([`Digest::prefix_u64`]) is known, and
    /// may be wrong once in a great while: cheap enough to ask of every chunk of every image.
    fn likely_contains(&self, prefix: u64) -> bool;
    /// Sees to it that a chunk which nobody has read so far is not the first to leave.
    fn favor(&self, digest: &Digest);
    /// Looks at up to `count` chunks from the cold end on; returns those that were not used lately and
    /// are not pinned, and moves the cursor on. A store that knows no cold end returns none.
    fn coldest(&self, _cursor: &mut Cursor, _count: usize) -> Vec<Digest> {
        Vec::new()
    }
    /// Makes a chunk leave before all others, unless it is used before. Called for chunks that
    /// [`LocalStore::coldest`] returned.
    fn demote(&self, _digest: &Digest) {}
    /// As [`LocalStore::likely_contains`], but not for a chunk that was demoted and not used since.
    fn keeps(&self, digest: &Digest) -> bool {
        self.likely_contains(digest.prefix_u64())
    }
    /// Keeps chunks; one outcome per chunk, in order.
    ///
    /// # Errors
    /// [`LocalError`] when the disk fails; some of the chunks may have been kept.
    fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<InsertOutcome>, LocalError>;
    /// Sees to it that what was inserted last reaches the disk, and finds out whether it did.
    ///
    /// # Errors
    /// [`LocalError`] when the disk refused it: the store knows by then not to trust it.
    fn finish_writeback(&self) -> Result<(), LocalError> {
        Ok(())
    }
    /// Keeps a chunk from being evicted, now or once it is inserted; counted.
    ///
    /// # Errors
    /// Kind `Exhausted` when the bound on pins is reached.
    fn pin(&self, digest: &Digest) -> Result<(), LocalError>;
    /// Takes one pin back.
    fn unpin(&self, digest: &Digest);
    /// Takes chunks out of the store for good, pinned or not; those that somebody reads just now stay.
    ///
    /// # Errors
    /// [`LocalError`] when the disk fails; some of the chunks may be gone.
    fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError>;
    /// Returns the fill of the store.
    fn usage(&self) -> LocalUsage;
}

/// The chunk store of this host as a [`LocalStore`].
#[derive(Clone, Debug)]
pub struct HostStore {
    store: ChunkStore,
    chunk_size: ChunkSize,
}

impl HostStore {
    /// Wraps an open store whose chunks are `chunk_size` long.
    pub fn new(store: ChunkStore, chunk_size: ChunkSize) -> HostStore {
        HostStore { store, chunk_size }
    }
}

fn local_error(error: &StoreError) -> LocalError {
    LocalError { kind: error.kind(), message: error.to_string() }
}

impl LocalStore for HostStore {
    fn chunk_size(&self) -> ChunkSize {
        self.chunk_size
    }

    fn look(&self, digest: &Digest, start: usize, len: usize) -> LocalLook {
        match self.store.look(digest, start, len) {
            Look::Memory(guard) => LocalLook::Memory(LocalChunk::Mapped(guard)),
            Look::Copy(bytes) => LocalLook::Memory(LocalChunk::Part(bytes)),
            Look::Disk(part) => LocalLook::Disk(part),
            Look::Absent => LocalLook::Absent,
        }
    }

    fn read(&self, digest: &Digest, part: &Range<usize>) -> Result<Option<Bytes>, LocalError> {
        Ok(self.store.read(digest, part))
    }

    fn finish_writeback(&self) -> Result<(), LocalError> {
        self.store.finish_writeback().map_err(|error| local_error(&error))
    }

    fn contains(&self, digest: &Digest) -> bool {
        self.store.contains(digest)
    }

    fn likely_contains(&self, prefix: u64) -> bool {
        self.store.likely_contains(prefix)
    }

    fn favor(&self, digest: &Digest) {
        self.store.favor(digest);
    }

    fn coldest(&self, cursor: &mut Cursor, count: usize) -> Vec<Digest> {
        self.store.coldest(cursor, count)
    }

    fn demote(&self, digest: &Digest) {
        self.store.demote(digest);
    }

    fn keeps(&self, digest: &Digest) -> bool {
        self.store.keeps(digest)
    }

    fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<InsertOutcome>, LocalError> {
        let outcomes = self.store.insert_many(chunks).map_err(|error| local_error(&error))?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Inserted::New => InsertOutcome::New,
                Inserted::Present => InsertOutcome::Present,
                Inserted::Refused => InsertOutcome::Refused,
            })
            .collect())
    }

    fn pin(&self, digest: &Digest) -> Result<(), LocalError> {
        self.store.pin(digest).map_err(|error| local_error(&error))
    }

    fn unpin(&self, digest: &Digest) {
        self.store.unpin(digest);
    }

    fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError> {
        self.store.discard(digests).map_err(|error| local_error(&error))
    }

    fn usage(&self) -> LocalUsage {
        let stats = self.store.stats();
        let chunk = self.chunk_size.bytes() as u64;
        LocalUsage {
            capacity_bytes: stats.slots * chunk,
            used_bytes: stats.slots_used * chunk,
            pinned_bytes: stats.pinned * chunk,
            pinned_max_bytes: stats.pinned_max * chunk,
        }
    }
}
