//! Checks that a server's certificate is of the cloud's CA and for the host that was meant.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::fault::revocations_unknown;

/// Accepts a certificate that is valid for any of a host's names: its ring name or its address.
#[derive(Debug)]
pub(super) struct NameVerifier {
    chain: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
    knows_revocations: bool,
}

impl NameVerifier {
    /// `knows_revocations`: false: nobody is accepted.
    pub(super) fn new(
        chain: Arc<WebPkiServerVerifier>,
        names: Vec<ServerName<'static>>,
        knows_revocations: bool,
    ) -> NameVerifier {
        NameVerifier { chain, names, knows_revocations }
    }

    fn accepted(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| name.to_str().into_owned()).collect();
        names.join(" or ")
    }
}

impl ServerCertVerifier for NameVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.knows_revocations {
            return Err(revocations_unknown());
        }
        let mut refusal = Error::InvalidCertificate(CertificateError::NotValidForName);
        for name in &self.names {
            let verdict =
                self.chain.verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
            match verdict {
                Err(
                    wrong @ Error::InvalidCertificate(
                        CertificateError::NotValidForName
                        | CertificateError::NotValidForNameContext { .. },
                    ),
                ) => refusal = wrong,
                verdict => return verdict,
            }
        }
        tracing::debug!(accepted = self.accepted(), "certificate for another name");
        Err(refusal)
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
