//! Volumes over manifests of format 2: folds, deltas among them, and extents that are not in memory.

use std::collections::{BTreeMap, HashSet};
use std::io::{Cursor, Write};
use std::sync::Arc;
use std::time::Duration;

use acstor_manifest::{
    Base, Builder, Disk, Header, Pack, PageCache, RawBytes, Reader, Stack, VerifiedPages,
};
use acstor_readpath::{
    BlockView, DiskManifest, ExtentKind, ManifestFile, ManifestSource, PrepareFuture, ReadError,
    ReadFuture, TryRead,
};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackId, StoredChunk};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::regions::durability::Durability;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::scenarios::paged_disk::plain_chunk;
use crate::{
    BlockDevice, Done, ExtentQuery, FoldHow, Folded, Opening, OverlayError, Volume, VolumeConfig,
};

const VOLUME: DiskId = DiskId::from_bytes([8; 16]);
const CHUNK: usize = 64 << 10;
/// Of the base, and of the volume.
const SIZES: [u64; 2] = [4 << 20, 6 << 20];

/// Chunks with content.
type Content = BTreeMap<u64, Vec<u8>>;

fn chunk(number: u8) -> Vec<u8> {
    content(number.into(), CHUNK)
}

fn content(number: u32, len: usize) -> Vec<u8> {
    let name = Digest::of(&number.to_le_bytes());
    name.as_bytes().repeat(len / name.as_bytes().len())
}

fn pack(number: u8, chunks: u32) -> Pack {
    let id = PackId(Digest::of(&[number]));
    Pack { id, stored_bytes: chunks * 1000, class: 1 }
}

fn place(content: &[u8], number: u32) -> StoredChunk {
    StoredChunk {
        digest: Digest::of(content),
        offset: 4096 + number * 1000,
        stored_len: 1000,
        codec: Codec::Lz4,
        is_incompressible: false,
        crc: number,
    }
}

fn manifest(number: u8, base: Option<&[u8]>, chunks: &Content) -> Vec<u8> {
    manifest_of(number, base, chunks, ChunkSize::DEFAULT, SIZES[0])
}

fn manifest_of(
    number: u8,
    base: Option<&[u8]>,
    chunks: &Content,
    chunk_size: ChunkSize,
    size_bytes: u64,
) -> Vec<u8> {
    let header = base.map(|base| Header::parse(base, base.len() as u64).unwrap());
    let disk = Disk {
        disk_id: DiskId::from_bytes([number; 16]),
        size_bytes,
        chunk_size,
        salt: [number; 16],
        base: header.as_ref().map(Base::of),
    };
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    let pack = builder.add_pack(pack(number, chunks.len() as u32)).unwrap();
    for (at, (index, content)) in chunks.iter().enumerate() {
        builder.push(*index, pack, place(content, at as u32)).unwrap();
    }
    builder.finish().unwrap().to_bytes().unwrap()
}

fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(top: &[u8], bases: &[&[u8]]) -> DiskManifest {
    let bases = bases.iter().map(|bytes| file(bytes)).collect();
    ManifestFile::with_bases(file(top), bases).unwrap().read().unwrap()
}

fn view(content: &Content, size_bytes: u64) -> Arc<dyn BlockView> {
    Arc::new(memory_base(content, size_bytes))
}

fn memory_base(content: &Content, size_bytes: u64) -> MemoryBase {
    let mut disk = vec![0; size_bytes as usize];
    for (index, chunk) in content {
        let start = *index as usize * chunk.len();
        disk[start..start + chunk.len()].copy_from_slice(chunk);
    }
    MemoryBase(Bytes::from(disk))
}

/// A base that knows where data and holes are once that was prepared.
struct Unprepared {
    base: MemoryBase,
    known: Arc<Mutex<HashSet<(u64, bool)>>>,
}

impl Unprepared {
    fn knows(&self, offset: u64, kind: ExtentKind) -> bool {
        self.known.lock().contains(&(offset, kind == ExtentKind::Data))
    }
}

impl BlockView for Unprepared {
    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        self.base.try_read(offset, len)
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        self.base.read(offset, len)
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        match (self.knows(offset, kind), kind) {
            (true, _) => self.base.next_extent(offset, kind),
            (false, ExtentKind::Data) => Some(offset),
            (false, ExtentKind::Hole) => Some(self.size_bytes()),
        }
    }

    fn prepare_extent(&self, offset: u64, kind: ExtentKind) -> Option<PrepareFuture> {
        if self.knows(offset, kind) {
            return None;
        }
        let known = self.known.clone();
        Some(Box::pin(async move {
            known.lock().insert((offset, kind == ExtentKind::Data));
            Ok(())
        }))
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

struct Host {
    origin: MemoryOrigin,
    volume: Arc<Volume>,
    content: Content,
    chunk_len: usize,
    size_bytes: u64,
    /// Manifests of which what a fold makes may be a delta.
    bases: Vec<Vec<u8>>,
    runtime: Runtime,
}

impl Host {
    /// A volume over a delta: five chunks below, of which the delta has others at two places.
    fn new() -> Host {
        Host::over(|content| view(content, SIZES[0]))
    }

    fn over(base: impl FnOnce(&Content) -> Arc<dyn BlockView>) -> Host {
        let below: Content = (0..5).map(|index| (index * 7, chunk(index as u8))).collect();
        let above: Content = [(7, chunk(17)), (9, chunk(19))].into();
        let lower = manifest(1, None, &below);
        let upper = manifest(2, Some(&lower), &above);
        let content: Content = below.into_iter().chain(above).collect();
        let view = base(&content);
        Host::open(vec![upper, lower], content, ChunkSize::DEFAULT, SIZES[1], view)
    }

    /// A volume over a whole manifest of `chunks` chunks of 4 KiB.
    fn over_many(chunks: u32) -> Host {
        let content: Content =
            (0..chunks).map(|index| (u64::from(index), content(index, 4096))).collect();
        let (chunk_size, size_bytes) = (ChunkSize::new(4096).unwrap(), u64::from(chunks) * 4096);
        let whole = manifest_of(1, None, &content, chunk_size, size_bytes);
        let view = view(&content, size_bytes);
        Host::open(vec![whole], content, chunk_size, size_bytes, view)
    }

    /// A volume over the first of the manifests, and those below it.
    fn open(
        manifests: Vec<Vec<u8>>,
        content: Content,
        chunk_size: ChunkSize,
        size_bytes: u64,
        base: Arc<dyn BlockView>,
    ) -> Host {
        let (runtime, origin) = (Runtime::new().unwrap(), MemoryOrigin::default());
        let config = VolumeConfig {
            directory: "unused".into(),
            quota_bytes: 256 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: Some(Duration::from_secs(30)),
            chunk_size,
        };
        let bases: Vec<&[u8]> = manifests[1..].iter().map(Vec::as_slice).collect();
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: 100,
            size_bytes,
            manifest: Some(read(&manifests[0], &bases)),
            logs: Vec::new(),
            durability: Durability { period_s: 3600.0, ..Durability::default() },
        };
        let (sink, handle) = (Arc::new(origin.clone()), runtime.handle().clone());
        let disk = Arc::new(MemoryDisk::new(1 << 30));
        let volume = Volume::open_on(disk, config, opening, Some(base), sink, handle).unwrap();
        let chunk_len = chunk_size.bytes();
        Host { origin, volume, content, chunk_len, size_bytes, bases: manifests, runtime }
    }

    fn write(&mut self, index: u64, content: Vec<u8>) {
        let bytes = Bytes::from(content.clone());
        let done = self.volume.write(index * self.chunk_len as u64, bytes, false);
        assert!(matches!(done, Done::Now(Ok(()))));
        match acstor_types::is_zero(&content) {
            true => self.content.remove(&index),
            false => self.content.insert(index, content),
        };
    }

    fn fold(&self) -> Folded {
        self.volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap().unwrap()
    }

    /// Returns the manifest that a fold has stored and those below it, once they were checked.
    fn stored(&self, folded: &Folded) -> Vec<Vec<u8>> {
        let name = folded.digest.to_string();
        let bytes = self.origin.object(&format!("manifests/{}/{name}", &name[..2])).unwrap();
        assert_eq!(bytes, folded.content);
        let levels = self.levels_of(bytes.to_vec());
        let readers = levels.iter().map(|bytes| {
            let header = Arc::new(Header::parse(bytes, bytes.len() as u64).unwrap());
            let raw = RawBytes(Bytes::from(bytes.clone()));
            let cache = Arc::new(PageCache::default());
            Reader::new(header.clone(), VerifiedPages::new(header, cache, raw))
        });
        let stack = Stack::new(readers.collect()).unwrap();
        let header = stack.header();
        assert_eq!((header.name(), header.size_bytes()), (folded.digest, self.size_bytes));
        stack.levels()[0].check().unwrap();
        let mut found = BTreeMap::new();
        for entry in stack.entries(0..header.chunk_count()).map(Result::unwrap) {
            let pack = stack.levels()[entry.level].pack(entry.entry.pack).unwrap().pack;
            found.insert(entry.index, entry.entry.chunk.digest);
            self.check_place(pack, &entry.entry.chunk);
        }
        let expected: BTreeMap<_, _> =
            self.content.iter().map(|(index, chunk)| (*index, Digest::of(chunk))).collect();
        assert_eq!(found, expected);
        levels
    }

    /// Returns a manifest and those below it.
    fn levels_of(&self, top: Vec<u8>) -> Vec<Vec<u8>> {
        let mut levels = vec![top];
        while let Some(name) = header(levels.last().unwrap()).base() {
            let found = self.bases.iter().find(|bytes| header(bytes).name() == name);
            levels.push(found.unwrap().clone());
        }
        levels
    }

    /// A chunk of a pack that a fold stored is there; others are as the base had them.
    fn check_place(&self, pack: Pack, stored: &StoredChunk) {
        if plain_chunk(&self.origin, pack, stored, self.chunk_len).is_none() {
            assert_eq!((stored.codec, stored.stored_len), (Codec::Lz4, 1000));
        }
    }

    /// Installs what a fold made, and returns the depth of it.
    fn install(&mut self, folded: &Folded) -> usize {
        let levels = self.stored(folded);
        let bases: Vec<&[u8]> = levels[1..].iter().map(Vec::as_slice).collect();
        let manifest = read(&levels[0], &bases);
        self.volume.set_base(view(&self.content, self.size_bytes), manifest, folded);
        self.bases.push(levels[0].clone());
        levels.len()
    }
}

fn header(manifest: &[u8]) -> Header {
    Header::parse(manifest, manifest.len() as u64).unwrap()
}

#[test]
fn fold_over_a_delta_makes_a_manifest_that_stands_alone() {
    let mut host = Host::new();
    host.write(2, chunk(100));
    host.write(14, vec![0; CHUNK]);
    host.write(15, vec![0; CHUNK]);
    // Past the end of the base, and what the base has elsewhere: it is not stored again.
    host.write(90, chunk(101));
    host.write(91, chunk(0));
    let folded = host.fold();
    assert_eq!(host.install(&folded), 1);
    let packs = host.origin.keys("packs/");
    assert_eq!(packs.len(), 1);
    // Each is the same 32 bytes again and again.
    let len = host.origin.object(&packs[0]).unwrap().len();
    assert_eq!(len, 4096 + 4096 + 2 * 44);
    host.write(2, chunk(102));
    host.write(28, chunk(100));
    let folded = host.fold();
    assert_eq!(host.install(&folded), 1);
}

#[test]
fn fold_of_little_makes_a_delta_and_folds_of_it_stay_shallow() {
    let mut host = Host::over_many(50_000);
    let whole_len = host.bases[0].len();
    let mut fold_of = |first: u64, count: u64, round: u32| {
        for index in first..first + count {
            let new = content(round << 20 | index as u32, 4096);
            host.write(index, if index % 8 == 1 { vec![0; 4096] } else { new });
        }
        let folded = host.fold();
        (folded.content.len(), host.install(&folded))
    };
    let (middle_len, depth) = fold_of(20_000, 5_600, 1);
    assert_eq!(depth, 2);
    assert!(middle_len * 8 < whole_len, "{middle_len} of {whole_len} bytes");
    let (len, depth) = fold_of(18_000, 8, 2);
    assert_eq!(depth, 3);
    assert!(len * 8 < middle_len, "{len} of {middle_len} bytes");
    // No deeper: with the topmost, the middle one is too small to be left.
    let (len, depth) = fold_of(27_000, 8, 3);
    assert_eq!(depth, 1);
    assert!(len.abs_diff(whole_len) < whole_len / 10, "{len} of {whole_len} bytes");
}

#[test]
fn fold_of_much_makes_a_manifest_that_stands_alone() {
    let mut host = Host::over_many(4_000);
    for index in 0..3_000 {
        host.write(index, content(1 << 20 | index as u32, 4096));
    }
    let folded = host.fold();
    assert_eq!(host.install(&folded), 1);
}

#[test]
fn holes_of_the_base_are_told_once_they_were_prepared() {
    let unprepared = |content: &Content| -> Arc<dyn BlockView> {
        let base = memory_base(content, SIZES[0]);
        Arc::new(Unprepared { base, known: Arc::default() })
    };
    let host = Host::over(unprepared);
    let extents = || {
        let found = host.volume.extents(0, SIZES[1], ExtentQuery::Allocation, 64);
        found.iter().map(|extent| (extent.len, extent.is_hole)).collect::<Vec<_>>()
    };
    assert_eq!(extents(), [(SIZES[0], false), (SIZES[1] - SIZES[0], true)], "all may be data");
    let preparing = host.volume.prepare_extents(0, SIZES[1], 64).unwrap();
    host.runtime.block_on(preparing).unwrap();
    assert!(host.volume.prepare_extents(0, SIZES[1], 64).is_none());
    let mut expected = Vec::new();
    for (chunks, is_hole) in [(1, false), (6, true), (1, false), (1, true), (1, false), (4, true)]
        .into_iter()
        .chain([(1, false), (6, true), (1, false), (6, true), (1, false), (67, true)])
    {
        expected.push((chunks * CHUNK as u64, is_hole));
    }
    assert_eq!(extents(), expected);
}

#[test]
fn fold_over_a_damaged_manifest_is_given_up() {
    let host = Host::new();
    let lower = manifest(1, None, &Content::from([(0, chunk(0))]));
    let mut damaged = lower.clone();
    let last = damaged.len() - 4000;
    damaged[last] ^= 1;
    host.volume.replace_base(view(&Content::new(), SIZES[0]), read(&damaged, &[]));
    let done = host.volume.write(0, Bytes::from(chunk(3)), false);
    assert!(matches!(done, Done::Now(Ok(()))));
    let error = host.volume.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap_err();
    assert!(matches!(error, OverlayError::Base(_)), "{error}");
    assert_eq!(host.origin.keys("manifests/").len(), 0);
}
