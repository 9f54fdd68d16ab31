//! Errors of a chunk store.

use std::io;
use std::path::PathBuf;

use acstor_types::{Digest, ErrorKind};

use crate::limits;

/// An operation of the chunk store that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another part of this one, has the store open.
    #[error(
        "chunk store {path} is in use by {owner}: stop it, or give this one another path \
         ([store] path)",
        path = path.display(),
        owner = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// Directory of the store.
        path: PathBuf,
        /// Process that holds the lock, as far as the lock file tells.
        pid: Option<u32>,
    },
    /// The store was written by a release that this one does not understand.
    #[error(
        "chunk store {path} has format version {found}, this build reads {supported}: upgrade \
         acstor, or remove the directory (it is a cache; every chunk can be read again)",
        path = path.display()
    )]
    Version {
        /// Superblock of the store.
        path: PathBuf,
        /// Version found on disk.
        found: u32,
        /// Newest version that this build reads.
        supported: u32,
    },
    /// The capacity is too small or too large.
    #[error("chunk store capacity is {given} bytes, allowed are {min} to {max} ([store] capacity)")]
    Capacity {
        /// Configured capacity, bytes.
        given: u64,
        /// Smallest capacity at this chunk size, bytes.
        min: u64,
        /// Largest capacity at this chunk size, bytes.
        max: u64,
    },
    /// The file system cannot give the store its space.
    #[error(
        "cannot preallocate {size_bytes} bytes for {path}: {source}; free that much space, lower \
         [store] capacity, or use a file system with fallocate(2) such as ext4 or XFS",
        path = path.display()
    )]
    Preallocate {
        /// File that was to grow.
        path: PathBuf,
        /// Size it must have, bytes.
        size_bytes: u64,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// Action that was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Content to insert is not one chunk long.
    #[error("a chunk of {given} bytes was offered to a store of {expected}-byte chunks")]
    WrongSize {
        /// Bytes offered.
        given: usize,
        /// Chunk size of the store, bytes.
        expected: usize,
    },
    /// Content to insert is not what its digest names.
    #[error("content offered for chunk {0} has another digest")]
    WrongDigest(Digest),
    /// No further digest may be pinned.
    #[error(
        "{limit} chunks are pinned, which is {percent} % of the chunk store: detach images or \
         raise [store] capacity",
        percent = limits::PINNED_PERCENT_MAX
    )]
    PinLimit {
        /// Most digests that may be pinned.
        limit: usize,
    },
}

impl StoreError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StoreError::Locked { .. } => ErrorKind::Unavailable,
            StoreError::Version { .. } => ErrorKind::Unsupported,
            StoreError::Capacity { .. } | StoreError::WrongSize { .. } => ErrorKind::Invalid,
            StoreError::Preallocate { source, .. } | StoreError::Io { source, .. } => {
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        ErrorKind::Exhausted
                    }
                    io::ErrorKind::Unsupported => ErrorKind::Unsupported,
                    _ => ErrorKind::Unavailable,
                }
            }
            StoreError::WrongDigest(_) => ErrorKind::Corrupt,
            StoreError::PinLimit { .. } => ErrorKind::Exhausted,
        }
    }
}
