//! Spans of a manifest that is being built: directories and maps to come.

use crate::format::directory::Span;
use crate::format::layout::{
    DIRECTORIES_MAX, DIRECTORY_SLOTS, HAS_DIRECTORY, SLOT_LEN, SPAN_CHUNKS, slot_of,
};
use crate::format::map::{self, ChunkBits, WORDS};
use crate::{PAGE_LEN, PageBytes};

/// Bits of a span, kept in as little memory as their pattern allows, at most 1 KiB.
#[derive(Debug)]
enum PackedBits {
    /// Chunks at which the bits change, from not set.
    Edges(Box<[u16]>),
    Words(Box<[u64; WORDS]>),
}

impl PackedBits {
    fn of(bits: &ChunkBits) -> PackedBits {
        let mut edges = Vec::new();
        let mut at = 0;
        while let Some(start) = bits.next_set(at) {
            let end = bits.next_clear(start).unwrap_or(SPAN_CHUNKS);
            edges.extend([start as u16, end as u16]);
            if edges.len() * 2 >= WORDS * 8 {
                return PackedBits::Words(Box::new(bits.0));
            }
            if end == SPAN_CHUNKS {
                break;
            }
            at = end;
        }
        PackedBits::Edges(edges.into())
    }

    fn unpack(&self) -> ChunkBits {
        match self {
            PackedBits::Words(words) => ChunkBits(**words),
            PackedBits::Edges(edges) => {
                let mut bits = ChunkBits::EMPTY;
                for pair in edges.chunks_exact(2) {
                    bits.set_range(pair[0].into(), pair[1].into());
                }
                bits
            }
        }
    }
}

/// The span that chunks are being added to.
#[derive(Debug)]
struct OpenSpan {
    number: u32,
    ordinal: u32,
    data: ChunkBits,
    zero: ChunkBits,
    /// First data chunk, and the one after the last.
    bounds: Option<(u32, u32)>,
}

impl OpenSpan {
    fn new(number: u32, ordinal: u32) -> OpenSpan {
        let (data, zero) = (ChunkBits::EMPTY, ChunkBits::EMPTY);
        OpenSpan { number, ordinal, data, zero, bounds: None }
    }
}

/// Spans of which something is said, in the order of the disk.
#[derive(Debug)]
pub(crate) struct SpanList {
    /// Number of chunks of the disk.
    chunk_count: u64,
    open: Option<OpenSpan>,
    done: Vec<(u32, Span)>,
    maps: Vec<(PackedBits, PackedBits)>,
    /// Data chunks so far.
    ordinal: u32,
}

impl SpanList {
    pub(crate) fn new(chunk_count: u64) -> SpanList {
        SpanList { chunk_count, open: None, done: Vec::new(), maps: Vec::new(), ordinal: 0 }
    }

    /// Adds a data chunk; the caller keeps to the order.
    pub(crate) fn add_data(&mut self, span: u32, chunk: u32) {
        let open = self.open(span);
        open.data.set(chunk);
        let first = open.bounds.map_or(chunk, |(first, _)| first);
        open.bounds = Some((first, chunk + 1));
        self.ordinal += 1;
    }

    /// Adds zero chunks of one span; the caller keeps to the order.
    pub(crate) fn add_zeros(&mut self, span: u32, start: u32, end: u32) {
        self.open(span).zero.set_range(start, end);
    }

    fn open(&mut self, number: u32) -> &mut OpenSpan {
        if self.open.as_ref().is_some_and(|open| open.number != number) {
            self.close();
        }
        let ordinal = self.ordinal;
        self.open.get_or_insert_with(|| OpenSpan::new(number, ordinal))
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let left = self.chunk_count - u64::from(open.number) * u64::from(SPAN_CHUNKS);
        let len = left.min(SPAN_CHUNKS.into()) as u32;
        let (ordinal, count) = (open.ordinal, self.ordinal - open.ordinal);
        let zeros = open.zero.count();
        let span = match open.bounds {
            None if zeros == len => Span::Zeros,
            Some((first, end)) if zeros == 0 && end - first == count => {
                Span::Run { first, len: count, ordinal }
            }
            _ => {
                self.maps.push((PackedBits::of(&open.data), PackedBits::of(&open.zero)));
                Span::Map { map: self.maps.len() as u32 - 1, count, ordinal }
            }
        };
        self.done.push((open.number, span));
    }

    pub(crate) fn finish(mut self) -> Spans {
        self.close();
        Spans { spans: self.done, maps: self.maps }
    }
}

/// Directories and maps of a manifest.
#[derive(Debug)]
pub(crate) struct Spans {
    spans: Vec<(u32, Span)>,
    maps: Vec<(PackedBits, PackedBits)>,
}

impl Spans {
    /// Number of maps.
    pub(crate) fn map_count(&self) -> u32 {
        self.maps.len() as u32
    }

    /// Returns the pages of the maps.
    pub(crate) fn map_pages(&self) -> impl Iterator<Item = PageBytes> + '_ {
        self.maps.iter().map(|(data, zero)| map::write(&data.unpack(), &zero.unpack()))
    }

    /// Returns the pages of the directories, and their fields in the header.
    pub(crate) fn directories(&self) -> (Vec<u8>, [u32; DIRECTORIES_MAX]) {
        let (mut bytes, mut fields) = (Vec::new(), [0; DIRECTORIES_MAX]);
        let mut ordinal = 0;
        for directory in self
            .spans
            .chunk_by(|(one, _), (next, _)| one / DIRECTORY_SLOTS == next / DIRECTORY_SLOTS)
        {
            let start = bytes.len();
            bytes.resize(start + PAGE_LEN, 0);
            for (number, span) in directory {
                let (directory, slot) = slot_of(*number);
                if fields[directory as usize] == 0 {
                    fields[directory as usize] = HAS_DIRECTORY | ordinal;
                }
                let at = start + slot * SLOT_LEN;
                bytes[at..at + SLOT_LEN].copy_from_slice(&span.encode().to_le_bytes());
                ordinal += span.data().map_or(0, |(_, count)| count);
            }
        }
        (bytes, fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn test_packed_bits_unpack(
            ranges in proptest::collection::vec((0..8192_u32, 0..40_u32), 0..600),
        ) {
            let mut bits = ChunkBits::EMPTY;
            for (start, len) in ranges {
                bits.set_range(start, (start + len).min(SPAN_CHUNKS));
            }
            prop_assert_eq!(PackedBits::of(&bits).unpack(), bits);
        }
    }

    #[test]
    fn test_alternation_takes_a_kibibyte() {
        let alternating = ChunkBits([0x5555_5555_5555_5555; WORDS]);
        let packed = PackedBits::of(&alternating);
        assert!(matches!(packed, PackedBits::Words(_)));
        assert_eq!(packed.unpack(), alternating);
    }
}
