//! Connections of the data plane's protocols: streams, TLS, registries, rates; for servers and clients.
//!
//! A [`Stream`] is a connected socket with or without TLS. [`TlsFiles`] keeps this host's identity and
//! reads it again when its files change. A [`ConnectionRegistry`] knows the open connections of a
//! server. [`CellRate`] is a token bucket. Nothing here knows a protocol.

mod cell_rate;
mod close_reason;
mod connection_registry;
mod stream;
mod tls;
mod transition;

pub use cell_rate::CellRate;
pub use connection_registry::{ConnectionRegistry, DrainSignal, OpenConnection};
pub use stream::{Socket, Stream};
pub use tls::{
    CertificateNames, Demands, Identity, Members, RELOAD_CHECK_INTERVAL, ServerTls, Shown,
    TlsConfig, TlsFault, TlsFileError, TlsFiles, TlsStatus,
};
pub use transition::{InvalidTransition, state_after};
