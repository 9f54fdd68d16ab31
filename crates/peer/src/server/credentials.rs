//! What a client showed when it connected, to be looked at again when the files of TLS change.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::tls::{Identity, TlsFault};

/// The certificates of a client that was let in.
pub(super) struct Credentials {
    address: Option<SocketAddr>,
    chain: Vec<CertificateDer<'static>>,
    /// With what they were looked at last.
    verified_by: Mutex<Arc<Identity>>,
}

impl Credentials {
    pub(super) fn new(
        address: Option<SocketAddr>,
        chain: Vec<CertificateDer<'static>>,
        verified_by: Arc<Identity>,
    ) -> Credentials {
        Credentials { address, chain, verified_by: Mutex::new(verified_by) }
    }

    /// Looks at the certificates again where `identity` is another one than before.
    pub(super) fn recheck(&self, identity: &Arc<Identity>) -> Result<(), TlsFault> {
        if !Arc::ptr_eq(&self.verified_by.lock(), identity) {
            identity.recheck_client(&self.chain)?;
            *self.verified_by.lock() = Arc::clone(identity);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("address", &self.address).finish_non_exhaustive()
    }
}
