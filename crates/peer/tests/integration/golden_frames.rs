//! The frames of version 1 and of its features, byte by byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use acstor_peer::frame::{
    Frame, FrameError, FrameKind, Get, Header, Hello, ToldLoad, decode_held, decode_holds,
    encode_group, encode_held, encode_holds,
};
use acstor_peer::{
    ChunkRequest, ClassWatch, FEATURE_CLASSES, FEATURE_COMPRESSED, FEATURE_GROUPS, FEATURE_HINTS,
    FEATURE_HOLDS, FEATURE_LOAD, FEATURES, PeerStatus, Security, VERSION_MAX, VersionRange,
};
use acstor_types::{ChunkSize, Digest, DiskId, RequestClass};

use crate::support::scripted::{Scripted, scripted};
use crate::support::{client, config, later};

fn golden_file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(folder.join(name)).unwrap()
}

fn golden() -> Vec<u8> {
    golden_file("peer-frames-v1.bin")
}

fn hello() -> Hello {
    Hello {
        versions: VersionRange { min: 1, max: 1 },
        chunk_size_max: 4 << 20,
        features: 0,
        requests_in_flight_max: 256,
        idle_timeout_ms: 120_000,
    }
}

fn get() -> Get {
    let request = ChunkRequest {
        digest: Digest::of(b"acstor"),
        disk_id: DiskId::from_bytes(
            *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef",
        ),
        chunk_index: 0x0102_0304_0506,
        chunk_size: ChunkSize::new(4096).unwrap(),
        accepts_compressed: false,
    };
    Get::new(&request, 30_000)
}

/// One frame of each kind.
fn frames() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&hello().encode());
    bytes.extend_from_slice(&Header::new(FrameKind::Ping, 0, 0).encode());
    bytes.extend_from_slice(&Header::new(FrameKind::Pong, 0, 0).encode());
    bytes.extend_from_slice(&get().encode(0x0000_0001_0000_0007));
    bytes.extend_from_slice(&Header::new(FrameKind::Data, 4096, 0x0000_0001_0000_0007).encode());
    bytes.extend_from_slice(&[0xa5; 4096]);
    for status in PeerStatus::ALL {
        bytes.extend_from_slice(&Header::refusal(status, u64::from(status.code())).encode());
    }
    bytes.extend_from_slice(&Header::new(FrameKind::Goodbye, 0, 0).encode());
    bytes
}

/// HOLDS of nine digests and its answer, as the feature adds them to version 1.
fn holds_frames() -> Vec<u8> {
    let digests: Vec<Digest> = (0..9u8).map(|number| Digest::of(&[number])).collect();
    let mut bytes = encode_holds(&digests, 0x0000_0002_0000_0003).unwrap();
    let held = encode_held(&[true, false, false, true, false, false, false, true, true]);
    let header = Header::new(FrameKind::Held, held.len() as u32, 0x0000_0002_0000_0003);
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(&held);
    bytes
}

/// Another layout is another feature bit: keep this one as long as it is spoken.
#[test]
fn test_frames_of_holds_change_requires_another_feature() {
    let all = FEATURE_HOLDS
        | FEATURE_COMPRESSED
        | FEATURE_CLASSES
        | FEATURE_LOAD
        | FEATURE_HINTS
        | FEATURE_GROUPS;
    assert_eq!(FEATURES, all);
    let golden = golden_file("peer-frames-v1-holds.bin");
    assert_eq!(holds_frames(), golden);
    let asked = Frame::decode(&golden).unwrap().unwrap();
    assert_eq!(decode_holds(asked.body).len(), 9);
    let held = Frame::decode(&golden[asked.wire_len()..]).unwrap().unwrap();
    assert_eq!(decode_held(held.body, 9)[7..], [true, true]);
}

/// GROUP and its answer, as the feature adds them to version 1.
#[test]
fn test_frames_of_groups_change_requires_another_feature() {
    let golden = golden_file("peer-frames-v1-groups.bin");
    let message = std::array::from_fn(|place| place as u8);
    let asked = encode_group(&message, 0x0000_0002_0000_0003);
    assert_eq!(asked[..], golden[..asked.len()]);
    let answer = Frame::decode(&golden[asked.len()..]).unwrap().unwrap();
    let header = Header::new(FrameKind::Grouped, 72, 0x0000_0002_0000_0003);
    assert_eq!((answer.header, answer.body[0]), (header, 71));
    assert_eq!(asked.len() + answer.wire_len(), golden.len());
}

/// A GET that welcomes a compressed answer, and the answer, as the feature adds them to version 1. LZ4
/// has many blocks for one chunk: what is kept is that this one is read.
#[tokio::test]
async fn test_frames_of_compressed_change_requires_another_feature() {
    let golden = golden_file("peer-frames-v1-compressed.bin");
    let asked = Frame::decode(&golden).unwrap().unwrap();
    let request_id = asked.header.request_id;
    let welcome = Get { accepts_compressed: true, ..get() };
    assert_eq!(welcome.encode(request_id), golden[..asked.wire_len()]);
    assert_eq!(Get::decode(asked.body.try_into().unwrap(), asked.header.flags), welcome);
    let answer = Frame::decode(&golden[asked.wire_len()..]).unwrap().unwrap();
    let header = Header::new(FrameKind::Compressed, answer.body.len() as u32, request_id);
    assert_eq!(answer.header, header);
    assert_eq!(asked.wire_len() + answer.wire_len(), golden.len());

    let body = answer.body.to_vec();
    let address = scripted(move |mut peer: Scripted| {
        let body = body.clone();
        async move {
            peer.greet().await;
            let id = peer.read_get().await;
            let header = Header::new(FrameKind::Compressed, body.len() as u32, id);
            peer.send(&[&header.encode()[..], &body].concat()).await;
            peer.read_to_end().await;
        }
    })
    .await;
    let client = client(&config(Security::Plain));
    let chunk = client
        .fetch(&address, welcome.request().unwrap(), ClassWatch::DEMAND, later())
        .await
        .unwrap();
    assert_eq!(chunk, b"abcd".repeat(1024));
}

/// A GET of each class, compressed answers welcome and not, and each CLASS.
fn class_frames() -> Vec<u8> {
    let mut bytes = Vec::new();
    for class in RequestClass::ALL {
        for accepts_compressed in [false, true] {
            bytes.extend(Get { class, accepts_compressed, ..get() }.encode(0x0000_0003_0000_0001));
        }
    }
    for class in RequestClass::ALL.map(Some).into_iter().chain([None]) {
        bytes.extend(Header::class(class, 0x0000_0003_0000_0001).encode());
    }
    bytes
}

/// Another layout is another feature bit: keep this one as long as it is spoken.
#[test]
fn test_frames_of_classes_change_requires_another_feature() {
    let golden = golden_file("peer-frames-v1-classes.bin");
    assert_eq!(class_frames(), golden);
    let (mut rest, mut classes) = (&golden[..], Vec::new());
    while let Some(frame) = Frame::decode(rest).unwrap() {
        classes.push(match frame.header.kind {
            FrameKind::Get => {
                let get = Get::decode(frame.body.try_into().unwrap(), frame.header.flags);
                Some(get.class)
            }
            _ => frame.header.new_class(),
        });
        rest = &rest[frame.wire_len()..];
    }
    use RequestClass::{Ahead, Demand, Preload};
    let gets = [Demand, Demand, Ahead, Ahead, Preload, Preload].map(Some);
    let changes = [Some(Demand), Some(Ahead), Some(Preload), None];
    assert_eq!(classes, [&gets[..], &changes[..]].concat());
    for flags in [0b110, 0b1000] {
        let mut other = get().encode(1);
        other[5] = flags;
        assert_eq!(Frame::decode(&other), Err(FrameError::Reserved));
    }
}

/// Answers of each kind that tells a load.
fn load_frames() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, body_len, load) in [
        (FrameKind::Pong, 0, ToldLoad { wait_ms: 0, free_rate_log2: 26 }),
        (FrameKind::Held, 2, ToldLoad { wait_ms: 12, free_rate_log2: 0 }),
        (FrameKind::Data, 4096, ToldLoad { wait_ms: u16::MAX, free_rate_log2: 63 }),
        (FrameKind::Compressed, 40, ToldLoad { wait_ms: 0x0102, free_rate_log2: 30 }),
    ] {
        let header = Header::new(kind, body_len, 0x0000_0004_0000_0002);
        bytes.extend(Header { load, ..header }.encode());
        bytes.extend(vec![0x5a; body_len as usize]);
    }
    bytes
}

/// Another layout is another feature bit: keep this one as long as it is spoken.
#[test]
fn test_frames_of_load_change_requires_another_feature() {
    let golden = golden_file("peer-frames-v1-load.bin");
    assert_eq!(load_frames(), golden);
    let (mut rest, mut loads) = (&golden[..], Vec::new());
    while let Some(frame) = Frame::decode(rest).unwrap() {
        assert_eq!((frame.header.flags, frame.header.status), (0, None));
        loads.push((frame.header.load.wait_ms, frame.header.load.free_rate_log2));
        rest = &rest[frame.wire_len()..];
    }
    assert_eq!(loads, [(0, 26), (12, 0), (u16::MAX, 63), (0x0102, 30)]);
    let mut other = Header::new(FrameKind::Pong, 0, 0).encode();
    other[5] = 64;
    assert_eq!(Header::decode(&other), Err(FrameError::Reserved));
}

/// A change of a byte on the wire is a new version of the protocol: add it to `version.rs`, give it a
/// golden file of its own and keep this one as long as version 1 is spoken.
#[test]
fn test_frames_change_of_version_requires_update() {
    assert_eq!(VERSION_MAX, 1);
    assert_eq!(frames(), golden());
}

#[test]
fn test_decode_golden_frames_returns_what_was_encoded() {
    let bytes = golden();
    let mut rest = &bytes[..];
    let mut kinds = Vec::new();
    while let Some(frame) = Frame::decode(rest).unwrap() {
        match frame.header.kind {
            FrameKind::Hello => assert_eq!(Hello::decode(frame.body), Ok(hello())),
            FrameKind::Get => assert_eq!(Get::decode(frame.body.try_into().unwrap(), 0), get()),
            FrameKind::Data => assert_eq!(frame.body, [0xa5; 4096]),
            FrameKind::Status => {
                let code = frame.header.status.unwrap().code();
                assert_eq!(u64::from(code), frame.header.request_id);
            }
            _ => assert!(frame.body.is_empty()),
        }
        kinds.push(frame.header.kind.code());
        rest = &rest[frame.wire_len()..];
    }
    assert!(rest.is_empty());
    assert_eq!(kinds, [1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7]);
}
