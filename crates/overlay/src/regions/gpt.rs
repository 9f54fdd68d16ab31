//! Names of partitions, for regions that are named by them.
//!
//! Source: UEFI specification 2.10, §5.3. Only what is needed: the primary header at LBA 1 of
//! 512-byte sectors and its entries.

use std::ops::Range;

use acstor_types::bytes_le::{u32_at, u64_at};

use crate::regions::Partition;
use crate::segments::record::SECTOR;

const MAGIC: &[u8] = b"EFI PART";
const ENTRIES_MAX: u32 = 256;
const NAME_OFFSET: usize = 56;
const NAME_LEN: usize = 72;

/// First sector and count of the sectors that hold the header.
pub(crate) const HEADER_SECTOR: u64 = 1;

/// Partition table of a disk as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// One whose checksums match: its partitions, and the bytes that its entries take.
    Whole(Vec<Partition>, Range<u64>),
    /// One that is damaged, or is being written this moment.
    Damaged,
    /// None.
    Absent,
}

/// Entries of a table as everybody makes them, bytes of the disk: until a table is known.
pub(crate) const USUAL_ENTRIES: Range<u64> = 2 * SECTOR..34 * SECTOR;

impl Table {
    /// Reads the table of a disk; `read` returns `None` past its end.
    pub(crate) fn read<E>(
        read: impl Fn(u64, usize) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Table, E> {
        let Some(header) = read(HEADER_SECTOR * SECTOR, SECTOR as usize)? else {
            return Ok(Table::Absent);
        };
        if !header.starts_with(MAGIC) {
            return Ok(Table::Absent);
        }
        let Some(entries) = parse_header(&header) else { return Ok(Table::Damaged) };
        let len = entries.len.next_multiple_of(SECTOR as usize);
        let Some(bytes) = read(entries.offset, len)? else { return Ok(Table::Damaged) };
        Ok(match parse_entries(&entries, &bytes[..entries.len]) {
            Some(partitions) => {
                Table::Whole(partitions, entries.offset..entries.offset + len as u64)
            }
            None => Table::Damaged,
        })
    }
}

/// Place of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entries {
    offset: u64,
    len: usize,
    entry_len: usize,
    crc: u32,
}

/// Reads the header, or returns `None` when it is none.
fn parse_header(sector: &[u8]) -> Option<Entries> {
    if sector.len() < SECTOR as usize || !sector.starts_with(MAGIC) {
        return None;
    }
    let header_len = u32_at(sector, 12) as usize;
    if !(92..=SECTOR as usize).contains(&header_len) || u64_at(sector, 24) != HEADER_SECTOR {
        return None;
    }
    let mut header = sector[..header_len].to_vec();
    header[16..20].fill(0);
    let (count, entry_len) = (u32_at(sector, 80), u32_at(sector, 84) as usize);
    if crc32fast::hash(&header) != u32_at(sector, 16)
        || count > ENTRIES_MAX
        || !(128..=4096).contains(&entry_len)
    {
        return None;
    }
    let offset = u64_at(sector, 72).checked_mul(SECTOR)?;
    Some(Entries { offset, len: count as usize * entry_len, entry_len, crc: u32_at(sector, 88) })
}

/// Reads the entries' bytes, or returns `None` when they are damaged.
fn parse_entries(entries: &Entries, bytes: &[u8]) -> Option<Vec<Partition>> {
    if bytes.len() != entries.len || crc32fast::hash(bytes) != entries.crc {
        return None;
    }
    let partition = |entry: &[u8]| {
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let is_used = entry[..16].iter().any(|byte| *byte != 0);
        (is_used && first <= last && last < u64::MAX).then(|| (name(entry), first, last + 1))
    };
    Some(bytes.chunks_exact(entries.entry_len).filter_map(partition).collect())
}

fn name(entry: &[u8]) -> String {
    let units = entry[NAME_OFFSET..NAME_OFFSET + NAME_LEN].chunks_exact(2);
    let units = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    char::decode_utf16(units.take_while(|unit| *unit != 0))
        .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns sectors 0 to 33 of a disk with these partitions: name, first and last sector.
    pub(crate) fn table(partitions: &[(&str, u64, u64)]) -> Vec<u8> {
        let mut entries = vec![0; 128 * 128];
        for (entry, (name, first, last)) in entries.chunks_exact_mut(128).zip(partitions) {
            entry[..32].fill(0x5a);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            for (place, unit) in entry[NAME_OFFSET..].chunks_exact_mut(2).zip(name.encode_utf16()) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        let mut header = vec![0; 512];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[24..32].copy_from_slice(&1_u64.to_le_bytes());
        header[72..80].copy_from_slice(&2_u64.to_le_bytes());
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        let crc = crc32fast::hash(&header[..92]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        [vec![0; 512], header, entries].concat()
    }

    #[test]
    fn names_are_read() {
        let disk = table(&[("root", 2048, 4095), ("swäp", 4096, 8191)]);
        let entries = parse_header(&disk[512..1024]).unwrap();
        assert_eq!((entries.offset, entries.len), (1024, 16 << 10));
        let partitions = vec![("root".into(), 2048, 4096), ("swäp".into(), 4096, 8192)];
        assert_eq!(read(&disk), Table::Whole(partitions, USUAL_ENTRIES));
        let mut damaged = disk.clone();
        damaged[1029] ^= 1;
        assert_eq!(read(&damaged), Table::Damaged);
        assert_eq!(read(&disk[..8192]), Table::Damaged, "the disk ends in its entries");
        damaged[512..1024].fill(0);
        assert_eq!(read(&damaged), Table::Absent);
        assert_eq!(read(&disk[..512]), Table::Absent);
    }

    fn read(disk: &[u8]) -> Table {
        let part = |offset: u64, len: usize| {
            let bytes = disk.get(offset as usize..).and_then(|rest| rest.get(..len));
            Ok::<_, std::convert::Infallible>(bytes.map(<[u8]>::to_vec))
        };
        let Ok(table) = Table::read(part);
        table
    }

    proptest! {
        /// Whatever a guest writes there: no panic, and no more than a mebibyte is asked for.
        #[test]
        fn any_header_with_a_good_checksum_is_safe(
            header_len in 0..600_u32,
            fields in prop::collection::vec(any::<u8>(), 512),
            numbers in (any::<u64>(), 0..300_u32, 0..5000_u32),
            entries in prop::collection::vec(any::<u8>(), 0..4096),
        ) {
            let mut header = fields;
            header[..8].copy_from_slice(b"EFI PART");
            header[12..16].copy_from_slice(&header_len.to_le_bytes());
            header[24..32].copy_from_slice(&1_u64.to_le_bytes());
            header[72..80].copy_from_slice(&numbers.0.to_le_bytes());
            header[80..84].copy_from_slice(&numbers.1.to_le_bytes());
            header[84..88].copy_from_slice(&numbers.2.to_le_bytes());
            header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
            header[16..20].fill(0);
            let covered = (header_len as usize).min(header.len());
            let crc = crc32fast::hash(&header[..covered]);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            if let Some(found) = parse_header(&header) {
                prop_assert!(found.len <= 1 << 20);
                for (_, first, end) in parse_entries(&found, &entries).unwrap_or_default() {
                    prop_assert!(first < end);
                }
            }
        }
    }

    #[test]
    fn damaged_header_is_none() {
        let disk = table(&[("root", 2048, 4095)]);
        for position in 512..512 + 92 {
            let mut sector = disk[512..1024].to_vec();
            sector[position - 512] ^= 0x40;
            assert_eq!(parse_header(&sector), None, "{position}");
        }
        assert_eq!(parse_header(&[0; 511]), None);
    }
}
