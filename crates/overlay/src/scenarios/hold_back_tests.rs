//! Writers that are faster than the origin, beside the real push.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::core::Core;
use crate::core::requests::Change;
use crate::push::Wanted;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::volume::open_core;
use crate::{Done, Opening, VolumeConfig};

const MIB: u64 = 1 << 20;
const PERIOD_S: f64 = 60.0;

/// A volume of write-back that may send a MiB a second.
fn open(runtime: &Runtime) -> Arc<Core> {
    let config = VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 1 << 30,
        reserve_bytes: 0,
        segment_bytes: 16 << 20,
        push_rate: Some(MIB),
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let durability = Durability {
        default: DurabilityClass::WriteBack,
        period_s: PERIOD_S,
        ..Durability::default()
    };
    let opening = Opening {
        volume: DiskId::from_bytes([8; 16]),
        epoch: 1,
        next: 1,
        size_bytes: 1 << 30,
        manifest: None,
        logs: Vec::new(),
        durability,
    };
    let disk: Arc<dyn crate::LogDisk> = Arc::new(MemoryDisk::new(2 << 30));
    let origin = Arc::new(MemoryOrigin::default());
    Arc::new(open_core(&disk, config, opening, None, origin, runtime.handle().clone()).unwrap())
}

/// Writes a MiB; returns whether its answer comes later.
fn write(core: &Arc<Core>, number: u64) -> bool {
    let data = Bytes::from(vec![number as u8 + 1; MIB as usize]);
    !matches!(core.write(Change::Data(number * MIB, data), false), Done::Now(Ok(())))
}

/// The speed of the origin is what the volume's own pushes had; who writes more than it takes until
/// the period is over is answered later.
#[test]
fn guest_that_outruns_the_origin_is_held_back() {
    let runtime = Runtime::new().unwrap();
    let core = open(&runtime);
    assert!(!(0..4).any(|number| write(&core, number)), "nothing is known of the origin");
    assert_eq!(core.load.hold_back.rate(), None);
    let asked = Wanted { asked: 1, ..Wanted::default() };
    while core.log.map().dirty_sectors() > 0 {
        core.push_one(asked).unwrap();
    }
    assert_eq!(core.pusher.lock().sent_bytes, 4 * MIB);
    assert!(core.load.hold_back.rate().is_some());

    // A minute of the origin's time is a minute: at most 60 MiB until then.
    let held = (0..64).position(|number| write(&core, number)).expect("somebody is held back");
    assert!(held >= 30, "not for the first half of that: {held}");
    assert!(!core.load.hold_back.per_mib().is_zero());

    // What is there is sent in large objects, without waiting for its share of the time.
    let before = core.pusher.lock().stored_objects;
    let due = Wanted { due: 1, ..Wanted::default() };
    while core.log.map().dirty_sectors() > 0 {
        core.push_one(due).unwrap();
    }
    let objects = core.pusher.lock().stored_objects - before;
    assert!(objects <= held as u64 / 4, "{objects} objects for {held} MiB");
    core.look_at_load();
    assert!(core.load.hold_back.per_mib().is_zero(), "nothing is left to be late");
    assert!(!write(&core, 0));
}

/// All writers are held, and what is being sent does not return: nobody but those who wait can see it.
#[test]
fn writers_are_let_go_when_the_origin_hangs() {
    let runtime = Runtime::new().unwrap();
    let core = open(&runtime);
    let now = Instant::now();
    core.load.hold_back.begin(now);
    core.load.hold_back.end(now + Duration::from_secs(60), Some(MIB));
    core.load.hold_back.converge(Some(now + Duration::from_secs(3600)));
    core.look_at_load();
    let data = Bytes::from(vec![1; MIB as usize]);
    let Done::Applied(held) = core.write(Change::Data(0, data), false) else {
        panic!("a MiB takes two minutes");
    };
    core.load.hold_back.begin(now.checked_sub(Duration::from_secs(11)).unwrap());
    let limited = async { tokio::time::timeout(Duration::from_secs(60), held).await };
    runtime.block_on(limited).expect("it is let go").unwrap();
}
