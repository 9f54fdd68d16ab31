//! A manifest that is built and not yet stored.

use std::io::{self, Read, Seek, Write};

use crate::PageBytes;
use crate::format::header::Header;
use crate::write::entry_spool::SpooledEntries;
use crate::write::span_list::Spans;

/// A manifest: what comes before the entries in memory, the entries on the builder's spool.
#[derive(Debug)]
pub struct Built<W> {
    pub(crate) header: Header,
    pub(crate) page: Box<PageBytes>,
    pub(crate) summary: Vec<u8>,
    pub(crate) index: Vec<u8>,
    pub(crate) directories: Vec<u8>,
    pub(crate) spans: Spans,
    pub(crate) entries: SpooledEntries<W>,
}

impl<W> Built<W> {
    /// The header, which has name and length.
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl<W: Read + Seek> Built<W> {
    /// Writes the manifest, from the first byte to the last; may be called again.
    ///
    /// # Errors
    /// Those of `out` and of the spool.
    pub fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.page[..])?;
        out.write_all(&self.summary)?;
        out.write_all(&self.index)?;
        out.write_all(&self.directories)?;
        for page in self.spans.map_pages() {
            out.write_all(&page)?;
        }
        self.entries.write_to(out)
    }

    /// Returns the manifest's bytes, for one that is known to be small.
    ///
    /// # Errors
    /// Those of the spool.
    pub fn to_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.header.len_bytes() as usize);
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Gives the spool back, which nobody needs any more.
    pub fn into_spool(self) -> W {
        self.entries.spool
    }
}
