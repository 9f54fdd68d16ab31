//! Members that hang.

use std::time::Duration;

use acstor_readpath::{OriginError, OriginRange, OriginSource};

use super::faulty::{FaultMode, World, content, pack};
use crate::member_metrics::Outcome;

#[test]
fn test_hung_member_holds_no_call_for_another_and_writes_nothing_late() {
    let world = World::new(2, |settings| {
        (settings.calls_max, settings.hedge_share_percent) = (1, 5);
    });
    world.stores[0].set(FaultMode::Hangs);
    let mut range = OriginRange::new(0, content().len());
    world.source.read(&pack(), std::slice::from_mut(&mut range)).unwrap();
    assert_eq!(range.buffer[..], content()[..]);
    assert_eq!(range.member, 1);
    // Its one thread waits for it; whoever comes now goes to the other at once.
    for _ in 0..5 {
        assert_eq!(world.read(), Ok(content()));
    }
    assert_eq!(world.source.member(0).metrics.count(Outcome::Busy), 5);
    let before = range.buffer.clone();
    world.stores[0].set(FaultMode::Lies);
    while world.source.member(0).metrics.count(Outcome::Ok) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(range.buffer, before, "what comes late is nobody's");
}

#[test]
fn test_read_ends_when_its_time_is_over_and_the_members_are_judged() {
    let world = World::new(2, |settings| settings.deadline = Duration::from_millis(20));
    world.stores.iter().for_each(|store| store.set(FaultMode::Hangs));
    let mut ranges = [OriginRange::new(0, 10)];
    let error = world.source.read(&pack(), &mut ranges).unwrap_err();
    assert!(matches!(&error, OriginError::Unavailable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("a: it did not answer in time"), "{text}");
    // However many readers there are, nobody is judged but by the calls that went out.
    while world.source.member(0).metrics.is_up() {
        let _ = world.source.read(&pack(), &mut [OriginRange::new(0, 10)]);
        let late = world.source.member(0).metrics.count(Outcome::Late);
        assert!(late <= world.stores[0].asked());
    }
}
