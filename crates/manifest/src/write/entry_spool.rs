//! Entries of a manifest that is being built: written on as they come, page by page.

use std::io::{self, Read, Seek, SeekFrom, Write};

use acstor_types::Digest;

use crate::PAGE_LEN;
use crate::format::entry::Entry;
use crate::format::layout::{ENTRY_LEN, PAGE_ENTRIES};

/// Bytes that are written at once.
const BATCH: usize = 16 * PAGE_LEN;

/// Entry pages, on a spool, and their digests.
#[derive(Debug)]
pub(crate) struct EntrySpool<W> {
    spool: W,
    start: u64,
    batch: Vec<u8>,
    entries: u32,
    digests: Vec<Digest>,
}

/// Entry pages that are all on the spool.
#[derive(Debug)]
pub(crate) struct SpooledEntries<W> {
    pub(crate) spool: W,
    pub(crate) start: u64,
    pub(crate) entries: u32,
    pub(crate) digests: Vec<Digest>,
}

impl<W: Write + Seek> EntrySpool<W> {
    /// Writes on a spool from where it is.
    pub(crate) fn new(mut spool: W) -> io::Result<EntrySpool<W>> {
        let start = spool.stream_position()?;
        let batch = Vec::with_capacity(BATCH);
        Ok(EntrySpool { spool, start, batch, entries: 0, digests: Vec::new() })
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    pub(crate) fn push(&mut self, entry: Entry) -> io::Result<()> {
        self.batch.extend_from_slice(&entry.to_bytes());
        self.entries += 1;
        if self.entries.is_multiple_of(PAGE_ENTRIES) {
            self.end_page();
            if self.batch.len() >= BATCH {
                self.write_batch()?;
            }
        }
        Ok(())
    }

    fn end_page(&mut self) {
        let len = self.batch.len().next_multiple_of(PAGE_LEN);
        self.batch.resize(len, 0);
        self.digests.push(Digest::of(&self.batch[len - PAGE_LEN..]));
    }

    fn write_batch(&mut self) -> io::Result<()> {
        self.spool.write_all(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<SpooledEntries<W>> {
        if !self.entries.is_multiple_of(PAGE_ENTRIES) {
            self.end_page();
        }
        self.write_batch()?;
        self.spool.flush()?;
        let EntrySpool { spool, start, entries, digests, .. } = self;
        Ok(SpooledEntries { spool, start, entries, digests })
    }
}

impl<W: Read + Seek> SpooledEntries<W> {
    /// Copies the pages from the spool.
    pub(crate) fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.spool.seek(SeekFrom::Start(self.start))?;
        let len = self.digests.len() as u64 * PAGE_LEN as u64;
        let copied = io::copy(&mut self.spool.by_ref().take(len), out)?;
        if copied == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

const _: () = assert!(PAGE_ENTRIES as usize * ENTRY_LEN <= PAGE_LEN);
