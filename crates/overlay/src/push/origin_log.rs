//! Byte layout of a log object: a batch of writes of one volume in the origin, version 1.
//!
//! All integers are little-endian. Described in `reference/formats/volume-log`; the golden file
//! is `tests/golden/volume-log-v1.bin`. A change bumps [`VOLUME_LOG_VERSION`].
//!
//! ```text
//! 0    magic "ACSTVLOG"          8     magic, version and CRC keep their place in every version
//! 8    version                   u32
//! 12   flags                     u32   1: SEAL, 2: MORE, 4: ASIDE
//! 16   volume id                 16
//! 32   epoch                     u32
//! 36   record count              u32
//! 40   sequence number           u64
//! 48   id of the local log       16
//! 64   through                   u64   sequence number of the local log that the batch covers
//! 72   time, ms since 1970       u64
//! 80   bytes of the body         u64
//! 88   BLAKE3 of the body        32
//! 120  zero                      4
//! 124  CRC-32 of bytes 0..124    u32
//! 128  body: records, one after the other
//! ```
//!
//! A record is a header and, for data, its payload:
//!
//! ```text
//! 0    kind                      u8    1: data, 2: data compressed with LZ4, 3: zeroes
//! 1    zero                      3
//! 4    bytes of the payload      u32
//! 8    offset, bytes             u64   a multiple of 512
//! 16   length, bytes             u64   a multiple of 512
//! 24   CRC-32 of the content     u32   after decompression; 0 for zeroes
//! 28   CRC-32 of bytes 0..28     u32
//! ```

use acstor_types::bytes_le::{u32_at, u64_at};
use acstor_types::{Digest, DiskId, ErrorKind};
use bytes::Bytes;

use crate::limits;
use crate::segments::record::SECTOR;

/// Version that this build writes; it reads this one only.
pub const VOLUME_LOG_VERSION: u32 = 1;
/// Bytes of the header of a log object.
pub const LOG_OBJECT_HEADER_LEN: usize = 128;
/// Largest log object, bytes.
pub const LOG_OBJECT_SIZE_MAX: u64 = (LOG_OBJECT_HEADER_LEN + limits::LOG_OBJECT_BYTES_MAX) as u64
    + (limits::LOG_OBJECT_RECORDS_MAX as u64) * RECORD_LEN as u64;

const MAGIC: &[u8; 8] = b"ACSTVLOG";
const FLAG_SEAL: u32 = 1;
const FLAG_MORE: u32 = 2;
const FLAG_PREEMPTING: u32 = 4;
const RECORD_LEN: usize = 32;
const KIND_DATA: u8 = 1;
const KIND_LZ4: u8 = 2;
const KIND_ZEROES: u8 = 3;

/// Defect of a log object.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogObjectError {
    /// Not a log object.
    #[error("not a log object: wrong magic or length")]
    Magic,
    /// Written by a release that this one does not understand.
    #[error("log object version {0} is not supported (this build reads {VOLUME_LOG_VERSION})")]
    Version(u32),
    /// A checksum does not match, or a field is out of range.
    #[error("log object is corrupt: {0}")]
    Corrupt(&'static str),
}

impl LogObjectError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogObjectError::Version(_) => ErrorKind::Unsupported,
            LogObjectError::Magic | LogObjectError::Corrupt(_) => ErrorKind::Corrupt,
        }
    }
}

/// Header of a log object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogObjectInfo {
    /// The volume.
    pub volume: DiskId,
    /// The owner's epoch.
    pub epoch: u32,
    /// Number of the object; never used twice by one volume.
    pub sequence: u64,
    /// The epoch ends here: no later object of it counts.
    pub is_seal: bool,
    /// The batch goes on in the next object, and counts only when its last one is there.
    pub has_more: bool,
    /// A batch of its own between the objects of another one; they have no sector in common.
    pub is_preempting: bool,
    /// Number of records.
    pub record_count: u32,
    /// The local log that the batch was made from.
    pub log_id: [u8; 16],
    /// Sequence number of that log: the batch holds everything up to it that it is to hold.
    pub through: u64,
    /// Time at which the object was made, milliseconds since 1970.
    pub created_ms: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
}

/// Reads the header of a log object from its first [`LOG_OBJECT_HEADER_LEN`] or more bytes.
///
/// # Errors
/// [`LogObjectError`] when the bytes are no header of a version that this build reads.
pub fn log_object_info(bytes: &[u8]) -> Result<LogObjectInfo, LogObjectError> {
    let header: &[u8; LOG_OBJECT_HEADER_LEN] = bytes.first_chunk().ok_or(LogObjectError::Magic)?;
    if &header[..8] != MAGIC {
        return Err(LogObjectError::Magic);
    }
    if crc32fast::hash(&header[..124]) != u32_at(header, 124) {
        return Err(LogObjectError::Corrupt("checksum of the header"));
    }
    let version = u32_at(header, 8);
    if version != VOLUME_LOG_VERSION {
        return Err(LogObjectError::Version(version));
    }
    let flags = u32_at(header, 12);
    let info = LogObjectInfo {
        volume: DiskId::from_bytes(array_at(header, 16)),
        epoch: u32_at(header, 32),
        sequence: u64_at(header, 40),
        is_seal: flags & FLAG_SEAL != 0,
        has_more: flags & FLAG_MORE != 0,
        is_preempting: flags & FLAG_PREEMPTING != 0,
        record_count: u32_at(header, 36),
        log_id: array_at(header, 48),
        through: u64_at(header, 64),
        created_ms: u64_at(header, 72),
        body_bytes: u64_at(header, 80),
    };
    if flags & !(FLAG_SEAL | FLAG_MORE | FLAG_PREEMPTING) != 0
        || info.record_count > limits::LOG_OBJECT_RECORDS_MAX
        || info.body_bytes > LOG_OBJECT_SIZE_MAX
    {
        return Err(LogObjectError::Corrupt("a field is out of range"));
    }
    Ok(info)
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

/// Returns the folder of a volume's log objects of one epoch.
pub fn log_prefix(volume: DiskId, epoch: u32) -> String {
    format!("volume-log/{volume}/{epoch:08x}/")
}

/// Returns the key of a log object.
pub fn log_key(volume: DiskId, epoch: u32, sequence: u64) -> String {
    format!("volume-log/{volume}/{epoch:08x}/{sequence:016x}")
}

/// Returns the sequence number in the key of a log object.
pub(crate) fn sequence_of(key: &str) -> Option<u64> {
    let digits = key.rsplit('/').next()?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Collects the records of one object.
#[derive(Debug, Default)]
pub(crate) struct ObjectBody {
    bytes: Vec<u8>,
    records: u32,
}

impl ObjectBody {
    /// Returns whether the object has `enough` bytes, or another record of the longest kind may not
    /// fit.
    pub(crate) fn is_full(&self, enough: usize) -> bool {
        self.records >= limits::LOG_OBJECT_RECORDS_MAX
            || self.bytes.len() >= enough
            || self.bytes.len() + RECORD_LEN + limits::LOG_RECORD_BYTES_MAX
                > limits::LOG_OBJECT_BYTES_MAX
    }

    /// Appends content, compressed where that makes it smaller by a sixteenth and more; content of
    /// zeros only as such.
    pub(crate) fn push_data(&mut self, offset: u64, content: &[u8]) {
        debug_assert!(content.len() <= limits::LOG_RECORD_BYTES_MAX);
        if acstor_types::is_zero(content) {
            return self.push_zeroes(offset, content.len() as u64);
        }
        let crc = crc32fast::hash(content);
        let header_at = self.bytes.len();
        self.bytes.resize(header_at + RECORD_LEN, 0);
        let start = self.bytes.len();
        let room = lz4_flex::block::get_maximum_output_size(content.len());
        self.bytes.resize(start + room, 0);
        let packed = lz4_flex::block::compress_into(content, &mut self.bytes[start..]).ok();
        let kind = match packed {
            Some(len) if len + content.len() / 16 <= content.len() => {
                self.bytes.truncate(start + len);
                KIND_LZ4
            }
            _ => {
                self.bytes.truncate(start);
                self.bytes.extend_from_slice(content);
                KIND_DATA
            }
        };
        let stored = (self.bytes.len() - start) as u32;
        let header = record_header(kind, stored, offset, content.len() as u64, crc);
        self.bytes[header_at..start].copy_from_slice(&header);
        self.records += 1;
    }

    /// Appends that a range reads as zeros.
    pub(crate) fn push_zeroes(&mut self, offset: u64, len: u64) {
        self.bytes.extend_from_slice(&record_header(KIND_ZEROES, 0, offset, len, 0));
        self.records += 1;
    }

    /// Returns the object, header and body. `info` gives everything but what follows from the body.
    pub(crate) fn finish(self, info: &LogObjectInfo) -> Vec<Bytes> {
        let body = Bytes::from(self.bytes);
        let mut header = [0; LOG_OBJECT_HEADER_LEN];
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(info.is_seal, FLAG_SEAL)
            | flag(info.has_more, FLAG_MORE)
            | flag(info.is_preempting, FLAG_PREEMPTING);
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VOLUME_LOG_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&flags.to_le_bytes());
        header[16..32].copy_from_slice(info.volume.as_bytes());
        header[32..36].copy_from_slice(&info.epoch.to_le_bytes());
        header[36..40].copy_from_slice(&self.records.to_le_bytes());
        header[40..48].copy_from_slice(&info.sequence.to_le_bytes());
        header[48..64].copy_from_slice(&info.log_id);
        header[64..72].copy_from_slice(&info.through.to_le_bytes());
        header[72..80].copy_from_slice(&info.created_ms.to_le_bytes());
        header[80..88].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[88..120].copy_from_slice(Digest::of(&body).as_bytes());
        let crc = crc32fast::hash(&header[..124]);
        header[124..].copy_from_slice(&crc.to_le_bytes());
        let header = Bytes::copy_from_slice(&header);
        if body.is_empty() { vec![header] } else { vec![header, body] }
    }
}

fn record_header(kind: u8, stored: u32, offset: u64, len: u64, crc: u32) -> [u8; RECORD_LEN] {
    let mut bytes = [0; RECORD_LEN];
    bytes[0] = kind;
    bytes[4..8].copy_from_slice(&stored.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&len.to_le_bytes());
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A log object that was read and whose checksums match.
#[derive(Clone, Debug)]
pub(crate) struct LogObject {
    pub info: LogObjectInfo,
    body: Bytes,
}

/// One record of a log object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord {
    /// First byte of the disk.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The content; `None`: zeros.
    pub content: Option<Bytes>,
}

impl LogObject {
    /// Reads an object and verifies its body.
    pub(crate) fn parse(bytes: &Bytes) -> Result<LogObject, LogObjectError> {
        let info = log_object_info(bytes)?;
        let body = bytes.slice(LOG_OBJECT_HEADER_LEN..);
        if body.len() as u64 != info.body_bytes {
            return Err(LogObjectError::Corrupt("length of the body"));
        }
        if Digest::of(&body).as_bytes() != &bytes[88..120] {
            return Err(LogObjectError::Corrupt("digest of the body"));
        }
        Ok(LogObject { info, body })
    }

    /// Calls `visit` with each record in order.
    pub(crate) fn records<E: From<LogObjectError>>(
        &self,
        mut visit: impl FnMut(LogRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = self.body.clone();
        for _ in 0..self.info.record_count {
            let (record, used) = parse_record(&rest)?;
            visit(record)?;
            rest = rest.slice(used..);
        }
        if !rest.is_empty() {
            return Err(LogObjectError::Corrupt("bytes after the last record").into());
        }
        Ok(())
    }
}

fn parse_record(bytes: &Bytes) -> Result<(LogRecord, usize), LogObjectError> {
    let corrupt = LogObjectError::Corrupt("a record");
    let header: &[u8; RECORD_LEN] = bytes.first_chunk().ok_or(corrupt.clone())?;
    if crc32fast::hash(&header[..28]) != u32_at(header, 28) {
        return Err(LogObjectError::Corrupt("checksum of a record's header"));
    }
    let (stored, offset, len) = (u32_at(header, 4) as usize, u64_at(header, 8), u64_at(header, 16));
    let end = RECORD_LEN.checked_add(stored).filter(|end| *end <= bytes.len());
    let end = end.ok_or(corrupt.clone())?;
    let disk_max = acstor_types::limits::DISK_SIZE_MAX;
    if len == 0
        || offset % SECTOR != 0
        || len % SECTOR != 0
        || len > disk_max
        || offset > disk_max - len
    {
        return Err(LogObjectError::Corrupt("range of a record"));
    }
    let payload = bytes.slice(RECORD_LEN..end);
    let is_long = len > limits::LOG_RECORD_BYTES_MAX as u64;
    let content = match header[0] {
        KIND_ZEROES if stored == 0 => None,
        KIND_DATA if stored as u64 == len && !is_long => Some(payload),
        KIND_LZ4 if !is_long => {
            let mut content = vec![0; len as usize];
            let unpacked = lz4_flex::block::decompress_into(&payload, &mut content);
            if unpacked.ok() != Some(content.len()) {
                return Err(LogObjectError::Corrupt("compressed payload"));
            }
            Some(Bytes::from(content))
        }
        _ => return Err(corrupt),
    };
    if let Some(content) = &content
        && crc32fast::hash(content) != u32_at(header, 24)
    {
        return Err(LogObjectError::Corrupt("checksum of a payload"));
    }
    Ok((LogRecord { offset, len, content }, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info() -> LogObjectInfo {
        LogObjectInfo {
            volume: DiskId::from_bytes([0x5a; 16]),
            epoch: 3,
            sequence: 0x0102_0304_0506_0708,
            is_seal: false,
            has_more: true,
            is_preempting: false,
            record_count: 0,
            log_id: [0xa5; 16],
            through: 77,
            created_ms: 1_800_000_000_000,
            body_bytes: 0,
        }
    }

    fn sample() -> Bytes {
        let mut body = ObjectBody::default();
        body.push_data(4096, &noise(512));
        body.push_zeroes(1 << 30, 1 << 20);
        body.push_data(8192, &[0; 1024]);
        join(&body.finish(&info()))
    }

    fn noise(len: usize) -> Vec<u8> {
        let digests = (0..=255_u8).flat_map(|number| *Digest::of(&[number]).as_bytes());
        digests.take(len).collect()
    }

    fn join(parts: &[Bytes]) -> Bytes {
        Bytes::from(parts.concat())
    }

    fn records(bytes: &Bytes) -> Result<Vec<LogRecord>, LogObjectError> {
        let mut records = Vec::new();
        LogObject::parse(bytes)?.records(|record| {
            records.push(record);
            Ok::<_, LogObjectError>(())
        })?;
        Ok(records)
    }

    /// The bytes in origins. When this fails, bump `VOLUME_LOG_VERSION`, write a new golden file
    /// beside the old one and add a row to the history in `volume-log.rst`. What LZ4 makes of a
    /// payload is not part of the layout, so none of these is compressed.
    #[test]
    fn bytes_change_version_requires_update() {
        let golden: &[u8] = include_bytes!("../../../../tests/golden/volume-log-v1.bin");
        assert_eq!(&sample()[..], golden, "layout changed: bump VOLUME_LOG_VERSION");
        let parsed = log_object_info(golden).unwrap();
        assert_eq!(parsed, LogObjectInfo { record_count: 3, body_bytes: 608, ..info() });
        let content = Some(Bytes::from(noise(512)));
        let expected = [
            LogRecord { offset: 4096, len: 512, content },
            LogRecord { offset: 1 << 30, len: 1 << 20, content: None },
            LogRecord { offset: 8192, len: 1024, content: None },
        ];
        assert_eq!(records(&Bytes::from_static(golden)).unwrap(), expected);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let bytes = sample();
        for position in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 0x10;
            assert!(records(&Bytes::from(damaged)).is_err(), "{position}");
        }
        for len in 0..bytes.len() {
            assert!(records(&bytes.slice(..len)).is_err(), "{len}");
        }
    }

    #[test]
    fn seal_is_a_header() {
        let seal = LogObjectInfo { is_seal: true, has_more: false, ..info() };
        let bytes = join(&ObjectBody::default().finish(&seal));
        assert_eq!(bytes.len(), LOG_OBJECT_HEADER_LEN);
        assert_eq!(log_object_info(&bytes), Ok(seal));
        assert_eq!(records(&bytes), Ok(Vec::new()));
    }

    #[test]
    fn flags_round_trip() {
        for (is_seal, has_more, is_preempting) in
            [(true, false, false), (false, true, true), (false, false, true)]
        {
            let flags = LogObjectInfo { is_seal, has_more, is_preempting, ..info() };
            assert_eq!(log_object_info(&join(&ObjectBody::default().finish(&flags))), Ok(flags));
        }
    }

    #[test]
    fn keys_sort_as_their_numbers_do() {
        let volume = info().volume;
        let key = log_key(volume, 3, 0x1f);
        assert!(key.starts_with(&log_prefix(volume, 3)));
        assert_eq!(sequence_of(&key), Some(0x1f));
        assert!(key < log_key(volume, 3, 0x100) && key < log_key(volume, 4, 0));
        assert_eq!(sequence_of("volume-log/x/00000003/1f"), None);
    }

    proptest! {
        #[test]
        fn content_round_trips(blocks in prop::collection::vec((any::<u8>(), 1..8usize), 1..20)) {
            let mut body = ObjectBody::default();
            let mut offset = 0;
            let mut expected = Vec::new();
            for (byte, sectors) in blocks {
                let mut content = vec![byte; sectors * 512];
                content[..16].copy_from_slice(&noise(16));
                body.push_data(offset, &content);
                let len = content.len() as u64;
                expected.push(LogRecord { offset, len, content: Some(Bytes::from(content)) });
                offset += len;
            }
            prop_assert_eq!(records(&join(&body.finish(&info()))), Ok(expected));
        }

        /// Records that no writer makes, under checksums that are right.
        #[test]
        fn any_record_with_good_checksums_is_safe(
            made in prop::collection::vec(
                (
                    0..5_u8,
                    prop_oneof![Just(None), any::<u32>().prop_map(Some)],
                    prop_oneof![0..64_u64, any::<u64>()],
                    prop_oneof![0..4096_u64, any::<u64>()],
                    any::<bool>(),
                    prop::collection::vec(any::<u8>(), 0..80),
                ),
                0..6,
            ),
            count in prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        ) {
            let mut body = ObjectBody::default();
            for (kind, stored, offset, len, is_aligned, payload) in made {
                let align = if is_aligned { !511 } else { !0 };
                let stored = stored.unwrap_or(payload.len() as u32);
                let crc = crc32fast::hash(&payload);
                let header = record_header(kind, stored, offset & align, len & align, crc);
                body.bytes.extend_from_slice(&header);
                body.bytes.extend_from_slice(&payload);
                body.records += 1;
            }
            body.records = count.unwrap_or(body.records);
            for record in records(&join(&body.finish(&info()))).unwrap_or_default() {
                let len = record.content.as_ref().map_or(0, Bytes::len);
                prop_assert!(len <= limits::LOG_RECORD_BYTES_MAX);
                prop_assert!(record.offset + record.len <= acstor_types::limits::DISK_SIZE_MAX);
                prop_assert!(record.content.is_none() || len as u64 == record.len);
            }
        }

        #[test]
        fn parse_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&Bytes::from(bytes)).is_err());
        }
    }
}
