//! The read path: store, peers and origin behind one verified read.

mod view;

pub use view::{BlockView, ExtentKind, ReadFuture, Segment, TryRead};

/// Why a read could not be served.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The deadline passed.
    #[error("no source answered within {0} ms")]
    Deadline(u64),
}

impl ReadError {
    /// What the caller can do about it.
    pub fn kind(&self) -> acstor_types::ErrorKind {
        match self {
            ReadError::Deadline(_) => acstor_types::ErrorKind::Unavailable,
        }
    }
}
