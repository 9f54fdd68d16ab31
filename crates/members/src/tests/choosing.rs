//! Every combination of faults.

use acstor_readpath::{OriginError, OriginRange, OriginSource};
use acstor_types::ErrorKind;

use super::faulty::{FaultMode, Refused, World, content, pack};
use crate::member_metrics::Outcome;

const MODES: [FaultMode; 6] = [
    FaultMode::Sound,
    FaultMode::Missing,
    FaultMode::Lies,
    FaultMode::Short,
    FaultMode::Fails,
    FaultMode::Panics,
];

fn kind(refused: &Refused) -> ErrorKind {
    match refused {
        Refused::Error(error) => error.kind(),
        Refused::Corrupt => ErrorKind::Corrupt,
    }
}

/// The kind of the answer, by the words of RFD 38; `None`: the bytes.
fn expected(modes: &[FaultMode]) -> Option<ErrorKind> {
    let has = |wanted: &[FaultMode]| modes.iter().any(|mode| wanted.contains(mode));
    if has(&[FaultMode::Sound]) {
        None
    } else if has(&[FaultMode::Fails, FaultMode::Panics]) {
        Some(ErrorKind::Unavailable)
    } else if has(&[FaultMode::Lies, FaultMode::Short]) {
        Some(ErrorKind::Corrupt)
    } else {
        Some(ErrorKind::NotFound)
    }
}

#[test]
fn test_every_combination_of_faults_of_two_and_three_members() {
    for count in [2, 3] {
        let world = World::new(count, |_| {});
        for combination in 0..MODES.len().pow(count as u32) {
            let mode = |at: usize| MODES[combination / MODES.len().pow(at as u32) % MODES.len()];
            let modes: Vec<_> = (0..count).map(mode).collect();
            // A read of all that are sound first, so that every breaker is closed and forgets.
            world.stores.iter().for_each(|store| store.set(FaultMode::Missing));
            while world.read() != Err(Refused::Error(missing())) {}
            for (store, mode) in world.stores.iter().zip(&modes) {
                store.set(*mode);
            }
            match (world.read(), expected(&modes)) {
                (Ok(bytes), None) => assert_eq!(bytes, content(), "{modes:?}"),
                (Err(refused), Some(wanted)) => {
                    assert_eq!(kind(&refused), wanted, "{modes:?}: {refused:?}");
                }
                (found, wanted) => panic!("{modes:?}: {found:?} in place of {wanted:?}"),
            }
        }
    }
}

fn missing() -> OriginError {
    OriginError::NotFound { pack: pack().0.to_string() }
}

#[test]
fn test_assigned_member_is_asked_first_and_the_next_only_after_it() {
    let world = World::new(3, |_| {});
    for _ in 0..10 {
        assert_eq!(world.read(), Ok(content()));
    }
    assert_eq!(world.stores[0].asked(), 10);
    assert_eq!(world.stores[1].asked() + world.stores[2].asked(), 0);
    world.stores[0].set(FaultMode::Missing);
    assert_eq!(world.read(), Ok(content()));
    assert_eq!(world.source.member(0).metrics.count(Outcome::NotFound), 1);
}

#[test]
fn test_member_that_lies_is_counted_and_no_other() {
    let world = World::new(3, |_| {});
    world.stores[0].set(FaultMode::Lies);
    for _ in 0..3 {
        assert_eq!(world.read(), Ok(content()));
    }
    let lies = [0, 1, 2].map(|at| world.source.member(at).metrics.corrupt_count());
    assert_eq!(lies, [3, 0, 0]);
    assert_eq!(world.stores[0].asked(), 3, "it is not asked again for what it has wrong");
}

#[test]
fn test_run_with_a_short_chunk_says_so_although_a_member_is_away() {
    let world = World::new(2, |_| {});
    world.stores[0].set(FaultMode::Short);
    world.stores[1].set(FaultMode::Fails);
    let mut ranges = [OriginRange::new(0, 10), OriginRange::new(10, 10)];
    let error = world.source.read(&pack(), &mut ranges).unwrap_err();
    assert!(matches!(error, OriginError::ShortRead { .. }), "it is read singly: {error}");
    let error = world.source.read(&pack(), &mut [OriginRange::new(0, 10)]).unwrap_err();
    assert!(matches!(error, OriginError::Undecided { .. }), "{error}");
}

#[test]
fn test_manifests_and_lists_of_moved_chunks_are_looked_for_in_all_members() {
    let world = World::new(3, |_| {});
    world.stores[2].store.put("moved", pack().0, b"moved");
    world.stores[0].set(FaultMode::Fails);
    world.stores[1].set(FaultMode::Missing);
    let mut range = OriginRange::new(3, 40);
    world.source.read_manifest(&pack().0, &mut range).unwrap();
    assert_eq!(range.buffer[..], content()[3..43]);
    let mut buffer = bytes::BytesMut::zeroed(3);
    world.source.read_moved(&pack(), 2, &mut buffer).unwrap();
    assert_eq!(buffer[..], *b"ved");
    world.stores[2].set(FaultMode::Missing);
    let error = world.source.read_moved(&pack(), 2, &mut bytes::BytesMut::zeroed(3)).unwrap_err();
    assert!(matches!(error, OriginError::Undecided { .. }), "{error}");
}
