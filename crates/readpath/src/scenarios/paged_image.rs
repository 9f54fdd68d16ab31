//! Disks with manifests of format 2, compressed chunks, and a local disk that can hold pages back.

use std::collections::BTreeMap;
use std::io::{self, Cursor};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_manifest::{Base, Builder, Disk, Header, PAGE_LEN, Pack, PageBytes, RawPages};
use acstor_pack::{ChunkCompressor, CompressionPolicy};
use acstor_types::{ChunkSize, Digest, DiskId, PACK_DATA_OFFSET, PackId, StoredChunk};
use parking_lot::{Condvar, Mutex};

use super::image::CHUNK;
use super::test_origin::TestOrigin;
use crate::{DiskManifest, DiskShape, ManifestFault, ManifestSource, PageFile, PagedManifest};

/// Chunks of one pack.
const PACK_CHUNKS: usize = 16;

/// A disk: its manifest and the content of its chunks that have any.
pub(crate) struct PagedImage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) chunks: BTreeMap<u64, Vec<u8>>,
}

/// Content of a chunk, which pays to be compressed.
pub(crate) fn content(number: u8, index: u64) -> Vec<u8> {
    let text = format!("chunk {index} of disk {number}, ");
    text.bytes().cycle().take(CHUNK).collect()
}

/// A chunk as its pack has it, without its place.
pub(crate) fn stored(content: &[u8]) -> (StoredChunk, Vec<u8>) {
    let mut compressor = ChunkCompressor::new(CompressionPolicy::Fast);
    let form = compressor.compress(content);
    let chunk = StoredChunk {
        digest: Digest::of(content),
        offset: PACK_DATA_OFFSET as u32,
        stored_len: form.bytes.len() as u32,
        codec: form.codec,
        is_incompressible: form.is_incompressible,
        crc: form.crc,
    };
    (chunk, form.bytes.to_vec())
}

/// Properties of a disk of chunks of the tests' size.
pub(crate) fn disk(number: u8, size_bytes: u64, base: Option<Base>) -> Disk {
    let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
    Disk { disk_id: DiskId::from_bytes([number; 16]), size_bytes, chunk_size, salt: [3; 16], base }
}

impl PagedImage {
    /// Makes a disk and puts its packs, which are named after `place`, into the origin.
    pub(super) fn register(
        number: u8,
        size_bytes: u64,
        indexes: impl IntoIterator<Item = u64>,
        place: &str,
        origin: &TestOrigin,
    ) -> PagedImage {
        let indexes: Vec<u64> = indexes.into_iter().collect();
        let disk = disk(number, size_bytes, None);
        let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
        let mut chunks = BTreeMap::new();
        for (pack_number, indexes) in indexes.chunks(PACK_CHUNKS).enumerate() {
            let id = PackId(Digest::of(format!("{place} {number} {pack_number}").as_bytes()));
            let forms: Vec<_> =
                indexes.iter().map(|index| stored(&content(number, *index))).collect();
            let stored_bytes = forms.iter().map(|(chunk, _)| chunk.stored_len).sum();
            let pack = builder.add_pack(Pack { id, stored_bytes, class: 0 }).unwrap();
            let mut offset = PACK_DATA_OFFSET as u32;
            for (index, (chunk, bytes)) in indexes.iter().zip(forms) {
                builder.push(*index, pack, StoredChunk { offset, ..chunk }).unwrap();
                origin.put(id, offset as usize, &bytes);
                offset += chunk.stored_len;
                chunks.insert(*index, content(number, *index));
            }
        }
        let bytes = builder.finish().unwrap().to_bytes().unwrap();
        PagedImage { bytes, chunks }
    }

    pub(super) fn header(&self) -> Arc<Header> {
        Arc::new(Header::parse(&self.bytes, self.bytes.len() as u64).unwrap())
    }

    pub(super) fn shape(&self) -> DiskShape {
        DiskShape::from(&*self.header())
    }

    /// The bytes of chunk `index`.
    pub(super) fn chunk(&self, index: u64) -> Vec<u8> {
        self.chunks.get(&index).cloned().unwrap_or_else(|| vec![0; CHUNK])
    }

    pub(super) fn source(&self) -> Arc<PagedSource> {
        let pages = Arc::new(TestPages::of(&self.bytes));
        Arc::new(PagedSource { header: self.header(), pages })
    }
}

/// A manifest of format 2 on a disk that takes as long as a test wants.
pub(super) struct PagedSource {
    header: Arc<Header>,
    pub(super) pages: Arc<TestPages>,
}

impl ManifestSource for PagedSource {
    fn read(&self) -> Result<DiskManifest, ManifestFault> {
        Ok(self.manifest()?.into())
    }

    fn read_paged(&self) -> Result<Option<PagedManifest>, ManifestFault> {
        self.manifest().map(Some)
    }
}

impl PagedSource {
    fn manifest(&self) -> Result<PagedManifest, ManifestFault> {
        PagedManifest::new(vec![(self.header.clone(), self.pages.clone())])
    }
}

/// Pages in memory that are held back, and damaged, as a test wants.
#[derive(Default)]
pub(crate) struct TestPages {
    pub(crate) bytes: Mutex<Vec<u8>>,
    reads: AtomicUsize,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl PageFile for TestPages {
    fn write(&self, number: u32, page: &PageBytes) -> io::Result<()> {
        let start = number as usize * PAGE_LEN;
        self.bytes.lock()[start..start + PAGE_LEN].copy_from_slice(page);
        Ok(())
    }

    fn next_hole(&self, _: Range<u32>) -> Option<Range<u32>> {
        None
    }
}

impl TestPages {
    pub(crate) fn of(bytes: &[u8]) -> TestPages {
        TestPages { bytes: Mutex::new(bytes.to_vec()), ..TestPages::default() }
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Keeps all reads waiting until they are released.
    pub(super) fn hold(&self) {
        *self.is_held.lock() = true;
    }

    pub(super) fn release(&self) {
        *self.is_held.lock() = false;
        self.released.notify_all();
    }

    /// Flips a bit in a page.
    pub(super) fn damage(&self, page: u32) {
        self.bytes.lock()[page as usize * PAGE_LEN + 5] ^= 1;
    }
}

impl RawPages for TestPages {
    type Error = ManifestFault;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), ManifestFault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.released.wait_while(&mut self.is_held.lock(), |is_held| *is_held);
        let start = number as usize * PAGE_LEN;
        page.copy_from_slice(&self.bytes.lock()[start..start + PAGE_LEN]);
        Ok(())
    }
}
