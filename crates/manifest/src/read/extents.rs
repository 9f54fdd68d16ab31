//! Data and holes of a disk, as `lseek` asks for them: no entry is looked at, and what says nothing
//! is passed over by the directory.

use std::ops::Range;

use crate::PageSource;
use crate::format::layout::{first_of, split};
use crate::read::span_view::Coverage;
use crate::read::stack::Stack;

/// Data of the span that was looked at last.
#[derive(Debug, Default)]
struct LastSpan(Option<(u32, Coverage)>);

impl LastSpan {
    fn get<S: PageSource>(&mut self, stack: &Stack<S>, span: u32) -> Result<&Coverage, S::Error> {
        let coverage = match self.0.take() {
            Some((last, coverage)) if last == span => coverage,
            _ => stack.coverage(stack.all(), span)?,
        };
        Ok(&self.0.insert((span, coverage)).1)
    }
}

impl<S: PageSource> Stack<S> {
    /// Returns the first chunk with content at or after `from`; `None` when there is none.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>, S::Error> {
        self.find_data(&mut LastSpan::default(), from)
    }

    fn find_data(&self, last: &mut LastSpan, from: u64) -> Result<Option<u64>, S::Error> {
        let count = self.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, chunk) = split(at);
            let found = match last.get(self, span)? {
                Coverage::Empty => None,
                Coverage::Full => Some(chunk),
                Coverage::Some(data) => data.next_set(chunk),
            };
            if let Some(chunk) = found {
                let index = first_of(span) + u64::from(chunk);
                return Ok((index < count).then_some(index));
            }
            match self.next_span(self.all(), span + 1)? {
                Some(span) => at = first_of(span),
                None => break,
            }
        }
        Ok(None)
    }

    /// Returns the first chunk without content at or after `from`, at most the number of chunks: a
    /// disk ends with a hole.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_hole(&self, from: u64) -> Result<u64, S::Error> {
        self.find_hole(&mut LastSpan::default(), from)
    }

    fn find_hole(&self, last: &mut LastSpan, from: u64) -> Result<u64, S::Error> {
        let count = self.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, chunk) = split(at);
            match last.get(self, span)? {
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

    /// Returns the runs of chunks with content within `range`, ascending.
    ///
    /// Ends after the first error.
    pub fn data_runs(&self, range: Range<u64>) -> DataRuns<'_, S> {
        DataRuns { stack: self, range, last: LastSpan::default() }
    }

    /// All levels.
    pub(crate) fn all(&self) -> Range<usize> {
        0..self.levels().len()
    }
}

/// Runs of chunks with content; see [`Stack::data_runs`].
#[derive(Debug)]
pub struct DataRuns<'a, S> {
    stack: &'a Stack<S>,
    range: Range<u64>,
    last: LastSpan,
}

impl<S: PageSource> DataRuns<'_, S> {
    fn find_run(&mut self) -> Result<Option<Range<u64>>, S::Error> {
        let Range { start, end } = self.range;
        let Some(start) = self.stack.find_data(&mut self.last, start)? else { return Ok(None) };
        if start >= end {
            return Ok(None);
        }
        Ok(Some(start..self.stack.find_hole(&mut self.last, start)?.min(end)))
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
