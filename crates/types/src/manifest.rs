//! The manifest: chunk index to digest and location, for one immutable disk state.
//!
//! Source: ACStor §3.4.3 (OTC table). Differs: the table is an object of the origin with its own
//! digest, and also says where in which pack each chunk is.
//!
//! Layout (all integers little-endian), described in `reference/formats/manifest`:
//!
//! ```text
//! 0      magic "ACSTMANI"                      8
//! 8      version                               u32
//! 12     chunk size, bytes                     u32
//! 16     disk id                               16
//! 32     disk size, bytes                      u64
//! 40     chunk count = ceil(disk size / chunk size)   u64
//! 48     pack count                            u32
//! 52     salt                                  u64
//! 60     CRC-32 of bytes 0..60                 u32
//! 64     BLAKE3 of everything from byte 96 on  32
//! 96     pack ids                              pack count x 32
//! then   entries                               chunk count x 40:
//!          digest                              32
//!          pack index, 0xffffffff: zero chunk  u32
//!          offset in the pack, bytes           u32
//! ```
//!
//! An entry of a zero chunk is all zeros but for its pack index. The salt, chosen at random for
//! every manifest that is stored, keeps a name from ever being used twice, so that a late deletion
//! of a collected manifest cannot hit a new one (RFD 5); readers ignore it.

use bytes::Bytes;

use crate::bytes_le::{array_at, u32_at, u64_at};
use crate::pack::PACK_DATA_OFFSET;
use crate::{ChunkSize, Digest, DiskId, ErrorKind, PackId, limits};

/// Version that this build writes; it reads this one only.
pub const MANIFEST_VERSION: u32 = 1;

pub(crate) const MAGIC: &[u8; 8] = b"ACSTMANI";
pub(crate) const SALT_OFFSET: usize = 52;
pub(crate) const CRC_OFFSET: usize = 60;
pub(crate) const BODY_DIGEST_OFFSET: usize = 64;
pub(crate) const BODY_OFFSET: usize = 96;
pub(crate) const ENTRY_LEN: usize = 40;
pub(crate) const ZERO_PACK: u32 = u32::MAX;

/// Defect of a manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// Fewer or more bytes than the header announces.
    #[error("manifest is {actual} bytes long, {expected} are expected")]
    Length {
        /// Bytes that are there.
        actual: u64,
        /// Bytes that the header announces, or that a header has.
        expected: u64,
    },
    /// Not a manifest.
    #[error("not a manifest: wrong magic")]
    Magic,
    /// Written by a release that this one does not understand.
    #[error("manifest format version {0} is not supported (this build reads {MANIFEST_VERSION})")]
    Version(u32),
    /// A checksum does not match.
    #[error("manifest is corrupt: {0}")]
    Corrupt(&'static str),
    /// A field is out of range.
    #[error("manifest field out of range: {0}")]
    Range(&'static str),
}

impl ManifestError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ManifestError::Version(_) => ErrorKind::Unsupported,
            ManifestError::Range(_) => ErrorKind::Invalid,
            ManifestError::Length { .. } | ManifestError::Magic | ManifestError::Corrupt(_) => {
                ErrorKind::Corrupt
            }
        }
    }
}

/// Location of a chunk in the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkLocation {
    /// The pack that holds the chunk.
    pub pack: PackId,
    /// Offset of the chunk in the pack, bytes.
    pub offset: u32,
}

/// Entry of a manifest: one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Every byte is zero; nothing is stored.
    Zero,
    /// The chunk has content.
    Chunk {
        /// Name of the content.
        digest: Digest,
        /// Place of the chunk on the origin.
        location: ChunkLocation,
    },
}

/// Length of a header, bytes.
pub const MANIFEST_HEADER_LEN: usize = BODY_OFFSET;

/// Header of a manifest: properties of the disk, without the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestHeader {
    /// The disk whose state it is.
    pub disk_id: DiskId,
    /// Size of the disk, bytes.
    pub size_bytes: u64,
    /// Size of every chunk.
    pub chunk_size: ChunkSize,
    /// Number of chunks, zero chunks included.
    pub chunk_count: u64,
    /// Number of packs referred to.
    pub pack_count: u32,
}

impl ManifestHeader {
    /// Reads the header of a manifest that is `len` bytes long. `bytes` are its first ones, at least
    /// [`MANIFEST_HEADER_LEN`].
    ///
    /// # Errors
    /// [`ManifestError`] as of [`Manifest::parse`], but for what is wrong with the entries.
    pub fn parse(bytes: &[u8], len: u64) -> Result<ManifestHeader, ManifestError> {
        if bytes.len() < BODY_OFFSET {
            let actual = len.min(bytes.len() as u64);
            return Err(ManifestError::Length { actual, expected: BODY_OFFSET as u64 });
        }
        if &bytes[..8] != MAGIC {
            return Err(ManifestError::Magic);
        }
        let version = u32_at(bytes, 8);
        if version != MANIFEST_VERSION {
            return Err(ManifestError::Version(version));
        }
        if crc32fast::hash(&bytes[..CRC_OFFSET]) != u32_at(bytes, CRC_OFFSET) {
            return Err(ManifestError::Corrupt("header checksum"));
        }
        let header = ManifestHeader {
            chunk_size: ChunkSize::new(u32_at(bytes, 12))
                .ok_or(ManifestError::Range("chunk size"))?,
            disk_id: DiskId::from_bytes(array_at(bytes, 16)),
            size_bytes: u64_at(bytes, 32),
            chunk_count: u64_at(bytes, 40),
            pack_count: u32_at(bytes, 48),
        };
        header.check_ranges(len)?;
        Ok(header)
    }

    fn check_ranges(&self, actual: u64) -> Result<(), ManifestError> {
        if self.size_bytes > limits::DISK_SIZE_MAX {
            return Err(ManifestError::Range("disk size"));
        }
        if self.chunk_count > limits::MANIFEST_CHUNKS_MAX
            || self.chunk_count != self.chunk_size.count_for(self.size_bytes)
        {
            return Err(ManifestError::Range("chunk count"));
        }
        if self.pack_count > limits::MANIFEST_PACKS_MAX {
            return Err(ManifestError::Range("pack count"));
        }
        let expected = self.entries_offset() as u64 + self.chunk_count * ENTRY_LEN as u64;
        if actual != expected {
            return Err(ManifestError::Length { actual, expected });
        }
        Ok(())
    }

    fn entries_offset(&self) -> usize {
        BODY_OFFSET + self.pack_count as usize * Digest::LEN
    }
}

/// A validated manifest; entries are read from its bytes, which are never copied.
#[derive(Clone)]
pub struct Manifest {
    bytes: Bytes,
    header: ManifestHeader,
}

impl Manifest {
    /// Reads and validates a manifest: checksums, lengths, and every entry's ranges.
    ///
    /// # Errors
    /// [`ManifestError`] when anything is out of order; no later call can fail on its content.
    pub fn parse(bytes: Bytes) -> Result<Manifest, ManifestError> {
        let header = ManifestHeader::parse(&bytes, bytes.len() as u64)?;
        let manifest = Manifest { bytes, header };
        if Digest::of(&manifest.bytes[BODY_OFFSET..]).as_bytes()
            != &manifest.bytes[BODY_DIGEST_OFFSET..BODY_OFFSET]
        {
            return Err(ManifestError::Corrupt("body digest"));
        }
        manifest.check_entries()?;
        Ok(manifest)
    }

    fn check_entries(&self) -> Result<(), ManifestError> {
        let last_offset = limits::PACK_SIZE_MAX - self.header.chunk_size.bytes() as u64;
        for entry in self.bytes[self.entries_offset()..].chunks_exact(ENTRY_LEN) {
            let (pack, offset) = (u32_at(entry, 32), u64::from(u32_at(entry, 36)));
            if pack == ZERO_PACK {
                if entry[..32].iter().chain(&entry[36..]).any(|byte| *byte != 0) {
                    return Err(ManifestError::Range("zero chunk with a digest"));
                }
            } else if pack >= self.header.pack_count {
                return Err(ManifestError::Range("pack index"));
            } else if offset < PACK_DATA_OFFSET || offset > last_offset {
                return Err(ManifestError::Range("offset in the pack"));
            }
        }
        Ok(())
    }

    fn entries_offset(&self) -> usize {
        self.header.entries_offset()
    }

    /// The header.
    pub fn header(&self) -> ManifestHeader {
        self.header
    }

    /// The manifest's bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// BLAKE3 of the manifest's bytes: its name in the origin.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// The disk whose state this is.
    pub fn disk_id(&self) -> DiskId {
        self.header.disk_id
    }

    /// Size of the disk, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.header.size_bytes
    }

    /// Size of every chunk.
    pub fn chunk_size(&self) -> ChunkSize {
        self.header.chunk_size
    }

    /// Number of chunks, zero chunks included.
    pub fn chunk_count(&self) -> u64 {
        self.header.chunk_count
    }

    /// Number of packs referred to.
    pub fn pack_count(&self) -> u32 {
        self.header.pack_count
    }

    /// Returns the id of pack `index`, or `None` at or past [`Manifest::pack_count`].
    pub fn pack(&self, index: u32) -> Option<PackId> {
        (index < self.header.pack_count).then(|| {
            let offset = BODY_OFFSET + index as usize * Digest::LEN;
            PackId(Digest::from_bytes(array_at(&self.bytes, offset)))
        })
    }

    /// Returns what the manifest says of chunk `index`, or `None` past the end of the disk.
    pub fn entry(&self, index: u64) -> Option<Entry> {
        if index >= self.header.chunk_count {
            return None;
        }
        let offset = self.entries_offset() + index as usize * ENTRY_LEN;
        let entry = &self.bytes[offset..offset + ENTRY_LEN];
        let pack = u32_at(entry, 32);
        if pack == ZERO_PACK {
            return Some(Entry::Zero);
        }
        Some(Entry::Chunk {
            digest: Digest::from_bytes(array_at(entry, 0)),
            location: ChunkLocation { pack: self.pack(pack)?, offset: u32_at(entry, 36) },
        })
    }

    /// Returns whether `other` describes the same disk with the same content; the chunks may be
    /// elsewhere in the origin.
    pub fn has_content_of(&self, other: &Manifest) -> bool {
        let digest = |entry| match entry {
            Entry::Zero => None,
            Entry::Chunk { digest, .. } => Some(digest),
        };
        self.header.disk_id == other.header.disk_id
            && self.header.size_bytes == other.header.size_bytes
            && self.header.chunk_size == other.header.chunk_size
            && self.entries().map(digest).eq(other.entries().map(digest))
    }

    /// Returns the entries in the order of the disk.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.header.chunk_count).filter_map(|index| self.entry(index))
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("disk_id", &self.header.disk_id)
            .field("size_bytes", &self.header.size_bytes)
            .field("chunk_size", &self.header.chunk_size)
            .field("pack_count", &self.header.pack_count)
            .finish_non_exhaustive()
    }
}
