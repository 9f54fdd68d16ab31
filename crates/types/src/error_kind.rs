//! The kinds of error that a caller can act on; every error of every crate maps to one.

/// Kind of an error: the reaction that it allows a caller.
///
/// Each crate's error type has a `kind()` that returns one of these. The edges translate kinds,
/// never texts: one table to errno (fuse), one to peer status codes, one to Python exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The thing asked for does not exist.
    NotFound,
    /// The caller's input is wrong; repeating it cannot help.
    Invalid,
    /// A dependency cannot be reached or did not answer in time; another source may serve.
    Unavailable,
    /// A dependency refuses because of load; another source may serve, or this one later.
    Overloaded,
    /// Content does not match its digest or checksum; use another source.
    Corrupt,
    /// A newer owner exists; stop.
    Fenced,
    /// A version or option that this build does not know.
    Unsupported,
    /// No space, no slot or no quota left.
    Exhausted,
    /// A fault of this program.
    Internal,
}

impl ErrorKind {
    /// Every kind, for the tests that walk the translation tables.
    pub const ALL: [ErrorKind; 9] = [
        ErrorKind::NotFound,
        ErrorKind::Invalid,
        ErrorKind::Unavailable,
        ErrorKind::Overloaded,
        ErrorKind::Corrupt,
        ErrorKind::Fenced,
        ErrorKind::Unsupported,
        ErrorKind::Exhausted,
        ErrorKind::Internal,
    ];

    /// Returns the kind's name as metrics, logs and the admin protocol write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Exhausted => "exhausted",
            ErrorKind::Internal => "internal",
        }
    }
}
