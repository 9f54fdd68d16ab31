//! The header of a pack of version 2.
//!
//! Layout (all integers little-endian), described in `reference/formats/pack-v2`:
//!
//! ```text
//! 0      magic "ACSTPACK"                      8
//! 8      version, 2                            u32
//! 12     chunk size, bytes                     u32
//! 16     chunk count N                         u32
//! 20     salt                                  16
//! 36     class                                 u8
//! 37     zero                                  3
//! 40     offset of the table                   u32
//! 44     zero                                  16
//! 60     CRC-32 of bytes 0..60                 u32
//! 64     zero up to 4096
//! 4096   stored bytes of N chunks, back to back
//! then   zero up to a multiple of 4096
//! then   N records of 44 bytes (`StoredChunk`), in the order of the chunks
//! ```
//!
//! A pack's id is BLAKE3 of bytes 0..60 and the table, in a domain of its own: it commits to
//! content, places and codecs, and through the salt no name is ever used twice (RFD 5).

use acstor_types::bytes_le::{array_at, u32_at};
use acstor_types::{
    ChunkSize, Digest, PACK_DATA_OFFSET, PackClass, PackId, PackSalt, STORED_CHUNK_LEN, limits,
};

use crate::pack_error::PackError;

/// Version of this format.
pub const PACK_VERSION: u32 = 2;
/// Unit in which the table's offset is counted, bytes: what O_DIRECT writes whole.
pub(crate) const BLOCK_LEN: u64 = 4096;

const MAGIC: &[u8; 8] = b"ACSTPACK";
const CRC_OFFSET: usize = 60;
/// Separates the ids of packs from every other use of BLAKE3.
const ID_CONTEXT: &str = "acstor 2026-11-26 id of a pack of version 2";

/// The first bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Class of the chunks that it holds.
    pub class: PackClass,
    /// Size of every plain chunk of the pack.
    pub chunk_size: ChunkSize,
    /// Number of chunks, at least 1.
    pub chunk_count: u32,
    /// Random bytes that keep two packs of equal content from having equal names.
    pub salt: PackSalt,
    /// Offset of the table, bytes; a multiple of 4096.
    pub table_offset: u32,
}

impl PackHeader {
    /// Bytes that [`PackHeader::parse`] needs.
    pub const LEN: usize = 64;

    /// Return the header, padded to the offset of the first chunk.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; PACK_DATA_OFFSET as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&PACK_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_size.as_u32().to_le_bytes());
        bytes[16..20].copy_from_slice(&self.chunk_count.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.salt);
        bytes[36] = self.class as u8;
        bytes[40..44].copy_from_slice(&self.table_offset.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..Self::LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Read a header from the first [`PackHeader::LEN`] or more bytes of a pack.
    ///
    /// The padding after it is checked as far as it is given.
    ///
    /// # Errors
    /// [`PackError`] when the bytes are no header of this version.
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
            return Err(PackError::Header("checksum"));
        }
        let padding = &bytes[Self::LEN..bytes.len().min(PACK_DATA_OFFSET as usize)];
        let reserved = [&bytes[37..40], &bytes[44..CRC_OFFSET], padding];
        if reserved.iter().any(|bytes| bytes.iter().any(|byte| *byte != 0)) {
            return Err(PackError::Header("bytes that are reserved"));
        }
        let header = PackHeader {
            class: PackClass::from_number(bytes[36]).ok_or(PackError::Class(bytes[36]))?,
            chunk_size: ChunkSize::new(u32_at(bytes, 12)).ok_or(PackError::Header("chunk size"))?,
            chunk_count: u32_at(bytes, 16),
            salt: array_at(bytes, 20),
            table_offset: u32_at(bytes, 40),
        };
        header.check_sizes()?;
        Ok(header)
    }

    fn check_sizes(&self) -> Result<(), PackError> {
        if self.chunk_count == 0 || self.chunk_count > limits::PACK_CHUNKS_MAX {
            return Err(PackError::Header("chunk count"));
        }
        let table_offset = u64::from(self.table_offset);
        let count = u64::from(self.chunk_count);
        let data_len = table_offset.saturating_sub(PACK_DATA_OFFSET);
        let data_len_max = (count * self.chunk_size.bytes() as u64).next_multiple_of(BLOCK_LEN);
        if !table_offset.is_multiple_of(BLOCK_LEN) || data_len < count || data_len > data_len_max {
            return Err(PackError::Header("offset of the table"));
        }
        if self.size_bytes() > limits::PACK_SIZE_MAX {
            return Err(PackError::Header("size of the pack"));
        }
        Ok(())
    }

    /// Return the length of the table, bytes.
    pub fn table_len(&self) -> u64 {
        u64::from(self.chunk_count) * STORED_CHUNK_LEN as u64
    }

    /// Return the size of the whole pack, bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.table_offset) + self.table_len()
    }

    /// Return the id of the pack that has this header and the table `records`.
    pub fn id(&self, records: &[u8]) -> PackId {
        let mut hasher = blake3::Hasher::new_derive_key(ID_CONTEXT);
        hasher.update(&self.encode()[..CRC_OFFSET]);
        hasher.update(records);
        PackId(Digest::from_bytes(*hasher.finalize().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: PackHeader = PackHeader {
        class: PackClass::Volume,
        chunk_size: ChunkSize::DEFAULT,
        chunk_count: 3,
        salt: [7; 16],
        table_offset: 3 * 4096,
    };

    /// The header with a checksum that fits.
    fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..PackHeader::LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn test_parse_returns_what_was_encoded() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(PackHeader::parse(&bytes), Ok(HEADER));
        assert_eq!(PackHeader::parse(&bytes[..PackHeader::LEN]), Ok(HEADER));
        assert_eq!(HEADER.size_bytes(), 3 * 4096 + 3 * 44);
    }

    #[test]
    fn test_parse_every_damaged_byte_is_noticed() {
        for position in 0..HEADER.encode().len() {
            let mut bytes = HEADER.encode();
            bytes[position] ^= 0x40;
            assert!(PackHeader::parse(&bytes).is_err(), "byte {position}");
        }
        assert_eq!(PackHeader::parse(&HEADER.encode()[..63]), Err(PackError::Truncated(63)));
    }

    #[test]
    fn test_parse_versions_before_and_after_are_refused_by_name() {
        for version in [0, 1, 3] {
            let mut bytes = HEADER.encode();
            bytes[8] = version;
            let error = PackHeader::parse(&bytes).unwrap_err();
            assert_eq!(error, PackError::Version(version.into()));
            assert_eq!(error.kind(), acstor_types::ErrorKind::Unsupported);
        }
        let first = acstor_types::PackHeader::parse(&HEADER.encode());
        assert_eq!(first, Err(acstor_types::PackError::Version(2)), "by the reader of version 1");
    }

    #[test]
    fn test_parse_sizes_out_of_range_are_refused() {
        let most = limits::PACK_CHUNKS_MAX;
        for (header, reason) in [
            (PackHeader { chunk_count: 0, ..HEADER }, "chunk count"),
            (PackHeader { chunk_count: most + 1, ..HEADER }, "chunk count"),
            (PackHeader { table_offset: 0, ..HEADER }, "offset of the table"),
            (PackHeader { table_offset: 4096, ..HEADER }, "offset of the table"),
            (PackHeader { table_offset: 3 * 4096 + 1, ..HEADER }, "offset of the table"),
            (PackHeader { table_offset: 50 * 4096, ..HEADER }, "offset of the table"),
            (PackHeader { chunk_count: 8193, ..HEADER }, "offset of the table"),
            (PackHeader { table_offset: !4095, chunk_count: most, ..HEADER }, "size of the pack"),
        ] {
            let parsed = PackHeader::parse(&header.encode());
            assert_eq!(parsed, Err(PackError::Header(reason)), "{header:?}");
        }
    }

    #[test]
    fn test_parse_unknown_fields_are_refused() {
        for (position, expected) in [
            (36, PackError::Class(0x83)),
            (12, PackError::Header("chunk size")),
            (37, PackError::Header("bytes that are reserved")),
            (44, PackError::Header("bytes that are reserved")),
            (59, PackError::Header("bytes that are reserved")),
        ] {
            let mut bytes = HEADER.encode();
            bytes[position] |= 0x81;
            assert_eq!(PackHeader::parse(&with_crc(bytes)), Err(expected), "byte {position}");
        }
    }

    #[test]
    fn test_id_depends_on_every_field_and_the_table() {
        let id = HEADER.id(b"records");
        assert_eq!(id, HEADER.id(b"records"));
        for other in [
            PackHeader { class: PackClass::Image, ..HEADER },
            PackHeader { chunk_count: 4, ..HEADER },
            PackHeader { salt: [8; 16], ..HEADER },
            PackHeader { table_offset: 4 * 4096, ..HEADER },
        ] {
            assert_ne!(other.id(b"records"), id, "{other:?}");
        }
        assert_ne!(HEADER.id(b"record"), id);
    }
}
