//! The pack: an immutable origin object that holds many chunks.
//!
//! Layout (all integers little-endian), described in `reference/formats/pack`:
//!
//! ```text
//! 0      magic "ACSTPACK"                      8
//! 8      version                               u32
//! 12     chunk size, bytes                     u32
//! 16     chunk count N                         u32
//! 20     salt                                  16
//! 36     zero                                  24
//! 60     CRC-32 of bytes 0..60                 u32
//! 64     zero up to 4096
//! 4096   N chunks, each of exactly chunk size
//! then   N digests of 32 bytes, in the order of the chunks
//! ```
//!
//! A pack's id is BLAKE3 of its digests, concatenated, followed by the salt unless that is zero:
//! the name follows from the content without hashing the content a second time. The salt, chosen
//! at random for every pack that is written, keeps a name from ever being used twice, so that a
//! late deletion of a collected pack cannot hit a new one (RFD 5).

use crate::bytes_le::{array_at, u32_at};
use crate::{ChunkSize, Digest, ErrorKind, limits};

/// Version that this build writes; it reads this one only.
pub const PACK_VERSION: u32 = 1;
/// Offset of the first chunk, bytes; a multiple of the page size so that chunks are aligned.
pub const PACK_DATA_OFFSET: u64 = 4096;

/// Random bytes that keep two packs of equal content from having equal names; zero: none.
pub type PackSalt = [u8; 16];

const MAGIC: &[u8; 8] = b"ACSTPACK";
const SALT_OFFSET: usize = 20;
const CRC_OFFSET: usize = 60;

/// Name of a pack: BLAKE3-256 over its digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackId(pub Digest);

/// Defect of a pack's header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackError {
    /// Fewer bytes than a header has.
    #[error("pack header is {0} bytes long, {len} are needed", len = PackHeader::LEN)]
    Truncated(usize),
    /// Not a pack.
    #[error("not a pack: wrong magic")]
    Magic,
    /// Written by a release that this one does not understand.
    #[error("pack format version {0} is not supported (this build reads {PACK_VERSION})")]
    Version(u32),
    /// A field is damaged or out of range.
    #[error("pack header is corrupt: {0}")]
    Corrupt(&'static str),
}

impl PackError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PackError::Version(_) => ErrorKind::Unsupported,
            PackError::Truncated(_) | PackError::Magic | PackError::Corrupt(_) => {
                ErrorKind::Corrupt
            }
        }
    }
}

/// The first bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Size of every chunk in the pack.
    pub chunk_size: ChunkSize,
    /// Number of chunks, at least 1.
    pub chunk_count: u32,
}

impl PackHeader {
    /// Bytes that `parse` needs.
    pub const LEN: usize = 64;

    /// Returns the header without a salt, padded to [`PACK_DATA_OFFSET`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_salted(&[0; 16])
    }

    /// Returns the header padded to [`PACK_DATA_OFFSET`] bytes.
    pub fn encode_salted(&self, salt: &PackSalt) -> Vec<u8> {
        let mut bytes = vec![0; PACK_DATA_OFFSET as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&PACK_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_size.as_u32().to_le_bytes());
        bytes[16..20].copy_from_slice(&self.chunk_count.to_le_bytes());
        bytes[SALT_OFFSET..SALT_OFFSET + 16].copy_from_slice(salt);
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header from the first [`PackHeader::LEN`] or more bytes of a pack.
    ///
    /// # Errors
    /// [`PackError`] when the bytes are no header of a version that this build reads.
    pub fn parse(bytes: &[u8]) -> Result<PackHeader, PackError> {
        if bytes.len() < PackHeader::LEN {
            return Err(PackError::Truncated(bytes.len()));
        }
        if &bytes[..8] != MAGIC {
            return Err(PackError::Magic);
        }
        let version = u32_at(bytes, 8);
        if version != PACK_VERSION {
            return Err(PackError::Version(version));
        }
        if crc32fast::hash(&bytes[..CRC_OFFSET]) != u32_at(bytes, CRC_OFFSET) {
            return Err(PackError::Corrupt("checksum"));
        }
        let chunk_size =
            ChunkSize::new(u32_at(bytes, 12)).ok_or(PackError::Corrupt("chunk size"))?;
        let chunk_count = u32_at(bytes, 16);
        if chunk_count == 0 || chunk_count > limits::PACK_CHUNKS_MAX {
            return Err(PackError::Corrupt("chunk count"));
        }
        let header = PackHeader { chunk_size, chunk_count };
        if header.size_bytes() > limits::PACK_SIZE_MAX {
            return Err(PackError::Corrupt("chunk count times chunk size"));
        }
        Ok(header)
    }

    /// Reads the salt from a header that [`PackHeader::parse`] accepts.
    ///
    /// # Errors
    /// As [`PackHeader::parse`].
    pub fn parse_salt(bytes: &[u8]) -> Result<PackSalt, PackError> {
        PackHeader::parse(bytes).map(|_| array_at(bytes, SALT_OFFSET))
    }

    /// Returns the offset of chunk `index` in the pack, bytes.
    pub fn chunk_offset(&self, index: u32) -> u64 {
        PACK_DATA_OFFSET + u64::from(index) * self.chunk_size.bytes() as u64
    }

    /// Returns the offset of the digests, bytes.
    pub fn digests_offset(&self) -> u64 {
        self.chunk_offset(self.chunk_count)
    }

    /// Returns the size of the whole pack, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.digests_offset() + u64::from(self.chunk_count) * Digest::LEN as u64
    }
}

impl PackId {
    /// Returns the id of the pack without a salt whose digests, concatenated, are `digests`.
    pub fn of_digests(digests: &[u8]) -> PackId {
        PackId(Digest::of(digests))
    }

    /// Returns the id of the pack whose digests, concatenated, are `digests`.
    pub fn of_salted(digests: &[u8], salt: &PackSalt) -> PackId {
        if *salt == [0; 16] {
            return PackId::of_digests(digests);
        }
        PackId(Digest::of_parts(&[digests, salt]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: PackHeader = PackHeader { chunk_size: ChunkSize::DEFAULT, chunk_count: 3 };

    #[test]
    fn header_round_trips() {
        assert_eq!(PackHeader::parse(&HEADER.encode()), Ok(HEADER));
        assert_eq!(HEADER.size_bytes(), 4096 + 3 * 65_536 + 3 * 32);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        for position in 0..PackHeader::LEN {
            let mut bytes = HEADER.encode();
            bytes[position] ^= 0x40;
            assert!(PackHeader::parse(&bytes).is_err(), "byte {position}");
        }
        assert_eq!(PackHeader::parse(&HEADER.encode()[..63]), Err(PackError::Truncated(63)));
    }

    #[test]
    fn salt_changes_the_name_only() {
        let salt = [7; 16];
        let bytes = HEADER.encode_salted(&salt);
        assert_eq!(PackHeader::parse(&bytes), Ok(HEADER));
        assert_eq!(PackHeader::parse_salt(&bytes), Ok(salt));
        assert_eq!(PackHeader::parse_salt(&HEADER.encode()), Ok([0; 16]));
        assert_eq!(PackId::of_salted(b"digests", &[0; 16]), PackId::of_digests(b"digests"));
        assert_ne!(PackId::of_salted(b"digests", &salt), PackId::of_digests(b"digests"));
    }

    #[test]
    fn newer_version_is_refused_by_name() {
        let mut bytes = HEADER.encode();
        bytes[8] = 2;
        assert_eq!(PackHeader::parse(&bytes), Err(PackError::Version(2)));
    }
}
