//! Bytes of a set of chunks of one disk: a bitmap of all of them, or of a large disk those of the spans
//! that have any.
//!
//! The length follows what is in the set, never the size of the disk: at most 8 MiB of bits, of either form.

use crate::limits;

/// Chunks of one span.
pub(crate) const SPAN_CHUNKS: u64 = 1 << 12;
/// Length of the bitmap of one span, bytes.
pub(crate) const SPAN_BYTES: usize = (SPAN_CHUNKS / 8) as usize;
const MAGIC: &[u8; 8] = b"ACSTSPAN";
/// Version of the form by span.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
/// Length of the number of a span and its bitmap, bytes.
const RECORD_BYTES: usize = 4 + SPAN_BYTES;

/// Number of a span, and the bits of its chunks.
pub(crate) type Span = (u32, [u8; SPAN_BYTES]);

/// Longest form of a set of chunks of a disk, bytes.
pub(crate) fn len_max(chunk_count: u64) -> u64 {
    if is_bitmap(chunk_count) {
        return bitmap_len(chunk_count);
    }
    (HEADER_BYTES + spans_max(chunk_count) * RECORD_BYTES) as u64
}

/// Returns the form of a set of chunks.
///
/// `spans` are ascending; those without a chunk are left out.
pub(crate) fn encode(chunk_count: u64, spans: impl Iterator<Item = Span>) -> Vec<u8> {
    let spans = spans.filter(|(_, bits)| bits.iter().any(|byte| *byte != 0));
    if is_bitmap(chunk_count) {
        return encode_bitmap(chunk_count, spans);
    }
    let mut bytes = vec![0; HEADER_BYTES];
    let mut count = 0_u32;
    for (number, bits) in spans.take(spans_max(chunk_count)) {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&bits);
        count += 1;
    }
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    bytes
}

fn encode_bitmap(chunk_count: u64, spans: impl Iterator<Item = Span>) -> Vec<u8> {
    let mut bitmap = vec![0; bitmap_len(chunk_count) as usize];
    for (number, bits) in spans {
        let place = bitmap.iter_mut().skip(number as usize * SPAN_BYTES);
        place.zip(bits).for_each(|(byte, bits)| *byte = bits);
    }
    bitmap
}

/// Returns the chunks of a set, ascending.
///
/// # Errors
/// Text for people, when the bytes are no set of chunks of a disk of so many.
pub(crate) fn indexes(
    chunk_count: u64,
    bytes: &[u8],
) -> Result<impl Iterator<Item = u64> + '_, String> {
    let pieces = pieces(chunk_count, bytes)?;
    if pieces.last().and_then(|piece| chunks_of(*piece).last()) >= Some(chunk_count) {
        return Err(format!("it has chunks past the last of {chunk_count}"));
    }
    Ok(pieces.into_iter().flat_map(chunks_of))
}

fn chunks_of((number, bits): (u32, &[u8])) -> impl Iterator<Item = u64> + '_ {
    let first = u64::from(number) * SPAN_CHUNKS;
    (0_u64..).zip(bits).filter(|(_, byte)| **byte != 0).flat_map(move |(at, byte)| {
        (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first + at * 8 + bit)
    })
}

/// Returns the parts with any chunk, by the number of their span.
fn pieces(chunk_count: u64, bytes: &[u8]) -> Result<Vec<(u32, &[u8])>, String> {
    if !is_bitmap(chunk_count) {
        return spans(chunk_count, bytes);
    }
    let expected = bitmap_len(chunk_count);
    if bytes.len() as u64 != expected {
        let found = bytes.len();
        return Err(format!(
            "{found} bytes are no bitmap of {chunk_count} chunks, which is {expected} bytes long"
        ));
    }
    Ok((0..).zip(bytes.chunks(SPAN_BYTES)).collect())
}

fn spans(chunk_count: u64, bytes: &[u8]) -> Result<Vec<(u32, &[u8])>, String> {
    let refused = |what: &str| format!("{what}; no spans of a disk of {chunk_count} chunks");
    let Some((header, records)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(refused(&format!("it has {} bytes", bytes.len())));
    };
    if header[..8] != *MAGIC {
        return Err(refused("it does not begin as they do"));
    }
    let version = number(&header[8..12]);
    if version != VERSION {
        return Err(refused(&format!("it has version {version}, this release reads {VERSION}")));
    }
    let count = number(&header[12..16]) as usize;
    if count > spans_max(chunk_count) || records.len() != count * RECORD_BYTES {
        let found = bytes.len();
        return Err(refused(&format!("it has {count} spans and {found} bytes")));
    }
    let spans: Vec<(u32, &[u8])> = records
        .chunks_exact(RECORD_BYTES)
        .map(|record| (number(&record[..4]), &record[4..]))
        .collect();
    if !spans.is_sorted_by(|one, next| one.0 < next.0) {
        return Err(refused("its spans are not in order"));
    }
    if spans.iter().any(|(_, bits)| bits.iter().all(|byte| *byte == 0)) {
        return Err(refused("a span of it is empty"));
    }
    Ok(spans)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Returns whether a disk of so many chunks has a bitmap of all of them.
fn is_bitmap(chunk_count: u64) -> bool {
    chunk_count <= limits::WORKING_SET_BITMAP_CHUNKS_MAX
}

fn bitmap_len(chunk_count: u64) -> u64 {
    chunk_count.div_ceil(8)
}

fn spans_max(chunk_count: u64) -> usize {
    let spans = usize::try_from(chunk_count.div_ceil(SPAN_CHUNKS)).unwrap_or(usize::MAX);
    spans.min(limits::WORKING_SET_SPANS_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const LARGE: u64 = 1 << 30;

    fn encoded(chunk_count: u64, chunks: &BTreeSet<u64>) -> Vec<u8> {
        let mut spans = BTreeMap::new();
        for chunk in chunks {
            let bits = spans.entry((chunk / SPAN_CHUNKS) as u32).or_insert([0_u8; SPAN_BYTES]);
            bits[(chunk % SPAN_CHUNKS / 8) as usize] |= 1 << (chunk % 8);
        }
        encode(chunk_count, spans.into_iter())
    }

    fn decoded(chunk_count: u64, bytes: &[u8]) -> Result<BTreeSet<u64>, String> {
        Ok(indexes(chunk_count, bytes)?.collect())
    }

    #[test]
    fn test_form_by_span_is_the_golden_one() {
        let chunks = BTreeSet::from([0, 1, 9, 4096, (1 << 29) + 5, LARGE - 1]);
        let golden = include_bytes!("../../../../tests/golden/chunk-spans-v1.bin");
        assert_eq!(encoded(LARGE, &chunks), golden);
        assert_eq!(decoded(LARGE, golden).unwrap(), chunks);
        assert_eq!(VERSION, 1);
    }

    #[test]
    fn test_largest_disk_that_has_a_bitmap_keeps_it() {
        let most = limits::WORKING_SET_BITMAP_CHUNKS_MAX;
        let bytes = encoded(most, &BTreeSet::from([0, most - 1]));
        assert_eq!(bytes.len() as u64, most / 8);
        assert_eq!(len_max(most), most / 8);
        assert_eq!(encoded(most + 1, &BTreeSet::from([most])).len(), HEADER_BYTES + RECORD_BYTES);
        assert_eq!(len_max(most + 1), len_max(LARGE));
        assert!(len_max(LARGE) < 9 << 20);
    }

    #[test]
    fn test_what_is_no_set_of_the_disk_is_refused() {
        let good = encoded(LARGE, &BTreeSet::from([7, LARGE - 1]));
        let edited = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let no_span = encoded(LARGE, &BTreeSet::new());
        assert_eq!(decoded(LARGE, &no_span).unwrap(), BTreeSet::new());
        for (bad, reason) in [
            (vec![], "0 bytes"),
            (vec![0; 128 << 10], "begin"),
            (edited(8, 2), "version 2"),
            (edited(12, 3), "3 spans"),
            (edited(15, 255), "spans and"),
            (good[..good.len() - 1].to_vec(), "2 spans"),
            ([&good[..], &[0]].concat(), "2 spans"),
            (edited(HEADER_BYTES + 2, 255), "order"),
            (edited(HEADER_BYTES + 4, 0), "empty"),
            (edited(HEADER_BYTES + RECORD_BYTES + 2, 255), "past the last"),
        ] {
            let found = decoded(LARGE, &bad).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
        assert!(decoded(LARGE - 1, &good).unwrap_err().contains("past the last"));
    }

    fn sets() -> impl Strategy<Value = (u64, BTreeSet<u64>)> {
        let counts =
            prop_oneof![1_u64..40_000, (1_u64 << 26) + 1..(1 << 26) + 9, LARGE - 9..=LARGE];
        counts.prop_flat_map(|count| (Just(count), prop::collection::btree_set(0..count, 0..60)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn test_form_says_what_the_plain_set_does((count, chunks) in sets()) {
            let bytes = encoded(count, &chunks);
            prop_assert!(bytes.len() as u64 <= len_max(count));
            prop_assert_eq!(decoded(count, &bytes), Ok(chunks));
        }

        #[test]
        fn test_damage_is_refused_or_is_another_set_of_the_disk(
            (count, chunks) in sets(), damage in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6),
            length in any::<u16>(),
        ) {
            let mut bytes = encoded(count, &chunks);
            if count > limits::WORKING_SET_BITMAP_CHUNKS_MAX {
                bytes.truncate(bytes.len().min(usize::from(length)));
            }
            for (at, byte) in damage {
                let at = usize::from(at) % bytes.len().max(1);
                bytes.iter_mut().skip(at).take(1).for_each(|it| *it = byte);
            }
            if let Ok(found) = decoded(count, &bytes) {
                prop_assert!(found.last().is_none_or(|last| *last < count));
                prop_assert_eq!(encoded(count, &found), bytes);
            }
        }
    }
}
