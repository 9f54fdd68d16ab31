//! A chunk in its slot, kept from being reused while somebody reads it.

use std::fmt;
use std::io;
use std::sync::Arc;

use acstor_types::Digest;
use bytes::Bytes;

use crate::core::Core;

/// A chunk in its slot. While a guard lives, the slot is not reused, even if the chunk is evicted
/// from the index or the store is dropped. Cheap to clone.
pub struct ChunkGuard {
    core: Arc<Core>,
    slot: u32,
    digest: Digest,
}

#[expect(clippy::len_without_is_empty, reason = "a chunk is never empty")]
impl ChunkGuard {
    /// Takes over a guard that was counted on `slot`.
    pub(crate) fn new(core: Arc<Core>, slot: u32, digest: Digest) -> ChunkGuard {
        ChunkGuard { core, slot, digest }
    }

    /// Size of the chunk, bytes: the chunk size of the store.
    pub fn len(&self) -> usize {
        self.core.directory.geometry.chunk_size.bytes()
    }

    /// First byte of the chunk in the mapped slot file; [`ChunkGuard::len`] bytes are valid while
    /// the guard lives. To be used at once: pages that leave memory come back without being hashed.
    ///
    /// Only the kernel may read them (`writev`, `sendmsg`): if the file is truncated under the
    /// mapping, or the disk fails, the kernel answers EFAULT where user space would get SIGBUS.
    /// On EFAULT call [`ChunkGuard::note_fault`].
    pub fn mapped(&self) -> *const u8 {
        self.core.mapped(self.slot)
    }

    /// Returns whether `len` bytes from `start` on can be sent out of the mapping as they are: memory has
    /// them, and they are what was published. For whoever has waited since the look. Where it says no,
    /// [`ChunkGuard::read_at`] reads and hashes them.
    pub fn is_at_hand(&self, start: usize, len: usize) -> bool {
        self.core.is_at_hand(self.slot, start, len)
    }

    /// Tells the store that the kernel answered EFAULT for an answer with [`ChunkGuard::mapped`] among
    /// its parts; to be told of each of them. The chunk is read and hashed before it is used again. Where
    /// the file was cut all are, which finds those that are gone: while it is being cut, pages behind its
    /// new end still count as in memory.
    pub fn note_fault(&self) {
        self.core.note_fault(self.slot);
    }

    /// Fills `buffer` with the bytes of the chunk from `start` on. Where they are not in memory the
    /// chunk is read from the disk, which may wait, and hashed.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not inside the chunk. Else `InvalidData` when the content has
    /// another digest, or the kernel's error (`UnexpectedEof` for a truncated file): the chunk is
    /// then out of the store, counted in [`crate::StoreStats::corrupt`] or
    /// [`crate::StoreStats::read_errors`], and the caller goes to the next source.
    pub fn read_at(&self, start: usize, buffer: &mut [u8]) -> io::Result<()> {
        let end = start.checked_add(buffer.len());
        if end.is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.core.read_part(self.slot, &self.digest, start, buffer)
    }

    /// Returns a copy of the chunk.
    ///
    /// # Errors
    /// As [`ChunkGuard::read_at`].
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        let mut content = vec![0; self.len()];
        self.core.read_part(self.slot, &self.digest, 0, &mut content)?;
        Ok(Bytes::from(content))
    }

    /// Returns a copy of `len` bytes from `start` on where that needs no I/O; `None` where the disk
    /// would be read, or the range is not inside the chunk.
    pub fn try_copy(&self, start: usize, len: usize) -> Option<Bytes> {
        if start.checked_add(len).is_none_or(|end| end > self.len()) {
            return None;
        }
        let mut content = vec![0; len];
        self.core.try_read(self.slot, start, &mut content).then(|| Bytes::from(content))
    }
}

impl Clone for ChunkGuard {
    fn clone(&self) -> ChunkGuard {
        self.core.states.acquire_again(self.slot);
        ChunkGuard { core: Arc::clone(&self.core), slot: self.slot, digest: self.digest }
    }
}

impl Drop for ChunkGuard {
    fn drop(&mut self) {
        self.core.release(self.slot);
    }
}

impl fmt::Debug for ChunkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkGuard").field("slot", &self.slot).finish_non_exhaustive()
    }
}
