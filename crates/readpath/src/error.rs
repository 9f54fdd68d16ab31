//! Errors of the read path.

use acstor_types::{Digest, DiskId, ErrorKind};

/// Error of a read that could not be served.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The deadline passed.
    #[error("no source answered within {0} ms")]
    Deadline(u64),
    /// Every source that answered sent other content than the digest names.
    #[error("every source of chunk {digest} sends other content; verify the image in the origin")]
    Corrupt {
        /// The chunk.
        digest: Digest,
    },
    /// The origin does not have what the manifest refers to.
    #[error("chunk {digest} is not in the origin; was the image removed?")]
    Missing {
        /// The chunk.
        digest: Digest,
    },
    /// A read longer than [`crate::limits::READ_LEN_MAX`].
    #[error("a read of {len} bytes is longer than the limit of {max}")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The manifest of the disk, which is not in memory, cannot be read.
    #[error("the manifest of disk {disk} cannot be read from this host's disk: {reason}")]
    Manifest {
        /// The disk.
        disk: DiskId,
        /// True if it is so each time it is read.
        is_damaged: bool,
        /// Fault of the manifest.
        reason: String,
    },
    /// The read path was stopped.
    #[error("the read path is stopped")]
    Stopped,
    /// A fault of this program.
    #[error("internal error of the read path: {0}")]
    Internal(&'static str),
}

impl ReadError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadError::Deadline(_) | ReadError::Stopped => ErrorKind::Unavailable,
            ReadError::Corrupt { .. } | ReadError::Manifest { is_damaged: true, .. } => {
                ErrorKind::Corrupt
            }
            ReadError::Manifest { .. } => ErrorKind::Unavailable,
            ReadError::Missing { .. } => ErrorKind::NotFound,
            ReadError::TooLong { .. } => ErrorKind::Invalid,
            ReadError::Internal(_) => ErrorKind::Internal,
        }
    }
}

/// Error of setting up or changing the read path.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadPathError {
    /// A value of the configuration is outside its range.
    #[error("[readpath] {name} = {value} is out of range: allowed is {allowed}")]
    Config {
        /// Name of the value.
        name: &'static str,
        /// Value that was given, in the unit of the range.
        value: String,
        /// The allowed range.
        allowed: String,
    },
    /// Another state of the disk is attached.
    #[error("disk {0} is attached with other content; detach it first")]
    Conflict(DiskId),
    /// The disk's chunk size is not the chunk store's.
    #[error("disk {disk} has chunks of {theirs} bytes, this host keeps chunks of {ours} bytes")]
    ChunkSize {
        /// The disk.
        disk: DiskId,
        /// Its chunk size, bytes.
        theirs: u32,
        /// The chunk store's chunk size, bytes.
        ours: u32,
    },
    /// No such disk is attached.
    #[error("disk {0} is not attached")]
    NotAttached(DiskId),
    /// The manifest of the disk cannot be read.
    #[error("the manifest of disk {disk} cannot be read: {reason}")]
    Manifest {
        /// The disk.
        disk: DiskId,
        /// Kind, which says what a caller can do about it.
        kind: ErrorKind,
        /// Fault of the manifest.
        reason: String,
    },
    /// The bytes given are no working set of the disk.
    #[error("no working set of disk {disk}: {reason}")]
    WorkingSet {
        /// The disk.
        disk: DiskId,
        /// Fault of it.
        reason: String,
    },
    /// The bytes given are no orders of boots of the disk.
    #[error("no boot profile of disk {disk}: {reason}")]
    BootProfile {
        /// The disk.
        disk: DiskId,
        /// Fault of it.
        reason: String,
    },
    /// No working set of the disk is known.
    #[error("no working set of disk {0} is known; boot it once, or preload the whole of it")]
    NoWorkingSet(DiskId),
    /// The disk has too many chunks.
    #[error("disk {disk} has {chunks} chunks; working sets and preloads go up to {max}")]
    TooManyChunks {
        /// The disk.
        disk: DiskId,
        /// Its chunks.
        chunks: u64,
        /// The limit.
        max: u64,
    },
    /// The disk has too many different chunks with content to be preloaded whole.
    #[error(
        "disk {disk} has more than {max} different chunks with content, which is the most that a \
         preload of a whole disk brings; preload the working set"
    )]
    TooMuchContent {
        /// The disk.
        disk: DiskId,
        /// The limit.
        max: usize,
    },
    /// As many disks are attached as the limit allows.
    #[error("{0} disks are attached, no more are allowed")]
    TooManyDisks(usize),
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {cause}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// The system's error.
        cause: String,
    },
}

impl ReadPathError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadPathError::Manifest { kind, .. } => *kind,
            ReadPathError::Config { .. }
            | ReadPathError::Conflict(_)
            | ReadPathError::WorkingSet { .. }
            | ReadPathError::BootProfile { .. }
            | ReadPathError::ChunkSize { .. } => ErrorKind::Invalid,
            ReadPathError::NotAttached(_) | ReadPathError::NoWorkingSet(_) => ErrorKind::NotFound,
            ReadPathError::TooManyChunks { .. } | ReadPathError::TooMuchContent { .. } => {
                ErrorKind::Unsupported
            }
            ReadPathError::TooManyDisks(_) => ErrorKind::Exhausted,
            ReadPathError::Thread { .. } => ErrorKind::Internal,
        }
    }
}
