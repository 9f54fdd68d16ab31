//! Heads of objects in RADOS, also with the checksum that damaged ones would need to be believed.

use acstor_rados::{HEAD_LEN, Head};

const KEY: &str = "packs/aa/x";
const CRC_AT: usize = HEAD_LEN - 4;

fn use_head(stored: &[u8]) {
    let Ok(head) = Head::parse(stored, KEY) else { return };
    // Two bytes say nothing.
    let mut written = stored[..HEAD_LEN].to_vec();
    written[6..8].fill(0);
    repair(&mut written);
    assert_eq!(head.encode()[..], written[..]);
    assert!(head.stripe_size > 0);
    assert!(head.stripe_count() <= 1 << 16);
    assert_eq!(Head::parse(&head.encode(), KEY), Ok(head));
}

fn repair(head: &mut [u8]) {
    let crc = crc32fast::hash(&head[..CRC_AT]);
    head[CRC_AT..HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_head(bytes);
    if bytes.len() >= HEAD_LEN {
        let mut repaired = bytes.to_vec();
        repair(&mut repaired);
        use_head(&repaired);
    }
}
