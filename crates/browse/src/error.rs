//! Errors of looking into a disk.

use std::io;

/// Reason for which something of a disk is not shown.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    /// There is no such partition or file.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be asked for that way.
    #[error("{0}")]
    Invalid(String),
    /// It is there, and nothing here reads it.
    #[error("{0}")]
    Unsupported(String),
    /// The disk contradicts itself.
    #[error("{0}")]
    Damaged(String),
    /// It is more than is shown at once.
    #[error("{0}")]
    TooLarge(String),
    /// The bytes of the disk, or who asked, cannot be reached.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for BrowseError {
    /// Returns what the error was before it went through a reader of `std`.
    fn from(error: io::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(Self::Io)
    }
}

impl BrowseError {
    /// Returns the name of the kind, as it goes over the socket.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Invalid(_) => "invalid",
            Self::Unsupported(_) => "unsupported",
            Self::Damaged(_) => "damaged",
            Self::TooLarge(_) => "too_large",
            Self::Io(_) => "unavailable",
        }
    }
}
