//! Content of the local log that rots on a real disk after it was written: it is given to nobody, whatever
//! has brought it to memory.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use memmap2::{MmapMut, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::core::Core;
use crate::core::requests::Change;
use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::segments::disk::{HostDirectory, LogDisk, LogFile};
use crate::segments::extent_map::Place;
use crate::segments::quota::LogConfig;
use crate::segments::reclaim::Reclaimer;
use crate::segments::recovery::create_log;
use crate::segments::segment::{LogPiece, Segment};
use crate::volume::open_core;
use crate::{Done, Opening, Piece, TryRead, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([8; 16]);
const SIZE: u64 = 8 << 20;
const PAGE: usize = 4096;
/// Records of a page each: with its header, each lies in two.
const RECORDS: u64 = 24;

/// A volume that is kept on this host alone, in a directory.
struct Host {
    runtime: Runtime,
    directory: TempDir,
    core: Arc<Core>,
}

fn open(runtime: &Runtime, directory: &TempDir) -> Arc<Core> {
    let config = VolumeConfig {
        directory: "unused".into(),
        quota_bytes: 16 << 20,
        reserve_bytes: 0,
        segment_bytes: 1 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let durability = Durability { default: DurabilityClass::None, ..Durability::default() };
    let opening = Opening {
        volume: VOLUME,
        epoch: 1,
        next: 1,
        size_bytes: SIZE,
        manifest: None,
        logs: Vec::new(),
        durability,
    };
    let disk: Arc<dyn LogDisk> =
        Arc::new(HostDirectory::open(&directory.path().join("log")).unwrap());
    let sink = Arc::new(MemoryOrigin::default());
    Arc::new(open_core(&disk, config, opening, None, sink, runtime.handle().clone()).unwrap())
}

fn content(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; PAGE]
}

impl Host {
    /// A log that another process finds, of which memory has nothing.
    fn found() -> Host {
        let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let core = open(&runtime, &directory);
        let mut host = Host { runtime, directory, core };
        for number in 0..RECORDS {
            host.write(number, content(number));
        }
        host.core.log.sync(host.core.log.appended()).unwrap();
        host.reopen();
        host
    }

    fn reopen(&mut self) {
        self.core.set_closed();
        self.core.log.checkpoint(VOLUME, 1).unwrap();
        self.core.log.disk().unlock();
        self.core = open(&self.runtime, &self.directory);
        self.evict();
    }

    fn write(&self, number: u64, data: Vec<u8>) {
        let offset = number * PAGE as u64;
        match self.core.write(Change::Data(offset, Bytes::from(data)), false) {
            Done::Now(outcome) => outcome.unwrap(),
            Done::Later(future) | Done::Applied(future) => self.runtime.block_on(future).unwrap(),
        }
    }

    fn place(&self, number: u64) -> (Arc<Segment>, u64) {
        let map = self.core.log.map();
        let sector = number * (PAGE as u64 / 512);
        let extent = map.extents.range(sector, sector + 1).next().unwrap();
        let Place::Log { segment, offset } = extent.place else { panic!("zeros") };
        (Arc::clone(&map.segments[&segment]), offset)
    }

    fn path(&self, segment: &Segment) -> PathBuf {
        self.directory.path().join("log").join(Segment::file_name(segment.number))
    }

    /// Has memory forget what it has of the log and is on the disk.
    fn evict(&self) {
        let segments: Vec<_> = self.core.log.map().segments.values().cloned().collect();
        for segment in segments {
            let file = OpenOptions::new().read(true).open(self.path(&segment)).unwrap();
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }

    /// Turns a bit of a record around on the disk, past memory, which forgets its page.
    fn rot(&self, number: u64, at: u64) {
        let (segment, offset) = self.place(number);
        let page = (offset + at) / PAGE as u64 * PAGE as u64;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let direct = options.open(self.path(&segment)).expect("a disk that can be read directly");
        let mut bytes = MmapMut::map_anon(PAGE).unwrap();
        direct.read_exact_at(&mut bytes, page).unwrap();
        bytes[(offset + at - page) as usize] ^= 1;
        direct.write_all_at(&bytes, page).unwrap();
        fadvise(&direct, page, std::num::NonZeroU64::new(PAGE as u64), Advice::DontNeed).unwrap();
    }

    /// Returns what a client is sent for a record.
    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        let pieces = match self.core.try_read(number * PAGE as u64, PAGE) {
            Ok(TryRead::Ready(pieces)) => pieces,
            Ok(TryRead::WouldWait) => panic!("everything is in the log"),
            Err(error) => return Err(io::Error::other(error)),
        };
        let mut sent = Vec::new();
        for piece in &pieces {
            match piece {
                Piece::Log(piece) if piece.is_at_hand() => sent.extend(mapped(piece)),
                Piece::Log(piece) => {
                    let mut bytes = vec![0; piece.len()];
                    piece.read_at(0, &mut bytes)?;
                    sent.extend(bytes);
                }
                Piece::Base(acstor_readpath::Segment::Bytes(bytes)) => sent.extend(bytes),
                Piece::Base(_) => panic!("everything is in the log"),
            }
        }
        Ok(sent)
    }

    /// Reads a record; whether it was at hand.
    fn is_at_hand(&self, number: u64) -> bool {
        let TryRead::Ready(pieces) = self.core.try_read(number * PAGE as u64, PAGE).unwrap() else {
            return false;
        };
        pieces.iter().all(|piece| matches!(piece, Piece::Log(piece) if piece.is_at_hand()))
    }

    #[track_caller]
    fn assert_only_damaged(&self, damaged: &[u64]) {
        for number in 0..RECORDS {
            match self.read(number) {
                Ok(bytes) => {
                    assert!(!damaged.contains(&number), "record {number} is damaged, and was sent");
                    assert_eq!(bytes, content(number));
                }
                Err(error) => assert!(damaged.contains(&number), "record {number}: {error}"),
            }
        }
    }
}

/// Returns what a socket would take of a mapping.
fn mapped(piece: &LogPiece) -> Vec<u8> {
    let (mut from, to) = io::pipe().unwrap();
    let start = piece.mapped().unwrap();
    // SAFETY: the bytes are valid while the piece lives, and the kernel alone reads them; a page of them
    // fits into a pipe.
    let written = unsafe { libc::write(to.as_raw_fd(), start.cast(), piece.len()) };
    assert_eq!(written, piece.len() as isize);
    let mut bytes = vec![0; piece.len()];
    io::Read::read_exact(&mut from, &mut bytes).unwrap();
    bytes
}

/// The first read of a segment that was found reads all of it for its index.
#[test]
fn record_that_rotted_before_the_first_read_is_given_to_nobody() {
    for at in [0, 100, 4095] {
        let host = Host::found();
        host.rot(7, at);
        assert_eq!(host.read(3).unwrap(), content(3));
        host.assert_only_damaged(&[7]);
        host.assert_only_damaged(&[7]);
    }
}

/// A record shares its first and its last page with its neighbours.
#[test]
fn record_that_rotted_is_not_at_hand_since_its_neighbour_was_read() {
    let host = Host::found();
    host.assert_only_damaged(&[]);
    for number in 0..RECORDS {
        host.evict();
        host.rot(number, 10);
        for near in [number.saturating_sub(1), (number + 1).min(RECORDS - 1)] {
            if near != number {
                assert_eq!(host.read(near).unwrap(), content(near));
            }
        }
        host.read(number).unwrap_err();
        host.rot(number, 10);
        assert_eq!(host.read(number).unwrap(), content(number), "the disk has it again");
    }
}

/// The writer reads the page that it goes on in where memory has lost it.
#[test]
fn last_record_that_rotted_is_not_at_hand_since_another_was_appended() {
    let host = Host::found();
    host.write(0, vec![1; 512]);
    host.evict();
    host.rot(0, 500);
    host.write(1, vec![2; 512]);
    let TryRead::Ready(pieces) = host.core.try_read(0, 512).unwrap() else { panic!() };
    let [Piece::Log(piece)] = &pieces[..] else { panic!("{pieces:?}") };
    assert!(!piece.is_at_hand());
    let error = piece.read_at(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// A hint to read reads what nobody has compared.
#[test]
fn record_that_rotted_is_not_at_hand_since_reading_was_begun() {
    let host = Host::found();
    host.assert_only_damaged(&[]);
    host.evict();
    host.rot(5, 50);
    for number in 4..7 {
        let (segment, offset) = host.place(number);
        LogPiece::new(&segment, offset, PAGE).start_read();
    }
    host.assert_only_damaged(&[5]);
}

/// A file of which memory may differ from the disk, and during whose hints and writes somebody else
/// reads a record, and compares it: what these bring from the disk comes after that.
#[derive(Debug)]
struct SharedFile {
    inner: Arc<dyn LogFile>,
    segment: Mutex<Weak<Segment>>,
    /// Offset of the payload of that record; 0: nobody reads.
    offset: AtomicU64,
    reads: AtomicU64,
    is_wrong_in_memory: AtomicBool,
    is_wrong_on_disk: AtomicBool,
}

impl SharedFile {
    fn read(&self) {
        let segment = self.segment.lock().upgrade();
        let offset = self.offset.load(Ordering::Acquire);
        if let Some(segment) = segment.filter(|_| offset > 0) {
            segment.read_record(offset).unwrap();
            self.reads.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl LogFile for SharedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buffer, offset)?;
        buffer[0] ^= u8::from(self.is_wrong_in_memory.load(Ordering::Acquire));
        Ok(())
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.read_exact_at(buffer, offset).is_ok()
    }

    fn read_past_cache(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buffer, offset)?;
        buffer[0] ^= u8::from(self.is_wrong_on_disk.load(Ordering::Acquire));
        Ok(())
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.read();
        self.inner.write_all_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn sync_and_forget(&self) -> io::Result<()> {
        self.inner.sync_and_forget()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn start_read(&self, offset: u64, len: u64) {
        self.read();
        self.inner.start_read(offset, len);
    }

    fn read_no_more(&self) {
        self.inner.read_no_more();
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.inner.size_bytes()
    }

    fn map(&self, len: usize) -> Option<MmapRaw> {
        self.inner.map(len)
    }
}

/// A log whose head is such a file, with one record; and where its payload is.
fn log_in_shared_file() -> (LocalLog, Arc<SharedFile>, u64) {
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
    let sizes = LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    let regions = Arc::new(RegionMap::new(&Durability::default(), &[]));
    let log = create_log(&disk, sizes, regions).unwrap();
    let file = {
        let mut head = log.head();
        let file = Arc::new(SharedFile {
            inner: Arc::clone(&head.segment.file),
            segment: Mutex::default(),
            offset: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            is_wrong_in_memory: AtomicBool::new(false),
            is_wrong_on_disk: AtomicBool::new(false),
        });
        let before = &head.segment;
        let (number, size) = (before.number, before.size_bytes);
        let segment = Arc::new(Segment::empty(number, before.salt, file.clone(), size));
        *file.segment.lock() = Arc::downgrade(&segment);
        log.map_mut().segments.insert(number, Arc::clone(&segment));
        head.segment = segment;
        file
    };
    log.write(0, &[1; 512]).unwrap();
    let Place::Log { offset, .. } = log.map().extents.range(0, 1).next().unwrap().place else {
        panic!("zeros")
    };
    (log, file, offset)
}

#[test]
fn record_that_is_compared_before_a_hint_reads_it_is_not_known_after_it() {
    let (log, file, offset) = log_in_shared_file();
    let segment = Arc::clone(&log.head().segment);
    assert!(segment.is_known(offset), "what was just written");
    file.offset.store(offset, Ordering::Release);
    LogPiece::new(&segment, offset, 512).start_read();
    assert_eq!(file.reads.load(Ordering::Acquire), 1);
    assert!(!segment.is_known(offset), "the hint may have brought anything");
    segment.read_record(offset).unwrap();
    assert!(segment.is_known(offset), "nothing is under way any more");
}

#[test]
fn record_that_is_compared_before_an_append_reads_its_page_is_not_known_after_it() {
    let (log, file, offset) = log_in_shared_file();
    file.offset.store(offset, Ordering::Release);
    log.write(1, &[2; 512]).unwrap();
    assert_eq!(file.reads.load(Ordering::Acquire), 1);
    let segment = Arc::clone(&log.head().segment);
    assert!(!segment.is_known(offset), "the kernel may have read its page");
    segment.read_record(offset).unwrap();
    assert!(segment.is_known(offset), "nothing is under way any more");
}

/// A record that is wrong in memory may be right on the disk: it is answered, and memory is not
/// sent as it is.
#[test]
fn record_that_memory_has_wrong_is_read_from_the_disk() {
    let (log, file, offset) = log_in_shared_file();
    let segment = Arc::clone(&log.head().segment);
    file.is_wrong_in_memory.store(true, Ordering::Release);
    assert_eq!(segment.read_record(offset).unwrap().1, [1; 512]);
    let mut part = [0; 100];
    segment.read_checked(offset + 200, &mut part).unwrap();
    assert_eq!(part, [1; 100]);
    assert!(!segment.is_known(offset), "it would be sent");
    assert_eq!((segment.bad_bytes(), segment.is_bad(offset)), (0, false));

    file.is_wrong_on_disk.store(true, Ordering::Release);
    let error = segment.read_record(offset).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!((segment.bad_bytes(), segment.is_bad(offset)), (512, true));

    file.is_wrong_on_disk.store(false, Ordering::Release);
    assert_eq!(segment.read_record(offset).unwrap().1, [1; 512]);
    assert_eq!(segment.bad_bytes(), 0, "it counts as damaged no more");
    file.is_wrong_in_memory.store(false, Ordering::Release);
    assert_eq!(segment.read_record(offset).unwrap().1, [1; 512]);
    assert!(segment.is_known(offset));
}

/// A disk whose memory cannot be read past is taken by what memory has.
#[test]
fn record_that_memory_has_wrong_is_damaged_where_the_disk_is_not_asked() {
    let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(64 << 20));
    let sizes = LogConfig { segment_bytes: 64 << 10, quota_bytes: 640 << 10, reserve_bytes: 0 };
    let regions = Arc::new(RegionMap::new(&Durability::default(), &[]));
    let log = create_log(&disk, sizes, regions).unwrap();
    log.write(0, &[1; 512]).unwrap();
    let segment = Arc::clone(&log.head().segment);
    let at = log.head().offset - 512;
    segment.file.write_all_at(&mut [IoSlice::new(&[2])], at).unwrap();
    assert_eq!(segment.read_record(at).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// Reclaiming reads what is alive before it copies it.
#[test]
fn record_that_reclaiming_found_rotten_is_given_to_nobody() {
    let host = Host::found();
    while host.place(0).0.number == host.core.log.head().segment.number {
        host.write(RECORDS + 1, content(0));
    }
    host.core.log.sync(host.core.log.appended()).unwrap();
    host.evict();
    host.rot(9, 1000);
    Reclaimer(&host.core.log.records).one(100).unwrap_err();
    host.assert_only_damaged(&[9]);
    assert_eq!(host.core.damaged_bytes(), PAGE as u64);
}

/// Comparing is for the first read alone.
#[test]
fn records_that_were_compared_are_at_hand() {
    let host = Host::found();
    assert!(!host.is_at_hand(4));
    // Each read of the disk has its neighbours compared again; from then on memory has all.
    host.assert_only_damaged(&[]);
    host.assert_only_damaged(&[]);
    for number in 0..RECORDS {
        assert!(host.is_at_hand(number), "record {number}");
    }
    host.write(RECORDS, content(1));
    assert!(host.is_at_hand(RECORDS), "what was just written");
    assert!(host.is_at_hand(RECORDS - 1));
}

/// A segment that another process had opened and that is written anew: reading on, which is of use to a
/// scan, would bring records to memory that nobody compares.
#[test]
fn record_that_rotted_is_not_at_hand_where_its_file_is_used_again() {
    let mut host = Host::found();
    for number in 0..RECORDS {
        host.write(number, content(number));
    }
    host.reopen();
    // Where the file system is short of room nothing is kept, and the file is a new one.
    let is_kept = host.core.log.records.files.kept_max() > 0;
    assert_eq!(host.core.log.pool().recycled(), u64::from(is_kept));
    for number in 0..RECORDS {
        host.write(number, content(number));
    }
    host.evict();
    host.rot(7, 10);
    for number in 0..5 {
        assert_eq!(host.read(number).unwrap(), content(number));
    }
    // What is being read ahead is there when this is.
    assert_eq!(host.read(9).unwrap(), content(9));
    host.read(7).unwrap_err();
    host.assert_only_damaged(&[7]);
}

/// It was known; then somebody who compares nothing brought to memory what had rotted on the disk.
#[test]
fn record_that_memory_has_wrong_is_not_at_hand_once_that_was_noticed() {
    let host = Host::found();
    for _ in 0..2 {
        assert_eq!(host.read(7).unwrap(), content(7));
    }
    assert!(host.is_at_hand(7), "it was compared, and memory has it");
    host.rot(7, 100);
    let (segment, offset) = host.place(7);
    let reader = OpenOptions::new().read(true).open(host.path(&segment)).unwrap();
    reader.read_exact_at(&mut [0; PAGE], offset).unwrap();
    // A push, or compaction.
    segment.read_checked(offset, &mut vec![0; PAGE]).unwrap_err();
    assert!(!host.is_at_hand(7), "it would be sent");
    host.assert_only_damaged(&[7]);
}
