//! Reasons for which an object cannot be read from a cluster.

use std::io;

use acstor_readpath::OriginError;
use acstor_types::ErrorKind;

use crate::HEAD_VERSION;
use crate::binding::Errno;

/// Advice where the cluster does not answer.
const REACH: &str = "check that monitors and OSDs are up ('ceph -s') and reached from here";
/// Advice where this client lacks a right.
const CAPABILITIES: &str = "give this client the capabilities that the page on Ceph names";
/// Advice where the monitors have blocked this client.
const BLOCKED: &str = "this client may be blocked ('ceph osd blocklist ls'): find out who did that \
                       and why, then restart this service";

/// Reason for which an object was not read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RadosError {
    /// librados is not installed, or is no librados.
    #[error("{library} cannot be loaded: {cause}; install the package librados2")]
    Library {
        /// File that was looked for.
        library: &'static str,
        /// The loader's own text.
        cause: String,
    },
    /// A text that librados cannot be given.
    #[error("the {what} holds a byte of zeros")]
    ZeroByte {
        /// Meaning of the text.
        what: &'static str,
    },
    /// There is no such object, and the cluster is there.
    #[error("the origin has no object {key}")]
    NotFound {
        /// The object.
        key: String,
    },
    /// An object whose head or stripes cannot be right.
    #[error("object {key} is damaged: {cause}")]
    Damaged {
        /// The object.
        key: String,
        /// The defect.
        cause: &'static str,
    },
    /// A stripe that is shorter than its head says.
    #[error("stripe {stripe} of {key} is cut off")]
    CutOff {
        /// The object.
        key: String,
        /// Number of the stripe.
        stripe: u64,
    },
    /// A head of a later release.
    #[error("{key} has a head of version {version}, this release reads {}", HEAD_VERSION)]
    HeadVersion {
        /// The object.
        key: String,
        /// Version of its head.
        version: u8,
    },
    /// A pool that was deleted under this process; what has its name now is another one.
    #[error(
        "{cluster}: pool {pool} was deleted since this service opened it; restore the repository, \
         then restart this service: it uses no pool made meanwhile"
    )]
    PoolDeleted {
        /// The cluster.
        cluster: String,
        /// Name of the pool.
        pool: String,
    },
    /// Somebody else has been connecting for as long as a call may take.
    #[error("{cluster}: another call has not reached the cluster yet; {}", REACH)]
    Connecting {
        /// The cluster.
        cluster: String,
    },
    /// The reader was closed.
    #[error("the origin in Ceph is closed: the data plane ends")]
    Closed,
    /// A call of librados that failed.
    #[error("{cluster}: {what}: {cause}; {hint}")]
    Call {
        /// The cluster.
        cluster: String,
        /// Action that failed, and on what.
        what: String,
        /// The error.
        cause: String,
        /// Advice to the operator.
        hint: String,
        /// Kind of the error.
        kind: ErrorKind,
    },
}

impl RadosError {
    /// The meaning of an error of librados, other than that an object is absent.
    pub(crate) fn of(cluster: &str, what: String, code: Errno) -> RadosError {
        let (kind, hint) = match code.0 {
            libc::EPERM | libc::EACCES => (ErrorKind::Invalid, CAPABILITIES),
            libc::EINVAL | libc::ENAMETOOLONG | libc::EFBIG | libc::EMSGSIZE => {
                (ErrorKind::Invalid, "correct the URL of the origin")
            }
            libc::EOPNOTSUPP => (ErrorKind::Unsupported, "the cluster's release is too old"),
            // EBLOCKLISTED of Ceph.
            libc::ESHUTDOWN => (ErrorKind::Unavailable, BLOCKED),
            _ => (ErrorKind::Unavailable, REACH),
        };
        RadosError::failed(cluster, what, code, kind, hint.to_owned())
    }

    pub(crate) fn failed(
        cluster: &str,
        what: String,
        code: Errno,
        kind: ErrorKind,
        hint: String,
    ) -> RadosError {
        let cause = io::Error::from_raw_os_error(code.0).to_string();
        RadosError::Call { cluster: cluster.to_owned(), what, cause, hint, kind }
    }

    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RadosError::NotFound { .. } => ErrorKind::NotFound,
            RadosError::Damaged { .. } | RadosError::CutOff { .. } => ErrorKind::Corrupt,
            RadosError::Library { .. } | RadosError::HeadVersion { .. } => ErrorKind::Unsupported,
            RadosError::ZeroByte { .. } => ErrorKind::Invalid,
            RadosError::PoolDeleted { .. } | RadosError::Connecting { .. } | RadosError::Closed => {
                ErrorKind::Unavailable
            }
            RadosError::Call { kind, .. } => *kind,
        }
    }

    /// The error as the read path knows it, of the object `name` whose range ends at byte `end`.
    pub(crate) fn into_origin_error(self, name: &str, end: u64) -> OriginError {
        let pack = name.to_owned();
        match (&self, self.kind()) {
            (RadosError::CutOff { .. }, _) => OriginError::ShortRead { pack, end },
            (_, ErrorKind::NotFound) => OriginError::NotFound { pack },
            (_, ErrorKind::Invalid | ErrorKind::Internal | ErrorKind::Unsupported) => {
                OriginError::Internal(self.to_string())
            }
            _ => OriginError::Unavailable { pack, cause: self.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: i32) -> RadosError {
        RadosError::of("the cluster of /etc/ceph/ceph.conf", "reading x".into(), Errno(code))
    }

    #[test]
    fn test_error_names_cluster_call_cause_and_advice() {
        let text = failed(libc::ETIMEDOUT).to_string();
        assert!(text.starts_with("the cluster of /etc/ceph/ceph.conf: reading x: "), "{text}");
        assert!(text.contains("timed out") && text.contains("'ceph -s'"), "{text}");
        assert!(failed(libc::ESHUTDOWN).to_string().contains("blocklist"));
        assert!(failed(libc::EACCES).to_string().contains("capabilities"));
    }

    #[test]
    fn test_kind_follows_the_code() {
        for (code, kind) in [
            (libc::ETIMEDOUT, ErrorKind::Unavailable),
            (libc::EIO, ErrorKind::Unavailable),
            (libc::ECANCELED, ErrorKind::Unavailable),
            (libc::ESHUTDOWN, ErrorKind::Unavailable),
            (libc::EPERM, ErrorKind::Invalid),
            (libc::EINVAL, ErrorKind::Invalid),
            (libc::EOPNOTSUPP, ErrorKind::Unsupported),
        ] {
            assert_eq!(failed(code).kind(), kind, "{code}");
        }
    }

    #[test]
    fn test_read_path_is_told_of_the_same() {
        let key = || "packs/aa/x".to_owned();
        let told = |error: RadosError| error.into_origin_error("x", 9);
        let not_found = OriginError::NotFound { pack: "x".into() };
        assert_eq!(told(RadosError::NotFound { key: key() }), not_found);
        let short = OriginError::ShortRead { pack: "x".into(), end: 9 };
        assert_eq!(told(RadosError::CutOff { key: key(), stripe: 1 }), short);
        // As a damaged object is to who reads through Python: another attempt may find a good one.
        let damaged = RadosError::Damaged { key: key(), cause: "it has no head" };
        assert_eq!(told(damaged).kind(), ErrorKind::Unavailable);
        assert_eq!(told(failed(libc::ETIMEDOUT)).kind(), ErrorKind::Unavailable);
        assert_eq!(told(failed(libc::EACCES)).kind(), ErrorKind::Internal);
        let later = RadosError::HeadVersion { key: key(), version: 2 };
        assert_eq!(told(later).kind(), ErrorKind::Internal);
    }
}
