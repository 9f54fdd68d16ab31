//! Partition tables of BIOS (MBR), with logical partitions.
//!
//! Source: Microsoft's and IBM's table of four entries at byte 446, and chains of such tables in an extended
//! partition (`sfdisk(8)`, `dos` label). Ours: the crate `mbrman` needs one that nobody keeps any more.

use crate::disk::Disk;
use crate::error::BrowseError;
use crate::gpt::u64_at;
use crate::partitions::Partition;

const SECTOR_LEN: u64 = 512;
const TABLE_AT: usize = 446;
const ENTRY_LEN: usize = 16;
/// Flag of the partition that the machine boots from; others have 0.
const ACTIVE: u8 = 0x80;
/// Type of the entry that stands before a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of entries that have further tables.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;
/// Logical partitions that are looked at; a chain may lead back to itself.
const LOGICALS_MAX: u32 = 128;

#[derive(Clone, Copy)]
struct Slot {
    flag: u8,
    kind: u8,
    /// First sector, from where the table says.
    start: u64,
    sectors: u64,
}

/// Returns whether the table says that the disk has a GPT.
///
/// # Errors
///
/// [`BrowseError::Io`] when bytes of the disk cannot be had.
pub(crate) fn protects_gpt(disk: &dyn Disk) -> Result<bool, BrowseError> {
    let slots = table(disk, 0)?;
    Ok(slots.is_some_and(|slots| slots.iter().any(|slot| slot.kind == PROTECTIVE)))
}

/// Returns the partitions of a table, numbered as Linux does; None: there is none.
///
/// # Errors
///
/// [`BrowseError::Io`] when bytes of the disk cannot be had.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Vec<Partition>>, BrowseError> {
    let Some(slots) = table(disk, 0)? else { return Ok(None) };
    // Some other first sector that ends with the same two bytes has anything here.
    if slots.iter().any(|slot| slot.flag & !ACTIVE != 0) {
        return Ok(None);
    }
    let (mut found, mut next) = (Vec::new(), FIRST_LOGICAL);
    for (number, slot) in (1..).zip(slots) {
        if EXTENDED.contains(&slot.kind) {
            next = logical(disk, slot.start, next, &mut found)?;
        } else if slot.kind != 0 && slot.kind != PROTECTIVE && slot.sectors > 0 {
            found.push(partition(number, slot.start, slot.sectors));
        }
    }
    found.sort_by_key(|one| one.number);
    Ok((!found.is_empty()).then_some(found))
}

fn partition(number: u32, start: u64, sectors: u64) -> Partition {
    let (start, size_bytes) = (start * SECTOR_LEN, sectors * SECTOR_LEN);
    Partition { number, start, size_bytes, name: String::new() }
}

/// Adds the logical partitions of an extended one, each of which has a table of its own that names it and the next.
/// Returns the number of the one after them.
fn logical(
    disk: &dyn Disk,
    extended: u64,
    first: u32,
    found: &mut Vec<Partition>,
) -> Result<u32, BrowseError> {
    let (mut at, mut number) = (extended, first);
    for _ in 0..LOGICALS_MAX {
        let Some([own, next, ..]) = table(disk, at * SECTOR_LEN)? else { break };
        if own.kind != 0 && own.sectors > 0 {
            found.push(partition(number, at + own.start, own.sectors));
            number += 1;
        }
        if !EXTENDED.contains(&next.kind) {
            break;
        }
        at = extended + next.start;
    }
    Ok(number)
}

fn table(disk: &dyn Disk, at: u64) -> Result<Option<[Slot; 4]>, BrowseError> {
    let mut sector = [0; SECTOR_LEN as usize];
    if !crate::disk::fits(at, sector.len(), disk.size_bytes()) {
        return Ok(None);
    }
    disk.read_at(at, &mut sector)?;
    if sector[510..] != [0x55, 0xaa] {
        return Ok(None);
    }
    let slot = |number: usize| {
        let entry = &sector[TABLE_AT + number * ENTRY_LEN..][..ENTRY_LEN];
        let place = u64_at(entry, 8);
        Slot { flag: entry[0], kind: entry[4], start: place & 0xffff_ffff, sectors: place >> 32 }
    };
    Ok(Some([slot(0), slot(1), slot(2), slot(3)]))
}
