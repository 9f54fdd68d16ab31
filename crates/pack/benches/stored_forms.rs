//! Compressing and decompressing a chunk of 64 KiB, in each form.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use acstor_pack::{ChunkCompressor, ChunkDecompressor, CompressionPolicy, ZstdLevel};
use acstor_types::{Digest, StoredChunk};
use divan::Bencher;
use divan::counter::BytesCount;

const CHUNK_LEN: usize = 64 << 10;

/// Policies by name.
const POLICIES: [(&str, i32); 4] = [("lz4", 0), ("zstd -1", 1), ("zstd -3", 3), ("zstd -9", 9)];

fn policy(name: &str) -> CompressionPolicy {
    let level = POLICIES.iter().find(|(other, _)| *other == name).map_or(0, |(_, level)| *level);
    ZstdLevel::new(level)
        .filter(|_| level > 0)
        .map_or(CompressionPolicy::Fast, CompressionPolicy::Dense)
}

/// A chunk that compresses about as well as those of a system's disk.
fn chunk() -> Vec<u8> {
    let words = ["chunk", "digest", "pack", "manifest", "origin", "ring", "overlay", "\0\0\0\0"];
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as usize
    };
    let mut bytes = Vec::with_capacity(CHUNK_LEN + 16);
    while bytes.len() < CHUNK_LEN {
        bytes.extend_from_slice(words[next() % words.len()].as_bytes());
        bytes.push(next() as u8);
    }
    bytes.truncate(CHUNK_LEN);
    bytes
}

#[divan::bench(args = POLICIES.map(|(name, _)| name))]
fn compress(bencher: Bencher<'_, '_>, name: &str) {
    let plain = chunk();
    let mut compressor = ChunkCompressor::new(policy(name));
    bencher
        .counter(BytesCount::new(CHUNK_LEN))
        .bench_local(|| compressor.compress(&plain).bytes.len());
}

#[divan::bench(args = POLICIES.map(|(name, _)| name))]
fn decompress(bencher: Bencher<'_, '_>, name: &str) {
    let plain = chunk();
    let mut compressor = ChunkCompressor::new(policy(name));
    let form = compressor.compress(&plain);
    let chunk = StoredChunk {
        digest: Digest::of(&plain),
        offset: 4096,
        stored_len: form.bytes.len() as u32,
        codec: form.codec,
        is_incompressible: form.is_incompressible,
        crc: form.crc,
    };
    let mut decompressor = ChunkDecompressor::new();
    let mut back = vec![0; CHUNK_LEN];
    bencher
        .counter(BytesCount::new(CHUNK_LEN))
        .bench_local(|| decompressor.decompress(&chunk, form.bytes, &mut back).unwrap());
}

/// The digest alone, which is part of every decompression.
#[divan::bench]
fn digest(bencher: Bencher<'_, '_>) {
    let plain = chunk();
    bencher.counter(BytesCount::new(CHUNK_LEN)).bench_local(|| Digest::of(&plain));
}

fn main() {
    divan::main();
}
