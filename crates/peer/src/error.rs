//! Errors between two hosts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use acstor_net::{TlsFault, TlsFileError};
use acstor_types::ErrorKind;

use crate::{CloseReason, PeerStatus, VersionRange};

/// Error of a fetch, or of the start of a server or client.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer answered with a refusal.
    #[error("peer {address} refused: {status}")]
    Refused {
        /// The peer, `ip:port`.
        address: String,
        /// Its reason.
        status: PeerStatus,
    },
    /// The peer failed a moment ago; nothing was sent.
    #[error("peer {address} is down, next attempt in {} ms: {cause}", retry_in.as_millis())]
    Down {
        /// The peer, `ip:port`.
        address: String,
        /// Time until it is tried again.
        retry_in: Duration,
        /// Failure that was the cause.
        cause: Box<PeerError>,
    },
    /// No connection could be made.
    #[error("cannot connect to peer {address}: {cause}")]
    Connect {
        /// The peer, `ip:port`.
        address: String,
        /// The socket's error.
        cause: Arc<io::Error>,
    },
    /// TLS with the peer failed.
    #[error("TLS with peer {address} failed: {fault}")]
    Tls {
        /// The peer, `ip:port`.
        address: String,
        /// Fault of TLS, and what to do.
        fault: TlsFault,
    },
    /// The peer speaks other versions of the protocol.
    #[error("peer {address} speaks protocol versions {theirs}, this host {ours}")]
    Version {
        /// The peer, `ip:port`.
        address: String,
        /// Versions of this host.
        ours: VersionRange,
        /// Versions of the peer.
        theirs: VersionRange,
    },
    /// The connection ended before the answer came.
    #[error("the connection to peer {address} ended: {reason}")]
    Disconnected {
        /// The peer, `ip:port`.
        address: String,
        /// Reason for which it ended.
        reason: CloseReason,
    },
    /// The answer did not come by the deadline.
    #[error("peer {address} did not answer by the deadline")]
    Deadline {
        /// The peer, `ip:port`.
        address: String,
    },
    /// The peer sent a compressed answer that is none of the chunk's size; like wrong content.
    #[error("peer {address} sent a compressed chunk that does not decompress")]
    Corrupt {
        /// The peer, `ip:port`.
        address: String,
    },
    /// Too many fetches wait for this peer already.
    #[error("{waiting} fetches wait for peer {address} already")]
    Busy {
        /// The peer, `ip:port`.
        address: String,
        /// Fetches that wait for a slot.
        waiting: usize,
    },
    /// Not an address of a peer.
    #[error("'{address}' is not the address of a peer: want ip:port, as in 10.0.0.7:7420")]
    Address {
        /// Text that was given.
        address: String,
    },
    /// More peers than the limit.
    #[error("more than {limit} peers")]
    TooManyPeers {
        /// The limit.
        limit: usize,
    },
    /// A limit outside its range.
    #[error("peer limit {name} is {value}, allowed is {allowed}")]
    Limit {
        /// Name of the limit.
        name: &'static str,
        /// Value that was given.
        value: u64,
        /// The allowed range.
        allowed: String,
    },
    /// A file of the TLS configuration cannot be used.
    #[error(transparent)]
    TlsFile(#[from] TlsFileError),
    /// The listening socket cannot be used.
    #[error("cannot use the peer listening socket: {0}")]
    Listen(Arc<io::Error>),
    /// The client was shut down.
    #[error("the peer client is shut down")]
    Shutdown,
}

impl PeerError {
    /// Returns the kind, which says what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PeerError::Refused { status, .. } => status.kind(),
            PeerError::Busy { .. } => ErrorKind::Overloaded,
            PeerError::Corrupt { .. } => ErrorKind::Corrupt,
            PeerError::Version { .. } => ErrorKind::Unsupported,
            PeerError::Address { .. } | PeerError::Limit { .. } | PeerError::TlsFile(_) => {
                ErrorKind::Invalid
            }
            PeerError::TooManyPeers { .. } => ErrorKind::Exhausted,
            PeerError::Down { .. }
            | PeerError::Connect { .. }
            | PeerError::Tls { .. }
            | PeerError::Disconnected { .. }
            | PeerError::Deadline { .. }
            | PeerError::Listen(_)
            | PeerError::Shutdown => ErrorKind::Unavailable,
        }
    }
}
