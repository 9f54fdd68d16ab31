//! TLS identity of this host: the certificate that it presents and the authorities that it demands
//! of others.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::certificate::CertificateNames;
use super::client_verifier::ClientVerifier;
use super::members::Members;
use super::name_verifier::NameVerifier;
use super::revocation::Revocations;
use super::{
    PEM_FILE_SIZE_MAX, TlsConfig, TlsFault, TlsFileError, certificate, file_error, read_file,
};

/// Demands of a protocol on the other side beside a certificate of the CA.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    /// Application protocol of both sides, so that a certificate of the CA cannot be used to make one
    /// service talk to another; `None` where the protocol has TLS clients of others.
    pub application: Option<&'static [u8]>,
    /// Of whom clients must be; `None`: everybody with a certificate may connect.
    pub members: Option<Arc<Members>>,
}

/// The content of the files of certificates.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) config: TlsConfig,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// End of the first certificate of the chain to end, in seconds since 1970.
    pub(super) not_after: Option<i64>,
}

/// A host's certificate, key, CAs and revocation lists, ready for handshakes.
pub struct Identity {
    server: Arc<ServerConfig>,
    client: ClientConfig,
    client_verifier: Arc<ClientVerifier>,
    chain_verifier: Arc<WebPkiServerVerifier>,
    knows_revocations: bool,
}

impl Material {
    /// Reads certificate, key and CAs, and sees that they fit together.
    pub(super) fn load(config: &TlsConfig) -> Result<Material, TlsFileError> {
        let authorities = certificates(&config.ca_file)?;
        let chain = certificates(&config.cert_file)?;
        let key_pem = read_file(&config.key_file, PEM_FILE_SIZE_MAX)?;
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|error| file_error(&config.key_file, error))?;
        let not_after = certificate::not_after(&chain);
        let material = Material { config: config.clone(), authorities, chain, key, not_after };
        Identity::build(&material, Some(&Revocations::default()), &Demands::default())?;
        Ok(material)
    }
}

impl Identity {
    /// Makes an identity of the files' content.
    ///
    /// `revocations`: `None`: it is not known who is revoked, so nobody is trusted.
    pub(super) fn build(
        material: &Material,
        revocations: Option<&Revocations>,
        demands: &Demands,
    ) -> Result<Identity, TlsFileError> {
        let files = &material.config;
        let mut roots = RootCertStore::empty();
        for authority in &material.authorities {
            roots.add(authority.clone()).map_err(|error| file_error(&files.ca_file, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let lists = revocations.map_or_else(Vec::new, |known| known.lists.clone());
        let knows_revocations = revocations.is_some();
        let refused = |error: VerifierBuilderError| match (&error, &files.crl_file) {
            (VerifierBuilderError::InvalidCrl(_), Some(path)) => file_error(path, error),
            _ => file_error(&files.ca_file, error),
        };

        let of_clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(lists.clone())
                .allow_unknown_revocation_status()
                .build()
                .map_err(refused)?;
        let client_verifier =
            Arc::new(ClientVerifier::new(of_clients, knows_revocations, demands.members.clone()));
        let chain_verifier =
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .with_crls(lists)
                .allow_unknown_revocation_status()
                .build()
                .map_err(refused)?;
        let application: Vec<Vec<u8>> =
            demands.application.into_iter().map(<[u8]>::to_vec).collect();
        let mut server = server_config(material, &provider, &client_verifier)?;
        server.alpn_protocols.clone_from(&application);
        let mut client = client_config(material, &provider, &chain_verifier)?;
        client.alpn_protocols = application;
        Ok(Identity {
            server: Arc::new(server),
            client,
            client_verifier,
            chain_verifier,
            knows_revocations,
        })
    }

    /// Configuration for an accepted connection.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Configuration for a connection to the host at `address` that the ring calls `host_name`, and
    /// the name to give to TLS.
    pub fn client(
        &self,
        address: IpAddr,
        host_name: Option<&str>,
    ) -> (Arc<ClientConfig>, ServerName<'static>) {
        let mut config = self.client.clone();
        let verifier = self.name_verifier(address, host_name);
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        (Arc::new(config), ServerName::IpAddress(address.into()))
    }

    /// Looks at the certificates of a client that is connected as if it connected now.
    ///
    /// # Errors
    /// [`TlsFault`]: it would be refused.
    pub fn recheck_client(&self, chain: &[CertificateDer<'_>]) -> Result<(), TlsFault> {
        let (own, intermediates) = chain.split_first().ok_or(TlsFault::PeerNoCertificate)?;
        let verdict = self.client_verifier.verify_client_cert(own, intermediates, UnixTime::now());
        verdict.map(|_| ()).map_err(|error| TlsFault::from(&error))
    }

    /// Looks whether a client that is connected is still one of those who may.
    ///
    /// # Errors
    /// [`TlsFault::PeerNotMember`].
    pub fn recheck_membership(&self, names: &CertificateNames) -> Result<(), TlsFault> {
        let is_member = self.client_verifier.admits(names);
        if is_member { Ok(()) } else { Err(TlsFault::PeerNotMember) }
    }

    /// Looks at the certificates of a server that is connected as if it was connected to now.
    ///
    /// # Errors
    /// [`TlsFault`]: it would be refused.
    pub fn recheck_server(
        &self,
        chain: &[CertificateDer<'_>],
        address: IpAddr,
        host_name: Option<&str>,
    ) -> Result<(), TlsFault> {
        let (own, intermediates) = chain.split_first().ok_or(TlsFault::PeerNoCertificate)?;
        let name = ServerName::IpAddress(address.into());
        let verdict = self.name_verifier(address, host_name).verify_server_cert(
            own,
            intermediates,
            &name,
            &[],
            UnixTime::now(),
        );
        verdict.map(|_| ()).map_err(|error| TlsFault::from(&error))
    }

    fn name_verifier(&self, address: IpAddr, host_name: Option<&str>) -> NameVerifier {
        let by_name = host_name.and_then(|name| ServerName::try_from(name.to_owned()).ok());
        let by_address = ServerName::IpAddress(address.into());
        let names = by_name.into_iter().chain([by_address]).collect();
        NameVerifier::new(Arc::clone(&self.chain_verifier), names, self.knows_revocations)
    }
}

fn server_config(
    material: &Material,
    provider: &Arc<CryptoProvider>,
    clients: &Arc<ClientVerifier>,
) -> Result<ServerConfig, TlsFileError> {
    let cert_file = &material.config.cert_file;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| file_error(cert_file, error))?
        .with_client_cert_verifier(Arc::<ClientVerifier>::clone(clients))
        .with_single_cert(material.chain.clone(), material.key.clone_key())
        .map_err(|error| file_error(cert_file, error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(
    material: &Material,
    provider: &Arc<CryptoProvider>,
    chain_verifier: &Arc<WebPkiServerVerifier>,
) -> Result<ClientConfig, TlsFileError> {
    let cert_file = &material.config.cert_file;
    let nobody = NameVerifier::new(Arc::clone(chain_verifier), Vec::new(), true);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| file_error(cert_file, error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(nobody))
        .with_client_auth_cert(material.chain.clone(), material.key.clone_key())
        .map_err(|error| file_error(cert_file, error))?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false; // the address says which host is meant
    Ok(config)
}

/// The ring provider with AES-128 first: 128 bits are enough for every use of ours and a third
/// cheaper than 256.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let pem = read_file(path, PEM_FILE_SIZE_MAX)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| file_error(path, error))?;
    if certificates.is_empty() {
        return Err(file_error(path, "it holds no certificate in PEM form"));
    }
    Ok(certificates)
}
