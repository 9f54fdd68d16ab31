//! Chunks that this host made itself: a fold's, which nobody has to obtain.

use std::time::Duration;

use acstor_types::Digest;
use bytes::Bytes;

use crate::ReadPath;

/// Longest wait for room in the queue of chunks to be written.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

impl ReadPath {
    /// Keeps a chunk in the chunk store, as one that was obtained; blocks while the queue is full,
    /// for two seconds at most. Without room the chunk is not kept: the origin has it.
    ///
    /// `bytes` must be what `digest` names.
    pub fn keep(&self, digest: Digest, bytes: Bytes) {
        if !self.sources.chunks.inserter.push(digest, bytes.clone()) {
            self.sources.chunks.inserter.flush(ROOM_TIMEOUT);
            self.sources.chunks.insert(digest, bytes);
        }
    }
}
