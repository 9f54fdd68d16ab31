//! The chunks of this host: in its store, on the way there, or obtained a moment ago.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use acstor_store::Discarded;
use acstor_types::Digest;
use bytes::Bytes;

use crate::ahead::ahead_memory::AheadMemory;
use crate::fetch::flight::{Obtained, Priority};
use crate::keeping::ghost::GhostTable;
use crate::keeping::inserter::Inserter;
use crate::keeping::recent::RecentCache;
use crate::keeping::store_reader::StoreReader;
use crate::observe::metrics::Metrics;
use crate::{Keep, LocalChunk, LocalError, LocalLook, LocalStore, Tier};

/// Longest wait for room in the queue of chunks to be written.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

/// Place of a chunk on this host, as far as that is known without I/O.
pub(crate) enum AtHost {
    Memory(LocalChunk, Tier),
    /// On the disk of the chunk store only; so much of it is to be read.
    Disk(Range<usize>),
    Absent,
}

/// Chunks of this host: the first source of a read, and the store of what it obtained.
pub(crate) struct HostChunks {
    pub(crate) store: Arc<dyn LocalStore>,
    pub(crate) reader: StoreReader,
    pub(crate) recent: RecentCache,
    pub(crate) ahead: AheadMemory,
    pub(crate) inserter: Arc<Inserter>,
    pub(crate) ghosts: GhostTable,
    /// Policy of keeping chunks that were fetched from a peer.
    pub(crate) keep: Keep,
    pub(crate) metrics: Arc<Metrics>,
}

impl HostChunks {
    /// Looks for a chunk of which `len` bytes from `start` on are wanted; no I/O.
    ///
    /// Asks the store first: a hit takes no other lock.
    pub(crate) fn find_here(&self, digest: &Digest, start: usize, len: usize) -> AtHost {
        let look = self.store.look(digest, start, len);
        if let LocalLook::Memory(chunk) = look {
            return AtHost::Memory(chunk, Tier::Store);
        }
        let held = self.inserter.get(digest).or_else(|| self.recent.get(digest));
        match held.or_else(|| self.ahead.get(digest)) {
            Some(bytes) => AtHost::Memory(LocalChunk::Bytes(bytes), Tier::Recent),
            None => match look {
                LocalLook::Disk(part) => AtHost::Disk(part),
                _ => AtHost::Absent,
            },
        }
    }

    /// Returns a chunk that is in this host's memory, and from where; no I/O.
    pub(crate) fn local_bytes(&self, digest: &Digest) -> Option<(Bytes, Tier)> {
        let AtHost::Memory(chunk, tier) =
            self.find_here(digest, 0, self.store.chunk_size().bytes())
        else {
            return None;
        };
        match chunk {
            LocalChunk::Bytes(bytes) | LocalChunk::Part(bytes) => Some((bytes, tier)),
            // Its pages may have left memory since.
            LocalChunk::Mapped(guard) => Some((guard.try_copy(0, guard.len())?, tier)),
        }
    }

    /// Returns a chunk that is on this host, and from where; waits for the disk, but not long.
    pub(crate) async fn read_local(&self, digest: &Digest) -> Option<(Bytes, Tier)> {
        if let Some(found) = self.local_bytes(digest) {
            return Some(found);
        }
        if !self.store.contains(digest) {
            return None;
        }
        let bytes = self.reader.start(digest, 0..self.store.chunk_size().bytes())?.wait().await?;
        Some((bytes, Tier::Store))
    }

    /// Returns whether [`HostChunks::local_bytes`] would give a chunk; no I/O.
    pub(crate) fn is_local(&self, digest: &Digest) -> bool {
        let len = self.store.chunk_size().bytes();
        matches!(self.find_here(digest, 0, len), AtHost::Memory(..))
    }

    /// Returns whether a chunk is on this host, in memory or on the disk, without touching it; no
    /// I/O.
    pub(crate) fn is_here(&self, digest: &Digest) -> bool {
        self.store.contains(digest)
            || self.recent.contains(digest)
            || self.ahead.contains(digest)
            || self.inserter.get(digest).is_some()
    }

    /// Keeps a chunk that was obtained for `priority`: for a moment in memory, and in the store where
    /// this host is to have it.
    pub(crate) fn note_obtained(&self, digest: Digest, obtained: &Obtained, priority: Priority) {
        if priority == Priority::Preload {
            // Nobody reads it soon, and the preload itself sees to it that it is kept.
            let _ = self.inserter.push(digest, obtained.bytes.clone());
            return;
        }
        if priority == Priority::Ahead && obtained.tier == Tier::Peer {
            // It is kept, and counts as touched, once it is read.
            self.ahead.insert(digest, obtained.bytes.clone());
            return;
        }
        self.keep_obtained(digest, &obtained.bytes, obtained.tier);
    }

    /// Notes that a chunk that was read ahead was read; `is_claimed`: by whoever claimed it.
    pub(crate) fn note_ahead_read(&self, digest: &Digest, is_claimed: bool) {
        let bytes = if is_claimed { self.ahead.leave(digest) } else { self.ahead.get(digest) };
        if let Some(bytes) = bytes {
            self.keep_obtained(*digest, &bytes, Tier::Peer);
        }
    }

    fn keep_obtained(&self, digest: Digest, bytes: &Bytes, tier: Tier) {
        self.recent.insert(digest, bytes.clone());
        let is_kept = match tier {
            // Whatever cost a read of the origin, or moved here with the ring, is kept.
            Tier::Origin | Tier::PreviousOwner => true,
            Tier::Peer => match self.keep {
                Keep::Never => false,
                Keep::SecondTouch => self.ghosts.touch(digest),
                Keep::Always => true,
            },
            Tier::Zero | Tier::Recent | Tier::Store => false,
        };
        if is_kept {
            self.insert(digest, bytes.clone());
        }
    }

    /// Keeps a chunk that this host made itself, a fold's, which nobody has to obtain; waits for room in
    /// the queue, but not long.
    pub(crate) fn keep_made(&self, digest: Digest, bytes: Bytes) {
        if !self.inserter.push(digest, bytes.clone()) {
            self.inserter.flush(ROOM_TIMEOUT);
            self.insert(digest, bytes);
        }
    }

    /// Counts those of some chunks that are on this host; no I/O.
    pub(crate) fn count_here(&self, digests: &[Digest]) -> usize {
        digests.iter().filter(|digest| self.is_here(digest)).count()
    }

    /// Takes chunks from this host for good. Those that somebody reads just now, or that are obtained
    /// anew, stay: it is to be asked for again. Blocks.
    ///
    /// # Errors
    /// [`LocalError`] when the disk fails; some of the chunks may be gone.
    pub(crate) fn discard(&self, digests: &[Digest]) -> Result<Discarded, LocalError> {
        self.recent.remove(digests);
        self.ahead.remove(digests);
        // What waits to be written would come after.
        self.inserter.flush(ROOM_TIMEOUT);
        let discarded = self.store.discard(digests)?;
        self.store.finish_writeback()?;
        Ok(discarded)
    }

    /// Queues a verified chunk for the store.
    pub(crate) fn insert(&self, digest: Digest, bytes: Bytes) {
        if !self.inserter.push(digest, bytes) {
            self.metrics.insert_dropped();
        }
    }
}
