//! Pack headers, also with the checksum that a damaged one would need to get past it.
#![no_main]

use acstor_types::PackHeader;
use libfuzzer_sys::fuzz_target;

fn use_every_field(bytes: &[u8]) {
    if let Ok(header) = PackHeader::parse(bytes) {
        let salt = PackHeader::parse_salt(bytes).expect("the header is good");
        let encoded = header.encode_salted(&salt);
        assert_eq!(PackHeader::parse(&encoded).as_ref(), Ok(&header));
        assert!(header.digests_offset() < header.size_bytes());
    }
}

fuzz_target!(|bytes: &[u8]| {
    use_every_field(bytes);
    if bytes.len() >= PackHeader::LEN {
        let mut repaired = bytes.to_vec();
        let crc = crc32fast::hash(&repaired[..60]);
        repaired[60..64].copy_from_slice(&crc.to_le_bytes());
        use_every_field(&repaired);
    }
});
