//! The durability of a volume in force, and whether it is known which regions that makes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::regions::RegionMap;
use crate::regions::durability::{Durability, DurabilityClass, FlushTarget};
use crate::regions::table_seen::TableSeen;

/// The durability in force, as each request asks for it, and what is known of the partitions that it
/// names. The regions themselves are a part of the log's map.
pub(crate) struct RegionState {
    durability: Mutex<Durability>,
    /// One change of durability or partitions at a time.
    change: Mutex<()>,
    /// Partitions are to be looked up.
    is_due: AtomicBool,
    /// Writes of the table of the partitions that the durability names, and which of these writes
    /// the regions follow: as long as the two differ, nobody knows what lies where, so nothing may
    /// leave.
    table_writes: AtomicU64,
    table_writes_known: AtomicU64,
    pub table: TableSeen,
    has_write_through: AtomicBool,
    has_write_back: AtomicBool,
    flushes_to_origin: AtomicBool,
    has_partitions: AtomicBool,
}

impl RegionState {
    pub(crate) fn new(durability: Durability, regions: &RegionMap) -> RegionState {
        // Before they were looked up nobody knows them.
        let unknown = u64::from(durability.has_partitions());
        let state = RegionState {
            durability: Mutex::new(durability),
            change: Mutex::default(),
            is_due: AtomicBool::new(false),
            table_writes: AtomicU64::new(unknown),
            table_writes_known: AtomicU64::new(0),
            table: TableSeen::default(),
            has_write_through: AtomicBool::new(false),
            has_write_back: AtomicBool::new(false),
            flushes_to_origin: AtomicBool::new(false),
            has_partitions: AtomicBool::new(false),
        };
        state.note(&state.durability.lock(), regions);
        state
    }

    /// Takes a durability over, of which `regions` were made.
    pub(crate) fn set(&self, durability: &Durability, regions: &RegionMap) {
        let mut present = self.durability.lock();
        *present = durability.clone();
        self.note(&present, regions);
    }

    fn note(&self, durability: &Durability, regions: &RegionMap) {
        let has = |class| regions.groups().iter().any(|group| group.class == class);
        self.has_write_through.store(has(DurabilityClass::WriteThrough), Ordering::Release);
        self.has_write_back.store(has(DurabilityClass::WriteBack), Ordering::Release);
        self.flushes_to_origin.store(durability.flush == FlushTarget::Origin, Ordering::Release);
        self.has_partitions.store(durability.has_partitions(), Ordering::Release);
    }

    /// Holds other changes of durability or partitions off.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock()
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability.lock().clone()
    }

    /// Returns whether some of the volume is never to leave this host.
    pub(crate) fn has_none(&self) -> bool {
        self.durability.lock().has_none()
    }

    pub(crate) fn has_write_through(&self) -> bool {
        self.has_write_through.load(Ordering::Acquire)
    }

    pub(crate) fn has_write_back(&self) -> bool {
        self.has_write_back.load(Ordering::Relaxed)
    }

    /// Returns whether a flush is answered once the origin has what it covers.
    pub(crate) fn flushes_to_origin(&self) -> bool {
        self.flushes_to_origin.load(Ordering::Acquire)
    }

    pub(crate) fn has_partitions(&self) -> bool {
        self.has_partitions.load(Ordering::Relaxed)
    }

    /// Notes that partitions are to be read before anything leaves.
    pub(crate) fn table_written(&self) {
        self.table_writes.fetch_add(1, Ordering::AcqRel);
        self.set_due();
    }

    /// Returns the number of writes of the partition table so far.
    pub(crate) fn table_writes(&self) -> u64 {
        self.table_writes.load(Ordering::Acquire)
    }

    /// Notes that the regions follow the table as it was after so many writes.
    pub(crate) fn table_known(&self, writes: u64) {
        self.table_writes_known.store(writes, Ordering::Release);
    }

    pub(crate) fn are_partitions_unknown(&self) -> bool {
        self.table_writes() != self.table_writes_known.load(Ordering::Acquire)
    }

    pub(crate) fn set_due(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Returns whether partitions were to be looked up; they are not any more.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.swap(false, Ordering::AcqRel)
    }
}
