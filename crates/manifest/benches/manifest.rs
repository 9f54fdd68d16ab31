//! `cargo bench -p acstor-manifest`: a look-up with all pages in memory, verifying a page, building.
#![allow(clippy::unwrap_used, reason = "a benchmark ends at the first surprise")]

use std::hint::black_box;
use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::{
    Base, Builder, CachedPages, Change, Disk, Header, MergedDisk, PAGE_LEN, Pack, PageCache,
    RawBytes, Reader, Stack, VerifiedPages, merge, verify_page,
};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackId, StoredChunk};
use divan::Bencher;
use divan::counter::ItemsCount;

/// Data chunks of the disk: 4 GiB of 64 KiB chunks.
const CHUNKS: u64 = 1 << 16;
/// Look-ups of one iteration.
const LOOK_UPS: usize = 1024;
/// Chunks of a pack.
const PACK_CHUNKS: u64 = 512;

fn main() {
    divan::main();
}

fn disk(base: Option<Base>) -> Disk {
    Disk {
        disk_id: DiskId::from_bytes([7; 16]),
        size_bytes: 1 << 40,
        chunk_size: ChunkSize::DEFAULT,
        salt: [9; 16],
        base,
    }
}

fn stored(index: u64) -> (Pack, StoredChunk) {
    let id = PackId(Digest::from_bytes([(index / PACK_CHUNKS) as u8; 32]));
    let chunk = StoredChunk {
        digest: Digest::from_bytes([index as u8; 32]),
        offset: 4096 + (index % PACK_CHUNKS) as u32 * 30_000,
        stored_len: 30_000,
        codec: Codec::Lz4,
        is_incompressible: false,
        crc: index as u32,
    };
    (Pack { id, stored_bytes: PACK_CHUNKS as u32 * 30_000, class: 0 }, chunk)
}

/// A disk whose chunks with content are every third of the first ones: a map in each span.
fn build() -> Vec<u8> {
    let mut builder = Builder::new(disk(None), Cursor::new(Vec::new())).unwrap();
    for index in 0..CHUNKS {
        let (pack, chunk) = stored(index);
        let number = builder.add_pack(pack).unwrap();
        builder.push(3 * index, number, chunk).unwrap();
    }
    builder.finish().unwrap().to_bytes().unwrap()
}

fn fold(stack: &Stack<VerifiedPages<RawBytes<Vec<u8>>>>, step: usize) -> Vec<u8> {
    let target = disk(None);
    let disk = MergedDisk {
        disk_id: target.disk_id,
        size_bytes: target.size_bytes,
        salt: [step as u8; 16],
    };
    let changes = (0..CHUNKS).step_by(step).map(|index| {
        let (pack, chunk) = stored(index);
        (3 * index, Change::Data { pack, chunk })
    });
    let mut built = merge(stack, 0, changes, disk, Cursor::new(Vec::new())).unwrap();
    built.to_bytes().unwrap()
}

fn open(bytes: &[u8]) -> Reader<VerifiedPages<RawBytes<Vec<u8>>>> {
    let header = Arc::new(Header::parse(bytes, bytes.len() as u64).unwrap());
    let raw = RawBytes(bytes.to_vec());
    Reader::new(Arc::clone(&header), VerifiedPages::new(header, Arc::default(), raw))
}

/// Manifests on each other, the topmost first, with all of their pages in one cache.
fn warm(manifests: &[Vec<u8>]) -> Stack<CachedPages> {
    let cache = Arc::new(PageCache::new(64 << 20));
    let levels = manifests.iter().map(|bytes| {
        let header = Arc::new(Header::parse(bytes, bytes.len() as u64).unwrap());
        let pages = CachedPages::new(Arc::clone(&header), Arc::clone(&cache));
        pages.admit_front(bytes).unwrap();
        Reader::new(header, pages)
    });
    Stack::new(levels.collect()).unwrap()
}

fn stack_of(depth: usize) -> Vec<Vec<u8>> {
    let mut manifests = vec![build()];
    for level in 1..depth {
        let below = Stack::new(manifests.iter().map(|bytes| open(bytes)).collect()).unwrap();
        let delta = fold(&below, 64 * level);
        manifests.insert(0, delta);
    }
    manifests
}

/// Chunks of the disk's beginning all over, data and not.
fn indexes() -> Vec<u64> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % (3 * CHUNKS)
    };
    (0..LOOK_UPS).map(|_| next()).collect()
}

/// Look-ups of random chunks, a third of them data, all pages in memory.
#[divan::bench(args = [1, 2, 3])]
fn look_up(bencher: Bencher, depth: usize) {
    let stack = warm(&stack_of(depth));
    let indexes = indexes();
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| {
        for index in &indexes {
            black_box(stack.look_up(black_box(*index)).unwrap());
        }
    });
}

/// The same of chunks with content alone, by several threads at once.
#[divan::bench(threads = [1, 2])]
fn look_up_data(bencher: Bencher) {
    let stack = warm(&stack_of(1));
    let indexes: Vec<u64> = indexes().into_iter().map(|index| index / 3 * 3).collect();
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| {
        for index in &indexes {
            black_box(stack.look_up(black_box(*index)).unwrap());
        }
    });
}

/// Digest and form of each page of a manifest.
#[divan::bench]
fn verify(bencher: Bencher) {
    let bytes = build();
    let reader = open(&bytes);
    let page_count = reader.header().sections().page_count();
    bencher.counter(ItemsCount::new(page_count - 1)).bench_local(|| {
        for number in 1..page_count {
            let start = number as usize * PAGE_LEN;
            let page = Arc::new(*bytes[start..].first_chunk().unwrap());
            black_box(verify_page(reader.header(), number, page, reader.pages()).unwrap());
        }
    });
}

/// Entries into a manifest in memory.
#[divan::bench]
fn building(bencher: Bencher) {
    bencher.counter(ItemsCount::new(CHUNKS)).bench_local(|| black_box(build()));
}

/// Entries of three levels into one whole manifest.
#[divan::bench]
fn merging(bencher: Bencher) {
    let manifests = stack_of(3);
    let stack = Stack::new(manifests.iter().map(|bytes| open(bytes)).collect()).unwrap();
    let target = disk(None);
    let merged = MergedDisk { disk_id: target.disk_id, size_bytes: 1 << 40, salt: [1; 16] };
    bencher.counter(ItemsCount::new(CHUNKS)).bench_local(|| {
        let spool = Cursor::new(Vec::new());
        black_box(merge(&stack, 3, [], merged, spool).unwrap().to_bytes().unwrap())
    });
}
