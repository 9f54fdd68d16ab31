//! The client: a pool of connections per peer, bounded requests in flight, and a breaker for peers
//! that are down.

mod buffers;
mod channel;
mod connection;
mod connector;
mod input;
mod latency;
mod link;
mod peer;
mod pending;
mod pool;
mod stats;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acstor_net::{Demands, TlsFiles};
use acstor_runclock::RunClock;
use acstor_selection::BreakerState;
use acstor_selection::exchange::bounds::FRAME_HINTS_MAX;
use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::exchange::{Hints, Join, Joined};
use crate::frame::{GROUP_BODY_LEN, HOLDS_MAX, decode_held};
use crate::{
    ChunkRequest, ClassWatch, ClientLimits, PeerConfig, PeerError, PeerStatus, Security, Told,
};
use buffers::BufferPool;
use peer::Peer;
pub use stats::{ClientStats, PeerStats};
use stats::{CloseCounters, CompressionCounters, add, get};

/// Fetches chunks from peers. Clones share the connections; when the last clone is dropped, or at
/// [`PeerClient::shutdown`], the connections end as soon as what was sent is answered.
#[derive(Clone)]
pub struct PeerClient {
    peers: Arc<Peers>,
}

struct Peers {
    shared: Arc<ClientShared>,
    by_address: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    peers: HashMap<String, Arc<Peer>>,
    is_shut_down: bool,
}

/// State that all peers of a client share.
struct ClientShared {
    limits: ClientLimits,
    /// Clock of the time in which peers could have been heard: their silence is measured by it.
    clock: RunClock,
    tls: Option<TlsFiles>,
    /// Ring names by address.
    host_names: RwLock<HashMap<String, String>>,
    closed: CloseCounters,
    compression: CompressionCounters,
    buffers: Arc<BufferPool>,
}

impl ClientShared {
    /// Notes that a chunk of so many bytes came compressed, and took so long to decompress.
    fn count_compressed(&self, bytes: usize, bytes_saved: usize, time: Duration) {
        add(&self.compression.chunks, 1);
        add(&self.compression.bytes_saved, bytes_saved as u64);
        add(&self.compression.bytes, bytes as u64);
        add(&self.compression.nanos, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn host_name(&self, address: &str) -> Option<String> {
        self.host_names.read().get(address).cloned()
    }
}

impl PeerClient {
    /// Returns a client that connects to peers as fetches need them.
    ///
    /// # Errors
    /// [`PeerError::Limit`] for a limit outside its range, [`PeerError::TlsFile`] for an unusable PEM
    /// file.
    pub fn new(config: &PeerConfig) -> Result<PeerClient, PeerError> {
        PeerClient::by(config, RunClock::unmeasured())
    }

    /// As [`PeerClient::new`], with timeouts and deadlines by the running time of the runtime in which
    /// it will be used.
    ///
    /// # Errors
    /// As [`PeerClient::new`].
    pub fn by(config: &PeerConfig, clock: RunClock) -> Result<PeerClient, PeerError> {
        config.client.validate()?;
        let tls = match &config.security {
            Security::Tls(files) => Some(TlsFiles::load(
                files,
                Demands { application: crate::APPLICATION, members: None },
            )?),
            Security::Plain => None,
        };
        let shared = Arc::new(ClientShared {
            limits: config.client.clone(),
            clock,
            tls,
            host_names: RwLock::default(),
            closed: CloseCounters::new(),
            compression: CompressionCounters::default(),
            buffers: Arc::default(),
        });
        Ok(PeerClient { peers: Arc::new(Peers { shared, by_address: RwLock::default() }) })
    }

    /// Fetches the chunk from the peer at `address` (`ip:port`). The content is **not** verified: the
    /// caller compares it with the digest. Exactly `request.chunk_size` bytes come back.
    ///
    /// When the peer's slots are taken the fetch waits for one; a peer that is down fails it at
    /// once; nothing is tried twice. The peer is told its class, and when `class` is promoted that too. What
    /// guests wait for has connections and slots of its own; only it counts for the peer's latency, from
    /// when a guest waits.
    ///
    /// # Errors
    /// [`PeerError`]; its `kind()` says what the caller can do: `NotFound`, `Overloaded`,
    /// `Unavailable` and so on mean another source.
    ///
    /// # Cancel safety
    /// Dropping the future frees its slot and cancels the request at the peer; a late answer is discarded
    /// and counted.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn fetch(
        &self,
        address: &str,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        let peer = self.peer(address)?;
        peer.fetch(request, class, deadline).await
    }

    /// Asks the peer at `address` which of some chunks it keeps and means to go on keeping; one answer
    /// per digest, in order. At most [`HOLDS_MAX`](crate::frame::HOLDS_MAX) digests.
    ///
    /// # Errors
    /// As [`PeerClient::fetch`]; [`PeerError::Refused`] with `Unsupported` for a peer of an older
    /// release, with `Invalid` for a number of digests that cannot be asked for.
    ///
    /// # Panics
    /// As [`PeerClient::fetch`].
    pub async fn holds(
        &self,
        address: &str,
        digests: &[Digest],
        deadline: Instant,
    ) -> Result<Vec<bool>, PeerError> {
        if digests.is_empty() || digests.len() > HOLDS_MAX {
            let status = PeerStatus::Invalid;
            return Err(PeerError::Refused { address: address.to_owned(), status });
        }
        let peer = self.peer(address)?;
        let held = peer.holds(digests.into(), deadline).await?;
        Ok(decode_held(&held, digests.len()))
    }

    /// Asks the peer at `address` to have this host take part in the exchange of an image.
    ///
    /// # Errors
    /// As [`PeerClient::fetch`]; [`PeerError::Refused`] with `Unsupported` for a peer of an older release,
    /// with `NotFound` for one that has no part in it.
    ///
    /// # Panics
    /// As [`PeerClient::fetch`].
    pub async fn join(
        &self,
        address: &str,
        join: Join,
        deadline: Instant,
    ) -> Result<Joined, PeerError> {
        self.peer(address)?.join(join, deadline).await
    }

    /// Sends hints to the peer at `address`; returns the hints of the order that it knows.
    ///
    /// # Errors
    /// As [`PeerClient::join`], with `Invalid` for a number of hints that cannot be sent.
    ///
    /// # Panics
    /// As [`PeerClient::fetch`].
    pub async fn hint(
        &self,
        address: &str,
        hints: Hints,
        deadline: Instant,
    ) -> Result<u32, PeerError> {
        if hints.hints.is_empty() || hints.hints.len() > FRAME_HINTS_MAX {
            let status = PeerStatus::Invalid;
            return Err(PeerError::Refused { address: address.to_owned(), status });
        }
        self.peer(address)?.hint(Arc::new(hints), deadline).await
    }

    /// Sends the peer at `address` a message of a multicast preload, and returns its answer.
    ///
    /// # Errors
    /// As [`PeerClient::fetch`]; [`PeerError::Refused`] with `Unsupported` for a peer without multicast.
    ///
    /// # Panics
    /// As [`PeerClient::fetch`].
    pub async fn group(
        &self,
        address: &str,
        message: &[u8; GROUP_BODY_LEN],
        deadline: Instant,
    ) -> Result<[u8; GROUP_BODY_LEN], PeerError> {
        let peer = self.peer(address)?;
        peer.group(message, deadline).await
    }

    /// Returns the latency that 99 of 100 recent answers of the peer kept, answers that came too late
    /// included, or `None` when fewer than 20 are known.
    pub fn latency_p99(&self, address: &str) -> Option<Duration> {
        self.peers.by_address.read().peers.get(address).and_then(|peer| peer.latency_p99())
    }

    /// Returns the load that the peer told with its last answer, or `None` before, and of a peer of an older
    /// release.
    pub fn told(&self, address: &str) -> Option<Told> {
        self.peers.by_address.read().peers.get(address).and_then(|peer| peer.told())
    }

    /// Returns whether a connection to the peer is tried; [`BreakerState::Closed`] when it was never asked.
    pub fn breaker(&self, address: &str) -> BreakerState {
        let known = self.peers.by_address.read();
        known.peers.get(address).map_or(BreakerState::Closed, |peer| peer.breaker())
    }

    /// Takes the ring's hosts as (name, address): the name is accepted in the certificate beside the
    /// address, and peers at other addresses are forgotten, their connections closed.
    pub fn set_hosts<I, N, A>(&self, hosts: I)
    where
        I: IntoIterator<Item = (N, A)>,
        N: Into<String>,
        A: Into<String>,
    {
        let names: HashMap<String, String> =
            hosts.into_iter().map(|(name, address)| (address.into(), name.into())).collect();
        self.peers.by_address.write().peers.retain(|address, peer| {
            let stays = names.contains_key(address);
            if !stays {
                peer.close();
            }
            stays
        });
        *self.peers.shared.host_names.write() = names;
    }

    /// Counters since the start, and the state of every peer.
    pub fn stats(&self) -> ClientStats {
        let known = self.peers.by_address.read();
        let mut peers: Vec<_> = known.peers.values().map(|peer| peer.stats()).collect();
        peers.sort_by(|a, b| a.address.cmp(&b.address));
        let shared = &self.peers.shared;
        ClientStats {
            peers,
            compressed_chunks: get(&shared.compression.chunks),
            bytes_saved: get(&shared.compression.bytes_saved),
            compressible_bytes: get(&shared.compression.compressible_bytes),
            decompression_time: Duration::from_nanos(get(&shared.compression.nanos)),
            decompressed_bytes: get(&shared.compression.bytes),
            connections_closed: shared.closed.snapshot(),
        }
    }

    /// Reads the TLS files again if they changed; without this call that happens within seconds when
    /// a connection is made.
    ///
    /// # Errors
    /// [`PeerError::TlsFile`]; the last good files stay in use.
    pub fn reload_certificates(&self) -> Result<(), PeerError> {
        Ok(self.peers.shared.tls.as_ref().map_or(Ok(()), TlsFiles::reload)?)
    }

    /// Ends every connection as soon as what was sent is answered; later fetches fail.
    pub fn shutdown(&self) {
        self.peers.shut_down();
    }

    fn peer(&self, address: &str) -> Result<Arc<Peer>, PeerError> {
        if let Some(peer) = self.peers.by_address.read().peers.get(address) {
            return Ok(Arc::clone(peer));
        }
        self.peers.add(address)
    }
}

impl Peers {
    fn add(&self, address: &str) -> Result<Arc<Peer>, PeerError> {
        let socket: SocketAddr =
            address.parse().map_err(|_| PeerError::Address { address: address.to_owned() })?;
        let mut known = self.by_address.write();
        if known.is_shut_down {
            return Err(PeerError::Shutdown);
        }
        if let Some(peer) = known.peers.get(address) {
            return Ok(Arc::clone(peer));
        }
        let limit = self.shared.limits.peers_max;
        if known.peers.len() >= limit {
            return Err(PeerError::TooManyPeers { limit });
        }
        let peer = Arc::new(Peer::new(address, socket, Arc::clone(&self.shared)));
        known.peers.insert(address.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }

    fn shut_down(&self) {
        let mut known = self.by_address.write();
        known.is_shut_down = true;
        for (_, peer) in known.peers.drain() {
            peer.close();
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.shut_down();
    }
}
