//! Directory pages: a slot for each span of 8,192 chunks.
//!
//! ```text
//! bits 0..2    kind: 0 nothing, 1 zeros, 2 one run of data, 3 a map
//! bits 2..34   ordinal of the span's first data chunk          (run, map)
//! bits 34..47  first chunk of the run                          (run)
//! bits 47..60  length of the run, less 1                       (run)
//! bits 34..51  number of the map                               (map)
//! bits 51..64  data chunks of the span, fewer than all         (map)
//! ```
//!
//! All other bits are zero.

use acstor_types::bytes_le::u64_at;

use crate::format::header::Header;
use crate::format::layout::{DIRECTORY_SLOTS, SLOT_LEN, SPAN_CHUNKS};
use crate::{ManifestError, PageBytes};

const KIND_BITS: u32 = 2;
const ORDINAL_BITS: u32 = 32;
const CHUNK_BITS: u32 = 13;
const MAP_BITS: u32 = 17;
const DETAIL_AT: u32 = KIND_BITS + ORDINAL_BITS;

const NOTHING: u64 = 0;
const ZEROS: u64 = 1;
const RUN: u64 = 2;

/// Content of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Zeros in a whole manifest; in a delta, what the base has.
    Nothing,
    /// Zeros, whatever the base has.
    Zeros,
    /// Data chunks side by side, and nothing else.
    Run { first: u32, len: u32, ordinal: u32 },
    /// Entry of a map.
    Map { map: u32, count: u32, ordinal: u32 },
}

fn bits(slot: u64, at: u32, width: u32) -> u32 {
    (slot >> at & ((1 << width) - 1)) as u32
}

impl Span {
    pub(crate) fn decode(slot: u64) -> Result<Span, ManifestError> {
        let ordinal = bits(slot, KIND_BITS, ORDINAL_BITS);
        let span = match slot & 3 {
            NOTHING => Span::Nothing,
            ZEROS => Span::Zeros,
            RUN => Span::Run {
                first: bits(slot, DETAIL_AT, CHUNK_BITS),
                len: bits(slot, DETAIL_AT + CHUNK_BITS, CHUNK_BITS) + 1,
                ordinal,
            },
            _ => Span::Map {
                map: bits(slot, DETAIL_AT, MAP_BITS),
                count: bits(slot, DETAIL_AT + MAP_BITS, CHUNK_BITS),
                ordinal,
            },
        };
        if span.encode() == slot { Ok(span) } else { Err(ManifestError::Corrupt("directory slot")) }
    }

    pub(crate) fn encode(self) -> u64 {
        let slot = |kind: u64, ordinal: u32, detail: u64| {
            kind | u64::from(ordinal) << KIND_BITS | detail << DETAIL_AT
        };
        match self {
            Span::Nothing => NOTHING,
            Span::Zeros => ZEROS,
            Span::Run { first, len, ordinal } => {
                slot(RUN, ordinal, u64::from(first) | u64::from(len - 1) << CHUNK_BITS)
            }
            Span::Map { map, count, ordinal } => {
                slot(3, ordinal, u64::from(map) | u64::from(count) << MAP_BITS)
            }
        }
    }

    /// Ordinal of the first data chunk, and number of data chunks.
    pub(crate) fn data(self) -> Option<(u32, u32)> {
        match self {
            Span::Nothing | Span::Zeros => None,
            Span::Run { ordinal, len, .. } => Some((ordinal, len)),
            Span::Map { ordinal, count, .. } => Some((ordinal, count)),
        }
    }
}

/// Returns the content of a span, of the bytes of its directory page.
pub(crate) fn span_at(bytes: &PageBytes, slot: usize) -> Result<Span, ManifestError> {
    Span::decode(u64_at(&bytes[..], slot * SLOT_LEN))
}

/// Checks a directory page: its ordinals and maps are all of those that are its, one after the
/// other, and nothing reaches past the disk.
pub(crate) fn check(
    header: &Header,
    position: u32,
    bytes: &PageBytes,
) -> Result<(), ManifestError> {
    let found = header.directory_number(position).and_then(|number| {
        let directory = header.directory(number)?;
        Some((number, directory.ordinals.clone()))
    });
    let (number, ordinals) = found.ok_or(ManifestError::Range("page number"))?;
    let (mut next, mut next_map, mut is_empty) = (ordinals.start, None, true);
    for slot in 0..DIRECTORY_SLOTS {
        let span = span_at(bytes, slot as usize)?;
        is_empty &= span == Span::Nothing;
        check_span(header, number * DIRECTORY_SLOTS + slot, span)?;
        if let Some((ordinal, count)) = span.data() {
            if ordinal != next {
                return Err(ManifestError::Corrupt("ordinals of a directory"));
            }
            next = next.saturating_add(count);
        }
        if let Span::Map { map, .. } = span {
            if next_map.is_some_and(|next_map| next_map != map) {
                return Err(ManifestError::Corrupt("maps of a directory"));
            }
            next_map = Some(map + 1);
        }
    }
    if is_empty {
        return Err(ManifestError::Corrupt("directory of nothing"));
    }
    if next != ordinals.end {
        return Err(ManifestError::Corrupt("ordinals of a directory"));
    }
    Ok(())
}

fn check_span(header: &Header, number: u32, span: Span) -> Result<(), ManifestError> {
    let len = header.span_len(number);
    match span {
        Span::Nothing => Ok(()),
        _ if len == 0 => Err(ManifestError::Corrupt("span past the end of the disk")),
        Span::Zeros if header.is_delta() => Ok(()),
        Span::Zeros => Err(ManifestError::Corrupt("zeros in a whole manifest")),
        Span::Run { first, len: run, .. } if first + run <= len => Ok(()),
        Span::Run { .. } => Err(ManifestError::Corrupt("run past the end of its span")),
        Span::Map { map, count, .. } => {
            let is_possible = map < header.counts().maps && count <= len && count < SPAN_CHUNKS;
            let is_possible = is_possible && (count > 0 || header.is_delta());
            if is_possible { Ok(()) } else { Err(ManifestError::Corrupt("map of a span")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_slots_round_trip() {
        for span in [
            Span::Nothing,
            Span::Zeros,
            Span::Run { first: 0, len: 8192, ordinal: 1 << 30 },
            Span::Run { first: 8191, len: 1, ordinal: 0 },
            Span::Map { map: (1 << 17) - 1, count: 8191, ordinal: u32::MAX },
        ] {
            assert_eq!(Span::decode(span.encode()), Ok(span));
        }
    }

    #[test]
    fn test_unused_bits_are_zero() {
        for slot in [4, 5, 1 << 40, 1 << 63, RUN | 1 << 60] {
            assert_eq!(Span::decode(slot), Err(ManifestError::Corrupt("directory slot")));
        }
    }
}
