//! The peer protocol: chunks between hosts by digest.
//!
//! A host that needs a chunk asks the host that the ring names, over TCP with mutual TLS. The
//! protocol can only read: a request names a digest and gets exactly that chunk's bytes or a status,
//! or names some and learns which of them are kept. Hosts that boot one image may also tell each other the
//! numbers of chunks that they miss ([`exchange`]); data still comes by digest only. Beside that it carries the
//! messages of multicast preloads, which it does not read.
//! Frames are length-prefixed ([`frame`]), requests are pipelined and answered in any order.
//! [`PeerServer`] answers out of a [`ChunkServer`] (the read path); [`PeerClient`] keeps a pool of
//! connections per peer, notices peers that are down, slow or broken, and reports a [`PeerError`] that
//! says what happened. Neither verifies content: the read path checks every chunk that came over a
//! wire against its digest before anyone sees it.
//!
//! Described in `reference/protocols/peer` and `reference/state-machines/peer-connection`.

mod class_watch;
mod client;
mod close_reason;
mod compression;
mod config;
mod connection_state;
mod error;
pub mod exchange;
pub mod frame;
mod request;
mod server;
mod status;
mod told;
mod version;

pub use acstor_net::{TlsConfig, TlsFault, TlsFileError, TlsStatus};
pub use class_watch::{ClassWatch, Promoter};
pub use client::{ClientStats, PeerClient, PeerStats};
pub use close_reason::CloseReason;
pub use config::{ClientLimits, PeerConfig, Security, ServerLimits};
pub use connection_state::{ConnectionEvent, ConnectionState, InvalidTransition, TRANSITIONS};
pub use error::PeerError;
pub use request::{ChunkRequest, ChunkServer, ServeFuture};
pub use server::{CompressionStats, EgressStats, PeerServer, ServerStats};
pub use status::PeerStatus;
pub use told::Told;
pub use version::{
    FEATURE_CLASSES, FEATURE_COMPRESSED, FEATURE_GROUPS, FEATURE_HINTS, FEATURE_HOLDS,
    FEATURE_LOAD, FEATURES, VERSION_1, VERSION_MAX, VERSION_MIN, VersionRange,
};

/// The application protocol of TLS on both sides.
const APPLICATION: Option<&[u8]> = Some(b"acstor-peer");
