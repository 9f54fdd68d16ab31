//! Faults of TLS, in words that say whose certificate to look at.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error, OtherError};

/// Fault of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// The other side's certificate has expired.
    PeerCertificateExpired,
    /// The other side's certificate is not valid yet.
    PeerCertificateNotYetValid,
    /// The other side's certificate comes from a CA that is not in this host's CA file.
    PeerUnknownCa,
    /// The other side's certificate is for other names.
    PeerWrongName {
        /// Names that would have been accepted.
        expected: String,
        /// Names in the certificate.
        presented: String,
    },
    /// The CA has revoked the other side's certificate.
    PeerCertificateRevoked,
    /// It is not known here whether the other side's certificate is revoked.
    PeerRevocationUnknown,
    /// The other side's certificate is of no host of the ring.
    PeerNotMember,
    /// The other side showed no certificate.
    PeerNoCertificate,
    /// The other side's certificate is unusable in another way.
    PeerCertificateInvalid(String),
    /// The other side says that this host's certificate has expired.
    OwnCertificateExpired,
    /// The other side says that this host's certificate is revoked.
    OwnCertificateRevoked,
    /// The other side does not know this host as one of the ring.
    OwnNotMember,
    /// The other side does not know the CA of this host's certificate.
    OwnUnknownCa,
    /// The other side refuses this host's certificate for another reason.
    OwnCertificateRefused(String),
    /// The other side does not speak TLS.
    NotTls,
    /// The other side closed the connection during the handshake.
    Closed,
    /// Anything else.
    Other(String),
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFault::PeerCertificateExpired => {
                f.write_str("its certificate has expired; renew it on that host")
            }
            TlsFault::PeerCertificateNotYetValid => f.write_str(
                "its certificate is not valid yet; compare the clocks and the certificate's dates",
            ),
            TlsFault::PeerUnknownCa => {
                f.write_str("its certificate is of a CA that is not in this host's ca_file")
            }
            TlsFault::PeerWrongName { expected, presented } => write!(
                f,
                "its certificate is for {presented}, not for {expected}; \
                 put the host's ring name or address into the certificate's alternative names"
            ),
            TlsFault::PeerCertificateRevoked => f.write_str(
                "its certificate is revoked by crl_file; make a new one for that host if it is to \
                 come back",
            ),
            TlsFault::PeerRevocationUnknown => f.write_str(
                "nobody is trusted, because crl_file of this host has not been usable since its \
                 start; put the CA's revocation list there",
            ),
            TlsFault::PeerNotMember => f.write_str(
                "its certificate is of no host of the ring; members_only says that only those are \
                 served",
            ),
            TlsFault::PeerNoCertificate => {
                f.write_str("it showed no certificate; configure cert_file and key_file there")
            }
            TlsFault::PeerCertificateInvalid(what) => {
                write!(f, "its certificate is unusable: {what}")
            }
            TlsFault::OwnCertificateExpired => {
                f.write_str("it says that this host's certificate has expired; renew cert_file")
            }
            TlsFault::OwnCertificateRevoked => f.write_str(
                "it says that this host's certificate is revoked; make a new one for this host",
            ),
            TlsFault::OwnNotMember => f.write_str(
                "it does not know this host as one of the ring, or not yet; see that the agent of this \
                 host runs, and that cert_file has the host's ring name or address",
            ),
            TlsFault::OwnUnknownCa => f.write_str(
                "it does not know the CA of this host's certificate; compare cert_file here with \
                 ca_file there",
            ),
            TlsFault::OwnCertificateRefused(alert) => {
                write!(f, "it refuses this host's certificate ({alert})")
            }
            TlsFault::NotTls => {
                f.write_str("it does not speak TLS; set tls_enabled the same on every host")
            }
            TlsFault::Closed => f.write_str(
                "it closed the connection during the handshake; look at its log, and whether \
                 tls_enabled is the same on both hosts",
            ),
            TlsFault::Other(what) => f.write_str(what),
        }
    }
}

impl TlsFault {
    /// Returns the fault behind a socket error of a TLS stream, or `None` when the socket failed.
    pub fn of(error: &io::Error) -> Option<TlsFault> {
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return Some(TlsFault::from(inner));
        }
        let closed = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        closed.contains(&error.kind()).then_some(TlsFault::Closed)
    }
}

impl From<&Error> for TlsFault {
    fn from(error: &Error) -> TlsFault {
        match error {
            Error::InvalidCertificate(problem) => of_certificate(problem),
            Error::NoCertificatesPresented => TlsFault::PeerNoCertificate,
            Error::AlertReceived(alert) => of_alert(*alert),
            Error::InvalidMessage(_) => TlsFault::NotTls,
            other => TlsFault::Other(other.to_string()),
        }
    }
}

fn of_certificate(problem: &CertificateError) -> TlsFault {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            TlsFault::PeerCertificateExpired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFault::PeerCertificateNotYetValid
        }
        CertificateError::Revoked => TlsFault::PeerCertificateRevoked,
        CertificateError::Other(other) if other.0.is::<RevocationsUnknown>() => {
            TlsFault::PeerRevocationUnknown
        }
        CertificateError::ApplicationVerificationFailure => TlsFault::PeerNotMember,
        // A CA of the same name with another key shows as a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFault::PeerUnknownCa,
        CertificateError::NotValidForNameContext { expected, presented } => {
            TlsFault::PeerWrongName {
                expected: expected.to_str().into_owned(),
                presented: presented.join(", "),
            }
        }
        other => TlsFault::PeerCertificateInvalid(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> TlsFault {
    match alert {
        AlertDescription::CertificateExpired => TlsFault::OwnCertificateExpired,
        AlertDescription::CertificateRevoked => TlsFault::OwnCertificateRevoked,
        AlertDescription::AccessDenied => TlsFault::OwnNotMember,
        // decrypt_error is what a server sends for a certificate of a CA with the same name and
        // another key.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => TlsFault::OwnUnknownCa,
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRequired => {
            TlsFault::OwnCertificateRefused(format!("{alert:?}"))
        }
        other => TlsFault::Other(format!("alert {other:?}")),
    }
}

/// Error of a check while it is not known which certificates are revoked: nobody is let in.
#[derive(Debug, thiserror::Error)]
#[error("no usable revocation list since the start")]
struct RevocationsUnknown;

/// The verdict on every certificate while it is not known which are revoked.
pub(super) fn revocations_unknown() -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(RevocationsUnknown))))
}
