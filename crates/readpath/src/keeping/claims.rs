//! The chunks that this host claims to keep when others ask.

use std::collections::HashSet;
use std::sync::Arc;

use acstor_types::Digest;
use parking_lot::Mutex;

use crate::fetch::sources::Sources;

/// The claims of one host.
pub(crate) struct Claims {
    sources: Arc<Sources>,
    /// Chunks that this host may be about to give up, and does not claim to keep.
    offered: Mutex<HashSet<Digest>>,
}

/// Chunks that are not claimed until this is dropped, however that comes about.
pub(crate) struct Offer<'a> {
    claims: &'a Claims,
    chunks: Vec<Digest>,
}

impl Claims {
    pub(crate) fn new(sources: Arc<Sources>) -> Claims {
        Claims { sources, offered: Mutex::default() }
    }

    /// Returns whether this host has a chunk in its store and means to go on keeping it.
    pub(crate) fn keeps(&self, digest: &Digest) -> bool {
        let is_offered = self.offered.lock().contains(digest);
        !is_offered && !self.sources.is_draining() && self.sources.chunks.store.keeps(digest)
    }

    /// Stops claiming chunks.
    pub(crate) fn offer(&self, chunks: Vec<Digest>) -> Offer<'_> {
        self.offered.lock().extend(&chunks);
        Offer { claims: self, chunks }
    }

    /// Returns the number of chunks that are not claimed.
    #[cfg(test)]
    pub(crate) fn offered(&self) -> usize {
        self.offered.lock().len()
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        let mut offered = self.claims.offered.lock();
        for digest in &self.chunks {
            offered.remove(digest);
        }
    }
}
