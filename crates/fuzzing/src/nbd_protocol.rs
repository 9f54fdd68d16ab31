//! Options and requests of NBD: bytes taken apart as a connection does, and checked against an export.

use acstor_nbd::protocol::{
    Command, ExportRules, GoRequest, HeaderStyle, MetaContextRequest, OPTION_HEADER_LEN,
    OptionHeader, RequestHeader, StatusFilter,
};

const SIZE: u64 = 1 << 30;
const PAYLOAD_MAX: u32 = 1 << 20;

fn take_apart(bytes: &[u8], style: HeaderStyle) {
    let rules = ExportRules {
        size_bytes: SIZE,
        is_read_only: false,
        minimum_block: 512,
        maximum_payload: PAYLOAD_MAX,
        has_chunks: true,
        has_contexts: true,
        style,
    };
    let mut rest = bytes;
    while let Ok(Some(header)) = RequestHeader::decode(rest, style) {
        assert_eq!(header.encode(style), rest[..style.request_len()]);
        rest = &rest[style.request_len()..];
        match Command::check(&header, &rules) {
            Ok(Command::Read { offset, len, .. } | Command::Write { offset, len, .. }) => {
                assert!(len > 0 && len <= PAYLOAD_MAX as usize);
                assert!(offset <= SIZE - len as u64);
            }
            Ok(Command::Trim { offset, len, .. } | Command::WriteZeroes { offset, len, .. }) => {
                assert!(len > 0 && len <= SIZE && offset <= SIZE - len);
            }
            Ok(Command::Disconnect) => return,
            _ => {}
        }
        let payload = usize::try_from(header.payload_len(style)).unwrap_or(usize::MAX);
        let payload = payload.min(rest.len());
        let _ = StatusFilter::decode(&rest[..payload]);
        rest = &rest[payload..];
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<OPTION_HEADER_LEN>()
        && OptionHeader::decode(header).is_some()
    {
        let data = &bytes[OPTION_HEADER_LEN..];
        let _ = GoRequest::decode(data);
        let _ = MetaContextRequest::decode(data);
    }
    let _ = GoRequest::decode(bytes);
    let _ = MetaContextRequest::decode(bytes);
    take_apart(bytes, HeaderStyle::Compact);
    take_apart(bytes, HeaderStyle::Extended);
}
