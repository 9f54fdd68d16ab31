//! Stores in memory, and the faults around them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acstor_readpath::{OriginError, OriginRange, OriginSource, StoredObject};
use acstor_types::{Digest, PackId};
use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use prometheus_client::registry::Registry;

use crate::{GenerationReader, MemberSettings, MembersSettings, MembersSource};

/// Time of a read that nobody may reach, however slow the machine.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// Generation of all members.
pub(crate) const GENERATION: u64 = 5;

/// A store in memory.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<HashMap<(&'static str, Digest), Vec<u8>>>);

impl MemoryStore {
    pub(crate) fn put(&self, folder: &'static str, name: Digest, content: &[u8]) {
        self.0.lock().insert((folder, name), content.to_vec());
    }

    fn fill(
        &self,
        folder: &'static str,
        name: &Digest,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        let pack = name.to_string();
        let stored = self.0.lock();
        let Some(content) = stored.get(&(folder, *name)) else {
            return Err(OriginError::NotFound { pack });
        };
        let end = offset as usize + buffer.len();
        let range = content.get(offset as usize..end);
        let range = range.ok_or(OriginError::ShortRead { pack, end: end as u64 })?;
        buffer.copy_from_slice(range);
        Ok(())
    }
}

impl OriginSource for MemoryStore {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let mut fill =
            |range: &mut OriginRange| self.fill("packs", &pack.0, range.offset, &mut range.buffer);
        ranges.iter_mut().try_for_each(&mut fill)
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        self.fill("manifests", name, range.offset, &mut range.buffer)
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        self.fill("moved", &pack.0, offset, buffer)
    }
}

/// Fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    /// None.
    Sound,
    /// It does not have the object.
    Missing,
    /// It has other bytes.
    Lies,
    /// It has less than it should.
    Short,
    /// Calls fail.
    Fails,
    /// Calls panic.
    Panics,
    /// Calls end when the store is released.
    Hangs,
}

/// A store with a fault, and the generation that it carries.
pub(crate) struct FaultyStore {
    pub(crate) store: MemoryStore,
    mode: Mutex<FaultMode>,
    released: Condvar,
    asked: AtomicU64,
    pub(crate) generation: Mutex<Result<u64, OriginError>>,
}

impl FaultyStore {
    pub(crate) fn new() -> Arc<FaultyStore> {
        Arc::new(FaultyStore {
            store: MemoryStore::default(),
            mode: Mutex::new(FaultMode::Sound),
            released: Condvar::new(),
            asked: AtomicU64::new(0),
            generation: Mutex::new(Ok(GENERATION)),
        })
    }

    /// Changes the fault; calls that hang go on.
    pub(crate) fn set(&self, mode: FaultMode) {
        *self.mode.lock() = mode;
        self.released.notify_all();
    }

    /// Calls so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Begins a call; returns the fault that it meets.
    fn begin(&self) -> FaultMode {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut mode = self.mode.lock();
        while *mode == FaultMode::Hangs {
            self.released.wait(&mut mode);
        }
        *mode
    }

    fn call(
        &self,
        name: &Digest,
        read: impl FnOnce(&MemoryStore) -> Result<(), OriginError>,
    ) -> Result<bool, OriginError> {
        let pack = name.to_string();
        match self.begin() {
            FaultMode::Missing => Err(OriginError::NotFound { pack }),
            FaultMode::Short => Err(OriginError::ShortRead { pack, end: 1 }),
            FaultMode::Fails => Err(OriginError::Unavailable { pack, cause: "a fault".into() }),
            FaultMode::Panics => panic!("a fault of a test"),
            FaultMode::Lies => read(&self.store).map(|()| true),
            FaultMode::Sound | FaultMode::Hangs => read(&self.store).map(|()| false),
        }
    }
}

impl OriginSource for FaultyStore {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        if self.call(&pack.0, |store| store.read(pack, ranges))? {
            ranges.iter_mut().for_each(|range| damage(&mut range.buffer));
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        if self.call(name, |store| store.read_manifest(name, range))? {
            damage(&mut range.buffer);
        }
        Ok(())
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        self.call(&pack.0, |store| store.read_moved(pack, offset, buffer)).map(|_| ())
    }
}

impl GenerationReader for FaultyStore {
    fn read(&self) -> Result<u64, OriginError> {
        self.generation.lock().clone()
    }
}

fn damage(buffer: &mut [u8]) {
    buffer.iter_mut().for_each(|byte| *byte ^= 1);
}

/// Settings of members of these names over stores with faults, the first assigned.
pub(crate) fn settings(names: &[&str]) -> (MembersSettings, Vec<Arc<FaultyStore>>) {
    let stores: Vec<_> = names.iter().map(|_| FaultyStore::new()).collect();
    let member = |(position, name): (usize, &&str)| MemberSettings {
        name: (*name).to_owned(),
        generation: GENERATION,
        is_assigned: position == 0,
        source: stores[position].clone(),
        generations: stores[position].clone(),
    };
    let members = names.iter().enumerate().map(member).collect();
    let settings =
        MembersSettings { members, deadline: LONG, calls_max: 8, hedge_share_percent: 0 };
    (settings, stores)
}

/// Members that hold [`content`] as a pack and as a manifest.
pub(crate) struct World {
    pub(crate) source: MembersSource,
    pub(crate) stores: Vec<Arc<FaultyStore>>,
}

impl World {
    pub(crate) fn new(count: usize, change: impl FnOnce(&mut MembersSettings)) -> World {
        let (mut settings, stores) = settings(&["a", "b", "c", "d"][..count]);
        change(&mut settings);
        for store in &stores {
            store.store.put("packs", pack().0, &content());
            store.store.put("manifests", pack().0, &content());
        }
        let source = MembersSource::start(settings, &mut Registry::default()).unwrap();
        World { source, stores }
    }

    /// Reads as the read path does: what its digest refuses is read elsewhere.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Refused> {
        let mut range = OriginRange::new(0, content().len());
        let ranges = std::slice::from_mut(&mut range);
        self.source.read(&pack(), ranges).map_err(Refused::Error)?;
        if range.buffer[..] == content()[..] {
            return Ok(range.buffer.to_vec());
        }
        let mut sound = None;
        let mut is_sound = |range: &mut OriginRange| {
            let is_right = range.buffer[..] == content()[..];
            sound = is_right.then(|| range.buffer.to_vec());
            is_right
        };
        let object = StoredObject::Pack(pack());
        self.source.read_elsewhere(&object, &mut range, &mut is_sound).map_err(Refused::Error)?;
        sound.ok_or(Refused::Corrupt)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stores.iter().for_each(|store| store.set(FaultMode::Fails));
    }
}

/// Reason for which a read gave nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Error(OriginError),
    Corrupt,
}

pub(crate) fn pack() -> PackId {
    PackId(Digest::of(b"a pack"))
}

pub(crate) fn content() -> Vec<u8> {
    (0..=255).cycle().take(9000).collect()
}
