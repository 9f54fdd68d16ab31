//! Byte layouts of the chunk store: superblock and record, version 1.
//!
//! All integers are little-endian. Described in `reference/formats/chunk-store`; the golden files
//! are `tests/golden/chunk-store-*.bin`. A change of either layout bumps [`STORE_VERSION`].
//!
//! Superblock, the first 64 bytes of the file `superblock` (the rest of its 4096 is zero):
//!
//! ```text
//! 0   magic "ACSTSLOT"          8      magic, version and CRC keep their place in every version
//! 8   version                   u32
//! 12  chunk size, bytes         u32
//! 16  slot count                u32
//! 20  record size, bytes (64)   u32
//! 24  store id                  16
//! 40  zero                      20
//! 60  CRC-32 of bytes 0..60     u32
//! ```
//!
//! Record of slot N, at N * 64 in the file `records`:
//!
//! ```text
//! 0   magic "ACSR"              4
//! 4   version                   u16
//! 6   flags (0)                 u16
//! 8   sequence number           u64    grows with every insert
//! 16  digest                    32
//! 48  content length, bytes     u32    equals the chunk size
//! 52  slot number               u32    equals N
//! 56  zero                      4
//! 60  CRC-32 of bytes 0..60     u32
//! ```
//!
//! 64 zero bytes are the record of an empty slot.

use acstor_types::{ChunkSize, Digest};

use crate::limits;

/// Version that this build writes; it reads this one only.
pub const STORE_VERSION: u32 = 1;
/// Bytes of the superblock file.
pub(crate) const SUPERBLOCK_LEN: usize = 4096;
/// Bytes of a record.
pub(crate) const RECORD_LEN: usize = 64;
/// The record of an empty slot.
pub(crate) const BLANK_RECORD: [u8; RECORD_LEN] = [0; RECORD_LEN];

const SUPERBLOCK_MAGIC: &[u8; 8] = b"ACSTSLOT";
const RECORD_MAGIC: &[u8; 4] = b"ACSR";
const HEADER_LEN: usize = 64;
const CRC_OFFSET: usize = 60;

/// Superblock of a store: fixed when it is created, apart from the slot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub chunk_size: ChunkSize,
    pub slot_count: u32,
    pub store_id: [u8; 16],
}

/// Defect of bytes that are no superblock of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockError {
    /// Intact, but of another version.
    Version(u32),
    /// Damaged, or not a superblock.
    Corrupt,
}

/// Record of a slot's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub digest: Digest,
    pub seq: u64,
    pub slot: u32,
}

/// Parsed 64 bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedRecord {
    Blank,
    Valid(Record),
    Damaged,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        bytes[..8].copy_from_slice(SUPERBLOCK_MAGIC);
        bytes[8..12].copy_from_slice(&STORE_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_size.as_u32().to_le_bytes());
        bytes[16..20].copy_from_slice(&self.slot_count.to_le_bytes());
        bytes[20..24].copy_from_slice(&(RECORD_LEN as u32).to_le_bytes());
        bytes[24..40].copy_from_slice(&self.store_id);
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let corrupt = SuperblockError::Corrupt;
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(corrupt)?;
        if &header[..8] != SUPERBLOCK_MAGIC || !crc_matches(header) {
            return Err(corrupt);
        }
        let version = u32_at(header, 8);
        if version != STORE_VERSION {
            return Err(SuperblockError::Version(version));
        }
        let slot_count = u32_at(header, 16);
        if u32_at(header, 20) as usize != RECORD_LEN || slot_count > limits::SLOTS_MAX {
            return Err(corrupt);
        }
        let mut store_id = [0; 16];
        store_id.copy_from_slice(&header[24..40]);
        let chunk_size = ChunkSize::new(u32_at(header, 12)).ok_or(corrupt)?;
        Ok(Superblock { chunk_size, slot_count, store_id })
    }
}

impl Record {
    pub(crate) fn encode(&self, chunk_size: ChunkSize) -> [u8; RECORD_LEN] {
        let mut bytes = BLANK_RECORD;
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[4..6].copy_from_slice(&(STORE_VERSION as u16).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..48].copy_from_slice(self.digest.as_bytes());
        bytes[48..52].copy_from_slice(&chunk_size.as_u32().to_le_bytes());
        bytes[52..56].copy_from_slice(&self.slot.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl ParsedRecord {
    /// Reads the record of slot `slot` in a store of `chunk_size`-byte chunks.
    pub(crate) fn parse(bytes: &[u8; RECORD_LEN], slot: u32, chunk_size: ChunkSize) -> Self {
        if bytes == &BLANK_RECORD {
            return ParsedRecord::Blank;
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if &bytes[..4] != RECORD_MAGIC
            || u32::from(version) != STORE_VERSION
            || !crc_matches(bytes)
            || u32_at(bytes, 48) != chunk_size.as_u32()
            || u32_at(bytes, 52) != slot
        {
            return ParsedRecord::Damaged;
        }
        let mut digest = [0; Digest::LEN];
        digest.copy_from_slice(&bytes[16..48]);
        let seq = u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32;
        ParsedRecord::Valid(Record { digest: Digest::from_bytes(digest), seq, slot })
    }
}

fn crc_matches(bytes: &[u8; 64]) -> bool {
    crc32fast::hash(&bytes[..CRC_OFFSET]) == u32_at(bytes, CRC_OFFSET)
}

fn u32_at(bytes: &[u8; 64], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUPERBLOCK: Superblock = Superblock {
        chunk_size: ChunkSize::DEFAULT,
        slot_count: 0x0102_0304,
        store_id: [0xa5; 16],
    };

    fn record() -> Record {
        Record { digest: Digest::of(b"acstor"), seq: 0x0102_0304_0506_0708, slot: 0x0a0b_0c0d }
    }

    /// The bytes on operators' disks. When one of these fails, bump `STORE_VERSION`, write new
    /// golden files beside the old ones and add a row to the history in `chunk-store.rst`.
    #[test]
    fn superblock_bytes_change_version_requires_update() {
        let golden = include_bytes!("../../../tests/golden/chunk-store-superblock-v1.bin");
        assert_eq!(SUPERBLOCK.encode(), golden, "layout changed: bump STORE_VERSION");
        assert_eq!(Superblock::parse(golden), Ok(SUPERBLOCK));
    }

    #[test]
    fn record_bytes_change_version_requires_update() {
        let golden = include_bytes!("../../../tests/golden/chunk-store-record-v1.bin");
        let chunk_size = ChunkSize::DEFAULT;
        assert_eq!(&record().encode(chunk_size), golden, "layout changed: bump STORE_VERSION");
        let parsed = ParsedRecord::parse(golden, record().slot, chunk_size);
        assert_eq!(parsed, ParsedRecord::Valid(record()));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        for position in 0..64 {
            let mut superblock = SUPERBLOCK.encode();
            superblock[position] ^= 0x10;
            assert_eq!(Superblock::parse(&superblock), Err(SuperblockError::Corrupt), "{position}");
            let mut bytes = record().encode(ChunkSize::DEFAULT);
            bytes[position] ^= 0x10;
            let parsed = ParsedRecord::parse(&bytes, record().slot, ChunkSize::DEFAULT);
            assert_eq!(parsed, ParsedRecord::Damaged, "{position}");
        }
        assert_eq!(Superblock::parse(&SUPERBLOCK.encode()[..63]), Err(SuperblockError::Corrupt));
    }

    #[test]
    fn newer_version_is_told_apart_from_damage() {
        let mut bytes = SUPERBLOCK.encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::parse(&bytes), Err(SuperblockError::Version(2)));
    }

    #[test]
    fn record_of_another_slot_or_size_is_damaged() {
        let bytes = record().encode(ChunkSize::DEFAULT);
        let other = ChunkSize::new(4096).unwrap();
        assert_eq!(ParsedRecord::parse(&bytes, 1, ChunkSize::DEFAULT), ParsedRecord::Damaged);
        assert_eq!(ParsedRecord::parse(&bytes, record().slot, other), ParsedRecord::Damaged);
        let blank = ParsedRecord::parse(&BLANK_RECORD, 1, other);
        assert_eq!(blank, ParsedRecord::Blank);
    }

    proptest! {
        #[test]
        fn parse_never_panics(bytes in any::<[u8; 32]>(), tail in any::<[u8; 32]>()) {
            let mut record = BLANK_RECORD;
            record[..32].copy_from_slice(&bytes);
            record[32..].copy_from_slice(&tail);
            let parsed = ParsedRecord::parse(&record, 0, ChunkSize::DEFAULT);
            prop_assert!(!matches!(parsed, ParsedRecord::Valid(_)));
            prop_assert!(Superblock::parse(&record).is_err());
        }
    }
}
