//! Pages that are looked at, whatever a manifest says of its size.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::cell::Cell;
use std::io::Cursor;

use acstor_manifest::{Base, Chunk, Found, ManifestError, Page, PageSource, Reader, Stack, limits};
use acstor_types::Digest;

use support::{MemoryReader, SPAN, build_large, large_disk, open, stored};

const TIB: u64 = 1 << 40;

/// Counts the pages that are asked for.
struct Counted<'a> {
    reader: &'a MemoryReader,
    pages: &'a Cell<u64>,
}

impl PageSource for Counted<'_> {
    type Error = ManifestError;

    fn page(&self, number: u32) -> Result<Page, ManifestError> {
        self.pages.set(self.pages.get() + 1);
        self.reader.pages().page(number)
    }
}

fn large(size_bytes: u64, chunks: impl IntoIterator<Item = u64>) -> MemoryReader {
    let mut built = build_large(large_disk(size_bytes, None), chunks, Cursor::new(Vec::new()));
    open(built.to_bytes().unwrap()).unwrap()
}

/// Runs something on a stack of one manifest; returns the number of pages that were asked for.
fn pages_of(reader: &MemoryReader, run: impl FnOnce(&Stack<Counted<'_>>)) -> u64 {
    let pages = Cell::new(0);
    let header = std::sync::Arc::clone(reader.header());
    let counted = Reader::new(header, Counted { reader, pages: &pages });
    run(&Stack::new(vec![counted]).unwrap());
    pages.get()
}

#[test]
fn test_look_up_takes_at_most_three_pages() {
    let alternating = large(TIB, (0..100_000).step_by(2));
    let run = large(TIB, 0..100_000);
    for index in [0, 1, 50_000, 99_998, 99_999, 100_000, (TIB >> 16) - 1, TIB >> 16, u64::MAX] {
        let look_up = |stack: &Stack<Counted<'_>>| {
            stack.look_up(index).unwrap();
        };
        assert!(pages_of(&alternating, look_up) <= 3, "chunk {index}");
        assert!(pages_of(&run, look_up) <= 2, "chunk {index}");
    }
}

#[test]
fn test_size_of_a_disk_costs_nothing() {
    let empty = large(64 * TIB, []);
    let nothing = pages_of(&empty, |stack| {
        assert_eq!(stack.next_data(0).unwrap(), None);
        assert_eq!(stack.next_hole(12_345).unwrap(), 12_345);
        assert_eq!(stack.look_up((1 << 30) - 1).unwrap(), Chunk::Zero);
        assert_eq!(stack.entries(0..u64::MAX).count(), 0);
    });
    assert_eq!(nothing, 0);
    // One chunk at the very end.
    let last = (1 << 30) - 1;
    let sparse = large(64 * TIB, [last]);
    assert_eq!(sparse.header().len_bytes(), 6 * 4096);
    let found = pages_of(&sparse, |stack| {
        assert_eq!(stack.next_data(0).unwrap(), Some(last));
        assert_eq!(stack.next_hole(last).unwrap(), last + 1);
        assert_eq!(
            stack.entries(0..u64::MAX).map(|one| one.unwrap().index).collect::<Vec<_>>(),
            [last]
        );
        assert_eq!(stack.data_runs(0..u64::MAX).count(), 1);
    });
    assert!(found < 30, "{found} pages");
}

#[test]
fn test_alternating_extents_are_found_one_by_one() {
    const CHUNKS: u64 = 40_000;
    let alternating = large(TIB, (0..CHUNKS).step_by(2));
    for from in [0, 1, SPAN - 1, SPAN, CHUNKS - 3] {
        let pages = pages_of(&alternating, |stack| {
            let data = from.next_multiple_of(2);
            assert_eq!(stack.next_data(from).unwrap(), Some(data));
            assert_eq!(stack.next_hole(data).unwrap(), data + 1);
        });
        assert!(pages <= 12, "{pages} pages from chunk {from}");
    }
    let runs = pages_of(&alternating, |stack| {
        assert_eq!(stack.data_runs(0..u64::MAX).count() as u64, CHUNKS / 2);
    });
    assert!(runs <= 50, "{runs} pages");
    let entries = pages_of(&alternating, |stack| {
        assert_eq!(stack.entries(0..u64::MAX).count() as u64, CHUNKS / 2);
    });
    let all = u64::from(alternating.header().sections().page_count());
    assert!(entries <= all + 20, "{entries} of {all} pages");
}

#[test]
fn test_hole_behind_a_full_disk_is_found_by_directories() {
    let full = large(TIB / 16, 0..TIB >> 20);
    let pages = pages_of(&full, |stack| {
        assert_eq!(stack.next_hole(7).unwrap(), stack.header().chunk_count());
    });
    // Twice the one directory for each span: no map, no entry.
    assert!(pages <= 2 * (TIB >> 33), "{pages} pages");
}

#[test]
fn test_deep_chains_and_cycles_are_refused() {
    // A name contains a digest of the base's name, so no manifest can be its own base; one that
    // claims to have any is as deep as it says, and no deeper than is allowed.
    let mut base = Base { name: Digest::of(b"base"), depth: limits::DEPTH_MAX };
    let spool = || Cursor::new(Vec::new());
    assert!(acstor_manifest::Builder::new(large_disk(TIB, Some(base)), spool()).is_err());
    let whole = build_large(large_disk(TIB, None), [1], spool()).to_bytes().unwrap();
    let mut manifests = vec![whole];
    for _ in 1..limits::DEPTH_MAX {
        base = Base::of(open(manifests[0].clone()).unwrap().header());
        let disk = large_disk(TIB, Some(base));
        manifests.insert(0, build_large(disk, [2], spool()).to_bytes().unwrap());
    }
    let level = |number: usize| open(manifests[number].clone()).unwrap();
    assert!(Stack::new(vec![level(0), level(1), level(2)]).is_ok());
    for order in [vec![0, 0, 1, 2], vec![0, 1, 0], vec![0, 2], vec![0, 1], vec![0, 0], vec![1, 0]] {
        let levels = order.iter().map(|number| level(*number)).collect();
        assert!(Stack::new(levels).is_err(), "{order:?}");
    }
    // A chunk that none but the lowest has is found through all.
    let stack = Stack::new(vec![level(0), level(1), level(2)]).unwrap();
    assert_eq!(level(0).look_up(1).unwrap(), Found::AsBase);
    match stack.look_up(1).unwrap() {
        Chunk::Data { level, entry } => {
            assert_eq!((level, entry.chunk.digest), (2, stored(0, 0).digest))
        }
        Chunk::Zero => unreachable!("chunk 1 has content"),
    }
}
