//! Parts that the tests of this crate share: a server on a free port, chunk servers, faulty and
//! scripted servers, certificates.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../net/tests/support/certificates.rs"]
pub mod certificates;
pub mod chunks;
pub mod scripted;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, ClientLimits, PeerClient, PeerConfig, PeerError,
    PeerServer, Security, ServerLimits, TlsFault,
};
use acstor_types::{ChunkSize, Digest, DiskId};
use tokio::time::Instant;

/// Longest time that any condition of a test may take: only a hang takes so long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A deadline that no test reaches unless something hangs.
pub fn later() -> Instant {
    Instant::now() + PATIENCE
}

/// Returns the request for the chunk of [`chunks::content`].
pub fn request(index: u64, chunk_size: ChunkSize) -> ChunkRequest {
    ChunkRequest {
        digest: Digest::of(&chunks::content(index, chunk_size)),
        disk_id: DiskId::from_bytes([7; 16]),
        chunk_index: index,
        chunk_size,
        accepts_compressed: false,
    }
}

/// Returns the request for a chunk of the default size.
pub fn get(index: u64) -> ChunkRequest {
    request(index, ChunkSize::DEFAULT)
}

/// A configuration in which nothing is late by itself, however busy the machine: a test that waits for a
/// timeout sets that one.
pub fn config(security: Security) -> PeerConfig {
    let mut config = PeerConfig::new(security);
    let server = &mut config.server;
    server.handshake_timeout = PATIENCE;
    server.idle_timeout = 2 * PATIENCE;
    server.read_timeout = PATIENCE;
    server.write_timeout = PATIENCE;
    let client = &mut config.client;
    client.connect_timeout = PATIENCE;
    client.idle_timeout = 2 * PATIENCE;
    client.probe_after = PATIENCE;
    client.probe_timeout = PATIENCE;
    config
}

/// Returns a configuration without TLS.
pub fn plain(server: ServerLimits, client: ClientLimits) -> PeerConfig {
    PeerConfig { server, client, ..PeerConfig::new(Security::Plain) }
}

/// Starts a server on a free port of the loopback interface.
pub fn serve(chunks: impl ChunkServer, config: &PeerConfig) -> (PeerServer, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = PeerServer::start(listener, Arc::new(chunks), config).unwrap();
    let address = server.local_addr().to_string();
    (server, address)
}

/// Returns a client of `config`.
pub fn client(config: &PeerConfig) -> PeerClient {
    PeerClient::new(config).unwrap()
}

/// Returns what went wrong in TLS, if that is why a fetch failed.
pub fn fault_of(error: &PeerError) -> Option<&TlsFault> {
    match error {
        PeerError::Down { cause, .. } => fault_of(cause),
        PeerError::Tls { fault, .. } => Some(fault),
        _ => None,
    }
}

/// Asks until TLS refuses: a connection that was there before may have to end first.
pub async fn refusal(client: &PeerClient, address: &str) -> TlsFault {
    loop {
        let outcome = client.fetch(address, get(0), ClassWatch::DEMAND, later()).await;
        if let Err(error) = outcome
            && let Some(fault) = fault_of(&error)
        {
            return fault.clone();
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = later();
    while !condition() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        tokio::task::yield_now().await;
    }
}
