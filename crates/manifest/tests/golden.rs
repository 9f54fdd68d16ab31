//! The golden files of manifests of version 2, and what their readers must find in them.
//!
//! Changed bytes need a new version and a new golden file, and readers of the old one.
#![allow(clippy::unwrap_used, reason = "a missing golden file must fail the test")]

mod support;

use std::io::Cursor;
use std::path::PathBuf;

use acstor_manifest::{
    Base, Builder, Disk, Found, Header, MANIFEST_VERSION, PAGE_LEN, Pack, Summary,
};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, PackId, StoredChunk};
use serde_json::{Value, json};

use support::{MemoryReader, SPAN, open};

const DISK_ID: &str = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0";

fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(folder.join(name)).unwrap()
}

fn disk(size_bytes: u64, chunk_size: u32, base: Option<Base>) -> Disk {
    Disk {
        disk_id: DISK_ID.parse::<DiskId>().unwrap(),
        size_bytes,
        chunk_size: ChunkSize::new(chunk_size).unwrap(),
        salt: *b"0123456789abcdef",
        base,
    }
}

fn pack(name: &str, stored_bytes: u32, class: u8) -> Pack {
    Pack { id: PackId(Digest::of(name.as_bytes())), stored_bytes, class }
}

fn stored(content: u64, offset: u32, stored_len: u32, codec: Codec) -> StoredChunk {
    StoredChunk {
        digest: Digest::of(&content.to_le_bytes()),
        offset,
        stored_len,
        codec,
        is_incompressible: codec == Codec::Plain && content % 2 == 1,
        crc: content as u32 ^ 0xdead_beef,
    }
}

/// 64 TiB of 64 KiB chunks: a run, a map, and the last chunk; half of one pack.
fn sparse() -> Vec<u8> {
    let mut builder = Builder::new(disk(64 << 40, 65_536, None), Cursor::new(Vec::new())).unwrap();
    let whole = builder.add_pack(pack("whole", 20 * 30_000, 0)).unwrap();
    for number in 0..20 {
        let chunk = stored(number, 4096 + number as u32 * 30_000, 30_000, Codec::Lz4);
        builder.push(100 + number, whole, chunk).unwrap();
    }
    let half = builder.add_pack(pack("half", 20 * 65_536, 0)).unwrap();
    for number in 0..10 {
        let chunk = stored(number, 4096 + number as u32 * 2 * 65_536, 65_536, Codec::Plain);
        builder.push(600 * SPAN + 7 * number, half, chunk).unwrap();
    }
    builder.push((1 << 30) - 1, whole, stored(3, 4096 + 90_000, 30_000, Codec::Lz4)).unwrap();
    builder.finish().unwrap().to_bytes().unwrap()
}

/// 200 chunks of 4 KiB, the last one in part, in 100 packs.
fn dense() -> Vec<u8> {
    let size = 200 * 4096 - 512;
    let mut builder = Builder::new(disk(size, 4096, None), Cursor::new(Vec::new())).unwrap();
    for index in 0..200 {
        let name = format!("pack {}", index / 2);
        let number = builder.add_pack(pack(&name, 2 * 1500, (index / 2 % 2) as u8)).unwrap();
        let chunk = stored(index, 4096 + (index % 2) as u32 * 1500, 1500, Codec::Zstd);
        builder.push(index, number, chunk).unwrap();
    }
    builder.finish().unwrap().to_bytes().unwrap()
}

/// The dense disk, extended to three spans: chunks written, discarded, and as they were.
fn delta() -> Vec<u8> {
    let base = Base::of(open(dense()).unwrap().header());
    let size = 3 * SPAN * 4096;
    let mut builder = Builder::new(disk(size, 4096, Some(base)), Cursor::new(Vec::new())).unwrap();
    builder.push_zeros(3..6).unwrap();
    let number = builder.add_pack(pack("fold", 3 * 4096, 1)).unwrap();
    builder.push(6, number, stored(1000, 4096, 4096, Codec::Plain)).unwrap();
    builder.push(199, number, stored(1001, 8192, 4096, Codec::Plain)).unwrap();
    builder.push_zeros(SPAN..2 * SPAN).unwrap();
    builder.push(3 * SPAN - 1, number, stored(1002, 12_288, 4096, Codec::Plain)).unwrap();
    builder.finish().unwrap().to_bytes().unwrap()
}

fn chunk_json(found: Found) -> Value {
    match found {
        Found::AsBase => json!("as base"),
        Found::Zero => json!("zero"),
        Found::Data(entry) => json!({
            "pack": entry.pack,
            "digest": entry.chunk.digest.to_string(),
            "offset": entry.chunk.offset,
            "stored_len": entry.chunk.stored_len,
            "codec": entry.chunk.codec as u8,
            "is_incompressible": entry.chunk.is_incompressible,
            "crc": entry.chunk.crc,
        }),
    }
}

fn packs_json(header: &Header, bytes: &[u8]) -> Vec<Value> {
    let pages = header.sections().summary();
    let bytes = &bytes[pages.start as usize * PAGE_LEN..pages.end as usize * PAGE_LEN];
    let summary = Summary::parse(header, bytes).unwrap();
    let pack_json = |record: acstor_manifest::PackRecord| {
        let runs: Vec<_> =
            summary.runs(&record).into_iter().map(|run| [run.start, run.end]).collect();
        json!([
            record.pack.id.0.to_string(),
            record.pack.class,
            record.pack.stored_bytes,
            record.used_bytes,
            runs
        ])
    };
    summary.packs().take(3).map(pack_json).collect()
}

/// Returns what a reader finds, as the expectations have it; of the packs only the first three.
fn describe(reader: &MemoryReader, bytes: &[u8], indexes: &[u64]) -> Value {
    let header = reader.header();
    let counts = header.counts();
    let text = |digest: Digest| digest.to_string();
    let chunks: Vec<_> = indexes
        .iter()
        .map(|index| json!([index, chunk_json(reader.look_up(*index).unwrap())]))
        .collect();
    json!({
        "name": text(header.name()),
        "disk_id": header.disk_id().to_string(),
        "size_bytes": header.size_bytes(),
        "chunk_size": header.chunk_size().as_u32(),
        "depth": header.depth(),
        "base": header.base().map(text),
        "content_name": header.content_name().map(text),
        "pages": header.sections().page_count(),
        "data_chunks": counts.data_chunks,
        "pack_count": counts.packs,
        "runs": counts.runs,
        "maps": counts.maps,
        "directories": counts.directories,
        "packs": packs_json(header, bytes),
        "chunks": chunks,
    })
}

fn check(name: &str, built: &[u8], indexes: &[u64]) {
    let golden_bytes = golden(&format!("manifest-v2-{name}.bin"));
    assert!(built == golden_bytes, "{name}: other bytes need a new version of the format");
    let expected: Value = serde_json::from_slice(&golden("manifest-v2.json")).unwrap();
    assert_eq!(expected["version"], MANIFEST_VERSION);
    let reader = open(golden_bytes.clone()).unwrap();
    reader.check().unwrap();
    assert_eq!(describe(&reader, &golden_bytes, indexes), expected[name]);
}

#[test]
fn manifest_version_2_sparse_requires_update() {
    let far = 600 * SPAN;
    check("sparse", &sparse(), &[0, 99, 100, 119, 120, far, far + 1, far + 7, (1 << 30) - 1]);
}

#[test]
fn manifest_version_2_dense_requires_update() {
    check("dense", &dense(), &[0, 84, 85, 199, 200]);
}

#[test]
fn manifest_version_2_delta_requires_update() {
    check("delta", &delta(), &[0, 3, 5, 6, 7, 199, SPAN - 1, SPAN, 2 * SPAN, 3 * SPAN - 1]);
}
