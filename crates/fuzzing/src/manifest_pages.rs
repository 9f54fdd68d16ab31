//! Manifests of version 2: header, pages, look-ups, a fold on top; also with the digests that a
//! damaged one would need to get past them.

use std::io::Cursor;
use std::sync::Arc;

use acstor_manifest::{
    Change, Found, Header, ManifestError, MergedDisk, PAGE_LEN, PageCache, PageSource, Parent,
    RawBytes, Reader, Stack, Summary, VerifiedPages, layout, merge,
};

/// Steps of anything that goes through a disk: what a manifest of a few pages may have.
const STEPS_MAX: usize = 20_000;
const SPAN: u64 = 8192;

type Pages<'a> = VerifiedPages<RawBytes<&'a [u8]>>;

/// Chunks at which something may change: bounds of spans and directories, the end of the disk.
fn edges(chunk_count: u64) -> impl Iterator<Item = u64> {
    let bounds = [0, SPAN, 2 * SPAN, 512 * SPAN, 600 * SPAN, 255 * 512 * SPAN, chunk_count];
    bounds.into_iter().flat_map(|at| (0..70).map(move |n| at.saturating_add(n).saturating_sub(35)))
}

fn use_chunks(stack: &Stack<Pages<'_>>) {
    let count = stack.header().chunk_count();
    for index in edges(count) {
        let _ = stack.look_up(index);
        if let Ok(Some(data)) = stack.next_data(index) {
            assert!(data >= index && data < count, "data at {data}, from {index}");
        }
        if let Ok(hole) = stack.next_hole(index) {
            assert!(hole >= index.min(count) && hole <= count, "hole at {hole}, from {index}");
        }
    }
    let mut last = None;
    for entry in stack.entries(0..u64::MAX).take(STEPS_MAX).map_while(Result::ok) {
        assert!(last < Some(entry.index) && entry.index < count, "entries ascend");
        last = Some(entry.index);
        // What is listed is what is looked up.
        match stack.levels()[entry.level].look_up(entry.index) {
            Ok(Found::Data(found)) => assert_eq!(found, entry.entry),
            other => panic!("chunk {}: {other:?}", entry.index),
        }
    }
}

/// A fold of nothing and of something says the same as before, but for what it changed.
fn use_merge(stack: &Stack<Pages<'_>>) {
    let header = stack.header();
    // A small manifest may say that every chunk of a large disk has content.
    if header.counts().data_chunks as usize > STEPS_MAX {
        return;
    }
    let disk = MergedDisk {
        disk_id: header.disk_id(),
        size_bytes: header.size_bytes(),
        salt: *header.salt(),
    };
    let changes = (header.chunk_count() > 0).then_some((0, Change::Zero));
    let Ok(mut built) = merge(stack, 1, changes, disk, Cursor::new(Vec::new())) else { return };
    let bytes = built.to_bytes().expect("a spool in memory");
    let merged = open(&bytes).expect("what was built");
    merged.check().expect("what was built is in order");
    for index in edges(header.chunk_count()).filter(|index| *index > 0) {
        let expected = stack.levels()[0].look_up(index).map(content);
        assert_eq!(merged.look_up(index).map(content), expected, "chunk {index}");
    }
}

/// A chunk without the number of its pack, which a merge gives anew.
fn content(found: Found) -> Option<acstor_types::StoredChunk> {
    match found {
        Found::Data(entry) => Some(entry.chunk),
        Found::AsBase | Found::Zero => None,
    }
}

fn open(bytes: &[u8]) -> Result<Reader<Pages<'_>>, ManifestError> {
    let header = Arc::new(Header::parse(bytes, bytes.len() as u64)?);
    let pages =
        VerifiedPages::new(Arc::clone(&header), Arc::new(PageCache::new(1 << 20)), RawBytes(bytes));
    Ok(Reader::new(header, pages))
}

fn use_summary(reader: &Reader<Pages<'_>>, bytes: &[u8]) {
    let pages = reader.header().sections().summary();
    let range = pages.start as usize * PAGE_LEN..pages.end as usize * PAGE_LEN;
    let Ok(summary) = Summary::parse(reader.header(), &bytes[range]) else { return };
    for (number, record) in summary.packs().enumerate().take(STEPS_MAX) {
        let used: u64 =
            summary.runs(&record).iter().map(|run| u64::from(run.end - run.start)).sum();
        assert!(record.is_whole() || used == u64::from(record.used_bytes));
        if let Ok(same) = reader.pack(number as u32) {
            assert_eq!(same, record);
            let _ = reader.pack_runs(&same);
        }
    }
}

fn use_everything(bytes: &[u8]) {
    let Ok(reader) = open(bytes) else { return };
    assert_eq!(reader.header().len_bytes(), bytes.len() as u64);
    for number in 0..=reader.header().sections().page_count() {
        let _ = reader.pages().page(number);
    }
    for index in edges(reader.header().chunk_count()) {
        let found = reader.look_up(index);
        assert!(reader.header().is_delta() || found != Ok(Found::AsBase), "chunk {index}");
    }
    let is_in_order = reader.check().is_ok();
    use_summary(&reader, bytes);
    if let Ok(stack) = Stack::new(vec![reader]) {
        use_chunks(&stack);
        if is_in_order {
            use_merge(&stack);
        }
    }
}

/// Gives every page the digest that it would need, from the lowest level of the index upwards.
fn repair(bytes: &mut [u8]) {
    put_crc(bytes);
    let Ok(header) = Header::parse(bytes, bytes.len() as u64) else { return };
    let page = |number: u32| number as usize * PAGE_LEN..(number as usize + 1) * PAGE_LEN;
    let sections = header.sections();
    let summary = sections.summary();
    if !summary.is_empty() {
        let digest = digest_of(&bytes[page(summary.start).start..page(summary.end).start]);
        bytes[layout::SUMMARY_DIGEST_AT..][..32].copy_from_slice(&digest);
    }
    // The levels of the index come last, and each before the one above it.
    let leaves = summary.chain(sections.directories.start..sections.page_count());
    for number in leaves.chain(sections.index.clone().rev()) {
        let digest = digest_of(&bytes[page(number)]);
        let at = match header.parent(number) {
            Ok(Parent::Header) => layout::TOP_DIGEST_AT,
            Ok(Parent::Page { number, offset }) => page(number).start + offset,
            Ok(Parent::Name) | Err(_) => continue,
        };
        bytes[at..at + 32].copy_from_slice(&digest);
    }
    put_crc(bytes);
}

fn put_crc(bytes: &mut [u8]) {
    let crc = crc32fast::hash(&bytes[..layout::CRC_AT]);
    bytes[layout::CRC_AT..PAGE_LEN].copy_from_slice(&crc.to_le_bytes());
}

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    *acstor_types::Digest::of(bytes).as_bytes()
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_everything(bytes);
    // Whole pages: an input that is cut in the middle of one says nothing about the others.
    let mut repaired = bytes[..bytes.len() - bytes.len() % PAGE_LEN].to_vec();
    if repaired.len() >= PAGE_LEN {
        repair(&mut repaired);
        use_everything(&repaired);
    }
}
