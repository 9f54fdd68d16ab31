//! Places of everything: fields of the header, sections of the file, records of a page.

use std::ops::Range;

use crate::{ManifestError, PAGE_LEN};

/// First bytes of a manifest of any version.
pub const MAGIC: &[u8; 8] = b"ACSTMANI";

// Fields of the header.
pub(crate) const VERSION_AT: usize = 8;
pub(crate) const FEATURES_AT: usize = 12;
pub(crate) const DISK_ID_AT: usize = 16;
pub(crate) const SIZE_AT: usize = 32;
pub(crate) const CHUNK_SIZE_AT: usize = 40;
pub(crate) const DEPTH_AT: usize = 44;
pub(crate) const SALT_AT: usize = 48;
pub(crate) const BASE_AT: usize = 64;
pub(crate) const CONTENT_NAME_AT: usize = 96;
/// Offset of the summary's digest in the header, bytes.
pub const SUMMARY_DIGEST_AT: usize = 128;
/// Offset of the digest of the index's top page in the header, bytes.
pub const TOP_DIGEST_AT: usize = 160;
pub(crate) const DATA_CHUNKS_AT: usize = 192;
pub(crate) const PACKS_AT: usize = 196;
pub(crate) const RUNS_AT: usize = 200;
pub(crate) const MAPS_AT: usize = 204;
pub(crate) const DIRECTORIES_AT: usize = 1024;
pub(crate) const DIRECTORIES_END: usize = DIRECTORIES_AT + 4 * DIRECTORIES_MAX;
/// Offset of the header's CRC-32 in it, bytes; it is of everything before.
pub const CRC_AT: usize = PAGE_LEN - 4;
/// Parts of the header that are zero.
pub(crate) const RESERVED: [Range<usize>; 2] =
    [MAPS_AT + 4..DIRECTORIES_AT, DIRECTORIES_END..CRC_AT];

/// Set in a directory's field in the header when the manifest has a page for it.
pub(crate) const HAS_DIRECTORY: u32 = 1 << 31;

/// Chunks of a span: what one map page or one slot of a directory describes.
pub const SPAN_CHUNKS: u32 = 8192;
/// Slots of a directory page.
pub(crate) const DIRECTORY_SLOTS: u32 = 512;
/// Most directory pages.
pub(crate) const DIRECTORIES_MAX: usize = 256;
/// Bytes of a slot of a directory page.
pub(crate) const SLOT_LEN: usize = 8;
/// Entries of an entry page.
pub(crate) const PAGE_ENTRIES: u32 = 85;
/// Bytes of an entry.
pub(crate) const ENTRY_LEN: usize = 48;
/// Pack records of a page of the summary.
pub(crate) const PAGE_PACKS: u32 = 85;
/// Bytes of a pack record.
pub(crate) const PACK_RECORD_LEN: usize = 48;
/// Runs of a page of the summary.
pub(crate) const PAGE_RUNS: u32 = 512;
/// Bytes of a run.
pub(crate) const RUN_LEN: usize = 8;
/// Digests of an index page.
pub(crate) const PAGE_DIGESTS: u32 = 128;

/// Returns the span of a chunk, and the chunk's place in it.
pub(crate) fn split(index: u64) -> (u32, u32) {
    let chunks = u64::from(SPAN_CHUNKS);
    ((index / chunks) as u32, (index % chunks) as u32)
}

/// Returns the first chunk of a span.
pub(crate) fn first_of(span: u32) -> u64 {
    u64::from(span) * u64::from(SPAN_CHUNKS)
}

/// Returns the number of a span's directory, and of its slot there.
pub(crate) fn slot_of(span: u32) -> (u32, usize) {
    (span / DIRECTORY_SLOTS, (span % DIRECTORY_SLOTS) as usize)
}

/// Counts from which all sections of a manifest follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Chunks with content, which have an entry each.
    pub data_chunks: u32,
    /// Packs that the entries refer to.
    pub packs: u32,
    /// Runs of bytes of packs that are used in part.
    pub runs: u32,
    /// Map pages.
    pub maps: u32,
    /// Directory pages.
    pub directories: u32,
}

/// Kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// The first page, whose digest is the manifest's name.
    Header,
    /// Records of packs: first part of the summary.
    PackRecords,
    /// Runs of bytes in packs: second part of the summary.
    PackRuns,
    /// Digests of pages.
    Index,
    /// Slots, one for each span.
    Directory,
    /// Bits, one for each chunk of a span.
    Map,
    /// Stored chunks.
    Entries,
}

/// Sections of a manifest: ranges of pages, in the order of the file, each after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sections {
    /// Records of packs.
    pub pack_records: Range<u32>,
    /// Runs of bytes in packs.
    pub pack_runs: Range<u32>,
    /// The index, from its top page down to the digests of all pages but header and index.
    pub index: Range<u32>,
    /// Directories.
    pub directories: Range<u32>,
    /// Maps.
    pub maps: Range<u32>,
    /// Entries.
    pub entries: Range<u32>,
}

impl Sections {
    pub(crate) fn of(counts: &Counts) -> Result<Sections, ManifestError> {
        let records = counts.packs.div_ceil(PAGE_PACKS);
        let runs = counts.runs.div_ceil(PAGE_RUNS);
        let entries = counts.data_chunks.div_ceil(PAGE_ENTRIES);
        let covered = [records, runs, counts.directories, counts.maps, entries]
            .into_iter()
            .try_fold(0_u32, u32::checked_add)
            .ok_or(ManifestError::Range("number of pages"))?;
        let index = index_levels(covered).iter().sum();
        let mut next = 1_u32;
        let mut take = |pages: u32| {
            let start = next;
            next = start.checked_add(pages).ok_or(ManifestError::Range("number of pages"))?;
            Ok::<_, ManifestError>(start..next)
        };
        Ok(Sections {
            pack_records: take(records)?,
            pack_runs: take(runs)?,
            index: take(index)?,
            directories: take(counts.directories)?,
            maps: take(counts.maps)?,
            entries: take(entries)?,
        })
    }

    /// Number of pages, the header included.
    pub fn page_count(&self) -> u32 {
        self.entries.end
    }

    /// The summary: records and runs of packs.
    pub fn summary(&self) -> Range<u32> {
        self.pack_records.start..self.pack_runs.end
    }

    /// Pages that the index has digests of.
    pub(crate) fn covered(&self) -> u32 {
        self.summary().len() as u32 + (self.entries.end - self.directories.start)
    }

    /// Returns the kind of a page; `None` past the end.
    pub fn kind_of(&self, number: u32) -> Option<PageKind> {
        [
            (1, PageKind::Header),
            (self.pack_records.end, PageKind::PackRecords),
            (self.pack_runs.end, PageKind::PackRuns),
            (self.index.end, PageKind::Index),
            (self.directories.end, PageKind::Directory),
            (self.maps.end, PageKind::Map),
            (self.entries.end, PageKind::Entries),
        ]
        .into_iter()
        .find_map(|(end, kind)| (number < end).then_some(kind))
    }
}

/// Pages of each level of an index of `covered` pages, that of their digests first.
pub(crate) fn index_levels(covered: u32) -> Vec<u32> {
    let mut levels = Vec::new();
    let mut pages = covered;
    while pages > 1 || (pages == 1 && levels.is_empty()) {
        pages = pages.div_ceil(PAGE_DIGESTS);
        levels.push(pages);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_index_ends_with_one_page() {
        assert_eq!(index_levels(0), []);
        assert_eq!(index_levels(1), [1]);
        assert_eq!(index_levels(128), [1]);
        assert_eq!(index_levels(129), [2, 1]);
        assert_eq!(index_levels(128 * 128 + 1), [129, 2, 1]);
    }

    #[test]
    fn test_sections_follow_each_other() {
        let counts = Counts { data_chunks: 86, packs: 86, runs: 513, maps: 3, directories: 2 };
        let sections = Sections::of(&counts).unwrap();
        assert_eq!(sections.summary(), 1..5);
        assert_eq!(sections.index, 5..6);
        assert_eq!(sections.covered(), 4 + 2 + 3 + 2);
        assert_eq!(sections.page_count(), 13);
        let kinds: Vec<_> = (0..14).map(|number| sections.kind_of(number)).collect();
        assert_eq!(kinds[0], Some(PageKind::Header));
        assert_eq!(kinds[2], Some(PageKind::PackRecords));
        assert_eq!(kinds[4], Some(PageKind::PackRuns));
        assert_eq!(kinds[5], Some(PageKind::Index));
        assert_eq!(kinds[7], Some(PageKind::Directory));
        assert_eq!(kinds[10], Some(PageKind::Map));
        assert_eq!(kinds[12], Some(PageKind::Entries));
        assert_eq!(kinds[13], None);
    }

    #[test]
    fn test_more_pages_than_numbers_are_refused() {
        let most = u32::MAX;
        let counts =
            Counts { data_chunks: most, packs: most, runs: most, maps: most, directories: 1 };
        assert_eq!(Sections::of(&counts), Err(ManifestError::Range("number of pages")));
    }

    #[test]
    fn test_empty_manifest_is_one_page() {
        let counts = Counts { data_chunks: 0, packs: 0, runs: 0, maps: 0, directories: 0 };
        assert_eq!(Sections::of(&counts).unwrap().page_count(), 1);
    }
}
