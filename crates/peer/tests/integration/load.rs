//! The load that a server tells with its answers.

use std::time::Duration;

use acstor_peer::frame::{FrameKind, Get, Header, Hello, ToldLoad};
use acstor_peer::{
    ClassWatch, CloseReason, FEATURE_LOAD, FEATURES, PeerConfig, PeerServer, Security, frame,
};
use acstor_types::{ChunkSize, Digest};

use crate::support::chunks::{Refusing, TestDisk};
use crate::support::scripted::{Scripted, scripted};
use crate::support::{PATIENCE, client, config, get, later, request, serve, until};

/// A rate of which the logarithm is 26.
const FREE_RATE: u64 = 125_000_000;

/// A server on which one connection at a time writes, for as long as it likes.
fn one_slot() -> PeerConfig {
    let mut config = config(Security::Plain);
    config.server.send_slots_max = 1;
    config.server.send_slot_time = PATIENCE;
    config
}

/// Connects a client that has the only slot, and others that wait for it with so many chunks.
async fn crowd(server: &PeerServer, address: &str, demands: u64) -> [Scripted; 2] {
    let mut stalled = Scripted::connect(address).await;
    stalled.say_hello().await;
    let big = request(1, ChunkSize::new(4 << 20).unwrap());
    stalled.send(&Get::new(&big, 60_000).encode(1)).await;
    until("it has the slot", || server.stats().chunks_sent == 1).await;
    let mut queueing = Scripted::connect(address).await;
    queueing.say_hello().await;
    for id in 0..demands {
        queueing.send(&Get::new(&get(id), 60_000).encode(id)).await;
    }
    until("they wait", || server.stats().egress.queued == [demands, 0, 0]).await;
    [stalled, queueing]
}

#[tokio::test]
async fn test_answers_tell_the_free_rate_and_no_wait_where_nobody_competes() {
    let config = config(Security::Plain);
    let (server, address) = serve(TestDisk, &config);
    let client = client(&config);
    assert_eq!(client.told(&address), None);
    client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap();
    let told = client.told(&address).unwrap();
    assert_eq!((told.wait, told.free_rate), (Duration::ZERO, None));
    server.tell_free_rate(Some(FREE_RATE));
    client.holds(&address, &[Digest::of(b"one")], later()).await.unwrap();
    assert_eq!(client.told(&address).unwrap().free_rate, Some(1 << 26));
    assert_eq!(client.stats().peers[0].told, client.told(&address));
    server.tell_free_rate(None);
    client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(client.told(&address).unwrap().free_rate, None);
}

/// A PING is answered at once, whoever waits: 16 bytes that tell what a chunk would meet.
#[tokio::test]
async fn test_pong_tells_how_long_a_demand_would_wait() {
    let (server, address) = serve(TestDisk, &one_slot());
    // 250 chunks at the rate that is taken for typical before any was sent: 131 ms.
    let _crowd = crowd(&server, &address, 250).await;
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    peer.send(&Header::new(FrameKind::Ping, 0, 7).encode()).await;
    let (pong, _) = peer.read_frame().await.unwrap();
    assert_eq!((pong.kind, pong.request_id), (FrameKind::Pong, 7));
    assert!((100..200).contains(&pong.load.wait_ms), "{pong:?}");
}

/// A client of an older release takes a load for reserved bits.
#[tokio::test]
async fn test_client_without_the_feature_is_told_nothing() {
    let (server, address) = serve(TestDisk, &one_slot());
    server.tell_free_rate(Some(FREE_RATE));
    let _crowd = crowd(&server, &address, 250).await;
    let mut peer = Scripted::connect(&address).await;
    let old = Hello { features: FEATURES & !FEATURE_LOAD, ..Scripted::hello() };
    peer.send(&old.encode()).await;
    peer.read_frame().await.unwrap();
    peer.send(&Header::new(FrameKind::Ping, 0, 7).encode()).await;
    peer.send(&frame::encode_holds(&[Digest::of(b"one")], 8).unwrap()).await;
    for _ in 0..2 {
        assert_eq!(peer.read_frame().await.unwrap().0.load, ToldLoad::default());
    }
}

#[tokio::test]
async fn test_load_of_a_server_without_the_feature_is_malformed() {
    for features in [FEATURES, FEATURES & !FEATURE_LOAD] {
        let address = scripted(move |mut peer: Scripted| async move {
            peer.read_frame().await.unwrap();
            peer.send(&Hello { features, ..Scripted::hello() }.encode()).await;
            let id = peer.read_get().await;
            let load = ToldLoad { wait_ms: 3, free_rate_log2: 4 };
            let header = Header::new(FrameKind::Data, ChunkSize::DEFAULT.as_u32(), id);
            peer.send(&Header { load, ..header }.encode()).await;
            peer.send(&vec![0; ChunkSize::DEFAULT.bytes()]).await;
            peer.read_to_end().await;
        })
        .await;
        let client = client(&config(Security::Plain));
        let fetched = client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await;
        let has_feature = features == FEATURES;
        assert_eq!(fetched.is_ok(), has_feature);
        let told = client.told(&address).map(|told| (told.wait, told.free_rate));
        assert_eq!(told, has_feature.then_some((Duration::from_millis(3), Some(16))));
        let reason = CloseReason::Malformed(frame::FrameError::Reserved);
        assert_eq!(client.stats().closed(reason), u64::from(!has_feature));
    }
}

/// The status of a refusal is its reason, not a time.
#[tokio::test]
async fn test_refusal_tells_no_load() {
    let config = config(Security::Plain);
    let (_server, address) = serve(Refusing(acstor_peer::PeerStatus::NotFound), &config);
    let client = client(&config);
    client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(client.told(&address), None);
}
