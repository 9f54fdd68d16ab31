//! Manifests on top of each other: a whole one below, deltas above.

use std::ops::Range;

use crate::format::entry::Entry;
use crate::format::header::Header;
use crate::read::entries::Entries;
use crate::read::extents::{DataRuns, Extents};
use crate::read::reader::{Found, Reader};
use crate::{ManifestError, PageSource, limits};

/// Content of a disk at a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Every byte is zero; nothing is stored.
    Zero,
    /// The chunk has content.
    Data {
        /// The manifest in the stack that has the entry, which numbers the packs; 0: the topmost.
        level: usize,
        /// The entry.
        entry: Entry,
    },
}

/// A disk: a manifest, and those below it of which it is a delta; the topmost first.
#[derive(Clone, Debug)]
pub struct Stack<S> {
    levels: Box<[Reader<S>]>,
}

fn check_base(upper: &Header, base: &Header) -> Result<(), ManifestError> {
    let requirements = [
        (upper.base() == Some(base.name()), "it names another"),
        (base.depth() + 1 == upper.depth(), "depth of the base"),
        (base.chunk_size() == upper.chunk_size(), "chunks of another size"),
        (base.size_bytes() <= upper.size_bytes(), "the base is larger"),
    ];
    match requirements.into_iter().find(|(is_met, _)| !is_met) {
        Some((_, what)) => Err(ManifestError::Base(what)),
        None => Ok(()),
    }
}

impl<S> Stack<S> {
    /// Puts manifests on top of each other, the topmost first.
    ///
    /// # Errors
    /// [`ManifestError::Base`] when one is not the base of the one above it, or one is missing.
    pub fn new(levels: Vec<Reader<S>>) -> Result<Stack<S>, ManifestError> {
        if levels.is_empty() || levels.len() > limits::DEPTH_MAX.into() {
            return Err(ManifestError::Base("number of manifests"));
        }
        for pair in levels.windows(2) {
            check_base(pair[0].header(), pair[1].header())?;
        }
        if levels.last().is_some_and(|last| last.header().is_delta()) {
            return Err(ManifestError::Base("the lowest is a delta"));
        }
        Ok(Stack { levels: levels.into() })
    }

    /// The manifests, the topmost first; at least one.
    pub fn levels(&self) -> &[Reader<S>] {
        &self.levels
    }

    /// All levels.
    pub(crate) fn all(&self) -> Range<usize> {
        0..self.levels.len()
    }

    /// Pages of each manifest, for [`levels_to_merge`](crate::levels_to_merge).
    pub fn page_counts(&self) -> Vec<u64> {
        let pages = |reader: &Reader<S>| u64::from(reader.header().sections().page_count());
        self.levels.iter().map(pages).collect()
    }

    /// The topmost header, which has size and id of the disk.
    pub fn header(&self) -> &Header {
        // There is at least one level.
        self.levels[0].header()
    }
}

impl<S: PageSource> Stack<S> {
    /// Returns what the disk has at chunk `index`: zero past its end.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn look_up(&self, index: u64) -> Result<Chunk, S::Error> {
        for (level, reader) in self.levels.iter().enumerate() {
            match reader.look_up(index)? {
                Found::AsBase => {}
                Found::Zero => break,
                Found::Data(entry) => return Ok(Chunk::Data { level, entry }),
            }
        }
        Ok(Chunk::Zero)
    }

    /// Returns the first chunk with content at or after `from`; `None` when there is none.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>, S::Error> {
        Extents::of(self).next_data(from)
    }

    /// Returns the first chunk without content at or after `from`, at most the number of chunks: a
    /// disk ends with a hole.
    ///
    /// # Errors
    /// [`PageSource::Error`] when a page cannot be had.
    pub fn next_hole(&self, from: u64) -> Result<u64, S::Error> {
        Extents::of(self).next_hole(from)
    }

    /// Returns the runs of chunks with content within `range`, ascending.
    ///
    /// Ends after the first error.
    pub fn data_runs(&self, range: Range<u64>) -> DataRuns<'_, S> {
        DataRuns::of(self, range)
    }

    /// Returns the chunks with content within `range`, ascending.
    ///
    /// Ends after the first error. Memory: one page a level and some bits.
    pub fn entries(&self, range: Range<u64>) -> Entries<'_, S> {
        Entries::of(self, range)
    }
}
