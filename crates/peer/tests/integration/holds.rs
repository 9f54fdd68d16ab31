//! Asking which chunks a host keeps.

use crate::support;

use acstor_peer::frame::{
    FrameKind, HOLDS_MAX, Header, Hello, decode_holds, encode_held, held_len,
};
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, CloseReason, PeerError, PeerStatus, Security,
    ServeFuture,
};
use acstor_types::{ChunkSize, Digest};
use tokio::time::Instant;

use crate::support::chunks::{TestDisk, content};
use crate::support::scripted::{Scripted, scripted};
use crate::support::{client, config, get, later, serve};

/// Keeps the chunks whose digest begins with an even byte.
struct EvenOnes;

impl ChunkServer for EvenOnes {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        TestDisk.serve(request, class, deadline)
    }

    fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        digests.iter().map(|digest| digest.as_bytes()[0] % 2 == 0).collect()
    }
}

fn digests(count: usize) -> Vec<Digest> {
    (0..count).map(|number| Digest::of(&number.to_le_bytes())).collect()
}

#[tokio::test]
async fn test_holds_answers_each_digest_in_its_place_among_fetches() {
    let config = config(Security::Plain);
    let (_server, address) = serve(EvenOnes, &config);
    let client = client(&config);
    for count in [1, 7, 8, 9, 64, HOLDS_MAX] {
        let asked = digests(count);
        let (held, chunk) = tokio::join!(
            client.holds(&address, &asked, later()),
            client.fetch(&address, get(count as u64), ClassWatch::DEMAND, later())
        );
        assert_eq!(held.unwrap(), EvenOnes.holds(&asked));
        assert_eq!(chunk.unwrap(), content(count as u64, ChunkSize::DEFAULT));
    }
    for count in [0, HOLDS_MAX + 1] {
        let error = client.holds(&address, &digests(count), later()).await.unwrap_err();
        assert!(matches!(error, PeerError::Refused { status: PeerStatus::Invalid, .. }));
    }
}

#[tokio::test]
async fn test_holds_server_that_keeps_nothing_in_mind_says_no() {
    let config = config(Security::Plain);
    let (_server, address) = serve(TestDisk, &config);
    let held = client(&config).holds(&address, &digests(20), later()).await.unwrap();
    assert_eq!(held, [false; 20]);
}

/// A server of the first release never sees the request.
#[tokio::test]
async fn test_holds_older_server_is_not_asked() {
    let address = scripted(|mut peer| async move {
        peer.read_frame().await.unwrap();
        peer.send(&Hello { features: 0, ..Scripted::hello() }.encode()).await;
        assert!(peer.read_frame().await.is_none(), "nothing comes");
    })
    .await;
    let client = client(&config(Security::Plain));
    let error = client.holds(&address, &digests(3), later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Refused { status: PeerStatus::Unsupported, .. }), "{error}");
}

#[tokio::test]
async fn test_held_that_is_no_answer_ends_the_connection() {
    // Too short; a chunk in its place.
    let wrong: [fn(u64) -> Vec<u8>; 2] = [
        |id| [&Header::new(FrameKind::Held, 1, id).encode()[..], &[0xff]].concat(),
        |id| [&Header::new(FrameKind::Data, 4096, id).encode()[..], &[0; 4096]].concat(),
    ];
    for answer in wrong {
        let address = scripted(move |mut peer| async move {
            peer.greet().await;
            let (header, body) = peer.read_frame().await.unwrap();
            assert_eq!((header.kind, decode_holds(&body)), (FrameKind::Holds, digests(20)));
            assert_ne!(held_len(20), 1);
            peer.send(&answer(header.request_id)).await;
            peer.read_to_end().await;
        })
        .await;
        let client = client(&config(Security::Plain));
        let error = client.holds(&address, &digests(20), later()).await.unwrap_err();
        let is_expected =
            matches!(error, PeerError::Disconnected { reason: CloseReason::UnexpectedAnswer, .. });
        assert!(is_expected, "{error}");
    }
}

#[tokio::test]
async fn test_holds_of_an_impossible_length_ends_the_connection() {
    let config = config(Security::Plain);
    let (server, address) = serve(EvenOnes, &config);
    for len in [0, 31, 33, (HOLDS_MAX as u32 + 1) * 32] {
        let mut peer = Scripted::connect(&address).await;
        peer.say_hello().await;
        peer.send(&Header::new(FrameKind::Holds, len, 5).encode()).await;
        peer.read_to_end().await;
    }
    support::until("all are closed", || server.stats().connections_open == 0).await;
    assert_eq!(encode_held(&[true; 9]), [0xff, 1]);
}
