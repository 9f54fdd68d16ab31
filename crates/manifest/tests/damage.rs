//! Damaged, truncated and hostile manifests: refused, by whichever page shows it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::{
    Base, BuildError, Builder, Disk, Header, ManifestError, PAGE_LEN, PageCache, PageKind,
    PageSource, Summary, layout, limits,
};
use acstor_types::{ChunkSize, Digest, ErrorKind};

use support::{SPAN, build, bytes_of, disk, open, open_with, pack, read_all, stored};

/// A delta with every kind of page, and of span.
fn delta() -> Vec<u8> {
    let base = Base { name: Digest::of(b"base"), depth: 2 };
    let mut builder = Builder::new(disk(600 * SPAN, Some(base)), Cursor::new(Vec::new())).unwrap();
    // A run, a map with zeros, zeros alone, alternation, and something in the second directory.
    for index in 10..40_u64 {
        let number = builder.add_pack(pack(1, 40)).unwrap();
        builder.push(index, number, stored(index, index as u32 - 10)).unwrap();
    }
    builder.push_zeros(SPAN..SPAN + 5).unwrap();
    let number = builder.add_pack(pack(2, 1)).unwrap();
    builder.push(SPAN + 8, number, stored(99, 0)).unwrap();
    builder.push_zeros(2 * SPAN..4 * SPAN).unwrap();
    for index in (4 * SPAN..4 * SPAN + 200).step_by(2) {
        let number = builder.add_pack(pack(3, 500)).unwrap();
        builder.push(index, number, stored(index, (index - 4 * SPAN) as u32)).unwrap();
    }
    builder.push(599 * SPAN, number, stored(99, 0)).unwrap();
    bytes_of(builder)
}

fn kinds(bytes: &[u8]) -> Vec<PageKind> {
    let header = Header::parse(bytes, bytes.len() as u64).unwrap();
    (0..header.sections().page_count()).map(|n| header.sections().kind_of(n).unwrap()).collect()
}

#[test]
fn test_flipped_byte_of_every_page_is_refused() {
    let good = delta();
    read_all(&good).unwrap();
    let mut seen = Vec::new();
    for (number, kind) in kinds(&good).into_iter().enumerate() {
        for offset in (0..PAGE_LEN).step_by(61).chain([PAGE_LEN - 1]) {
            let mut bad = good.clone();
            bad[number * PAGE_LEN + offset] ^= 0x10;
            let Err(error) = read_all(&bad) else { panic!("page {number}, {kind:?}: {offset}") };
            if kind != PageKind::Header {
                assert_eq!(error, ManifestError::Page(number as u32), "{kind:?}: {offset}");
            }
        }
        seen.push(kind);
    }
    seen.dedup();
    let all = [
        PageKind::Header,
        PageKind::PackRecords,
        PageKind::PackRuns,
        PageKind::Index,
        PageKind::Directory,
        PageKind::Map,
        PageKind::Entries,
    ];
    assert_eq!(seen, all);
}

#[test]
fn test_damage_elsewhere_does_not_keep_a_page_from_being_read() {
    let good = delta();
    let page_count = good.len() / PAGE_LEN;
    let mut bad = good.clone();
    bad[(page_count - 1) * PAGE_LEN] ^= 1;
    let reader = open(bad).unwrap();
    assert!(reader.pages().page(page_count as u32 - 1).is_err());
    assert!(reader.look_up(10).is_ok());
}

#[test]
fn test_every_byte_of_the_header_counts() {
    let good = delta();
    for offset in 0..PAGE_LEN {
        let mut bad = good.clone();
        bad[offset] ^= 1;
        assert!(Header::parse(&bad, bad.len() as u64).is_err(), "byte {offset}");
    }
    let name = Header::parse(&good, good.len() as u64).unwrap().name();
    assert!(Header::open(&good, good.len() as u64, &name).is_ok());
    let other = Header::open(&good, good.len() as u64, &Digest::of(b"other")).unwrap_err();
    assert!(matches!(other, ManifestError::Name { .. }), "{other}");
    assert_eq!(other.kind(), ErrorKind::Corrupt);
}

#[test]
fn test_other_lengths_are_refused() {
    let good = delta();
    let len = good.len() as u64;
    for wrong in [0, 1, 4095, 4096, len - 4096, len - 1, len + 1, len + 4096, u64::MAX] {
        let front = &good[..good.len().min(wrong as usize)];
        let error = Header::parse(front, wrong).unwrap_err();
        assert!(matches!(error, ManifestError::Length { .. }), "{wrong}: {error}");
    }
    // A file that was cut after its header had been read.
    let header = Arc::new(Header::parse(&good, len).unwrap());
    let cut = acstor_manifest::RawBytes(good[..good.len() - 1].to_vec());
    let pages = acstor_manifest::VerifiedPages::new(header, Arc::default(), cut);
    assert!(matches!(pages.page(len as u32 / 4096 - 1), Err(ManifestError::Length { .. })));
    assert!(matches!(pages.page(len as u32 / 4096), Err(ManifestError::Length { .. })));
}

/// Changes a page and repairs every digest above it, as somebody would who wants to be believed.
fn forge(good: &[u8], number: u32, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let header = Header::parse(good, good.len() as u64).unwrap();
    let mut bytes = good.to_vec();
    let page = |number: u32| number as usize * PAGE_LEN..(number as usize + 1) * PAGE_LEN;
    change(&mut bytes[page(number)]);
    let summary = header.sections().summary();
    let range = page(summary.start).start..page(summary.end).start;
    let digest = Digest::of(&bytes[range]);
    bytes[layout::SUMMARY_DIGEST_AT..][..32].copy_from_slice(digest.as_bytes());
    let mut at = number;
    loop {
        let digest = Digest::of(&bytes[page(at)]);
        match header.parent(at).unwrap() {
            acstor_manifest::Parent::Name => break,
            acstor_manifest::Parent::Header => {
                bytes[layout::TOP_DIGEST_AT..][..32].copy_from_slice(digest.as_bytes());
                at = 0;
            }
            acstor_manifest::Parent::Page { number, offset } => {
                bytes[page(number)][offset..offset + 32].copy_from_slice(digest.as_bytes());
                at = number;
            }
        }
    }
    let crc = crc32fast::hash(&bytes[..layout::CRC_AT]);
    bytes[layout::CRC_AT..PAGE_LEN].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn first_of(bytes: &[u8], kind: PageKind) -> u32 {
    kinds(bytes).iter().position(|one| *one == kind).unwrap() as u32
}

#[test]
fn test_forged_pages_are_refused_for_what_they_say() {
    let good = delta();
    read_all(&forge(&good, 0, |_| {})).unwrap();
    let put = |at: usize, value: u64| {
        move |page: &mut [u8]| page[at..at + 8].copy_from_slice(&value.to_le_bytes())
    };
    let or = |at: usize, byte: u8| move |page: &mut [u8]| page[at] |= byte;
    let xor = |at: usize, byte: u8| move |page: &mut [u8]| page[at] ^= byte;
    type Change = Box<dyn Fn(&mut [u8])>;
    let cases: Vec<(PageKind, Change, &str)> = vec![
        (PageKind::PackRecords, Box::new(or(38, 0xff)), "used bytes of a pack"),
        (PageKind::PackRecords, Box::new(or(40, 0xff)), "runs of a pack"),
        (PageKind::PackRecords, Box::new(or(4095, 1)), "bytes after the last record"),
        (PageKind::PackRuns, Box::new(put(0, 0)), "run of bytes"),
        (PageKind::PackRuns, Box::new(or(4095, 1)), "bytes after the last record"),
        (PageKind::Directory, Box::new(put(0, 0)), "ordinals of a directory"),
        (PageKind::Directory, Box::new(put(0, 1)), "ordinals of a directory"),
        (PageKind::Directory, Box::new(put(8, 4)), "directory slot"),
        (PageKind::Directory, Box::new(xor(16, 2)), "ordinals of a directory"),
        (PageKind::Directory, Box::new(or(0, 4)), "ordinals of a directory"),
        (PageKind::Directory, Box::new(put(0, 2 | 8191 << 34 | 29 << 47)), "run past the end"),
        (PageKind::Map, Box::new(or(1025, 1)), "data and zeros"),
        (PageKind::Map, Box::new(or(1023, 0x80)), "count of a map"),
        (PageKind::Map, Box::new(or(2048, 1)), "ranks of a map"),
        (PageKind::Map, Box::new(or(2304, 1)), "bytes after the last record"),
        (PageKind::Entries, Box::new(or(3, 1)), "number of a pack"),
        (PageKind::Entries, Box::new(or(42, 1)), "stored length"),
        (PageKind::Entries, Box::new(or(43, 0x40)), "codec"),
        (PageKind::Entries, Box::new(put(36, 0)), "stored length"),
        (PageKind::Entries, Box::new(|page| page[36..40].fill(0xff)), "offset of a chunk"),
        (PageKind::Entries, Box::new(|page| page[36..40].fill(0)), "offset of a chunk"),
        (PageKind::Entries, Box::new(or(4090, 1)), "bytes after the last record"),
    ];
    for (number, (kind, change, expected)) in cases.into_iter().enumerate() {
        let bad = forge(&good, first_of(&good, kind), change);
        let Err(error) = read_all(&bad) else { panic!("case {number}, {kind:?}: accepted") };
        assert!(error.to_string().contains(expected), "case {number}, {kind:?}: {error}");
    }
}

#[test]
fn test_contradictions_between_pages_are_found_by_a_check() {
    let good = delta();
    // A chunk's bit moves to another place: count and ranks stay.
    let map = first_of(&good, PageKind::Map);
    let moved = forge(&good, map, |page| page[1] = page[1].rotate_left(1));
    read_all(&moved).unwrap();
    let reader = open(moved).unwrap();
    assert_eq!(reader.header().content_name(), None, "a delta's content has no name");
    // An entry that uses other bytes than the summary says.
    let entries = first_of(&good, PageKind::Entries);
    let elsewhere = forge(&good, entries, |page| page[37] ^= 0x40);
    assert_eq!(read_all(&elsewhere), Err(ManifestError::Corrupt("usage of a pack")));
    // The same in a whole manifest, and other content.
    let whole = bytes_of(build(disk(SPAN, None), (0..100).map(|n| (n, (1, 200, n as u32)))));
    let entries = first_of(&whole, PageKind::Entries);
    let other = forge(&whole, entries, |page| page[4] ^= 1);
    assert_eq!(read_all(&other), Err(ManifestError::Corrupt("name of the content")));
}

#[test]
fn test_summary_is_verified_as_a_whole() {
    let good = delta();
    let header = Header::parse(&good, good.len() as u64).unwrap();
    let range = header.sections().summary();
    let bytes = &good[range.start as usize * PAGE_LEN..range.end as usize * PAGE_LEN];
    let summary = Summary::parse(&header, bytes).unwrap();
    let used: Vec<_> = summary.packs().map(|one| (one.pack, one.used_bytes)).collect();
    assert_eq!(used, [(pack(1, 40), 30_000), (pack(2, 1), 1000), (pack(3, 500), 100_000)]);
    let runs: Vec<_> = summary.packs().map(|one| summary.runs(&one)).collect();
    assert_eq!(runs[0], std::slice::from_ref(&(4096..34_096)));
    assert_eq!(runs[1], []);
    assert_eq!(runs[2].len(), 100);
    for at in (0..bytes.len()).step_by(37) {
        let mut bad = bytes.to_vec();
        bad[at] ^= 1;
        assert!(Summary::parse(&header, bad).is_err(), "byte {at}");
    }
    assert!(Summary::parse(&header, &bytes[1..]).is_err());
    // Runs that are well formed each, and not together.
    let runs_page = first_of(&good, PageKind::PackRuns);
    for change in [8..16, 0..8] {
        let bad = forge(&good, runs_page, |page| page.copy_within(change.clone(), 16));
        let header = Header::parse(&bad, bad.len() as u64).unwrap();
        let bytes = &bad[range.start as usize * PAGE_LEN..range.end as usize * PAGE_LEN];
        let error = Summary::parse(&header, bytes).unwrap_err();
        assert_eq!(error, ManifestError::Corrupt("order of the runs of a pack"));
    }
}

/// The header of a delta with a field changed, and its checksum repaired.
fn with_field(at: usize, bytes: &[u8]) -> Result<Header, ManifestError> {
    let good = delta();
    let mut page = good[..PAGE_LEN].to_vec();
    page[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32fast::hash(&page[..layout::CRC_AT]);
    page[layout::CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    Header::parse(&page, good.len() as u64)
}

#[test]
fn test_limits_of_the_header() {
    let number = |value: u32| value.to_le_bytes();
    assert_eq!(with_field(8, &number(1)), Err(ManifestError::Version(1)));
    assert_eq!(with_field(8, &number(3)), Err(ManifestError::Version(3)));
    assert_eq!(with_field(0, b"ACSTPACK"), Err(ManifestError::Magic));
    assert_eq!(with_field(12, &number(0x8000_0001)), Err(ManifestError::Features(0x8000_0001)));
    let range = |at, bytes: &[u8]| match with_field(at, bytes) {
        Err(ManifestError::Range(what)) => what,
        other => panic!("{at}: {other:?}"),
    };
    assert_eq!(range(32, &(limits::DISK_SIZE_MAX + 1).to_le_bytes()), "disk size");
    assert_eq!(range(32, &u64::MAX.to_le_bytes()), "disk size");
    // 64 TiB of chunks of 4 KiB.
    assert_eq!(range(32, &limits::DISK_SIZE_MAX.to_le_bytes()), "disk size for this size of chunk");
    assert_eq!(range(40, &number(65_535)), "chunk size");
    assert_eq!(range(44, &number(0)), "depth");
    assert_eq!(range(44, &number(4)), "depth");
    assert_eq!(range(44, &number(0x0100_0003)), "depth");
    assert_eq!(range(44, &number(1)), "base for this depth");
    assert_eq!(range(64, &[0; 32]), "base for this depth");
    assert_eq!(range(96, &[1; 32]), "content name for this depth");
    assert_eq!(range(160, &[0; 32]), "digest of the index");
    assert_eq!(range(192, &number(u32::MAX)), "number of data chunks");
    assert_eq!(range(192, &number(0)), "number of packs");
    assert_eq!(range(196, &number(limits::PACKS_MAX + 1)), "number of packs");
    assert_eq!(range(196, &number(0)), "packs for this many data chunks");
    assert_eq!(range(200, &number(u32::MAX)), "number of runs");
    assert_eq!(range(204, &number(601)), "number of maps");
    assert_eq!(range(1024, &number(0)), "first ordinal of a directory");
    assert_eq!(range(1024, &number(1 << 31 | 1)), "first ordinal of a directory");
    assert_eq!(range(1028, &number(1 << 31 | 1 << 30)), "first ordinal of a directory");
    assert_eq!(range(1028, &number(5)), "first ordinal of a directory");
    assert_eq!(range(1032, &number(1 << 31)), "directory past the end of the disk");
    assert_eq!(range(208, &[1]), "reserved bytes of the header");
    assert_eq!(range(4091, &[1]), "reserved bytes of the header");
    let counts = with_field(204, &number(600));
    assert!(matches!(counts, Err(ManifestError::Length { .. })), "{counts:?}");
}

#[test]
fn test_builder_refuses_what_no_manifest_has() {
    let spool = || Cursor::new(Vec::new());
    let whole = disk(100, None);
    let refused = |disk: Disk| match Builder::new(disk, spool()) {
        Err(BuildError::Manifest(ManifestError::Range(what))) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Disk { size_bytes: limits::DISK_SIZE_MAX + 1, ..whole }), "disk size");
    let large = Disk { size_bytes: limits::DISK_SIZE_MAX, ..whole };
    assert_eq!(refused(large), "disk size for this size of chunk");
    let base = |depth| Some(Base { name: Digest::of(b"base"), depth });
    assert_eq!(refused(Disk { base: base(3), ..whole }), "depth");
    assert_eq!(refused(Disk { base: base(255), ..whole }), "depth");
    assert!(Builder::new(Disk { base: base(2), ..whole }, spool()).is_ok());

    let mut builder = build(whole, [(5, (1, 3, 0))]);
    for index in [0, 5, 100, u64::MAX] {
        let error = builder.push(index, 0, stored(1, 0)).unwrap_err();
        assert!(matches!(error, BuildError::Order(found) if found == index), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(builder.push_zeros(6..7).unwrap_err().to_string().contains("whole manifest"));
    builder.push_zeros(7..7).unwrap();
    assert!(builder.push(6, 1, stored(1, 0)).is_err(), "no such pack");
    let other_class = acstor_manifest::Pack { class: 9, ..pack(1, 3) };
    assert!(builder.add_pack(other_class).is_err());
    // More bytes of a pack than it holds; a pack that nobody uses.
    let mut more = build(whole, [(5, (1, 1, 0))]);
    more.push(6, 0, stored(2, 1)).unwrap();
    assert!(more.finish().is_err());
    let mut unused = build(whole, [(5, (1, 1, 0))]);
    unused.add_pack(pack(2, 1)).unwrap();
    assert!(unused.finish().is_err());
}

#[test]
fn test_chunks_of_other_sizes_have_other_limits() {
    let chunk_size = ChunkSize::new(4 << 20).unwrap();
    let size_bytes = limits::DISK_SIZE_MAX;
    let largest = Disk { chunk_size, size_bytes, ..disk(1, None) };
    let mut builder = Builder::new(largest, Cursor::new(Vec::new())).unwrap();
    let number = builder.add_pack(acstor_manifest::Pack { stored_bytes: 1000, ..pack(1, 1) });
    let last = (64 << 40 >> 22) - 1;
    builder.push(last, number.unwrap(), stored(1, 0)).unwrap();
    let reader = open(bytes_of(builder)).unwrap();
    reader.check().unwrap();
    assert!(matches!(reader.look_up(last).unwrap(), acstor_manifest::Found::Data(_)));
}

#[test]
fn test_failing_spool_is_an_error() {
    #[derive(Debug)]
    struct Full;
    impl std::io::Read for Full {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Ok(0)
        }
    }
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Seek for Full {
        fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
            Ok(0)
        }
    }
    let mut builder = Builder::new(disk(100, None), Full).unwrap();
    let number = builder.add_pack(pack(1, 1)).unwrap();
    builder.push(0, number, stored(1, 0)).unwrap();
    assert_eq!(builder.finish().unwrap_err().kind(), ErrorKind::Exhausted);
}

#[test]
fn test_damaged_page_is_never_cached() {
    let good = delta();
    let cache = Arc::new(PageCache::new(1 << 20));
    let mut bad = good.clone();
    let last = good.len() / PAGE_LEN - 1;
    bad[last * PAGE_LEN] ^= 1;
    // Header and so name are the same: what one disk has damaged, another may have whole.
    let (damaged, whole) = (open_with(bad, &cache).unwrap(), open_with(good, &cache).unwrap());
    assert!(damaged.pages().page(last as u32).is_err());
    whole.pages().page(last as u32).unwrap();
    damaged.pages().page(last as u32).unwrap();
}
