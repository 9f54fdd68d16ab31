//! A CA and one certificate, for measurements only.

use std::error::Error;
use std::path::Path;

use acstor_peer::TlsConfig;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The files of [`write`] in `directory`.
pub fn config(directory: &Path) -> TlsConfig {
    TlsConfig {
        ca_file: directory.join("ca.pem"),
        cert_file: directory.join("host.pem"),
        key_file: directory.join("host.key"),
        crl_file: None,
    }
}

/// Writes a new CA's certificate, and a certificate for `names` with its key.
pub fn write(directory: &Path, names: &[String]) -> Result<(), Box<dyn Error>> {
    let files = config(directory);
    std::fs::create_dir_all(directory)?;
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    std::fs::write(files.ca_file, authority.self_signed(&authority_key)?.pem())?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    std::fs::write(files.cert_file, certificate.pem())?;
    std::fs::write(files.key_file, key.serialize_pem())?;
    Ok(())
}
