//! Manifests, also with the checksums that a damaged one would need to get past them.

use acstor_types::{Digest, Manifest};
use bytes::Bytes;

fn use_every_field(bytes: Bytes) {
    if let Ok(manifest) = Manifest::parse(bytes.clone()) {
        assert_eq!(manifest.as_bytes(), &bytes);
        assert_eq!(manifest.entries().count() as u64, manifest.chunk_count());
        assert!(manifest.entry(manifest.chunk_count()).is_none());
        assert!(manifest.pack(manifest.pack_count()).is_none());
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_every_field(Bytes::copy_from_slice(bytes));
    if bytes.len() >= 96 {
        let mut repaired = bytes.to_vec();
        let body = Digest::of(&repaired[96..]);
        repaired[64..96].copy_from_slice(body.as_bytes());
        let crc = crc32fast::hash(&repaired[..60]);
        repaired[60..64].copy_from_slice(&crc.to_le_bytes());
        use_every_field(repaired.into());
    }
}
