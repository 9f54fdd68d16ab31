//! Pack headers, also with the checksum that a damaged one would need to get past it.

use acstor_types::PackHeader;

fn use_every_field(bytes: &[u8]) {
    if let Ok(header) = PackHeader::parse(bytes) {
        let salt = PackHeader::parse_salt(bytes).expect("the header is good");
        let encoded = header.encode_salted(&salt);
        assert_eq!(PackHeader::parse(&encoded).as_ref(), Ok(&header));
        assert!(header.digests_offset() < header.size_bytes());
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_every_field(bytes);
    if bytes.len() >= PackHeader::LEN {
        let mut repaired = bytes.to_vec();
        let crc = crc32fast::hash(&repaired[..60]);
        repaired[60..64].copy_from_slice(&crc.to_le_bytes());
        use_every_field(&repaired);
    }
}
