//! Errors of the members' settings.

use acstor_types::ErrorKind;

/// Reason for which members cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// A value outside its range.
    #[error("members of the origin: {name} is {value}, allowed is {allowed}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// There is no member of a name.
    #[error("the origin has no member {0}")]
    Unknown(String),
    /// A thread cannot be started.
    #[error("a thread for calls of the member {member} cannot be started: {cause}")]
    Thread {
        /// The member.
        member: String,
        /// The operating system's reason.
        cause: std::io::Error,
    },
}

impl MembersError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            MembersError::Setting { .. } => ErrorKind::Invalid,
            MembersError::Unknown(_) => ErrorKind::NotFound,
            MembersError::Thread { .. } => ErrorKind::Unavailable,
        }
    }
}
