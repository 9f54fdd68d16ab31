//! Pages of one manifest that are in memory: the source of a read that may not wait.

use std::sync::Arc;

use acstor_types::{Digest, ErrorKind};

use crate::cache::page_cache::PageCache;
use crate::format::header::Header;
use crate::format::index::{Parent, verify_page};
use crate::{ManifestError, PAGE_LEN, Page, PageBytes, PageSource};

/// Reason why there is no page.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// The page has to be fetched; see [`CachedPages::missing`], [`CachedPages::admit`].
    #[error("page {page} of manifest {manifest} is not in memory")]
    Missing {
        /// Name of the manifest.
        manifest: Digest,
        /// Number of the page.
        page: u32,
    },
    /// The manifest is not in order.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl PageError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PageError::Missing { .. } => ErrorKind::Unavailable,
            PageError::Manifest(error) => error.kind(),
        }
    }
}

/// Pages of a manifest, as far as the cache has them.
#[derive(Clone, Debug)]
pub struct CachedPages {
    header: Arc<Header>,
    cache: Arc<PageCache>,
}

impl CachedPages {
    /// The pages of the manifest of `header` in `cache`.
    pub fn new(header: Arc<Header>, cache: Arc<PageCache>) -> CachedPages {
        CachedPages { header, cache }
    }

    /// The header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Returns the pages to fetch for one that is missing, in the order in which they are admitted:
    /// those of the index above it that are missing too, then itself. At most five.
    ///
    /// # Errors
    /// [`ManifestError::Range`] past the end of the manifest.
    pub fn missing(&self, number: u32) -> Result<Vec<u32>, ManifestError> {
        let mut path = vec![number];
        let mut at = number;
        while let Parent::Page { number, .. } = self.header.parent(at)? {
            if self.find(number).is_some() {
                break;
            }
            path.push(number);
            at = number;
        }
        path.reverse();
        Ok(path)
    }

    /// Verifies the bytes of a page, and keeps the page.
    ///
    /// # Errors
    /// [`PageError::Missing`] when a page of the index has to be admitted before, and
    /// [`PageError::Manifest`] when these are not the page's bytes.
    pub fn admit(&self, number: u32, bytes: Arc<PageBytes>) -> Result<Page, PageError> {
        let page = verify_page(&self.header, number, bytes, self)?;
        self.keep(number, &page);
        Ok(page)
    }

    /// Admits the pages in the first bytes of a manifest: the index first, then the others.
    ///
    /// Pages that lie there only in part, and those whose digests do not, are left out.
    ///
    /// # Errors
    /// [`PageError::Manifest`] when one of the pages is not the manifest's.
    pub fn admit_front(&self, front: &[u8]) -> Result<(), PageError> {
        let page_count = self.header.sections().page_count().min((front.len() / PAGE_LEN) as u32);
        let index = self.header.sections().index.clone();
        let others = (1..page_count).filter(|number| !index.contains(number));
        for number in index.clone().filter(|number| *number < page_count).chain(others) {
            let start = number as usize * PAGE_LEN;
            let Some(bytes) = front[start..].first_chunk::<PAGE_LEN>() else { break };
            match self.admit(number, Arc::new(*bytes)) {
                Ok(_) | Err(PageError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn keep(&self, number: u32, page: &Page) {
        self.cache.insert(&self.header.name(), number, page.clone());
    }

    pub(crate) fn get(&self, number: u32) -> Option<Page> {
        self.cache.get(&self.header.name(), number)
    }

    fn find(&self, number: u32) -> Option<Page> {
        self.cache.find(&self.header.name(), number)
    }
}

impl PageSource for CachedPages {
    type Error = PageError;

    fn page(&self, number: u32) -> Result<Page, PageError> {
        self.find(number)
            .ok_or_else(|| PageError::Missing { manifest: self.header.name(), page: number })
    }
}
