//! Lists of moved chunks, also with the checksum that damaged ones would need to be believed.

use acstor_pack::MovedPack;
use acstor_types::{Digest, PACK_DATA_OFFSET, PackId};

fn use_list(bytes: &[u8]) {
    let Ok(size) = MovedPack::size_of(bytes) else { return };
    assert!(size <= MovedPack::SIZE_MAX);
    let Some(id) = bytes.get(16..48).and_then(|id| <[u8; 32]>::try_from(id).ok()) else { return };
    let id = PackId(Digest::from_bytes(id));
    let Ok(moved) = MovedPack::parse(&id, bytes) else { return };
    assert_eq!(size, bytes.len() as u64);
    assert_eq!(moved.encode(), bytes);
    let mut end = PACK_DATA_OFFSET;
    for chunk in moved.chunks() {
        assert!(u64::from(chunk.from) >= end);
        end = u64::from(chunk.from) + u64::from(chunk.from_len);
        let found = moved.find(chunk.from, chunk.from_len);
        assert_eq!(found.map(|(_, chunk)| chunk), Some(*chunk));
        assert!(chunk.stored_len <= acstor_types::limits::CHUNK_SIZE_MAX);
        let run = chunk.from..chunk.from + chunk.from_len;
        let (runs, left) = moved.follow(std::slice::from_ref(&run));
        assert_eq!(left, []);
        assert_eq!(runs, [(moved.targets()[chunk.target as usize], vec![chunk.range()])]);
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_list(bytes);
    if bytes.len() >= MovedPack::HEADER_LEN {
        let mut repaired = bytes.to_vec();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&repaired[..60]);
        hasher.update(&repaired[MovedPack::HEADER_LEN..]);
        repaired[60..64].copy_from_slice(&hasher.finalize().to_le_bytes());
        use_list(&repaired);
    }
}
