//! Errors of mounting, taking over and attaching.

use std::io;
use std::path::PathBuf;

use acstor_types::{DiskId, ErrorKind};

/// Error of an operation of the FUSE front end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    /// An option is out of range.
    #[error("{option} must be {allowed}")]
    Config {
        /// Name of the option.
        option: &'static str,
        /// Values that are allowed.
        allowed: &'static str,
    },
    /// `/dev/fuse` could not be opened.
    #[error("cannot open /dev/fuse: {0}; load the module (modprobe fuse) and run as root")]
    Device(#[source] io::Error),
    /// mount(2) failed.
    #[error("cannot mount on {mount_point}: {source}; the directory must exist and be unused")]
    Mount {
        /// Directory to mount on.
        mount_point: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something is mounted there already.
    #[error(
        "{mount_point} is a FUSE mount of a live connection: hand its descriptor over, or unmount \
         it"
    )]
    MountedAlready {
        /// Directory to mount on.
        mount_point: PathBuf,
    },
    /// The mount could not be taken away.
    #[error("cannot unmount {mount_point}: {source}")]
    Unmount {
        /// Directory of the mount.
        mount_point: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The descriptor handed over is no FUSE connection, or its connection has ended.
    #[error("the descriptor handed over is not a live FUSE connection: {0}; mount anew")]
    TakeOver(#[source] io::Error),
    /// The process before this one agreed with the kernel on something that this build cannot do.
    #[error("the FUSE session was set up by a newer version ({what}); start that version again")]
    SessionTooNew {
        /// Property of the session that is unknown.
        what: String,
    },
    /// The session file is damaged.
    #[error("session file {path} is damaged ({what}); remove it to take over with the defaults")]
    SessionFile {
        /// Path of the session file.
        path: PathBuf,
        /// Damage that was found.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a FUSE thread: {0}")]
    Thread(#[source] io::Error),
    /// A file name is empty, too long, or has a slash.
    #[error("{name:?} is no file name")]
    Name {
        /// The name.
        name: String,
    },
    /// The name or the disk is attached already.
    #[error("{what} is attached already")]
    Attached {
        /// The name or disk id.
        what: String,
    },
    /// A disk with that id is attached, or still open, with another size.
    #[error("disk {disk} has {attached} bytes here, not {offered}; an image never changes size")]
    SizeChanged {
        /// The disk.
        disk: DiskId,
        /// Size known to the kernel, bytes.
        attached: u64,
        /// Size of the view offered, bytes.
        offered: u64,
    },
    /// Two disk ids have one inode number (a chance of 2^-63 per pair, or an attack).
    #[error("disk {disk} has the inode number of {other}; register it under another id")]
    InodeTaken {
        /// The disk refused.
        disk: DiskId,
        /// The disk that has the number.
        other: DiskId,
    },
    /// The disk is not attached.
    #[error("disk {disk} is not attached")]
    NotAttached {
        /// The disk.
        disk: DiskId,
    },
    /// The table is full.
    #[error("{0} files are attached, which is the most")]
    TableFull(usize),
}

impl FuseError {
    /// Returns the kind, which says what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FuseError::Config { .. }
            | FuseError::Name { .. }
            | FuseError::Attached { .. }
            | FuseError::SizeChanged { .. }
            | FuseError::InodeTaken { .. } => ErrorKind::Invalid,
            FuseError::NotAttached { .. } => ErrorKind::NotFound,
            FuseError::TableFull(_) => ErrorKind::Exhausted,
            FuseError::MountedAlready { .. } => ErrorKind::Fenced,
            FuseError::SessionTooNew { .. } => ErrorKind::Unsupported,
            FuseError::SessionFile { .. } => ErrorKind::Corrupt,
            FuseError::Device(_)
            | FuseError::Mount { .. }
            | FuseError::Unmount { .. }
            | FuseError::TakeOver(_) => ErrorKind::Unavailable,
            FuseError::Io { .. } | FuseError::Thread(_) => ErrorKind::Internal,
        }
    }
}
