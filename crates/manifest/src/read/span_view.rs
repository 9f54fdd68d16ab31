//! A span of a stack: which level says what of its chunks.

use std::ops::Range;

use crate::PageSource;
use crate::format::directory::Span;
use crate::format::layout::SPAN_CHUNKS;
use crate::format::map::ChunkBits;
use crate::read::reader::SpanBits;
use crate::read::stack::Stack;

/// Union of a span's chunks over the levels of a stack.
pub(crate) struct SpanView {
    /// Chunks with content.
    pub(crate) data: ChunkBits,
    /// Chunks that the topmost level that says anything of them has as zero.
    pub(crate) zero: ChunkBits,
    /// Levels with data, and the chunks that are read from them.
    parts: Vec<(usize, ChunkBits, SpanBits)>,
}

/// Data of a span, as far as one has to know.
#[derive(Debug)]
pub(crate) enum Coverage {
    Empty,
    Full,
    Some(Box<ChunkBits>),
}

impl SpanView {
    /// Looks at a span in some of the levels; chunks of `hidden` are above all of them.
    pub(crate) fn of<S: PageSource>(
        stack: &Stack<S>,
        levels: Range<usize>,
        span: u32,
        hidden: ChunkBits,
    ) -> Result<SpanView, S::Error> {
        let mut view =
            SpanView { data: ChunkBits::EMPTY, zero: ChunkBits::EMPTY, parts: Vec::new() };
        let mut covered = hidden;
        for level in levels {
            let Some(reader) = stack.levels().get(level) else { break };
            let Some(bits) = reader.span_bits(span, reader.span(span)?)? else { continue };
            let (mut own, mut zero) = (bits.data.clone(), bits.zero.clone());
            own.combine(&covered, |own, covered| own & !covered);
            zero.combine(&covered, |zero, covered| zero & !covered);
            view.data.combine(&own, |data, own| data | own);
            view.zero.combine(&zero, |all, zero| all | zero);
            covered.combine(&bits.data, |covered, data| covered | data);
            covered.combine(&bits.zero, |covered, zero| covered | zero);
            if !own.is_empty() {
                view.parts.push((level, own, bits));
            }
        }
        Ok(view)
    }

    /// Returns the level that has a chunk of `data`, and the chunk's ordinal there.
    pub(crate) fn locate(&self, chunk: u32) -> Option<(usize, u32)> {
        let (level, _, bits) = self.parts.iter().find(|(_, own, _)| own.get(chunk))?;
        Some((*level, bits.ordinal_of(chunk)))
    }
}

/// Returns the first span at or after `from` of which one of the levels says anything.
pub(crate) fn next_span<S: PageSource>(
    stack: &Stack<S>,
    levels: Range<usize>,
    from: u32,
) -> Result<Option<u32>, S::Error> {
    let mut next = None;
    for reader in stack.levels().get(levels).into_iter().flatten() {
        let found = reader.next_span(from)?;
        next = [next, found].into_iter().flatten().min();
    }
    Ok(next)
}

impl Coverage {
    /// Returns which chunks of a span have content in some of the levels.
    pub(crate) fn of<S: PageSource>(
        stack: &Stack<S>,
        levels: Range<usize>,
        span: u32,
    ) -> Result<Coverage, S::Error> {
        // Most spans are said by one level alone, in its directory.
        for level in levels.clone() {
            let Some(reader) = stack.levels().get(level) else { break };
            match reader.span(span)? {
                Span::Nothing => {}
                Span::Zeros => return Ok(Coverage::Empty),
                Span::Run { first: 0, len: SPAN_CHUNKS, .. } => return Ok(Coverage::Full),
                Span::Run { .. } | Span::Map { .. } => {
                    let view = SpanView::of(stack, level..levels.end, span, ChunkBits::EMPTY)?;
                    return Ok(Coverage::Some(Box::new(view.data)));
                }
            }
        }
        Ok(Coverage::Empty)
    }
}
