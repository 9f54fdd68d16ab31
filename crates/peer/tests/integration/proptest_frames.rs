//! Decoding of any bytes: a frame, more bytes needed, or an error; never a panic, never a length
//! beyond its kind's.

use acstor_peer::exchange::{HINTED_BODY_LEN, JOIN_BODY_LEN, JOINED_BODY_LEN_MAX};
use acstor_peer::frame::{
    Frame, FrameError, FrameKind, GET_BODY_LEN, GROUP_BODY_LEN, Get, HEADER_LEN,
    HELLO_BODY_LEN_MAX, HELLO_BODY_LEN_MIN, HOLDS_MAX, Header, Hello, UNKNOWN_BODY_LEN_MAX,
    compressed_len_max, decode_held, decode_holds, encode_held, encode_holds, held_len,
};
use acstor_peer::{PeerStatus, VersionRange};
use acstor_types::limits::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN};
use acstor_types::{Digest, DiskId, RequestClass};
use proptest::prelude::*;

/// Headers whose fields are mostly near what is allowed.
fn header_bytes() -> impl Strategy<Value = [u8; HEADER_LEN]> {
    let length = prop_oneof![
        Just(0),
        Just(64),
        Just(65_536),
        Just(u32::MAX),
        28_u32..40,
        250_u32..260,
        4090_u32..4100,
        any::<u32>(),
    ];
    let flags = prop_oneof![4 => Just(0_u8), 2 => 0_u8..8, 1 => any::<u8>()];
    let status = prop_oneof![Just(0_u16), 0_u16..10, any::<u16>()];
    (length, 0_u8..17, flags, status, any::<u64>()).prop_map(|(length, kind, flags, status, id)| {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = kind;
        bytes[5] = flags;
        bytes[6..8].copy_from_slice(&status.to_le_bytes());
        bytes[8..].copy_from_slice(&id.to_le_bytes());
        bytes
    })
}

fn body_len_max(kind: FrameKind) -> usize {
    match kind {
        FrameKind::Hello => HELLO_BODY_LEN_MAX,
        FrameKind::Get => GET_BODY_LEN,
        FrameKind::Data => CHUNK_SIZE_MAX as usize,
        FrameKind::Ping
        | FrameKind::Pong
        | FrameKind::Status
        | FrameKind::Goodbye
        | FrameKind::Class => 0,
        FrameKind::Holds => HOLDS_MAX * 32,
        FrameKind::Held => held_len(HOLDS_MAX),
        FrameKind::Group | FrameKind::Grouped => GROUP_BODY_LEN,
        FrameKind::Compressed => compressed_len_max(CHUNK_SIZE_MAX as usize),
        FrameKind::Join => JOIN_BODY_LEN,
        FrameKind::Joined => JOINED_BODY_LEN_MAX,
        FrameKind::Hint => UNKNOWN_BODY_LEN_MAX,
        FrameKind::Hinted => HINTED_BODY_LEN,
        FrameKind::Unknown(_) => UNKNOWN_BODY_LEN_MAX,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn proptest_decode_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Some(frame)) = Frame::decode(&bytes) {
            prop_assert!(frame.wire_len() <= bytes.len());
            prop_assert!(frame.body.len() <= body_len_max(frame.header.kind));
        }
        let _ = Hello::decode(&bytes);
    }

    #[test]
    fn proptest_decode_header_keeps_the_limits(bytes in header_bytes()) {
        let Ok(header) = Header::decode(&bytes) else { return Ok(()) };
        prop_assert!(header.body_len as usize <= body_len_max(header.kind));
        match header.kind {
            FrameKind::Data => prop_assert!(header.body_len >= CHUNK_SIZE_MIN),
            FrameKind::Hello => prop_assert!(header.body_len as usize >= HELLO_BODY_LEN_MIN),
            FrameKind::Unknown(_) => return Ok(()), // flags of a newer version are not kept
            _ => {}
        }
        prop_assert_eq!(header.status.is_some(), header.kind == FrameKind::Status);
        prop_assert_eq!(header.encode(), bytes);
    }

    #[test]
    fn proptest_get_round_trips(
        digest in any::<[u8; 32]>(), disk in any::<[u8; 16]>(), chunk_index in any::<u64>(),
        chunk_size in any::<u32>(), deadline_ms in any::<u32>(), id in any::<u64>(),
        accepts_compressed in any::<bool>(), class in 0..RequestClass::COUNT,
    ) {
        let get = Get {
            digest: Digest::from_bytes(digest),
            disk_id: DiskId::from_bytes(disk),
            chunk_index,
            chunk_size,
            deadline_ms,
            accepts_compressed,
            class: RequestClass::ALL[class],
        };
        let bytes = get.encode(id);
        let frame = Frame::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(frame.header.request_id, id);
        prop_assert_eq!(Get::decode(frame.body.try_into().unwrap(), frame.header.flags), get);
        let size = acstor_types::ChunkSize::new(chunk_size);
        prop_assert_eq!(get.request().map(|request| request.chunk_size).ok(), size);
    }

    #[test]
    fn proptest_holds_round_trips(
        held in prop::collection::vec(any::<bool>(), 1..=HOLDS_MAX), id in any::<u64>(),
    ) {
        let digests: Vec<Digest> = (0..held.len()).map(|n| Digest::of(&n.to_le_bytes())).collect();
        let bytes = encode_holds(&digests, id).unwrap();
        let frame = Frame::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(frame.header.request_id, id);
        prop_assert_eq!(decode_holds(frame.body), digests);
        let body = encode_held(&held);
        prop_assert_eq!(body.len(), held_len(held.len()));
        prop_assert_eq!(decode_held(&body, held.len()), held);
    }

    /// Fields that a later version appends to HELLO are skipped.
    #[test]
    fn proptest_hello_round_trips(
        min in 1_u16.., more in any::<u16>(), chunk_size_max in CHUNK_SIZE_MIN..,
        features in any::<u64>(), requests_in_flight_max in 1_u32.., idle_timeout_ms in any::<u32>(),
        appended in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let versions = VersionRange { min, max: min.saturating_add(more) };
        let hello = Hello { versions, chunk_size_max, features, requests_in_flight_max, idle_timeout_ms };
        let mut bytes = hello.encode().to_vec();
        bytes.extend_from_slice(&appended);
        let length = (HELLO_BODY_LEN_MIN + appended.len()) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let frame = Frame::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(Hello::decode(frame.body), Ok(hello));
    }

    /// Every prefix of a frame asks for more bytes.
    #[test]
    fn proptest_decode_a_prefix_waits(cut in 0_usize..HEADER_LEN + GET_BODY_LEN) {
        let get = Get {
            digest: Digest::from_bytes([1; 32]),
            disk_id: DiskId::from_bytes([2; 16]),
            chunk_index: 3,
            chunk_size: 4096,
            deadline_ms: 5,
            accepts_compressed: true,
            class: RequestClass::Ahead,
        };
        let bytes = get.encode(9);
        prop_assert_eq!(Frame::decode(&bytes[..cut]), Ok(None));
    }
}

#[test]
fn test_decode_other_protocols_are_refused() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcde"]
    {
        assert_eq!(Frame::decode(bytes), Err(FrameError::Length));
    }
    let mut hello = [0; HELLO_BODY_LEN_MIN];
    assert_eq!(Hello::decode(&hello), Err(FrameError::Magic));
    hello[..8].copy_from_slice(b"ACSTPEER");
    assert_eq!(Hello::decode(&hello), Err(FrameError::Hello));
    assert_eq!(Hello::decode(b"ACSTPEER"), Err(FrameError::Length));
}

#[test]
fn test_decode_status_without_a_code_is_refused() {
    let mut bytes = Header::refusal(PeerStatus::NotFound, 1).encode();
    bytes[6] = 0;
    assert_eq!(Header::decode(&bytes), Err(FrameError::Reserved));
}
