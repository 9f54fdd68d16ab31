//! Contents of chunks, and packs of them.
#![allow(dead_code, reason = "each test file uses some of it")]

use acstor_pack::{ChunkCompressor, CompressionPolicy, PackBuilder, SealedPack, ZstdLevel};
use acstor_types::{ChunkSize, Digest, PackClass};
use bytes::Bytes;

pub const CHUNK_LEN: usize = 4096;
pub const SALT: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

pub fn chunk_size() -> ChunkSize {
    ChunkSize::new(CHUNK_LEN as u32).unwrap()
}

/// A policy of each kind: LZ4, zstd in one pass, zstd in two.
pub fn policies() -> [CompressionPolicy; 3] {
    let dense = |level| CompressionPolicy::Dense(ZstdLevel::new(level).unwrap());
    [CompressionPolicy::Fast, dense(1), dense(9)]
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes over and over.
pub fn repeating(bytes: &[u8], len: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(len).collect()
}

/// Words in an order without a pattern: what compresses, but not to nothing.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let words = ["chunk ", "digest ", "pack ", "manifest ", "origin ", "ring ", "overlay ", "ref "];
    let picks = noise(seed, len);
    let text = picks.iter().flat_map(|pick| words[*pick as usize % words.len()].bytes());
    text.take(len).collect()
}

/// The pack of these chunks, each compressed by one of the policies, in turns.
pub fn pack_of(chunks: &[Vec<u8>], class: PackClass) -> SealedPack {
    let mut compressors = policies().map(ChunkCompressor::new);
    let len = chunks.first().map_or(CHUNK_LEN, Vec::len);
    let size = ChunkSize::new(len as u32).unwrap();
    let mut builder = PackBuilder::new(class, size, SALT, 1 << 30);
    for (number, plain) in chunks.iter().enumerate() {
        let plain = Bytes::copy_from_slice(plain);
        let form = compressors[number % 3].compress(&plain);
        builder.push(Digest::of(&plain), &form, &plain).unwrap();
    }
    builder.seal().unwrap().unwrap()
}

/// A pack with a chunk of each form: LZ4, zstd, and one that compressing does not make smaller.
pub fn mixed_pack() -> (SealedPack, Vec<Vec<u8>>) {
    let chunks = vec![
        text(1, CHUNK_LEN),
        repeating(b"zstd ", CHUNK_LEN),
        text(2, CHUNK_LEN),
        noise(3, CHUNK_LEN),
    ];
    (pack_of(&chunks, PackClass::Image), chunks)
}
