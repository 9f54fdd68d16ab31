//! The files of TLS.

use std::path::PathBuf;

/// The PEM files of TLS. Read at the start and again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificates of the CAs whose certificates are accepted.
    pub ca_file: PathBuf,
    /// This host's certificate chain, its own certificate first; its subject alternative names must
    /// hold the host's name in the ring or its address.
    pub cert_file: PathBuf,
    /// The private key of the certificate.
    pub key_file: PathBuf,
    /// Revocation lists of the CAs; `None`: no certificate is ever revoked.
    pub crl_file: Option<PathBuf>,
}
