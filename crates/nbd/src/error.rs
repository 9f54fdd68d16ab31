//! Errors that keep a server from starting.

use std::io;
use std::path::PathBuf;

use acstor_net::TlsFileError;
use acstor_types::ErrorKind;

/// Error that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// A limit outside its range.
    #[error("NBD limit {name} is {value}, allowed is {allowed}")]
    Limit {
        /// Name of the limit.
        name: &'static str,
        /// Value that was given.
        value: u64,
        /// The allowed range.
        allowed: String,
    },
    /// An export that the protocol cannot describe.
    #[error("NBD export '{name}': {problem}")]
    Export {
        /// Name of the export.
        name: String,
        /// Fault of the export.
        problem: String,
    },
    /// A token that no client can name.
    #[error("the token of an NBD export has 1 to 4096 bytes, none of them 0")]
    Token,
    /// The socket's path cannot be used.
    #[error("cannot listen on {}: {problem}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Fault of the path, and what to do.
        problem: String,
    },
    /// The listening socket cannot be used.
    #[error("cannot use the NBD listening socket: {0}")]
    Listen(#[from] io::Error),
    /// Without TLS an export is served to this host only.
    #[error("NBD over TCP on {address} wants TLS; without it only loopback addresses are served")]
    Insecure {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(TlsFileError),
}

impl NbdError {
    /// Returns the kind, which says what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NbdError::Listen(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        }
    }
}
