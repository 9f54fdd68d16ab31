//! The seam to the other hosts.

use std::future::Future;
use std::pin::Pin;

use acstor_peer::exchange::{HintedFuture, Hints, Join, JoinFuture};
use acstor_peer::{ChunkRequest, ClassWatch, PeerError, PeerStatus, Told};
use acstor_types::Digest;
use bytes::Bytes;
use tokio::time::Instant;

/// The chunk index of a request without a hint: the peer answers from what it has on its own host
/// and never reads the origin for it. No manifest has so many chunks.
pub const NO_HINT: u64 = u64::MAX;

/// The answer of a peer, unverified.
pub type PeerFuture = Pin<Box<dyn Future<Output = Result<Bytes, PeerError>> + Send>>;

/// The answer of a peer to what it keeps.
pub type HoldsFuture = Pin<Box<dyn Future<Output = Result<Vec<bool>, PeerError>> + Send>>;

/// Fetches chunks from other hosts.
///
/// The caller verifies the content. The implementation must finish by `deadline`, must survive the
/// drop of the future at any await, and retries nothing by itself: retries are decided in one
/// place, the read path.
pub trait PeerSource: Send + Sync + 'static {
    /// Starts to fetch a chunk from the peer at `address` (`ip:port`), in the class that `class` says: what
    /// is promoted while it is on its way is told to the peer.
    fn fetch(
        &self,
        address: &str,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> PeerFuture;

    /// Starts to ask the peer at `address` which of some chunks it keeps: one answer per digest. At
    /// most `acstor_peer::frame::HOLDS_MAX` digests. A source that cannot ask has peers that keep none.
    fn holds(&self, _address: &str, digests: Vec<Digest>, _deadline: Instant) -> HoldsFuture {
        Box::pin(async move { Ok(vec![false; digests.len()]) })
    }

    /// Returns the load that the peer at `address` told with its last answer, by the clock of
    /// [`crate::Seams`]; `None` where it told none.
    fn told(&self, _address: &str) -> Option<Told> {
        None
    }

    /// Starts to ask the peer at `address` to have this host take part in an exchange. A source that cannot
    /// ask has peers that take part in none.
    fn join(&self, address: &str, _join: Join, _deadline: Instant) -> JoinFuture {
        let (address, status) = (address.to_owned(), PeerStatus::Unsupported);
        Box::pin(async move { Err(PeerError::Refused { address, status }) })
    }

    /// Starts to send hints to the peer at `address`; as [`PeerSource::join`].
    fn hint(&self, address: &str, _hints: Hints, _deadline: Instant) -> HintedFuture {
        let (address, status) = (address.to_owned(), PeerStatus::Unsupported);
        Box::pin(async move { Err(PeerError::Refused { address, status }) })
    }
}
