//! Limits of the server: refused requests and closed connections.

use std::time::Duration;

use acstor_peer::frame::{FrameError, FrameKind, Get, HEADER_LEN, Header, Hello, encode_holds};
use acstor_peer::{ClassWatch, CloseReason, PeerStatus, Security, ServerLimits, VersionRange};
use acstor_types::{ChunkSize, Digest, ErrorKind};

use crate::support::chunks::{Gated, Panicking, TestDisk, WrongSize};
use crate::support::scripted::Scripted;
use crate::support::{client, config, get, later, plain, request, serve, until};

/// Short enough not to hold up the tests, long enough for the work between.
const SOON: Duration = Duration::from_millis(50);

fn limited(change: impl FnOnce(&mut ServerLimits)) -> acstor_peer::PeerConfig {
    let mut config = config(Security::Plain);
    change(&mut config.server);
    config
}

#[tokio::test]
async fn test_get_beyond_the_requests_of_a_connection_is_overloaded_at_once() {
    let config = limited(|limits| limits.connection_requests_max = 2);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    for id in 1..=3 {
        peer.send(&Get::new(&get(id), 30_000).encode(id)).await;
    }
    let (refusal, _) = peer.read_frame().await.unwrap();
    assert_eq!(refusal, Header::refusal(PeerStatus::Overloaded, 3));
    assert_eq!(server.stats().requests_in_flight, 2);
    gated.gate.add_permits(2);
    for _ in 0..2 {
        assert_eq!(peer.read_frame().await.unwrap().0.kind, FrameKind::Data);
    }
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
    assert_eq!(server.stats().bytes_in_flight, 0);
    assert_eq!(server.stats().refused(PeerStatus::Overloaded), 1);
}

/// A request that looks chunks up without reading them takes a slot among those that read.
#[tokio::test]
async fn test_holds_beyond_the_requests_of_a_connection_is_overloaded_at_once() {
    let config = limited(|limits| limits.connection_requests_max = 1);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    let holds = |id| encode_holds(&[Digest::of(b"one")], id).unwrap();
    peer.send(&Get::new(&get(1), 30_000).encode(1)).await;
    peer.send(&holds(2)).await;
    let (refusal, _) = peer.read_frame().await.unwrap();
    assert_eq!(refusal, Header::refusal(PeerStatus::Overloaded, 2));
    assert_eq!(server.stats().refused(PeerStatus::Overloaded), 1);
    gated.gate.add_permits(1);
    assert_eq!(peer.read_frame().await.unwrap().0.kind, FrameKind::Data);
    until("the permit is back", || server.stats().requests_in_flight == 0).await;
    for id in 3..6 {
        peer.send(&holds(id)).await;
        let (header, _) = peer.read_frame().await.unwrap();
        assert_eq!((header.kind, header.request_id), (FrameKind::Held, id));
    }
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
}

/// Its place is another one's, so nothing counts it: it is answered for a while, and not for ever.
#[tokio::test]
async fn test_connection_that_lost_its_place_is_closed_though_it_is_busy() {
    let config = limited(|limits| {
        limits.connections_max = 1;
        limits.idle_timeout = 4 * SOON;
    });
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let mut first = Scripted::connect(&address).await;
    first.say_hello().await;
    let mut second = Scripted::connect(&address).await;
    second.say_hello().await;
    assert_eq!(first.read_frame().await.unwrap().0.kind, FrameKind::Goodbye);
    first.send(&Get::new(&get(1), 30_000).encode(1)).await;
    until("it is served", || gated.started() == 1).await;
    // Long before the deadline of what it has asked.
    let closed = tokio::time::timeout(Duration::from_secs(15), first.read_to_end());
    closed.await.expect("it is closed");
    until("it is counted", || server.stats().closed(CloseReason::Idle) == 1).await;
    until("its work is dropped", || gated.dropped() == 1).await;
    drop(second);
}

#[tokio::test]
async fn test_get_beyond_the_bytes_of_the_server_is_overloaded_at_once() {
    let config = limited(|limits| limits.bytes_in_flight_max = 8 << 20);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let big = ChunkSize::new(4 << 20).unwrap();
    let mut clients: Vec<_> = (0..3).map(|_| client(&config)).collect();
    let last = clients.pop().unwrap();
    let mut held = tokio::task::JoinSet::new();
    for client in clients {
        let address = address.clone();
        held.spawn(async move {
            client.fetch(&address, request(1, big), ClassWatch::DEMAND, later()).await
        });
    }
    until("two are served", || gated.started() == 2).await;
    let error =
        last.fetch(&address, request(1, big), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(server.stats().bytes_in_flight, 8 << 20);
    gated.gate.add_permits(2);
    for outcome in held.join_all().await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn test_connection_idle_is_told_to_go() {
    let config = limited(|limits| limits.idle_timeout = SOON);
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    assert_eq!(peer.read_frame().await.unwrap().0.kind, FrameKind::Goodbye);
    drop(peer);
    until("it is counted", || server.stats().closed(CloseReason::Idle) == 1).await;
    assert_eq!(server.stats().connections_open, 0);
}

#[tokio::test]
async fn test_connection_idle_client_that_stays_is_closed() {
    let config = limited(|limits| {
        limits.idle_timeout = SOON;
        limits.read_timeout = SOON;
    });
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    peer.read_to_end().await;
    until("it is counted", || server.stats().closed(CloseReason::Idle) == 1).await;
}

#[tokio::test]
async fn test_connection_half_a_frame_is_closed() {
    let config = limited(|limits| limits.read_timeout = SOON);
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    peer.send(&Get::new(&get(1), 30_000).encode(1)[..40]).await;
    peer.read_to_end().await;
    until("it is counted", || server.stats().closed(CloseReason::ReadStalled) == 1).await;
}

/// A peer that asks and does not read holds at most its own budget, and not for ever.
#[tokio::test]
async fn test_connection_peer_that_does_not_read_is_closed() {
    let config = limited(|limits| limits.write_timeout = SOON);
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    let big = request(1, ChunkSize::new(4 << 20).unwrap());
    // All at once, so that the server has more than it grants before it waits for the first answer.
    let asked: Vec<_> = (1..=64).map(|id| Get::new(&big, 30_000).encode(id)).collect();
    peer.send(&asked.concat()).await;
    until("it is closed", || server.stats().closed(CloseReason::WriteStalled) == 1).await;
    let stats = server.stats();
    assert_eq!((stats.requests_in_flight, stats.bytes_in_flight), (0, 0));
    assert!(stats.refused(PeerStatus::Overloaded) > 0, "{stats:?}");
    drop(peer);
}

/// Refusals do not pile up without a bound either: the server stops reading.
#[tokio::test]
async fn test_connection_flood_of_refusals_is_closed() {
    let config = limited(|limits| limits.write_timeout = SOON);
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    let expired = Get::new(&get(1), 0).encode(1).repeat(1000);
    // The socket takes no more once the server has stopped reading and its buffers are full.
    let flood = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while peer.stream.write_all(&expired).await.is_ok() {}
        peer
    });
    until("it is closed", || server.stats().closed(CloseReason::WriteStalled) == 1).await;
    drop(flood.await.unwrap());
}

#[tokio::test]
async fn test_connection_without_hello_is_closed() {
    let config = limited(|limits| limits.handshake_timeout = SOON);
    let (server, address) = serve(TestDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.read_to_end().await;
    until("it is counted", || server.stats().closed(CloseReason::HandshakeTimeout) == 1).await;
}

/// Every frame that breaks the protocol ends the connection, under its own reason.
#[tokio::test]
async fn test_connection_malformed_frame_is_closed() {
    let (server, address) = serve(TestDisk, &config(Security::Plain));
    let mut reserved = Header::new(FrameKind::Ping, 0, 1).encode();
    reserved[5] = 1;
    let huge = Header::new(FrameKind::Unknown(99), u32::MAX, 1).encode();
    let answer = Header::new(FrameKind::Pong, 0, 1).encode();
    let again = Scripted::hello().encode();
    let cases = [
        (FrameError::Reserved, &reserved[..]),
        (FrameError::Length, &huge),
        (FrameError::Length, b"GET / HTTP/1.1\r\n\r\n"),
        (FrameError::Kind, &answer),
        (FrameError::Kind, &again),
    ];
    for (error, bytes) in cases {
        let reason = CloseReason::Malformed(error);
        let before = server.stats().closed(reason);
        let mut peer = Scripted::connect(&address).await;
        peer.say_hello().await;
        peer.send(bytes).await;
        peer.read_to_end().await;
        until("it is counted", || server.stats().closed(reason) == before + 1).await;
    }
    assert_eq!(server.stats().chunks_sent, 0);
}

#[tokio::test]
async fn test_connection_other_protocol_is_closed() {
    let (server, address) = serve(TestDisk, &config(Security::Plain));
    let mut hello = Scripted::hello().encode();
    hello[HEADER_LEN] = b'X';
    let mut peer = Scripted::connect(&address).await;
    peer.send(&hello).await;
    peer.read_to_end().await;
    let reason = CloseReason::Malformed(FrameError::Magic);
    until("it is counted", || server.stats().closed(reason) == 1).await;
}

/// A client of the future learns what this server speaks, and that it is not served.
#[tokio::test]
async fn test_connection_newer_client_gets_unsupported() {
    let (server, address) = serve(TestDisk, &config(Security::Plain));
    let mut peer = Scripted::connect(&address).await;
    let newer = Hello { versions: VersionRange { min: 900, max: 901 }, ..Scripted::hello() };
    peer.send(&newer.encode()).await;
    let (_, body) = peer.read_frame().await.unwrap();
    assert_eq!(Hello::decode(&body).unwrap().versions, VersionRange::OURS);
    let (refusal, _) = peer.read_frame().await.unwrap();
    assert_eq!(refusal.status, Some(PeerStatus::Unsupported));
    assert!(peer.read_frame().await.is_none());
    until("it is counted", || server.stats().closed(CloseReason::VersionMismatch) == 1).await;
}

/// Requests that this build does not know or cannot mean are answered; the connection lives.
#[tokio::test]
async fn test_request_strange_is_refused_alone() {
    let (_server, address) = serve(TestDisk, &config(Security::Plain));
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    let mut unknown = Header::new(FrameKind::Unknown(77), 100, 5).encode().to_vec();
    unknown.extend_from_slice(&[0xee; 100]);
    peer.send(&unknown).await;
    let odd_size = Get { chunk_size: 65_535, ..Get::new(&get(0), 1000) };
    peer.send(&odd_size.encode(6)).await;
    peer.send(&Get::new(&get(0), 0).encode(7)).await;
    peer.send(&Header::new(FrameKind::Ping, 0, 8).encode()).await;
    for expected in [
        Header::refusal(PeerStatus::Unsupported, 5),
        Header::refusal(PeerStatus::Invalid, 6),
        Header::refusal(PeerStatus::Expired, 7),
        Header::new(FrameKind::Pong, 0, 8),
    ] {
        assert_eq!(peer.read_frame().await.unwrap().0, expected);
    }
}

#[tokio::test]
async fn test_get_deadline_passes_at_the_server_is_expired() {
    let (server, address) = serve(Gated::new(TestDisk), &config(Security::Plain));
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    peer.send(&Get::new(&get(1), 20).encode(1)).await;
    let (refusal, _) = peer.read_frame().await.unwrap();
    assert_eq!(refusal, Header::refusal(PeerStatus::Expired, 1));
    assert_eq!(server.stats().requests_in_flight, 0);
}

#[tokio::test]
async fn test_get_requester_gone_drops_the_work() {
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config(Security::Plain));
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    for id in 1..=5 {
        peer.send(&Get::new(&get(id), 30_000).encode(id)).await;
    }
    until("all are served", || gated.started() == 5).await;
    drop(peer);
    until("all are dropped", || gated.dropped() == 5).await;
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
    until("it is counted", || server.stats().closed(CloseReason::PeerClosed) == 1).await;
}

#[tokio::test]
async fn test_get_chunk_server_panics_is_internal() {
    let config = config(Security::Plain);
    let (server, address) = serve(Panicking(TestDisk), &config);
    let client = client(&config);
    let error = client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    client.fetch(&address, get(2), ClassWatch::DEMAND, later()).await.unwrap();
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
}

#[tokio::test]
async fn test_get_chunk_server_answers_another_size_is_internal() {
    let config = plain(ServerLimits::default(), acstor_peer::ClientLimits::default());
    let (_server, address) = serve(WrongSize(TestDisk), &config);
    let error =
        client(&config).fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}
