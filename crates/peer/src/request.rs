//! Request to a peer, and the interface of those that answer it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::{Hints, Join, Joined};
use crate::frame::GROUP_BODY_LEN;
use crate::{ClassWatch, PeerStatus};

/// A chunk, named by its digest.
///
/// `disk_id` and `chunk_index` are only a hint with which a peer that has the disk's manifest
/// attached finds the chunk's location in the origin; it must check that the manifest's entry has
/// this digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// Names the chunk.
    pub digest: Digest,
    /// A disk that holds it.
    pub disk_id: DiskId,
    /// Index of the chunk on that disk, 0-based; `u64::MAX` is no hint: the peer answers from its
    /// own host only.
    pub chunk_index: u64,
    /// The chunk's size; an answer of another size is a protocol violation.
    pub chunk_size: ChunkSize,
    /// True if the peer may compress its answer: saves bytes on a full link, and costs time on a
    /// fast one.
    pub accepts_compressed: bool,
}

/// The answer to a request: exactly `chunk_size` bytes, or the reason why not.
pub type ServeFuture = Pin<Box<dyn Future<Output = Result<Bytes, PeerStatus>> + Send>>;

/// Answers the requests that [`crate::PeerServer`] lets through.
///
/// The caller guarantees: a bounded number of futures at a time, each polled once at once, and
/// dropped after `deadline` or when the requester is gone. The implementation must answer
/// exactly `chunk_size` bytes or a status, must not block for longer than a read of the chunk store
/// takes, and must survive the drop of the future at any await.
pub trait ChunkServer: Send + Sync + 'static {
    /// Starts to answer `request`; what is not answered by `deadline` is answered
    /// [`PeerStatus::Expired`] by the caller. Whatever the answer waits for, it waits for in the class
    /// that `class` says, which may be promoted meanwhile.
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture;

    /// Tells which chunks this host keeps and means to go on keeping; one answer per digest, in
    /// order, from memory. A host that cannot tell keeps none.
    fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        vec![false; digests.len()]
    }

    /// Has a host take part in the exchange of an image; from memory. Nothing in `join` is verified: any
    /// host that is let in may send it, under any name.
    ///
    /// # Errors
    /// The status with which it is refused; a host that takes part in none refuses each.
    fn join(&self, _join: &Join) -> Result<Joined, PeerStatus> {
        Err(PeerStatus::Unsupported)
    }

    /// Takes hints; from memory. Returns the hints of the order that are known now. As little is verified as
    /// of [`ChunkServer::join`].
    ///
    /// # Errors
    /// As [`ChunkServer::join`].
    fn hint(&self, _hints: &Hints) -> Result<u32, PeerStatus> {
        Err(PeerStatus::Unsupported)
    }

    /// Answers a message of a multicast preload that came from `host`, from memory.
    ///
    /// # Errors
    /// The refusal; a host without multicast refuses all.
    fn group(
        &self,
        host: IpAddr,
        message: &[u8; GROUP_BODY_LEN],
    ) -> Result<[u8; GROUP_BODY_LEN], PeerStatus> {
        let _ = (host, message);
        Err(PeerStatus::Unsupported)
    }
}
