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
