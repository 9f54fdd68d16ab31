//! Disks by manifests of format 2 in an origin in memory; all that they say of a chunk is compared.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use acstor_manifest::{
    Header, MANIFEST_VERSION, Pack, PageCache, RawBytes, Reader, Stack, VerifiedPages,
};
use acstor_pack::{ChunkDecompressor, PackHeader, PackTable};
use acstor_readpath::{DiskManifest, ManifestFile, ManifestSource};
use acstor_types::bytes_le::u32_at;
use acstor_types::{Digest, PackClass, StoredChunk};
use bytes::Bytes;

use crate::scenarios::memory_origin::MemoryOrigin;

/// Chunks with content: how each is stored, and as guests read it.
pub(crate) type Chunks = BTreeMap<u64, (StoredChunk, Vec<u8>)>;

/// Manifests on top of each other, the topmost first.
#[derive(Clone, Debug)]
pub(crate) struct PagedDisk {
    pub(crate) levels: Vec<Bytes>,
}

fn header(manifest: &Bytes) -> Header {
    Header::parse(manifest, manifest.len() as u64).unwrap()
}

impl PagedDisk {
    /// Takes a manifest and those below it out of the origin; `None` for one of format 1.
    pub(crate) fn of(origin: &MemoryOrigin, digest: &Digest) -> Option<PagedDisk> {
        let mut levels = vec![origin.manifest_bytes(digest)];
        if u32_at(&levels[0], 8) != MANIFEST_VERSION {
            return None;
        }
        while let Some(base) = header(&levels[levels.len() - 1]).base() {
            levels.push(origin.manifest_bytes(&base));
        }
        Some(PagedDisk { levels })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        header(&self.levels[0]).size_bytes()
    }

    /// The manifest as a host reads it from files.
    pub(crate) fn manifest(&self) -> DiskManifest {
        let mut files = self.levels.iter().map(|level| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(level).unwrap();
            file
        });
        let top = files.next().unwrap();
        ManifestFile::with_bases(top, files.collect()).unwrap().read().unwrap()
    }

    /// Returns the chunks, whose packs are in the origin.
    pub(crate) fn chunks(&self, origin: &MemoryOrigin) -> Chunks {
        let cache = Arc::new(PageCache::default());
        let readers = self.levels.iter().map(|bytes| {
            let header = Arc::new(header(bytes));
            let pages = VerifiedPages::new(header.clone(), cache.clone(), RawBytes(bytes.clone()));
            Reader::new(header, pages)
        });
        let stack = Stack::new(readers.collect()).unwrap();
        stack.levels()[0].check().unwrap();
        let chunk_len = stack.header().chunk_size().bytes();
        let entries = stack.entries(0..stack.header().chunk_count()).map(|found| {
            let found = found.unwrap();
            let pack = stack.levels()[found.level].pack(found.entry.pack).unwrap().pack;
            let stored = found.entry.chunk;
            let plain = plain_chunk(origin, pack, &stored, chunk_len).expect("the pack is there");
            (found.index, (stored, plain))
        });
        entries.collect()
    }
}

/// Returns a chunk of a pack that a fold has stored, once all that is said of it was compared; `None`: there is
/// no such pack.
pub(crate) fn plain_chunk(
    origin: &MemoryOrigin,
    pack: Pack,
    stored: &StoredChunk,
    chunk_len: usize,
) -> Option<Vec<u8>> {
    let name = pack.id.0.to_string();
    let bytes = origin.object(&format!("packs/{}/{name}", &name[..2]))?;
    let header = PackHeader::parse(&bytes).unwrap();
    assert_eq!((header.class, pack.class), (PackClass::Volume, PackClass::Volume as u8));
    assert_eq!((header.chunk_size.bytes(), header.size_bytes()), (chunk_len, bytes.len() as u64));
    let records = bytes.slice(header.table_offset as usize..);
    let table = PackTable::parse(header, &pack.id, records).unwrap();
    let stored_bytes: u32 = table.chunks().map(|chunk| chunk.stored_len).sum();
    assert_eq!(pack.stored_bytes, stored_bytes);
    assert!(table.chunks().any(|chunk| chunk == *stored));
    let stored_bytes = bytes.slice(stored.offset as usize..).slice(..stored.stored_len as usize);
    let mut plain = vec![0; chunk_len];
    ChunkDecompressor::new().decompress(stored, &stored_bytes, &mut plain).unwrap();
    Some(plain)
}
