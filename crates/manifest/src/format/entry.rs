//! Entry pages: the stored chunks of a disk's data chunks, in the order of the disk.

use acstor_types::bytes_le::{array_at, u32_at};
use acstor_types::{Codec, PACK_DATA_OFFSET, STORED_CHUNK_LEN, StoredChunk};

use crate::format::form::{check_rest, records_of};
use crate::format::header::Header;
use crate::format::layout::{ENTRY_LEN, PAGE_ENTRIES};
use crate::{ManifestError, PageBytes};

/// A data chunk: which pack has it, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the pack in the manifest that has the entry.
    pub pack: u32,
    /// The chunk in the pack.
    pub chunk: StoredChunk,
}

impl Entry {
    /// Reads the entry in a slot of a page.
    pub(crate) fn read(bytes: &PageBytes, slot: u32) -> Result<Entry, ManifestError> {
        let start = slot as usize * ENTRY_LEN;
        let chunk: [u8; STORED_CHUNK_LEN] = array_at(&bytes[..], start + 4);
        Ok(Entry { pack: u32_at(&bytes[..], start), chunk: StoredChunk::from_bytes(&chunk)? })
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..4].copy_from_slice(&self.pack.to_le_bytes());
        bytes[4..].copy_from_slice(&self.chunk.to_bytes());
        bytes
    }

    /// Checks an entry against the manifest's number of packs and the size of its chunks; returns
    /// the bytes of the pack that it uses: the first, and the first after them.
    pub(crate) fn check(&self, packs: u32, chunk_size: u32) -> Result<(u32, u32), ManifestError> {
        let StoredChunk { offset, stored_len, codec, .. } = self.chunk;
        if self.pack >= packs {
            return Err(ManifestError::Corrupt("number of a pack"));
        }
        let is_possible = match codec {
            Codec::Plain => stored_len == chunk_size,
            Codec::Lz4 | Codec::Zstd => (1..chunk_size).contains(&stored_len),
        };
        if !is_possible {
            return Err(ManifestError::Corrupt("stored length of a chunk"));
        }
        match offset.checked_add(stored_len) {
            Some(end) if u64::from(offset) >= PACK_DATA_OFFSET => Ok((offset, end)),
            _ => Err(ManifestError::Corrupt("offset of a chunk in its pack")),
        }
    }
}

/// Checks an entry page.
pub(crate) fn check(
    header: &Header,
    position: u32,
    bytes: &PageBytes,
) -> Result<(), ManifestError> {
    let counts = header.counts();
    let entries = records_of(position, counts.data_chunks, PAGE_ENTRIES);
    check_rest(bytes, entries as usize * ENTRY_LEN)?;
    for slot in 0..entries {
        Entry::read(bytes, slot)?.check(counts.packs, header.chunk_size().as_u32())?;
    }
    Ok(())
}
