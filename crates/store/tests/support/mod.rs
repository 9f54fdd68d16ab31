//! Parts that the store's tests share: a configuration, a disk that fails by plan.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{self, IoSlice};
use std::path::Path;

use acstor_store::{ChunkStore, Disk, EvictionKind, HostDisk, SlotFile, StoreConfig};
use acstor_testkit::{Fault, FaultPlan};
use acstor_types::{ChunkSize, Digest};
use memmap2::MmapRaw;
use parking_lot::Mutex;

/// Chunk size of the tests.
pub const CHUNK_SIZE: u32 = 4096;

/// Returns the configuration of a store of exactly `slots` slots in `path`.
pub fn config(path: &Path, slots: u64) -> StoreConfig {
    StoreConfig {
        path: path.join("store"),
        capacity_bytes: 4096 + slots * u64::from(CHUNK_SIZE + 64),
        chunk_size: ChunkSize::new(CHUNK_SIZE).unwrap(),
        eviction: EvictionKind::S3Fifo,
    }
}

/// Returns the content that the store has for `digest`.
pub fn content(store: &ChunkStore, digest: &Digest) -> Option<Vec<u8>> {
    let guard = store.get(digest).unwrap()?;
    let mut content = vec![0; guard.len()];
    guard.read_at(0, &mut content).ok()?;
    Some(content)
}

/// The host's file system with faults: `records.read`, `records.write`, `slots.read`,
/// `slots.write`, `slots.preallocate` and so on.
///
/// `slots.writeback` is what Linux does when a disk refuses pages that it had taken: the pages are
/// clean, the error is told once, at the next question, and what comes back from the disk is what was
/// there before. `slots.resident` makes pages leave memory.
#[derive(Clone, Debug)]
pub struct FaultyDisk(pub FaultPlan);

#[derive(Debug)]
struct FaultyFile {
    inner: Box<dyn SlotFile>,
    plan: FaultPlan,
    names: Names,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Names {
    read: &'static str,
    write: &'static str,
    preallocate: &'static str,
    size: &'static str,
    writeback: &'static str,
    resident: &'static str,
}

const RECORDS: Names = Names {
    read: "records.read",
    write: "records.write",
    preallocate: "records.preallocate",
    size: "records.size",
    writeback: "records.writeback",
    resident: "records.resident",
};

const SLOTS: Names = Names {
    read: "slots.read",
    write: "slots.write",
    preallocate: "slots.preallocate",
    size: "slots.size",
    writeback: "slots.writeback",
    resident: "slots.resident",
};

/// Page cache of a file.
#[derive(Debug, Default)]
struct Pages {
    /// Content of the disk where writes were taken and not yet written back, oldest first.
    dirty: Vec<(u64, Vec<u8>)>,
    /// Ranges that left memory.
    cold: Vec<(u64, u64)>,
    /// The error of a write-back that nobody was told of.
    untold: Option<i32>,
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn SlotFile>> {
        let inner = HostDisk.open(path)?;
        let names = if path.ends_with("records") { RECORDS } else { SLOTS };
        let pages = Mutex::default();
        Ok(Box::new(FaultyFile { inner, plan: self.0.clone(), names, pages }))
    }
}

impl FaultyFile {
    /// Does to dirty pages what the kernel does, by itself or when asked.
    fn write_back(&self) {
        let fault = self.plan.next(self.names.writeback);
        let mut pages = self.pages.lock();
        let dirty = std::mem::take(&mut pages.dirty);
        let Some(fault) = fault else { return };
        for (offset, before) in dirty.into_iter().rev() {
            self.inner.write_all_at(&mut [IoSlice::new(&before)], offset).unwrap();
            pages.cold.push((offset, offset + before.len() as u64));
        }
        pages.untold = fault.error().raw_os_error();
    }

    fn note_dirty(&self, offset: u64, len: usize) {
        let mut before = vec![0; len];
        self.inner.read_exact_at(&mut before, offset).unwrap_or_default();
        self.pages.lock().dirty.push((offset, before));
    }
}

impl SlotFile for FaultyFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(fault) = self.plan.next(self.names.read) else {
            let end = offset + buffer.len() as u64;
            self.pages.lock().cold.retain(|(from, to)| *from >= end || *to <= offset);
            return self.inner.read_exact_at(buffer, offset);
        };
        let done = fault.done_of(buffer.len());
        self.inner.read_exact_at(&mut buffer[..done], offset)?;
        Err(fault.error())
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.note_dirty(offset, parts.iter().map(|part| part.len()).sum());
        let Some(fault) = self.plan.next(self.names.write) else {
            return self.inner.write_all_at(parts, offset);
        };
        let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let done = fault.done_of(all.len());
        self.inner.write_all_at(&mut [IoSlice::new(&all[..done])], offset)?;
        Err(fault.error())
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.is_resident(std::ptr::null(), offset, buffer.len())
            && self.inner.read_exact_at(buffer, offset).is_ok()
    }

    fn is_resident(&self, _mapped: *const u8, offset: u64, len: usize) -> bool {
        let mut pages = self.pages.lock();
        let end = offset + len as u64;
        if self.plan.next(self.names.resident).is_some() {
            pages.cold.push((offset, end));
        }
        !pages.cold.iter().any(|(from, to)| *from < end && offset < *to)
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {
        self.write_back();
    }

    fn finish_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.write_back();
        self.pages
            .lock()
            .untold
            .take()
            .map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.plan
            .next(self.names.size)
            .map_or_else(|| self.inner.size_bytes(), |fault| Err(fault.error()))
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        match self.plan.next(self.names.preallocate) {
            Some(fault) => {
                if matches!(fault, Fault::Torn(_)) {
                    self.inner.preallocate(size_bytes / 2)?;
                }
                Err(fault.error())
            }
            None => self.inner.preallocate(size_bytes),
        }
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.inner.truncate(size_bytes)
    }

    fn map(&self, size_bytes: usize) -> io::Result<MmapRaw> {
        self.inner.map(size_bytes)
    }
}
