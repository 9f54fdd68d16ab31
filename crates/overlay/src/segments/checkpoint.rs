//! The checkpoint: the extent map as one file, so that recovery reads the end of the log only.
//!
//! All integers are little-endian. Described in `reference/formats/overlay-log`; the golden file
//! is `tests/golden/overlay-log-checkpoint-v1.bin`. A change bumps `OVERLAY_LOG_VERSION`.
//!
//! ```text
//! 0   magic "ACSTOVCP"          8
//! 8   version                   u32
//! 12  segment to scan first     u32
//! 16  log id                    16
//! 32  volume id                 16
//! 48  epoch                     u32
//! 52  zero                      4
//! 56  offset to scan from       u64
//! 64  next sequence number      u64
//! 72  zero                      20
//! 92  CRC-32 of bytes 0..92     u32
//! 96  extents                   N x 24
//!       first sector u64, first sector after it u64, segment u32 (0xffffffff: zeros),
//!       offset in the segment in units of 64 bytes u32
//! then dirty ranges             M x 16
//!       first sector u64, first sector after it u64
//! then magic "ACSTOVCE" 8, N u64, M u64, CRC-32 of everything between the header and here u32,
//!      CRC-32 of the 28 bytes before u32
//! ```
//!
//! Extents are copied a few at a time while writes go on, so two of them may contradict each
//! other; the later one counts, and every record from the position on is applied over them. What
//! they refer to is synced before the file gets its name.

use std::io::IoSlice;

use acstor_types::DiskId;
use acstor_types::bytes_le::{u32_at, u64_at};

use crate::error::GIVE_UP;
use crate::segments::disk::{LogDisk, LogFile};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::record::OVERLAY_LOG_VERSION;
use crate::{OverlayError, limits};

/// Name of the checkpoint.
pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(super) const CHECKPOINT_NEW: &str = "checkpoint.new";
const MAGIC: &[u8; 8] = b"ACSTOVCP";
const END_MAGIC: &[u8; 8] = b"ACSTOVCE";
const HEADER_LEN: usize = 96;
const EXTENT_LEN: usize = 24;
const RANGE_LEN: usize = 16;
const END_LEN: usize = 32;
const WRITE_BYTES: usize = 1 << 20;

/// Header of a checkpoint: the log that it is of, and the position from which that must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    pub log_id: [u8; 16],
    pub volume: DiskId,
    pub epoch: u32,
    pub segment: u32,
    pub offset: u64,
    pub next_sequence: u64,
}

/// A checkpoint that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Checkpoint {
    pub header: CheckpointHeader,
    pub extents: Vec<Extent>,
    pub dirty: Vec<(u64, u64)>,
}

impl CheckpointHeader {
    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&OVERLAY_LOG_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id);
        bytes[32..48].copy_from_slice(self.volume.as_bytes());
        bytes[48..52].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.offset.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.next_sequence.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..92]);
        bytes[92..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Writes a checkpoint piece by piece.
pub(super) struct Writer<'a> {
    file: &'a dyn LogFile,
    offset: u64,
    buffer: Vec<u8>,
    crc: crc32fast::Hasher,
    pub(super) extents: u64,
    ranges: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(
        file: &'a dyn LogFile,
        header: &CheckpointHeader,
    ) -> std::io::Result<Writer<'a>> {
        file.write_all_at(&mut [IoSlice::new(&header.encode())], 0)?;
        let (offset, buffer) = (HEADER_LEN as u64, Vec::with_capacity(WRITE_BYTES + EXTENT_LEN));
        let crc = crc32fast::Hasher::new();
        Ok(Writer { file, offset, buffer, crc, extents: 0, ranges: 0 })
    }

    pub(super) fn extent(&mut self, extent: &Extent) -> std::io::Result<()> {
        let (segment, units) = extent.place.pack();
        self.buffer.extend_from_slice(&extent.start.to_le_bytes());
        self.buffer.extend_from_slice(&extent.end.to_le_bytes());
        self.buffer.extend_from_slice(&segment.to_le_bytes());
        self.buffer.extend_from_slice(&units.to_le_bytes());
        self.extents += 1;
        self.flush(WRITE_BYTES)
    }

    pub(super) fn range(&mut self, start: u64, end: u64) -> std::io::Result<()> {
        self.buffer.extend_from_slice(&start.to_le_bytes());
        self.buffer.extend_from_slice(&end.to_le_bytes());
        self.ranges += 1;
        self.flush(WRITE_BYTES)
    }

    fn flush(&mut self, at_least: usize) -> std::io::Result<()> {
        if self.buffer.len() >= at_least && !self.buffer.is_empty() {
            self.crc.update(&self.buffer);
            self.file.write_all_at(&mut [IoSlice::new(&self.buffer)], self.offset)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Ends the file and makes it durable; returns its length.
    pub(super) fn end(mut self) -> std::io::Result<u64> {
        self.flush(1)?;
        let mut end = [0; END_LEN];
        end[..8].copy_from_slice(END_MAGIC);
        end[8..16].copy_from_slice(&self.extents.to_le_bytes());
        end[16..24].copy_from_slice(&self.ranges.to_le_bytes());
        end[24..28].copy_from_slice(&self.crc.finalize().to_le_bytes());
        let crc = crc32fast::hash(&end[..28]);
        end[28..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&mut [IoSlice::new(&end)], self.offset)?;
        self.file.sync()?;
        Ok(self.offset + END_LEN as u64)
    }
}

/// Reads the checkpoint, or returns `None` when there is none.
pub(crate) fn read_checkpoint(disk: &dyn LogDisk) -> Result<Option<Checkpoint>, OverlayError> {
    let file = match disk.open(CHECKPOINT) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OverlayError::io("open the checkpoint", error)),
    };
    let read = |buffer: &mut [u8], offset| {
        file.read_exact_at(buffer, offset)
            .map_err(|error| OverlayError::io("read the checkpoint", error))
    };
    let size = file.size_bytes().map_err(|e| OverlayError::io("stat the checkpoint", e))?;
    let mut header = [0; HEADER_LEN];
    let mut end = [0; END_LEN];
    if size < (HEADER_LEN + END_LEN) as u64 {
        return Err(corrupt("too short"));
    }
    read(&mut header, 0)?;
    read(&mut end, size - END_LEN as u64)?;
    let header = parse_header(&header)?;
    let (extents, ranges) = parse_end(&end, size)?;
    let mut body = vec![0; extents * EXTENT_LEN + ranges * RANGE_LEN];
    read(&mut body, HEADER_LEN as u64)?;
    if crc32fast::hash(&body) != u32_at(&end, 24) {
        return Err(corrupt("checksum of the body"));
    }
    let (extents, ranges) = body.split_at(extents * EXTENT_LEN);
    let extents = extents.chunks_exact(EXTENT_LEN).map(|bytes| Extent {
        start: u64_at(bytes, 0),
        end: u64_at(bytes, 8),
        place: Place::unpack(u32_at(bytes, 16), u32_at(bytes, 20)),
    });
    let dirty = ranges.chunks_exact(RANGE_LEN).map(|bytes| (u64_at(bytes, 0), u64_at(bytes, 8)));
    let checkpoint = Checkpoint { header, extents: extents.collect(), dirty: dirty.collect() };
    let sectors_max = acstor_types::limits::DISK_SIZE_MAX / crate::SECTOR_BYTES;
    let is_range = |start: u64, end: u64| start < end && end <= sectors_max;
    if !checkpoint.extents.iter().all(|extent| is_range(extent.start, extent.end))
        || !checkpoint.dirty.iter().all(|(start, end)| is_range(*start, *end))
    {
        return Err(corrupt("a range that no disk has"));
    }
    Ok(Some(checkpoint))
}

fn parse_header(bytes: &[u8; HEADER_LEN]) -> Result<CheckpointHeader, OverlayError> {
    if &bytes[..8] != MAGIC || crc32fast::hash(&bytes[..92]) != u32_at(bytes, 92) {
        return Err(corrupt("checksum of the header"));
    }
    let found = u32_at(bytes, 8);
    if found != OVERLAY_LOG_VERSION {
        let (path, supported) = (CHECKPOINT.to_owned(), OVERLAY_LOG_VERSION);
        return Err(OverlayError::Version { path, found, supported });
    }
    let mut log_id = [0; 16];
    log_id.copy_from_slice(&bytes[16..32]);
    let mut volume = [0; 16];
    volume.copy_from_slice(&bytes[32..48]);
    Ok(CheckpointHeader {
        log_id,
        volume: DiskId::from_bytes(volume),
        epoch: u32_at(bytes, 48),
        segment: u32_at(bytes, 12),
        offset: u64_at(bytes, 56),
        next_sequence: u64_at(bytes, 64),
    })
}

fn parse_end(end: &[u8; END_LEN], size: u64) -> Result<(usize, usize), OverlayError> {
    if &end[..8] != END_MAGIC || crc32fast::hash(&end[..28]) != u32_at(end, 28) {
        return Err(corrupt("checksum of the end"));
    }
    let (extents, ranges) = (u64_at(end, 8), u64_at(end, 16));
    let max = limits::CHECKPOINT_EXTENTS_MAX;
    if extents > max || ranges > max {
        return Err(corrupt("more extents than allowed"));
    }
    let expected =
        (HEADER_LEN + END_LEN) as u64 + extents * EXTENT_LEN as u64 + ranges * RANGE_LEN as u64;
    if size != expected {
        return Err(corrupt("its length"));
    }
    Ok((extents as usize, ranges as usize))
}

fn corrupt(what: &str) -> OverlayError {
    OverlayError::Corrupt(format!(
        "the checkpoint of the local log is damaged ({what}): restore it, or {GIVE_UP}"
    ))
}

/// Writes a checkpoint that was read, changed, in its place; it refers to what that one did.
pub(crate) fn rewrite_checkpoint(
    disk: &dyn LogDisk,
    checkpoint: &Checkpoint,
) -> Result<(), OverlayError> {
    let io = |error| OverlayError::io("write the checkpoint", error);
    let file = disk.create(CHECKPOINT_NEW, 0).map_err(io)?;
    let mut writer = Writer::begin(&*file, &checkpoint.header).map_err(io)?;
    for extent in &checkpoint.extents {
        writer.extent(extent).map_err(io)?;
    }
    for (start, end) in &checkpoint.dirty {
        writer.range(*start, *end).map_err(io)?;
    }
    writer.end().map_err(io)?;
    disk.rename(CHECKPOINT_NEW, CHECKPOINT).map_err(io)?;
    disk.sync().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::memory_disk::MemoryDisk;

    fn sample(file: &dyn LogFile) -> Checkpoint {
        let header = CheckpointHeader {
            log_id: [0xa5; 16],
            volume: DiskId::from_bytes([0x5a; 16]),
            epoch: 3,
            segment: 7,
            offset: 8256,
            next_sequence: 0x0102_0304_0506_0708,
        };
        let log = Place::Log { segment: 6, offset: 4096 + 64 };
        let extents = vec![
            Extent { start: 8, end: 16, place: log },
            Extent { start: 64, end: 1 << 21, place: Place::Zero },
        ];
        let dirty = vec![(8, 12)];
        let mut writer = Writer::begin(file, &header).unwrap();
        extents.iter().for_each(|extent| writer.extent(extent).unwrap());
        dirty.iter().for_each(|(start, end)| writer.range(*start, *end).unwrap());
        writer.end().unwrap();
        Checkpoint { header, extents, dirty }
    }

    /// The bytes on operators' disks. When this fails, bump `OVERLAY_LOG_VERSION`, write a new
    /// golden file beside the old one and add a row to the history in `overlay-log.rst`.
    #[test]
    fn bytes_change_version_requires_update() {
        let golden: &[u8] =
            include_bytes!("../../../../tests/golden/overlay-log-checkpoint-v1.bin");
        let disk = MemoryDisk::new(1 << 30);
        let file = disk.create(CHECKPOINT, 0).unwrap();
        let checkpoint = sample(&*file);
        let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, golden, "layout changed: bump OVERLAY_LOG_VERSION");
        assert_eq!(read_checkpoint(&disk).unwrap(), Some(checkpoint));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let disk = MemoryDisk::new(1 << 30);
        assert!(read_checkpoint(&disk).unwrap().is_none());
        let file = disk.create(CHECKPOINT, 0).unwrap();
        sample(&*file);
        let size = file.size_bytes().unwrap();
        for position in 0..size {
            let mut byte = [0];
            file.read_exact_at(&mut byte, position).unwrap();
            let flip = |byte: u8| file.write_all_at(&mut [IoSlice::new(&[byte])], position);
            flip(byte[0] ^ 0x10).unwrap();
            assert!(read_checkpoint(&disk).is_err(), "{position}");
            flip(byte[0]).unwrap();
        }
        assert!(read_checkpoint(&disk).unwrap().is_some());
    }
}
