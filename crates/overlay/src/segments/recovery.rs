//! Opening a local log: the checkpoint, then every record after it up to the first that is torn.
//!
//! Everything that was synced is there, and what is there is a prefix of what was written; what of it
//! has rotted since is an error to who reads it (`scan.rs`). A log that cannot be opened stays as it
//! is. Nothing is ever appended after a record that may be torn: the head is a new segment, and segments with
//! records after a gap are removed. The scan reads what the disk has, not what memory has of it.

use std::sync::Arc;
use std::time::Instant;

use acstor_types::DiskId;
use hashbrown::HashSet;

use crate::OverlayError;
use crate::error::GIVE_UP;
use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::segments::checkpoint::{Checkpoint, read_checkpoint};
use crate::segments::disk::{LogDisk, LogFile};
use crate::segments::extent_map::{Extent, Place};
use crate::segments::head::Head;
use crate::segments::map_state::MapState;
use crate::segments::quota::LogConfig;
use crate::segments::record::{
    HEADER_LEN, HeaderError, OVERLAY_LOG_VERSION, RECORDS_OFFSET, RecordHeader, SegmentHeader,
};
use crate::segments::record_index::{Window, visit_headers};
use crate::segments::scan::{Headless, Scanned, salt_of, scan};
use crate::segments::segment::Segment;
use crate::segments::segment_files::{Pool, SegmentFiles, keep_some};

/// A log that was found, and whose it is.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub log: LocalLog,
    pub volume: DiskId,
    pub epoch: u32,
}

/// Opens the log in `disk`, or returns `None` when there is none (yet).
pub(crate) fn open_log(
    disk: &Arc<dyn LogDisk>,
    config: LogConfig,
    regions: Arc<RegionMap>,
) -> Result<Option<Recovered>, OverlayError> {
    let Some(checkpoint) = find_checkpoint(&**disk)? else { return Ok(None) };
    let header = checkpoint.header;
    let mut map = MapState::new(regions);
    let Found { segments, strays, headless } = open_segments(&**disk, header.log_id)?;
    let next_number = segments.iter().map(|segment| segment.number + 1).max().unwrap_or(0);
    let (segments, dead) = without_dead(segments, &checkpoint);
    // A process that was killed may have renamed the checkpoint and no more: the one before, which
    // a power failure could bring back, may need them.
    disk.sync().map_err(|e| OverlayError::io("sync the directory of the local log", e))?;
    map.segments = segments.iter().map(|s| (s.number, Arc::clone(s))).collect();
    for extent in &checkpoint.extents {
        check_place(&map, extent)?;
        map.apply(extent);
    }
    for (start, end) in checkpoint.dirty {
        map.mark_dirty(start, end, Instant::now);
    }
    if !map.segments.contains_key(&header.segment) {
        return Err(missing(header.segment));
    }
    let first = segments.partition_point(|segment| segment.number < header.segment);
    let (_, scanned) = segments.split_at(first);
    for segment in scanned {
        // A checkpoint will refer to what the scan sees, so it must see the disk: memory may have
        // what the process before could not write, and count it as written.
        let sync = segment.file.sync_and_forget();
        sync.map_err(|e| {
            OverlayError::io(format!("sync {}", Segment::file_name(segment.number)), e)
        })?;
    }
    let visit = |record: &RecordHeader, place| {
        let (start, end) = (record.first_sector, record.end_sector());
        map.apply(&Extent { start, end, place });
        if !record.is_copy {
            map.mark_dirty(start, end, Instant::now);
        }
    };
    let Scanned { next_sequence, rotten } =
        scan(scanned, &headless, header.offset, header.next_sequence, visit)?;
    tell_of_rotten(&map, header.volume, &rotten);
    for name in strays {
        disk.remove(&name).map_err(|e| OverlayError::io(format!("remove {name}"), e))?;
    }
    let pool = keep_some(&**disk, &config, dead)?;
    segments.iter().for_each(|segment| segment.file.read_no_more());
    tracing::info!(
        volume = %header.volume,
        extents = map.extents.len(),
        replayed = next_sequence - header.next_sequence,
        "local log open"
    );
    let next_number = next_number.max(header.segment);
    let log = start(disk, config, header.log_id, map, pool, next_number, next_sequence)?;
    log.checkpoint(header.volume, header.epoch)?;
    Ok(Some(Recovered { log, volume: header.volume, epoch: header.epoch }))
}

/// Reads the checkpoint, or returns `None` where there is no log yet. Who creates one fills it with what
/// the origin has, then gives it its checkpoint, and only then is anybody served: a log without one
/// that somebody has written to has lost it.
pub(crate) fn find_checkpoint(disk: &dyn LogDisk) -> Result<Option<Checkpoint>, OverlayError> {
    let found = read_checkpoint(disk)?;
    if found.is_none() {
        let names = disk.list().map_err(|e| OverlayError::io("list the local log", e))?;
        for name in names.iter().filter(|name| Segment::number_of(name).is_some()) {
            if has_writes(disk, name)? {
                return Err(lost_checkpoint(name));
            }
        }
    }
    Ok(found)
}

/// Returns whether a segment has a record that is no copy of what the origin has.
fn has_writes(disk: &dyn LogDisk, name: &str) -> Result<bool, OverlayError> {
    let io = |error| OverlayError::io(format!("read {name} of the local log"), error);
    let file = disk.open(name).map_err(io)?;
    let (salt, size_bytes) = match read_header(&*file).map_err(io)? {
        Ok(header) => (Some(header.salt), header.size_bytes),
        Err(HeaderError::Corrupt) => (salt_of(&*file), file.size_bytes().map_err(io)?),
        Err(HeaderError::Version(found)) => {
            let (path, supported) = (name.to_owned(), OVERLAY_LOG_VERSION);
            return Err(OverlayError::Version { path, found, supported });
        }
    };
    let Some(salt) = salt else { return Ok(false) };
    let (mut is_written, mut unread) = (false, None);
    let mut window = Window::new(&*file, size_bytes);
    visit_headers(&mut window, salt, RECORDS_OFFSET, size_bytes, |_, found| match found {
        Ok(record) => is_written |= !record.is_copy,
        Err(page) => unread = Some(page.error),
    });
    // What cannot be read may be one.
    unread.filter(|_| !is_written).map_or(Ok(is_written), |error| Err(io(error)))
}

/// Creates an empty log in `disk`, removing whatever is there. It is found again only once it has
/// a checkpoint.
pub(crate) fn create_log(
    disk: &Arc<dyn LogDisk>,
    config: LogConfig,
    regions: Arc<RegionMap>,
) -> Result<LocalLog, OverlayError> {
    let io = |error| OverlayError::io("empty the directory of the local log", error);
    let mut names = disk.list().map_err(io)?;
    // The checkpoint first: without it the rest is nothing.
    names.sort();
    for name in names {
        disk.remove(&name).map_err(io)?;
    }
    disk.sync().map_err(io)?;
    start(disk, config, rand::random(), MapState::new(regions), Pool::new(Vec::new()), 0, 1)
}

fn start(
    disk: &Arc<dyn LogDisk>,
    config: LogConfig,
    log_id: [u8; 16],
    mut map: MapState,
    pool: Pool,
    number: u32,
    next_sequence: u64,
) -> Result<LocalLog, OverlayError> {
    let files = SegmentFiles::new(Arc::clone(disk), log_id, config, pool);
    let segment = files
        .create(number)
        .map_err(|error| OverlayError::io("create a segment of the local log", error))?;
    map.segments.insert(number, Arc::clone(&segment));
    let head = Head::new(segment, next_sequence);
    Ok(LocalLog::new(files, head, map))
}

/// The files of a log.
#[derive(Default)]
struct Found {
    /// In the order of their numbers.
    segments: Vec<Arc<Segment>>,
    /// Names of files that are no segments: left by a crash while they were created, or by an earlier
    /// log.
    strays: Vec<String>,
    /// Those of them that may be segments all the same.
    headless: Vec<Headless>,
}

fn open_segments(disk: &dyn LogDisk, log_id: [u8; 16]) -> Result<Found, OverlayError> {
    let names = disk.list().map_err(|e| OverlayError::io("list the local log", e))?;
    let mut found = Found::default();
    for name in names {
        let Some(number) = Segment::number_of(&name) else { continue };
        let io = |error| OverlayError::io(format!("open {name}"), error);
        let file = disk.open(&name).map_err(io)?;
        match read_header(&*file).map_err(io)? {
            Ok(header) if header.number == number && header.log_id == log_id => {
                let size = header.size_bytes;
                found.segments.push(Arc::new(Segment::new(number, header.salt, file, size)));
            }
            Err(HeaderError::Version(found)) => {
                let supported = OVERLAY_LOG_VERSION;
                return Err(OverlayError::Version { path: name, found, supported });
            }
            Ok(_) => found.strays.push(name),
            Err(HeaderError::Corrupt) => {
                let size_bytes = file.size_bytes().map_err(io)?;
                found.headless.push(Headless { number, file, size_bytes });
                found.strays.push(name);
            }
        }
    }
    found.segments.sort_unstable_by_key(|segment| segment.number);
    Ok(found)
}

/// Says what was flushed, has rotted, and was not written over since; from now on it counts as damaged.
fn tell_of_rotten(map: &MapState, volume: DiskId, rotten: &[Extent]) {
    let alive = rotten.iter().filter(|extent| !map.unchanged(extent).is_empty());
    let (mut first, mut records, mut bytes) = (None, 0, 0);
    for extent in alive {
        let Place::Log { segment, offset } = extent.place else { continue };
        (records, bytes) = (records + 1, bytes + extent.bytes());
        first.get_or_insert((segment, offset));
        if let Some(segment) = map.segments.get(&segment) {
            // The segment notes what it finds.
            drop(segment.read_record(offset));
        }
    }
    if let Some((segment, offset)) = first {
        let segment = Segment::file_name(segment);
        tracing::error!(%volume, segment, offset, records, bytes,
            "content that was flushed is damaged in the local log, from this byte on: reads of it \
             fail until it is overwritten; check the disk");
    }
}

/// Splits off the segments that the checkpoint does not need, in the order of their numbers.
fn without_dead(
    segments: Vec<Arc<Segment>>,
    checkpoint: &Checkpoint,
) -> (Vec<Arc<Segment>>, Vec<Arc<Segment>>) {
    let needed: HashSet<u32> = checkpoint
        .extents
        .iter()
        .filter_map(|extent| match extent.place {
            Place::Log { segment, .. } => Some(segment),
            Place::Zero => None,
        })
        .collect();
    let first = checkpoint.header.segment;
    segments.into_iter().partition(|s| s.number >= first || needed.contains(&s.number))
}

fn read_header(file: &dyn LogFile) -> std::io::Result<Result<SegmentHeader, HeaderError>> {
    let size = file.size_bytes()?;
    if size < RECORDS_OFFSET {
        return Ok(Err(HeaderError::Corrupt));
    }
    let mut bytes = [0; HEADER_LEN];
    file.read_exact_at(&mut bytes, 0)?;
    let header = SegmentHeader::parse(&bytes);
    Ok(header.and_then(|h| if h.size_bytes <= size { Ok(h) } else { Err(HeaderError::Corrupt) }))
}

fn check_place(map: &MapState, extent: &Extent) -> Result<(), OverlayError> {
    let Place::Log { segment, offset } = extent.place else { return Ok(()) };
    let is_inside = |segment: &Arc<Segment>| {
        extent.bytes() <= segment.size_bytes
            && offset >= RECORDS_OFFSET
            && offset <= segment.size_bytes - extent.bytes()
    };
    if map.segments.get(&segment).is_some_and(is_inside) {
        return Ok(());
    }
    Err(missing(segment))
}

fn missing(segment: u32) -> OverlayError {
    OverlayError::Corrupt(format!(
        "{name} of the local log is missing or damaged: restore it, or {GIVE_UP}",
        name = Segment::file_name(segment)
    ))
}

fn lost_checkpoint(segment: &str) -> OverlayError {
    OverlayError::Corrupt(format!(
        "the checkpoint of the local log is missing, and {segment} has what was written; nothing was \
         changed. Restore the checkpoint, or {GIVE_UP}"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::*;
    use crate::regions::durability::Durability;
    use crate::scenarios::extent_reading::read_extent;
    use crate::scenarios::memory_disk::MemoryDisk;
    use crate::segments::record::RecordKind;

    const CONFIG: LogConfig =
        LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    const VOLUME: DiskId = DiskId::from_bytes([4; 16]);
    const WRITES: u64 = 8;

    fn regions() -> Arc<RegionMap> {
        Arc::new(RegionMap::new(&Durability::default(), &[]))
    }

    /// A log of [`WRITES`] records of a sector each; returns its first segment, too.
    fn sample(disk: &Arc<dyn LogDisk>) -> Arc<Segment> {
        let log = create_log(disk, CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        for number in 0..WRITES {
            log.write(number, &[number as u8 + 1; 512]).unwrap();
        }
        log.sync(log.appended()).unwrap();
        Arc::clone(&log.head().segment)
    }

    /// A log without its checkpoint must not be taken, when it is opened, for one that was never
    /// begun.
    #[test]
    fn log_that_lost_its_checkpoint_is_damaged_and_stays() {
        let memory = MemoryDisk::new(64 << 20);
        let disk: Arc<dyn LogDisk> = Arc::new(memory.clone());
        let segment = sample(&disk);
        disk.remove("checkpoint").unwrap();
        let refused = |is_whole: bool| {
            let names = disk.list().unwrap();
            let error = open_log(&disk, CONFIG, regions()).unwrap_err();
            assert!(matches!(error, OverlayError::Corrupt(_)), "{is_whole}: {error}");
            assert_eq!(disk.list().unwrap(), names);
        };
        refused(true);
        // Nor by the header of its segment alone, or by what lies behind a bad record.
        segment.file.write_all_at(&mut [IoSlice::new(&[0; 8])], 0).unwrap();
        refused(false);
        memory.faults.fail_always("read", acstor_testkit::Fault::EIO);
        let error = open_log(&disk, CONFIG, regions()).unwrap_err();
        assert!(matches!(error, OverlayError::Io { .. }), "{error}");
    }

    /// Its process was killed while it brought what the origin has.
    #[test]
    fn log_that_was_being_created_is_no_log() {
        let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        assert!(open_log(&disk, CONFIG, regions()).unwrap().is_none());
        for number in 0..WRITES {
            log.restore(number * 128, &[1; 16 << 10]).unwrap();
        }
        log.restore_zeroes(5000, 8).unwrap();
        log.sync(log.appended()).unwrap();
        assert!(log.map().segments.len() > 1);
        assert!(open_log(&disk, CONFIG, regions()).unwrap().is_none());
        create_log(&disk, CONFIG, regions()).unwrap();
    }

    /// Returns the number of writes; they must be the first ones.
    fn found(log: &LocalLog) -> u64 {
        let map = log.map();
        let mut count = 0;
        for extent in map.extents.range(0, WRITES) {
            for at in extent.start..extent.end {
                let place = extent.place.advance(at - extent.start);
                let mut bytes = [0; 512];
                let one = Extent { start: at, end: at + 1, place };
                read_extent(&map.segments, &one, &mut bytes).unwrap();
                assert_eq!((at, bytes), (count, [at as u8 + 1; 512]));
                count += 1;
            }
        }
        count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Whatever lies in a segment is a record only if its checksums and numbers say so.
        #[test]
        fn any_damage_leaves_a_prefix(
            offset in RECORDS_OFFSET..RECORDS_OFFSET + WRITES * 576,
            bytes in prop::collection::vec(any::<u8>(), 1..200),
        ) {
            let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
            let segment = sample(&disk);
            segment.file.write_all_at(&mut [IoSlice::new(&bytes)], offset).unwrap();
            let log = open_log(&disk, CONFIG, regions()).unwrap().unwrap().log;
            prop_assert!(found(&log) >= (offset - RECORDS_OFFSET) / 576);
        }

        /// A header with good checksums and any other field.
        #[test]
        fn any_record_with_good_checksums_is_safe(
            is_data in any::<bool>(),
            is_copy in any::<bool>(),
            sequence in prop_oneof![Just(WRITES + 1), any::<u64>()],
            first_sector in prop_oneof![1000..2000_u64, any::<u64>()],
            sector_count in prop_oneof![0..300_u64, any::<u64>()],
            is_salted in any::<bool>(),
            payload_crc in any::<u32>(),
        ) {
            let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
            let segment = sample(&disk);
            let kind = if is_data { RecordKind::Data } else { RecordKind::Zeroes };
            let salt = if is_salted { segment.salt } else { 0 };
            let record = RecordHeader {
                kind, is_copy, sequence, first_sector, sector_count, salt, payload_crc, durable: 0,
            };
            let end = RECORDS_OFFSET + WRITES * 576;
            segment.file.write_all_at(&mut [IoSlice::new(&record.encode())], end).unwrap();
            let log = open_log(&disk, CONFIG, regions()).unwrap().unwrap().log;
            prop_assert_eq!(found(&log), WRITES);
        }

        #[test]
        fn any_header_parses_or_not(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN)) {
            let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().unwrap();
            prop_assert_eq!(RecordHeader::parse(bytes), None);
            prop_assert!(SegmentHeader::parse(bytes).is_err());
        }
    }
}
