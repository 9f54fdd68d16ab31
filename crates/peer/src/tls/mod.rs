//! TLS 1.3 with mutual authentication, and the reload of its files.
//!
//! Both sides show a certificate; each must come from a CA of `ca_file`. The client also checks
//! the server's name: the certificate must hold the host's ring name or its address. Sessions are
//! never resumed, because a resumed session would skip these checks, and connections live long
//! enough for the handshake not to matter. The files are looked at again when a connection is made,
//! at most once per [`RELOAD_CHECK_INTERVAL`]; a set that does not fit together (a new certificate, an
//! old key) is refused and the last good one stays in use.

mod fault;
mod name_verifier;

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use fault::TlsFault;
use name_verifier::NameVerifier;

use crate::{PeerError, TlsConfig};

/// Shortest time between two looks at the files.
const RELOAD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Largest PEM file.
const PEM_FILE_SIZE_MAX: u64 = 1 << 20;
/// Application protocol of both sides, so that a certificate of the CA cannot be used to make one
/// service talk to another.
const ALPN: &[u8] = b"acstor-peer";

/// The files in use.
pub(crate) struct TlsFiles {
    config: TlsConfig,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    stamps: Vec<Stamp>,
    checked: Instant,
    identity: Arc<Identity>,
}

/// What identifies a file's content without reading it.
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: Option<SystemTime>,
    len: u64,
}

/// A host's certificate, key and CAs, ready for handshakes.
pub(crate) struct Identity {
    server: Arc<ServerConfig>,
    client: ClientConfig,
    chain_verifier: Arc<WebPkiServerVerifier>,
}

/// The server's side of this host's identity, for the other protocols of this host: the same
/// certificates, the same demands on clients, the same reload, no application protocol.
pub struct ServerTls(TlsFiles);

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`PeerError::TlsFile`] names the file that cannot be used.
    pub fn load(config: &TlsConfig) -> Result<ServerTls, PeerError> {
        TlsFiles::load(config).map(ServerTls)
    }

    /// Configuration for one accepted connection, after a look at the files when one is due.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.0.current().server);
        config.alpn_protocols.clear();
        Arc::new(config)
    }
}

impl TlsFiles {
    /// Reads the files.
    pub(crate) fn load(config: &TlsConfig) -> Result<TlsFiles, PeerError> {
        let stamps = stamps(config);
        let identity = Arc::new(Identity::load(config)?);
        let loaded = Mutex::new(Loaded { stamps, checked: Instant::now(), identity });
        Ok(TlsFiles { config: config.clone(), loaded })
    }

    /// Returns the identity in use, after a look at the files when one is due.
    pub(crate) fn current(&self) -> Arc<Identity> {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Arc<Identity> {
        let checked = self.loaded.lock().checked;
        let due = now.saturating_duration_since(checked) >= RELOAD_CHECK_INTERVAL;
        if due && let Err(error) = self.reload() {
            tracing::warn!(%error, "changed TLS files are not usable, the last good ones stay");
        }
        Arc::clone(&self.loaded.lock().identity)
    }

    /// Reads the files again if they changed; on an error the last good ones stay in use.
    pub(crate) fn reload(&self) -> Result<(), PeerError> {
        let now_stamps = stamps(&self.config);
        {
            let mut loaded = self.loaded.lock();
            loaded.checked = Instant::now();
            if loaded.stamps == now_stamps {
                return Ok(());
            }
        }
        let identity = Arc::new(Identity::load(&self.config)?);
        let mut loaded = self.loaded.lock();
        loaded.stamps = now_stamps;
        loaded.identity = identity;
        tracing::info!(cert_file = %self.config.cert_file.display(), "TLS files reloaded");
        Ok(())
    }
}

impl Identity {
    fn load(config: &TlsConfig) -> Result<Identity, PeerError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&config.ca_file)? {
            roots.add(certificate).map_err(|error| file_error(&config.ca_file, error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&config.cert_file)?;
        let key_pem = read_pem(&config.key_file)?;
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|error| file_error(&config.key_file, error))?;
        let provider = Arc::new(provider());

        let client_verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| file_error(&config.ca_file, error))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| file_error(&config.cert_file, error))?
            .with_client_cert_verifier(client_verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| file_error(&config.cert_file, error))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let chain_verifier =
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| file_error(&config.ca_file, error))?;
        let nobody = NameVerifier::new(Arc::clone(&chain_verifier), Vec::new());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| file_error(&config.cert_file, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(nobody))
            .with_client_auth_cert(chain, key)
            .map_err(|error| file_error(&config.cert_file, error))?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false; // the address says which host is meant
        Ok(Identity { server: Arc::new(server), client, chain_verifier })
    }

    /// Configuration for an accepted connection.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Configuration for a connection to the host at `address` that the ring calls `host_name`, and
    /// the name to give to TLS.
    pub(crate) fn client(
        &self,
        address: IpAddr,
        host_name: Option<&str>,
    ) -> (Arc<ClientConfig>, ServerName<'static>) {
        let by_address = ServerName::IpAddress(address.into());
        let by_name = host_name.and_then(|name| ServerName::try_from(name.to_owned()).ok());
        let names = by_name.into_iter().chain([by_address.clone()]).collect();
        let mut config = self.client.clone();
        let verifier = NameVerifier::new(Arc::clone(&self.chain_verifier), names);
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        (Arc::new(config), by_address)
    }
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PeerError> {
    let pem = read_pem(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| file_error(path, error))?;
    if certificates.is_empty() {
        return Err(file_error(path, "it holds no certificate in PEM form"));
    }
    Ok(certificates)
}

fn read_pem(path: &Path) -> Result<Vec<u8>, PeerError> {
    let len = fs::metadata(path).map_err(|error| file_error(path, error))?.len();
    if len > PEM_FILE_SIZE_MAX {
        return Err(file_error(path, format!("{len} bytes, at most {PEM_FILE_SIZE_MAX} are read")));
    }
    fs::read(path).map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, problem: impl std::fmt::Display) -> PeerError {
    PeerError::TlsFile { path: path.to_owned(), problem: problem.to_string() }
}

fn stamps(config: &TlsConfig) -> Vec<Stamp> {
    [&config.ca_file, &config.cert_file, &config.key_file]
        .into_iter()
        .map(|path| {
            let metadata = fs::metadata(path).ok();
            Stamp {
                inode: metadata.as_ref().map_or(0, MetadataExt::ino),
                modified: metadata.as_ref().and_then(|metadata| metadata.modified().ok()),
                len: metadata.map_or(0, |metadata| metadata.len()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::{RELOAD_CHECK_INTERVAL, TlsFiles};
    use crate::TlsConfig;

    /// Replaces the files as certificate tools do: written beside, then renamed.
    fn renew(config: &TlsConfig) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        for (path, pem) in [
            (&config.ca_file, cert.pem()),
            (&config.cert_file, cert.pem()),
            (&config.key_file, signing_key.serialize_pem()),
        ] {
            let fresh = path.with_extension("new");
            std::fs::write(&fresh, pem).unwrap();
            std::fs::rename(fresh, path).unwrap();
        }
    }

    #[test]
    fn test_current_renewed_files_are_read_when_a_look_is_due() {
        let directory = tempfile::tempdir().unwrap();
        let config = TlsConfig {
            ca_file: directory.path().join("ca.pem"),
            cert_file: directory.path().join("host.pem"),
            key_file: directory.path().join("host.key"),
        };
        renew(&config);
        let files = TlsFiles::load(&config).unwrap();
        let first = files.current();
        renew(&config);
        assert!(Arc::ptr_eq(&first, &files.current()), "no look is due");
        let due = Instant::now() + RELOAD_CHECK_INTERVAL;
        let second = files.current_at(due);
        assert!(!Arc::ptr_eq(&first, &second), "the new files are in use");
        std::fs::write(&config.cert_file, "no certificate").unwrap();
        let third = files.current_at(due + 2 * RELOAD_CHECK_INTERVAL);
        assert!(Arc::ptr_eq(&second, &third), "the last good files stay");
    }
}
