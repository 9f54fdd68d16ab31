//! The table of a pack of version 2.

use acstor_types::{
    Codec, PACK_DATA_OFFSET, PackId, STORED_CHUNK_LEN, StoredChunk, StoredChunkError,
};
use bytes::Bytes;

use crate::header::{BLOCK_LEN, PackHeader};
use crate::pack_error::PackError;
use crate::stored_form::is_possible_len;

/// A pack's header and its table, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackTable {
    header: PackHeader,
    records: Bytes,
}

impl PackTable {
    /// Read the table of the pack `id`; `records` is as long as the header says.
    ///
    /// # Errors
    /// [`PackError`] when header and table are not those of `id`, or describe what no writer makes:
    /// the id only proves that somebody made it so.
    pub fn parse(header: PackHeader, id: &PackId, records: Bytes) -> Result<PackTable, PackError> {
        if records.len() as u64 != header.table_len() {
            let (actual, expected) = (records.len(), header.table_len());
            return Err(PackError::TableLength { actual, expected });
        }
        if header.id(&records) != *id {
            return Err(PackError::Id);
        }
        check_places(&header, &records)?;
        Ok(PackTable { header, records })
    }

    /// The header.
    pub fn header(&self) -> &PackHeader {
        &self.header
    }

    /// Number of chunks.
    pub fn len(&self) -> u32 {
        self.header.chunk_count
    }

    /// Returns whether there are none; there is always one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk at a position, or `None` past the end.
    pub fn get(&self, ordinal: u32) -> Option<StoredChunk> {
        let (records, _) = self.records.as_chunks::<STORED_CHUNK_LEN>();
        StoredChunk::from_bytes(records.get(ordinal as usize)?).ok()
    }

    /// All chunks, in the order of their places.
    pub fn chunks(&self) -> impl Iterator<Item = StoredChunk> {
        (0..self.len()).map_while(|ordinal| self.get(ordinal))
    }

    /// The table's bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.records
    }
}

/// Refuse chunks that are not back to back from the first byte after the header to the table, or
/// have lengths that no chunk of this size can have.
fn check_places(header: &PackHeader, records: &[u8]) -> Result<(), PackError> {
    let mut end = PACK_DATA_OFFSET;
    let (records, _) = records.as_chunks::<STORED_CHUNK_LEN>();
    for (ordinal, record) in (0..).zip(records) {
        let chunk = StoredChunk::from_bytes(record)
            .map_err(|cause: StoredChunkError| PackError::Record { ordinal, cause })?;
        let misplaced = |reason| Err(PackError::Place { ordinal, reason });
        if u64::from(chunk.offset) != end {
            return misplaced("it does not begin where the one before ends");
        }
        if !is_possible_len(chunk.codec, chunk.stored_len as usize, header.chunk_size.bytes()) {
            return misplaced(match chunk.codec {
                Codec::Plain => "it is plain and not of the chunk size",
                Codec::Lz4 | Codec::Zstd => "it is compressed and saves less than an eighth",
            });
        }
        end += u64::from(chunk.stored_len);
    }
    if end.next_multiple_of(BLOCK_LEN) != u64::from(header.table_offset) {
        return Err(PackError::Header("the table does not follow the chunks"));
    }
    Ok(())
}
