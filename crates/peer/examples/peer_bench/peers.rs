//! The peer protocol, from a server that has the chunk in memory.

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, PeerClient, PeerConfig, PeerServer, Security,
    ServeFuture,
};
use acstor_types::{ChunkSize, Digest, DiskId, limits::CHUNK_SIZE_MAX};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::certificates;
use crate::measurement::{Measured, Schedule, cpu_seconds};
use crate::options::{Mode, Options};

/// Longest wait for one chunk.
const DEADLINE: Duration = Duration::from_secs(10);

/// Pause between a fetch that failed, where failures are counted, and the next: a peer that is down
/// refuses at once.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Answers every request from one buffer.
struct OneBuffer {
    content: Bytes,
    /// True if the content is a row of chunks; else each request gets its beginning.
    is_row: bool,
}

impl OneBuffer {
    fn new(options: &Options) -> Result<OneBuffer, Box<dyn Error>> {
        let Some(path) = &options.content else {
            let content = Bytes::from(vec![0x5a; CHUNK_SIZE_MAX as usize]);
            return Ok(OneBuffer { content, is_row: false });
        };
        let content = Bytes::from(std::fs::read(path)?);
        if content.len() < CHUNK_SIZE_MAX as usize {
            return Err(format!("{}: less than {CHUNK_SIZE_MAX} bytes", path.display()).into());
        }
        Ok(OneBuffer { content, is_row: true })
    }
}

impl ChunkServer for OneBuffer {
    fn serve(
        &self,
        request: ChunkRequest,
        _class: ClassWatch,
        _deadline: tokio::time::Instant,
    ) -> ServeFuture {
        let size = request.chunk_size.bytes();
        let chunks = if self.is_row { self.content.len() / size } else { 1 };
        let start = (request.chunk_index % chunks as u64) as usize * size;
        Box::pin(std::future::ready(Ok(self.content.slice(start..start + size))))
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
    let chunks = OneBuffer::new(options)?;
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
        accepts_compressed: options.is_compressed_welcome,
    };
    let next = Arc::new(AtomicU64::new(0));
    let errors = options.are_errors_counted.then(|| Arc::new(AtomicU64::new(0)));
    let schedule = Schedule::starting_now(options);
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections * options.depth {
        tasks.spawn(ask(
            client.clone(),
            options.address.clone(),
            request,
            Arc::clone(&next),
            errors.clone(),
            schedule,
        ));
    }
    let mut latencies = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        latencies.extend(finished??);
    }
    let wall = began.elapsed() - options.duration / 10;
    let cpu = cpu_seconds()? - cpu;
    let stats = client.stats();
    let connections = stats.peers.iter().map(|peer| peer.connections).sum();
    let fetched: u64 = stats.peers.iter().map(|peer| peer.bytes).sum();
    let saved_share = stats.bytes_saved as f64 / fetched.max(1) as f64;
    let errors = errors.map_or(0, |errors| errors.load(Ordering::Relaxed));
    let measured = Measured::new(latencies, wall, cpu, connections);
    Ok(measured.with_saved_share(saved_share).with_errors(errors))
}

async fn ask(
    client: PeerClient,
    address: String,
    mut request: ChunkRequest,
    next: Arc<AtomicU64>,
    errors: Option<Arc<AtomicU64>>,
    schedule: Schedule,
) -> Result<Vec<Duration>, acstor_peer::PeerError> {
    let mut latencies = Vec::new();
    loop {
        let began = Instant::now();
        if began >= schedule.end {
            return Ok(latencies);
        }
        request.chunk_index = next.fetch_add(1, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + DEADLINE;
        match (client.fetch(&address, request, ClassWatch::DEMAND, deadline).await, &errors) {
            (Ok(_), _) if schedule.counts(began) => latencies.push(began.elapsed()),
            (Ok(_), _) => {}
            (Err(_), Some(errors)) => {
                errors.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
            (Err(error), None) => return Err(error),
        }
    }
}
