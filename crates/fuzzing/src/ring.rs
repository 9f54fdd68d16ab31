//! Rings, binary (also with the checksums that a damaged one would need) and text.

use acstor_ring::{Detail, Ring};
use acstor_types::{DiskId, Oid};

fn use_every_answer(ring: &Ring) {
    assert_eq!(Ring::decode(&ring.encode()).as_ref(), Ok(ring));
    assert_eq!(Ring::from_text(&ring.to_text(Detail::Full)).as_ref(), Ok(ring));
    let disk = DiskId::from_bytes([9; 16]);
    for index in 0..8 {
        let owner = ring.owner_id(Oid::of(&disk, index));
        assert!(ring.host(owner).is_some());
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    if let Ok(ring) = Ring::decode(bytes) {
        use_every_answer(&ring);
    }
    if bytes.len() >= 64 {
        let mut repaired = bytes.to_vec();
        let body = crc32fast::hash(&repaired[64..]);
        repaired[56..60].copy_from_slice(&body.to_le_bytes());
        let header = crc32fast::hash(&repaired[..60]);
        repaired[60..64].copy_from_slice(&header.to_le_bytes());
        if let Ok(ring) = Ring::decode(&repaired) {
            use_every_answer(&ring);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(ring) = Ring::from_text(text)
    {
        use_every_answer(&ring);
    }
}
