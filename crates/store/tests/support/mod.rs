//! What the store's tests share: a configuration, a disk that fails by plan.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{self, IoSlice};
use std::path::Path;

use acstor_store::{ChunkStore, Disk, EvictionKind, HostDisk, SlotFile, StoreConfig};
use acstor_testkit::{Fault, FaultPlan};
use acstor_types::{ChunkSize, Digest};
use memmap2::MmapRaw;

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
#[derive(Clone, Debug)]
pub struct FaultyDisk(pub FaultPlan);

#[derive(Debug)]
struct FaultyFile {
    inner: Box<dyn SlotFile>,
    plan: FaultPlan,
    read: &'static str,
    write: &'static str,
    preallocate: &'static str,
    size: &'static str,
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn SlotFile>> {
        let inner = HostDisk.open(path)?;
        let is_records = path.ends_with("records");
        let name = |records, slots| if is_records { records } else { slots };
        Ok(Box::new(FaultyFile {
            inner,
            plan: self.0.clone(),
            read: name("records.read", "slots.read"),
            write: name("records.write", "slots.write"),
            preallocate: name("records.preallocate", "slots.preallocate"),
            size: name("records.size", "slots.size"),
        }))
    }
}

impl SlotFile for FaultyFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(fault) = self.plan.next(self.read) else {
            return self.inner.read_exact_at(buffer, offset);
        };
        let done = fault.done_of(buffer.len());
        self.inner.read_exact_at(&mut buffer[..done], offset)?;
        Err(fault.error())
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let Some(fault) = self.plan.next(self.write) else {
            return self.inner.write_all_at(parts, offset);
        };
        let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let done = fault.done_of(all.len());
        self.inner.write_all_at(&mut [IoSlice::new(&all[..done])], offset)?;
        Err(fault.error())
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.plan
            .next(self.size)
            .map_or_else(|| self.inner.size_bytes(), |fault| Err(fault.error()))
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        match self.plan.next(self.preallocate) {
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
