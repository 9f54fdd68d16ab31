//! The server stops without an error for its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use acstor_peer::{ClassWatch, CloseReason, PeerServer, Security};
use acstor_types::ChunkSize;

use crate::support::chunks::{Gated, TestDisk, content};
use crate::support::{PATIENCE, client, config, get, later, serve, until};

#[tokio::test]
async fn test_drain_answers_what_was_asked() {
    let config = config(Security::Plain);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let fetch = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await }
    });
    until("it is served", || gated.started() == 1).await;
    let drain = tokio::spawn(server.drain(PATIENCE));
    until("the client heard of it", || client.stats().peers[0].connections == 0).await;
    assert!(!fetch.is_finished());
    gated.gate.add_permits(1);
    assert_eq!(fetch.await.unwrap().unwrap(), content(1, ChunkSize::DEFAULT));
    assert!(drain.await.unwrap(), "every client was gone in time");
    until("it is counted", || client.stats().closed(CloseReason::Drained) == 1).await;
}

#[tokio::test]
async fn test_drain_beyond_its_time_closes_hard() {
    let config = config(Security::Plain);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let fetch = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await }
    });
    until("it is served", || gated.started() == 1).await;
    assert!(!server.drain(std::time::Duration::from_millis(20)).await);
    fetch.await.unwrap().unwrap_err();
    until("the work is dropped", || gated.dropped() == 1).await;
}

/// Servers take over the listening socket from one another, as over an upgrade; a client that fetches
/// all the while sees no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_drain_successor_on_the_same_socket_serves_on() {
    let config = config(Security::Plain);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = || {
        let socket = listener.try_clone().unwrap();
        PeerServer::start(socket, Arc::new(TestDisk), &config).unwrap()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut server = start();
    let client = client(&config);
    let mut readers = tokio::task::JoinSet::new();
    for first in 0..8 {
        let (client, address, stop) = (client.clone(), address.clone(), Arc::clone(&stop));
        readers.spawn(async move {
            let mut index = first;
            while !stop.load(Ordering::Relaxed) {
                let chunk =
                    client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await.unwrap();
                assert_eq!(chunk, content(index, ChunkSize::DEFAULT));
                index += 8;
            }
            (index - first) / 8
        });
    }
    for _ in 0..10 {
        let chunks = server.stats().chunks_sent;
        until("it serves", || server.stats().chunks_sent > chunks + 50).await;
        assert!(server.drain(PATIENCE).await);
        server = start();
    }
    stop.store(true, Ordering::Relaxed);
    let read: u64 = readers.join_all().await.into_iter().sum();
    assert!(read > 500);
}
