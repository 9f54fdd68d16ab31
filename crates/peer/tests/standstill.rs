//! A client or server whose process stands still, and what it says of the other side then.
//!
//! The standstill is real: the only thread of the runtime sleeps. That is no wait for something to
//! happen; however long it takes in truth, more of it proves the same.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::frame::{FrameKind, Header};
use acstor_peer::{ClassWatch, CloseReason, PeerClient, PeerServer, Security};
use acstor_runclock::RunClock;
use acstor_types::ChunkSize;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use support::chunks::{TestDisk, content};
use support::scripted::{Scripted, scripted};
use support::{PATIENCE, config, get, later, until};

/// Time limit for a peer's answer.
const LIMIT: Duration = Duration::from_millis(500);
/// Time for which a process stands still: longer than [`LIMIT`].
const STANDSTILL: Duration = Duration::from_millis(900);

async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

fn stand_still() {
    std::thread::sleep(STANDSTILL);
}

/// Gate that a peer waits at, and signals its arrival to.
#[derive(Clone)]
struct Gate {
    asked: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Gate {
        Gate { asked: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// On the peer's side: tells that it was asked, and waits until it may answer.
    async fn pass(&self) {
        self.asked.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Stands still once the peer was asked. Its answer comes when this process runs again, some turns
    /// after all that was due meanwhile.
    async fn stand_still(&self) {
        self.asked.acquire().await.unwrap().forget();
        stand_still();
        turns(20).await;
        self.open.add_permits(1);
    }
}

#[tokio::test]
async fn test_connect_of_a_client_that_stood_still_is_no_failure() {
    let mut config = config(Security::Plain);
    config.client.connect_timeout = LIMIT;
    let gate = Gate::new();
    let address = scripted({
        let gate = gate.clone();
        move |mut peer| {
            let gate = gate.clone();
            async move {
                peer.read_frame().await.unwrap();
                gate.pass().await;
                peer.send(&Scripted::hello().encode()).await;
                peer.read_to_end().await;
            }
        }
    })
    .await;
    let client = PeerClient::by(&config, RunClock::start(&Handle::current())).unwrap();
    let fetch = tokio::spawn({
        let client = client.clone();
        async move { client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await }
    });
    gate.stand_still().await;
    until("it is connected or not", || {
        let peer = &client.stats().peers[0];
        peer.connects + peer.connect_failures > 0
    })
    .await;
    assert_eq!(client.stats().peers[0].connect_failures, 0);
    fetch.abort();
}

#[tokio::test]
async fn test_fetch_of_a_client_that_stood_still_waits_for_what_was_left() {
    let config = config(Security::Plain);
    let gate = Gate::new();
    let address = scripted({
        let gate = gate.clone();
        move |mut peer| {
            let gate = gate.clone();
            async move {
                peer.greet().await;
                for index in 0..2 {
                    let id = peer.read_get().await;
                    if index == 1 {
                        gate.pass().await;
                    }
                    peer.send(&Header::new(FrameKind::Data, 65_536, id).encode()).await;
                    peer.send(&content(index, ChunkSize::DEFAULT)).await;
                }
                peer.read_to_end().await;
            }
        }
    })
    .await;
    let client = PeerClient::by(&config, RunClock::start(&Handle::current())).unwrap();
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    let deadline = tokio::time::Instant::now() + LIMIT;
    let fetch =
        tokio::spawn(
            async move { client.fetch(&address, get(1), ClassWatch::DEMAND, deadline).await },
        );
    gate.stand_still().await;
    assert_eq!(fetch.await.unwrap().unwrap(), content(1, ChunkSize::DEFAULT));
}

/// A silent peer is found all the same.
#[tokio::test]
async fn test_connect_to_a_silent_peer_fails_by_a_measured_clock_too() {
    let mut config = config(Security::Plain);
    config.client.connect_timeout = Duration::from_millis(50);
    let address = scripted(|mut peer| async move { peer.read_to_end().await }).await;
    let client = PeerClient::by(&config, RunClock::start(&Handle::current())).unwrap();
    let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(error.to_string().contains("no connection within 50 ms"), "{error}");
}

#[tokio::test]
async fn test_handshake_that_a_server_stood_still_in_is_no_timeout() {
    let mut config = config(Security::Plain);
    config.server.handshake_timeout = LIMIT;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let clock = RunClock::start(&Handle::current());
    let server = PeerServer::start_by(listener, Arc::new(TestDisk), &config, clock).unwrap();
    let address = server.local_addr().to_string();
    let mut peer = Scripted::connect(&address).await;
    until("it is accepted", || server.stats().connections_open == 1).await;
    stand_still();
    turns(20).await;
    tokio::time::timeout(PATIENCE, peer.say_hello()).await.unwrap();
    assert_eq!(server.stats().closed(CloseReason::HandshakeTimeout), 0);
}
