//! TLS 1.3 with mutual authentication, and the reload of its files.
//!
//! Both sides show a certificate; each must come from a CA of `ca_file`. The client also checks
//! the server's name: the certificate must hold the host's ring name or its address. Sessions are
//! never resumed, because a resumed session would skip these checks, and connections live long
//! enough for the handshake not to matter. The files are looked at again when a connection is made,
//! at most once per [`RELOAD_CHECK_INTERVAL`]; a set that does not fit together (a new certificate, an
//! old key) is refused and the last good one stays in use.

mod certificate;
mod client_verifier;
mod config;
mod fault;
mod file_error;
mod identity;
mod members;
mod name_verifier;
mod revocation;
mod shown;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::ServerConfig;

pub use certificate::CertificateNames;
pub use config::TlsConfig;
pub use fault::TlsFault;
pub use file_error::TlsFileError;
pub use identity::{Demands, Identity};
pub use members::Members;
pub use shown::Shown;

use identity::Material;
use revocation::Revocations;

/// Shortest time between two looks at the files.
pub const RELOAD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Largest PEM file of certificates.
const PEM_FILE_SIZE_MAX: u64 = 1 << 20;

/// The files in use.
pub struct TlsFiles {
    config: TlsConfig,
    demands: Demands,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    stamps: Stamps,
    checked: Instant,
    content: Content,
    problems: Problems,
}

/// The last good content of the files.
#[derive(Clone)]
struct Content {
    material: Arc<Material>,
    /// `None`: no list was usable since the start.
    revocations: Option<Arc<Revocations>>,
    identity: Arc<Identity>,
}

/// Defects of files that changed, while the last good ones are in use.
#[derive(Clone, Debug, Default)]
struct Problems {
    certificates: Option<TlsFileError>,
    revocations: Option<TlsFileError>,
}

/// Identity of the files' content without reading them.
type Stamps = Vec<Option<Stamp>>;

#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: Option<SystemTime>,
    len: u64,
}

/// Status of the files of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    /// End of the certificate in use, or of one of its chain, in seconds since 1970.
    pub certificate_not_after: Option<i64>,
    /// Time at which the first of the revocation lists in use is due to be replaced, in seconds
    /// since 1970; `None` where there are none, or they do not say.
    pub crl_next_update: Option<i64>,
    /// True if the certificates, the key and the CAs on the disk are those in use.
    pub certificates_usable: bool,
    /// True if the revocation lists on the disk are those in use; `None` where none are configured.
    pub crl_usable: Option<bool>,
}

/// The server's side of this host's identity, for the other protocols of this host: the same
/// certificates, the same demands on clients, the same reload, no application protocol.
pub struct ServerTls(TlsFiles);

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`] names the file that cannot be used.
    pub fn load(config: &TlsConfig) -> Result<ServerTls, TlsFileError> {
        TlsFiles::load(config, Demands::default()).map(ServerTls)
    }

    /// Configuration for one accepted connection, after a look at the files when one is due.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current().server()
    }
}

impl TlsFiles {
    /// Reads the files. Without a usable revocation list nobody is trusted until there is one: this host
    /// serves its guests, and has no peers.
    ///
    /// # Errors
    /// [`TlsFileError`] names the certificate file that cannot be used.
    pub fn load(config: &TlsConfig, demands: Demands) -> Result<TlsFiles, TlsFileError> {
        let stamps = stamps(config);
        let material = Arc::new(Material::load(config)?);
        let mut problems = Problems::default();
        let revocations = match load_revocations(config, &material) {
            Ok(revocations) => Some(Arc::new(revocations)),
            Err(error) => {
                tracing::error!(%error, "no peer is trusted until crl_file is usable");
                problems.revocations = Some(error);
                None
            }
        };
        let identity = Identity::build(&material, revocations.as_deref(), &demands)?;
        let identity = Arc::new(identity);
        let content = Content { material, revocations, identity };
        let loaded = Loaded { stamps, checked: Instant::now(), content, problems };
        Ok(TlsFiles { config: config.clone(), demands, loaded: Mutex::new(loaded) })
    }

    /// Returns the identity in use, after a look at the files when one is due.
    pub fn current(&self) -> Arc<Identity> {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Arc<Identity> {
        let checked = self.loaded.lock().checked;
        if now.saturating_duration_since(checked) >= RELOAD_CHECK_INTERVAL {
            // A problem was logged, and shows in the status.
            let _ = self.reload();
        }
        Arc::clone(&self.loaded.lock().content.identity)
    }

    /// Reads the files again if they changed; on an error the last good ones stay in use. Revocation lists
    /// and certificates do so independently of each other.
    ///
    /// # Errors
    /// [`TlsFileError`] names a file that cannot be used.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        let stamps = stamps(&self.config);
        let before = {
            let mut loaded = self.loaded.lock();
            loaded.checked = Instant::now();
            if loaded.stamps == stamps && loaded.problems.first().is_none() {
                return Ok(());
            }
            loaded.content.clone()
        };
        // Not under the lock: whoever connects meanwhile goes on with the last good files.
        let (content, problems) = self.read_again(&before)?;
        let outcome = problems.first().map_or(Ok(()), Err);
        let mut loaded = self.loaded.lock();
        problems.log_new(&loaded.problems);
        if !Arc::ptr_eq(&content.identity, &loaded.content.identity) {
            tracing::info!(cert_file = %self.config.cert_file.display(), "TLS files reloaded");
        }
        loaded.stamps = stamps;
        loaded.content = content;
        loaded.problems = problems;
        outcome
    }

    fn read_again(&self, before: &Content) -> Result<(Content, Problems), TlsFileError> {
        let mut problems = Problems::default();
        let material = match Material::load(&self.config) {
            Ok(material) if *before.material != material => Arc::new(material),
            Ok(_) => Arc::clone(&before.material),
            Err(error) => {
                problems.certificates = Some(error);
                Arc::clone(&before.material)
            }
        };
        let revocations = match load_revocations(&self.config, &material) {
            Ok(revocations) => Some(Arc::new(revocations)),
            Err(error) => {
                problems.revocations = Some(error);
                before.revocations.clone()
            }
        };
        let is_same = Arc::ptr_eq(&material, &before.material) && revocations == before.revocations;
        let identity = match is_same {
            true => Arc::clone(&before.identity),
            false => Arc::new(Identity::build(&material, revocations.as_deref(), &self.demands)?),
        };
        Ok((Content { material, revocations, identity }, problems))
    }

    /// Returns how the files are.
    pub fn status(&self) -> TlsStatus {
        let loaded = self.loaded.lock();
        TlsStatus {
            certificate_not_after: loaded.content.material.not_after,
            crl_next_update: loaded
                .content
                .revocations
                .as_ref()
                .and_then(|lists| lists.next_update),
            certificates_usable: loaded.problems.certificates.is_none(),
            crl_usable: self
                .config
                .crl_file
                .is_some()
                .then(|| loaded.problems.revocations.is_none()),
        }
    }
}

impl Problems {
    fn first(&self) -> Option<TlsFileError> {
        self.certificates.clone().or_else(|| self.revocations.clone())
    }

    /// Logs what is not among `known`: the files are looked at every few seconds.
    fn log_new(&self, known: &Problems) {
        let text = |problem: &Option<TlsFileError>| problem.as_ref().map(ToString::to_string);
        for (ours, theirs) in
            [(&self.certificates, &known.certificates), (&self.revocations, &known.revocations)]
        {
            if let Some(error) = ours
                && text(ours) != text(theirs)
            {
                tracing::warn!(%error, "changed TLS files are not usable, the last good ones stay");
            }
        }
    }
}

fn load_revocations(config: &TlsConfig, material: &Material) -> Result<Revocations, TlsFileError> {
    let revocations = Revocations::load(config.crl_file.as_deref(), &material.authorities)?;
    // What TLS itself cannot use is no better than what cannot be read.
    Identity::build(material, Some(&revocations), &Demands::default()).map(|_| revocations)
}

fn read_file(path: &Path, len_max: u64) -> Result<Vec<u8>, TlsFileError> {
    let len = fs::metadata(path).map_err(|error| file_error(path, error))?.len();
    if len > len_max {
        return Err(file_error(path, format!("{len} bytes, at most {len_max} are read")));
    }
    fs::read(path).map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, problem: impl std::fmt::Display) -> TlsFileError {
    TlsFileError { path: path.to_owned(), problem: problem.to_string() }
}

fn stamps(config: &TlsConfig) -> Stamps {
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        let modified = metadata.modified().ok();
        Some(Stamp { inode: metadata.ino(), modified, len: metadata.len() })
    };
    let files = [&config.ca_file, &config.cert_file, &config.key_file];
    files.into_iter().chain(&config.crl_file).map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::{Demands, RELOAD_CHECK_INTERVAL, TlsConfig, TlsFiles};

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
            crl_file: None,
        };
        renew(&config);
        let files = TlsFiles::load(&config, Demands::default()).unwrap();
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
