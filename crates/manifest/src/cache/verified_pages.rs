//! Pages of one manifest, read and verified when they are not in memory.

use std::sync::Arc;

use crate::cache::cached_pages::CachedPages;
use crate::cache::page_cache::PageCache;
use crate::format::header::Header;
use crate::format::index::{digest_of, verify_bytes};
use crate::{ManifestError, PAGE_LEN, Page, PageSource, RawPages};

/// Pages of a manifest: from the cache, else read, verified and kept there.
///
/// Verifying a page reads those of the index above it in the same way, at most five. What is not the
/// page is [refused](RawPages::refused), and the error that of `R`.
#[derive(Clone, Debug)]
pub struct VerifiedPages<R> {
    cached: CachedPages,
    raw: R,
}

impl<R: RawPages> VerifiedPages<R> {
    /// The pages of the manifest of `header`, by `cache` and `raw`.
    pub fn new(header: Arc<Header>, cache: Arc<PageCache>, raw: R) -> VerifiedPages<R> {
        VerifiedPages { cached: CachedPages::new(header, cache), raw }
    }

    /// The pages as they are read, verified by nobody.
    pub fn raw(&self) -> &R {
        &self.raw
    }

    /// The pages that are in memory.
    pub fn cached(&self) -> &CachedPages {
        &self.cached
    }
}

impl<R: RawPages> PageSource for VerifiedPages<R> {
    type Error = R::Error;

    fn page(&self, number: u32) -> Result<Page, R::Error> {
        if let Some(page) = self.cached.get(number) {
            return Ok(page);
        }
        let header = self.cached.header();
        let mut bytes = [0; PAGE_LEN];
        self.raw.read(number, &mut bytes)?;
        // What verifies it is looked for before it is judged: of several pages that are missing
        // the topmost is named.
        let digest = digest_of(header, number, self)?;
        match verify_bytes(header, number, Arc::new(bytes), &digest) {
            Ok(page) => {
                self.cached.keep(number, &page);
                Ok(page)
            }
            Err(ManifestError::Page(number)) => Err(self.raw.refused(number)),
            Err(error) => Err(error.into()),
        }
    }
}
