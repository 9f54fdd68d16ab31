//! The peer protocol, from a server that has the chunk in memory.

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_peer::{
    ChunkRequest, ChunkServer, PeerClient, PeerConfig, PeerServer, Security, ServeFuture,
};
use acstor_types::{ChunkSize, Digest, DiskId, limits::CHUNK_SIZE_MAX};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::certificates;
use crate::measurement::{Measured, Schedule, cpu_seconds};
use crate::options::{Mode, Options};

/// Longest wait for one chunk.
const DEADLINE: Duration = Duration::from_secs(10);

/// Answers every request from one buffer.
struct OneBuffer(Bytes);

impl ChunkServer for OneBuffer {
    fn serve(&self, request: ChunkRequest, _deadline: tokio::time::Instant) -> ServeFuture {
        let chunk = self.0.slice(..request.chunk_size.bytes());
        Box::pin(std::future::ready(Ok(chunk)))
    }
}

fn config(options: &Options) -> PeerConfig {
    let security = match options.mode {
        Mode::Tls => Security::Tls(certificates::config(&options.certificates)),
        Mode::Plain | Mode::Bare => Security::Plain,
    };
    let mut config = PeerConfig::new(security);
    config.client.connections_per_peer_max = options.connections;
    config.client.requests_in_flight_max = options.connections * options.depth;
    config
}

/// Starts a server.
pub fn serve(listener: TcpListener, options: &Options) -> Result<PeerServer, Box<dyn Error>> {
    let chunks = OneBuffer(Bytes::from(vec![0x5a; CHUNK_SIZE_MAX as usize]));
    Ok(PeerServer::start(listener, Arc::new(chunks), &config(options))?)
}

/// Measures one client with a pool of `connections` and `depth` fetches for each of them.
pub async fn measure(options: &Options) -> Result<Measured, Box<dyn Error>> {
    let client = PeerClient::new(&config(options))?;
    let request = ChunkRequest {
        digest: Digest::of(b"peer_bench"),
        disk_id: DiskId::from_bytes([0; 16]),
        chunk_index: 0,
        chunk_size: ChunkSize::new(options.chunk_size).ok_or("no such chunk size")?,
    };
    let schedule = Schedule::starting_now(options);
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections * options.depth {
        tasks.spawn(ask(client.clone(), options.address.clone(), request, schedule));
    }
    let mut latencies = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        latencies.extend(finished??);
    }
    let wall = began.elapsed() - options.duration / 10;
    let cpu = cpu_seconds()? - cpu;
    let connections = client.stats().peers.iter().map(|peer| peer.connections).sum();
    Ok(Measured::new(latencies, wall, cpu, connections))
}

async fn ask(
    client: PeerClient,
    address: String,
    request: ChunkRequest,
    schedule: Schedule,
) -> Result<Vec<Duration>, acstor_peer::PeerError> {
    let mut latencies = Vec::new();
    loop {
        let began = Instant::now();
        if began >= schedule.end {
            return Ok(latencies);
        }
        client.fetch(&address, request, tokio::time::Instant::now() + DEADLINE).await?;
        if schedule.counts(began) {
            latencies.push(began.elapsed());
        }
    }
}
