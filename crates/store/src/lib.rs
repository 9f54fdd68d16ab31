//! The chunk store: digests held on one host's disk.

mod config;
mod error;
pub mod limits;
mod stats;

use std::io;
use std::sync::Arc;

use acstor_types::Digest;
use bytes::Bytes;
pub use config::{EvictionKind, ParseEvictionError, StoreConfig};
pub use error::StoreError;
pub use stats::StoreStats;

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Inserted {
    /// The chunk was written and published.
    New,
    /// The chunk was there already.
    Present,
    /// Every slot is pinned, guarded or being filled; the store is unchanged.
    Refused,
}

/// The chunks that one host keeps on its disk. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChunkStore(Arc<stats::Counters>);

/// A chunk in its slot. While a guard lives, the slot is not reused. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChunkGuard(Arc<stats::Counters>);

impl ChunkStore {
    /// Opens the store, creating it when absent.
    ///
    /// # Errors
    /// [`StoreError`] that says what to do.
    pub fn open(config: &StoreConfig) -> Result<ChunkStore, StoreError> {
        let _ = config;
        Ok(ChunkStore(Arc::default()))
    }

    /// Returns the chunk, or `None` when the store does not have it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get(&self, _digest: &Digest) -> Result<Option<ChunkGuard>, StoreError> {
        self.0.misses.add(1);
        Ok(None)
    }

    /// Returns whether the store has the chunk; does not count as a use of it.
    pub fn contains(&self, _digest: &Digest) -> bool {
        false
    }

    /// Stores a chunk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn insert(&self, _digest: &Digest, _content: &[u8]) -> Result<Inserted, StoreError> {
        Ok(Inserted::Refused)
    }

    /// Stores chunks, neighbouring slots in one write; one outcome per chunk.
    ///
    /// # Errors
    /// [`StoreError`]: the first failure; chunks that were published stay.
    pub fn insert_many(&self, chunks: &[(Digest, Bytes)]) -> Result<Vec<Inserted>, StoreError> {
        Ok(chunks.iter().map(|_| Inserted::Refused).collect())
    }

    /// Keeps the chunk of this digest from being evicted, now or once it is inserted.
    ///
    /// # Errors
    /// [`StoreError::PinLimit`].
    pub fn pin(&self, _digest: &Digest) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes back one [`ChunkStore::pin`] of this digest.
    pub fn unpin(&self, _digest: &Digest) {}

    /// Returns the counters.
    pub fn stats(&self) -> StoreStats {
        StoreStats { misses: self.0.misses.get(), ..StoreStats::default() }
    }

    /// Returns the digests of the chunks held, in no order.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        std::iter::empty()
    }
}

#[expect(clippy::len_without_is_empty, reason = "a chunk is never empty")]
impl ChunkGuard {
    /// Size of the chunk, bytes: the chunk size of the store.
    pub fn len(&self) -> usize {
        0
    }

    /// First byte of the chunk in the mapped slot file, for `writev` and `sendmsg` only.
    pub fn mapped(&self) -> *const u8 {
        std::ptr::null()
    }

    /// Fills `buffer` with the bytes of the chunk from `start` on.
    ///
    /// # Errors
    /// The kernel's error; the chunk is then gone from the store.
    pub fn read_at(&self, _start: usize, _buffer: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns a copy of the chunk.
    ///
    /// # Errors
    /// As [`ChunkGuard::read_at`].
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
