//! The origin as a directory (local file system, NFS, CephFS), read without Python.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acstor_types::{Digest, PackId};
use bytes::BytesMut;
use parking_lot::Mutex;

use crate::{OriginError, OriginRange, OriginSource};

/// Packs kept open. An open pack that was deleted stays readable, which is what a guest wants that
/// still runs from it; the bound is what such a pack can hold back of the origin's space.
pub const OPEN_PACKS_MAX: usize = 128;

/// Buffers per system call (the kernel's IOV_MAX).
const VECTORS_MAX: usize = 1024;

/// Reads `<root>/packs/<first 2 hex digits>/<64 hex digits>`, and manifests in `manifests` beside.
#[derive(Debug)]
pub struct PosixPackReader {
    packs: PathBuf,
    manifests: PathBuf,
    moved: PathBuf,
    open: Mutex<OpenPacks>,
}

#[derive(Debug, Default)]
struct OpenPacks {
    files: HashMap<PackId, (Arc<File>, u64)>,
    clock: u64,
}

impl PosixPackReader {
    /// Reads the packs of the origin at `root`; nothing is opened yet, since an origin that is gone
    /// must not keep a host from starting.
    pub fn new(root: impl Into<PathBuf>) -> PosixPackReader {
        let root = root.into();
        PosixPackReader {
            packs: root.join("packs"),
            manifests: root.join("manifests"),
            moved: root.join("moved"),
            open: Mutex::default(),
        }
    }

    /// Path of a pack.
    pub fn path(&self, pack: &PackId) -> PathBuf {
        path_in(&self.packs, &pack.0)
    }

    /// Path of a manifest.
    pub fn manifest_path(&self, name: &Digest) -> PathBuf {
        path_in(&self.manifests, name)
    }

    /// Path of the object that says where the chunks of a pack were moved to.
    pub fn moved_path(&self, pack: &PackId) -> PathBuf {
        path_in(&self.moved, &pack.0)
    }

    fn file(&self, pack: &PackId) -> Result<Arc<File>, OriginError> {
        if let Some(file) = self.cached(pack) {
            return Ok(file);
        }
        // Opened without the lock: on NFS it takes a round trip.
        let file = File::open(self.path(pack));
        let file = file.map_err(|error| open_error(&self.packs, &pack.0, &error))?;
        let file = Arc::new(file);
        self.remember(pack, &file);
        Ok(file)
    }

    fn cached(&self, pack: &PackId) -> Option<Arc<File>> {
        let mut open = self.open.lock();
        open.clock += 1;
        let now = open.clock;
        let (file, used) = open.files.get_mut(pack)?;
        *used = now;
        Some(file.clone())
    }

    fn remember(&self, pack: &PackId, file: &Arc<File>) {
        let mut open = self.open.lock();
        if open.files.len() >= OPEN_PACKS_MAX {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                open.files.remove(&oldest);
            }
        }
        let now = open.clock;
        open.files.insert(*pack, (file.clone(), now));
    }

    fn forget(&self, pack: &PackId) {
        self.open.lock().files.remove(pack);
    }
}

/// The error of a file of `folder` that cannot be opened.
fn open_error(folder: &Path, name: &Digest, error: &io::Error) -> OriginError {
    if error.kind() == io::ErrorKind::NotFound && is_directory(folder) {
        return OriginError::NotFound { pack: name.to_string() };
    }
    // Without its directory of packs, or manifests, it is no origin: not mounted, most likely.
    unavailable(name, error)
}

fn path_in(folder: &Path, name: &Digest) -> PathBuf {
    let name = name.to_string();
    folder.join(&name[..2]).join(&name)
}

fn is_directory(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_dir())
}

fn unavailable(name: &Digest, error: &io::Error) -> OriginError {
    OriginError::Unavailable { pack: name.to_string(), cause: error.to_string() }
}

/// The error of a read that ended before byte `end`, or failed.
fn read_error(name: &Digest, end: u64, error: &io::Error) -> OriginError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => OriginError::ShortRead { pack: name.to_string(), end },
        _ => unavailable(name, error),
    }
}

impl OriginSource for PosixPackReader {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let file = self.file(pack)?;
        for batch in ranges.chunks_mut(VECTORS_MAX) {
            let Some(last) = batch.last() else { break };
            let end = last.offset + last.buffer.len() as u64;
            fill(&file, batch).map_err(|error| {
                // The file may be stale (NFS) or replaced: the next attempt opens it anew.
                self.forget(pack);
                read_error(&pack.0, end, &error)
            })?;
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        // Opened each time: few pages are fetched of a manifest that is soon whole on this host.
        let file = File::open(self.manifest_path(name));
        let file = file.map_err(|error| open_error(&self.manifests, name, &error))?;
        let end = range.offset + range.buffer.len() as u64;
        let read = file.read_exact_at(&mut range.buffer, range.offset);
        read.map_err(|error| read_error(name, end, &error))
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        // An origin that nobody compacts has no folder of these.
        let file = File::open(self.moved_path(pack));
        let file = file.map_err(|error| open_error(&self.packs, &pack.0, &error))?;
        let end = offset + buffer.len() as u64;
        file.read_exact_at(buffer, offset).map_err(|error| read_error(&pack.0, end, &error))
    }
}

/// Fills the buffers of adjacent ranges, with one system call unless the kernel gives less.
fn fill(file: &File, ranges: &mut [OriginRange]) -> io::Result<()> {
    let mut offset = ranges.first().map_or(0, |range| range.offset);
    let mut vectors: Vec<IoSliceMut<'_>> =
        ranges.iter_mut().map(|range| IoSliceMut::new(&mut range.buffer)).collect();
    let mut left = &mut vectors[..];
    // Empty buffers have nothing to fill and would look like the end of the file.
    IoSliceMut::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match rustix::io::preadv(file, left, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                IoSliceMut::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use acstor_types::ErrorKind;

    use super::*;

    fn pack(number: u16) -> PackId {
        PackId(Digest::of(&number.to_le_bytes()))
    }

    fn origin(packs: u16, content: &[u8]) -> (tempfile::TempDir, PosixPackReader) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("packs")).unwrap();
        let reader = PosixPackReader::new(root.path());
        for number in 0..packs {
            let path = reader.path(&pack(number));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        (root, reader)
    }

    #[test]
    fn test_path_is_the_key_of_the_pack() {
        let reader = PosixPackReader::new("/origin");
        let name = pack(1).0.to_string();
        let expected = format!("/origin/packs/{}/{name}", &name[..2]);
        assert_eq!(reader.path(&pack(1)).to_str(), Some(expected.as_str()));
    }

    #[test]
    fn test_read_fills_every_range() {
        let content: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
        let (_root, reader) = origin(1, &content);
        let mut ranges = [OriginRange::new(100, 200), OriginRange::new(300, 50)];
        reader.read(&pack(0), &mut ranges).unwrap();
        assert_eq!(ranges[0].buffer[..], content[100..300]);
        assert_eq!(ranges[1].buffer[..], content[300..350]);
    }

    #[test]
    fn test_manifest_is_read_beside_the_packs() {
        let (root, reader) = origin(0, &[]);
        let name = Digest::of(b"manifest");
        let mut range = OriginRange::new(4, 4);
        let error = reader.read_manifest(&name, &mut range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "no origin, as far as one can tell");
        fs::create_dir(root.path().join("manifests")).unwrap();
        let error = reader.read_manifest(&name, &mut range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let path = reader.manifest_path(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"01234567").unwrap();
        reader.read_manifest(&name, &mut range).unwrap();
        assert_eq!(range.buffer[..], *b"4567");
        let error = reader.read_manifest(&name, &mut OriginRange::new(5, 4)).unwrap_err();
        assert_eq!(error, OriginError::ShortRead { pack: name.to_string(), end: 9 });
    }

    #[test]
    fn test_read_past_the_end_is_a_short_read() {
        let (_root, reader) = origin(1, &[1; 100]);
        let error = reader.read(&pack(0), &mut [OriginRange::new(90, 11)]).unwrap_err();
        assert_eq!(error, OriginError::ShortRead { pack: pack(0).0.to_string(), end: 101 });
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn test_read_missing_pack_is_not_found() {
        let (_root, reader) = origin(1, &[1; 100]);
        let error = reader.read(&pack(7), &mut [OriginRange::new(0, 1)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn test_read_moved_reads_beside_the_packs() {
        let (root, reader) = origin(1, &[1; 100]);
        let mut buffer = BytesMut::zeroed(3);
        let error = reader.read_moved(&pack(0), 0, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let path = reader.moved_path(&pack(0));
        assert!(path.starts_with(root.path().join("moved")));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"moved").unwrap();
        reader.read_moved(&pack(0), 2, &mut buffer).unwrap();
        assert_eq!(buffer[..], b"ved"[..]);
        let error = reader.read_moved(&pack(0), 3, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let reader = PosixPackReader::new("/nonexistent/origin");
        let error = reader.read_moved(&pack(0), 0, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn test_read_without_the_mount_is_unavailable() {
        let reader = PosixPackReader::new("/nonexistent/origin");
        let error = reader.read(&pack(0), &mut [OriginRange::new(0, 1)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn test_read_of_a_directory_is_an_io_error() {
        let (_root, reader) = origin(0, &[]);
        fs::create_dir_all(reader.path(&pack(0))).unwrap();
        let error = reader.read(&pack(0), &mut [OriginRange::new(0, 1)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn test_read_many_packs_keeps_few_open() {
        let (_root, reader) = origin(OPEN_PACKS_MAX as u16 + 20, &[7; 64]);
        for number in 0..OPEN_PACKS_MAX as u16 + 20 {
            reader.read(&pack(number), &mut [OriginRange::new(0, 64)]).unwrap();
        }
        let open = reader.open.lock();
        assert_eq!(open.files.len(), OPEN_PACKS_MAX);
        assert!(!open.files.contains_key(&pack(0)), "the least recently used one left");
    }

    #[test]
    fn test_read_after_a_short_read_opens_the_replaced_pack() {
        let (_root, reader) = origin(1, &[1; 10]);
        assert!(reader.read(&pack(0), &mut [OriginRange::new(0, 20)]).is_err());
        let path = reader.path(&pack(0));
        fs::remove_file(&path).unwrap();
        fs::write(&path, [2; 20]).unwrap();
        let mut ranges = [OriginRange::new(0, 20)];
        reader.read(&pack(0), &mut ranges).unwrap();
        assert_eq!(ranges[0].buffer[..], [2; 20]);
    }
}
