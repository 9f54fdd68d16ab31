//! Defects of a manifest.

use acstor_types::{Digest, ErrorKind, StoredChunkError};

use crate::MANIFEST_VERSION;

/// Defect of a manifest, or a use of one that it does not allow.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// Fewer or more bytes than the header announces.
    #[error("manifest is {actual} bytes long, {expected} are expected")]
    Length {
        /// Bytes that are there.
        actual: u64,
        /// Bytes that the header announces, or that a header has.
        expected: u64,
    },
    /// Not a manifest.
    #[error("not a manifest: wrong magic")]
    Magic,
    /// Of another version of the format.
    #[error(
        "manifest format version {0} is not supported (this build reads {MANIFEST_VERSION} here)"
    )]
    Version(u32),
    /// Written with features of a later release.
    #[error("manifest has features that are not supported: {0:#x}")]
    Features(u32),
    /// The header is not the one that was asked for.
    #[error("manifest {actual} came in place of {expected}")]
    Name {
        /// Name of what came.
        actual: Digest,
        /// Name that was asked for.
        expected: Digest,
    },
    /// A page is not the one that its digest names.
    #[error("page {0} of the manifest is not the one that its digest names")]
    Page(u32),
    /// Checksums match, but what is said cannot be.
    #[error("manifest is corrupt: {0}")]
    Corrupt(&'static str),
    /// A field is out of range.
    #[error("manifest field out of range: {0}")]
    Range(&'static str),
    /// An entry that no chunk can have, or one of a later release.
    #[error("manifest entry: {0}")]
    Entry(#[from] StoredChunkError),
    /// Manifests that do not belong on each other.
    #[error("manifest does not fit its base: {0}")]
    Base(&'static str),
}

impl ManifestError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ManifestError::Version(_)
            | ManifestError::Features(_)
            | ManifestError::Entry(StoredChunkError::Codec(_)) => ErrorKind::Unsupported,
            ManifestError::Range(_) | ManifestError::Base(_) => ErrorKind::Invalid,
            ManifestError::Length { .. }
            | ManifestError::Magic
            | ManifestError::Name { .. }
            | ManifestError::Page(_)
            | ManifestError::Corrupt(_)
            | ManifestError::Entry(StoredChunkError::Length(_)) => ErrorKind::Corrupt,
        }
    }
}
