//! The form of a page: checked once, when its digest is, so that a look-up need not.

use crate::format::header::Header;
use crate::format::layout::PageKind;
use crate::format::{directory, entry, map, summary};
use crate::{ManifestError, PageBytes};

/// Checks what a page says, as far as header and page can tell.
pub(crate) fn check_form(
    header: &Header,
    number: u32,
    bytes: &PageBytes,
) -> Result<(), ManifestError> {
    let sections = header.sections();
    match sections.kind_of(number) {
        None => Err(ManifestError::Range("page number")),
        Some(PageKind::Header | PageKind::Index) => Ok(()),
        Some(PageKind::PackRecords) => {
            summary::check_records(header, number - sections.pack_records.start, bytes)
        }
        Some(PageKind::PackRuns) => {
            summary::check_runs(header, number - sections.pack_runs.start, bytes)
        }
        Some(PageKind::Directory) => {
            directory::check(header, number - sections.directories.start, bytes)
        }
        Some(PageKind::Map) => map::check(header, bytes),
        Some(PageKind::Entries) => entry::check(header, number - sections.entries.start, bytes),
    }
}

/// Checks that what follows the records of a page is zero.
pub(crate) fn check_rest(bytes: &PageBytes, used: usize) -> Result<(), ManifestError> {
    if bytes[used..].iter().all(|byte| *byte == 0) {
        Ok(())
    } else {
        Err(ManifestError::Corrupt("bytes after the last record of a page"))
    }
}

/// Returns how many records a page has, of `total` over all pages, `per_page` a page.
pub(crate) fn records_of(page: u32, total: u32, per_page: u32) -> u32 {
    total.saturating_sub(page.saturating_mul(per_page)).min(per_page)
}
