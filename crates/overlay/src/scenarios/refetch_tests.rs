//! Records of the local log that are lost here, and of which the origin has the content.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use acstor_testkit::Fault;
use acstor_types::ChunkSize;
use bytes::Bytes;

use crate::base::Base;
use crate::core::requests::Change;
use crate::fold::{FoldHow, Folded, fold};
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::scenarios::push_fault_tests::{ASKED, FIRST, Host, PLACES, VOLUME, opening};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::segment::Segment;
use crate::volume::open_core;
use crate::{OriginSink, Piece, SinkError, TryRead, VolumeConfig, log_key};

const ALL: [Option<u8>; PLACES.len()] = [Some(1), Some(2), Some(3), Some(4), Some(5)];

impl Host {
    /// A host that has pushed one record per place.
    fn pushed() -> Host {
        let host = Host::new();
        let waiters = host.write_all();
        host.push();
        assert_eq!(host.outcomes(waiters), [true; PLACES.len()]);
        host
    }

    fn written(&self, offset: u64, byte: u8, len: usize) {
        let waiter = self.write_long(offset, byte, len);
        self.push();
        assert_eq!(self.outcomes(vec![waiter]), [true]);
    }

    fn damage(&self, place: u64) {
        let (segment, offset) = self.place(place);
        self.flip(&segment, offset + 100);
    }

    /// Returns whether a front end is given pieces at first whose reads fail.
    fn meets_damage(&self, place: u64) -> bool {
        let TryRead::Ready(pieces) = self.core.try_read(place, 512).unwrap() else { return false };
        let [Piece::Log(piece)] = &pieces[..] else { return false };
        piece.read_at(0, &mut [0; 512]).is_err()
    }

    fn fold(&self) -> Folded {
        fold(&self.core, &mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap()
    }

    /// Takes a fold as base, as a volume does.
    fn install(&self, folded: &Folded) {
        let base = MemoryBase(Bytes::from(self.origin.disk(&folded.digest)));
        self.core.base.store(Some(Arc::new(Base(Arc::new(base)))));
        self.core.refetch.folded(&folded.until, VOLUME);
        folded.drop_from(&self.core, self.origin.manifest(&folded.digest));
    }

    /// Asserts that the log has all by itself, now and after a restart.
    #[track_caller]
    fn assert_healed(&mut self, expected: [Option<u8>; PLACES.len()]) {
        self.origin.faults.fail_always("get", Fault::EIO);
        assert_eq!(self.read(), expected);
        assert_eq!(self.core.damaged_bytes(), 0);
        self.core.log.sync(self.core.log.appended()).unwrap();
        self.reopen();
        self.origin.faults.fail_always("get", Fault::EIO);
        assert_eq!(self.read(), expected);
        self.origin.faults.disarm();
    }
}

#[test]
fn damaged_record_that_was_pushed_comes_from_the_origin() {
    for (at, is_header) in [(0, false), (511, false), (20, true), (63, true)] {
        for is_reopened in [false, true] {
            let mut host = Host::pushed();
            if is_reopened {
                host.reopen();
            }
            let before = host.place(PLACES[1]);
            let (segment, offset) = &before;
            // The index of a segment that was not opened anew does not need the header.
            host.flip(segment, if is_header { offset - 64 + at } else { offset + at });
            let is_damaged = !is_header || is_reopened;
            assert_eq!(host.meets_damage(PLACES[1]), is_damaged);
            let known = if is_header { 0 } else { 512 };
            assert_eq!(host.core.damaged_bytes(), known, "a record without a header is none");
            assert_eq!(host.read(), ALL, "{at} {is_header} {is_reopened}");
            assert_eq!(host.place(PLACES[1]).1 != before.1, is_damaged, "it was put back");
            assert_eq!(host.core.log.map().dirty_sectors(), 0, "the origin has it");
            if is_damaged {
                host.assert_healed(ALL);
            }
        }
    }
}

#[test]
fn sector_that_cannot_be_read_and_was_pushed_comes_from_the_origin() {
    let mut host = Host::pushed();
    host.written(PLACES[2], 3, 8192);
    let (segment, offset) = host.place(PLACES[2]);
    host.disk.set_broken(&Segment::file_name(segment.number), offset + 4096, true);
    assert_eq!(host.core.read_bytes(PLACES[2], 8192).unwrap(), [3; 8192]);
    host.assert_healed(ALL);
}

/// The parts of a record that are alive and clean are put back at once; content written over it
/// stays.
#[test]
fn newer_writes_inside_a_damaged_record_stay() {
    let mut host = Host::pushed();
    host.written(PLACES[0], 7, 5 * 8192);
    let waiter = host.write_long(PLACES[3], 9, 1024);
    host.damage(PLACES[0]);
    assert_eq!(host.read(), [Some(7), Some(7), Some(7), Some(9), Some(7)]);
    assert_eq!(
        host.core.read_bytes(PLACES[3], 1536).unwrap(),
        [[9; 512], [9; 512], [7; 512]].concat()
    );
    assert_eq!(host.core.damaged_bytes(), 0, "one read has put all of the record back");
    assert_eq!(host.core.log.map().dirty_sectors(), 2, "and what was written is yet to go");
    host.push();
    assert_eq!(host.outcomes(vec![waiter]), [true]);
    host.assert_healed([Some(7), Some(7), Some(7), Some(9), Some(7)]);
    assert_eq!(host.elsewhere(&PLACES), [7, 7, 7, 9, 7]);
}

/// Content that was discarded and written in part before is found, and such as was never pushed as
/// a record of its own.
#[test]
fn zeros_and_older_objects_are_found() {
    let mut host = Host::pushed();
    host.written(PLACES[1], 0, 8192);
    host.written(PLACES[1] + 1024, 6, 512);
    for place in [PLACES[1], PLACES[0], PLACES[4], PLACES[1] + 1024] {
        host.damage(place);
    }
    assert_eq!(host.read(), [Some(1), Some(0), Some(3), Some(4), Some(5)]);
    assert_eq!(host.core.read_bytes(PLACES[1] + 1024, 512).unwrap(), [6; 512]);
    host.assert_healed([Some(1), Some(0), Some(3), Some(4), Some(5)]);
}

/// A read that meets several damaged records is whole at its second attempt, as front ends make it.
#[test]
fn one_more_attempt_is_enough_for_all_damage_of_a_read() {
    let host = Host::pushed();
    PLACES.iter().for_each(|place| host.damage(*place));
    assert!(host.meets_damage(PLACES[1]));
    let len = (PLACES[4] + 512) as usize;
    let pieces = host.runtime.block_on(host.core.read(0, len)).unwrap();
    assert!(pieces.iter().all(|piece| matches!(piece, Piece::Base(_))), "{pieces:?}");
    assert_eq!(host.read(), ALL);
    assert_eq!(host.core.damaged_bytes(), 0);
}

#[test]
fn read_waits_for_an_origin_that_is_away() {
    let host = Host::pushed();
    host.damage(PLACES[1]);
    assert!(host.meets_damage(PLACES[1]));
    host.origin.faults.fail_nth("get", 1, Fault::EIO);
    host.origin.faults.fail_nth("list", 2, Fault::EIO);
    let pieces = host.runtime.block_on(host.core.read(PLACES[1], 512)).unwrap();
    assert!(matches!(&pieces[..], [Piece::Base(_)]), "{pieces:?}");
    assert!(!host.meets_damage(PLACES[1]));
}

/// The origin has older content of it in another object, which is not what was written.
#[test]
fn object_that_is_missing_is_not_replaced_by_an_older_one() {
    let host = Host::pushed();
    let before = host.origin.keys("volume-log/").len() as u64;
    host.written(PLACES[1], 9, 512);
    host.origin.remove(&log_key(VOLUME, 1, FIRST + before));
    host.damage(PLACES[1]);
    assert_eq!(host.read(), [Some(1), None, Some(3), Some(4), Some(5)]);
    let asked = host.origin.faults.calls("get");
    assert_eq!(host.read()[1], None);
    assert_eq!(host.origin.faults.calls("get"), asked, "it is not asked with each read");
    assert_eq!(host.core.damaged_bytes(), 512);
}

/// The origin has what was written there before it was to stay on this host alone.
#[test]
fn what_stays_on_this_host_is_not_looked_for() {
    let host = Host::pushed();
    let region = RegionSpec {
        first: Some(PLACES[1]),
        last: Some(PLACES[1] + 512),
        partition: None,
        class: DurabilityClass::None,
        period_s: None,
    };
    let durability = Durability { regions: vec![region], ..Durability::default() };
    host.core.apply_regions(&durability, &[], 0);
    drop(host.core.write(Change::Data(PLACES[1], Bytes::from(vec![9; 512])), false));
    assert_eq!(host.read()[1], Some(9));
    host.damage(PLACES[1]);
    assert_eq!(host.read(), [Some(1), None, Some(3), Some(4), Some(5)]);
}

/// A fold that was made before something moved leaves it in the log, with no object that has it.
#[test]
fn what_no_object_has_any_more_is_in_the_manifest() {
    let host = Host::pushed();
    let folded = host.fold();
    host.damage(PLACES[1]);
    assert_eq!(host.read(), ALL);
    host.install(&folded);
    for key in host.origin.keys("volume-log/") {
        host.origin.remove(&key);
    }
    assert_eq!(host.core.log.map().extents.len(), 1, "the fold knew it elsewhere");
    host.damage(PLACES[1]);
    assert_eq!(host.read(), ALL);
    host.origin.faults.fail_always("get", Fault::EIO);
    assert!(!host.meets_damage(PLACES[1]));
    host.origin.faults.disarm();
    host.written(PLACES[2], 8, 512);
    host.damage(PLACES[2]);
    host.damage(PLACES[1]);
    assert_eq!(host.read(), [Some(1), Some(2), Some(8), Some(4), Some(5)]);
    host.core.log.sync(host.core.log.appended()).unwrap();
}

/// Content that the origin never got is folded as the origin has it, and stays damaged here.
#[test]
fn damaged_record_that_was_not_pushed_does_not_keep_the_rest_from_being_folded() {
    let host = Host::pushed();
    let waiters = vec![host.write(PLACES[1], 9), host.write(PLACES[2], 8)];
    let (segment, offset) = host.place(PLACES[1]);
    host.flip(&segment, offset + 100);
    for round in 0..2 {
        let folded = host.fold();
        let disk = host.origin.disk(&folded.digest);
        let later = if round == 0 { 3 } else { 8 };
        let found = PLACES.map(|place| disk[place as usize]);
        assert!(found == [1, 2, later, 4, 5] || found == [1, 2, 8, 4, 5], "{found:?}");
        assert_eq!(host.read(), [Some(1), None, Some(8), Some(4), Some(5)]);
        assert_eq!(host.core.damaged_bytes(), 512);
        host.install(&folded);
        assert_eq!(host.read(), [Some(1), None, Some(8), Some(4), Some(5)]);
    }
    assert_eq!(host.outcomes(waiters), [false, true]);
    host.core.push_all().unwrap_err();
    // The disk gives it after all while a fold is made that did not have it.
    let folded = host.fold();
    host.flip(&segment, offset + 100);
    assert!(host.core.log.map_mut().retry_undelivered(std::time::Instant::now()));
    for _ in 0..3 {
        host.core.push_one(ASKED).unwrap();
    }
    assert_eq!(host.core.log.map().dirty_sectors(), 0);
    host.install(&folded);
    assert_eq!(host.read(), [Some(1), Some(9), Some(8), Some(4), Some(5)]);
    host.core.push_all().unwrap();
}

/// Until partitions are known a record may be one that was never to leave: only its own checksum says
/// that what the origin has is the same.
#[test]
fn what_may_be_private_is_compared_or_waits() {
    let host = Host::pushed();
    host.written(PLACES[1], 7, 8192);
    host.written(PLACES[1] + 512, 8, 512);
    let region = RegionSpec {
        first: None,
        last: None,
        partition: Some("scratch".to_owned()),
        class: DurabilityClass::None,
        period_s: None,
    };
    let durability = Durability { regions: vec![region], ..Durability::default() };
    host.core.apply_regions(&durability, &[], 0);
    host.core.partitions_unknown();
    host.damage(PLACES[1]);
    host.damage(PLACES[4]);
    assert_eq!(host.read(), [Some(1), None, Some(3), Some(4), Some(5)]);
    host.core.apply_regions(&durability, &[], host.core.regions.table_writes());
    assert_eq!(host.read(), [Some(1), Some(7), Some(3), Some(4), Some(5)]);
}

type Hook = Arc<OnceLock<Box<dyn Fn(&str) + Send + Sync>>>;

/// An origin before which something happens whenever it is asked.
struct Hooked(MemoryOrigin, Hook);

impl OriginSink for Hooked {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.0.put_if_absent(key, parts)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.happen("get");
        self.0.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.happen("list");
        self.0.list(prefix)
    }
}

impl Hooked {
    fn happen(&self, operation: &str) {
        if let Some(hook) = self.1.get() {
            hook(operation);
        }
    }
}

/// A guest writes what is just being fetched, and it may be pushed at once: the newer content stays, all
/// of it or a part.
#[test]
fn write_beside_the_origin_s_answer_wins() {
    for (at, len) in [(0, 4096), (1024, 512), (0, 512), (3584, 512)] {
        for (operation, is_pushed) in [("get", false), ("list", false), ("list", true)] {
            let hook = Hook::default();
            let host = hooked(&hook);
            host.written(PLACES[1], 2, 4096);
            host.damage(PLACES[1]);
            let (core, is_over) = (Arc::downgrade(&host.core), AtomicBool::new(false));
            drop(hook.set(Box::new(move |asked| {
                let Some(core) = core.upgrade() else { return };
                if asked != operation || is_over.swap(true, Ordering::Relaxed) {
                    return;
                }
                drop(core.write(Change::Data(PLACES[1] + at, Bytes::from(vec![9; len])), false));
                if is_pushed {
                    core.push_one(ASKED).unwrap();
                }
            })));
            let read = host.core.read_bytes(PLACES[1], 4096).unwrap();
            assert!(read.iter().all(|byte| [2, 9].contains(byte)));
            let mut expected = vec![2; 4096];
            expected[at as usize..at as usize + len].fill(9);
            assert_eq!(host.core.read_bytes(PLACES[1], 4096).unwrap(), expected, "{at} {len}");
            let dirty = host.core.log.map().dirty_sectors();
            let written = if is_pushed { 0 } else { len as u64 / 512 };
            assert_eq!(dirty, written, "the write, and not what was put back");
            assert_eq!(host.core.damaged_bytes(), 0);
            host.push();
            assert_eq!(host.elsewhere(&[PLACES[1], PLACES[1] + at]), [expected[0], 9]);
        }
    }
}

fn hooked(hook: &Hook) -> Host {
    let mut host = Host::new();
    let config = VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 4 << 20,
        reserve_bytes: 0,
        segment_bytes: 64 << 10,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    host.disk = MemoryDisk::new(64 << 20);
    let disk: Arc<dyn crate::LogDisk> = Arc::new(host.disk.clone());
    let sink = Arc::new(Hooked(host.origin.clone(), Arc::clone(hook)));
    let handle = host.runtime.handle().clone();
    let core = open_core(&disk, config, opening(1, FIRST, Vec::new()), None, sink, handle);
    host.core = Arc::new(core.unwrap());
    host
}

/// Nothing is put over an extent that is not where it was.
#[test]
fn nothing_is_put_back_over_a_newer_place() {
    let host = Host::pushed();
    let sector = PLACES[1] / 512;
    let extent = host.core.log.map().extents.range(sector, sector + 1).next().unwrap();
    assert!(matches!(extent.place, Place::Log { .. }));
    host.written(PLACES[1], 9, 512);
    assert_eq!(host.core.log.put_back(&extent, &[2; 512]).unwrap(), 0);
    let elsewhere = Extent { start: sector + 1, end: sector + 2, ..extent };
    assert_eq!(host.core.log.put_back(&elsewhere, &[2; 512]).unwrap(), 0);
    assert_eq!(host.read()[1], Some(9));
}
