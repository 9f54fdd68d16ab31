//! Frames of the peer protocol: a stream of bytes taken apart as a connection does.

use acstor_peer::exchange::{Hints, Join, Joined, decode_hinted, encode_hinted};
use acstor_peer::frame::{
    Frame, FrameKind, GET_BODY_LEN, Get, Hello, decode_held, decode_holds, encode_group,
    encode_held, encode_holds,
};

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    let _ = Hello::decode(bytes);
    let mut rest = bytes;
    while let Ok(Some(frame)) = Frame::decode(rest) {
        match frame.header.kind {
            FrameKind::Hello => {
                if let Ok(hello) = Hello::decode(frame.body) {
                    let encoded = hello.encode();
                    let again = Frame::decode(&encoded).expect("a frame").expect("whole");
                    assert_eq!(Hello::decode(again.body), Ok(hello));
                }
            }
            FrameKind::Get => {
                let body = frame.body.first_chunk::<GET_BODY_LEN>().expect("the length of a GET");
                let get = Get::decode(body, frame.header.flags);
                assert_eq!(get.encode(frame.header.request_id), rest[..frame.wire_len()]);
                let _ = get.request();
            }
            FrameKind::Holds => {
                let digests = decode_holds(frame.body);
                let again = encode_holds(&digests, frame.header.request_id).expect("1 to 120");
                assert_eq!(again, rest[..frame.wire_len()]);
            }
            FrameKind::Held => {
                let held = decode_held(frame.body, frame.body.len() * 8);
                assert_eq!(encode_held(&held), frame.body);
            }
            FrameKind::Join => {
                if let Ok(join) = Join::decode(frame.body, frame.header.flags) {
                    assert_eq!(join.encode(frame.header.request_id), rest[..frame.wire_len()]);
                }
            }
            FrameKind::Joined => {
                let joined = Joined::decode(frame.body).expect("the length of a JOINED");
                assert_eq!(joined.encode_body(), frame.body);
            }
            FrameKind::Hint => {
                if let Ok(hints) = Hints::decode(frame.body, frame.header.flags) {
                    let again = hints.encode(frame.header.request_id).expect("1 to 256");
                    assert_eq!(again, rest[..frame.wire_len()]);
                }
            }
            FrameKind::Hinted => {
                let known = decode_hinted(frame.body).expect("the length of a HINTED");
                assert_eq!(encode_hinted(known)[..], *frame.body);
            }
            FrameKind::Group => {
                let message = frame.body.first_chunk().expect("the length of a GROUP");
                let again = encode_group(message, frame.header.request_id);
                assert_eq!(again, rest[..frame.wire_len()]);
            }
            FrameKind::Unknown(_) => {}
            _ => assert_eq!(frame.header.encode(), rest[..16]),
        }
        rest = &rest[frame.wire_len()..];
    }
}
