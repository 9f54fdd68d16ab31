//! Credentials that a client presented when it connected, checked again when the files of TLS
//! change.

use std::net::SocketAddr;
use std::sync::Arc;

use acstor_net::{CertificateNames, Identity, Shown, TlsFault};
use parking_lot::Mutex;

/// The certificates of a client that was let in.
pub(super) struct Credentials {
    address: Option<SocketAddr>,
    names: CertificateNames,
    shown: Mutex<Shown>,
}

impl Credentials {
    pub(super) fn new(address: Option<SocketAddr>, shown: Shown) -> Credentials {
        let names = shown.own().map(CertificateNames::of).unwrap_or_default();
        Credentials { address, names, shown: Mutex::new(shown) }
    }

    /// Looks at the certificates again where `identity` is another one than before, and in any case
    /// whether they are those of a member.
    pub(super) fn recheck(&self, identity: &Arc<Identity>) -> Result<(), TlsFault> {
        self.shown.lock().recheck(identity, |chain| identity.recheck_client(chain))?;
        identity.recheck_membership(&self.names)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("address", &self.address).finish_non_exhaustive()
    }
}
