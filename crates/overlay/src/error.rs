//! Errors of an overlay outside of a request.

use std::io;

use acstor_types::{DiskId, ErrorKind};

use crate::SinkError;

/// The way out where a local log cannot be mended: it may be the only copy of what was written, so nobody is
/// ever told to remove it.
pub(crate) const GIVE_UP: &str = "give the volume up on this host: 'acstor volume give-up <id>' puts \
                                  the log aside and goes on with what the origin has";

/// An operation on an overlay that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// A value is out of range; repeating the call cannot help.
    #[error("{0}")]
    Invalid(String),
    /// There is no such volume.
    #[error("volume {0} is not in the origin")]
    NotFound(DiskId),
    /// Another host owns the volume, or this one may not.
    #[error("volume {volume} is owned by {owner}: detach it there first")]
    Owned {
        /// The volume.
        volume: DiskId,
        /// The host that owns it.
        owner: String,
    },
    /// The volume's record does not list this host.
    #[error("volume {volume} is not attached to {host}: attach it through the volume service")]
    NotAllowed {
        /// The volume.
        volume: DiskId,
        /// This host.
        host: String,
    },
    /// Another host has become the owner: nothing more is stored.
    #[error("volume {0} has a newer owner: this host was fenced; detach the volume here")]
    Fenced(DiskId),
    /// Another process has the local log open.
    #[error("the local log {0} is in use by another process: stop it")]
    Locked(String),
    /// The local log was written by a release that this one does not understand.
    #[error(
        "local log {path} has format version {found}, this build reads {supported}: upgrade acstor"
    )]
    Version {
        /// File of the log.
        path: String,
        /// Version found on disk.
        found: u32,
        /// Version that this build reads.
        supported: u32,
    },
    /// Something that was stored is not what it should be.
    #[error("{0}")]
    Corrupt(String),
    /// The file of the manifest below the volume is damaged: the origin has that manifest.
    #[error("the manifest below: {0}")]
    Base(String),
    /// The quota or the file system has no room.
    #[error("no room for {0}: raise [volumes] quota_bytes or free disk space")]
    NoSpace(String),
    /// A file operation failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Action that was attempted.
        action: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The origin did not do what was asked.
    #[error(transparent)]
    Origin(#[from] SinkError),
    /// The volume is being closed, or a deadline passed.
    #[error("{0}")]
    Unavailable(String),
}

impl OverlayError {
    /// Takes a file operation's error.
    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> OverlayError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                OverlayError::NoSpace(action.into())
            }
            _ => OverlayError::Io { action: action.into(), source },
        }
    }

    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OverlayError::Invalid(_) => ErrorKind::Invalid,
            OverlayError::NotFound(_) => ErrorKind::NotFound,
            OverlayError::Owned { .. } | OverlayError::NotAllowed { .. } => ErrorKind::Invalid,
            OverlayError::Fenced(_) => ErrorKind::Fenced,
            OverlayError::Version { .. } => ErrorKind::Unsupported,
            OverlayError::Base(_) | OverlayError::Corrupt(_) => ErrorKind::Corrupt,
            OverlayError::NoSpace(_) => ErrorKind::Exhausted,
            OverlayError::Origin(error) => error.kind(),
            OverlayError::Locked(_) | OverlayError::Io { .. } | OverlayError::Unavailable(_) => {
                ErrorKind::Unavailable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    /// Content of a local log may be nowhere else, whatever is wrong with it.
    #[test]
    fn no_text_says_to_remove_a_log() {
        let mut texts = 0;
        let mut paths = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            // A text that goes on in the next line ends with a backslash.
            let words: Vec<&str> = source.split_whitespace().filter(|word| *word != "\\").collect();
            let text = words.join(" ");
            texts += text.matches("{GIVE_UP}").count();
            for what in ["the volume's directory", "its directory", "the directory", "the log"] {
                for verb in ["remove", "delete"] {
                    let said = format!("{verb} {what}");
                    assert!(!text.contains(&said), "{}: {said}", path.display());
                }
            }
        }
        assert!(texts >= 5, "the texts are elsewhere now");
    }
}
