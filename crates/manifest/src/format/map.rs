//! Map pages: bits, one for each chunk of a span.
//!
//! ```text
//! 0      data bits: the chunk has an entry                8192 bits
//! 1024   zero bits: zeros, whatever the base has (delta)  8192 bits
//! 2048   data chunks before each 64                       128 x u16
//! 2304   zero
//! ```

use acstor_types::bytes_le::u64_at;

use crate::format::form::check_rest;
use crate::format::header::Header;
use crate::format::layout::SPAN_CHUNKS;
use crate::{ManifestError, PAGE_LEN, PageBytes};

/// Words of bits of a span.
pub(crate) const WORDS: usize = SPAN_CHUNKS as usize / 64;
const ZERO_AT: usize = SPAN_CHUNKS as usize / 8;
const RANKS_AT: usize = 2 * ZERO_AT;
const MAP_END: usize = RANKS_AT + 2 * WORDS;

/// One bit for each chunk of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkBits(pub(crate) [u64; WORDS]);

impl ChunkBits {
    pub(crate) const EMPTY: ChunkBits = ChunkBits([0; WORDS]);

    /// The chunks from `start` up to `end`.
    pub(crate) fn of_range(start: u32, end: u32) -> ChunkBits {
        let mut bits = ChunkBits::EMPTY;
        bits.set_range(start, end);
        bits
    }

    pub(crate) fn get(&self, chunk: u32) -> bool {
        self.0[chunk as usize / 64] >> (chunk % 64) & 1 != 0
    }

    pub(crate) fn set(&mut self, chunk: u32) {
        self.0[chunk as usize / 64] |= 1 << (chunk % 64);
    }

    pub(crate) fn set_range(&mut self, start: u32, end: u32) {
        for (number, word) in self.0.iter_mut().enumerate() {
            let first = number as u32 * 64;
            let (from, to) = (start.clamp(first, first + 64), end.clamp(first, first + 64));
            if from < to {
                *word |= u64::MAX >> (64 - (to - from)) << (from - first);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the first chunk at or after `from` that is set.
    pub(crate) fn next_set(&self, from: u32) -> Option<u32> {
        self.next(from, |word| word)
    }

    /// Returns the first chunk at or after `from` that is not set.
    pub(crate) fn next_clear(&self, from: u32) -> Option<u32> {
        self.next(from, |word| !word)
    }

    /// Returns the chunks that are set, ascending.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = Some(0);
        std::iter::from_fn(move || {
            let chunk = self.next_set(from?)?;
            from = Some(chunk + 1).filter(|next| *next < SPAN_CHUNKS);
            Some(chunk)
        })
    }

    fn next(&self, from: u32, select: impl Fn(u64) -> u64) -> Option<u32> {
        let first = from as usize / 64;
        for (number, word) in self.0.iter().enumerate().skip(first) {
            let mut found = select(*word);
            if number == first {
                found &= u64::MAX << (from % 64);
            }
            if found != 0 {
                return Some(number as u32 * 64 + found.trailing_zeros());
            }
        }
        None
    }

    /// Combines each word with the other's.
    pub(crate) fn combine(&mut self, other: &ChunkBits, with: impl Fn(u64, u64) -> u64) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word = with(*word, *other);
        }
    }

    /// Set bits before each word.
    pub(crate) fn ranks(&self) -> [u16; WORDS] {
        let mut ranks = [0; WORDS];
        let mut total = 0;
        for (rank, word) in ranks.iter_mut().zip(&self.0) {
            *rank = total;
            total += word.count_ones() as u16;
        }
        ranks
    }

    fn read(bytes: &PageBytes, at: usize) -> ChunkBits {
        let mut bits = ChunkBits::EMPTY;
        for (number, word) in bits.0.iter_mut().enumerate() {
            *word = u64_at(&bytes[..], at + 8 * number);
        }
        bits
    }

    fn write(&self, bytes: &mut PageBytes, at: usize) {
        for (place, word) in bytes[at..at + ZERO_AT].chunks_exact_mut(8).zip(&self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Entry of a map for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    Nothing,
    Zero,
    /// Data, with so many data chunks of the span before it.
    Data(u32),
}

/// Looks a chunk up in a map.
pub(crate) fn find(bytes: &PageBytes, chunk: u32) -> Mapped {
    let (word, bit) = (chunk as usize / 64, chunk % 64);
    let data = u64_at(&bytes[..], 8 * word);
    if data >> bit & 1 != 0 {
        let before = (data & ((1 << bit) - 1)).count_ones();
        return Mapped::Data(u32::from(rank_at(bytes, word)) + before);
    }
    let zero = u64_at(&bytes[..], ZERO_AT + 8 * word);
    if zero >> bit & 1 != 0 { Mapped::Zero } else { Mapped::Nothing }
}

fn rank_at(bytes: &PageBytes, word: usize) -> u16 {
    let at = RANKS_AT + 2 * word;
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the data bits and the zero bits of a map.
pub(crate) fn read(bytes: &PageBytes) -> (ChunkBits, ChunkBits) {
    (ChunkBits::read(bytes, 0), ChunkBits::read(bytes, ZERO_AT))
}

/// Returns the page of a map.
pub(crate) fn write(data: &ChunkBits, zero: &ChunkBits) -> PageBytes {
    let mut bytes = [0; PAGE_LEN];
    data.write(&mut bytes, 0);
    zero.write(&mut bytes, ZERO_AT);
    for (place, rank) in bytes[RANKS_AT..MAP_END].chunks_exact_mut(2).zip(data.ranks()) {
        place.copy_from_slice(&rank.to_le_bytes());
    }
    bytes
}

/// Checks a map page by itself.
pub(crate) fn check(header: &Header, bytes: &PageBytes) -> Result<(), ManifestError> {
    check_rest(bytes, MAP_END)?;
    let (data, zero) = read(bytes);
    let ranks = data.ranks();
    if (0..WORDS).any(|word| rank_at(bytes, word) != ranks[word]) {
        return Err(ManifestError::Corrupt("ranks of a map"));
    }
    if data.0.iter().zip(&zero.0).any(|(data, zero)| data & zero != 0) {
        return Err(ManifestError::Corrupt("chunk with data and zeros"));
    }
    if !header.is_delta() && !zero.is_empty() {
        return Err(ManifestError::Corrupt("zeros in a whole manifest"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits() -> impl Strategy<Value = ChunkBits> {
        proptest::collection::vec((0..8192_u32, 0..8192_u32), 0..6).prop_map(|ranges| {
            let mut bits = ChunkBits::EMPTY;
            for (start, end) in ranges {
                bits.set_range(start, end);
                bits.set(start);
            }
            bits
        })
    }

    proptest! {
        #[test]
        fn test_searches_equal_scans(bits in bits(), from in 0..8192_u32) {
            prop_assert_eq!(bits.next_set(from), (from..8192).find(|chunk| bits.get(*chunk)));
            prop_assert_eq!(bits.next_clear(from), (from..8192).find(|chunk| !bits.get(*chunk)));
            prop_assert_eq!(bits.count(), (0..8192).filter(|chunk| bits.get(*chunk)).count() as u32);
        }

        #[test]
        fn test_map_says_what_was_written(data in bits(), mut zero in bits()) {
            zero.combine(&data, |zero, data| zero & !data);
            let page = write(&data, &zero);
            prop_assert_eq!(read(&page), (data.clone(), zero.clone()));
            let mut rank = 0;
            for chunk in 0..8192 {
                let expected = if data.get(chunk) {
                    rank += 1;
                    Mapped::Data(rank - 1)
                } else if zero.get(chunk) {
                    Mapped::Zero
                } else {
                    Mapped::Nothing
                };
                prop_assert_eq!(find(&page, chunk), expected);
            }
        }
    }

    #[test]
    fn test_ranges_are_half_open() {
        assert!(ChunkBits::of_range(5, 5).is_empty());
        assert_eq!(ChunkBits::of_range(63, 65).count(), 2);
        assert_eq!(ChunkBits::of_range(0, 8192).count(), 8192);
        assert_eq!(ChunkBits::of_range(0, 8192).next_clear(0), None);
    }
}
