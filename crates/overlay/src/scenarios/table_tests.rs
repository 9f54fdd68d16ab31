//! A guest writes its partition table while it writes everything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::core::TABLE_PATIENCE;
use crate::push::origin_log::log_key;
use crate::push::replay::read_ranges;
use crate::regions::durability::{Durability, DurabilityClass, RegionSpec};
use crate::regions::gpt::tests::table;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::{BlockDevice, Done, LogDisk, LogRange, Opening, Volume, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([4; 16]);
const SIZE: u64 = 8 << 20;
const FIRST: u64 = 100;
const OLD: u64 = 4096;
const NEW: u64 = 8192;

struct Host {
    origin: MemoryOrigin,
    volume: Arc<Volume>,
    runtime: Runtime,
}

impl Host {
    /// A disk with swap in its old place, which never leaves.
    fn new(default: DurabilityClass, deadline: Duration) -> Host {
        let (runtime, origin) = (Runtime::new().unwrap(), MemoryOrigin::default());
        let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(1 << 30));
        let config = VolumeConfig {
            directory: "unused".into(),
            quota_bytes: 64 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: Some(deadline),
            chunk_size: ChunkSize::DEFAULT,
        };
        let class = DurabilityClass::None;
        let partition = Some("swap".to_owned());
        let region = RegionSpec { first: None, last: None, partition, class, period_s: None };
        let durability =
            Durability { default, period_s: 0.1, regions: vec![region], ..Durability::default() };
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: FIRST,
            size_bytes: SIZE,
            manifest: None,
            logs: Vec::new(),
            durability,
        };
        let (sink, handle) = (Arc::new(origin.clone()), runtime.handle().clone());
        let volume = Volume::open_on(disk, config, opening, None, sink, handle).unwrap();
        let host = Host { origin, volume, runtime };
        host.write(0, table(&[("swap", OLD, OLD + 999)]));
        host.settle();
        host
    }

    fn write(&self, offset: u64, content: Vec<u8>) {
        let done = self.volume.write(offset, Bytes::from(content), false);
        self.runtime.block_on(done.outcome()).unwrap();
    }

    fn settle(&self) {
        while self.volume.core.are_partitions_unknown() {
            std::thread::yield_now();
        }
    }

    fn objects(&self) -> u64 {
        let keys = (FIRST..).map(|slot| log_key(VOLUME, 1, slot));
        keys.take_while(|key| self.origin.object(key).is_some()).count() as u64
    }

    /// Returns whether a sector is anywhere in what the origin has.
    fn has_left(&self, sector: u64) -> bool {
        let last = FIRST + self.objects() - 1;
        let range = LogRange { volume: VOLUME, epoch: 1, first: FIRST, last };
        let mut is_found = false;
        read_ranges(&self.origin, &[range], |record| {
            let (first, end) = (record.offset / 512, (record.offset + record.len) / 512);
            is_found |= (first..end).contains(&sector);
            Ok(())
        })
        .unwrap();
        is_found
    }
}

/// The parts in which a tool writes a table: header and entries, in either order.
fn parts(is_header_first: bool) -> [(u64, Vec<u8>); 2] {
    let moved = table(&[("swap", NEW, NEW + 999)]);
    let header = (512, moved[512..1024].to_vec());
    let entries = (1024, moved[1024..].to_vec());
    if is_header_first { [header, entries] } else { [entries, header] }
}

#[test]
fn nothing_leaves_between_two_parts_of_a_table() {
    for is_header_first in [false, true] {
        while !is_seen_that_nothing_leaves(is_header_first) {}
    }
}

/// False: this thread stood still until the table was waited for no more, and nothing can be told.
fn is_seen_that_nothing_leaves(is_header_first: bool) -> bool {
    let host = Host::new(DurabilityClass::WriteBack, Duration::from_secs(600));
    host.volume.push_now().unwrap();
    let before = host.objects();
    let [first, second] = parts(is_header_first);
    let begun = Instant::now();
    host.write(first.0, first.1);
    host.write(NEW * 512, vec![1; 512]);
    host.write(OLD * 512, vec![2; 512]);
    let (age, period) = (|| host.volume.status().recovery_point_age, Duration::from_millis(100));
    let left = loop {
        let is_old = age().is_some_and(|age| age >= 3 * period);
        let left = host.objects();
        if !host.volume.core.are_partitions_unknown() {
            assert!(begun.elapsed() >= TABLE_PATIENCE, "the table is waited for");
            return false;
        }
        if is_old {
            break left;
        }
        std::thread::yield_now();
    };
    assert_eq!(left, before, "the table is not whole");
    host.write(second.0, second.1);
    host.settle();
    host.volume.push_now().unwrap();
    assert!(!host.has_left(NEW), "it is swap now");
    assert!(host.has_left(OLD), "it is not any more");
    true
}

#[test]
fn write_through_waits_for_the_table() {
    let host = Host::new(DurabilityClass::WriteThrough, Duration::from_secs(600));
    let [first, second] = parts(true);
    // Its own acknowledgement waits, too: who knows what it is in now.
    let header = host.volume.write(first.0, Bytes::from(first.1), false);
    let swap = host.volume.write(NEW * 512, Bytes::from(vec![1; 512]), false);
    assert!(matches!((&header, &swap), (Done::Applied(_), Done::Applied(_))));
    let entries = host.volume.write(second.0, Bytes::from(second.1), false);
    for done in [header, swap, entries] {
        host.runtime.block_on(done.outcome()).unwrap();
    }
    assert!(!host.has_left(NEW) && host.has_left(1));
}

#[test]
fn table_that_stays_away_is_not_waited_for_for_ever() {
    let host = Host::new(DurabilityClass::WriteBack, Duration::from_millis(400));
    let begun = Instant::now();
    host.write(512, vec![0; 512]);
    assert!(host.volume.core.are_partitions_unknown());
    host.settle();
    assert!(begun.elapsed() >= Duration::from_millis(190), "half the deadline of the origin");
    host.write(OLD * 512, vec![2; 512]);
    host.volume.push_now().unwrap();
    assert!(host.has_left(OLD), "a disk without partitions has only the default class");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever is written between the parts of a table, and whichever of it is pushed: what is
    /// swap in the end and was written after the first part never leaves.
    #[test]
    fn swap_stays_whatever_the_order(
        is_header_first in any::<bool>(),
        writes in prop::collection::vec((any::<bool>(), 0..1000_u64, 0..3_u8), 1..20),
    ) {
        let host = Host::new(DurabilityClass::WriteBack, Duration::from_secs(600));
        let [first, second] = parts(is_header_first);
        let begun = Instant::now();
        host.write(first.0, first.1);
        let mut second = Some(second);
        for (index, (is_new, at, what)) in writes.iter().enumerate() {
            let place = if *is_new { NEW } else { OLD } + at;
            host.write(place * 512, vec![index as u8 + 1; 512]);
            if *what == 0 && let Some((offset, content)) = second.take() {
                host.write(offset, content);
            }
        }
        if let Some((offset, content)) = second {
            host.write(offset, content);
        }
        // A thread that stood still for longer than the table is waited for can tell nothing.
        prop_assume!(begun.elapsed() < TABLE_PATIENCE);
        host.volume.push_now().unwrap();
        for (is_new, at, _) in writes {
            let place = if is_new { NEW } else { OLD } + at;
            prop_assert_eq!(host.has_left(place), !is_new, "sector {}", place);
        }
    }
}
