//! The golden file of packs of version 2; `tests/unit/repository/test_pack_format.py` reads the same.
//!
//! Changed bytes need a new version and a new golden file, and readers of the old one. Encoders may
//! change: the stored bytes of the file were made once and must stay readable.
#![allow(clippy::unwrap_used, reason = "a missing golden file must fail the test")]

mod support;

use std::path::PathBuf;

use acstor_pack::{
    ChunkDecompressor, MOVED_PACK_VERSION, MovedPack, PACK_VERSION, PackBuilder, PackHeader,
    PackTable,
};
use acstor_types::{Codec, Digest, PackClass, StoredChunk};
use bytes::Bytes;
use serde_json::Value;
use support::{CHUNK_LEN, SALT, chunk_size, noise};

fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(folder.join(name)).unwrap()
}

/// Numbered lines, counted from `first`.
fn lines(first: u32) -> Vec<u8> {
    let text: String = (first..).take(CHUNK_LEN).map(|number| format!("line {number}\n")).collect();
    text.into_bytes()[..CHUNK_LEN].to_vec()
}

/// The plain chunks of the golden pack, in their order: one stored with LZ4, one with zstd, one that
/// is incompressible, and one that nobody has tried to compress.
fn chunks() -> [(Codec, bool, Vec<u8>); 4] {
    [
        (Codec::Lz4, false, lines(0)),
        (Codec::Zstd, false, lines(5000)),
        (Codec::Plain, true, noise(1, CHUNK_LEN)),
        (Codec::Plain, false, noise(2, CHUNK_LEN)),
    ]
}

fn table(bytes: &[u8], expected: &Value) -> PackTable {
    let header = PackHeader::parse(&bytes[..4096]).unwrap();
    assert_eq!(header.size_bytes(), bytes.len() as u64);
    let records = Bytes::copy_from_slice(&bytes[header.table_offset as usize..]);
    let id = expected["id"].as_str().unwrap().parse().map(acstor_types::PackId).unwrap();
    PackTable::parse(header, &id, records).unwrap()
}

fn stored<'a>(bytes: &'a [u8], chunk: &StoredChunk) -> &'a [u8] {
    &bytes[chunk.offset as usize..][..chunk.stored_len as usize]
}

#[test]
fn pack_version_2_requires_update() {
    assert_eq!(PACK_VERSION, 2);
    let bytes = golden("pack-v2.bin");
    let expected: Value = serde_json::from_slice(&golden("pack-v2.json")).unwrap();
    let table = table(&bytes, &expected);
    let header = table.header();
    assert_eq!((header.class, header.salt), (PackClass::Volume, SALT));
    assert_eq!((header.chunk_size, header.chunk_count), (chunk_size(), 4));
    assert_eq!(u64::from(header.table_offset), expected["table_offset"].as_u64().unwrap());
    let mut decompressor = ChunkDecompressor::new();
    for ((chunk, (codec, is_incompressible, plain)), said) in
        table.chunks().zip(chunks()).zip(expected["chunks"].as_array().unwrap())
    {
        assert_eq!((chunk.codec, chunk.is_incompressible), (codec, is_incompressible));
        assert_eq!(chunk.digest, Digest::of(&plain));
        assert_eq!(chunk.digest.to_string(), said["digest"]);
        let numbers = [chunk.offset, chunk.stored_len, chunk.codec as u32, chunk.crc];
        let said = ["offset", "stored_len", "codec", "crc"].map(|name| said[name].as_u64());
        assert_eq!(numbers.map(|number| Some(u64::from(number))), said);
        let mut back = vec![0; CHUNK_LEN];
        assert_eq!(decompressor.decompress(&chunk, stored(&bytes, &chunk), &mut back), Ok(()));
        assert_eq!(back, plain);
    }
}

#[test]
fn pack_version_2_is_laid_out_again() {
    let bytes = golden("pack-v2.bin");
    let expected: Value = serde_json::from_slice(&golden("pack-v2.json")).unwrap();
    let mut builder = PackBuilder::new(PackClass::Volume, chunk_size(), SALT, 1 << 20);
    for chunk in table(&bytes, &expected).chunks() {
        builder.copy(&chunk, Bytes::copy_from_slice(stored(&bytes, &chunk))).unwrap();
    }
    let pack = builder.seal().unwrap().unwrap();
    assert_eq!(pack.parts.concat(), bytes);
    assert_eq!(pack.id.0.to_string(), expected["id"]);
}

#[test]
fn moved_pack_version_1_requires_update() {
    assert_eq!(MOVED_PACK_VERSION, 1);
    let bytes = golden("moved-pack-v1.bin");
    let said: Value = serde_json::from_slice(&golden("moved-pack-v1.json")).unwrap();
    let id: acstor_types::PackId =
        said["pack"].as_str().unwrap().parse().map(acstor_types::PackId).unwrap();
    let moved = MovedPack::parse(&id, &bytes).unwrap();
    assert_eq!(MovedPack::size_of(&bytes), Ok(bytes.len() as u64));
    assert_eq!((moved.pack(), moved.class()), (id, PackClass::Image));
    assert_eq!(moved.chunks().len(), said["chunks"].as_array().unwrap().len());
    for chunk in said["chunks"].as_array().unwrap() {
        let number = |name: &str| u32::try_from(chunk[name].as_u64().unwrap()).unwrap();
        let (pack, found) = moved.find(number("from"), number("from_size")).unwrap();
        assert_eq!(pack.0.to_string(), chunk["target"]);
        assert_eq!(found.offset, number("offset"));
        assert_eq!((found.stored_len, found.crc), (number("stored_size"), number("crc")));
    }
    assert_eq!(moved.encode(), bytes);
}
