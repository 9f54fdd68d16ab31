//! Pages that are fetched by one call of the origin.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use acstor_manifest::{
    Header, PAGE_LEN, PageBytes, PageCache, PageSource, RawPages, VerifiedPages,
};
use acstor_types::ErrorKind;

use crate::limits;
use crate::pages::page_failure::PageFailure;
use crate::view::disk_manifest::{Level, LocalPages};
use crate::view::manifest_source::ManifestFault;
use crate::{OriginError, OriginRange, OriginSource, StoredObject};

/// Outcome of a call.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// Pages that came and are verified.
    pub(crate) pages: u64,
    /// Those of them that the local disk did not take.
    pub(crate) unwritten: u64,
    /// Pages that are not on this host's disk all the same.
    pub(crate) left: u64,
    /// Error of the last write that failed.
    pub(crate) write_error: Option<std::io::Error>,
    /// Pages that are not the manifest's.
    pub(crate) refused: Vec<(u32, ManifestFault)>,
}

impl Fetched {
    /// Returns the failure to bring `page`, where what came in its place is refused.
    pub(crate) fn refusal_of(&self, page: u32) -> Option<PageFailure> {
        let mut refused = self.refused.iter();
        let (_, fault) = refused.find(|(number, _)| *number == page)?;
        Some(PageFailure::Refused(fault.clone()))
    }
}

/// Returns the sections of a manifest in the order in which they are fetched: first what the others are
/// verified by. The header is here always.
pub(crate) fn parts(header: &Header) -> [Range<u32>; 3] {
    let index = header.sections().index.clone();
    [index.clone(), 1..index.start, index.end..header.sections().page_count()]
}

/// Returns the pages that are fetched with one that is needed: neighbours of its part.
pub(crate) fn around(header: &Header, page: u32) -> Range<u32> {
    let part = parts(header).into_iter().find(|part| part.contains(&page));
    let Some(part) = part else { return page..page.saturating_add(1) };
    let pages = limits::PAGE_WINDOW;
    let start = part.start + (page - part.start) / pages * pages;
    start..start.saturating_add(pages).min(part.end)
}

/// Bytes that came from the origin, over those of the local disk.
struct OverLocal<'a> {
    window: Range<u32>,
    bytes: &'a [u8],
    local: &'a LocalPages,
}

impl RawPages for OverLocal<'_> {
    type Error = ManifestFault;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), ManifestFault> {
        if !self.window.contains(&number) {
            return self.local.read(number, page);
        }
        let start = (number - self.window.start) as usize * PAGE_LEN;
        match self.bytes.get(start..).and_then(<[u8]>::first_chunk::<PAGE_LEN>) {
            Some(bytes) => *page = *bytes,
            None => return Err(self.refused(number)),
        }
        Ok(())
    }

    fn refused(&self, number: u32) -> ManifestFault {
        if !self.window.contains(&number) {
            return self.local.refused(number);
        }
        let message = format!("page {number} is damaged in the origin");
        ManifestFault::new(ErrorKind::Corrupt, message)
    }
}

/// Reads the pages of `window` from the origin. Blocks.
///
/// # Errors
/// [`OriginError`].
pub(crate) fn call(
    origin: &dyn OriginSource,
    header: &Header,
    window: &Range<u32>,
) -> Result<OriginRange, OriginError> {
    let len = window.len() * PAGE_LEN;
    let mut range = OriginRange::new(u64::from(window.start) * PAGE_LEN as u64, len);
    // A driver's panic is a failure of this call.
    let read = AssertUnwindSafe(|| origin.read_manifest(&header.name(), &mut range));
    let outcome = catch_unwind(read);
    outcome.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())))?;
    Ok(range)
}

/// Reads pages, of which some were refused, from members of the origin other than the one that gave
/// them, until `admit` refuses none; `None`: nobody else has better ones. Blocks.
///
/// # Errors
/// [`OriginError`] where another member may have them and cannot be asked.
pub(crate) fn call_elsewhere(
    origin: &dyn OriginSource,
    header: &Header,
    range: &mut OriginRange,
    admit: impl Fn(&[u8]) -> Fetched,
) -> Result<Option<Fetched>, OriginError> {
    let mut found = None;
    let mut is_sound = |range: &mut OriginRange| {
        let fetched = admit(&range.buffer);
        found = fetched.refused.is_empty().then_some(fetched);
        found.is_some()
    };
    let object = StoredObject::Manifest(header.name());
    let read = AssertUnwindSafe(|| origin.read_elsewhere(&object, range, &mut is_sound));
    let outcome = catch_unwind(read);
    outcome.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())))?;
    Ok(found)
}

/// Verifies pages that came, keeps them in `cache`, and writes those that are not on the local disk.
pub(crate) fn admit(
    (header, local): &Level,
    window: &Range<u32>,
    bytes: &[u8],
    cache: &Arc<PageCache>,
) -> Fetched {
    let here = VerifiedPages::new(header.clone(), cache.clone(), local.clone());
    let over = OverLocal { window: window.clone(), bytes, local: &**local };
    let over = VerifiedPages::new(header.clone(), cache.clone(), over);
    let mut fetched = Fetched::default();
    for number in window.clone() {
        if here.page(number).is_ok() {
            continue;
        }
        let page = match over.page(number) {
            Ok(page) => page,
            // One that verifies it is not here: it is fetched when its turn comes.
            Err(fault) if fault.absent.is_some() => {
                fetched.left += 1;
                continue;
            }
            Err(fault) => {
                fetched.left += 1;
                fetched.refused.push((number, fault));
                continue;
            }
        };
        fetched.pages += 1;
        if let Err(error) = local.write(number, page.as_bytes()) {
            fetched.unwritten += 1;
            fetched.left += 1;
            fetched.write_error = Some(error);
        }
    }
    fetched
}

/// Reads a page from the local disk and verifies it; keeps it in `cache`.
///
/// # Errors
/// [`ManifestFault`], which names the page that is to be fetched first where one is.
pub(crate) fn look(
    (header, local): &Level,
    number: u32,
    cache: &Arc<PageCache>,
) -> Result<(), ManifestFault> {
    VerifiedPages::new(header.clone(), cache.clone(), local.clone()).page(number).map(drop)
}

impl From<OriginError> for PageFailure {
    fn from(error: OriginError) -> PageFailure {
        PageFailure::Origin(error)
    }
}
