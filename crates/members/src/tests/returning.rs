//! Members that fail and come back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use acstor_readpath::OriginError;

use super::faulty::{FaultMode, GENERATION, Refused, World, content};

/// Fails a member until its breaker is open.
fn open(world: &World, position: usize) {
    world.stores[position].set(FaultMode::Fails);
    while world.source.member(position).metrics.is_up() {
        assert_eq!(world.read(), Ok(content()));
    }
}

#[test]
fn test_member_that_is_back_is_found_by_reads_that_others_answer() {
    let world = World::new(2, |_| {});
    open(&world, 0);
    world.stores[0].set(FaultMode::Sound);
    while !world.source.member(0).metrics.is_up() {
        assert_eq!(world.read(), Ok(content()));
        thread::yield_now();
    }
}

#[test]
fn test_member_that_comes_back_as_an_older_state_of_itself_is_not_read() {
    let world = World::new(2, |_| {});
    open(&world, 0);
    *world.stores[0].generation.lock() = Ok(GENERATION - 1);
    world.stores[0].set(FaultMode::Missing);
    world.stores[1].set(FaultMode::Missing);
    for _ in 0..1000 {
        let refused = world.read().unwrap_err();
        assert!(
            matches!(&refused, Refused::Error(OriginError::Undecided { .. })),
            "it may have had the pack: {refused:?}"
        );
    }
}

#[test]
fn test_calls_of_a_member_that_is_down_are_few_whatever_is_read() {
    let world = World::new(2, |_| {});
    open(&world, 0);
    let before = world.stores[0].asked();
    let started = std::time::Instant::now();
    for _ in 0..2000 {
        assert_eq!(world.read(), Ok(content()));
    }
    // A trial per back-off, of which jitter takes half.
    let shortest = acstor_selection::limits::ORIGIN_OPEN_MIN.as_secs_f64() / 2.0;
    let most = 1.0 + started.elapsed().as_secs_f64() / shortest;
    assert!((world.stores[0].asked() - before) as f64 <= most);
}

#[test]
fn test_readers_side_by_side_get_the_bytes_whatever_one_member_does() {
    let world = World::new(3, |settings| settings.calls_max = 8);
    let is_over = AtomicBool::new(false);
    let faults = [
        FaultMode::Sound,
        FaultMode::Lies,
        FaultMode::Fails,
        FaultMode::Missing,
        FaultMode::Panics,
    ];
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(world.read(), Ok(content()));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for turn in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                world.stores[0].set(faults[turn % faults.len()]);
                thread::yield_now();
            }
        });
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(outcomes.iter().all(Result::is_ok));
    });
}
