//! Merging: changes and the upper levels of a stack, into one manifest on the rest of it.

use std::collections::VecDeque;
use std::io::{Read, Seek, Write};
use std::iter::Peekable;
use std::ops::Range;

use acstor_types::{DiskId, StoredChunk};

use crate::format::header::Salt;
use crate::format::layout::{SPAN_CHUNKS, first_of, split};
use crate::format::map::ChunkBits;
use crate::format::summary::Pack;
use crate::read::entries::EntryCursor;
use crate::read::span_view::{Coverage, SpanView, next_span};
use crate::read::stack::Stack;
use crate::write::builder::{Base, BuildError, Builder, Disk};
use crate::write::built::Built;
use crate::{ManifestError, PageSource};

/// New content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Every byte is zero.
    Zero,
    /// A chunk in a pack.
    Data {
        /// The pack.
        pack: Pack,
        /// The chunk in it.
        chunk: StoredChunk,
    },
}

/// Properties of a manifest that a merge makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedDisk {
    /// The disk whose state it is.
    pub disk_id: DiskId,
    /// Size of the disk, bytes; at least that of the stack.
    pub size_bytes: u64,
    /// Random bytes, which make manifests of equal entries differ.
    pub salt: Salt,
}

/// Reason why manifests were not merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError<E> {
    /// A page of the stack could not be had.
    #[error("merging manifests: {0}")]
    Read(E),
    /// The result could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Merges `changes`, ascending by chunk, with the topmost `levels` of a stack.
///
/// The result is a delta against the highest of the other levels, or whole where there are none.
/// Nothing is read of the other levels but directories and maps, to leave out zeros of which they
/// have no data. Memory: that of the [`Builder`], 4 bytes for each pack of the merged levels, and
/// the changes of one span.
///
/// # Errors
/// [`MergeError`] when changes are out of order, when the result is deeper than is allowed, and when
/// stack or spool fail.
pub fn merge<S, W, C>(
    stack: &Stack<S>,
    levels: usize,
    changes: C,
    disk: MergedDisk,
    spool: W,
) -> Result<Built<W>, MergeError<S::Error>>
where
    S: PageSource,
    W: Read + Write + Seek,
    C: IntoIterator<Item = (u64, Change)>,
{
    let merged = stack.levels().get(..levels);
    let merged = merged.ok_or(BuildError::from(ManifestError::Range("number of levels")))?;
    if disk.size_bytes < stack.header().size_bytes() {
        return Err(BuildError::from(ManifestError::Range("disk size")).into());
    }
    let target = Disk {
        disk_id: disk.disk_id,
        size_bytes: disk.size_bytes,
        chunk_size: stack.header().chunk_size(),
        salt: disk.salt,
        base: stack.levels().get(levels).map(|base| Base::of(base.header())),
    };
    let merger = Merger {
        stack,
        levels: 0..levels,
        changes: changes.into_iter().peekable(),
        chunk_count: target.chunk_size.count_for(target.size_bytes),
        builder: Builder::new(target, spool)?,
        cursors: merged.iter().map(EntryCursor::new).collect(),
        packs: vec![Vec::new(); levels],
    };
    merger.run()
}

struct Merger<'a, S, W, C: Iterator> {
    stack: &'a Stack<S>,
    levels: Range<usize>,
    changes: Peekable<C>,
    chunk_count: u64,
    builder: Builder<W>,
    cursors: Vec<EntryCursor<'a, S>>,
    /// For each level, the new number of each pack that was met, plus 1.
    packs: Vec<Vec<u32>>,
}

/// Changes of one span.
struct SpanChanges {
    data: ChunkBits,
    zero: ChunkBits,
    chunks: VecDeque<(Pack, StoredChunk)>,
}

impl<S, W, C> Merger<'_, S, W, C>
where
    S: PageSource,
    W: Read + Write + Seek,
    C: Iterator<Item = (u64, Change)>,
{
    fn run(mut self) -> Result<Built<W>, MergeError<S::Error>> {
        let mut from = 0;
        while let Some(span) = self.next_span(from)? {
            self.merge_span(span)?;
            from = span + 1;
        }
        Ok(self.builder.finish()?)
    }

    /// Returns the next span with something to merge.
    fn next_span(&mut self, from: u32) -> Result<Option<u32>, MergeError<S::Error>> {
        let old = next_span(self.stack, self.levels.clone(), from).map_err(MergeError::Read)?;
        let new = match self.changes.peek() {
            Some((index, _)) if *index >= self.chunk_count || split(*index).0 < from => {
                return Err(BuildError::Order(*index).into());
            }
            Some((index, _)) => Some(split(*index).0),
            None => None,
        };
        Ok([old, new].into_iter().flatten().min())
    }

    /// Takes the changes of a span.
    fn changes_of(&mut self, span: u32) -> Result<SpanChanges, BuildError> {
        let (data, zero) = (ChunkBits::EMPTY, ChunkBits::EMPTY);
        let mut changes = SpanChanges { data, zero, chunks: VecDeque::new() };
        let mut next = first_of(span);
        let end = first_of(span + 1);
        while let Some((index, change)) = self.changes.next_if(|(index, _)| *index < end) {
            if index < next || index >= self.chunk_count {
                return Err(BuildError::Order(index));
            }
            next = index + 1;
            let (_, chunk) = split(index);
            match change {
                Change::Zero => changes.zero.set(chunk),
                Change::Data { pack, chunk: stored } => {
                    changes.data.set(chunk);
                    changes.chunks.push_back((pack, stored));
                }
            }
        }
        Ok(changes)
    }

    fn merge_span(&mut self, span: u32) -> Result<(), MergeError<S::Error>> {
        let mut changes = self.changes_of(span)?;
        let mut hidden = changes.data.clone();
        hidden.combine(&changes.zero, |data, zero| data | zero);
        let view = SpanView::of(self.stack, self.levels.clone(), span, hidden)
            .map_err(MergeError::Read)?;
        let mut data = changes.data.clone();
        data.combine(&view.data, |new, old| new | old);
        let mut zero = changes.zero.clone();
        zero.combine(&view.zero, |new, old| new | old);
        if self.keep_zeros(span, &data, &mut zero)? {
            let end = first_of(span + 1).min(self.chunk_count);
            return Ok(self.builder.push_zeros(first_of(span)..end)?);
        }
        let mut said = data;
        said.combine(&zero, |data, zero| data | zero);
        for chunk in said.chunks() {
            let index = first_of(span) + u64::from(chunk);
            if zero.get(chunk) {
                self.builder.push_zeros(index..index + 1)?;
            } else if changes.data.get(chunk) {
                let (pack, stored) = changes.chunks.pop_front().ok_or(BuildError::Order(index))?;
                let pack = self.builder.add_pack(pack)?;
                self.builder.push(index, pack, stored)?;
            } else {
                self.push_old(index, view.locate(chunk))?;
            }
        }
        Ok(())
    }

    /// Drops the zeros of which the rest of the stack has no data; returns whether all that it has
    /// in the span is zero now.
    fn keep_zeros(
        &self,
        span: u32,
        data: &ChunkBits,
        zero: &mut ChunkBits,
    ) -> Result<bool, MergeError<S::Error>> {
        let rest = self.levels.end..self.stack.levels().len();
        if zero.is_empty() || rest.is_empty() {
            *zero = ChunkBits::EMPTY;
            return Ok(false);
        }
        let below = match Coverage::of(self.stack, rest, span).map_err(MergeError::Read)? {
            Coverage::Empty => ChunkBits::EMPTY,
            Coverage::Full => ChunkBits::of_range(0, SPAN_CHUNKS),
            Coverage::Some(bits) => *bits,
        };
        zero.combine(&below, |zero, below| zero & below);
        Ok(data.is_empty() && !zero.is_empty() && *zero == below)
    }

    fn push_old(
        &mut self,
        index: u64,
        located: Option<(usize, u32)>,
    ) -> Result<(), MergeError<S::Error>> {
        let corrupt = || BuildError::from(ManifestError::Corrupt("level of a chunk"));
        let (level, ordinal) = located.ok_or_else(corrupt)?;
        let cursor = self.cursors.get_mut(level).ok_or_else(corrupt)?;
        let entry = cursor.entry(ordinal).map_err(MergeError::Read)?;
        let pack = self.pack(level, entry.pack)?;
        Ok(self.builder.push(index, pack, entry.chunk)?)
    }

    /// Returns the new number of a pack of a level.
    fn pack(&mut self, level: usize, number: u32) -> Result<u32, MergeError<S::Error>> {
        let reader = &self.stack.levels()[level];
        let numbers = &mut self.packs[level];
        if numbers.is_empty() {
            numbers.resize(reader.header().counts().packs as usize, 0);
        }
        let corrupt = || BuildError::from(ManifestError::Corrupt("number of a pack"));
        let known = numbers.get_mut(number as usize).ok_or_else(corrupt)?;
        if *known == 0 {
            let record = reader.pack(number).map_err(MergeError::Read)?;
            *known = self.builder.add_pack(record.pack)? + 1;
        }
        Ok(*known - 1)
    }
}
