//! One manifest, read by its verified pages.

use std::ops::Range;
use std::sync::Arc;

use crate::format::directory::{Span, span_at};
use crate::format::entry::Entry;
use crate::format::header::Header;
use crate::format::layout::{
    DIRECTORY_SLOTS, PACK_RECORD_LEN, PAGE_ENTRIES, PAGE_PACKS, PAGE_RUNS, RUN_LEN, slot_of, split,
};
use crate::format::map::{self, ChunkBits, Mapped, WORDS};
use crate::format::summary::{PackRecord, check_usage, read_run};
use crate::{ManifestError, Page, PageSource};

/// Answer of one manifest about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the chunk is as in the base. Only in a delta.
    AsBase,
    /// Every byte is zero; nothing is stored.
    Zero,
    /// The chunk has content.
    Data(Entry),
}

/// Content of one manifest for a span: bits of chunks, and the place where their entries begin.
pub(crate) struct SpanBits {
    pub(crate) data: ChunkBits,
    pub(crate) zero: ChunkBits,
    pub(crate) ranks: [u16; WORDS],
    pub(crate) ordinal: u32,
}

impl SpanBits {
    /// Ordinal of a chunk whose data bit is set.
    pub(crate) fn ordinal_of(&self, chunk: u32) -> u32 {
        let word = chunk as usize / 64;
        let before = self.data.0[word] & ((1 << (chunk % 64)) - 1);
        let rank = u32::from(self.ranks[word]) + before.count_ones();
        self.ordinal.saturating_add(rank)
    }
}

/// A manifest over a source of its verified pages.
#[derive(Clone, Debug)]
pub struct Reader<S> {
    header: Arc<Header>,
    pages: S,
}

impl<S> Reader<S> {
    /// Reads the manifest of `header` by `pages`.
    pub fn new(header: Arc<Header>, pages: S) -> Reader<S> {
        Reader { header, pages }
    }

    /// The header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// The source of its pages.
    pub fn pages(&self) -> &S {
        &self.pages
    }
}

fn page_of(section: &Range<u32>, position: u32) -> Result<u32, ManifestError> {
    match section.start.checked_add(position) {
        Some(page) if page < section.end => Ok(page),
        _ => Err(ManifestError::Corrupt("number of a page or record")),
    }
}

impl<S: PageSource> Reader<S> {
    /// Returns what the manifest says of chunk `index`: zero past the end of the disk.
    ///
    /// Asks for at most three pages, one after the other: directory, map, entries.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn look_up(&self, index: u64) -> Result<Found, S::Error> {
        if index >= self.header.chunk_count() {
            return Ok(Found::Zero);
        }
        let (span, chunk) = split(index);
        match self.span(span)? {
            Span::Nothing => Ok(self.nothing()),
            Span::Zeros => Ok(Found::Zero),
            Span::Run { first, len, ordinal } => match chunk.checked_sub(first) {
                Some(rank) if rank < len => self.data(ordinal.saturating_add(rank)),
                _ => Ok(self.nothing()),
            },
            Span::Map { map, count, ordinal } => {
                match map::find(self.map_page(map)?.as_bytes(), chunk) {
                    Mapped::Nothing => Ok(self.nothing()),
                    Mapped::Zero => Ok(Found::Zero),
                    Mapped::Data(rank) if rank < count => self.data(ordinal.saturating_add(rank)),
                    Mapped::Data(_) => Err(ManifestError::Corrupt("count of a map").into()),
                }
            }
        }
    }

    /// Returns the record of a pack.
    ///
    /// # Errors
    /// [`PageSource::Error`] when the page cannot be had, or there is no such pack.
    pub fn pack(&self, number: u32) -> Result<PackRecord, S::Error> {
        if number >= self.header.counts().packs {
            return Err(ManifestError::Range("number of a pack").into());
        }
        let page = page_of(&self.header.sections().pack_records, number / PAGE_PACKS)?;
        let page = self.pages.page(page)?;
        let offset = (number % PAGE_PACKS) as usize * PACK_RECORD_LEN;
        Ok(PackRecord::read(&page.as_bytes()[..], offset))
    }

    /// Returns the bytes that are used of a pack of this manifest, ascending; none where it is used
    /// as a whole.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had, or the runs are not what the record says.
    pub fn pack_runs(&self, record: &PackRecord) -> Result<Vec<Range<u32>>, S::Error> {
        let mut runs = Vec::new();
        let mut last: Option<(u32, Page)> = None;
        for number in record.runs() {
            let number_of_page = page_of(&self.header.sections().pack_runs, number / PAGE_RUNS)?;
            let page = match last.take() {
                Some((number, page)) if number == number_of_page => page,
                _ => self.pages.page(number_of_page)?,
            };
            runs.push(read_run(&page.as_bytes()[..], (number % PAGE_RUNS) as usize * RUN_LEN));
            last = Some((number_of_page, page));
        }
        check_usage(record, &runs)?;
        Ok(runs)
    }

    /// Returns the answer about a chunk of which the manifest says nothing.
    fn nothing(&self) -> Found {
        if self.header.is_delta() { Found::AsBase } else { Found::Zero }
    }

    fn data(&self, ordinal: u32) -> Result<Found, S::Error> {
        let page = self.pages.page(self.entry_page(ordinal)?)?;
        Ok(Found::Data(Entry::read(page.as_bytes(), ordinal % PAGE_ENTRIES)?))
    }

    /// Returns the number of the page with an entry.
    pub(crate) fn entry_page(&self, ordinal: u32) -> Result<u32, ManifestError> {
        if ordinal >= self.header.counts().data_chunks {
            return Err(ManifestError::Corrupt("ordinal of a chunk"));
        }
        page_of(&self.header.sections().entries, ordinal / PAGE_ENTRIES)
    }

    fn map_page(&self, map: u32) -> Result<Page, S::Error> {
        let page = page_of(&self.header.sections().maps, map)?;
        self.pages.page(page)
    }

    /// Returns what the manifest says of a span.
    pub(crate) fn span(&self, span: u32) -> Result<Span, S::Error> {
        let (directory, slot) = slot_of(span);
        match self.header.directory(directory) {
            None => Ok(Span::Nothing),
            Some(directory) => Ok(span_at(self.pages.page(directory.page)?.as_bytes(), slot)?),
        }
    }

    /// Returns the first span at or after `from` of which the manifest says anything.
    pub(crate) fn next_span(&self, from: u32) -> Result<Option<u32>, S::Error> {
        let (first, _) = slot_of(from);
        for number in first..self.header.span_count().div_ceil(DIRECTORY_SLOTS) {
            let Some(directory) = self.header.directory(number) else { continue };
            let page = self.pages.page(directory.page)?;
            let start = number * DIRECTORY_SLOTS;
            let found = (from.max(start)..start + DIRECTORY_SLOTS)
                .find(|span| page.u64_at(slot_of(*span).1 * 8) != 0);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the bits of a span; `None` when the manifest says nothing of it.
    pub(crate) fn span_bits(&self, number: u32, span: Span) -> Result<Option<SpanBits>, S::Error> {
        let len = self.header.span_len(number);
        let inside = ChunkBits::of_range(0, len);
        let (mut data, mut zero, ordinal) = match span {
            Span::Nothing => return Ok(None),
            Span::Zeros => (ChunkBits::EMPTY, inside.clone(), 0),
            Span::Run { first, len, ordinal } => {
                (ChunkBits::of_range(first, first + len), ChunkBits::EMPTY, ordinal)
            }
            Span::Map { map, ordinal, count } => {
                let (data, zero) = map::read(self.map_page(map)?.as_bytes());
                if data.count() != count {
                    return Err(ManifestError::Corrupt("count of a map").into());
                }
                (data, zero, ordinal)
            }
        };
        let ranks = data.ranks();
        data.combine(&inside, |word, inside| word & inside);
        zero.combine(&inside, |word, inside| word & inside);
        Ok(Some(SpanBits { data, zero, ranks, ordinal }))
    }
}
