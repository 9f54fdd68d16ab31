//! What this crate reads out of certificates itself: when they end.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Returns when the first certificate of a chain that ends does so, in seconds since 1970.
pub(super) fn not_after(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let ends = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(ends).min()
}
