//! Defects of packs.

use acstor_types::{ErrorKind, StoredChunkError};

use crate::header::{PACK_VERSION, PackHeader};

/// Defect of a pack's header or table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Fewer bytes than a header has.
    #[error("pack header is {0} bytes long, {len} are needed", len = PackHeader::LEN)]
    Truncated(usize),
    /// Not a pack.
    #[error("not a pack: wrong magic")]
    Magic,
    /// Written by a release that this one does not understand, or by one of before.
    #[error("pack format version {0} is not read here (version {PACK_VERSION} is)")]
    Version(u32),
    /// Of a later release.
    #[error("pack class {0} is not known")]
    Class(u8),
    /// A field of the header is damaged or out of range.
    #[error("pack header is corrupt: {0}")]
    Header(&'static str),
    /// The table is not of the length that the header says.
    #[error("pack table is {actual} bytes long in place of {expected}")]
    TableLength {
        /// Bytes that are there.
        actual: usize,
        /// Bytes that the header says.
        expected: u64,
    },
    /// Header and table are those of another pack.
    #[error("pack header and table are not those of this id")]
    Id,
    /// A record of the table is damaged.
    #[error("pack table, chunk {ordinal}: {cause}")]
    Record {
        /// Position in the table.
        ordinal: u32,
        /// Reason.
        cause: StoredChunkError,
    },
    /// A chunk has no such place or length.
    #[error("pack table, chunk {ordinal}: {reason}")]
    Place {
        /// Position in the table.
        ordinal: u32,
        /// Reason.
        reason: &'static str,
    },
}

impl PackError {
    /// The reaction that it allows a caller.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            PackError::Version(_) | PackError::Class(_) => ErrorKind::Unsupported,
            PackError::Truncated(_)
            | PackError::Magic
            | PackError::Header(_)
            | PackError::TableLength { .. }
            | PackError::Id
            | PackError::Record { .. }
            | PackError::Place { .. } => ErrorKind::Corrupt,
        }
    }
}
