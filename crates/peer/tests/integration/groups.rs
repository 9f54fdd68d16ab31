//! Messages of multicast preloads.

use std::net::{IpAddr, Ipv4Addr};

use acstor_peer::frame::{FrameKind, GROUP_BODY_LEN, Header, Hello};
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, CloseReason, PeerError, PeerStatus, Security,
    ServeFuture,
};
use tokio::time::Instant;

use crate::support::chunks::TestDisk;
use crate::support::scripted::{Scripted, scripted};
use crate::support::{client, config, later, serve};

/// Answers a message with its bytes in reverse; refuses those that begin with 0.
struct Reversing;

impl ChunkServer for Reversing {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        TestDisk.serve(request, class, deadline)
    }

    fn group(
        &self,
        host: IpAddr,
        message: &[u8; GROUP_BODY_LEN],
    ) -> Result<[u8; GROUP_BODY_LEN], PeerStatus> {
        assert_eq!(host, Ipv4Addr::LOCALHOST);
        let mut answer = *message;
        answer.reverse();
        if message[0] == 0 { Err(PeerStatus::NotFound) } else { Ok(answer) }
    }
}

fn message(first: u8) -> [u8; GROUP_BODY_LEN] {
    std::array::from_fn(|place| if place == 0 { first } else { place as u8 })
}

#[tokio::test]
async fn test_group_is_answered_or_refused() {
    let config = config(Security::Plain);
    let (_server, address) = serve(Reversing, &config);
    let client = client(&config);
    let answer = client.group(&address, &message(9), later()).await.unwrap();
    assert_eq!((answer[0], answer[GROUP_BODY_LEN - 1]), (71, 9));
    let error = client.group(&address, &message(0), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::NotFound, .. }), "{error}");
}

#[tokio::test]
async fn test_group_server_without_multicast_refuses() {
    let config = config(Security::Plain);
    let (_server, address) = serve(TestDisk, &config);
    let error = client(&config).group(&address, &message(1), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");
}

/// A server of an older release never sees the message.
#[tokio::test]
async fn test_group_older_server_is_not_asked() {
    let address = scripted(|mut peer| async move {
        peer.read_frame().await.unwrap();
        peer.send(&Hello { features: 15, ..Scripted::hello() }.encode()).await;
        assert!(peer.read_frame().await.is_none(), "nothing comes");
    })
    .await;
    let client = client(&config(Security::Plain));
    let error = client.group(&address, &message(1), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");
}

#[tokio::test]
async fn test_grouped_that_is_no_answer_ends_the_connection() {
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        let (header, body) = peer.read_frame().await.unwrap();
        assert_eq!((header.kind, body.len()), (FrameKind::Group, GROUP_BODY_LEN));
        let held = Header::new(FrameKind::Held, 1, header.request_id).encode();
        peer.send(&[&held[..], &[0xff]].concat()).await;
        peer.read_to_end().await;
    })
    .await;
    let client = client(&config(Security::Plain));
    let error = client.group(&address, &message(1), later()).await.unwrap_err();
    let is_expected =
        matches!(error, PeerError::Disconnected { reason: CloseReason::UnexpectedAnswer, .. });
    assert!(is_expected, "{error}");
}
