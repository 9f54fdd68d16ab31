//! Data and holes of a disk, as `lseek` asks for them: no entry is looked at, and what says nothing
//! is passed over by the directory.

use std::ops::Range;

use crate::PageSource;
use crate::format::layout::{first_of, split};
use crate::read::span_view::Coverage;
use crate::read::stack::Stack;

impl<S: PageSource> Stack<S> {
    /// Returns the first chunk with content at or after `from`; `None` when there is none.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>, S::Error> {
        let count = self.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, _) = split(at);
            let Some(span) = self.next_span(self.all(), span)? else { return Ok(None) };
            at = at.max(first_of(span));
            let found = match self.coverage(self.all(), span)? {
                Coverage::Empty => None,
                Coverage::Full => Some(split(at).1),
                Coverage::Some(data) => data.next_set(split(at).1),
            };
            if let Some(chunk) = found {
                let index = first_of(span) + u64::from(chunk);
                return Ok((index < count).then_some(index));
            }
            at = first_of(span + 1);
        }
        Ok(None)
    }

    /// Returns the first chunk without content at or after `from`, at most the number of chunks: a
    /// disk ends with a hole.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_hole(&self, from: u64) -> Result<u64, S::Error> {
        let count = self.header().chunk_count();
        let mut at = from;
        while at < count {
            let (span, chunk) = split(at);
            match self.coverage(self.all(), span)? {
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
        DataRuns { stack: self, range }
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
}

impl<S: PageSource> DataRuns<'_, S> {
    fn find_run(&self) -> Result<Option<Range<u64>>, S::Error> {
        let Some(start) = self.stack.next_data(self.range.start)? else { return Ok(None) };
        if start >= self.range.end {
            return Ok(None);
        }
        Ok(Some(start..self.stack.next_hole(start)?.min(self.range.end)))
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
