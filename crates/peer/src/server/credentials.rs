//! What a client showed when it connected, to be looked at again when the files of TLS change.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::tls::{CertificateNames, Identity, TlsFault};

/// The certificates of a client that was let in.
pub(super) struct Credentials {
    address: Option<SocketAddr>,
    chain: Vec<CertificateDer<'static>>,
    names: CertificateNames,
    /// With what they were looked at last.
    verified_by: Mutex<Arc<Identity>>,
}

impl Credentials {
    pub(super) fn new(
        address: Option<SocketAddr>,
        chain: Vec<CertificateDer<'static>>,
        verified_by: Arc<Identity>,
    ) -> Credentials {
        let names = chain.first().map(CertificateNames::of).unwrap_or_default();
        Credentials { address, chain, names, verified_by: Mutex::new(verified_by) }
    }

    /// Looks at the certificates again where `identity` is another one than before, else whether they are
    /// those of a member.
    pub(super) fn recheck(&self, identity: &Arc<Identity>) -> Result<(), TlsFault> {
        if !Arc::ptr_eq(&self.verified_by.lock(), identity) {
            identity.recheck_client(&self.chain)?;
            *self.verified_by.lock() = Arc::clone(identity);
        }
        identity.recheck_membership(&self.names)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("address", &self.address).finish_non_exhaustive()
    }
}
