//! Manifests on top of each other: a whole one below, deltas above.

use crate::format::entry::Entry;
use crate::format::header::Header;
use crate::read::reader::{Found, Reader};
use crate::{ManifestError, PageSource, limits};

/// What a disk has at a chunk.
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
        (base.depth() < upper.depth(), "the base is as deep as itself"),
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
}
