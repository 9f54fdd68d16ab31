//! The store's directory: its lock, its superblock, its two large files at their full size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use acstor_diskio::FileLock;
use acstor_types::ChunkSize;
use memmap2::MmapRaw;

use crate::disk::{Disk, SlotFile};
use crate::format::{RECORD_LEN, STORE_VERSION, SUPERBLOCK_LEN, Superblock, SuperblockError};
use crate::{StoreConfig, StoreError, limits};

const LOCK: &str = "lock";
const SUPERBLOCK: &str = "superblock";
const SUPERBLOCK_NEW: &str = "superblock.new";
const RECORDS: &str = "records";
const SLOTS: &str = "slots";

/// Size and number of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub chunk_size: ChunkSize,
    pub slot_count: u32,
}

/// The open files of a store. Dropping it gives up the lock.
#[derive(Debug)]
pub(crate) struct Directory {
    pub path: PathBuf,
    pub geometry: Geometry,
    pub store_id: [u8; 16],
    pub slots: Box<dyn SlotFile>,
    pub records: Box<dyn SlotFile>,
    pub mapping: MmapRaw,
    pub slots_path: PathBuf,
    pub records_path: PathBuf,
    /// Declared last: files are closed before another process may open them.
    _lock: FileLock,
}

impl Geometry {
    /// Returns as many slots as fit: `capacity_bytes` covers all files of the store.
    pub(crate) fn of(config: &StoreConfig) -> Result<Geometry, StoreError> {
        let chunk_size = config.chunk_size;
        let slot_bytes = (chunk_size.bytes() + RECORD_LEN) as u64;
        let size_of = |slots: u32| u64::from(slots) * slot_bytes + SUPERBLOCK_LEN as u64;
        let (min, max) = (size_of(limits::SLOTS_MIN), size_of(limits::SLOTS_MAX));
        let given = config.capacity_bytes;
        if given < min || given > max {
            return Err(StoreError::Capacity { given, min, max });
        }
        let slot_count = ((given - SUPERBLOCK_LEN as u64) / slot_bytes) as u32;
        Ok(Geometry { chunk_size, slot_count })
    }

    pub(crate) fn slots_len(&self) -> u64 {
        self.slot_offset(self.slot_count)
    }

    pub(crate) fn records_len(&self) -> u64 {
        self.record_offset(self.slot_count)
    }

    pub(crate) fn slot_offset(&self, slot: u32) -> u64 {
        u64::from(slot) * self.chunk_size.bytes() as u64
    }

    pub(crate) fn record_offset(&self, slot: u32) -> u64 {
        u64::from(slot) * RECORD_LEN as u64
    }
}

impl Directory {
    /// Locks the directory and brings its files to the configured size.
    ///
    /// Every step can be repeated: a crash between any two leaves files that the next open brings
    /// to the right size, and records that speak for themselves.
    pub(crate) fn open(config: &StoreConfig, disk: &dyn Disk) -> Result<Directory, StoreError> {
        let geometry = Geometry::of(config)?;
        let path = &config.path;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed("create", path))?;
        let lock = lock(path)?;
        let superblock_path = path.join(SUPERBLOCK);
        let found = read_superblock(&superblock_path)?;

        let records_path = path.join(RECORDS);
        let slots_path = path.join(SLOTS);
        let records = disk.open(&records_path).map_err(failed("open", &records_path))?;
        let slots = disk.open(&slots_path).map_err(failed("open", &slots_path))?;
        if let Some(found) = found
            && found.chunk_size != geometry.chunk_size
        {
            tracing::warn!(
                path = %path.display(),
                from = found.chunk_size.bytes(),
                to = geometry.chunk_size.bytes(),
                "chunk size changed: the chunk store starts empty"
            );
            records.truncate(0).map_err(failed("empty", &records_path))?;
        }
        resize(&*slots, &slots_path, geometry.slots_len())?;
        resize(&*records, &records_path, geometry.records_len())?;

        let store_id = match found {
            Some(found) => found.store_id,
            None => random_bytes()?,
        };
        let Geometry { chunk_size, slot_count } = geometry;
        let superblock = Superblock { chunk_size, slot_count, store_id };
        if found != Some(superblock) {
            write_superblock(path, &superblock)?;
        }
        let mapping =
            slots.map(geometry.slots_len() as usize).map_err(failed("map", &slots_path))?;
        Ok(Directory {
            path: path.clone(),
            geometry,
            store_id,
            slots,
            records,
            mapping,
            slots_path,
            records_path,
            _lock: lock,
        })
    }
}

/// Returns what turns an [`io::Error`] into a [`StoreError`] that names the file.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

fn lock(directory: &Path) -> Result<FileLock, StoreError> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(failed("open", &path))?;
    let lock = FileLock::try_exclusive(file).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            StoreError::Locked { path: directory.to_owned(), pid: owner_of(&path) }
        }
        _ => failed("lock", &path)(error),
    })?;
    let mut file = lock.file();
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write", &path))?;
    Ok(lock)
}

/// Returns the process that the lock file names, or `None` while its owner is writing it.
fn owner_of(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns the superblock, or `None` when there is none or it is damaged: the records say the
/// same about each slot, so nothing is lost with it.
fn read_superblock(path: &Path) -> Result<Option<Superblock>, StoreError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    match Superblock::parse(&bytes) {
        Ok(superblock) => Ok(Some(superblock)),
        Err(SuperblockError::Version(found)) => {
            Err(StoreError::Version { path: path.to_owned(), found, supported: STORE_VERSION })
        }
        Err(SuperblockError::Corrupt) => {
            tracing::warn!(path = %path.display(), "superblock is damaged: written anew");
            Ok(None)
        }
    }
}

/// Replaces the superblock, so that at any time one or the other is there.
fn write_superblock(directory: &Path, superblock: &Superblock) -> Result<(), StoreError> {
    let fresh = directory.join(SUPERBLOCK_NEW);
    let path = directory.join(SUPERBLOCK);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(&superblock.encode())?;
            file.sync_all()
        })
        .map_err(failed("write", &fresh))?;
    fs::rename(&fresh, &path).map_err(failed("replace", &path))?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("sync", directory))
}

/// Brings a file to `size_bytes` with all of its space reserved; gives space back on failure.
fn resize(file: &dyn SlotFile, path: &Path, size_bytes: u64) -> Result<(), StoreError> {
    let before = file.size_bytes().map_err(failed("examine", path))?;
    if before > size_bytes {
        file.truncate(size_bytes).map_err(failed("shrink", path))?;
    }
    file.preallocate(size_bytes).map_err(|source| {
        if let Err(error) = file.truncate(before.min(size_bytes)) {
            tracing::warn!(path = %path.display(), %error, "cannot give back preallocated space");
        }
        StoreError::Preallocate { path: path.to_owned(), size_bytes, source }
    })
}

/// A seed that nobody knows outside of this process.
pub(crate) fn random_seed() -> Result<u64, StoreError> {
    random_bytes().map(u64::from_ne_bytes)
}

fn random_bytes<const LEN: usize>() -> Result<[u8; LEN], StoreError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; LEN];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(failed("read", path))?;
    Ok(bytes)
}
