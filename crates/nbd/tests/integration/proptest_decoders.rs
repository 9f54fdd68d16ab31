//! The decoders against any bytes, and a client's encoders.

use crate::support::client::{context_query, go_request};
use acstor_nbd::protocol::{
    Command, ExportRules, GoRequest, HeaderStyle, MetaContextRequest, NAME_LEN_MAX, OptionHeader,
    QUERIES_MAX, RequestHeader, StatusFilter,
};
use proptest::prelude::*;

fn styles() -> impl Strategy<Value = HeaderStyle> {
    prop_oneof![Just(HeaderStyle::Compact), Just(HeaderStyle::Extended)]
}

fn headers() -> impl Strategy<Value = RequestHeader> {
    let length = prop_oneof![any::<u64>(), 0..1_u64 << 27, (0..1_u64 << 18).prop_map(|n| n * 512)];
    let offset = prop_oneof![any::<u64>(), 0..1_u64 << 27, (0..1_u64 << 18).prop_map(|n| n * 512)];
    (0..64_u16, 0..10_u16, any::<u64>(), offset, length).prop_map(
        |(flags, command, cookie, offset, length)| RequestHeader {
            flags,
            command,
            cookie,
            offset,
            length,
        },
    )
}

proptest! {
    #[test]
    fn proptest_decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = GoRequest::decode(&bytes);
        let _ = StatusFilter::decode(&bytes);
        if let Ok(request) = MetaContextRequest::decode(&bytes) {
            prop_assert!(request.queries.len() <= QUERIES_MAX as usize);
        }
        if let Some(header) = bytes.first_chunk() {
            let _ = OptionHeader::decode(header);
        }
        for style in [HeaderStyle::Compact, HeaderStyle::Extended] {
            let _ = RequestHeader::decode(&bytes, style);
        }
    }

    #[test]
    fn proptest_requests_come_back(mut header in headers(), style in styles(), cut in 0..32_usize) {
        if style == HeaderStyle::Compact {
            header.length &= 0xffff_ffff;
        }
        let bytes = header.encode(style);
        prop_assert_eq!(bytes.len(), style.request_len());
        prop_assert_eq!(RequestHeader::decode(&bytes, style), Ok(Some(header)));
        let part = &bytes[..cut.min(bytes.len() - 1)];
        prop_assert_eq!(RequestHeader::decode(part, style), Ok(None));
    }

    /// Whatever is let through lies inside the export and within the longest payload.
    #[test]
    fn proptest_commands_stay_inside_the_export(
        header in headers(),
        style in styles(),
        size in (0..1_u64 << 18).prop_map(|n| n * 512),
        is_read_only: bool,
        has_contexts: bool,
    ) {
        let rules = ExportRules {
            size_bytes: size,
            is_read_only,
            minimum_block: 512,
            maximum_payload: 1 << 20,
            has_chunks: has_contexts,
            has_contexts,
            style,
        };
        let Ok(command) = Command::check(&header, &rules) else { return Ok(()) };
        let (offset, len, writes) = match command {
            Command::Read { offset, len, .. } => {
                prop_assert!(len <= 1 << 20);
                (offset, len as u64, false)
            }
            Command::Write { offset, len, .. } => {
                prop_assert!(len <= 1 << 20);
                prop_assert_eq!(len as u64, header.payload_len(style));
                (offset, len as u64, true)
            }
            Command::WriteZeroes { offset, len, .. } | Command::Trim { offset, len, .. } => {
                (offset, len, true)
            }
            Command::Cache { offset, len } => (offset, len, false),
            Command::BlockStatus { offset, len, is_filtered: false, .. } => {
                prop_assert!(has_contexts);
                (offset, len, false)
            }
            Command::BlockStatus { len, is_filtered: true, .. } => {
                prop_assert!(len <= StatusFilter::LEN_MAX);
                return Ok(());
            }
            Command::Nothing | Command::Flush | Command::Disconnect => return Ok(()),
        };
        prop_assert!(len > 0);
        prop_assert!(offset.checked_add(len).unwrap() <= size);
        prop_assert!(offset % 512 == 0 && len % 512 == 0);
        prop_assert!(!(writes && is_read_only));
    }

    #[test]
    fn proptest_options_come_back(
        name in "[^\0]{0,40}",
        infos in prop::collection::vec(any::<u16>(), 0..20),
        queries in prop::collection::vec("[a-z]{1,8}:[a-z]{0,8}", 0..20),
    ) {
        let go = GoRequest::decode(&go_request(&name, &infos)).unwrap();
        prop_assert_eq!(&go.name, &name);
        prop_assert_eq!(&go.infos, &infos);
        let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
        let meta = MetaContextRequest::decode(&context_query(&name, &texts)).unwrap();
        prop_assert_eq!(&meta.name, &name);
        prop_assert_eq!(&meta.queries, &queries);
    }

    #[test]
    fn proptest_cut_options_are_refused(
        name in "[a-z]{0,40}",
        infos in prop::collection::vec(any::<u16>(), 0..5),
        cut in 1..10_usize,
    ) {
        let data = go_request(&name, &infos);
        let end = data.len().saturating_sub(cut);
        prop_assert!(GoRequest::decode(&data[..end]).is_err());
    }

    #[test]
    fn proptest_long_names_are_refused(extra in 1..100_usize) {
        let name = "x".repeat(NAME_LEN_MAX + extra);
        prop_assert!(GoRequest::decode(&go_request(&name, &[])).is_err());
    }
}
