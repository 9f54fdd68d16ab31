//! The places of the chunks of a pack that is being filled; their bytes are the caller's.

use acstor_types::{
    ChunkSize, Digest, PACK_DATA_OFFSET, PackClass, PackId, PackSalt, STORED_CHUNK_LEN,
    StoredChunk, limits,
};

use crate::header::{BLOCK_LEN, PackHeader};
use crate::stored_form::{StoredForm, is_possible_len};

/// Layout of one pack being filled.
#[derive(Debug)]
pub struct PackLayout {
    class: PackClass,
    chunk_size: ChunkSize,
    salt: PackSalt,
    budget: u64,
    end: u64,
    records: Vec<u8>,
}

/// Layout of a pack that is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedLayout {
    /// The pack's id.
    pub id: PackId,
    /// Its header.
    pub header: PackHeader,
    /// End of its last chunk, bytes; the table begins at the next multiple of 4096.
    pub data_end: u64,
    /// Its table.
    pub records: Vec<u8>,
}

impl PackLayout {
    /// An empty pack of at most `budget` bytes, header and table included; one chunk always fits.
    ///
    /// The salt must be random and never used before.
    pub fn new(class: PackClass, chunk_size: ChunkSize, salt: PackSalt, budget: u64) -> Self {
        let budget = budget.clamp(Self::size_min(chunk_size), limits::PACK_SIZE_MAX);
        let end = PACK_DATA_OFFSET;
        Self { class, chunk_size, salt, budget, end, records: Vec::new() }
    }

    /// Size of a pack with one chunk that is not compressed, bytes.
    pub fn size_min(chunk_size: ChunkSize) -> u64 {
        PACK_DATA_OFFSET + chunk_size.bytes() as u64 + STORED_CHUNK_LEN as u64
    }

    /// Number of chunks so far.
    pub fn chunk_count(&self) -> u32 {
        (self.records.len() / STORED_CHUNK_LEN) as u32
    }

    /// End of the last chunk, bytes: where the next one goes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Number of chunks that surely still fit, however little compressing them pays.
    pub fn room(&self) -> u32 {
        let record_len = STORED_CHUNK_LEN as u64;
        let spent = self.end + self.records.len() as u64 + BLOCK_LEN - 1;
        let each = self.chunk_size.bytes() as u64 + record_len;
        let surely = self.budget.saturating_sub(spent) / each;
        let left = limits::PACK_CHUNKS_MAX - self.chunk_count();
        let at_least = u32::from(self.fits(self.chunk_size.bytes()));
        u32::try_from(surely).unwrap_or(u32::MAX).max(at_least).min(left)
    }

    /// Returns whether a chunk of so many stored bytes fits.
    pub fn fits(&self, stored_len: usize) -> bool {
        let data_end = (self.end + stored_len as u64).next_multiple_of(BLOCK_LEN);
        let table_len = (self.records.len() + STORED_CHUNK_LEN) as u64;
        self.chunk_count() < limits::PACK_CHUNKS_MAX && data_end + table_len <= self.budget
    }

    /// True where such a form is one of a chunk of this pack's size.
    pub fn is_possible(&self, form: &StoredForm<'_>) -> bool {
        is_possible_len(form.codec, form.bytes.len(), self.chunk_size.bytes())
    }

    /// Give the next chunk its place; `None` where it does not fit, or where such a form is none of
    /// a chunk of this size.
    pub fn push(&mut self, digest: Digest, form: &StoredForm<'_>) -> Option<StoredChunk> {
        let stored_len = form.bytes.len();
        if !self.fits(stored_len) || !self.is_possible(form) {
            return None;
        }
        let chunk = StoredChunk {
            digest,
            offset: u32::try_from(self.end).ok()?,
            stored_len: u32::try_from(stored_len).ok()?,
            codec: form.codec,
            is_incompressible: form.is_incompressible,
            crc: form.crc,
        };
        self.records.extend_from_slice(&chunk.to_bytes());
        self.end += stored_len as u64;
        Some(chunk)
    }

    /// Close the pack; `None` where it has no chunk.
    pub fn seal(self) -> Option<SealedLayout> {
        if self.records.is_empty() {
            return None;
        }
        let header = PackHeader {
            class: self.class,
            chunk_size: self.chunk_size,
            chunk_count: self.chunk_count(),
            salt: self.salt,
            table_offset: u32::try_from(self.end.next_multiple_of(BLOCK_LEN)).ok()?,
        };
        let id = header.id(&self.records);
        Some(SealedLayout { id, header, data_end: self.end, records: self.records })
    }
}
