//! Damaged and forged packs: nothing of them is taken for something else.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use acstor_pack::{
    ChunkCompressor, ChunkDecompressor, ChunkError, PackError, PackHeader, PackTable,
};
use acstor_types::{Codec, Digest, ErrorKind, PackId, STORED_CHUNK_LEN, StoredChunk};
use bytes::Bytes;
use proptest::prelude::*;
use support::{CHUNK_LEN, mixed_pack, noise, policies, repeating, text};

/// Reads a whole pack as a careful reader does; returns its chunks.
fn read(bytes: &[u8], id: &PackId) -> Result<Vec<Vec<u8>>, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let header = PackHeader::parse(&bytes[..bytes.len().min(4096)]).map_err(|e| text(&e))?;
    if bytes.len() as u64 != header.size_bytes() {
        return Err("another size than the header says".into());
    }
    let (data, records) = bytes.split_at(header.table_offset as usize);
    let table =
        PackTable::parse(header, id, Bytes::copy_from_slice(records)).map_err(|e| text(&e))?;
    let mut decompressor = ChunkDecompressor::new();
    let mut chunks = Vec::new();
    let mut end = 4096;
    for chunk in table.chunks() {
        let mut plain = vec![0; table.header().chunk_size.bytes()];
        end = (chunk.offset + chunk.stored_len) as usize;
        let stored = &data[chunk.offset as usize..end];
        decompressor.decompress(&chunk, stored, &mut plain).map_err(|e| text(&e))?;
        chunks.push(plain);
    }
    if data[end..].iter().any(|byte| *byte != 0) {
        return Err("the padding is not zero".into());
    }
    Ok(chunks)
}

#[test]
fn test_read_every_flipped_byte_is_refused() {
    let (pack, chunks) = mixed_pack();
    let bytes = pack.parts.concat();
    assert_eq!(read(&bytes, &pack.id), Ok(chunks));
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(read(&damaged, &pack.id).is_err(), "byte {position}");
    }
}

#[test]
fn test_read_truncated_is_refused() {
    let (pack, _) = mixed_pack();
    let bytes = pack.parts.concat();
    for len in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        assert!(read(&bytes[..len], &pack.id).is_err(), "{len} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(read(&longer, &pack.id).is_err());
}

#[test]
fn test_parse_table_of_another_pack_is_refused() {
    let (pack, _) = mixed_pack();
    let (header, records) = (*pack.table.header(), pack.table.as_bytes().clone());
    let other = PackId(Digest::of(b"other"));
    assert_eq!(PackTable::parse(header, &other, records.clone()), Err(PackError::Id));
    let short = records.slice(..records.len() - 1);
    let error = PackTable::parse(header, &pack.id, short).unwrap_err();
    assert_eq!(error, PackError::TableLength { actual: 4 * 44 - 1, expected: 4 * 44 });
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// The table with one record changed, under the id that it then has.
fn forged(ordinal: usize, change: impl Fn(&mut StoredChunk)) -> Result<PackTable, PackError> {
    let (pack, _) = mixed_pack();
    let mut records = pack.table.as_bytes().to_vec();
    let mut chunk = pack.table.get(ordinal as u32).unwrap();
    change(&mut chunk);
    records[ordinal * STORED_CHUNK_LEN..][..STORED_CHUNK_LEN].copy_from_slice(&chunk.to_bytes());
    let header = *pack.table.header();
    PackTable::parse(header, &header.id(&records), Bytes::from(records))
}

#[test]
fn test_parse_impossible_places_are_refused() {
    assert!(forged(1, |_| {}).is_ok());
    for (ordinal, offset) in [(0, 0), (0, 4095), (1, 4096), (2, u32::MAX)] {
        let error = forged(ordinal, |chunk| chunk.offset = offset).unwrap_err();
        let reason = "it does not begin where the one before ends";
        assert_eq!(error, PackError::Place { ordinal: ordinal as u32, reason }, "{offset}");
    }
    // Longer or shorter: the one behind it is then out of place.
    let error = forged(1, |chunk| chunk.stored_len += 1).unwrap_err();
    assert!(matches!(error, PackError::Place { ordinal: 2, .. }), "{error}");
    for change in [
        |chunk: &mut StoredChunk| chunk.stored_len = CHUNK_LEN as u32 - 1,
        |chunk: &mut StoredChunk| chunk.codec = Codec::Lz4,
    ] {
        let error = forged(3, |chunk| {
            chunk.is_incompressible = false;
            change(chunk);
        })
        .unwrap_err();
        assert!(matches!(error, PackError::Place { ordinal: 3, .. }), "{error}");
    }
    let error = forged(3, |chunk| chunk.stored_len = 0).unwrap_err();
    assert!(matches!(error, PackError::Record { ordinal: 3, .. }), "{error}");
}

#[test]
fn test_parse_table_far_behind_the_chunks_is_refused() {
    let (pack, _) = mixed_pack();
    for blocks in [-1, 1] {
        let mut header = *pack.table.header();
        header.table_offset = header.table_offset.wrapping_add_signed(blocks * 4096);
        let records = pack.table.as_bytes().clone();
        let error = PackTable::parse(header, &header.id(&records), records).unwrap_err();
        assert_eq!(error, PackError::Header("the table does not follow the chunks"));
    }
}

/// A record for these stored bytes, with a CRC that fits.
fn record(codec: Codec, stored: &[u8], plain: &[u8]) -> StoredChunk {
    StoredChunk {
        digest: Digest::of(plain),
        offset: 4096,
        stored_len: stored.len() as u32,
        codec,
        is_incompressible: false,
        crc: crc32fast::hash(stored),
    }
}

fn decompress(chunk: &StoredChunk, stored: &[u8], plain_len: usize) -> Result<(), ChunkError> {
    // What is behind the chunk must stay as it is.
    let mut buffer = vec![0xee; plain_len + 64];
    let result = ChunkDecompressor::new().decompress(chunk, stored, &mut buffer[..plain_len]);
    assert!(buffer[plain_len..].iter().all(|byte| *byte == 0xee));
    result
}

/// Stored forms of a content, one of each codec that compresses.
fn forms(plain: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    let forms = policies().map(|policy| {
        let mut compressor = ChunkCompressor::new(policy);
        let form = compressor.compress(plain);
        (form.codec, form.bytes.to_vec())
    });
    forms.into_iter().filter(|(codec, _)| *codec != Codec::Plain).collect()
}

#[test]
fn test_decompress_damage_is_found_by_the_checksum() {
    let plain = text(1, CHUNK_LEN);
    for (codec, stored) in forms(&plain) {
        let chunk = record(codec, &stored, &plain);
        let mut damaged = stored.clone();
        damaged[stored.len() / 2] ^= 1;
        assert_eq!(decompress(&chunk, &damaged, CHUNK_LEN), Err(ChunkError::Checksum));
        let cut = &stored[..stored.len() - 1];
        let (actual, expected) = (cut.len(), stored.len() as u32);
        let error = ChunkError::Truncated { actual, expected };
        assert_eq!(decompress(&chunk, cut, CHUNK_LEN), Err(error));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn test_decompress_forged_checksums_lead_nowhere() {
    let plain = text(1, CHUNK_LEN);
    for (codec, stored) in forms(&plain) {
        let mut same = 0;
        for position in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[position] ^= 0x11;
            let chunk = record(codec, &damaged, &plain);
            let result = decompress(&chunk, &damaged, CHUNK_LEN);
            assert_ne!(result, Err(ChunkError::Checksum));
            // Another way to say the same, such as a repetition of an equal word.
            same += usize::from(result.is_ok());
        }
        assert!(same < stored.len() / 10, "{codec:?}: {same} of {}", stored.len());
        for len in 1..stored.len() {
            let chunk = record(codec, &stored[..len], &plain);
            assert!(decompress(&chunk, &stored[..len], CHUNK_LEN).is_err(), "{codec:?} {len}");
        }
    }
}

#[test]
fn test_decompress_bombs_end_at_the_chunk() {
    // Each is some bytes that are 4 MiB when they are decompressed; a chunk has 4 KiB.
    let bomb = repeating(&[0xa5], 4 << 20);
    for (codec, stored) in forms(&bomb) {
        assert!(stored.len() < 20_000);
        let stored = &stored[..stored.len().min(3500)];
        let error = decompress(&record(codec, stored, &bomb), stored, CHUNK_LEN).unwrap_err();
        let expected = match codec {
            Codec::Lz4 => ChunkError::Lz4 { plain_len: CHUNK_LEN },
            _ => ChunkError::ZstdFrame("its content has another length"),
        };
        assert_eq!(error, expected);
    }
}

#[test]
fn test_decompress_frame_that_lies_about_its_content_is_refused() {
    let bomb = repeating(&[0xa5], 256 << 10);
    let [.., (codec, frame)] = &forms(&bomb)[..] else { panic!("no frame") };
    // A single segment with a length of four bytes, which then says 64 KiB.
    assert_eq!((*codec, frame[4] >> 5), (Codec::Zstd, 0b101));
    let mut lying = frame.clone();
    lying[5..9].copy_from_slice(&(64_u32 << 10).to_le_bytes());
    let error = decompress(&record(Codec::Zstd, &lying, &bomb), &lying, 64 << 10).unwrap_err();
    assert_eq!(error, ChunkError::ZstdFrame("a block is too long"));
}

#[test]
fn test_decompress_other_codec_is_refused() {
    let plain = text(1, CHUNK_LEN);
    let forms = forms(&plain);
    for (codec, stored) in &forms {
        let other = if *codec == Codec::Lz4 { Codec::Zstd } else { Codec::Lz4 };
        let chunk = record(other, stored, &plain);
        assert!(decompress(&chunk, stored, CHUNK_LEN).is_err(), "{codec:?} as {other:?}");
    }
    let stored = noise(1, CHUNK_LEN);
    let chunk = record(Codec::Plain, &stored, &plain);
    assert_eq!(decompress(&chunk, &stored, CHUNK_LEN), Err(ChunkError::Digest));
}

#[test]
fn test_decompress_impossible_lengths_are_refused_before_anything_is_read() {
    let plain = text(1, CHUNK_LEN);
    for (codec, stored_len) in [
        (Codec::Plain, CHUNK_LEN as u32 - 1),
        (Codec::Plain, CHUNK_LEN as u32 + 1),
        (Codec::Lz4, CHUNK_LEN as u32 / 8 * 7 + 1),
        (Codec::Zstd, CHUNK_LEN as u32),
        (Codec::Lz4, 0),
    ] {
        let chunk = StoredChunk { stored_len, ..record(codec, &plain, &plain) };
        let error = ChunkError::Length { codec, stored_len, plain_len: CHUNK_LEN };
        assert_eq!(decompress(&chunk, &[], CHUNK_LEN), Err(error));
    }
}

proptest! {
    /// Any bytes as any codec: an error, never a panic, and nothing outside of the chunk.
    #[test]
    fn proptest_decompress_any_bytes(
        mut stored in prop::collection::vec(any::<u8>(), 1..3584), codec in 1_u8..3, is_frame: bool,
    ) {
        let codec = Codec::from_number(codec).unwrap();
        if is_frame && stored.len() > 7 {
            stored[..7].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x0f]);
        }
        let chunk = record(codec, &stored, b"");
        prop_assert!(decompress(&chunk, &stored, CHUNK_LEN).is_err());
    }

    /// Several changes of a stored form: the content or an error.
    #[test]
    fn proptest_decompress_damaged(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        at in 0_usize..3,
    ) {
        let plain = text(1, CHUNK_LEN);
        let (codec, mut stored) = forms(&plain)[at].clone();
        for (position, byte) in changes {
            let position = position.index(stored.len());
            stored[position] = byte;
        }
        let mut back = vec![0; CHUNK_LEN];
        let chunk = record(codec, &stored, &plain);
        if ChunkDecompressor::new().decompress(&chunk, &stored, &mut back).is_ok() {
            prop_assert_eq!(back, plain);
        }
    }
}
