//! Errors of a ring, its parts and its encodings.

use acstor_types::ErrorKind;

use crate::codec::RING_VERSION;

/// Defect for which a ring was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Fewer or more bytes than the header announces.
    #[error("ring is {actual} bytes long, {expected} are expected")]
    Length {
        /// Bytes that are there.
        actual: u64,
        /// Bytes that the header announces, or that a header has.
        expected: u64,
    },
    /// Not a ring.
    #[error("not a ring: wrong magic")]
    Magic,
    /// Written by a release that this one does not understand.
    #[error("ring format version {0} is not supported (this build reads {RING_VERSION})")]
    Version(u32),
    /// A checksum does not match.
    #[error("ring is corrupt: {0}")]
    Corrupt(&'static str),
    /// A field of an encoding or an argument is out of range.
    #[error("ring field out of range: {0}")]
    Range(&'static str),
    /// A host's description is not acceptable.
    #[error("host {name:?}: {reason}")]
    Host {
        /// The host's name as given.
        name: String,
        /// Fault of the description.
        reason: &'static str,
    },
    /// The ring has no host of this name.
    #[error("the ring has no host {0:?}")]
    UnknownHost(String),
    /// Nobody can own anything.
    #[error("every host has weight 0: give at least one host a weight")]
    NoWeight,
    /// The text form is not well formed.
    #[error("line {line}: {reason}")]
    Text {
        /// Number of the line, from 1.
        line: usize,
        /// Fault of the line.
        reason: &'static str,
    },
    /// A ring that is not newer than the one it would replace.
    #[error("ring generation {offered} is refused: generation {current} is in use")]
    Fenced {
        /// Generation of the refused ring.
        offered: u64,
        /// Generation in use.
        current: u64,
    },
}

impl RingError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RingError::Version(_) => ErrorKind::Unsupported,
            RingError::Length { .. } | RingError::Magic | RingError::Corrupt(_) => {
                ErrorKind::Corrupt
            }
            RingError::Range(_)
            | RingError::Host { .. }
            | RingError::NoWeight
            | RingError::Text { .. } => ErrorKind::Invalid,
            RingError::UnknownHost(_) => ErrorKind::NotFound,
            RingError::Fenced { .. } => ErrorKind::Fenced,
        }
    }
}
