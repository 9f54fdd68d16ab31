//! A CA and certificates for one test, as PEM files in a directory of its own.

use std::path::PathBuf;

use acstor_peer::{Security, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A certificate authority that writes what it signs to a directory.
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// Years in which a certificate is valid.
#[derive(Clone, Copy)]
pub enum Validity {
    Now,
    Expired,
    NotYet,
}

impl Authority {
    pub fn new() -> Authority {
        let directory = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for `names` and returns the configuration of its host.
    pub fn host(&self, file: &str, names: &[&str], validity: Validity) -> TlsConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let (from, to) = match validity {
            Validity::Now => (2000, 2100),
            Validity::Expired => (2000, 2001),
            Validity::NotYet => (2099, 2100),
        };
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let config = TlsConfig {
            ca_file: self.ca_file(),
            cert_file: self.directory.path().join(format!("{file}.pem")),
            key_file: self.directory.path().join(format!("{file}.key")),
        };
        std::fs::write(&config.cert_file, certificate.pem()).unwrap();
        std::fs::write(&config.key_file, key.serialize_pem()).unwrap();
        config
    }

    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Returns the security of a host whose certificate is valid for the loopback address.
    pub fn loopback(&self) -> Security {
        Security::Tls(self.host("host", &["127.0.0.1"], Validity::Now))
    }
}
