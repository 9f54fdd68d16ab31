//! The local log of a volume: its records, and the upkeep that keeps them short.

use std::sync::atomic::Ordering;
use std::time::Instant;

use acstor_types::DiskId;
use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::OverlayError;
use crate::segments::disk::LogDisk;
use crate::segments::extent_map::Extent;
use crate::segments::head::Head;
use crate::segments::map_state::MapState;
use crate::segments::reclaim::Reclaimer;
use crate::segments::record_log::{AppendError, RecordLog};
use crate::segments::segment_files::SegmentFiles;
use crate::segments::upkeep::Upkeep;

/// A local log that is open.
#[derive(Debug)]
pub(crate) struct LocalLog {
    pub(crate) records: RecordLog,
    pub(crate) upkeep: Upkeep,
}

impl LocalLog {
    pub(crate) fn new(files: SegmentFiles, head: Head, map: MapState) -> LocalLog {
        let last = head.next_sequence - 1;
        LocalLog { records: RecordLog::new(files, head, map), upkeep: Upkeep::new(last) }
    }

    /// The log's own number.
    pub(crate) fn id(&self) -> [u8; 16] {
        self.records.files.log_id
    }

    pub(crate) fn disk(&self) -> &dyn LogDisk {
        &*self.records.files.disk
    }

    /// The end of the log; nothing is appended while it is held.
    #[inline]
    pub(crate) fn head(&self) -> MutexGuard<'_, Head> {
        self.records.head()
    }

    #[inline]
    pub(crate) fn map(&self) -> RwLockReadGuard<'_, MapState> {
        self.records.map()
    }

    #[inline]
    pub(crate) fn map_mut(&self) -> RwLockWriteGuard<'_, MapState> {
        self.records.map_mut()
    }

    /// Appends a write; returns the sequence number of its last record.
    #[inline]
    pub(crate) fn write(&self, first_sector: u64, data: &[u8]) -> Result<u64, AppendError> {
        self.records.write(first_sector, data)
    }

    /// Appends that a range reads as zeros; returns the sequence number of the record.
    pub(crate) fn zero(&self, first_sector: u64, sectors: u64) -> Result<u64, AppendError> {
        self.records.zero(first_sector, sectors)
    }

    /// Appends content that the origin has already.
    pub(crate) fn restore(&self, first_sector: u64, data: &[u8]) -> Result<(), AppendError> {
        self.records.restore(first_sector, data)
    }

    /// Appends zeros that the origin has already.
    pub(crate) fn restore_zeroes(&self, first: u64, sectors: u64) -> Result<(), AppendError> {
        self.records.restore_zeroes(first, sectors)
    }

    /// Puts content that the origin has over a damaged extent, where the map still refers to that;
    /// returns how many sectors that were.
    pub(crate) fn put_back(&self, damaged: &Extent, content: &[u8]) -> Result<u64, AppendError> {
        Reclaimer(&self.records).put_back(damaged, content)
    }

    /// Makes every record up to `sequence` durable, together with whatever else there is.
    pub(crate) fn sync(&self, sequence: u64) -> Result<(), AppendError> {
        self.records.sync(sequence)
    }

    /// Last sequence number that was appended.
    #[inline]
    pub(crate) fn appended(&self) -> u64 {
        self.records.appended()
    }

    /// Last sequence number that is durable here.
    #[inline]
    pub(crate) fn synced(&self) -> u64 {
        self.records.synced()
    }

    /// Returns whether a sync failed: the log must be opened anew.
    pub(crate) fn is_failed(&self) -> bool {
        self.records.is_failed()
    }

    /// Bytes of the segments, those that are kept for reuse included, and bytes that are alive.
    pub(crate) fn usage(&self) -> (u64, u64) {
        self.records.usage()
    }

    /// Lets the log become as long as `quota_bytes`, where it might not.
    pub(crate) fn raise_quota(&self, quota_bytes: u64) {
        self.records.files.quota.raise(quota_bytes);
    }

    /// Returns whether something happened for which [`LocalLog::keep`] is worth calling.
    #[inline]
    pub(crate) fn wants_keep(&self) -> bool {
        self.records.wants_keep.load(Ordering::Acquire)
    }

    /// As [`LocalLog::wants_keep`], once.
    pub(crate) fn take_wants_keep(&self) -> bool {
        self.records.wants_keep.swap(false, Ordering::AcqRel)
    }

    /// Does what keeps the log short: a spare segment, a checkpoint when `checkpoint_bytes` were
    /// appended since the last, reclaiming when a large part of the log is dead.
    pub(crate) fn keep(
        &self,
        volume: DiskId,
        epoch: u32,
        checkpoint_bytes: u64,
    ) -> Result<(), OverlayError> {
        self.upkeep.keep(&self.records, (volume, epoch), checkpoint_bytes)
    }

    /// Starts writing what is old, writes a checkpoint that is late, and gives dead segments back when
    /// nobody needs them, or somebody else does.
    pub(crate) fn ease(&self, volume: DiskId, epoch: u32) -> Result<(), OverlayError> {
        self.upkeep.ease(&self.records, volume, epoch)
    }

    /// Frees segments for a writer that found no room; false when there is nothing to free.
    pub(crate) fn make_room(&self, volume: DiskId, epoch: u32) -> Result<bool, OverlayError> {
        self.upkeep.make_room(&self.records, volume, epoch)
    }

    /// Frees segments of a log that has no checkpoint yet; there may be no room after it.
    pub(crate) fn make_room_unsaved(&self) -> Result<(), OverlayError> {
        self.upkeep.make_room_unsaved(&self.records)
    }

    /// Writes a checkpoint, then takes out the segments that it makes superfluous.
    pub(crate) fn checkpoint(&self, volume: DiskId, epoch: u32) -> Result<(), OverlayError> {
        self.upkeep.checkpoint(&self.records, volume, epoch)
    }

    /// Returns once the upkeep that is under way has ended.
    pub(crate) fn wait_for_upkeep(&self) {
        self.upkeep.wait();
    }

    /// Notes that the origin has everything up to a sequence number that is to travel.
    pub(crate) fn note_pushed(&self, sequence: u64) {
        self.upkeep.checkpoints.note_pushed(sequence);
    }

    /// Returns whether the origin has what the newest checkpoint calls dirty, and a new one is worth it.
    pub(crate) fn is_push_untold(&self, now: Instant) -> bool {
        self.upkeep.checkpoints.is_push_untold(&self.records, now)
    }

    /// Lets another one have the directory, once nobody frees anything in it; who is to, later, does not.
    pub(crate) fn close(&self) {
        self.upkeep.close(&self.records);
    }

    /// Dead segments that are kept.
    #[cfg(test)]
    pub(crate) fn pool(&self) -> &crate::segments::segment_files::Pool {
        &self.records.files.pool
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use acstor_testkit::Fault;
    use acstor_types::DiskId;

    use super::*;
    use crate::regions::RegionMap;
    use crate::regions::durability::Durability;
    use crate::scenarios::extent_reading::read_extent;
    use crate::scenarios::memory_disk::MemoryDisk;
    use crate::segments::quota::LogConfig;
    use crate::segments::record::SECTOR;
    use crate::segments::recovery::{create_log, open_log};

    const CONFIG: LogConfig =
        LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    const VOLUME: DiskId = DiskId::from_bytes([3; 16]);

    fn regions() -> Arc<RegionMap> {
        Arc::new(RegionMap::new(&Durability::default(), &[]))
    }

    fn new_log(disk: &MemoryDisk) -> LocalLog {
        let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        log
    }

    /// Opens what a power failure leaves that keeps exactly what was synced.
    fn reopen(disk: &MemoryDisk) -> LocalLog {
        let disk: Arc<dyn LogDisk> = Arc::new(disk.after_kill());
        open_log(&disk, CONFIG, regions()).unwrap().unwrap().log
    }

    fn sector(log: &LocalLog, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR as usize];
        let map = log.map();
        if let Some(extent) = map.extents.range(at, at + 1).next() {
            read_extent(&map.segments, &extent, &mut bytes).unwrap();
        }
        bytes
    }

    /// Content whose second half is zeros: half of it written is all of it.
    fn half(sectors: usize) -> Vec<u8> {
        let mut data = vec![0; sectors * SECTOR as usize];
        data[..512].fill(0xee);
        data
    }

    #[test]
    fn append_after_a_torn_one_takes_its_place() {
        for fault in [Fault::EIO, Fault::ENOSPC, Fault::Torn(5), Fault::Torn(28)] {
            let disk = MemoryDisk::new(64 << 20);
            let log = new_log(&disk);
            log.write(0, &[1; 512]).unwrap();
            disk.faults.fail_nth("write", 1, fault);
            assert!(matches!(log.write(8, &half(16)), Err(AppendError::Io(_))));
            assert_eq!(sector(&log, 8), [0; 512], "a write that failed is not in the map");
            let last = log.write(1, &[2; 512]).unwrap();
            assert_eq!(log.write(2, &[3; 512]).unwrap(), last + 1, "numbers have no gap");
            log.sync(log.appended()).unwrap();
            let log = reopen(&disk);
            for at in 0..3 {
                assert_eq!(sector(&log, at), [at as u8 + 1; 512], "{fault:?}");
            }
            assert_eq!(sector(&log, 8), [0; 512]);
        }
    }

    #[test]
    fn torn_record_that_is_whole_hides_nothing_of_the_next_segment() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        while log.head().offset < 48 << 10 {
            log.write(0, &[1; 4096]).unwrap();
        }
        disk.faults.fail_nth("write", 1, Fault::Torn(5));
        assert!(log.write(100, &half(8)).is_err());
        // Too long for what is left of the segment.
        let before = log.head().segment.number;
        log.write(0, &[2; 16 << 10]).unwrap();
        assert_eq!(log.head().segment.number, before + 1);
        log.sync(log.appended()).unwrap();
        let log = reopen(&disk);
        assert_eq!(sector(&log, 0), [2; 512], "what was synced is there");
        assert_eq!(sector(&log, 100), [0; 512]);
    }

    #[test]
    fn segment_with_a_torn_record_that_cannot_be_cleared_stays_the_head() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        while log.head().offset < 48 << 10 {
            log.write(0, &[1; 4096]).unwrap();
        }
        let before = log.head().segment.number;
        disk.faults.fail_always("write", Fault::Torn(5));
        assert!(log.write(100, &half(8)).is_err());
        assert!(log.write(0, &[2; 16 << 10]).is_err());
        assert_eq!(log.head().segment.number, before);
        disk.faults.disarm();
        log.write(0, &[2; 16 << 10]).unwrap();
        log.sync(log.appended()).unwrap();
        assert_eq!(sector(&reopen(&disk), 0), [2; 512]);
    }

    #[test]
    fn dirty_data_that_was_copied_is_dirty_after_a_restart() {
        let disk = MemoryDisk::new(64 << 20);
        let log = new_log(&disk);
        let place = |log: &LocalLog| log.map().extents.range(500, 501).next().unwrap().place;
        // A little of each segment lives on.
        let mut first = None;
        for round in 0..48_u64 {
            log.write(500 + round / 4, &[9; 512]).unwrap();
            log.write(0, &[round as u8; 8192]).unwrap();
            first = first.or_else(|| (round == 3).then(|| place(&log)));
        }
        log.keep(VOLUME, 1, 16 << 10).unwrap();
        assert_ne!(Some(place(&log)), first, "it was copied");
        log.sync(log.appended()).unwrap();
        let log = reopen(&disk);
        assert_eq!(sector(&log, 500), [9; 512]);
        let dirty: Vec<_> = log.map().all_dirty().iter().collect();
        assert_eq!(dirty, [(0, 16), (500, 512)]);
    }
}
