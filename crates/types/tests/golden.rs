//! The golden files of pack, manifest and scoped digests; `tests/unit/repository/test_formats.py` reads the same.
//!
//! Changed bytes need a new version and a new golden file, and readers of the old one.

use std::path::PathBuf;

use acstor_types::{
    ChunkLocation, ChunkSize, DedupScope, Digest, Entry, Manifest, ManifestBuilder,
    PACK_DATA_OFFSET, PackHeader, PackId,
};

const CHUNK_LEN: usize = 4096;
const SALT: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[expect(clippy::unwrap_used, reason = "a missing golden file must fail the test")]
fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(folder.join(name)).unwrap()
}

fn chunk(number: u8) -> Vec<u8> {
    vec![number; CHUNK_LEN]
}

#[test]
fn pack_version_1_requires_update() {
    let header =
        PackHeader { chunk_size: ChunkSize::new(CHUNK_LEN as u32).unwrap(), chunk_count: 3 };
    let mut bytes = header.encode_salted(&SALT);
    for number in 1..=3 {
        bytes.extend(chunk(number));
    }
    for number in 1..=3 {
        bytes.extend(Digest::of(&chunk(number)).as_bytes());
    }
    let golden = golden("pack-v1.bin");
    assert_eq!(bytes, golden);
    assert_eq!(PackHeader::parse(&golden), Ok(header));
    assert_eq!(PackHeader::parse_salt(&golden), Ok(SALT));
    assert_eq!(header.size_bytes(), golden.len() as u64);
}

#[test]
fn manifest_version_1_requires_update() {
    let golden = golden("manifest-v1.bin");
    let manifest = Manifest::parse(golden.clone().into()).unwrap();
    let digests: Vec<u8> = (1..=3).flat_map(|n| *Digest::of(&chunk(n)).as_bytes()).collect();
    let pack = PackId::of_salted(&digests, &SALT);
    let size = 5 * CHUNK_LEN as u64 - 512;
    let mut builder =
        ManifestBuilder::new(manifest.disk_id(), ChunkSize::new(CHUNK_LEN as u32).unwrap(), size);
    builder.set_salt(0x0123_4567_89ab_cdef);
    for number in [1, 0, 2, 1, 3] {
        if number == 0 {
            builder.push_zero();
            continue;
        }
        let offset = PACK_DATA_OFFSET as u32 + u32::from(number - 1) * CHUNK_LEN as u32;
        builder.push_chunk(&Digest::of(&chunk(number)), ChunkLocation { pack, offset });
    }
    assert_eq!(builder.finish().unwrap().as_bytes(), &golden);
    assert_eq!(manifest.disk_id().to_string(), "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0");
    assert_eq!(manifest.entry(1), Some(Entry::Zero));
    assert_eq!(manifest.pack(0), Some(pack));
}

#[test]
fn scoped_digest_version_1_requires_update() {
    let golden: serde_json::Value =
        serde_json::from_slice(&golden("scoped-digest-v1.json")).unwrap();
    assert_eq!(golden["version"], DedupScope::VERSION);
    let vectors = golden["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 9);
    for vector in vectors {
        let text = |name: &str| vector[name].as_str().unwrap();
        let size = vector["size"].as_u64().unwrap() as usize;
        let content = vec![vector["byte"].as_u64().unwrap() as u8; size];
        let digest = Digest::of_in(Some(&DedupScope::new(text("scope"))), &content);
        assert_eq!(digest.to_string(), text("digest"), "{vector}");
        assert_eq!(Digest::of(&content).to_string(), text("plain"), "{vector}");
        assert!(digest.to_string().ends_with(&format!("{}ac534301", text("tag"))));
        assert!(digest.matches(&content), "by the name alone");
    }
}
