//! Places of the chunks that a compaction has copied out of a pack: the object `moved/<pack>`.
//!
//! Layout (all integers little-endian), described in `reference/formats/moved-pack`:
//!
//! ```text
//! 0      magic "ACSTMOVD"                      8
//! 8      version, 1                            u32
//! 12     chunk size, bytes                     u32
//! 16     id of the pack that was copied        32
//! 48     class                                 u8
//! 49     zero                                  3
//! 52     packs that have the copies K          u32
//! 56     copied chunks N                       u32
//! 60     CRC-32 of all other bytes             u32
//! 64     ids of K packs
//! then   N records of 24 bytes, in the order of the places before:
//!        0   offset in the pack before         u32
//!        4   stored bytes there                u24
//!        7   zero                              u8
//!        8   number of the pack                u32
//!        12  offset in that pack               u32
//!        16  stored bytes there                u24
//!        19  codec                             u8
//!        20  CRC-32 of the stored bytes        u32
//! ```
//!
//! A manifest has a chunk's place before, so that is what it is found by. The digest is the manifest's:
//! whatever this object says, a reader takes no other bytes for the chunk.

use std::ops::Range;

use acstor_types::bytes_le::{array_at, u32_at};
use acstor_types::{
    ChunkSize, Codec, Digest, ErrorKind, PACK_DATA_OFFSET, PackClass, PackId, StoredChunk, limits,
};

use crate::stored_form::is_possible_len;

/// Version of this format.
pub const MOVED_PACK_VERSION: u32 = 1;
/// Most packs that have the copies of one; a pack of 4 GiB in packs of 4 MiB has as many.
pub const MOVED_TARGETS_MAX: u32 = 1024;

const MAGIC: &[u8; 8] = b"ACSTMOVD";
const CRC_OFFSET: usize = 60;
const ID_LEN: usize = Digest::LEN;
const RECORD_LEN: usize = 24;

/// Defect of a `moved` object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MovedPackError {
    /// Another number of bytes than the header says, or fewer than a header has.
    #[error("the list of moved chunks is {actual} bytes long in place of {expected}")]
    Length {
        /// Bytes that are there.
        actual: u64,
        /// Bytes that are expected.
        expected: u64,
    },
    /// Not such an object.
    #[error("not a list of moved chunks: wrong magic")]
    Magic,
    /// Written by a later release.
    #[error(
        "version {0} of the list of moved chunks is not read here (version {MOVED_PACK_VERSION} is)"
    )]
    Version(u32),
    /// Of a later release.
    #[error("pack class {0} is not known")]
    Class(u8),
    /// The object of another pack.
    #[error("the list of moved chunks is that of pack {}", .0.0)]
    Pack(PackId),
    /// A field is damaged or out of range.
    #[error("the list of moved chunks is corrupt: {0}")]
    Corrupt(&'static str),
}

impl MovedPackError {
    /// The reaction that it allows a caller.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            MovedPackError::Version(_) | MovedPackError::Class(_) => ErrorKind::Unsupported,
            MovedPackError::Length { .. }
            | MovedPackError::Magic
            | MovedPackError::Pack(_)
            | MovedPackError::Corrupt(_) => ErrorKind::Corrupt,
        }
    }
}

/// One copied chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedChunk {
    /// Offset in the pack before, bytes.
    pub from: u32,
    /// Stored bytes there.
    pub from_len: u32,
    /// Number of the pack that has the copy.
    pub target: u32,
    /// Offset of the copy, bytes.
    pub offset: u32,
    /// Stored bytes of the copy.
    pub stored_len: u32,
    /// Form of the copy.
    pub codec: Codec,
    /// CRC-32 of the copy's stored bytes.
    pub crc: u32,
}

impl MovedChunk {
    /// The copy of the chunk that was at `from`, in the pack with number `target`.
    pub fn new(from: &StoredChunk, target: u32, copy: &StoredChunk) -> MovedChunk {
        MovedChunk {
            from: from.offset,
            from_len: from.stored_len,
            target,
            offset: copy.offset,
            stored_len: copy.stored_len,
            codec: copy.codec,
            crc: copy.crc,
        }
    }

    fn read(bytes: &[u8; RECORD_LEN]) -> Result<MovedChunk, MovedPackError> {
        let (before, copy) = (u32_at(bytes, 4), u32_at(bytes, 16));
        let [.., codec] = copy.to_le_bytes();
        if before >> 24 != 0 {
            return Err(MovedPackError::Corrupt("bytes that are reserved"));
        }
        Ok(MovedChunk {
            from: u32_at(bytes, 0),
            from_len: before,
            target: u32_at(bytes, 8),
            offset: u32_at(bytes, 12),
            stored_len: copy & 0x00ff_ffff,
            codec: Codec::from_number(codec).ok_or(MovedPackError::Corrupt("codec of a chunk"))?,
            crc: u32_at(bytes, 20),
        })
    }

    fn to_bytes(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(&self.from.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.from_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.target.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.offset.to_le_bytes());
        let copy = self.stored_len | u32::from(self.codec as u8) << 24;
        bytes[16..20].copy_from_slice(&copy.to_le_bytes());
        bytes[20..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// First byte after its place before.
    fn end_before(&self) -> u64 {
        u64::from(self.from) + u64::from(self.from_len)
    }

    /// Bytes of the copy.
    pub fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.stored_len)
    }

    fn check(&self, chunk_size: ChunkSize, targets: u32) -> Result<(), MovedPackError> {
        let ends = [self.end_before(), u64::from(self.offset) + u64::from(self.stored_len)];
        let starts = [self.from, self.offset];
        let is_in_pack = starts.iter().all(|start| u64::from(*start) >= PACK_DATA_OFFSET)
            && ends.iter().all(|end| *end <= u64::from(u32::MAX));
        if !is_in_pack {
            return Err(MovedPackError::Corrupt("place of a chunk"));
        }
        if self.target >= targets {
            return Err(MovedPackError::Corrupt("number of a pack"));
        }
        let len = chunk_size.bytes();
        let is_possible = self.from_len > 0
            && self.from_len as usize <= len
            && is_possible_len(self.codec, self.stored_len as usize, len);
        if is_possible { Ok(()) } else { Err(MovedPackError::Corrupt("length of a chunk")) }
    }
}

/// The chunks that were copied out of a pack, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedPack {
    pack: PackId,
    class: PackClass,
    chunk_size: ChunkSize,
    targets: Vec<PackId>,
    chunks: Vec<MovedChunk>,
}

/// Bytes of a pack that somebody uses, after a move: the pack that has them, and which they are.
pub type TargetRuns = Vec<(PackId, Vec<Range<u32>>)>;

impl MovedPack {
    /// Bytes that [`MovedPack::size_of`] needs.
    pub const HEADER_LEN: usize = 64;
    /// Most bytes of such an object.
    pub const SIZE_MAX: u64 = size_bytes(MOVED_TARGETS_MAX, limits::PACK_CHUNKS_MAX);

    /// Makes the list of what was copied; `chunks` in the order of their places before.
    ///
    /// # Errors
    /// [`MovedPackError`] when they are not what a list can have.
    pub fn new(
        pack: PackId,
        class: PackClass,
        chunk_size: ChunkSize,
        targets: Vec<PackId>,
        chunks: Vec<MovedChunk>,
    ) -> Result<MovedPack, MovedPackError> {
        let made = MovedPack { pack, class, chunk_size, targets, chunks };
        made.check()?;
        Ok(made)
    }

    /// Returns the bytes of the whole object that begins so, for who reads it in two steps.
    ///
    /// # Errors
    /// [`MovedPackError`] when it is no such object, or larger than any.
    pub fn size_of(header: &[u8]) -> Result<u64, MovedPackError> {
        if header.len() < Self::HEADER_LEN {
            let (actual, expected) = (header.len() as u64, Self::HEADER_LEN as u64);
            return Err(MovedPackError::Length { actual, expected });
        }
        if &header[..8] != MAGIC {
            return Err(MovedPackError::Magic);
        }
        let version = u32_at(header, 8);
        if version != MOVED_PACK_VERSION {
            return Err(MovedPackError::Version(version));
        }
        let (targets, chunks) = (u32_at(header, 52), u32_at(header, 56));
        if targets > MOVED_TARGETS_MAX || chunks > limits::PACK_CHUNKS_MAX {
            return Err(MovedPackError::Corrupt("number of packs or chunks"));
        }
        Ok(size_bytes(targets, chunks))
    }

    /// Reads the object of the pack `pack`.
    ///
    /// # Errors
    /// [`MovedPackError`] when the bytes are not all of it, damaged, or of another pack.
    pub fn parse(pack: &PackId, bytes: &[u8]) -> Result<MovedPack, MovedPackError> {
        let expected = Self::size_of(bytes)?;
        if bytes.len() as u64 != expected {
            return Err(MovedPackError::Length { actual: bytes.len() as u64, expected });
        }
        if checksum(bytes) != u32_at(bytes, CRC_OFFSET) {
            return Err(MovedPackError::Corrupt("checksum"));
        }
        let named = PackId(Digest::from_bytes(array_at(bytes, 16)));
        if named != *pack {
            return Err(MovedPackError::Pack(named));
        }
        if bytes[49..52] != [0; 3] {
            return Err(MovedPackError::Corrupt("bytes that are reserved"));
        }
        let body = &bytes[Self::HEADER_LEN..];
        let (ids, records) = body.split_at(u32_at(bytes, 52) as usize * ID_LEN);
        let (ids, _) = ids.as_chunks::<ID_LEN>();
        let (records, _) = records.as_chunks::<RECORD_LEN>();
        let chunks: Result<_, _> = records.iter().map(MovedChunk::read).collect();
        MovedPack::new(
            named,
            PackClass::from_number(bytes[48]).ok_or(MovedPackError::Class(bytes[48]))?,
            ChunkSize::new(u32_at(bytes, 12)).ok_or(MovedPackError::Corrupt("chunk size"))?,
            ids.iter().map(|id| PackId(Digest::from_bytes(*id))).collect(),
            chunks?,
        )
    }

    /// Returns the object's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (targets, chunks) = (self.targets.len() as u32, self.chunks.len() as u32);
        let mut bytes = vec![0; Self::HEADER_LEN];
        bytes.reserve_exact(self.targets.len() * ID_LEN + self.chunks.len() * RECORD_LEN);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&MOVED_PACK_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_size.as_u32().to_le_bytes());
        bytes[16..48].copy_from_slice(self.pack.0.as_bytes());
        bytes[48] = self.class as u8;
        bytes[52..56].copy_from_slice(&targets.to_le_bytes());
        bytes[56..60].copy_from_slice(&chunks.to_le_bytes());
        self.targets.iter().for_each(|id| bytes.extend_from_slice(id.0.as_bytes()));
        self.chunks.iter().for_each(|chunk| bytes.extend_from_slice(&chunk.to_bytes()));
        let crc = checksum(&bytes);
        bytes[CRC_OFFSET..Self::HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn check(&self) -> Result<(), MovedPackError> {
        let is_small = self.targets.len() <= MOVED_TARGETS_MAX as usize
            && self.chunks.len() <= limits::PACK_CHUNKS_MAX as usize;
        if !is_small {
            return Err(MovedPackError::Corrupt("number of packs or chunks"));
        }
        if self.targets.contains(&self.pack) {
            return Err(MovedPackError::Corrupt("a pack that is moved to itself"));
        }
        let targets = self.targets.len() as u32;
        let mut end = 0;
        for chunk in &self.chunks {
            chunk.check(self.chunk_size, targets)?;
            if u64::from(chunk.from) < end {
                return Err(MovedPackError::Corrupt("order of the chunks"));
            }
            end = chunk.end_before();
        }
        Ok(())
    }

    /// The pack whose chunks were copied.
    pub fn pack(&self) -> PackId {
        self.pack
    }

    /// Class of that pack, and of those that have the copies.
    pub fn class(&self) -> PackClass {
        self.class
    }

    /// The packs that have the copies.
    pub fn targets(&self) -> &[PackId] {
        &self.targets
    }

    /// The copied chunks, in the order of their places before.
    pub fn chunks(&self) -> &[MovedChunk] {
        &self.chunks
    }

    /// Bytes that it takes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.targets.len() * ID_LEN + self.chunks.len() * size_of::<MovedChunk>()
    }

    /// Returns the copy of the chunk that was at a place, with its pack; `None`: it was not copied.
    pub fn find(&self, from: u32, from_len: u32) -> Option<(PackId, MovedChunk)> {
        let at = self.chunks.binary_search_by_key(&from, |chunk| chunk.from).ok()?;
        let chunk = self.chunks.get(at).filter(|chunk| chunk.from_len == from_len)?;
        Some((*self.targets.get(chunk.target as usize)?, *chunk))
    }

    /// Follows runs of whole chunks; returns where their copies are, and the runs that have none.
    pub fn follow(&self, runs: &[Range<u32>]) -> (TargetRuns, Vec<Range<u32>>) {
        let mut found: Vec<Vec<Range<u32>>> = vec![Vec::new(); self.targets.len()];
        let mut left = Vec::new();
        for run in runs {
            self.follow_run(run, &mut found, &mut left);
        }
        let runs = self.targets.iter().copied().zip(found.into_iter().map(merged));
        (runs.filter(|(_, runs)| !runs.is_empty()).collect(), left)
    }

    fn follow_run(
        &self,
        run: &Range<u32>,
        found: &mut [Vec<Range<u32>>],
        left: &mut Vec<Range<u32>>,
    ) {
        let mut at = run.start;
        let first = self.chunks.partition_point(|chunk| chunk.from < run.start);
        for chunk in &self.chunks[first..] {
            // A chunk that the run has half of was not copied for it: runs are of whole chunks.
            if chunk.end_before() > u64::from(run.end) {
                break;
            }
            if at < chunk.from {
                left.push(at..chunk.from);
            }
            if let Some(runs) = found.get_mut(chunk.target as usize) {
                runs.push(chunk.range());
            }
            at = chunk.from + chunk.from_len;
        }
        if at < run.end {
            left.push(at..run.end);
        }
    }
}

const fn size_bytes(targets: u32, chunks: u32) -> u64 {
    let ids = targets as u64 * ID_LEN as u64;
    MovedPack::HEADER_LEN as u64 + ids + chunks as u64 * RECORD_LEN as u64
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC_OFFSET]);
    hasher.update(&bytes[MovedPack::HEADER_LEN..]);
    hasher.finalize()
}

/// Returns runs in order, those that touch as one.
fn merged(mut runs: Vec<Range<u32>>) -> Vec<Range<u32>> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut result: Vec<Range<u32>> = Vec::with_capacity(runs.len());
    for run in runs {
        match result.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => result.push(run),
        }
    }
    result
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "runs are lists of ranges")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(number: u8) -> PackId {
        PackId(Digest::of(&[number]))
    }

    fn chunk(from: u32, target: u32, offset: u32) -> MovedChunk {
        MovedChunk {
            from,
            from_len: 4096,
            target,
            offset,
            stored_len: 1000,
            codec: Codec::Zstd,
            crc: 7,
        }
    }

    fn moved(chunks: Vec<MovedChunk>) -> Result<MovedPack, MovedPackError> {
        let size = ChunkSize::new(4096).unwrap();
        MovedPack::new(pack(1), PackClass::Image, size, vec![pack(2), pack(3)], chunks)
    }

    fn example() -> MovedPack {
        moved(vec![chunk(4096, 0, 4096), chunk(8192, 1, 5096), chunk(20_480, 0, 5096)]).unwrap()
    }

    #[test]
    fn test_parse_returns_what_was_encoded() {
        let bytes = example().encode();
        assert_eq!(MovedPack::size_of(&bytes[..64]), Ok(bytes.len() as u64));
        assert_eq!(MovedPack::parse(&pack(1), &bytes), Ok(example()));
        assert_eq!(MovedPack::parse(&pack(2), &bytes), Err(MovedPackError::Pack(pack(1))));
        let empty = moved(vec![]).unwrap();
        assert_eq!(MovedPack::parse(&pack(1), &empty.encode()), Ok(empty));
    }

    #[test]
    fn test_parse_every_damaged_byte_and_length_is_noticed() {
        let bytes = example().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(MovedPack::parse(&pack(1), &damaged).is_err(), "byte {at}");
            assert!(MovedPack::parse(&pack(1), &bytes[..at]).is_err(), "{at} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(MovedPack::parse(&pack(1), &longer).is_err());
    }

    #[test]
    fn test_size_of_refuses_more_than_any_has() {
        for (at, value) in [(52, MOVED_TARGETS_MAX + 1), (56, u32::MAX)] {
            let mut bytes = example().encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let refused = MovedPackError::Corrupt("number of packs or chunks");
            assert_eq!(MovedPack::size_of(&bytes), Err(refused));
        }
        let mut bytes = example().encode();
        bytes[8] = 2;
        let error = MovedPack::size_of(&bytes).unwrap_err();
        assert_eq!((error, error.kind()), (MovedPackError::Version(2), ErrorKind::Unsupported));
    }

    #[test]
    fn test_lists_that_no_compaction_makes_are_refused() {
        for (chunks, reason) in [
            (vec![chunk(0, 0, 4096)], "place of a chunk"),
            (vec![chunk(4096, 0, 0)], "place of a chunk"),
            (vec![chunk(4096, 0, u32::MAX - 10)], "place of a chunk"),
            (vec![chunk(4096, 2, 4096)], "number of a pack"),
            (vec![MovedChunk { stored_len: 4096, ..chunk(4096, 0, 4096) }], "length of a chunk"),
            (vec![MovedChunk { from_len: 0, ..chunk(4096, 0, 4096) }], "length of a chunk"),
            (vec![chunk(8192, 0, 4096), chunk(4096, 0, 4096)], "order of the chunks"),
            (vec![chunk(4096, 0, 4096), chunk(8191, 0, 4096)], "order of the chunks"),
        ] {
            assert_eq!(moved(chunks), Err(MovedPackError::Corrupt(reason)));
        }
        let size = ChunkSize::new(4096).unwrap();
        let itself = MovedPack::new(pack(1), PackClass::Image, size, vec![pack(1)], vec![]);
        assert!(itself.is_err());
    }

    #[test]
    fn test_find_wants_the_place_as_the_manifest_has_it() {
        let moved = example();
        assert_eq!(moved.find(8192, 4096), Some((pack(3), chunk(8192, 1, 5096))));
        assert_eq!(moved.find(8192, 100), None);
        assert_eq!(moved.find(8193, 4096), None);
        assert_eq!(moved.find(12_288, 4096), None);
    }

    #[test]
    fn test_follow_tells_what_has_no_copy() {
        let moved = example();
        let all = moved.follow(&[4096..12_288, 20_480..24_576]);
        assert_eq!(all, (vec![(pack(2), vec![4096..6096]), (pack(3), vec![5096..6096])], vec![]));
        let (runs, left) = moved.follow(&[8192..24_576, 30_000..30_001]);
        assert_eq!(runs, vec![(pack(2), vec![5096..6096]), (pack(3), vec![5096..6096])]);
        assert_eq!(left, vec![12_288..20_480, 30_000..30_001]);
        assert_eq!(moved.follow(&[5000..8192]).1, vec![5000..8192], "half of a chunk is no chunk");
        assert_eq!(moved.follow(&[4096..8000]).1, vec![4096..8000]);
    }

    proptest! {
        /// Any bytes, with or without the checksum that would make them believed, are refused or
        /// are a list that encodes to the same bytes.
        #[test]
        fn proptest_parse_accepts_only_what_encode_makes(
            changes in proptest::collection::vec((0usize..200, any::<u8>()), 0..6),
            cut in 0usize..220,
        ) {
            let mut bytes = example().encode();
            for (at, value) in changes {
                let len = bytes.len();
                bytes[at % len] = value;
            }
            bytes.truncate(cut.max(MovedPack::HEADER_LEN));
            let crc = checksum(&bytes);
            bytes[CRC_OFFSET..MovedPack::HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
            let named = PackId(Digest::from_bytes(array_at(&bytes, 16)));
            if let Ok(parsed) = MovedPack::parse(&named, &bytes) {
                prop_assert_eq!(parsed.encode(), bytes);
            }
        }

        /// Found and left bytes are together the runs, each byte once.
        #[test]
        fn proptest_follow_loses_no_byte(
            present in proptest::collection::vec(any::<bool>(), 1..40),
            wanted in proptest::collection::vec(any::<bool>(), 40),
        ) {
            let place = |at: usize| 4096 + at as u32 * 4096;
            let copied = (0..present.len()).filter(|at| present[*at]);
            let chunks = copied.clone().map(|at| chunk(place(at), at as u32 % 2, place(at)));
            let moved = moved(chunks.collect()).unwrap();
            let runs: Vec<_> = (0..present.len())
                .filter(|at| wanted[*at])
                .map(|at| place(at)..place(at + 1))
                .collect();
            let (found, left) = moved.follow(&runs);
            let bytes = |runs: &[Range<u32>]| runs.iter().map(|run| run.end - run.start).sum::<u32>();
            let found: u32 = found.iter().map(|(_, runs)| bytes(runs)).sum();
            let expected = copied.filter(|at| wanted[*at]).count() as u32;
            prop_assert_eq!(found, expected * 1000);
            prop_assert_eq!(bytes(&left) + expected * 4096, bytes(&runs));
        }
    }
}
