//! A CA and certificates for one test, as PEM files in a directory of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use acstor_net::TlsConfig;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use tempfile::TempDir;

/// A certificate authority that writes what it signs to a directory.
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    serials: Mutex<HashMap<String, u64>>,
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
        Authority::named("peers of a test")
    }

    pub fn named(name: &str) -> Authority {
        let directory = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(directory.path().join("ca.pem"), &pem).unwrap();
        Authority { directory, issuer: Issuer::new(params, key), pem, serials: Mutex::default() }
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
        let serial = {
            let mut serials = self.serials.lock().unwrap();
            let serial = 1 + serials.len() as u64;
            serials.insert(file.to_owned(), serial);
            serial
        };
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let config = TlsConfig {
            ca_file: self.ca_file(),
            cert_file: self.directory.path().join(format!("{file}.pem")),
            key_file: self.directory.path().join(format!("{file}.key")),
            crl_file: None,
        };
        replace(&config.cert_file, &certificate.pem());
        replace(&config.key_file, &key.serialize_pem());
        config
    }

    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The CA's own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the file to which the tests of this CA write its revocation list.
    pub fn crl_file(&self) -> PathBuf {
        self.directory.path().join("crl.pem")
    }

    /// Returns the list that revokes the certificates of some hosts, by their files, due to be replaced at
    /// the beginning of a year.
    pub fn revocation_list(&self, files: &[&str], next_update: i32) -> String {
        let serials = self.serials.lock().unwrap();
        let revoked = |file: &&str| RevokedCertParams {
            serial_number: SerialNumber::from(serials[*file]),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: files.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Writes the list that revokes the certificates of some hosts.
    pub fn revoke(&self, files: &[&str]) {
        replace(&self.crl_file(), &self.revocation_list(files, 2100));
    }

    /// Returns the files of a host whose certificate is valid for the loopback address.
    pub fn loopback(&self) -> TlsConfig {
        self.host("host", &["127.0.0.1"], Validity::Now)
    }
}

/// Puts a file in place by a rename, as certificate tools do.
pub fn replace(path: &Path, content: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content).unwrap();
    std::fs::rename(fresh, path).unwrap();
}
