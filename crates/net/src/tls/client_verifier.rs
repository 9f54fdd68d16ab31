//! Checks that a client's certificate is of the cloud's CA, not revoked, and of a member of the ring.

use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::certificate::CertificateNames;
use super::fault::revocations_unknown;
use super::members::Members;

/// Accepts the certificates of the cloud's CA that are of members.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    knows_revocations: bool,
    members: Option<Arc<Members>>,
}

impl ClientVerifier {
    /// `knows_revocations`: false: nobody is accepted. `members`: `None`: everybody is one.
    pub(super) fn new(
        chain: Arc<dyn ClientCertVerifier>,
        knows_revocations: bool,
        members: Option<Arc<Members>>,
    ) -> Self {
        ClientVerifier { chain, knows_revocations, members }
    }

    /// Returns whether a certificate with these names is of a member.
    pub(super) fn admits(&self, names: &CertificateNames) -> bool {
        self.members.as_ref().is_none_or(|members| members.admit(names, Instant::now()))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.knows_revocations {
            return Err(revocations_unknown());
        }
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let names = CertificateNames::of(end_entity);
        if !self.admits(&names) {
            tracing::info!(%names, "a host that is not in the ring, or not yet, was refused");
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
