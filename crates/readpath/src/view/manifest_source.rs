//! The seam to where a manifest is read again: a file on this host's own disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use acstor_types::{ErrorKind, MANIFEST_HEADER_LEN, Manifest, ManifestError, ManifestHeader};
use bytes::Bytes;
use memmap2::MmapMut;

/// Error of reading a manifest.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ManifestFault {
    /// Kind, which says what a caller can do about it.
    pub kind: ErrorKind,
    /// Fault of the manifest.
    pub message: String,
}

impl ManifestFault {
    /// Returns whether the same manifest is bad each time it is read.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Invalid)
    }

    /// Content that is not what it was.
    pub(crate) fn changed() -> ManifestFault {
        let message = "it is not the manifest that was attached".to_owned();
        ManifestFault { kind: ErrorKind::Corrupt, message }
    }
}

impl From<ManifestError> for ManifestFault {
    fn from(error: ManifestError) -> ManifestFault {
        ManifestFault { kind: error.kind(), message: error.to_string() }
    }
}

impl From<io::Error> for ManifestFault {
    fn from(error: io::Error) -> ManifestFault {
        let kind = match error.kind() {
            // Shorter than it was.
            io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            _ => ErrorKind::Unavailable,
        };
        ManifestFault { kind, message: error.to_string() }
    }
}

/// Source from which the manifest of an attached disk is read whenever it is needed.
pub trait ManifestSource: Send + Sync + 'static {
    /// Reads and validates the manifest; waits for the local disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    fn read(&self) -> Result<Manifest, ManifestFault>;
}

/// A manifest in a file. The file stays the same one when its name is changed or taken away.
#[derive(Debug)]
pub struct ManifestFile {
    file: File,
    len: u64,
}

impl ManifestFile {
    /// Takes an open file.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn new(file: File) -> io::Result<ManifestFile> {
        let len = file.metadata()?.len();
        Ok(ManifestFile { file, len })
    }

    /// Reads what the first bytes say, and that the file has the length for it.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub fn header(&self) -> Result<ManifestHeader, ManifestFault> {
        let mut bytes = [0; MANIFEST_HEADER_LEN];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(ManifestHeader::parse(&bytes, self.len)?)
    }
}

impl ManifestSource for ManifestFile {
    fn read(&self) -> Result<Manifest, ManifestFault> {
        // Its length is checked before so much memory is taken.
        self.header()?;
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        // Pages of its own, which the kernel has back at once: the allocator keeps what lies below
        // anything that lives, after a storm as much as all images that were read.
        let mut bytes = MmapMut::map_anon(len).map_err(|error| {
            let message = format!("there is no memory for {len} bytes: {error}");
            ManifestFault { kind: ErrorKind::Exhausted, message }
        })?;
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(Manifest::parse(Bytes::from_owner(bytes))?)
    }
}
