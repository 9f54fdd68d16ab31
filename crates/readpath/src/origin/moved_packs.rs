//! Packs that a compaction has moved: that one is missing leads to those that have its chunks.
//!
//! Manifests are not written anew when a pack is compacted, so what they say of a chunk's place is
//! right only for as long as that pack exists. Afterwards the object `moved/<pack>` says where its
//! chunks are. It never changes, so it is kept; a pack that is known to have moved is not asked for.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use acstor_pack::{MovedPack, Run};
use acstor_types::PackId;
use bytes::BytesMut;
use parking_lot::Mutex;

use crate::limits::MOVED_PACKS_BYTES_MAX;
use crate::origin::origin_queue::RunPart;
use crate::origin::stored_place::StoredPlace;
use crate::{OriginError, OriginSource};

/// Parts that are read with one call, and the pack that has them.
pub(crate) type MovedRun = (PackId, Vec<RunPart>);

/// Lists of moved chunks that were read; the least recently used leaves first.
#[derive(Debug)]
pub(crate) struct MovedPacks {
    run_bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    packs: HashMap<PackId, (Arc<MovedPack>, u64)>,
    clock: u64,
    bytes: usize,
}

impl Kept {
    fn find(&mut self, pack: &PackId) -> Option<Arc<MovedPack>> {
        self.clock += 1;
        let (moved, used) = self.packs.get_mut(pack)?;
        *used = self.clock;
        Some(moved.clone())
    }

    fn keep(&mut self, moved: &Arc<MovedPack>) {
        let former = self.packs.insert(moved.pack(), (moved.clone(), self.clock));
        // Another one than before, where the origin has been tampered with.
        self.bytes -= former.map_or(0, |(former, _)| former.memory_bytes());
        self.bytes += moved.memory_bytes();
        while self.bytes > MOVED_PACKS_BYTES_MAX && self.packs.len() > 1 {
            let others = self.packs.iter().filter(|(pack, _)| **pack != moved.pack());
            let oldest = others.min_by_key(|(_, (_, used))| *used).map(|(pack, _)| *pack);
            let Some((left, _)) = oldest.and_then(|pack| self.packs.remove(&pack)) else { break };
            self.bytes -= left.memory_bytes();
        }
    }
}

impl MovedPacks {
    /// Knows nothing yet; what is next to each other after a move is read with one call of at most
    /// `run_bytes_max` bytes.
    pub(crate) fn new(run_bytes_max: usize) -> MovedPacks {
        MovedPacks { run_bytes_max, kept: Mutex::default() }
    }

    /// Returns where parts of a pack are that is known to have moved; `None`: it has not, or not all
    /// of them.
    pub(crate) fn known(&self, pack: &PackId, parts: &[RunPart]) -> Option<Vec<MovedRun>> {
        let moved = self.kept.lock().find(pack)?;
        self.redirect(&moved, parts)
    }

    /// Returns where parts of a pack are that is missing; `None`: nobody has moved all of them.
    pub(crate) fn look_up(
        &self,
        source: &dyn OriginSource,
        pack: &PackId,
        parts: &[RunPart],
    ) -> Result<Option<Vec<MovedRun>>, OriginError> {
        let moved = match read_moved(source, pack) {
            Err(OriginError::NotFound { .. }) => return Ok(None),
            found => Arc::new(found?),
        };
        self.kept.lock().keep(&moved);
        Ok(self.redirect(&moved, parts))
    }

    fn redirect(&self, moved: &MovedPack, parts: &[RunPart]) -> Option<Vec<MovedRun>> {
        let mut runs: Vec<MovedRun> = Vec::new();
        let mut open: Option<Run> = None;
        for part in parts {
            let (pack, chunk) = moved.find(part.place.location.offset, part.place.stored_len)?;
            let place = StoredPlace::moved(pack, &chunk);
            let part = RunPart { place, ..*part };
            let joined = open.and_then(|run| {
                let (last_pack, _) = runs.last()?;
                let is_behind = place.range().start >= run.end();
                (*last_pack == pack && is_behind).then(|| place.join(&run, self.run_bytes_max))?
            });
            match (joined, runs.last_mut()) {
                (Some(run), Some((_, parts))) => {
                    open = Some(run);
                    parts.push(part);
                }
                _ => {
                    open = Some(place.run());
                    runs.push((pack, vec![part]));
                }
            }
        }
        Some(runs)
    }
}

/// Reads the object that says where the chunks of a pack are; its size is checked before any memory is
/// taken for it.
fn read_moved(source: &dyn OriginSource, pack: &PackId) -> Result<MovedPack, OriginError> {
    let damaged = |cause: acstor_pack::MovedPackError| OriginError::DamagedMove {
        pack: pack.0.to_string(),
        cause: cause.to_string(),
    };
    let mut bytes = BytesMut::zeroed(MovedPack::HEADER_LEN);
    read(source, pack, 0, &mut bytes)?;
    let size = MovedPack::size_of(&bytes).map_err(damaged)?;
    let rest = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(MovedPack::HEADER_LEN);
    if rest > 0 {
        let mut body = BytesMut::zeroed(rest);
        read(source, pack, MovedPack::HEADER_LEN as u64, &mut body)?;
        bytes.unsplit(body);
    }
    MovedPack::parse(pack, &bytes).map_err(damaged)
}

fn read(
    source: &dyn OriginSource,
    pack: &PackId,
    offset: u64,
    buffer: &mut BytesMut,
) -> Result<(), OriginError> {
    // A driver's panic must not take a worker with it.
    let call = catch_unwind(AssertUnwindSafe(|| source.read_moved(pack, offset, buffer)));
    call.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use acstor_pack::{ChunkDecompressor, MovedChunk};
    use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackClass, StoredChunk};

    use super::*;
    use crate::OriginRange;
    use crate::origin::origin_pool::read_run;
    use crate::origin::origin_queue::{Lane, OriginRun};

    const LEN: u32 = 4096;
    const RUN_BYTES_MAX: usize = 1 << 20;

    fn pack(number: u8) -> PackId {
        PackId(Digest::of(&[number]))
    }

    fn content(number: u8) -> Vec<u8> {
        vec![number; LEN as usize]
    }

    fn stored(number: u8, offset: u32) -> StoredChunk {
        StoredChunk {
            digest: Digest::of(&content(number)),
            offset,
            stored_len: LEN,
            codec: Codec::Plain,
            is_incompressible: false,
            crc: 0,
        }
    }

    /// An origin in memory: packs, lists of moved chunks, and the packs that were asked for.
    #[derive(Default)]
    struct Origin {
        /// True if a member of it does not answer, so that nothing is known to be absent.
        is_member_away: bool,
        packs: HashMap<PackId, Vec<u8>>,
        moves: HashMap<PackId, Vec<u8>>,
        asked: Mutex<Vec<PackId>>,
    }

    impl Origin {
        /// Puts chunks of these contents into a pack, from 4096 on.
        fn put(&mut self, id: PackId, contents: &[u8]) {
            let chunks = contents.iter().flat_map(|number| content(*number));
            let bytes = std::iter::repeat_n(0, LEN as usize).chain(chunks).collect();
            self.packs.insert(id, bytes);
        }

        /// Notes that the chunks at some places of a pack are at those of others.
        fn move_pack(&mut self, from: PackId, targets: &[PackId], places: &[(u32, u32, u32)]) {
            let copy = |(before, target, offset): &(u32, u32, u32)| {
                MovedChunk::new(&stored(0, *before), *target, &stored(0, *offset))
            };
            let chunks = places.iter().map(copy).collect();
            let size = ChunkSize::new(LEN).unwrap();
            let moved = MovedPack::new(from, PackClass::Image, size, targets.to_vec(), chunks);
            self.moves.insert(from, moved.unwrap().encode());
            self.packs.remove(&from);
        }

        fn absent(&self, pack: &PackId) -> OriginError {
            if self.is_member_away { undecided(pack) } else { missing(pack) }
        }

        fn take_asked(&self) -> Vec<PackId> {
            std::mem::take(&mut *self.asked.lock())
        }
    }

    fn fill(bytes: &[u8], pack: &PackId, offset: u64, out: &mut [u8]) -> Result<(), OriginError> {
        let end = offset as usize + out.len();
        let found = bytes.get(offset as usize..end);
        let short = OriginError::ShortRead { pack: pack.0.to_string(), end: end as u64 };
        out.copy_from_slice(found.ok_or(short)?);
        Ok(())
    }

    fn missing(pack: &PackId) -> OriginError {
        OriginError::NotFound { pack: pack.0.to_string() }
    }

    fn undecided(pack: &PackId) -> OriginError {
        OriginError::Undecided { pack: pack.0.to_string(), cause: "b: it hangs".to_owned() }
    }

    impl OriginSource for Origin {
        fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
            self.asked.lock().push(*pack);
            let bytes = self.packs.get(pack).ok_or_else(|| self.absent(pack))?;
            ranges
                .iter_mut()
                .try_for_each(|range| fill(bytes, pack, range.offset, &mut range.buffer))
        }

        fn read_manifest(&self, name: &Digest, _: &mut OriginRange) -> Result<(), OriginError> {
            Err(OriginError::NotFound { pack: name.to_string() })
        }

        fn read_moved(
            &self,
            pack: &PackId,
            offset: u64,
            buffer: &mut BytesMut,
        ) -> Result<(), OriginError> {
            fill(self.moves.get(pack).ok_or_else(|| self.absent(pack))?, pack, offset, buffer)
        }
    }

    /// Reads chunks as a manifest names them, each by content and offset; returns what came.
    fn read_chunks(
        origin: &Origin,
        moved: &MovedPacks,
        pack: PackId,
        wanted: &[(u8, u32)],
    ) -> (Vec<Option<u8>>, Option<OriginError>) {
        let part = |(number, offset): &(u8, u32)| {
            let chunk = stored(*number, *offset);
            let place = StoredPlace::of(pack, &chunk);
            RunPart { digest: chunk.digest, place, len: LEN as usize }
        };
        let run = OriginRun {
            pack,
            parts: wanted.iter().map(part).collect(),
            lane: Lane::Demand,
            disk: DiskId::from_bytes([0; 16]),
        };
        let result = read_run(origin, moved, &run, &mut ChunkDecompressor::new());
        let first = |answer: Result<bytes::Bytes, _>| answer.ok().map(|bytes| bytes[0]);
        (result.answers.into_iter().map(first).collect(), result.error)
    }

    /// Three chunks of pack 1, of which pack 2 has two and pack 3 one.
    fn compacted() -> Origin {
        let mut origin = Origin::default();
        origin.put(pack(2), &[10, 12]);
        origin.put(pack(3), &[9, 11]);
        let places = [(4096, 0, 4096), (8192, 1, 8192), (12_288, 0, 8192)];
        origin.move_pack(pack(1), &[pack(2), pack(3)], &places);
        origin
    }

    const WANTED: [(u8, u32); 3] = [(10, 4096), (11, 8192), (12, 12_288)];

    #[test]
    fn test_read_of_a_missing_pack_finds_its_chunks_where_they_were_moved_to() {
        let (origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        let found = read_chunks(&origin, &moved, pack(1), &WANTED);
        assert_eq!(found, (vec![Some(10), Some(11), Some(12)], None));
        assert_eq!(origin.take_asked(), [pack(1), pack(2), pack(3), pack(2)]);
        assert_eq!(read_chunks(&origin, &moved, pack(1), &WANTED[..1]), (vec![Some(10)], None));
        assert_eq!(origin.take_asked(), [pack(2)], "what has moved is not asked for again");
    }

    #[test]
    fn test_chunks_side_by_side_after_the_move_are_read_with_one_call() {
        let (mut origin, moved) = (Origin::default(), MovedPacks::new(RUN_BYTES_MAX));
        origin.put(pack(2), &[10, 11, 12]);
        let places = [(4096, 0, 4096), (8192, 0, 8192), (12_288, 0, 12_288)];
        origin.move_pack(pack(1), &[pack(2)], &places);
        let found = read_chunks(&origin, &moved, pack(1), &WANTED);
        assert_eq!(found, (vec![Some(10), Some(11), Some(12)], None));
        assert_eq!(origin.take_asked(), [pack(1), pack(2)]);
    }

    #[test]
    fn test_pack_that_was_moved_is_found_although_a_member_is_away() {
        let (mut origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        origin.is_member_away = true;
        let found = read_chunks(&origin, &moved, pack(1), &WANTED);
        assert_eq!(found, (vec![Some(10), Some(11), Some(12)], None));
        origin.take_asked();
        let (found, error) = read_chunks(&origin, &moved, pack(7), &WANTED);
        assert_eq!((found, error), (vec![None; 3], Some(undecided(&pack(7)))));
        assert_eq!(origin.take_asked(), [pack(7)], "it is not read chunk by chunk");
    }

    #[test]
    fn test_pack_that_is_there_is_read_although_others_have_its_chunks() {
        let (mut origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        origin.put(pack(1), &[10, 11, 12, 13]);
        origin.packs.remove(&pack(2));
        let found = read_chunks(&origin, &moved, pack(1), &WANTED);
        assert_eq!(found, (vec![Some(10), Some(11), Some(12)], None));
    }

    #[test]
    fn test_chunks_are_followed_over_as_many_moves_as_are_made() {
        let hops = crate::limits::MOVED_HOPS_MAX as u8;
        for moves in 1..=hops + 1 {
            let (mut origin, moved) = (Origin::default(), MovedPacks::new(RUN_BYTES_MAX));
            for number in 1..=moves {
                origin.move_pack(pack(number), &[pack(number + 1)], &[(4096, 0, 4096)]);
            }
            origin.put(pack(moves + 1), &[10]);
            for _ in 0..2 {
                let (found, error) = read_chunks(&origin, &moved, pack(1), &WANTED[..1]);
                assert_eq!(found, [(moves <= hops).then_some(10)], "{moves} moves");
                assert_eq!(error.is_none(), moves <= hops);
            }
        }
    }

    #[test]
    fn test_chunk_that_was_not_moved_takes_no_neighbour_with_it() {
        let (origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        let wanted = [WANTED[0], (99, 40_960), WANTED[2]];
        let (found, error) = read_chunks(&origin, &moved, pack(1), &wanted);
        assert_eq!(found, [Some(10), None, Some(12)]);
        assert_eq!(error, Some(missing(&pack(1))));
    }

    #[test]
    fn test_damaged_list_and_wrong_copy_are_no_content() {
        let (mut origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        origin.put(pack(2), &[66, 12]);
        assert_eq!(read_chunks(&origin, &moved, pack(1), &WANTED[..1]), (vec![None], None));
        let moved = MovedPacks::new(RUN_BYTES_MAX);
        origin.moves.get_mut(&pack(1)).unwrap()[70] ^= 1;
        let (found, error) = read_chunks(&origin, &moved, pack(1), &WANTED[..1]);
        assert_eq!(found, [None]);
        assert_eq!(error.unwrap().kind(), acstor_types::ErrorKind::Corrupt);
    }

    #[test]
    fn test_list_that_takes_the_place_of_another_counts_as_it_is() {
        let (mut origin, moved) = (compacted(), MovedPacks::new(RUN_BYTES_MAX));
        assert_eq!(read_chunks(&origin, &moved, pack(1), &WANTED[..1]).0, [Some(10)]);
        let places: Vec<_> = (1..=1024).map(|at| (at * 4096, 0, 4096)).collect();
        origin.move_pack(pack(1), &[pack(2)], &places);
        // The list that is kept does not have this chunk, so that it is read again.
        assert_eq!(read_chunks(&origin, &moved, pack(1), &[(10, 40_960)]).0, [Some(10)]);
        let kept = moved.kept.lock();
        let bytes: usize = kept.packs.values().map(|(moved, _)| moved.memory_bytes()).sum();
        assert_eq!(kept.bytes, bytes);
    }

    #[test]
    fn test_kept_lists_are_bounded() {
        let (mut origin, moved) = (Origin::default(), MovedPacks::new(RUN_BYTES_MAX));
        // Each takes some 25 KB: what is kept is less than all of them.
        let count = 2 * MOVED_PACKS_BYTES_MAX / (25 << 10);
        origin.put(pack(0), &[10]);
        let places: Vec<_> = (1..=1024).map(|at| (at * 4096, 0, 4096)).collect();
        for number in 0..count as u32 {
            let id = PackId(Digest::of(&number.to_le_bytes()));
            origin.move_pack(id, &[pack(0)], &places);
            assert_eq!(read_chunks(&origin, &moved, id, &WANTED[..1]).0, [Some(10)]);
        }
        let kept = moved.kept.lock();
        let bytes: usize = kept.packs.values().map(|(moved, _)| moved.memory_bytes()).sum();
        assert_eq!(kept.bytes, bytes);
        assert!(bytes <= MOVED_PACKS_BYTES_MAX && kept.packs.len() < count);
    }
}
