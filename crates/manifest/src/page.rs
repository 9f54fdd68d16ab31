//! Pages: what is fetched, verified and cached as one.

use std::sync::Arc;

use acstor_types::bytes_le::u64_at;

use crate::ManifestError;

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// The bytes of one page, verified or not.
pub type PageBytes = [u8; PAGE_LEN];

/// A page that is the one its manifest names, and well formed; shared, never changed.
///
/// Only [`verify_page`](crate::verify_page) makes one, so nobody reads or caches what was not
/// verified.
#[derive(Clone)]
pub struct Page(Arc<PageBytes>);

impl Page {
    pub(crate) fn of_verified(bytes: Arc<PageBytes>) -> Page {
        Page(bytes)
    }

    /// The page's bytes.
    pub fn as_bytes(&self) -> &PageBytes {
        &self.0
    }

    /// The unsigned 64-bit number at `offset`, within the page.
    pub(crate) fn u64_at(&self, offset: usize) -> u64 {
        u64_at(&self.0[..], offset)
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// Verified pages of one manifest.
pub trait PageSource {
    /// Reason for which there is no page.
    type Error: From<ManifestError>;

    /// Returns a page, by its number in the file.
    ///
    /// # Errors
    /// [`PageSource::Error`] when the page cannot be had, or is not what the manifest names.
    fn page(&self, number: u32) -> Result<Page, Self::Error>;
}

impl<T: PageSource + ?Sized> PageSource for &T {
    type Error = T::Error;

    fn page(&self, number: u32) -> Result<Page, T::Error> {
        (**self).page(number)
    }
}

impl<T: PageSource + ?Sized> PageSource for Arc<T> {
    type Error = T::Error;

    fn page(&self, number: u32) -> Result<Page, T::Error> {
        (**self).page(number)
    }
}

/// Pages of one manifest as a file or a network has them.
pub trait RawPages {
    /// Reason for which there is no page.
    type Error: From<ManifestError>;

    /// Reads a page, by its number in the file.
    ///
    /// # Errors
    /// [`RawPages::Error`] when the page cannot be had.
    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), Self::Error>;

    /// Returns the error of a page whose bytes are not those that its digest names: where pages may
    /// be had elsewhere, one that says which page it is.
    fn refused(&self, number: u32) -> Self::Error {
        ManifestError::Page(number).into()
    }
}

impl<T: RawPages + ?Sized> RawPages for Arc<T> {
    type Error = T::Error;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), T::Error> {
        (**self).read(number, page)
    }

    fn refused(&self, number: u32) -> T::Error {
        (**self).refused(number)
    }
}

/// A manifest that is wholly in memory.
#[derive(Clone, Debug)]
pub struct RawBytes<B>(pub B);

impl<B: AsRef<[u8]>> RawPages for RawBytes<B> {
    type Error = ManifestError;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), ManifestError> {
        let bytes = self.0.as_ref();
        let start = number as usize * PAGE_LEN;
        let expected = start as u64 + PAGE_LEN as u64;
        let found = bytes
            .get(start..start + PAGE_LEN)
            .ok_or(ManifestError::Length { actual: bytes.len() as u64, expected })?;
        page.copy_from_slice(found);
        Ok(())
    }
}
