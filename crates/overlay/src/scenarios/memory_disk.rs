//! A disk in memory that can lose and tear whatever was not synced; and one that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;

use acstor_diskio::DiskSpace;
use acstor_testkit::{Fault, FaultPlan};
use memmap2::MmapRaw;
use parking_lot::Mutex;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::segments::disk::{LogDisk, LogFile};

const SECTOR: u64 = 512;

type Sector = [u8; SECTOR as usize];

/// A directory in memory. Cheap to clone; clones share it.
///
/// A write to the disk that fails behaves as on Linux: the error is told by the next sync, once, and
/// what was not written counts as written from then on, in memory only.
///
/// A power failure keeps or loses each unsynced sector by itself, and the unsynced changes of
/// names from some point on, as a journal does.
#[derive(Clone, Debug)]
pub(crate) struct MemoryDisk {
    state: Arc<Mutex<State>>,
    pub(crate) faults: FaultPlan,
}

#[derive(Debug)]
struct State {
    capacity: u64,
    names: BTreeMap<String, Arc<MemoryFile>>,
    synced_names: BTreeMap<String, Arc<MemoryFile>>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Set(String, Arc<MemoryFile>),
    Remove(String),
    Rename(String, String),
}

#[derive(Debug)]
pub(crate) struct MemoryFile {
    reserved: u64,
    faults: FaultPlan,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    size: u64,
    synced_size: u64,
    sectors: BTreeMap<u64, Sector>,
    synced: BTreeMap<u64, Sector>,
    unsynced: BTreeSet<u64>,
    /// A write to the disk has failed, and no sync has told it yet.
    is_error_untold: bool,
    /// Sectors that cannot be read.
    broken: BTreeSet<u64>,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, Arc<MemoryFile>>) {
        match self {
            Change::Set(name, file) => names.insert(name.clone(), Arc::clone(file)),
            Change::Remove(name) => names.remove(name),
            Change::Rename(from, to) => {
                names.remove(from).and_then(|file| names.insert(to.clone(), file))
            }
        };
    }
}

impl MemoryDisk {
    pub(crate) fn new(capacity: u64) -> MemoryDisk {
        let (names, synced_names) = (BTreeMap::new(), BTreeMap::new());
        let state = State { capacity, names, synced_names, changes: Vec::new() };
        MemoryDisk { state: Arc::new(Mutex::new(state)), faults: FaultPlan::new() }
    }

    /// Returns what a power failure leaves of the disk.
    pub(crate) fn after_power_failure(&self, rng: &mut ChaCha8Rng) -> MemoryDisk {
        let state = self.state.lock();
        let disk = MemoryDisk::new(state.capacity);
        let mut names = state.synced_names.clone();
        let kept = rng.random_range(0..=state.changes.len());
        state.changes[..kept].iter().for_each(|change| change.apply(&mut names));
        // Now and then everything was written already, or nothing.
        let share = *[0.0, 0.5, 0.9, 1.0].get(rng.random_range(0..4)).unwrap();
        let survive = |(name, file): (String, Arc<MemoryFile>)| {
            (name, Arc::new(file.after_power_failure(rng, share, disk.faults.clone())))
        };
        let names: BTreeMap<_, _> = names.into_iter().map(survive).collect();
        *disk.state.lock() = State {
            capacity: state.capacity,
            synced_names: names.clone(),
            names,
            changes: Vec::new(),
        };
        disk
    }

    /// Returns the disk as another process finds it after this one was killed: nothing is lost.
    pub(crate) fn after_kill(&self) -> MemoryDisk {
        self.faults.disarm();
        self.clone()
    }

    /// The kernel writes to the disk by itself, and fails: the next sync of each file tells it.
    /// Returns whether there was something to write.
    pub(crate) fn fail_writeback(&self) -> bool {
        let mut was_dirty = false;
        for file in self.files() {
            let mut content = file.content.lock();
            if !content.unsynced.is_empty() {
                content.write_back(true, true);
                content.is_error_untold = true;
                was_dirty = true;
            }
        }
        was_dirty
    }

    /// Memory is short: what is not dirty is read from the disk from now on. An error that no sync
    /// has told is forgotten with the inode if no process has the file open.
    pub(crate) fn evict(&self, is_open: bool) {
        for file in self.files() {
            let mut content = file.content.lock();
            content.evict();
            content.is_error_untold &= is_open;
        }
    }

    /// Lets no read of a sector of a file succeed any more; or again.
    pub(crate) fn set_broken(&self, name: &str, offset: u64, is_broken: bool) {
        self.file(name).set_broken(offset, is_broken);
    }

    /// Returns a file, which stays the same when it is given another name, or none.
    pub(crate) fn file(&self, name: &str) -> Arc<MemoryFile> {
        Arc::clone(&self.state.lock().names[name])
    }

    fn files(&self) -> Vec<Arc<MemoryFile>> {
        self.state.lock().names.values().cloned().collect()
    }

    /// Makes the disk larger.
    pub(crate) fn grow(&self, bytes: u64) {
        self.state.lock().capacity += bytes;
    }

    fn check(&self, operation: &'static str) -> io::Result<()> {
        self.faults.next(operation).map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl State {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }
}

impl Content {
    /// Writes what is dirty to the disk; with a failure half of it, or nothing. All of it counts as
    /// written.
    fn write_back(&mut self, is_begun: bool, is_failing: bool) {
        let dirty = std::mem::take(&mut self.unsynced);
        let count = match (is_begun, is_failing) {
            (true, false) => dirty.len(),
            (true, true) => dirty.len() / 2,
            (false, _) => 0,
        };
        for at in dirty.into_iter().take(count) {
            match self.sectors.get(&at).copied() {
                Some(sector) => self.synced.insert(at, sector),
                None => self.synced.remove(&at),
            };
        }
    }

    /// Drops from memory what is not dirty.
    fn evict(&mut self) {
        let dirty = self.unsynced.iter().filter_map(|at| Some((*at, *self.sectors.get(at)?)));
        let dirty: Vec<_> = dirty.collect();
        self.sectors = self.synced.clone();
        self.sectors.extend(dirty);
    }
}

impl MemoryFile {
    /// Lets no read of a sector succeed any more; or again.
    pub(crate) fn set_broken(&self, offset: u64, is_broken: bool) {
        let mut content = self.content.lock();
        match is_broken {
            true => content.broken.insert(offset / SECTOR),
            false => content.broken.remove(&(offset / SECTOR)),
        };
    }

    fn after_power_failure(
        &self,
        rng: &mut ChaCha8Rng,
        share: f64,
        faults: FaultPlan,
    ) -> MemoryFile {
        let content = self.content.lock();
        let mut sectors = content.synced.clone();
        for at in &content.unsynced {
            if rng.random_bool(share) {
                match content.sectors.get(at) {
                    Some(sector) => sectors.insert(*at, *sector),
                    None => sectors.remove(at),
                };
            }
        }
        let size = if rng.random_bool(share) { content.size } else { content.synced_size };
        let size = size.max(self.reserved.min(content.size));
        let content = Content {
            size,
            synced_size: size,
            synced: sectors.clone(),
            sectors,
            ..Content::default()
        };
        MemoryFile { reserved: self.reserved, faults, content: Mutex::new(content) }
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        let mut content = self.content.lock();
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (sector, start) = (at / SECTOR, (at % SECTOR) as usize);
            let len = rest.len().min(SECTOR as usize - start);
            let target = content.sectors.entry(sector).or_insert([0; SECTOR as usize]);
            target[start..start + len].copy_from_slice(&rest[..len]);
            content.unsynced.insert(sector);
            rest = &rest[len..];
            at += len as u64;
        }
        content.size = content.size.max(at);
    }
}

impl LogDisk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, size_bytes: u64) -> io::Result<Arc<dyn LogFile>> {
        self.check("create")?;
        let mut state = self.state.lock();
        let others = state.names.iter().filter(|(other, _)| *other != name);
        let used: u64 = others.map(|(_, file)| file.reserved).sum();
        if used + size_bytes > state.capacity {
            return Err(Fault::ENOSPC.error());
        }
        let content = Content { size: size_bytes, ..Content::default() };
        let (content, faults) = (Mutex::new(content), self.faults.clone());
        let file = Arc::new(MemoryFile { reserved: size_bytes, faults, content });
        state.change(Change::Set(name.to_owned(), Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let state = self.state.lock();
        let file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn LogFile>)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check("rename")?;
        let mut state = self.state.lock();
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // One change: a power failure leaves the old name or the new one.
        state.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.check("sync-names")?;
        let mut state = self.state.lock();
        state.changes.clear();
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let state = self.state.lock();
        let used: u64 = state.names.values().map(|file| file.reserved).sum();
        Ok(DiskSpace { free_bytes: state.capacity - used, total_bytes: state.capacity })
    }

    fn unlock(&self) {}
}

impl LogFile for MemoryFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(fault) = self.faults.next("read") {
            return Err(fault.error());
        }
        let content = self.content.lock();
        if offset + buffer.len() as u64 > content.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = (offset + buffer.len() as u64).div_ceil(SECTOR);
        if content.broken.range(offset / SECTOR..end).next().is_some() {
            return Err(Fault::EIO.error());
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let (sector, start) = (at / SECTOR, (at % SECTOR) as usize);
            let len = (buffer.len() - done).min(SECTOR as usize - start);
            match content.sectors.get(&sector) {
                Some(bytes) => {
                    buffer[done..done + len].copy_from_slice(&bytes[start..start + len]);
                }
                None => buffer[done..done + len].fill(0),
            }
            done += len;
        }
        Ok(())
    }

    fn read_cached(&self, _buffer: &mut [u8], _offset: u64) -> bool {
        false
    }

    fn read_past_cache(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<()> {
        // What is flipped here is flipped on the disk.
        Err(io::ErrorKind::InvalidInput.into())
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let fault = self.faults.next("write");
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let done = fault.map_or(bytes.len(), |fault| fault.done_of(bytes.len()));
        self.write(&bytes[..done], offset);
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn sync(&self) -> io::Result<()> {
        let fault = self.faults.next("sync");
        let mut content = self.content.lock();
        if let Some(fault) = fault {
            content.write_back(fault.done_of(usize::MAX) > 0, true);
            content.is_error_untold = false;
            return Err(fault.error());
        }
        content.write_back(true, false);
        if std::mem::take(&mut content.is_error_untold) {
            return Err(Fault::EIO.error());
        }
        content.synced_size = content.size;
        Ok(())
    }

    fn sync_and_forget(&self) -> io::Result<()> {
        self.sync()?;
        self.content.lock().evict();
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {
        // A hint has no outcome; it is counted.
        let _ = self.faults.next("writeback");
    }

    fn start_read(&self, _offset: u64, _len: u64) {}

    fn read_no_more(&self) {}

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.content.lock().size)
    }

    fn map(&self, _len: usize) -> Option<MmapRaw> {
        None
    }
}
