//! The certificates that their CA has revoked.
//!
//! A list that is overdue (its `nextUpdate` has passed) stays in force: what it revokes is revoked, and
//! everybody else is let in as before. To refuse all of them would send every read of the cloud to the
//! origin because a file was not renewed; an alert tells of it instead. A CA without a list revokes nobody.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::{TlsFileError, file_error, read_file};

/// Largest file of revocation lists: some 400,000 revoked certificates.
const CRL_FILE_SIZE_MAX: u64 = 16 << 20;

/// The revocation lists in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Revocations {
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    /// Time at which the first of them is due to be replaced, in seconds since 1970.
    pub(super) next_update: Option<i64>,
}

impl Revocations {
    /// Reads a file of lists; none without a file.
    pub(super) fn load(
        path: Option<&Path>,
        authorities: &[CertificateDer<'_>],
    ) -> Result<Revocations, TlsFileError> {
        let Some(path) = path else { return Ok(Revocations::default()) };
        let pem = read_file(path, CRL_FILE_SIZE_MAX)?;
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
        let lists = lists.map_err(|error| file_error(path, error))?;
        if lists.is_empty() {
            return Err(file_error(path, "it holds no revocation list in PEM form"));
        }
        let mut next_update = None;
        for list in &lists {
            let due = check(list, authorities).map_err(|problem| file_error(path, problem))?;
            next_update = next_update.into_iter().chain(due).min();
        }
        Ok(Revocations { lists, next_update })
    }
}

/// Returns when a list is due to be replaced, or what is wrong with it: with a list that the CA of its name
/// has not signed, no certificate of that CA could be checked any more.
fn check(
    list: &CertificateRevocationListDer<'_>,
    authorities: &[CertificateDer<'_>],
) -> Result<Option<i64>, String> {
    let (_, list) = CertificateRevocationList::from_der(list)
        .map_err(|error| format!("a revocation list is malformed: {error}"))?;
    for der in authorities {
        let Ok((_, authority)) = X509Certificate::from_der(der) else { continue };
        let is_of = authority.subject().as_raw() == list.issuer().as_raw();
        if is_of && list.verify_signature(authority.public_key()).is_err() {
            return Err(format!(
                "the revocation list of {} is not signed by the CA of this name in ca_file; CAs need \
                 names of their own",
                list.issuer()
            ));
        }
    }
    Ok(list.next_update().map(|due| due.timestamp()))
}
