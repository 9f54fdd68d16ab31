//! Round trips of chunks and packs through every stored form.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use acstor_pack::{
    ChunkCompressor, ChunkDecompressor, ChunkError, CompressionPolicy, PackBuilder, PackHeader,
    PackLayout, PackTable, StoredForm, ZstdLevel, compressed_len_max,
};
use acstor_types::{ChunkSize, Codec, Digest, PackClass, StoredChunk};
use bytes::Bytes;
use proptest::prelude::*;
use support::{CHUNK_LEN, SALT, chunk_size, mixed_pack, noise, pack_of, policies, repeating, text};

fn stored(plain: &[u8], form: &StoredForm<'_>) -> StoredChunk {
    StoredChunk {
        digest: Digest::of(plain),
        offset: 4096,
        stored_len: form.bytes.len() as u32,
        codec: form.codec,
        is_incompressible: form.is_incompressible,
        crc: form.crc,
    }
}

/// Compresses, checks what must hold of every form, and decompresses.
fn round_trip(policy: CompressionPolicy, plain: &[u8]) -> StoredChunk {
    let mut compressor = ChunkCompressor::new(policy);
    let form = compressor.compress(plain);
    let chunk = stored(plain, &form);
    assert_eq!(form.is_incompressible, form.codec == Codec::Plain);
    match form.codec {
        Codec::Plain => assert_eq!(form.bytes, plain),
        _ => assert!(form.bytes.len() <= compressed_len_max(plain.len())),
    }
    let mut back = vec![0x5a; plain.len()];
    let mut decompressor = ChunkDecompressor::new();
    assert_eq!(decompressor.decompress(&chunk, form.bytes, &mut back), Ok(()));
    assert_eq!(back, plain);
    chunk
}

#[test]
fn test_compress_chooses_the_form_of_its_policy() {
    let [fast, quick, dense] = policies();
    let plain = text(1, 65_536);
    assert_eq!(round_trip(fast, &plain).codec, Codec::Lz4);
    assert_eq!(round_trip(quick, &plain).codec, Codec::Zstd);
    let lengths = [fast, quick, dense].map(|policy| round_trip(policy, &plain).stored_len);
    assert!(lengths[2] < lengths[0], "{lengths:?}");
    for policy in [fast, quick, dense] {
        let chunk = round_trip(policy, &noise(1, 65_536));
        assert!(chunk.is_incompressible);
        assert_eq!((chunk.codec, chunk.stored_len), (Codec::Plain, 65_536));
    }
}

#[test]
fn test_compress_less_than_an_eighth_is_not_worth_it() {
    // The share of zeros decides: at about an eighth of the chunk it turns.
    for policy in policies() {
        let with_zeros = |zeros: usize| {
            let mut plain = noise(1, 65_536);
            plain[..zeros].fill(0);
            round_trip(policy, &plain).codec
        };
        assert_eq!(with_zeros(65_536 / 16), Codec::Plain, "{policy:?}");
        assert_ne!(with_zeros(65_536 / 6), Codec::Plain, "{policy:?}");
    }
}

#[test]
fn test_compress_every_chunk_size() {
    for log in 12..=22 {
        let len = 1 << log;
        for policy in policies() {
            let plain = text(log, len);
            let chunk = round_trip(policy, &plain);
            assert_ne!(chunk.codec, Codec::Plain, "{policy:?} {len}");
        }
    }
}

#[test]
fn test_compress_levels_are_a_range() {
    for level in -5..=19 {
        let policy = CompressionPolicy::Dense(ZstdLevel::new(level).unwrap());
        round_trip(policy, &text(1, 65_536));
    }
    for level in [i32::MIN, -6, 20, i32::MAX] {
        assert_eq!(ZstdLevel::new(level), None);
    }
}

#[test]
fn test_rewrite_tries_nothing_twice() {
    let [fast, _, dense] = policies();
    let plain = text(1, 65_536);
    let mut compressor = ChunkCompressor::new(fast);
    let lz4 = compressor.compress(&plain);
    let lz4_chunk = stored(&plain, &lz4);
    let mut rewriter = ChunkCompressor::new(dense);
    assert!(dense.improves(&lz4_chunk) && !fast.improves(&lz4_chunk));
    let zstd = rewriter.rewrite(&lz4_chunk, lz4.bytes, &plain);
    assert_eq!(zstd.codec, Codec::Zstd);
    assert!(zstd.bytes.len() < lz4.bytes.len());
    let (zstd_chunk, zstd_bytes) = (stored(&plain, &zstd), zstd.bytes.to_vec());
    // What is dense already, and what is incompressible, is copied without its plain bytes.
    assert!(!dense.improves(&zstd_chunk));
    let copied = rewriter.rewrite(&zstd_chunk, &zstd_bytes, &[]);
    assert_eq!(
        (copied.bytes, copied.codec, copied.crc),
        (&zstd_bytes[..], Codec::Zstd, zstd_chunk.crc)
    );
    let hard = noise(1, 65_536);
    let form = ChunkCompressor::new(fast).compress(&hard).is_incompressible;
    assert!(form);
    let hard_chunk = StoredChunk {
        codec: Codec::Plain,
        is_incompressible: true,
        stored_len: 65_536,
        ..stored(&hard, &lz4)
    };
    assert!(!dense.improves(&hard_chunk));
    let copied = rewriter.rewrite(&hard_chunk, &hard, &[]);
    assert!(copied.is_incompressible);
    // What came from a pack of version 1 was never tried.
    let untried = StoredChunk { is_incompressible: false, ..hard_chunk };
    assert!(dense.improves(&untried) && fast.improves(&untried));
    assert!(rewriter.rewrite(&untried, &hard, &hard).is_incompressible);
    let untried = StoredChunk { stored_len: 65_536, ..untried };
    assert_eq!(rewriter.rewrite(&untried, &plain, &plain).codec, Codec::Zstd);
}

#[test]
fn test_rewrite_keeps_what_zstd_does_not_make_smaller() {
    let [fast, _, dense] = policies();
    // Of one sequence: LZ4 needs fewer bytes than zstd with its headers and tables.
    let plain = repeating(&[0xa5], 4096);
    let mut compressor = ChunkCompressor::new(fast);
    let lz4 = compressor.compress(&plain);
    let chunk = stored(&plain, &lz4);
    let kept = StoredForm { bytes: &lz4.bytes[..3], ..lz4 };
    // As if it took three bytes only.
    let mut rewriter = ChunkCompressor::new(dense);
    let form = rewriter.rewrite(&chunk, kept.bytes, &plain);
    assert_eq!((form.codec, form.bytes.len()), (Codec::Lz4, 3));
}

#[test]
fn test_pack_reads_back() {
    let (pack, chunks) = mixed_pack();
    let bytes = pack.parts.concat();
    let header = PackHeader::parse(&bytes).unwrap();
    assert_eq!(bytes.len() as u64, header.size_bytes());
    let records = Bytes::copy_from_slice(&bytes[header.table_offset as usize..]);
    let table = PackTable::parse(header, &pack.id, records).unwrap();
    assert_eq!(table, pack.table);
    assert_eq!((table.len(), table.is_empty()), (4, false));
    let codecs: Vec<_> = table.chunks().map(|chunk| chunk.codec).collect();
    assert_eq!(codecs, [Codec::Lz4, Codec::Zstd, Codec::Zstd, Codec::Plain]);
    let mut decompressor = ChunkDecompressor::new();
    for (chunk, expected) in table.chunks().zip(&chunks) {
        let mut plain = vec![0; CHUNK_LEN];
        let end = (chunk.offset + chunk.stored_len) as usize;
        let stored = &bytes[chunk.offset as usize..end];
        assert_eq!(decompressor.decompress(&chunk, stored, &mut plain), Ok(()));
        assert_eq!(&plain, expected);
    }
    assert_eq!(table.get(4), None);
}

#[test]
fn test_copy_moves_chunks_between_packs() {
    let (pack, _) = mixed_pack();
    let bytes = Bytes::from(pack.parts.concat());
    let mut builder = PackBuilder::new(PackClass::Volume, chunk_size(), [9; 16], 1 << 30);
    for chunk in pack.table.chunks().skip(1) {
        let range = chunk.offset as usize..(chunk.offset + chunk.stored_len) as usize;
        let copied = builder.copy(&chunk, bytes.slice(range)).unwrap();
        assert_eq!(StoredChunk { offset: chunk.offset, ..copied }, chunk);
    }
    let copy = builder.seal().unwrap().unwrap();
    let first = pack.table.get(0).unwrap();
    let from = (first.offset + first.stored_len) as usize;
    let data_end = pack.table.chunks().last().map(|chunk| chunk.offset + chunk.stored_len).unwrap();
    let copied = copy.parts.concat();
    let data = &bytes[from..data_end as usize];
    assert_eq!(&copied[4096..4096 + data.len()], data);
    assert_ne!(copy.id, pack.id);
}

#[test]
fn test_seal_of_an_empty_pack_is_none() {
    assert!(PackBuilder::new(PackClass::Image, chunk_size(), SALT, 1 << 20).seal().is_none());
}

#[test]
fn test_push_what_is_stored_plain_is_not_copied() {
    let plain = Bytes::from(noise(1, CHUNK_LEN));
    let mut builder = PackBuilder::new(PackClass::Image, chunk_size(), SALT, 1 << 20);
    let mut compressor = ChunkCompressor::new(CompressionPolicy::Fast);
    builder.push(Digest::of(&plain), &compressor.compress(&plain), &plain).unwrap();
    let pack = builder.seal().unwrap().unwrap();
    assert!(pack.parts.iter().any(|part| part.as_ptr() == plain.as_ptr()));
}

#[test]
fn test_push_forms_of_another_chunk_size_are_refused() {
    let mut layout = PackLayout::new(PackClass::Image, chunk_size(), SALT, 1 << 20);
    let plain = noise(1, 2 * CHUNK_LEN);
    let mut compressor = ChunkCompressor::new(CompressionPolicy::Fast);
    assert_eq!(layout.push(Digest::of(&plain), &compressor.compress(&plain)), None);
    assert_eq!(layout.chunk_count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn proptest_compress_round_trips(
        pattern in prop::collection::vec(any::<u8>(), 1..5000), log in 12_u32..18, at in 0_usize..3,
    ) {
        let plain = repeating(&pattern, 1 << log);
        let chunk = round_trip(policies()[at], &plain);
        // Another content, and one of another length, are refused.
        let mut other = ChunkDecompressor::new();
        let stored = ChunkCompressor::new(policies()[at]).compress(&plain).bytes.to_vec();
        let wrong = StoredChunk { digest: Digest::of(b"other"), ..chunk };
        let refused = other.decompress(&wrong, &stored, &mut vec![0; plain.len()]);
        prop_assert_eq!(refused, Err(ChunkError::Digest));
        for len in [plain.len() / 2, plain.len() - 1, plain.len() + 1, 2 * plain.len()] {
            prop_assert!(other.decompress(&chunk, &stored, &mut vec![0; len]).is_err());
        }
    }

    /// A pack keeps its budget, is full only where another chunk might not fit, and reads back.
    #[test]
    fn proptest_pack_keeps_its_budget(
        kinds in prop::collection::vec((0_u8..3, any::<u64>()), 1..80), budget in 0_u64..200_000,
    ) {
        let least = PackLayout::size_min(chunk_size());
        let mut builder = PackBuilder::new(PackClass::Volume, chunk_size(), SALT, budget);
        let mut compressors = policies().map(ChunkCompressor::new);
        let mut expected = Vec::new();
        for (kind, seed) in kinds {
            let plain = Bytes::from(match kind {
                0 => noise(seed, CHUNK_LEN),
                1 => text(seed, CHUNK_LEN),
                _ => repeating(&seed.to_le_bytes(), CHUNK_LEN),
            });
            let digest = Digest::of(&plain);
            let form = compressors[usize::from(kind)].compress(&plain);
            let (room, fits) = (builder.layout().room(), builder.layout().fits(form.bytes.len()));
            let pushed = builder.push(digest, &form, &plain);
            prop_assert_eq!(pushed.is_some(), fits);
            prop_assert!(fits || room == 0);
            if pushed.is_none() { break; }
            expected.push(digest);
        }
        let pack = builder.seal().unwrap().unwrap();
        let bytes = pack.parts.concat();
        prop_assert!(bytes.len() as u64 <= budget.max(least + 4096));
        let header = PackHeader::parse(&bytes).unwrap();
        prop_assert_eq!(bytes.len() as u64, header.size_bytes());
        let records = Bytes::copy_from_slice(&bytes[header.table_offset as usize..]);
        let table = PackTable::parse(header, &pack.id, records).unwrap();
        prop_assert_eq!(table.chunks().map(|chunk| chunk.digest).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn test_pack_of_is_the_same_again() {
    let chunks = vec![text(1, CHUNK_LEN), noise(2, CHUNK_LEN)];
    assert_eq!(pack_of(&chunks, PackClass::Image), pack_of(&chunks, PackClass::Image));
    assert_ne!(pack_of(&chunks, PackClass::Image).id, pack_of(&chunks, PackClass::Volume).id);
    assert_eq!(ChunkSize::new(CHUNK_LEN as u32), Some(chunk_size()));
}
