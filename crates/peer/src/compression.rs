//! Chunks as they go over the wire: as they are, or compressed with LZ4.
//!
//! The body of a COMPRESSED frame is the chunk's size as u32 and one LZ4 block (the block format, no
//! frame, no checksum: the requester verifies the digest). Pure; both directions are safe Rust whatever
//! the bytes are, and write into a buffer of exactly the size that was asked for.

use bytes::Bytes;

use crate::frame::{COMPRESSED_PREFIX_LEN, compressed_len_max};

/// A chunk as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WireChunk {
    /// Its bytes.
    Plain(Bytes),
    /// The body of a COMPRESSED frame.
    Compressed(Bytes),
}

impl WireChunk {
    /// Bytes of the frame's body.
    pub(crate) fn wire_len(&self) -> usize {
        match self {
            WireChunk::Plain(bytes) | WireChunk::Compressed(bytes) => bytes.len(),
        }
    }
}

/// A compressed answer that is none: what it says of itself is wrong, or it does not decompress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a compressed answer that is no chunk of the size that was asked for")]
pub(crate) struct CorruptBody;

/// Returns the body of the COMPRESSED frame for `chunk`, or `None` when that would not make it smaller
/// by an eighth. `scratch` is used for the work and may have any content.
pub(crate) fn compress(chunk: &[u8], scratch: &mut Vec<u8>) -> Option<Bytes> {
    let room = COMPRESSED_PREFIX_LEN + lz4_flex::block::get_maximum_output_size(chunk.len());
    if scratch.len() < room {
        scratch.resize(room, 0);
    }
    let raw_len = u32::try_from(chunk.len()).ok()?;
    let (prefix, block) = scratch.split_first_chunk_mut::<COMPRESSED_PREFIX_LEN>()?;
    *prefix = raw_len.to_le_bytes();
    let block_len = lz4_flex::block::compress_into(chunk, block).ok()?;
    let len = COMPRESSED_PREFIX_LEN + block_len;
    (len <= compressed_len_max(chunk.len())).then(|| Bytes::copy_from_slice(&scratch[..len]))
}

/// Writes the chunk of a COMPRESSED frame's body over `chunk`, whose length is the size that was asked
/// for.
///
/// # Errors
/// [`CorruptBody`] when the body says another size, or is no LZ4 block of exactly that size; `chunk` then
/// has any content.
pub(crate) fn decompress(body: &[u8], chunk: &mut [u8]) -> Result<(), CorruptBody> {
    let (prefix, block) = body.split_first_chunk::<COMPRESSED_PREFIX_LEN>().ok_or(CorruptBody)?;
    if u32::from_le_bytes(*prefix) as usize != chunk.len() {
        return Err(CorruptBody);
    }
    match lz4_flex::block::decompress_into(block, chunk) {
        Ok(len) if len == chunk.len() => Ok(()),
        _ => Err(CorruptBody),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CorruptBody, compress, decompress};
    use crate::frame::compressed_len_max;

    const SIZE: usize = 4096;

    /// A chunk of `bytes` over and over.
    fn repeating(bytes: &[u8]) -> Vec<u8> {
        bytes.iter().copied().cycle().take(SIZE).collect()
    }

    /// Bytes without a pattern.
    fn noise() -> Vec<u8> {
        let mut state = 1_u64;
        (0..SIZE)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn test_compress_less_than_an_eighth_is_not_worth_it() {
        let mut scratch = Vec::new();
        assert_eq!(compress(&noise(), &mut scratch), None);
        // The share of zeros decides: at about an eighth of the chunk it turns.
        let with_zeros = |zeros: usize| {
            let mut chunk = noise();
            chunk[..zeros].fill(0);
            chunk
        };
        assert_eq!(compress(&with_zeros(SIZE / 16), &mut scratch), None);
        let body = compress(&with_zeros(SIZE / 4), &mut scratch).unwrap();
        assert!(body.len() <= compressed_len_max(SIZE), "{}", body.len());
    }

    #[test]
    fn test_decompress_lying_lengths_are_corrupt() {
        let chunk = repeating(b"a chunk that repeats itself ");
        let body = compress(&chunk, &mut Vec::new()).unwrap();
        for said in [0, 1, 2048, 4095, 4097, 1 << 22, u32::MAX] {
            let mut lying = body.to_vec();
            lying[..4].copy_from_slice(&said.to_le_bytes());
            assert_eq!(decompress(&lying, &mut [0; SIZE]), Err(CorruptBody), "{said}");
        }
        // The length is right, the block makes more or less of it.
        for real in [SIZE / 2, SIZE * 2] {
            let other: Vec<u8> = chunk.iter().copied().cycle().take(real).collect();
            let mut lying = compress(&other, &mut Vec::new()).unwrap().to_vec();
            lying[..4].copy_from_slice(&(SIZE as u32).to_le_bytes());
            assert_eq!(decompress(&lying, &mut [0; SIZE]), Err(CorruptBody), "{real}");
        }
    }

    #[test]
    fn test_decompress_truncated_is_corrupt() {
        let body = compress(&repeating(b"0123456789abcdef-"), &mut Vec::new()).unwrap();
        for len in 0..body.len() {
            assert_eq!(decompress(&body[..len], &mut [0; SIZE]), Err(CorruptBody), "{len}");
        }
    }

    proptest! {
        /// Compressed content comes back, and is small enough.
        #[test]
        fn proptest_compress_round_trips(
            pattern in prop::collection::vec(any::<u8>(), 1..600), scratch in 0_usize..20_000,
        ) {
            let chunk = repeating(&pattern);
            if let Some(body) = compress(&chunk, &mut vec![0xa5; scratch]) {
                prop_assert!(body.len() <= compressed_len_max(SIZE));
                let mut back = vec![0x5a; SIZE];
                prop_assert_eq!(decompress(&body, &mut back), Ok(()));
                prop_assert_eq!(back, chunk);
            }
        }

        /// Any bytes: an error or a chunk, never a panic.
        #[test]
        fn proptest_decompress_any_bytes(mut body in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = decompress(&body, &mut [0; SIZE]);
            if body.len() > 4 {
                body[..4].copy_from_slice(&(SIZE as u32).to_le_bytes());
                let _ = decompress(&body, &mut [0; SIZE]);
            }
        }

        /// A block of which bytes were changed: an error or some chunk of the right size.
        #[test]
        fn proptest_decompress_damaged(position in 0_usize..200, change in 1_u8.., period in 20_usize..300) {
            let chunk = repeating(&noise()[..period]);
            let mut body = compress(&chunk, &mut Vec::new()).unwrap().to_vec();
            let position = position % body.len();
            body[position] ^= change;
            let _ = decompress(&body, &mut [0; SIZE]);
        }
    }
}
