//! Entries in the order of the disk.

use std::ops::Range;

use crate::format::entry::Entry;
use crate::format::layout::{PAGE_ENTRIES, first_of, split};
use crate::format::map::ChunkBits;
use crate::read::reader::Reader;
use crate::read::span_view::{SpanView, next_span};
use crate::read::stack::Stack;
use crate::{ManifestError, Page, PageSource};

/// A chunk with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataChunk {
    /// Index of the chunk.
    pub index: u64,
    /// The manifest in the stack that has the entry, which numbers the packs; 0: the topmost.
    pub level: usize,
    /// The entry.
    pub entry: Entry,
}

/// Entries of one manifest, in about their order: the page of the last one is kept.
pub(crate) struct EntryCursor<'a, S> {
    reader: &'a Reader<S>,
    page: Option<(u32, Page)>,
}

impl<'a, S: PageSource> EntryCursor<'a, S> {
    pub(crate) fn new(reader: &'a Reader<S>) -> Self {
        EntryCursor { reader, page: None }
    }

    pub(crate) fn entry(&mut self, ordinal: u32) -> Result<Entry, S::Error> {
        let number = self.reader.entry_page(ordinal)?;
        let page = match self.page.take() {
            Some((last, page)) if last == number => page,
            _ => self.reader.pages().page(number)?,
        };
        let entry = Entry::read(page.as_bytes(), ordinal % PAGE_ENTRIES);
        self.page = Some((number, page));
        Ok(entry?)
    }
}

/// Chunks with content; see [`Stack::entries`].
pub struct Entries<'a, S> {
    stack: &'a Stack<S>,
    cursors: Vec<EntryCursor<'a, S>>,
    next: u64,
    end: u64,
    view: Option<(u32, SpanView)>,
}

impl<'a, S: PageSource> Entries<'a, S> {
    pub(crate) fn of(stack: &'a Stack<S>, range: Range<u64>) -> Self {
        Entries {
            stack,
            cursors: stack.levels().iter().map(EntryCursor::new).collect(),
            next: range.start,
            end: range.end.min(stack.header().chunk_count()),
            view: None,
        }
    }

    fn find_chunk(&mut self) -> Result<Option<DataChunk>, S::Error> {
        while self.next < self.end {
            let (span, chunk) = split(self.next);
            let view = match self.view.take() {
                Some((number, view)) if number == span => view,
                _ => {
                    let Some(found) = next_span(self.stack, self.stack.all(), span)? else {
                        break;
                    };
                    if found != span {
                        self.next = first_of(found);
                        continue;
                    }
                    SpanView::of(self.stack, self.stack.all(), span, ChunkBits::EMPTY)?
                }
            };
            let Some(chunk) = view.data.next_set(chunk) else {
                self.next = first_of(span + 1);
                continue;
            };
            let index = first_of(span) + u64::from(chunk);
            if index >= self.end {
                break;
            }
            let located = view.locate(chunk);
            self.view = Some((span, view));
            self.next = index + 1;
            let (level, ordinal) = located.ok_or(ManifestError::Corrupt("level of a chunk"))?;
            return Ok(Some(DataChunk {
                index,
                level,
                entry: self.cursors[level].entry(ordinal)?,
            }));
        }
        Ok(None)
    }
}

impl<S: PageSource> Iterator for Entries<'_, S> {
    type Item = Result<DataChunk, S::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find_chunk().transpose();
        if !matches!(found, Some(Ok(_))) {
            self.next = self.end;
        }
        found
    }
}

impl<S> std::fmt::Debug for Entries<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("next", &self.next).field("end", &self.end).finish()
    }
}
