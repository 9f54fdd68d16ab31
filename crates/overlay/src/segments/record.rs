//! Byte layouts of the local log: segment header and record header, version 1.
//!
//! All integers are little-endian. Described in `reference/formats/overlay-log`; the golden file
//! is `tests/golden/overlay-log-segment-v1.bin`. A change bumps [`OVERLAY_LOG_VERSION`].
//!
//! Segment header, the first 64 bytes of a segment (the rest of its 4096 is zero):
//!
//! ```text
//! 0   magic "ACSTOVLG"          8      magic, version and CRC keep their place in every version
//! 8   version                   u32
//! 12  segment number            u32
//! 16  log id                    16
//! 32  segment size, bytes       u64
//! 40  salt                      u64
//! 48  zero                      12
//! 60  CRC-32 of bytes 0..60     u32
//! ```
//!
//! Then records, one after the other, each a header and, for data, its payload:
//!
//! ```text
//! 0   magic "ACOR"              4
//! 4   kind                      u8     1: data, 2: zeroes (without payload)
//! 5   flags                     u8     1: copy, made by reclaiming
//! 6   zero                      u16
//! 8   sequence number           u64    one more than the record before
//! 16  first sector              u64    of 512 bytes
//! 24  sector count              u64
//! 32  salt of the segment       u64
//! 40  CRC-32 of the payload     u32    0 without payload
//! 44  durable                   u64    every record before this number was synced by then
//! 52  zero                      8
//! 60  CRC-32 of bytes 0..60     u32
//! ```
//!
//! `durable` tells a record that has rotted from one that a crash has torn. A build that does not know
//! it writes zero, which says nothing, and reads over it: the version is the same.
//!
//! The salt, random for each segment, keeps a guest from writing something that recovery would
//! take for a record, and what an earlier use of the disk left from being taken for one.

use acstor_types::bytes_le::{u32_at, u64_at};

use crate::limits;

/// Version that this build writes; it reads this one only.
pub const OVERLAY_LOG_VERSION: u32 = 1;
/// Offset of the first record in a segment, bytes.
pub(crate) const RECORDS_OFFSET: u64 = 4096;
/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = 64;
/// Bytes of a sector.
pub(crate) const SECTOR: u64 = crate::SECTOR_BYTES;

const SEGMENT_MAGIC: &[u8; 8] = b"ACSTOVLG";
const RECORD_MAGIC: &[u8; 4] = b"ACOR";
const CRC_OFFSET: usize = 60;
const FLAG_COPY: u8 = 1;

/// Header of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub number: u32,
    pub log_id: [u8; 16],
    pub size_bytes: u64,
    pub salt: u64,
}

/// Defect of bytes that are no header of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Intact, but of another version.
    Version(u32),
    /// Damaged, or something else.
    Corrupt,
}

/// Effect of a record on its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Data,
    Zeroes,
}

/// The header of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub kind: RecordKind,
    pub is_copy: bool,
    pub sequence: u64,
    pub first_sector: u64,
    pub sector_count: u64,
    pub salt: u64,
    pub payload_crc: u32,
    /// Every record before this number had been synced when this one was appended; 0: it says nothing.
    pub durable: u64,
}

/// Record to be appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord<'a> {
    pub kind: RecordKind,
    pub is_copy: bool,
    pub first_sector: u64,
    pub sector_count: u64,
    /// The content of data, else empty.
    pub payload: &'a [u8],
    pub payload_crc: u32,
}

impl<'a> NewRecord<'a> {
    pub(crate) fn data(is_copy: bool, first_sector: u64, payload: &'a [u8]) -> NewRecord<'a> {
        let (kind, sector_count) = (RecordKind::Data, payload.len() as u64 / SECTOR);
        let payload_crc = crc32fast::hash(payload);
        NewRecord { kind, is_copy, first_sector, sector_count, payload, payload_crc }
    }

    pub(crate) fn zeroes(is_copy: bool, first_sector: u64, sector_count: u64) -> NewRecord<'a> {
        let (kind, payload, payload_crc) = (RecordKind::Zeroes, &[], 0);
        NewRecord { kind, is_copy, first_sector, sector_count, payload, payload_crc }
    }

    pub(crate) fn header(&self, sequence: u64, salt: u64, durable: u64) -> RecordHeader {
        let &NewRecord { kind, is_copy, first_sector, sector_count, payload_crc, .. } = self;
        RecordHeader {
            kind,
            is_copy,
            sequence,
            first_sector,
            sector_count,
            salt,
            payload_crc,
            durable,
        }
    }
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RECORDS_OFFSET as usize];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&OVERLAY_LOG_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id);
        bytes[32..40].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<SegmentHeader, HeaderError> {
        if &bytes[..8] != SEGMENT_MAGIC || !crc_matches(bytes) {
            return Err(HeaderError::Corrupt);
        }
        let version = u32_at(bytes, 8);
        if version != OVERLAY_LOG_VERSION {
            return Err(HeaderError::Version(version));
        }
        let size_bytes = u64_at(bytes, 32);
        if !(limits::SEGMENT_BYTES_MIN..=limits::SEGMENT_BYTES_MAX).contains(&size_bytes) {
            return Err(HeaderError::Corrupt);
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[16..32]);
        let (number, salt) = (u32_at(bytes, 12), u64_at(bytes, 40));
        Ok(SegmentHeader { number, log_id, size_bytes, salt })
    }
}

impl RecordHeader {
    /// Bytes of payload that follow the header.
    pub(crate) fn payload_len(&self) -> u64 {
        match self.kind {
            RecordKind::Data => self.sector_count * SECTOR,
            RecordKind::Zeroes => 0,
        }
    }

    /// First sector after the range.
    pub(crate) fn end_sector(&self) -> u64 {
        self.first_sector + self.sector_count
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[4] = match self.kind {
            RecordKind::Data => 1,
            RecordKind::Zeroes => 2,
        };
        bytes[5] = if self.is_copy { FLAG_COPY } else { 0 };
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_sector.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sector_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.durable.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header, or returns `None` when the bytes are none that this build writes.
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Option<RecordHeader> {
        if &bytes[..4] != RECORD_MAGIC || !crc_matches(bytes) || bytes[5] & !FLAG_COPY != 0 {
            return None;
        }
        let kind = match bytes[4] {
            1 => RecordKind::Data,
            2 => RecordKind::Zeroes,
            _ => return None,
        };
        let header = RecordHeader {
            kind,
            is_copy: bytes[5] & FLAG_COPY != 0,
            sequence: u64_at(bytes, 8),
            first_sector: u64_at(bytes, 16),
            sector_count: u64_at(bytes, 24),
            salt: u64_at(bytes, 32),
            payload_crc: u32_at(bytes, 40),
            durable: u64_at(bytes, 44),
        };
        let sectors_max = acstor_types::limits::DISK_SIZE_MAX / SECTOR;
        let is_in_range = header.sector_count > 0
            && header.first_sector <= sectors_max
            && header.sector_count <= sectors_max - header.first_sector
            && header.payload_len() <= limits::RECORD_BYTES_MAX;
        is_in_range.then_some(header)
    }
}

pub(crate) fn crc_matches(bytes: &[u8; HEADER_LEN]) -> bool {
    crc32fast::hash(&bytes[..CRC_OFFSET]) == u32_at(bytes, CRC_OFFSET)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentHeader = SegmentHeader {
        number: 0x0102_0304,
        log_id: [0xa5; 16],
        size_bytes: 64 << 20,
        salt: 0x1122_3344_5566_7788,
    };

    fn data_record() -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Data,
            is_copy: true,
            sequence: 0x0102_0304_0506_0708,
            first_sector: 0x0a0b_0c0d,
            sector_count: 8,
            salt: SEGMENT.salt,
            payload_crc: crc32fast::hash(&[7; 4096]),
            durable: 0x0102_0304_0506_0506,
        }
    }

    fn zeroes_record() -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Zeroes,
            is_copy: false,
            sector_count: 1 << 21,
            payload_crc: 0,
            durable: 0,
            ..data_record()
        }
    }

    /// The bytes on operators' disks. When this fails, bump `OVERLAY_LOG_VERSION`, write a new
    /// golden file beside the old one and add a row to the history in `overlay-log.rst`.
    #[test]
    fn bytes_change_version_requires_update() {
        let golden: &[u8] = include_bytes!("../../../../tests/golden/overlay-log-segment-v1.bin");
        let mut bytes = SEGMENT.encode();
        bytes.extend_from_slice(&data_record().encode());
        bytes.extend_from_slice(&[7; 4096]);
        bytes.extend_from_slice(&zeroes_record().encode());
        assert_eq!(bytes, golden, "layout changed: bump OVERLAY_LOG_VERSION");
        assert_eq!(SegmentHeader::parse(golden.first_chunk().unwrap()), Ok(SEGMENT));
        let record = golden[RECORDS_OFFSET as usize..].first_chunk().unwrap();
        assert_eq!(RecordHeader::parse(record), Some(data_record()));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        for position in 0..HEADER_LEN {
            let mut segment: [u8; HEADER_LEN] = *SEGMENT.encode().first_chunk().unwrap();
            segment[position] ^= 0x10;
            assert_eq!(SegmentHeader::parse(&segment), Err(HeaderError::Corrupt), "{position}");
            let mut record = zeroes_record().encode();
            record[position] ^= 0x10;
            assert_eq!(RecordHeader::parse(&record), None, "{position}");
        }
    }

    #[test]
    fn ranges_that_no_disk_has_are_refused() {
        let sectors_max = acstor_types::limits::DISK_SIZE_MAX / SECTOR;
        for (first_sector, sector_count, is_ok) in [
            (0, sectors_max, true),
            (1, sectors_max, false),
            (sectors_max, 1, false),
            (u64::MAX, 2, false),
            (0, 0, false),
        ] {
            let record = RecordHeader { first_sector, sector_count, ..zeroes_record() };
            assert_eq!(RecordHeader::parse(&record.encode()).is_some(), is_ok, "{first_sector}");
        }
        let long = RecordHeader { sector_count: 2049, ..data_record() };
        assert_eq!(RecordHeader::parse(&long.encode()), None);
    }
}
