//! Stored bytes of chunks, as any codec and of several sizes, with the checksum that makes a decoder
//! see them.

use acstor_pack::{ChunkDecompressor, ChunkError, PackHeader, is_possible_len};
use acstor_types::{Codec, Digest, StoredChunk};

const CODECS: [Codec; 3] = [Codec::Plain, Codec::Lz4, Codec::Zstd];
const CHUNK_LENS: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Most chunks of a pack that are used.
const CHUNKS_MAX: usize = 8;
/// Byte in front of and behind the chunk's place in the buffer, which must stay.
const EDGE: u8 = 0xa5;
const EDGE_LEN: usize = 64;

fn decompress(decompressor: &mut ChunkDecompressor, stored: &[u8], codec: Codec, plain_len: usize) {
    let chunk = StoredChunk {
        digest: Digest::from_bytes([0; 32]),
        offset: 4096,
        stored_len: stored.len() as u32,
        codec,
        is_incompressible: false,
        crc: crc32fast::hash(stored),
    };
    let mut buffer = vec![EDGE; plain_len + 2 * EDGE_LEN];
    let plain = &mut buffer[EDGE_LEN..][..plain_len];
    // No content has a digest of zeros.
    let error = decompressor.decompress(&chunk, stored, plain).expect_err("a digest of zeros");
    let is_length = matches!(error, ChunkError::Length { .. });
    assert_eq!(is_length, !is_possible_len(codec, stored.len(), plain_len));
    if error == ChunkError::Digest {
        // What decompresses does so to the same again, and is then its own chunk.
        let content = plain.to_vec();
        let own = StoredChunk { digest: Digest::of(&content), ..chunk };
        assert_eq!(decompressor.decompress(&own, stored, plain), Ok(()));
        assert_eq!(plain, content);
    }
    let (before, behind) = (&buffer[..EDGE_LEN], &buffer[EDGE_LEN + plain_len..]);
    assert!(before.iter().chain(behind).all(|byte| *byte == EDGE));
}

/// The frame with the header that a chunk of so many bytes has.
fn as_frame(bytes: &[u8], plain_len: usize) -> Vec<u8> {
    let blocks = bytes.get(9..).unwrap_or_default();
    let len = (plain_len as u32).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &len, blocks].concat()
}

/// Uses one input: a pack of version 2 with its stored chunks, or a byte that chooses codec and chunk
/// size and then stored bytes.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(input: &[u8]) {
    for stored in stored_chunks(input) {
        use_stored(&stored);
    }
    use_stored(input);
}

fn use_stored(input: &[u8]) {
    let Some((choice, stored)) = input.split_first() else { return };
    let codec = CODECS[usize::from(*choice) % CODECS.len()];
    let plain_len = CHUNK_LENS[usize::from(*choice) / CODECS.len() % CHUNK_LENS.len()];
    let mut decompressor = ChunkDecompressor::new();
    decompress(&mut decompressor, stored, codec, plain_len);
    if codec == Codec::Zstd {
        decompress(&mut decompressor, &as_frame(stored, plain_len), codec, plain_len);
    }
}

/// The stored chunks of a pack of version 2 that has chunks of 4 KiB, each as an input of its own.
pub fn stored_chunks(pack: &[u8]) -> Vec<Vec<u8>> {
    let Ok(header) = PackHeader::parse(pack) else { return Vec::new() };
    let records = pack.get(header.table_offset as usize..).unwrap_or_default();
    let (records, _) = records.as_chunks();
    let input = |chunk: StoredChunk| {
        let stored = pack.get(chunk.offset as usize..)?.get(..chunk.stored_len as usize)?;
        Some([&[chunk.codec as u8], stored].concat())
    };
    let chunks = records.iter().filter_map(|record| StoredChunk::from_bytes(record).ok());
    chunks.take(CHUNKS_MAX).filter_map(input).collect()
}
