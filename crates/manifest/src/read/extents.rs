//! Data and holes of a disk, as `lseek` asks for them: no entry is looked at, and what says nothing
//! is passed over by the directory.

use std::ops::Range;

use crate::PageSource;
use crate::format::layout::{first_of, split};
use crate::read::span_view::{Coverage, next_span};
use crate::read::stack::Stack;

/// Data of the span that was looked at last.
#[derive(Debug, Default)]
struct LastSpan(Option<(u32, Coverage)>);

impl LastSpan {
    fn get<S: PageSource>(&mut self, stack: &Stack<S>, span: u32) -> Result<&Coverage, S::Error> {
        let coverage = match self.0.take() {
            Some((last, coverage)) if last == span => coverage,
            _ => Coverage::of(stack, stack.all(), span)?,
        };
        Ok(&self.0.insert((span, coverage)).1)
    }
}

/// A search for data and holes.
#[derive(Debug)]
pub(crate) struct Extents<'a, S> {
    stack: &'a Stack<S>,
    last: LastSpan,
}

impl<'a, S: PageSource> Extents<'a, S> {
    pub(crate) fn of(stack: &'a Stack<S>) -> Self {
        Extents { stack, last: LastSpan::default() }
    }

    /// As [`Stack::next_data`].
    pub(crate) fn next_data(&mut self, from: u64) -> Result<Option<u64>, S::Error> {
        let count = self.stack.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, chunk) = split(at);
            let found = match self.last.get(self.stack, span)? {
                Coverage::Empty => None,
                Coverage::Full => Some(chunk),
                Coverage::Some(data) => data.next_set(chunk),
            };
            if let Some(chunk) = found {
                let index = first_of(span) + u64::from(chunk);
                return Ok((index < count).then_some(index));
            }
            match next_span(self.stack, self.stack.all(), span + 1)? {
                Some(span) => at = first_of(span),
                None => break,
            }
        }
        Ok(None)
    }

    /// As [`Stack::next_hole`].
    pub(crate) fn next_hole(&mut self, from: u64) -> Result<u64, S::Error> {
        let count = self.stack.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, chunk) = split(at);
            match self.last.get(self.stack, span)? {
                Coverage::Empty => return Ok(at),
                Coverage::Full => {}
                Coverage::Some(data) => {
                    if let Some(chunk) = data.next_clear(chunk) {
                        return Ok((first_of(span) + u64::from(chunk)).min(count));
                    }
                }
            }
            at = first_of(span + 1);
        }
        Ok(count)
    }
}

/// Runs of chunks with content; see [`Stack::data_runs`].
#[derive(Debug)]
pub struct DataRuns<'a, S> {
    extents: Extents<'a, S>,
    range: Range<u64>,
}

impl<'a, S: PageSource> DataRuns<'a, S> {
    pub(crate) fn of(stack: &'a Stack<S>, range: Range<u64>) -> Self {
        DataRuns { extents: Extents::of(stack), range }
    }

    fn find_run(&mut self) -> Result<Option<Range<u64>>, S::Error> {
        let Range { start, end } = self.range;
        let Some(start) = self.extents.next_data(start)? else { return Ok(None) };
        if start >= end {
            return Ok(None);
        }
        Ok(Some(start..self.extents.next_hole(start)?.min(end)))
    }
}

impl<S: PageSource> Iterator for DataRuns<'_, S> {
    type Item = Result<Range<u64>, S::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find_run().transpose();
        self.range.start = match &found {
            Some(Ok(run)) => run.end,
            Some(Err(_)) | None => self.range.end,
        };
        found
    }
}
