//! Chunks of any number of packs, found by their digests.
//!
//! Chunks are numbered through, pack after pack, in the order in which packs are added; the hash
//! table holds such numbers only, 6-12 bytes a chunk beside what is kept of it. A whole digest is
//! compared before a chunk counts as known: 64-bit prefixes would do against chance, but not against
//! an attacker who stores chunks with a wanted prefix.

use acstor_types::{Digest, ErrorKind, PackId};
use hashbrown::HashTable;

use super::{Failure, failure, invalid};

/// Number of a chunk of the table.
pub(super) type Ordinal = u32;

/// Properties of a chunk that a table keeps.
pub(super) trait IndexedChunk: Copy {
    /// Name of the chunk.
    fn digest(&self) -> Digest;

    /// The same place with a digest of zeros, which is no chunk's: what is unsound is never found.
    fn without_digest(self) -> Self;
}

impl IndexedChunk for Digest {
    fn digest(&self) -> Digest {
        *self
    }

    fn without_digest(self) -> Digest {
        Digest::from_bytes([0; Digest::LEN])
    }
}

struct Pack<C> {
    /// `None` while the pack is being filled.
    id: Option<PackId>,
    first: Ordinal,
    chunks: Vec<C>,
    is_forgotten: bool,
}

/// Position of each pack that is closed and not forgotten.
pub(super) type PackNumbers = std::collections::HashMap<PackId, usize>;

/// Chunks of any number of packs.
pub(super) struct ChunkTable<C> {
    packs: Vec<Pack<C>>,
    table: HashTable<Ordinal>,
    next: Ordinal,
}

impl<C: IndexedChunk> ChunkTable<C> {
    pub(super) fn new() -> ChunkTable<C> {
        ChunkTable { packs: Vec::new(), table: HashTable::new(), next: 0 }
    }

    /// Number of different digests.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of packs, forgotten ones too.
    pub(super) fn pack_count(&self) -> usize {
        self.packs.len()
    }

    /// Bytes of memory taken.
    pub(super) fn memory_bytes(&self) -> usize {
        let chunks: usize = self.packs.iter().map(|pack| pack.chunks.capacity()).sum();
        chunks * size_of::<C>()
            + self.packs.capacity() * size_of::<Pack<C>>()
            + self.table.allocation_size()
    }

    /// Makes room for that many more chunks.
    pub(super) fn reserve(&mut self, chunk_count: usize) {
        let packs = &self.packs;
        self.table.reserve(chunk_count, |other| Self::at(packs, *other).prefix_u64());
    }

    fn place(packs: &[Pack<C>], ordinal: Ordinal) -> (&Pack<C>, usize) {
        let number = packs.partition_point(|pack| pack.first <= ordinal) - 1;
        (&packs[number], (ordinal - packs[number].first) as usize)
    }

    fn at(packs: &[Pack<C>], ordinal: Ordinal) -> Digest {
        let (pack, position) = Self::place(packs, ordinal);
        pack.chunks[position].digest()
    }

    /// Returns the number of the chunk with that digest in a pack that is not forgotten.
    pub(super) fn find(&self, digest: &Digest) -> Option<Ordinal> {
        let packs = &self.packs;
        let is_it = |ordinal: &Ordinal| Self::at(packs, *ordinal) == *digest;
        let ordinal = *self.table.find(digest.prefix_u64(), is_it)?;
        (!Self::place(packs, ordinal).0.is_forgotten).then_some(ordinal)
    }

    /// Returns a chunk, its pack, which is closed, and its position there.
    pub(super) fn locate(&self, ordinal: Ordinal) -> Option<(PackId, usize, C)> {
        let (pack, position) = Self::place(&self.packs, ordinal);
        Some((pack.id?, position, *pack.chunks.get(position)?))
    }

    /// Returns the last chunk of the pack that has a chunk, and is closed.
    pub(super) fn last_beside(&self, ordinal: Ordinal) -> Option<C> {
        let (pack, _) = Self::place(&self.packs, ordinal);
        pack.id?;
        pack.chunks.last().copied()
    }

    /// Appends a chunk to the pack being filled, which is begun if there is none.
    pub(super) fn append(&mut self, chunk: C) -> Result<Ordinal, Failure> {
        if self.packs.last().is_none_or(|pack| pack.id.is_some()) {
            self.push_pack(None);
        }
        self.push_chunk(chunk)
    }

    /// Adds a closed pack, whose id was checked; chunks at the positions `unsound` are never found.
    pub(super) fn add(
        &mut self,
        id: PackId,
        chunks: impl IntoIterator<Item = C>,
        unsound: &[u32],
    ) -> Result<(), Failure> {
        if !self.open_chunks().is_empty() {
            return Err(invalid("a pack is being filled"));
        }
        self.push_pack(Some(id));
        for chunk in chunks {
            self.push_chunk(chunk)?;
        }
        if let Some(pack) = self.packs.last_mut() {
            for position in unsound {
                if let Some(chunk) = pack.chunks.get_mut(*position as usize) {
                    *chunk = chunk.without_digest();
                }
            }
        }
        Ok(())
    }

    /// Chunks of the pack being filled; none when there is none.
    pub(super) fn open_chunks(&self) -> &[C] {
        match self.packs.last() {
            Some(pack) if pack.id.is_none() => &pack.chunks,
            _ => &[],
        }
    }

    /// Closes the pack being filled over its first chunks, as many as `chunks`, which take their
    /// place; those behind begin the next pack.
    pub(super) fn seal(&mut self, id: PackId, chunks: &[C]) {
        let Some(pack) = self.packs.last_mut().filter(|pack| pack.id.is_none()) else { return };
        let count = chunks.len().min(pack.chunks.len());
        let behind = pack.chunks.split_off(count);
        pack.chunks.copy_from_slice(&chunks[..count]);
        pack.id = Some(id);
        if !behind.is_empty() {
            let first = pack.first + count as Ordinal;
            self.packs.push(Pack { id: None, first, chunks: behind, is_forgotten: false });
        }
    }

    /// Lets the chunks of a pack no longer be found; returns whether it was there.
    pub(super) fn forget(&mut self, id: &PackId) -> bool {
        let mut was_there = false;
        for pack in self.packs.iter_mut().filter(|pack| pack.id == Some(*id)) {
            was_there |= !pack.is_forgotten;
            pack.is_forgotten = true;
        }
        was_there
    }

    fn push_pack(&mut self, id: Option<PackId>) {
        let pack = Pack { id, first: self.next, chunks: Vec::new(), is_forgotten: false };
        self.packs.push(pack);
    }

    fn push_chunk(&mut self, chunk: C) -> Result<Ordinal, Failure> {
        let ordinal = self.next;
        self.next = ordinal.checked_add(1).ok_or_else(|| {
            failure(ErrorKind::Exhausted, "the index holds 2^32 - 1 chunks, the most it can")
        })?;
        if let Some(pack) = self.packs.last_mut() {
            pack.chunks.push(chunk);
        }
        let packs = &self.packs;
        let digest = chunk.digest();
        let is_it = |other: &Ordinal| Self::at(packs, *other) == digest;
        match self.table.find_mut(digest.prefix_u64(), is_it) {
            None => {
                let hash_of = |other: &Ordinal| Self::at(packs, *other).prefix_u64();
                self.table.insert_unique(digest.prefix_u64(), ordinal, hash_of);
            }
            Some(known) if Self::place(packs, *known).0.is_forgotten => *known = ordinal,
            Some(_) => {}
        }
        Ok(ordinal)
    }

    /// Returns the position of each pack that is closed and not forgotten.
    pub(super) fn pack_numbers(&self) -> PackNumbers {
        let kept = self.packs.iter().enumerate().filter(|(_, pack)| !pack.is_forgotten);
        kept.filter_map(|(number, pack)| pack.id.map(|id| (id, number))).collect()
    }

    /// Returns the chunks of a pack.
    pub(super) fn chunks_of(&self, id: &PackId, numbers: &PackNumbers) -> Option<&[C]> {
        numbers.get(id).map(|number| &self.packs[*number].chunks[..])
    }
}
