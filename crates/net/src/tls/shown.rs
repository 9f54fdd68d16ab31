//! The certificates that the other side of a connection showed, to be looked at again when the files of
//! TLS change.

use std::sync::Arc;

use rustls::CommonState;
use rustls::pki_types::CertificateDer;

use super::{Identity, TlsFault};

/// The chain that was shown, and with what it was looked at last.
pub struct Shown {
    chain: Vec<CertificateDer<'static>>,
    verified_by: Arc<Identity>,
}

impl Shown {
    /// Keeps what a connection was made with.
    pub fn on(connection: &CommonState, verified_by: Arc<Identity>) -> Shown {
        let chain = connection.peer_certificates().unwrap_or_default();
        Shown { chain: chain.iter().map(|each| each.clone().into_owned()).collect(), verified_by }
    }

    /// The other side's own certificate.
    pub fn own(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// Has `look` look at the chain again where `identity` is another one than before.
    ///
    /// # Errors
    /// That of `look`.
    pub fn recheck(
        &mut self,
        identity: &Arc<Identity>,
        look: impl FnOnce(&[CertificateDer<'_>]) -> Result<(), TlsFault>,
    ) -> Result<(), TlsFault> {
        if !Arc::ptr_eq(&self.verified_by, identity) {
            look(&self.chain)?;
            self.verified_by = Arc::clone(identity);
        }
        Ok(())
    }
}
