//! Fields of certificates that this crate reads itself: the names, and the end of their validity.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The subject alternative names of a certificate by which hosts are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// In lower case; a wildcard as it is written, `*.example.org`.
    pub dns: Vec<String>,
    /// Addresses of IP version 4 and 6.
    pub addresses: Vec<IpAddr>,
}

impl CertificateNames {
    /// Reads the names; a certificate that cannot be read has none.
    pub fn of(certificate: &CertificateDer<'_>) -> CertificateNames {
        let mut names = CertificateNames::default();
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return names };
        let Ok(Some(listed)) = parsed.subject_alternative_name() else { return names };
        for name in &listed.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        names
    }
}

impl std::fmt::Display for CertificateNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let names: Vec<String> = self.dns.iter().cloned().chain(addresses).collect();
        if names.is_empty() { f.write_str("nobody") } else { f.write_str(&names.join(", ")) }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Returns when the first certificate of a chain that ends does so, in seconds since 1970.
pub(super) fn not_after(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let ends = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(ends).min()
}
