//! Manifests for tests.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; each uses some of it")]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::{
    Base, Builder, Disk, Header, ManifestError, Pack, PageCache, RawBytes, Reader, Stack,
    VerifiedPages,
};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackId, StoredChunk};

/// Chunks of the test disks, bytes.
pub const CHUNK: u32 = 4096;
/// Chunks of a span.
pub const SPAN: u64 = 8192;

pub type MemoryReader = Reader<VerifiedPages<RawBytes<Arc<[u8]>>>>;
pub type MemoryStack = Stack<VerifiedPages<RawBytes<Arc<[u8]>>>>;

/// The disk of a test: `chunks` chunks, the last one in part.
pub fn disk(chunks: u64, base: Option<Base>) -> Disk {
    Disk {
        disk_id: DiskId::from_bytes([7; 16]),
        size_bytes: (chunks * u64::from(CHUNK)).saturating_sub(512),
        chunk_size: ChunkSize::new(CHUNK).unwrap(),
        salt: [9; 16],
        base,
    }
}

/// A pack that holds `slots` chunks of [`stored`].
pub fn pack(number: u32, slots: u32) -> Pack {
    let id = PackId(Digest::of(&number.to_le_bytes()));
    Pack { id, stored_bytes: slots * 1000, class: (number % 3) as u8 }
}

/// A chunk in the `slot`-th place of a pack.
pub fn stored(content: u64, slot: u32) -> StoredChunk {
    StoredChunk {
        digest: Digest::of(&content.to_le_bytes()),
        offset: 4096 + slot * 1000,
        stored_len: 1000,
        codec: Codec::Lz4,
        is_incompressible: false,
        crc: content as u32,
    }
}

/// Builds a manifest of chunks with content, each `(pack, slots of the pack, slot)`.
pub fn build(
    disk: Disk,
    chunks: impl IntoIterator<Item = (u64, (u32, u32, u32))>,
) -> Builder<Cursor<Vec<u8>>> {
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    for (index, (number, slots, slot)) in chunks {
        let number = builder.add_pack(pack(number, slots)).unwrap();
        builder.push(index, number, stored(index, slot)).unwrap();
    }
    builder
}

/// Ends a manifest and returns its bytes.
pub fn bytes_of(builder: Builder<Cursor<Vec<u8>>>) -> Vec<u8> {
    builder.finish().unwrap().to_bytes().unwrap()
}

/// Opens a manifest that is in memory, with a cache of its own.
pub fn open(bytes: Vec<u8>) -> Result<MemoryReader, ManifestError> {
    open_with(bytes, &Arc::new(PageCache::new(4 << 20)))
}

/// Opens a manifest that is in memory.
pub fn open_with(bytes: Vec<u8>, cache: &Arc<PageCache>) -> Result<MemoryReader, ManifestError> {
    let header = Arc::new(Header::parse(&bytes, bytes.len() as u64)?);
    let raw = RawBytes(Arc::from(bytes));
    let pages = VerifiedPages::new(Arc::clone(&header), Arc::clone(cache), raw);
    Ok(Reader::new(header, pages))
}

/// Opens a stack of manifests, the topmost first.
pub fn stack(manifests: &[Vec<u8>]) -> MemoryStack {
    Stack::new(manifests.iter().map(|bytes| open(bytes.clone()).unwrap()).collect()).unwrap()
}

/// Reads everything there is of a manifest; the first thing that is wrong.
pub fn read_all(bytes: &[u8]) -> Result<(), ManifestError> {
    open(bytes.to_vec())?.check()
}

/// Data chunks of a model, ascending.
pub type Model = BTreeMap<u64, (Pack, StoredChunk)>;

/// A spool that keeps nothing: for manifests of which only the header is looked at.
#[derive(Debug, Default)]
pub struct NoSpool;

impl std::io::Read for NoSpool {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }
}

impl std::io::Write for NoSpool {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for NoSpool {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        Ok(0)
    }
}

/// Chunks of a pack of [`large_pack`].
pub const PACK_CHUNKS: u64 = 512;

/// The pack and place of the `ordinal`-th chunk of a disk of 64 KiB chunks, about half as large when
/// stored, in packs of 15 MiB.
pub fn large_pack(ordinal: u64) -> (Pack, StoredChunk) {
    let slot = (ordinal % PACK_CHUNKS) as u32;
    let id = PackId(Digest::of(&(ordinal / PACK_CHUNKS).to_le_bytes()));
    let chunk =
        StoredChunk { offset: 4096 + slot * 30_000, stored_len: 30_000, ..stored(ordinal, 0) };
    (Pack { id, stored_bytes: PACK_CHUNKS as u32 * 30_000, class: 0 }, chunk)
}

/// A disk of 64 KiB chunks.
pub fn large_disk(size_bytes: u64, base: Option<Base>) -> Disk {
    Disk { size_bytes, chunk_size: ChunkSize::DEFAULT, ..disk(1, base) }
}

/// Builds a manifest of a large disk; the last pack may be used in part.
pub fn build_large<W: std::io::Read + std::io::Write + std::io::Seek>(
    disk: Disk,
    chunks: impl IntoIterator<Item = u64>,
    spool: W,
) -> acstor_manifest::Built<W> {
    let mut builder = Builder::new(disk, spool).unwrap();
    let mut number = 0;
    for (ordinal, index) in chunks.into_iter().enumerate() {
        let (pack, chunk) = large_pack(ordinal as u64);
        if (ordinal as u64).is_multiple_of(PACK_CHUNKS) {
            number = builder.add_pack(pack).unwrap();
        }
        builder.push(index, number, chunk).unwrap();
    }
    builder.finish().unwrap()
}
