//! Partition tables of UEFI (GPT).
//!
//! Source: UEFI Specification 2.10, section 5.3. Ours, because the crate `gpt` allocates as much as the header
//! says and asserts what it has read. Differs: entries past the 1,024th are not looked at.

use crate::disk::Disk;
use crate::error::BrowseError;
use crate::partitions::Partition;

const SIGNATURE: &[u8] = b"EFI PART";
/// Sizes of sectors that tables are written for.
const SECTOR_LENS: [u64; 2] = [512, 4096];
const HEADER_LEN: usize = 92;
/// Entries that are looked at; 128 is what everybody writes.
const ENTRIES_MAX: u32 = 1024;
/// Lengths of an entry that are believed.
const ENTRY_LENS: std::ops::RangeInclusive<u32> = 128..=4096;

struct Header {
    entries_at: u64,
    entry_count: u32,
    entry_len: u32,
    entries_crc: u32,
}

/// Returns the partitions of a table, of its copy at the end where the first one is damaged; None: there is none.
///
/// # Errors
///
/// [`BrowseError::Damaged`] when neither can be read, [`BrowseError::Io`] when bytes of the disk cannot be had.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Vec<Partition>>, BrowseError> {
    let mut is_there = false;
    for sector_len in SECTOR_LENS {
        let last = (disk.size_bytes() / sector_len).saturating_sub(1) * sector_len;
        for at in [sector_len, last] {
            let Some(bytes) = header_bytes(disk, at)? else { continue };
            is_there = true;
            if let Some(header) = checked(bytes, sector_len)
                && let Some(found) = entries(disk, &header, sector_len)?
            {
                return Ok(Some(found));
            }
        }
    }
    if is_there {
        return Err(BrowseError::Damaged(
            "both copies of the partition table are damaged".to_owned(),
        ));
    }
    Ok(None)
}

fn header_bytes(disk: &dyn Disk, at: u64) -> Result<Option<[u8; HEADER_LEN]>, BrowseError> {
    let mut bytes = [0; HEADER_LEN];
    if !crate::disk::fits(at, HEADER_LEN, disk.size_bytes()) {
        return Ok(None);
    }
    disk.read_at(at, &mut bytes)?;
    Ok(bytes.starts_with(SIGNATURE).then_some(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn checked(mut bytes: [u8; HEADER_LEN], sector_len: u64) -> Option<Header> {
    let crc = u32_at(&bytes, 16);
    bytes[16..20].fill(0);
    let header = Header {
        entries_at: u64_at(&bytes, 72).checked_mul(sector_len)?,
        entry_count: u32_at(&bytes, 80),
        entry_len: u32_at(&bytes, 84),
        entries_crc: u32_at(&bytes, 88),
    };
    let is_sound = u32_at(&bytes, 12) as usize == HEADER_LEN
        && crc32fast::hash(&bytes) == crc
        && ENTRY_LENS.contains(&header.entry_len)
        && header.entry_count <= ENTRIES_MAX;
    is_sound.then_some(header)
}

fn entries(
    disk: &dyn Disk,
    header: &Header,
    sector_len: u64,
) -> Result<Option<Vec<Partition>>, BrowseError> {
    // At most 4 MiB, by the bounds of both.
    let mut table = vec![0; header.entry_count as usize * header.entry_len as usize];
    if !crate::disk::fits(header.entries_at, table.len(), disk.size_bytes()) {
        return Ok(None);
    }
    disk.read_at(header.entries_at, &mut table)?;
    if crc32fast::hash(&table) != header.entries_crc {
        return Ok(None);
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(table.chunks_exact(header.entry_len as usize)) {
        if entry[..16].iter().all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let sectors = last.checked_sub(first).and_then(|len| len.checked_add(1));
        let (Some(start), Some(size_bytes)) =
            (first.checked_mul(sector_len), sectors.and_then(|len| len.checked_mul(sector_len)))
        else {
            continue;
        };
        found.push(Partition { number, start, size_bytes, name: name(&entry[56..128]) });
    }
    Ok(Some(found))
}

fn name(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    char::decode_utf16(units.take_while(|unit| *unit != 0))
        .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}
