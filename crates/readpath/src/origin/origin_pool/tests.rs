use acstor_types::{ChunkLocation, ChunkSize, DiskId};

use super::*;
use crate::origin::stored_place::StoredPlace;

const LEN: usize = 4096;

/// An origin whose member `liar` gives other bytes; the others have them, or cannot be asked.
struct LyingOrigin {
    liar: u8,
    elsewhere: Result<bool, OriginError>,
    asked_elsewhere: Mutex<Vec<(StoredObject, u8, u64)>>,
}

impl OriginSource for LyingOrigin {
    fn read(&self, _: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        for range in ranges {
            let is_lie = range.offset == 2 * LEN as u64;
            range.buffer.fill(if is_lie { 99 } else { 7 });
            range.member = self.liar;
        }
        Ok(())
    }

    fn read_manifest(&self, _: &Digest, _: &mut OriginRange) -> Result<(), OriginError> {
        Err(OriginError::Overloaded("no manifests here"))
    }

    fn read_elsewhere(
        &self,
        object: &StoredObject,
        range: &mut OriginRange,
        is_sound: &mut dyn FnMut(&mut OriginRange) -> bool,
    ) -> Result<bool, OriginError> {
        self.asked_elsewhere.lock().push((*object, range.member, range.offset));
        assert_eq!(range.buffer.len(), LEN);
        range.buffer.fill(7);
        if self.elsewhere == Ok(true) {
            assert!(is_sound(range));
        }
        self.elsewhere.clone()
    }
}

fn pack() -> PackId {
    PackId(Digest::of(b"pack"))
}

/// Reads three chunks of sevens, of which the second comes wrong.
fn read(elsewhere: Result<bool, OriginError>) -> (LyingOrigin, RunResult) {
    let origin = LyingOrigin { liar: 2, elsewhere, asked_elsewhere: Mutex::default() };
    let part = |number: u32| {
        let location = ChunkLocation { pack: pack(), offset: number * LEN as u32 };
        let place = StoredPlace::plain(location, ChunkSize::new(LEN as u32).unwrap());
        RunPart { digest: Digest::of(&[7; LEN]), place, len: LEN }
    };
    let run = OriginRun {
        pack: pack(),
        parts: vec![part(1), part(2), part(3)],
        lane: Lane::Demand,
        disk: DiskId::from_bytes([0; 16]),
    };
    let result = read_run(&origin, &MovedPacks::new(1 << 20), &run, &mut ChunkDecompressor::new());
    (origin, result)
}

#[test]
fn test_chunk_that_a_member_has_wrong_is_read_elsewhere_and_no_other() {
    let (origin, result) = read(Ok(true));
    let sound = Ok(Bytes::from(vec![7; LEN]));
    assert_eq!(result.answers, [sound.clone(), sound.clone(), sound]);
    let asked = origin.asked_elsewhere.lock();
    assert_eq!(*asked, [(StoredObject::Pack(pack()), 2, 2 * LEN as u64)]);
}

#[test]
fn test_chunk_that_nobody_has_right_is_corrupt_and_takes_no_neighbour() {
    let (_, result) = read(Ok(false));
    assert_eq!(result.answers[1], Err(OriginFailure::Corrupt));
    assert!(result.answers[0].is_ok() && result.answers[2].is_ok());
    assert_eq!(result.error, None, "the origin answers");
}

#[test]
fn test_chunk_that_a_member_that_is_away_may_have_right_is_not_given_up() {
    let cause = "b: it hangs".to_owned();
    let error = OriginError::Undecided { pack: pack().0.to_string(), cause };
    let (_, result) = read(Err(error.clone()));
    assert_eq!(result.answers[1], Err(OriginFailure::Source(error)));
}
