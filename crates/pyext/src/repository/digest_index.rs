//! The set of digests that the origin holds, with the place of each.
//!
//! Chunks are numbered through, pack after pack, in the order in which packs are added; the hash
//! table holds such numbers only. So a chunk takes 32 bytes for its digest and 6-12 for the table,
//! and a whole digest is compared before a chunk counts as known: 64-bit prefixes would do against
//! chance, but not against an attacker who stores chunks with a wanted prefix.

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, ErrorKind, PACK_DATA_OFFSET, PackId, PackSalt, limits,
};
use hashbrown::HashTable;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::pack::salt_of;
use super::{Failure, chunk_size_of, digest_of, digests_of, failure, invalid};

/// Number of a chunk of the index.
pub(super) type Ordinal = u32;

struct Pack {
    /// `None` while the pack is being filled.
    id: Option<PackId>,
    first: Ordinal,
    digests: Vec<[u8; Digest::LEN]>,
    is_forgotten: bool,
}

/// The digests of any number of packs.
pub(super) struct Index {
    pub(super) chunk_size: ChunkSize,
    packs: Vec<Pack>,
    table: HashTable<Ordinal>,
    next: Ordinal,
}

impl Index {
    fn new(chunk_size: ChunkSize) -> Index {
        Index { chunk_size, packs: Vec::new(), table: HashTable::new(), next: 0 }
    }

    fn place(packs: &[Pack], ordinal: Ordinal) -> (&Pack, usize) {
        let number = packs.partition_point(|pack| pack.first <= ordinal) - 1;
        (&packs[number], (ordinal - packs[number].first) as usize)
    }

    fn digest_at(packs: &[Pack], ordinal: Ordinal) -> Digest {
        let (pack, position) = Index::place(packs, ordinal);
        Digest::from_bytes(pack.digests[position])
    }

    /// Returns the number of the chunk with that digest in a pack that is not forgotten.
    pub(super) fn find(&self, digest: &Digest) -> Option<Ordinal> {
        let packs = &self.packs;
        let is_it = |ordinal: &Ordinal| Index::digest_at(packs, *ordinal) == *digest;
        let ordinal = *self.table.find(digest.prefix_u64(), is_it)?;
        (!Index::place(packs, ordinal).0.is_forgotten).then_some(ordinal)
    }

    /// Returns the digest and, once its pack is closed, the place of a chunk.
    pub(super) fn locate(&self, ordinal: Ordinal) -> Option<(Digest, ChunkLocation)> {
        let (pack, position) = Index::place(&self.packs, ordinal);
        let offset = PACK_DATA_OFFSET + position as u64 * self.chunk_size.bytes() as u64;
        let location = ChunkLocation { pack: pack.id?, offset: u32::try_from(offset).ok()? };
        Some((Digest::from_bytes(pack.digests[position]), location))
    }

    /// Appends a chunk to the pack being filled, which is begun if there is none.
    pub(super) fn append(&mut self, digest: &Digest) -> Result<Ordinal, Failure> {
        if self.packs.last().is_none_or(|pack| pack.id.is_some()) {
            self.push_pack(None);
        }
        self.push_chunk(digest)
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
        if !self.open_digests().is_empty() {
            return Err(invalid("a pack is being filled"));
        }
        self.push_pack(Some(id));
        for digest in digests {
            self.push_chunk(&Digest::from_bytes(*digest))?;
        }
        // A digest of zeros is no chunk's, so what is unsound matches no manifest entry.
        if let Some(pack) = self.packs.last_mut() {
            for position in unsound {
                if let Some(digest) = pack.digests.get_mut(*position as usize) {
                    *digest = [0; Digest::LEN];
                }
            }
        }
        Ok(())
    }

    /// Digests of the pack being filled, concatenated; empty when there is none.
    pub(super) fn open_digests(&self) -> &[u8] {
        match self.packs.last() {
            Some(pack) if pack.id.is_none() => pack.digests.as_flattened(),
            _ => &[],
        }
    }

    /// Closes the pack being filled.
    pub(super) fn seal(&mut self, id: PackId) {
        if let Some(pack) = self.packs.last_mut() {
            pack.id.get_or_insert(id);
        }
    }

    fn push_pack(&mut self, id: Option<PackId>) {
        let pack = Pack { id, first: self.next, digests: Vec::new(), is_forgotten: false };
        self.packs.push(pack);
    }

    fn push_chunk(&mut self, digest: &Digest) -> Result<Ordinal, Failure> {
        let ordinal = self.next;
        self.next = ordinal.checked_add(1).ok_or_else(|| {
            failure(ErrorKind::Exhausted, "the index holds 2^32 - 1 chunks, the most it can")
        })?;
        if let Some(pack) = self.packs.last_mut() {
            pack.digests.push(*digest.as_bytes());
        }
        let packs = &self.packs;
        let hash = digest.prefix_u64();
        let is_it = |other: &Ordinal| Index::digest_at(packs, *other) == *digest;
        match self.table.find_mut(hash, is_it) {
            None => {
                let hash_of = |other: &Ordinal| Index::digest_at(packs, *other).prefix_u64();
                self.table.insert_unique(hash, ordinal, hash_of);
            }
            Some(known) if Index::place(packs, *known).0.is_forgotten => *known = ordinal,
            Some(_) => {}
        }
        Ok(ordinal)
    }

    /// Returns whether the pack's chunk at `location` has that digest and is known to be sound.
    pub(super) fn has_at(
        &self,
        digest: &Digest,
        location: &ChunkLocation,
        numbers: &PackNumbers,
    ) -> bool {
        let Some(pack) = numbers.get(&location.pack).map(|number| &self.packs[*number]) else {
            return false;
        };
        let Some(offset) = u64::from(location.offset).checked_sub(PACK_DATA_OFFSET) else {
            return false;
        };
        let size = self.chunk_size.bytes() as u64;
        offset.is_multiple_of(size)
            && pack.digests.get((offset / size) as usize) == Some(digest.as_bytes())
    }

    /// Returns the position of each pack that is closed and not forgotten.
    pub(super) fn pack_numbers(&self) -> PackNumbers {
        let kept = self.packs.iter().enumerate().filter(|(_, pack)| !pack.is_forgotten);
        kept.filter_map(|(number, pack)| pack.id.map(|id| (id, number))).collect()
    }
}

pub(super) type PackNumbers = std::collections::HashMap<PackId, usize>;

/// The digests of any number of packs; safe to use from several threads.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct DigestIndex {
    pub(super) index: RwLock<Index>,
}

#[pymethods]
impl DigestIndex {
    #[new]
    fn new(chunk_size: u32) -> PyResult<DigestIndex> {
        Ok(DigestIndex { index: RwLock::new(Index::new(chunk_size_of(chunk_size)?)) })
    }

    fn __len__(&self) -> usize {
        self.index.read().table.len()
    }

    #[getter]
    fn pack_count(&self) -> usize {
        self.index.read().packs.len()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        let index = self.index.read();
        let digests: usize =
            index.packs.iter().map(|pack| pack.digests.capacity() * Digest::LEN).sum();
        digests + index.packs.capacity() * size_of::<Pack>() + index.table.allocation_size()
    }

    /// Makes room for that many more chunks.
    fn reserve(&self, chunk_count: usize) {
        let index = &mut *self.index.write();
        let packs = &index.packs;
        index.table.reserve(chunk_count, |other| Index::digest_at(packs, *other).prefix_u64());
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
        let mut index = self.index.write();
        let mut found = false;
        for pack in index.packs.iter_mut().filter(|pack| pack.id == Some(id)) {
            found |= !pack.is_forgotten;
            pack.is_forgotten = true;
        }
        Ok(found)
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
