//! The page index: a Merkle tree of BLAKE3 digests, whose root is in the header.

use std::sync::Arc;

use acstor_types::Digest;
use acstor_types::bytes_le::array_at;

use crate::format::form::check_form;
use crate::format::header::Header;
use crate::format::layout::{PAGE_DIGESTS, Sections, index_levels};
use crate::{ManifestError, PAGE_LEN, Page, PageBytes, PageSource};

/// Place of a page's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The manifest's name.
    Name,
    /// The digest of the top page in the header.
    Header,
    /// A page of the index.
    Page {
        /// Number of the index page.
        number: u32,
        /// Offset of the digest in it, bytes.
        offset: usize,
    },
}

/// Levels of an index: ranges of pages, that of the leaves first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexShape {
    levels: Box<[std::ops::Range<u32>]>,
}

impl IndexShape {
    pub(crate) fn of(sections: &Sections) -> IndexShape {
        let mut end = sections.index.end;
        let levels = index_levels(sections.covered()).into_iter().map(|pages| {
            let start = end - pages;
            let level = start..end;
            end = start;
            level
        });
        IndexShape { levels: levels.collect() }
    }

    /// Returns where the digest of a page is; `None` past the end of the manifest.
    pub(crate) fn parent(&self, sections: &Sections, number: u32) -> Option<Parent> {
        if number == 0 {
            return Some(Parent::Name);
        }
        if number >= sections.page_count() {
            return None;
        }
        if number < sections.index.start {
            return self.slot(0, number - 1);
        }
        if number >= sections.index.end {
            let summary = sections.summary().len() as u32;
            return self.slot(0, number - sections.index.end + summary);
        }
        let level = self.levels.iter().position(|level| level.contains(&number))?;
        if level + 1 == self.levels.len() {
            return Some(Parent::Header);
        }
        self.slot(level + 1, number - self.levels[level].start)
    }

    fn slot(&self, level: usize, slot: u32) -> Option<Parent> {
        let pages = self.levels.get(level)?;
        let number = pages.start + slot / PAGE_DIGESTS;
        let offset = (slot % PAGE_DIGESTS) as usize * Digest::LEN;
        pages.contains(&number).then_some(Parent::Page { number, offset })
    }
}

/// Returns the bytes of an index over pages, from its top page down, and the top page's digest.
pub(crate) fn build_index(leaves: Vec<Digest>) -> (Vec<u8>, Option<Digest>) {
    let mut levels = Vec::new();
    let mut digests = leaves;
    while digests.len() > 1 || (digests.len() == 1 && levels.is_empty()) {
        let mut level: Vec<u8> = digests.iter().flat_map(|digest| *digest.as_bytes()).collect();
        level.resize(level.len().next_multiple_of(PAGE_LEN), 0);
        digests = level.chunks_exact(PAGE_LEN).map(Digest::of).collect();
        levels.push(level);
    }
    levels.reverse();
    (levels.concat(), digests.first().copied())
}

/// Verifies a page: its digest, against the index, and its form.
///
/// `pages` is asked for one page of the index, the one with the digest.
///
/// # Errors
/// [`ManifestError`] when this is not the page that the manifest has at `number`, or when it says
/// what cannot be; the source's error when it cannot give the index page.
pub fn verify_page<S: PageSource>(
    header: &Header,
    number: u32,
    bytes: Arc<PageBytes>,
    pages: &S,
) -> Result<Page, S::Error> {
    let digest = digest_of(header, number, pages)?;
    Ok(verify_bytes(header, number, bytes, &digest)?)
}

/// Returns the digest of a page, by one page of the index.
pub(crate) fn digest_of<S: PageSource>(
    header: &Header,
    number: u32,
    pages: &S,
) -> Result<Digest, S::Error> {
    Ok(match header.parent(number)? {
        Parent::Name => header.name(),
        Parent::Header => header.top_digest(),
        Parent::Page { number, offset } => {
            Digest::from_bytes(array_at(&pages.page(number)?.as_bytes()[..], offset))
        }
    })
}

/// Verifies a page whose digest is known.
pub(crate) fn verify_bytes(
    header: &Header,
    number: u32,
    bytes: Arc<PageBytes>,
    digest: &Digest,
) -> Result<Page, ManifestError> {
    if Digest::of(&bytes[..]) != *digest {
        return Err(ManifestError::Page(number));
    }
    check_form(header, number, &bytes)?;
    Ok(Page::of_verified(bytes))
}
