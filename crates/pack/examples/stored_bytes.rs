//! Stored bytes and speed of every codec over the chunks of a file, as JSON.
//!
//! `stored_bytes FILE [POLICY...]`: each distinct chunk of 64 KiB that is not zero is compressed and
//! decompressed by each policy, on one thread. Policies are `lz4` and `zstd:LEVEL`, and `zstd:LEVEL:lz4`
//! where only what LZ4 makes smaller is tried. `bench/pack_codecs.py` drives it.
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark")]

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use acstor_pack::{
    ChunkCompressor, ChunkDecompressor, CompressionPolicy, PackLayout, StoredForm, ZstdLevel,
};
use acstor_types::{ChunkSize, Codec, Digest, PackClass, StoredChunk, is_zero};

const CHUNK_LEN: usize = ChunkSize::DEFAULT.bytes();
/// Size of a pack, bytes.
const PACK_BYTES: u64 = 16 << 20;

/// A policy and whether LZ4 decides first.
#[derive(Clone, Copy)]
struct Case {
    policy: CompressionPolicy,
    is_after_lz4: bool,
}

impl Case {
    fn parse(text: &str) -> Case {
        let mut words = text.split(':');
        let level = match words.next() {
            Some("lz4") => None,
            Some("zstd") => words.next().map(|level| level.parse().expect("a level")),
            _ => panic!("no such policy: {text}"),
        };
        let policy = level.map_or(CompressionPolicy::Fast, |level| {
            CompressionPolicy::Dense(ZstdLevel::new(level).expect("a level that exists"))
        });
        Case { policy, is_after_lz4: words.next() == Some("lz4") }
    }
}

/// Seconds and bytes of one policy.
#[derive(Default)]
struct Outcome {
    stored_bytes: u64,
    compressed_chunks: u64,
    compress_s: f64,
    decompress_s: f64,
    /// Of libzstd in place of our decoder, without CRC and digest; of frames only.
    libzstd_s: f64,
}

/// The distinct chunks that are not zero, with their digests.
fn chunks(content: &[u8]) -> Vec<(&[u8], Digest)> {
    let mut seen = HashSet::new();
    let chunks = content.chunks_exact(CHUNK_LEN).filter(|chunk| !is_zero(chunk));
    let named = chunks.map(|chunk| (chunk, Digest::of(chunk)));
    named.filter(|(_, digest)| seen.insert(*digest)).collect()
}

fn measure(chunks: &[(&[u8], Digest)], case: Case) -> Outcome {
    let mut outcome = Outcome::default();
    let mut compressor = ChunkCompressor::new(case.policy);
    let mut gate = ChunkCompressor::new(CompressionPolicy::Fast);
    let mut decompressor = ChunkDecompressor::new();
    let mut libzstd = zstd_safe::DCtx::create();
    let mut layout = empty_pack();
    let mut back = vec![0; CHUNK_LEN];
    for (plain, digest) in chunks {
        let started = Instant::now();
        let form = match case.is_after_lz4.then(|| gate.compress(plain)) {
            Some(form) if form.is_incompressible => form,
            _ => compressor.compress(plain),
        };
        outcome.compress_s += started.elapsed().as_secs_f64();
        let chunk = place(&mut layout, &mut outcome, *digest, &form);
        let started = Instant::now();
        decompressor.decompress(&chunk, form.bytes, &mut back).expect("what was compressed");
        outcome.decompress_s += started.elapsed().as_secs_f64();
        outcome.compressed_chunks += u64::from(form.codec != Codec::Plain);
        if form.codec == Codec::Zstd {
            let started = Instant::now();
            black_box(libzstd.decompress(&mut back[..], form.bytes).expect("a frame"));
            outcome.libzstd_s += started.elapsed().as_secs_f64();
        }
    }
    outcome.stored_bytes += sealed_bytes(layout);
    outcome
}

fn empty_pack() -> PackLayout {
    PackLayout::new(PackClass::Image, ChunkSize::DEFAULT, [1; 16], PACK_BYTES)
}

fn sealed_bytes(layout: PackLayout) -> u64 {
    layout.seal().map_or(0, |sealed| sealed.header.size_bytes())
}

/// The chunk with its place, in the next pack where this one is full.
fn place(
    layout: &mut PackLayout,
    outcome: &mut Outcome,
    digest: Digest,
    form: &StoredForm<'_>,
) -> StoredChunk {
    if let Some(chunk) = layout.push(digest, form) {
        return chunk;
    }
    outcome.stored_bytes += sealed_bytes(std::mem::replace(layout, empty_pack()));
    layout.push(digest, form).expect("one chunk fits")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, policies) = arguments.split_first().expect("a file");
    let content = std::fs::read(file).expect("a file that can be read");
    let chunks = chunks(&content);
    let plain_bytes = chunks.len() * CHUNK_LEN;
    println!("{{\"plain_bytes\": {plain_bytes}, \"policies\": {{");
    for (number, text) in policies.iter().enumerate() {
        let outcome = measure(&chunks, Case::parse(text));
        let comma = if number + 1 < policies.len() { "," } else { "" };
        println!(
            " \"{text}\": {{\"stored_bytes\": {}, \"compressed_chunks\": {}, \"compress_s\": {:.6}, \
             \"decompress_s\": {:.6}, \"libzstd_s\": {:.6}}}{comma}",
            outcome.stored_bytes,
            outcome.compressed_chunks,
            outcome.compress_s,
            outcome.decompress_s,
            outcome.libzstd_s,
        );
    }
    println!("}}}}");
}
