//! Pushes after a restart: dirty content of a process that opens a log again.

use crate::Opening;
use crate::compaction::compact;
use crate::push::origin_log::log_prefix;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::push_fault_tests::{FIRST, Host, PLACES, VOLUME, open, opening};

impl Host {
    fn dirty_sectors(&self) -> u64 {
        self.core.log.map().dirty_sectors()
    }

    fn objects(&self) -> usize {
        self.origin.keys(&log_prefix(VOLUME, 1)).len()
    }

    /// Does the work of a volume's threads.
    fn push_and_keep(&self) {
        assert_eq!(self.push(), 0);
        compact(&self.core);
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

/// Content that is written and pushed between two kills is pushed once more, and nothing else is.
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

/// Content that the origin lacks, since it cannot be read here, stays to be pushed.
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
        assert!(host.core.log.map().dirty_run(PLACES[1] / 512, PLACES[2] / 512).1);
    }
}

/// Content that was to stay here and is to travel now is on no origin, whatever the checkpoint
/// before said of it.
#[test]
fn content_whose_class_has_changed_is_dirty_after_a_kill() {
    let Host { runtime, disk, origin, .. } =
        Host { disk: MemoryDisk::new(64 << 20), ..Host::new() };
    let travels = || opening(1, FIRST, Vec::new());
    let stays = Durability { default: DurabilityClass::None, ..Durability::default() };
    let core = open(&runtime, &disk, &origin, Opening { durability: stays, ..travels() });
    core.log.write(0, &[7; 512]).unwrap();
    core.log.checkpoint(VOLUME, 1).unwrap();
    core.apply_regions(&travels().durability, &[], core.regions.table_writes());
    assert_eq!(core.log.map().dirty_sectors(), 1);
    drop(core);
    let core = open(&runtime, &disk.after_kill(), &origin, travels());
    assert_eq!(core.log.map().dirty_sectors(), 1, "the origin would never get it");
    core.push_all().unwrap();
    let host = Host { runtime, disk, origin, core };
    assert_eq!(host.elsewhere(&[0]), [7]);
}
