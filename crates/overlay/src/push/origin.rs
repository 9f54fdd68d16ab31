//! The seam to the origin: objects that never change. The volume's record, a ref, is changed by the
//! data plane's host only.

use acstor_types::ErrorKind;
use bytes::Bytes;

/// Error of the origin.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SinkError {
    /// There is no such object, and the origin is there.
    #[error("{0} is not in the origin")]
    NotFound(String),
    /// The origin cannot be reached or fails. A write may have taken place all the same.
    #[error("the origin does not answer for {key}: {cause}")]
    Unavailable {
        /// Object or ref.
        key: String,
        /// The driver's own text.
        cause: String,
    },
    /// The origin has no room. The write may have taken place all the same.
    #[error("the origin is full: {0}")]
    Exhausted(String),
    /// The driver refuses the key or the content.
    #[error("the origin refuses {key}: {cause}")]
    Invalid {
        /// Object or ref.
        key: String,
        /// The driver's own text.
        cause: String,
    },
}

impl SinkError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SinkError::NotFound(_) => ErrorKind::NotFound,
            SinkError::Unavailable { .. } => ErrorKind::Unavailable,
            SinkError::Exhausted(_) => ErrorKind::Exhausted,
            SinkError::Invalid { .. } => ErrorKind::Invalid,
        }
    }
}

/// The origin as an overlay writes it. Every call blocks, and is made on threads of the overlay.
///
/// The implementation must bound every call by a deadline; it need not retry. What
/// `put_if_absent` reported must survive a power failure, objects appear whole or not at all, and
/// after an error of it the caller does not know whether it took place.
pub trait OriginSink: Send + Sync + 'static {
    /// Stores an object made of `parts`, one after the other; `false`: the key was there already.
    ///
    /// # Errors
    /// [`SinkError`]; the object may be there.
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError>;

    /// Returns an object, or `None` when there is none. Larger than `size_max`: an error.
    ///
    /// # Errors
    /// [`SinkError`].
    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError>;

    /// Returns the keys of the objects in the folder `prefix` (it ends with a slash).
    ///
    /// # Errors
    /// [`SinkError`].
    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError>;
}
