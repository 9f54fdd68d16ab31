//! Reads that find pages in memory or say which one to fetch.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::{
    CachedPages, Found, Header, ManifestError, PAGE_LEN, PageBytes, PageCache, PageError, Reader,
    VerifiedPages,
};
use acstor_types::ErrorKind;

use support::{build_large, large_disk, stored};

/// Entries of a manifest with an index of two levels.
const CHUNKS: u64 = 1 << 16;

fn manifest() -> Vec<u8> {
    let chunks = (0..CHUNKS).map(|index| 2 * index);
    build_large(large_disk(1 << 40, None), chunks, Cursor::new(Vec::new())).to_bytes().unwrap()
}

fn page(bytes: &[u8], number: u32) -> Arc<PageBytes> {
    Arc::new(*bytes[number as usize * PAGE_LEN..].first_chunk().unwrap())
}

fn open(bytes: &[u8], cache: &Arc<PageCache>) -> Reader<CachedPages> {
    let header = Arc::new(Header::parse(bytes, bytes.len() as u64).unwrap());
    let pages = CachedPages::new(Arc::clone(&header), Arc::clone(cache));
    Reader::new(header, pages)
}

/// Looks up as a read path does that may fetch pages; returns how many it fetched.
fn look_up_fetching(reader: &Reader<CachedPages>, bytes: &[u8], index: u64) -> (Found, u32) {
    let mut fetched = 0;
    for _ in 0..4 {
        match reader.look_up(index) {
            Ok(found) => return (found, fetched),
            Err(PageError::Missing { manifest, page: wanted }) => {
                assert_eq!(manifest, reader.header().name());
                for number in reader.pages().missing(wanted).unwrap() {
                    reader.pages().admit(number, page(bytes, number)).unwrap();
                    fetched += 1;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("chunk {index} is not found with three pages");
}

#[test]
fn test_missing_pages_are_named_one_by_one() {
    let bytes = manifest();
    let cache = Arc::new(PageCache::new(16 << 20));
    let reader = open(&bytes, &cache);
    let error = reader.look_up(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let first = reader.header().sections().entries.start;
    // A page of which nothing above is here cannot be admitted.
    let refused = reader.pages().admit(first, page(&bytes, first)).unwrap_err();
    assert!(matches!(refused, PageError::Missing { .. }), "{refused}");
    let (found, fetched) = look_up_fetching(&reader, &bytes, 0);
    assert!(matches!(found, Found::Data(entry) if entry.chunk.digest == stored(0, 0).digest));
    // Directory, map, entries; the index: its top, and at most one page for each of them.
    assert!(fetched <= 7, "{fetched}");
    assert_eq!(look_up_fetching(&reader, &bytes, 1), (Found::Zero, 0));
    assert_eq!(look_up_fetching(&reader, &bytes, 2).1, 0, "the same pages");
    let stats = cache.stats();
    assert!(stats.pages <= 7, "{stats:?}");
    assert!(stats.hits > 0 && stats.misses == 0, "nothing was read by these: {stats:?}");
}

#[test]
fn test_front_of_a_manifest_leaves_only_entries_to_fetch() {
    let bytes = manifest();
    let reader = open(&bytes, &Arc::new(PageCache::new(64 << 20)));
    let entries = reader.header().sections().entries.clone();
    reader.pages().admit_front(&bytes[..entries.start as usize * PAGE_LEN + 100]).unwrap();
    for index in [0, 2000, CHUNKS, 2 * CHUNKS - 2] {
        match reader.look_up(index).unwrap_err() {
            PageError::Missing { page, .. } => assert!(entries.contains(&page), "page {page}"),
            error => panic!("{error}"),
        }
        assert_eq!(look_up_fetching(&reader, &bytes, index).1, 1);
    }
    // A front that ends within the index is of use as far as it goes.
    let reader = open(&bytes, &Arc::new(PageCache::new(64 << 20)));
    let index = reader.header().sections().index.clone();
    reader.pages().admit_front(&bytes[..(index.start as usize + 2) * PAGE_LEN]).unwrap();
    assert!(look_up_fetching(&reader, &bytes, 0).1 >= 3);
    reader.pages().admit_front(&[]).unwrap();
}

#[test]
fn test_pages_of_others_are_not_admitted() {
    let bytes = manifest();
    let reader = open(&bytes, &Arc::new(PageCache::new(64 << 20)));
    reader.pages().admit_front(&bytes).unwrap();
    let entries = reader.header().sections().entries.start;
    for (number, content) in [(entries, entries + 1), (entries, 0), (1, entries), (0, 1)] {
        let error = reader.pages().admit(number, page(&bytes, content)).unwrap_err();
        assert_eq!(error, PageError::Manifest(ManifestError::Page(number)));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let past = reader.header().sections().page_count();
    let error = reader.pages().admit(past, page(&bytes, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut damaged = bytes.clone();
    damaged[entries as usize * PAGE_LEN] ^= 1;
    assert!(reader.pages().admit_front(&damaged).is_err());
}

#[test]
fn test_smallest_cache_is_enough_for_every_reader() {
    let bytes = manifest();
    let cache = Arc::new(PageCache::new(0));
    let header = Arc::new(Header::parse(&bytes, bytes.len() as u64).unwrap());
    let raw = acstor_manifest::RawBytes(Arc::<[u8]>::from(bytes));
    let pages = VerifiedPages::new(Arc::clone(&header), Arc::clone(&cache), raw);
    let reader = Reader::new(header, pages);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let reader = &reader;
            scope.spawn(move || {
                for number in 0..500 {
                    let ordinal = (number * 7919 + thread * 104_729) % CHUNKS;
                    let found = reader.look_up(2 * ordinal).unwrap();
                    let digest = stored(ordinal, 0).digest;
                    assert!(matches!(found, Found::Data(entry) if entry.chunk.digest == digest));
                    assert_eq!(reader.look_up(2 * ordinal + 1).unwrap(), Found::Zero);
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.pages <= 16 && stats.evictions > 100, "{stats:?}");
}
