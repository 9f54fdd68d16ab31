//! Chunks of packs of version 2 by their digests, each with its place and form.
//!
//! Only such chunks can be named by manifests of version 2: an entry has the CRC of the stored bytes,
//! which packs of version 1 do not have. To reuse a chunk of theirs it would have to be read first;
//! it is stored again instead, compressed, once.

use acstor_pack::PackHeader as Header;
use acstor_types::{
    ChunkSize, Digest, ErrorKind, PACK_DATA_OFFSET, PackClass, PackId, STORED_CHUNK_LEN,
    StoredChunk,
};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::chunk_records::ChunkRecords;
use super::chunk_table::{ChunkTable, IndexedChunk, Ordinal, PackNumbers};
use super::pack_writer::{PackHeader, class_of};
use super::{Failure, chunk_size_of, digest_of, failure, invalid};

/// A record in its bytes, which are smaller than the record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored([u8; STORED_CHUNK_LEN]);

impl Stored {
    fn of(chunk: &StoredChunk) -> Stored {
        Stored(chunk.to_bytes())
    }

    /// A chunk of which nothing but its name is known yet.
    fn unplaced(digest: &Digest) -> Stored {
        let mut bytes = [0; STORED_CHUNK_LEN];
        bytes[..Digest::LEN].copy_from_slice(digest.as_bytes());
        Stored(bytes)
    }
}

impl IndexedChunk for Stored {
    fn digest(&self) -> Digest {
        let mut digest = [0; Digest::LEN];
        digest.copy_from_slice(&self.0[..Digest::LEN]);
        Digest::from_bytes(digest)
    }

    fn without_digest(mut self) -> Stored {
        self.0[..Digest::LEN].fill(0);
        self
    }
}

/// A chunk, the pack that has it, and the bytes of all chunks of that.
pub(super) struct Placed {
    pub(super) pack: PackId,
    pub(super) pack_stored_bytes: u32,
    pub(super) chunk: StoredChunk,
}

/// Chunks of any number of packs, and of the one being filled.
pub(super) struct Index {
    pub(super) chunk_size: ChunkSize,
    /// Class of the packs; `None`: any.
    class: Option<PackClass>,
    chunks: ChunkTable<Stored>,
}

impl Index {
    pub(super) fn find(&self, digest: &Digest) -> Option<Ordinal> {
        self.chunks.find(digest)
    }

    /// Appends a chunk to the pack being filled, where its place is not known yet.
    pub(super) fn append(&mut self, digest: &Digest) -> Result<Ordinal, Failure> {
        self.chunks.append(Stored::unplaced(digest))
    }

    /// Closes the pack being filled over the chunks of its table; those behind go to the next.
    pub(super) fn seal(&mut self, id: PackId, table: &[StoredChunk]) -> Result<(), Failure> {
        let open = self.chunks.open_chunks();
        let is_same = |(open, chunk): (&Stored, &StoredChunk)| open.digest() == chunk.digest;
        let begins_so = table.len() <= open.len() && open.iter().zip(table).all(is_same);
        if table.is_empty() || !begins_so {
            return Err(invalid("the table is not of the chunks that are new"));
        }
        let table: Vec<Stored> = table.iter().map(Stored::of).collect();
        self.chunks.seal(id, &table);
        Ok(())
    }

    /// Returns the place of a chunk whose pack is closed.
    pub(super) fn locate(&self, ordinal: Ordinal) -> Option<Placed> {
        let (pack, _, stored) = self.chunks.locate(ordinal)?;
        let last = StoredChunk::from_bytes(&self.chunks.last_beside(ordinal)?.0).ok()?;
        let end = u64::from(last.offset) + u64::from(last.stored_len);
        Some(Placed {
            pack,
            pack_stored_bytes: u32::try_from(end - PACK_DATA_OFFSET).ok()?,
            chunk: StoredChunk::from_bytes(&stored.0).ok()?,
        })
    }

    fn add(&mut self, id: PackId, header: &Header, table: &ChunkRecords, unsound: &[u32]) -> Added {
        if let Some(class) = self.class
            && header.class != class
        {
            return Err(invalid(format!("only packs of class {} are taken", class.as_str())));
        }
        if header.chunk_size != self.chunk_size {
            return Err(invalid("the pack has chunks of another size"));
        }
        let records: Vec<Stored> = table.chunks().iter().map(Stored::of).collect();
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.0).collect();
        if header.chunk_count as usize != records.len() || header.id(&bytes) != id {
            let message = format!("header and table are not those of pack {}", id.0);
            return Err(failure(ErrorKind::Corrupt, message));
        }
        self.chunks.add(id, records, unsound)
    }

    /// Returns whether a pack has a chunk at its place, and it is known to be sound.
    pub(super) fn has_at(&self, pack: &PackId, chunk: &StoredChunk, numbers: &PackNumbers) -> bool {
        let Some(chunks) = self.chunks.chunks_of(pack, numbers) else { return false };
        let offset_of = |stored: &Stored| {
            StoredChunk::from_bytes(&stored.0).map_or(u32::MAX, |chunk| chunk.offset)
        };
        // A table is in the order of its chunks' places.
        let position = chunks.partition_point(|stored| offset_of(stored) < chunk.offset);
        chunks.get(position) == Some(&Stored::of(chunk))
    }

    pub(super) fn pack_numbers(&self) -> PackNumbers {
        self.chunks.pack_numbers()
    }
}

type Added = Result<(), Failure>;

/// Chunks of packs of version 2; safe to use from several threads.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct StoredChunkIndex {
    pub(super) index: RwLock<Index>,
}

#[pymethods]
impl StoredChunkIndex {
    #[new]
    #[pyo3(signature = (chunk_size, pack_class=Some("image")), text_signature = "(chunk_size, pack_class='image')")]
    fn new(chunk_size: u32, pack_class: Option<&str>) -> PyResult<StoredChunkIndex> {
        let (chunk_size, class) = (chunk_size_of(chunk_size)?, pack_class.map(class_of));
        let index = Index { chunk_size, class: class.transpose()?, chunks: ChunkTable::new() };
        Ok(StoredChunkIndex { index: RwLock::new(index) })
    }

    fn __len__(&self) -> usize {
        self.index.read().chunks.len()
    }

    #[getter]
    fn pack_count(&self) -> usize {
        self.index.read().chunks.pack_count()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.index.read().chunks.memory_bytes()
    }

    /// Makes room for that many more chunks.
    fn reserve(&self, chunk_count: usize) {
        self.index.write().chunks.reserve(chunk_count);
    }

    #[pyo3(signature = (pack_id, header, table, unsound=None))]
    fn add_pack(
        &self,
        py: Python<'_>,
        pack_id: &[u8],
        header: &PackHeader,
        table: &ChunkRecords,
        unsound: Option<Vec<u32>>,
    ) -> PyResult<()> {
        let id = PackId(digest_of(pack_id)?);
        let unsound = unsound.unwrap_or_default();
        py.detach(|| self.index.write().add(id, header.header(), table, &unsound))?;
        Ok(())
    }

    /// Forgets a pack: its chunks are no longer found. Returns whether it was there.
    fn forget_pack(&self, pack_id: &[u8]) -> PyResult<bool> {
        let id = PackId(digest_of(pack_id)?);
        Ok(self.index.write().chunks.forget(&id))
    }

    /// Returns (pack id, offset, stored bytes) of a chunk, or `None`.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        digest: &[u8],
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u32, u32)>> {
        let digest = digest_of(digest)?;
        let index = self.index.read();
        let found = index.find(&digest).and_then(|ordinal| index.locate(ordinal));
        Ok(found.map(|Placed { pack, chunk, .. }| {
            (PyBytes::new(py, pack.0.as_bytes()), chunk.offset, chunk.stored_len)
        }))
    }
}
