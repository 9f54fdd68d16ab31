//! The slot of the volume's log in the origin below which this host fills none any more.
//!
//! What a fold holds is collected once the record names the fold. This host may not know that it
//! does: it may be killed, or its disk be full, before it has written that down. The floor is
//! therefore durable in the local log before anybody can name the fold.
//!
//! All integers are little-endian. Described in `reference/formats/overlay-log`; the golden file is
//! `tests/golden/overlay-log-floor-v1.bin`. A change bumps [`SLOT_FLOOR_VERSION`].
//!
//! ```text
//! 0   magic "ACSTOVSF"          8
//! 8   version                   u32
//! 12  epoch                     u32
//! 16  first slot to be filled   u64
//! 24  zero                      4
//! 28  CRC-32 of bytes 0..28     u32
//! ```
//!
//! Must never: let a fold be named before its floor is durable.

use std::io::IoSlice;

use acstor_types::bytes_le::{u32_at, u64_at};

use crate::OverlayError;
use crate::segments::disk::LogDisk;

/// Version that this build writes; it reads this one only.
pub(crate) const SLOT_FLOOR_VERSION: u32 = 1;

/// Name of the file.
const FLOOR: &str = "slot-floor";
const FLOOR_NEW: &str = "slot-floor.new";
const MAGIC: &[u8; 8] = b"ACSTOVSF";
const LEN: usize = 32;
const CRC_OFFSET: usize = 28;

/// Makes durable that no slot below `slot` is filled in `epoch`.
pub(crate) fn write_floor(disk: &dyn LogDisk, epoch: u32, slot: u64) -> Result<(), OverlayError> {
    let write = || {
        let file = disk.create(FLOOR_NEW, 0)?;
        file.write_all_at(&mut [IoSlice::new(&encode(epoch, slot))], 0)?;
        file.sync()?;
        disk.rename(FLOOR_NEW, FLOOR)?;
        disk.sync()
    };
    write().map_err(|error| OverlayError::io(format!("write {FLOOR} of the local log"), error))
}

/// Returns the first slot of `epoch` that may be filled: `next`, or the floor where it is higher.
pub(crate) fn first_slot(disk: &dyn LogDisk, epoch: u32, next: u64) -> Result<u64, OverlayError> {
    let io = |error| OverlayError::io(format!("read {FLOOR} of the local log"), error);
    let file = match disk.open(FLOOR) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(next),
        Err(error) => return Err(io(error)),
    };
    if file.size_bytes().map_err(io)? != LEN as u64 {
        return Err(damaged());
    }
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).map_err(io)?;
    let (of, slot) = parse(&bytes)?;
    Ok(if of == epoch { next.max(slot) } else { next })
}

fn encode(epoch: u32, slot: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&SLOT_FLOOR_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&epoch.to_le_bytes());
    bytes[16..24].copy_from_slice(&slot.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
    bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; LEN]) -> Result<(u32, u64), OverlayError> {
    if &bytes[..8] != MAGIC || crc32fast::hash(&bytes[..CRC_OFFSET]) != u32_at(bytes, CRC_OFFSET) {
        return Err(damaged());
    }
    let found = u32_at(bytes, 8);
    if found != SLOT_FLOOR_VERSION {
        let (path, supported) = (FLOOR.to_owned(), SLOT_FLOOR_VERSION);
        return Err(OverlayError::Version { path, found, supported });
    }
    Ok((u32_at(bytes, 12), u64_at(bytes, 16)))
}

fn damaged() -> OverlayError {
    OverlayError::Corrupt(format!(
        "{FLOOR} of the local log is damaged: check the disk; the file can be removed once \
         `next` in volume.json is that of the volume's record"
    ))
}

#[cfg(test)]
mod tests {
    use acstor_testkit::{Fault, seeded_rng};

    use super::*;
    use crate::scenarios::memory_disk::MemoryDisk;

    /// The bytes on operators' disks. When this fails, bump `SLOT_FLOOR_VERSION`, write a new golden
    /// file beside the old one and add a row to the history in `overlay-log.rst`.
    #[test]
    fn bytes_change_version_requires_update() {
        let golden: &[u8] = include_bytes!("../../../../tests/golden/overlay-log-floor-v1.bin");
        assert_eq!(encode(0x0102_0304, 0x1122_3344_5566_7788), golden, "bump SLOT_FLOOR_VERSION");
        assert_eq!(
            parse(golden.first_chunk().unwrap()).unwrap(),
            (0x0102_0304, 0x1122_3344_5566_7788)
        );
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        for position in 0..LEN {
            let mut bytes = encode(1, 2);
            bytes[position] ^= 0x10;
            assert!(matches!(parse(&bytes), Err(OverlayError::Corrupt(_))), "{position}");
        }
    }

    #[test]
    fn floor_is_the_one_before_or_the_new_one_whatever_fails() {
        for operation in ["create", "write", "sync", "rename", "sync-names"] {
            let disk = MemoryDisk::new(1 << 20);
            assert_eq!(first_slot(&disk, 7, 50).unwrap(), 50);
            write_floor(&disk, 7, 56).unwrap();
            disk.faults.fail_nth(operation, 1, Fault::Torn(5));
            write_floor(&disk, 7, 60).unwrap_err();
            for seed in 0..20 {
                let found = disk.after_power_failure(&mut seeded_rng(seed));
                let slot = first_slot(&found, 7, 50).unwrap();
                assert!(slot == 56 || slot == 60, "{operation} {slot}");
                assert_eq!(first_slot(&found, 7, 99).unwrap(), 99);
                assert_eq!(first_slot(&found, 8, 50).unwrap(), 50, "of another epoch");
            }
        }
    }
}
