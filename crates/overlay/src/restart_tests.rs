//! What a process that opens a log again has to push.

use crate::origin_log::log_prefix;
use crate::push_fault_tests::{Host, PLACES, VOLUME};
use crate::volume_threads::keep_short;

impl Host {
    fn dirty_sectors(&self) -> u64 {
        self.core.log.map.read().dirty_sectors()
    }

    fn objects(&self) -> usize {
        self.origin.keys(&log_prefix(VOLUME, 1)).len()
    }

    /// What the threads of a volume do.
    fn push_and_keep(&self) {
        assert_eq!(self.push(), 0);
        keep_short(&self.core);
    }
}

/// An owner that is killed every few seconds would fill the origin with what that has.
#[test]
fn what_was_pushed_is_not_pushed_again_after_each_kill() {
    let mut host = Host::new();
    let waiters = host.write_all();
    host.push_and_keep();
    assert_eq!(host.outcomes(waiters), [true; PLACES.len()]);
    host.kill();
    host.push_and_keep();
    let objects = host.objects();
    for round in 0..3 {
        host.kill();
        assert_eq!(host.dirty_sectors(), 0, "after kill {round}");
        host.push_and_keep();
        assert_eq!(host.objects(), objects, "after kill {round}");
    }
}

/// What is written and pushed between two kills is pushed once more, and nothing else is.
#[test]
fn process_that_is_killed_pushes_what_the_one_before_has_written() {
    let mut host = Host::new();
    for (place, byte) in PLACES.into_iter().zip(1..) {
        let waiter = host.write(place, byte);
        host.push_and_keep();
        assert_eq!(host.outcomes(vec![waiter]), [true]);
        host.kill();
        assert_eq!(host.dirty_sectors(), 1, "of {byte} that were written");
        host.push_and_keep();
    }
    assert_eq!(host.read(), (1..=PLACES.len() as u8).map(Some).collect::<Vec<_>>());
    assert_eq!(host.elsewhere(&PLACES), (1..=PLACES.len() as u8).collect::<Vec<_>>());
}

/// What the origin lacks, since it cannot be read here, stays to be pushed.
#[test]
fn what_could_not_be_pushed_is_dirty_after_a_kill() {
    let mut host = Host::new();
    drop(host.write_all());
    host.core.log.checkpoint(VOLUME, 1).unwrap();
    let (segment, offset) = host.place(PLACES[1]);
    host.flip(&segment, offset + 100);
    for _ in 0..2 {
        host.push_and_keep();
        host.kill();
        assert!(host.core.log.map.read().dirty_run(PLACES[1] / 512, PLACES[2] / 512).1);
    }
}
