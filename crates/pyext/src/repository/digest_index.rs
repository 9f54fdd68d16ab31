//! The digests of packs of version 1, with the place of each: chunks there are all of one length.

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, ErrorKind, PACK_DATA_OFFSET, PackId, PackSalt, limits,
};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::chunk_table::{ChunkTable, Ordinal, PackNumbers};
use super::pack::salt_of;
use super::{Failure, chunk_size_of, digest_of, digests_of, failure, invalid};

/// The digests of any number of packs.
pub(super) struct Index {
    pub(super) chunk_size: ChunkSize,
    chunks: ChunkTable<Digest>,
}

impl Index {
    /// Returns the number of the chunk with that digest in a pack that is not forgotten.
    pub(super) fn find(&self, digest: &Digest) -> Option<Ordinal> {
        self.chunks.find(digest)
    }

    /// Returns the digest and, once its pack is closed, the place of a chunk.
    pub(super) fn locate(&self, ordinal: Ordinal) -> Option<(Digest, ChunkLocation)> {
        let (pack, position, digest) = self.chunks.locate(ordinal)?;
        let offset = PACK_DATA_OFFSET + position as u64 * self.chunk_size.bytes() as u64;
        Some((digest, ChunkLocation { pack, offset: u32::try_from(offset).ok()? }))
    }

    /// Appends a chunk to the pack being filled, which is begun if there is none.
    pub(super) fn append(&mut self, digest: &Digest) -> Result<Ordinal, Failure> {
        self.chunks.append(*digest)
    }

    /// Adds a closed pack after checking that its id is that of its digests.
    fn add(
        &mut self,
        id: PackId,
        salt: &PackSalt,
        digests: &[[u8; Digest::LEN]],
        unsound: &[u32],
    ) -> Result<(), Failure> {
        if PackId::of_salted(digests.as_flattened(), salt) != id {
            let message = format!("the digests are not those of pack {}", id.0);
            return Err(failure(ErrorKind::Corrupt, message));
        }
        let digests = digests.iter().map(|digest| Digest::from_bytes(*digest));
        self.chunks.add(id, digests, unsound)
    }

    /// Digests of the pack being filled, concatenated; empty when there is none.
    pub(super) fn open_digests(&self) -> Vec<u8> {
        self.chunks.open_chunks().iter().flat_map(|digest| *digest.as_bytes()).collect()
    }

    /// Closes the pack being filled.
    pub(super) fn seal(&mut self, id: PackId) {
        let digests = self.chunks.open_chunks().to_vec();
        self.chunks.seal(id, &digests);
    }

    /// Returns whether the pack's chunk at `location` has that digest and is known to be sound.
    pub(super) fn has_at(
        &self,
        digest: &Digest,
        location: &ChunkLocation,
        numbers: &PackNumbers,
    ) -> bool {
        let Some(digests) = self.chunks.chunks_of(&location.pack, numbers) else { return false };
        let Some(offset) = u64::from(location.offset).checked_sub(PACK_DATA_OFFSET) else {
            return false;
        };
        let size = self.chunk_size.bytes() as u64;
        offset.is_multiple_of(size) && digests.get((offset / size) as usize) == Some(digest)
    }

    /// Returns the position of each pack that is closed and not forgotten.
    pub(super) fn pack_numbers(&self) -> PackNumbers {
        self.chunks.pack_numbers()
    }
}

/// The digests of any number of packs; safe to use from several threads.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct DigestIndex {
    pub(super) index: RwLock<Index>,
}

#[pymethods]
impl DigestIndex {
    #[new]
    fn new(chunk_size: u32) -> PyResult<DigestIndex> {
        let index = Index { chunk_size: chunk_size_of(chunk_size)?, chunks: ChunkTable::new() };
        Ok(DigestIndex { index: RwLock::new(index) })
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

    #[pyo3(signature = (pack_id, salt, digests, unsound=None))]
    fn add_pack(
        &self,
        py: Python<'_>,
        pack_id: &[u8],
        salt: &[u8],
        digests: &Bound<'_, PyAny>,
        unsound: Option<Vec<u32>>,
    ) -> PyResult<()> {
        let (id, salt) = (PackId(digest_of(pack_id)?), salt_of(salt)?);
        let buffer = Buffer::readable(digests)?;
        let digests = digests_of(buffer.bytes())?;
        if digests.is_empty() || digests.len() > limits::PACK_CHUNKS_MAX as usize {
            return Err(invalid(format!("a pack has no {} chunks", digests.len())).into());
        }
        let unsound = unsound.unwrap_or_default();
        py.detach(|| self.index.write().add(id, &salt, digests, &unsound))?;
        Ok(())
    }

    /// Forgets a pack: its chunks are no longer found. Returns whether it was there.
    fn forget_pack(&self, pack_id: &[u8]) -> PyResult<bool> {
        let id = PackId(digest_of(pack_id)?);
        Ok(self.index.write().chunks.forget(&id))
    }

    /// Returns (pack id, offset) of a chunk, or `None`.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        digest: &[u8],
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u32)>> {
        let digest = digest_of(digest)?;
        let index = self.index.read();
        let found = index.find(&digest).and_then(|ordinal| index.locate(ordinal));
        Ok(found.map(|(_, at)| (PyBytes::new(py, at.pack.0.as_bytes()), at.offset)))
    }
}
