//! A file of TLS that cannot be used.

use std::path::PathBuf;

/// A file of the TLS configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS file {}: {problem}", path.display())]
pub struct TlsFileError {
    /// The file.
    pub path: PathBuf,
    /// Fault of the file.
    pub problem: String,
}
