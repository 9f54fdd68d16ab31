//! The exchange of hints over the wire: its bytes, its bounds, and those who do not know it.

use std::path::PathBuf;
use std::sync::Arc;

use acstor_peer::exchange::{
    HINT_ENTRY_LEN, HINT_PREFIX_LEN, HintRole, Hints, JOINED_BODY_LEN_MAX, JOINED_PREFIX_LEN, Join,
    JoinRole, Joined, encode_hinted,
};
use acstor_peer::frame::{Frame, FrameError, FrameKind, Header, Hello};
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, CloseReason, FEATURE_HINTS, FEATURES, PeerError,
    PeerStatus, Security, ServeFuture,
};
use acstor_selection::exchange::bounds::FRAME_HINTS_MAX;
use acstor_selection::exchange::{Hint, HostKey};
use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::chunks::TestDisk;
use crate::support::scripted::{Scripted, scripted};
use crate::support::{client, config, later, serve};

const DISK: DiskId =
    DiskId::from_bytes(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
const EPOCH: u64 = 0x1122_3344_5566_7788;
const A: HostKey = HostKey(0x0a0b_0c0d_0e0f_1011);
const B: HostKey = HostKey(0x2021_2223_2425_2627);
const REQUEST: u64 = 0x0000_0005_0000_0004;

fn hint(chunk: u32, holder: HostKey) -> Hint {
    Hint { chunk, holder }
}

fn join(role: JoinRole) -> Join {
    match role {
        JoinRole::Rendezvous => Join { disk_id: DISK, epoch: 0, host: A, from: 0, role },
        JoinRole::Member => Join { disk_id: DISK, epoch: EPOCH, host: A, from: 7, role },
    }
}

fn joined() -> Joined {
    let hints = vec![hint(0x0102_0304, HostKey(0x3031_3233_3435_3637)), hint(5, B)];
    Joined { epoch: EPOCH, parent: Some(B), first: 7, total: 9, hints }
}

fn hints(role: HintRole) -> Hints {
    match role {
        HintRole::Misses => {
            let hints = vec![hint(6, A)];
            Hints { disk_id: DISK, epoch: EPOCH, sender: A, first: 0, role, hints }
        }
        HintRole::Order => {
            let hints = vec![hint(8, A), hint(u32::MAX, B)];
            Hints { disk_id: DISK, epoch: EPOCH, sender: B, first: 9, role, hints }
        }
    }
}

/// Another layout is another feature bit: keep this one as long as it is spoken.
#[test]
fn test_frames_of_hints_change_requires_another_feature() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let golden = std::fs::read(folder.join("peer-frames-v1-hints.bin")).unwrap();
    let body = joined().encode_body();
    let header = Header::new(FrameKind::Joined, body.len() as u32, REQUEST).encode();
    let hinted = Header::new(FrameKind::Hinted, 4, REQUEST).encode();
    let frames = [
        join(JoinRole::Rendezvous).encode(REQUEST),
        join(JoinRole::Member).encode(REQUEST),
        [&header[..], &body].concat(),
        hints(HintRole::Misses).encode(REQUEST).unwrap(),
        hints(HintRole::Order).encode(REQUEST).unwrap(),
        [&hinted[..], &encode_hinted(11)].concat(),
    ];
    assert_eq!(frames.concat(), golden);
    let mut rest = &golden[..];
    let mut kinds = Vec::new();
    while let Some(Frame { header, body }) = Frame::decode(rest).unwrap() {
        match (header.kind, header.flags) {
            (FrameKind::Join, flags) => {
                let role = [JoinRole::Rendezvous, JoinRole::Member][usize::from(flags)];
                assert_eq!(Join::decode(body, flags), Ok(join(role)));
            }
            (FrameKind::Hint, flags) => {
                let role = [HintRole::Misses, HintRole::Order][usize::from(flags)];
                assert_eq!(Hints::decode(body, flags), Ok(hints(role)));
            }
            (FrameKind::Joined, _) => assert_eq!(Joined::decode(body), Some(joined())),
            _ => assert_eq!(body, encode_hinted(11)),
        }
        kinds.push(header.kind.code());
        rest = &rest[header.encode().len() + body.len()..];
    }
    assert_eq!(kinds, [12, 12, 13, 14, 14, 15]);
}

#[test]
fn test_lengths_are_checked_before_anything_is_reserved() {
    let most = FRAME_HINTS_MAX * HINT_ENTRY_LEN;
    for (kind, len, is_right) in [
        (FrameKind::Join, 39, false),
        (FrameKind::Join, 40, true),
        (FrameKind::Joined, JOINED_PREFIX_LEN, true),
        (FrameKind::Joined, JOINED_BODY_LEN_MAX, true),
        (FrameKind::Joined, JOINED_BODY_LEN_MAX + HINT_ENTRY_LEN, false),
        (FrameKind::Hint, HINT_PREFIX_LEN, false),
        (FrameKind::Hint, HINT_PREFIX_LEN + 13, false),
        (FrameKind::Hint, HINT_PREFIX_LEN + most, true),
        (FrameKind::Hint, HINT_PREFIX_LEN + most + HINT_ENTRY_LEN, false),
        (FrameKind::Hinted, 3, false),
    ] {
        let decoded = Header::decode(&Header::new(kind, len as u32, 1).encode());
        assert_eq!(decoded.is_ok(), is_right, "{kind:?} {len}");
    }
    let mut reserved = Header::new(FrameKind::Join, 40, 1).encode();
    reserved[5] = 2;
    assert_eq!(Header::decode(&reserved), Err(FrameError::Reserved));
    let frame = Join { host: HostKey(0), ..join(JoinRole::Member) }.encode(1);
    assert_eq!(Join::decode(&frame[16..], 1), Err(PeerStatus::Invalid), "nobody");
    let many = vec![hint(1, A); FRAME_HINTS_MAX + 1];
    assert_eq!(Hints { hints: many, ..hints(HintRole::Order) }.encode(1), None);
}

/// Takes part in the exchange of one image.
#[derive(Default)]
struct Member(Arc<Mutex<Vec<Hints>>>);

impl ChunkServer for Member {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        TestDisk.serve(request, class, deadline)
    }

    fn join(&self, join: &Join) -> Result<Joined, PeerStatus> {
        if join.disk_id != DISK {
            return Err(PeerStatus::NotFound);
        }
        let parent = Some(B).filter(|_| join.role == JoinRole::Rendezvous);
        let hints = (join.from..256).map(|chunk| hint(chunk, join.host)).collect();
        Ok(Joined { epoch: join.epoch + 1, parent, first: join.from, total: 256, hints })
    }

    fn hint(&self, hints: &Hints) -> Result<u32, PeerStatus> {
        self.0.lock().push(hints.clone());
        Ok(hints.first + hints.hints.len() as u32)
    }
}

#[tokio::test]
async fn test_hints_and_joins_come_through_whole() {
    let config = config(Security::Plain);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (_server, address) = serve(Member(told.clone()), &config);
    let client = client(&config);
    for (role, from) in [(JoinRole::Rendezvous, 0), (JoinRole::Member, 256)] {
        let asked = Join { from, ..join(role) };
        let answer = client.join(&address, asked, later()).await.unwrap();
        assert_eq!(answer, Member::default().join(&asked).unwrap());
    }
    let strange = Join { disk_id: DiskId::from_bytes([1; 16]), ..join(JoinRole::Member) };
    let error = client.join(&address, strange, later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::NotFound, .. }), "{error}");
    let sent = hints(HintRole::Order);
    assert_eq!(client.hint(&address, sent.clone(), later()).await.unwrap(), 11);
    assert_eq!(told.lock()[..], *std::slice::from_ref(&sent));
    let none = Hints { hints: Vec::new(), ..sent };
    let error = client.hint(&address, none, later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Invalid, .. }), "{error}");
}

#[tokio::test]
async fn test_server_that_takes_no_part_says_so() {
    let config = config(Security::Plain);
    let (_server, address) = serve(TestDisk, &config);
    let client = client(&config);
    let error = client.join(&address, join(JoinRole::Rendezvous), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");
    let error = client.hint(&address, hints(HintRole::Misses), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");
}

/// A peer of the release before never sees the request, and is refused where it sends one.
#[tokio::test]
async fn test_older_peers_do_without() {
    let features = FEATURES & !FEATURE_HINTS;
    let address = scripted(move |mut peer| async move {
        peer.read_frame().await.unwrap();
        peer.send(&Hello { features, ..Scripted::hello() }.encode()).await;
        assert!(peer.read_frame().await.is_none(), "nothing comes");
    })
    .await;
    let config = config(Security::Plain);
    let error =
        client(&config).join(&address, join(JoinRole::Rendezvous), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");

    let (_server, address) = serve(Member::default(), &config);
    let mut peer = Scripted::connect(&address).await;
    peer.send(&Hello { features, ..Scripted::hello() }.encode()).await;
    peer.read_frame().await.unwrap();
    peer.send(&join(JoinRole::Member).encode(5)).await;
    let (header, _) = peer.read_frame().await.unwrap();
    assert_eq!((header.status, header.request_id), (Some(PeerStatus::Unsupported), 5));
}

#[tokio::test]
async fn test_joined_that_nobody_asked_for_ends_the_connection() {
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        let (header, _) = peer.read_frame().await.unwrap();
        let answer = Header::new(FrameKind::Hinted, 4, header.request_id).encode();
        peer.send(&[&answer[..], &encode_hinted(1)].concat()).await;
        peer.read_to_end().await;
    })
    .await;
    let client = client(&config(Security::Plain));
    let error = client.join(&address, join(JoinRole::Member), later()).await.unwrap_err();
    let is_expected =
        matches!(error, PeerError::Disconnected { reason: CloseReason::UnexpectedAnswer, .. });
    assert!(is_expected, "{error}");
}
