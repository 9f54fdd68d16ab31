//! Fetches that go well, over plain TCP and TLS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support;

use acstor_peer::{ClassWatch, PeerConfig, PeerError, PeerStatus, Security};
use acstor_selection::BreakerState;
use acstor_types::{ChunkSize, ErrorKind};

use crate::support::certificates::Authority;
use crate::support::chunks::{Gated, Refusing, TestDisk, content};
use crate::support::{client, config, get, later, request, serve};

/// Every chunk that is asked for comes back whole, whatever else is in flight.
async fn fetch_many(config: &PeerConfig) {
    let (server, address) = serve(TestDisk, config);
    let client = client(config);
    let mut fetches = tokio::task::JoinSet::new();
    for index in 0..500 {
        let (client, address) = (client.clone(), address.clone());
        let size = 4096 << (index % 5 * 2);
        let chunk_size = ChunkSize::new(size).unwrap();
        fetches.spawn(async move {
            let chunk = client
                .fetch(&address, request(index, chunk_size), ClassWatch::DEMAND, later())
                .await
                .unwrap();
            assert!(chunk == content(index, chunk_size), "chunk {index}");
            chunk.len() as u64
        });
    }
    let bytes: u64 = fetches.join_all().await.into_iter().sum();
    let peer = &client.stats().peers[0];
    assert_eq!((peer.chunks, peer.bytes), (500, bytes));
    assert_eq!(peer.breaker, BreakerState::Closed);
    assert!(client.latency_p99(&address).is_some());
    let stats = server.stats();
    assert_eq!((stats.chunks_sent, stats.bytes_sent), (500, bytes));
    support::until("the permits are back", || server.stats().requests_in_flight == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_fetch_plain_returns_the_chunks() {
    fetch_many(&config(Security::Plain)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_fetch_tls_returns_the_chunks() {
    let authority = Authority::new();
    fetch_many(&config(Security::Tls(authority.loopback()))).await;
}

/// A slow answer holds up none of those asked for later.
#[tokio::test]
async fn test_fetch_answers_come_in_any_order() {
    let mut config = config(Security::Plain);
    config.client.connections_per_peer_max = 1;
    let gated = Gated::new(TestDisk);
    let (_server, address) = serve(OddOnesWait(gated.clone()), &config);
    let client = client(&config);
    let slow = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await }
    });
    support::until("the slow one is served", || gated.started() == 1).await;
    for index in [0, 2, 4] {
        client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await.unwrap();
    }
    assert!(!slow.is_finished());
    gated.gate.add_permits(1);
    assert_eq!(slow.await.unwrap().unwrap(), content(1, ChunkSize::DEFAULT));
}

struct OddOnesWait(Gated<TestDisk>);

impl acstor_peer::ChunkServer for OddOnesWait {
    fn serve(
        &self,
        request: acstor_peer::ChunkRequest,
        class: ClassWatch,
        deadline: tokio::time::Instant,
    ) -> acstor_peer::ServeFuture {
        match request.chunk_index % 2 {
            0 => TestDisk.serve(request, class, deadline),
            _ => self.0.serve(request, class, deadline),
        }
    }
}

/// Every status arrives as it was given, with the kind that it stands for.
#[tokio::test]
async fn test_fetch_refusal_arrives_as_given() {
    for status in PeerStatus::ALL {
        let config = config(Security::Plain);
        let (server, address) = serve(Refusing(status), &config);
        let error =
            client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
        assert!(matches!(error, PeerError::Refused { status: got, .. } if got == status));
        assert_eq!(error.kind(), status.kind());
        assert_eq!(server.stats().refused(status), 1);
    }
}

/// A digest that the peer does not have is no error of the connection.
#[tokio::test]
async fn test_fetch_unknown_digest_is_not_found() {
    let config = config(Security::Plain);
    let (_server, address) = serve(TestDisk, &config);
    let client = client(&config);
    let mut unknown = get(3);
    unknown.chunk_index = 4;
    let error = client.fetch(&address, unknown, ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    client.fetch(&address, get(3), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(client.stats().peers[0].connects, 1);
}

/// A text that is no address of a peer is refused before anything is tried.
#[tokio::test]
async fn test_fetch_bad_address_is_named() {
    let client = client(&config(Security::Plain));
    let error = client.fetch("host-a", get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("'host-a'"), "{error}");
}
