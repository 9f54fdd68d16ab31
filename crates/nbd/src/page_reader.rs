//! Bringing mapped pages to memory on blocking threads, a bounded number at a time.

use std::io;

use acstor_overlay::Piece;
use tokio::sync::Semaphore;

use crate::residency;
use crate::stats::{Counters, add};

/// Answers of one server that wait for this host's disk at a time.
const READERS_MAX: usize = 64;

/// The readers of a server.
#[derive(Debug)]
pub(crate) struct PageReader(Semaphore);

impl PageReader {
    pub(crate) fn new() -> PageReader {
        PageReader(Semaphore::new(READERS_MAX))
    }

    /// Returns `pieces` with every mapped page in memory, or copied where there is no mapping, where that
    /// is impossible, or `must_copy` says so.
    ///
    /// # Errors
    /// The kernel's, when the bytes cannot be read in any way.
    pub(crate) async fn bring(
        &self,
        pieces: Vec<Piece>,
        must_copy: bool,
        counters: &Counters,
    ) -> io::Result<Vec<Piece>> {
        if !pieces.iter().any(residency::is_in_file)
            || (!must_copy && residency::is_resident(&pieces))
        {
            return Ok(pieces);
        }
        add(&counters.populated, 1);
        let Ok(_permit) = self.0.acquire().await else {
            return Err(io::ErrorKind::Interrupted.into()); // never closed
        };
        let reading = tokio::task::spawn_blocking(move || {
            if must_copy { residency::copy(pieces) } else { residency::populate(pieces) }
        });
        reading.await.unwrap_or_else(|failure| Err(io::Error::other(failure)))
    }
}
