//! Memory that building and reading take, counted by the allocator.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use acstor_manifest::{Header, PAGE_LEN, PageCache, RawBytes, Reader, Stack, VerifiedPages};

use support::{NoSpool, SPAN, build_large, large_disk};

const TIB: u64 = 1 << 40;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn add(bytes: usize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: all is left to the system's allocator; the counters are the thread's and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // What another thread allocated was not counted here.
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs something; returns its result, and the most bytes that it had at once.
fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    (result, PEAK.get() - before)
}

#[test]
fn test_building_keeps_no_entries() {
    // 64 GiB without a hole: 51 MB.
    let (built, peak) = peak_of(|| build_large(large_disk(TIB / 16, None), 0..TIB >> 20, NoSpool));
    assert!(built.header().len_bytes() > 50_000_000);
    assert!(peak < 3 * MIB, "{peak} bytes");
}

#[test]
fn test_building_keeps_maps_small() {
    // Two runs in each of 8,192 spans: 36 MB, nearly all of it maps.
    let chunks = (0..8192).flat_map(|n| [n * 16 * SPAN, n * 16 * SPAN + 2]);
    let (built, peak) = peak_of(|| build_large(large_disk(64 * TIB, None), chunks, NoSpool));
    assert!(built.header().len_bytes() > 35_000_000);
    assert!(peak < 6 * MIB, "{peak} bytes");
}

#[test]
fn test_reading_keeps_what_the_cache_holds() {
    const CACHE: usize = MIB;
    let spool = std::io::Cursor::new(Vec::new());
    let chunks = (0..1 << 18).map(|n| n * 2);
    let mut built = build_large(large_disk(64 * TIB, None), chunks, spool);
    let bytes = built.to_bytes().unwrap();
    assert!(bytes.len() > 10 * MIB);
    let ((), peak) = peak_of(|| {
        let header = Arc::new(Header::parse(&bytes, bytes.len() as u64).unwrap());
        let cache = Arc::new(PageCache::new(CACHE));
        let pages = VerifiedPages::new(Arc::clone(&header), Arc::clone(&cache), RawBytes(&bytes));
        let stack = Stack::new(vec![Reader::new(header, pages)]).unwrap();
        assert_eq!(stack.entries(0..u64::MAX).count(), 1 << 18);
        assert_eq!(stack.data_runs(0..u64::MAX).count(), 1 << 18);
        for index in (0..1 << 20).step_by(1001) {
            stack.look_up(index).unwrap();
        }
        assert_eq!(cache.stats().pages as usize, CACHE / PAGE_LEN);
    });
    assert!(peak < CACHE + 128 * KIB, "{peak} bytes");
}

#[test]
fn test_header_takes_little_whatever_it_claims() {
    let built = build_large(large_disk(64 * TIB, None), (0..256).map(|n| n << 22), NoSpool);
    let mut bytes = Vec::new();
    // The entries are not there; the header is.
    let _ = { built }.write_to(&mut bytes);
    let len = bytes.len().next_multiple_of(PAGE_LEN) as u64;
    let whole = u64::from(256_u32.div_ceil(85)) * PAGE_LEN as u64 + len;
    let (header, peak) = peak_of(|| Header::parse(&bytes, whole));
    assert_eq!(header.unwrap().counts().directories, 256);
    assert!(peak < 32 * KIB, "{peak} bytes");
    // All numbers as large as they may be, of a file that is not there.
    for (at, value) in [(192, 1_u32 << 30), (196, 1 << 22), (200, 1 << 30), (204, 1 << 17)] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..PAGE_LEN - 4]);
    bytes[PAGE_LEN - 4..PAGE_LEN].copy_from_slice(&crc.to_le_bytes());
    let (header, peak) = peak_of(|| Header::parse(&bytes, whole));
    assert!(matches!(header, Err(acstor_manifest::ManifestError::Length { .. })), "{header:?}");
    assert!(peak < 32 * KIB, "{peak} bytes");
}
