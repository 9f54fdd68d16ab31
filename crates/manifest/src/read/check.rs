//! Checking a whole manifest: what no single page can tell.

use crate::format::directory::Span;
use crate::format::layout::first_of;
use crate::read::content_name::ContentName;
use crate::read::entries::EntryCursor;
use crate::read::reader::Reader;
use crate::write::pack_table::UsedBytes;
use crate::{ManifestError, PageSource};

impl<S: PageSource> Reader<S> {
    /// Reads every page, and checks what only all of them say together: that maps are numbered in
    /// the order of the disk, that the summary has what the entries use, that the content has its
    /// name.
    ///
    /// Memory: as to build it.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had, or the manifest contradicts itself.
    pub fn check(&self) -> Result<(), S::Error> {
        for number in 1..self.header().sections().page_count() {
            self.pages().page(number)?;
        }
        let mut used: Vec<UsedBytes> =
            (0..self.header().counts().packs).map(|_| UsedBytes::new()).collect();
        let mut content = ContentName::new(self.header().size_bytes(), self.header().chunk_size());
        let mut cursor = EntryCursor::new(self);
        let (mut maps, mut from) = (0, 0);
        while let Some(number) = self.next_span(from)? {
            let span = self.span(number)?;
            if let Span::Map { map, .. } = span {
                if map != maps {
                    return Err(ManifestError::Corrupt("order of the maps").into());
                }
                maps += 1;
            }
            let Some(bits) = self.span_bits(number, span)? else { break };
            for chunk in bits.data.chunks() {
                let entry = cursor.entry(bits.ordinal_of(chunk))?;
                let chunk_size = self.header().chunk_size().as_u32();
                let (start, end) = entry.check(self.header().counts().packs, chunk_size)?;
                used[entry.pack as usize].add(start, end);
                content.push(first_of(number) + u64::from(chunk), &entry.chunk.digest);
            }
            from = number + 1;
        }
        if maps != self.header().counts().maps {
            return Err(ManifestError::Corrupt("number of maps").into());
        }
        if self.header().content_name().is_some_and(|name| name != content.finish()) {
            return Err(ManifestError::Corrupt("name of the content").into());
        }
        self.check_packs(used)
    }

    fn check_packs(&self, used: Vec<UsedBytes>) -> Result<(), S::Error> {
        for (number, used) in used.into_iter().enumerate() {
            let record = self.pack(number as u32)?;
            let (runs, bytes) = used.finish();
            let is_same = bytes == u64::from(record.used_bytes);
            if !is_same || (!record.is_whole() && self.pack_runs(&record)? != runs) {
                return Err(ManifestError::Corrupt("usage of a pack").into());
            }
        }
        Ok(())
    }
}
