//! Multicast preloads of one host: sessions that it sends, and sessions that its preloads hear first.
//!
//! The sender of a disk is the host that the ring names for an index that no chunk has, so that nobody who is
//! busy as the owner of a hot chunk sends as well.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use acstor_multicast::limits::{MESSAGE_LEN_MAX, REPORT_TIMEOUT};
use acstor_multicast::shell::{
    AnswerFuture, ChunkSource, Disks, GroupConfig, Hub, HubConfig, ListenRequest, LoadFuture,
    OpenFuture, Refusal, SenderLink, Totals, UdpNetwork, listen,
};
use acstor_peer::exchange::{Hints, Join, Joined};
use acstor_peer::frame::GROUP_BODY_LEN;
use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerClient, PeerStatus, ServeFuture};
use acstor_readpath::{FedChunk, FeedFuture, FeedRequest, PreloadFeed, PreloadWhat, ReadPath};
use acstor_ring::RingHandle;
use acstor_types::{ChunkSize, Digest, DiskId, Oid};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::links::LinkRates;
use crate::{HostError, Settings};

const _: () = assert!(MESSAGE_LEN_MAX == GROUP_BODY_LEN);

/// Multicast of a host.
pub(super) struct Multicast {
    pub(super) hub: Arc<Hub<PreloadDisks, UdpNetwork>>,
    pub(super) totals: Arc<Totals>,
}

/// The parts that multicast reads from.
pub(super) struct Around<'a> {
    pub(super) read_path: &'a ReadPath,
    pub(super) peer_client: &'a PeerClient,
    pub(super) rings: &'a Arc<RingHandle>,
    pub(super) link_rates: &'a Arc<LinkRates>,
    pub(super) runtime: &'a Handle,
    pub(super) chunk_size: ChunkSize,
}

impl Multicast {
    /// Sets multicast up as the settings say, and has preloads listen first; `None` where it is off.
    ///
    /// # Errors
    /// [`HostError::Setting`].
    pub(super) fn open(
        settings: &Settings,
        around: &Around<'_>,
    ) -> Result<Option<Multicast>, HostError> {
        let Some(group) = &settings.multicast_group else { return Ok(None) };
        let group = group_config(group, &settings.multicast_interface)?;
        let totals = Arc::new(Totals::default());
        let config = HubConfig {
            group: group.clone(),
            chunk_size: around.chunk_size,
            link_bytes_per_s: settings.multicast_link_bytes_per_s,
            rate_max: settings.multicast_rate_bytes_per_s,
        };
        let disks = PreloadDisks(around.read_path.clone());
        let hub = Hub::new(config, (disks, UdpNetwork), around.runtime.clone(), totals.clone());
        around.read_path.set_preload_feed(Arc::new(GroupFeed {
            host: settings.host.clone(),
            rings: around.rings.clone(),
            peer_client: around.peer_client.clone(),
            link_rates: around.link_rates.clone(),
            group,
            chunk_size: around.chunk_size,
            rate_max: settings.multicast_rate_bytes_per_s,
            totals: totals.clone(),
        }));
        Ok(Some(Multicast { hub, totals }))
    }
}

fn group_config(group: &str, interface: &str) -> Result<GroupConfig, HostError> {
    let wrong = |name, value: &str, allowed| {
        Err(HostError::Setting { name, value: value.to_owned(), allowed })
    };
    let Ok(parsed) = group.parse::<SocketAddr>() else {
        return wrong("multicast_group", group, "an address and a port");
    };
    let Ok(interface) = interface.parse() else {
        return wrong("multicast_interface", interface, "an IPv4 address of this host");
    };
    let config = GroupConfig { group: parsed, interface, interface_index: 0 };
    if !config.is_local() {
        return wrong("multicast_group", group, "a group of 239.0.0.0/8 or ff02::/16");
    }
    Ok(config)
}

fn code(what: PreloadWhat) -> u8 {
    match what {
        PreloadWhat::WorkingSet => 1,
        PreloadWhat::Full => 2,
    }
}

fn part(code: u8) -> Option<PreloadWhat> {
    [PreloadWhat::WorkingSet, PreloadWhat::Full].into_iter().find(|what| self::code(*what) == code)
}

/// Disks of this host, as its preloads see them.
pub(super) struct PreloadDisks(ReadPath);

/// Chunks of one disk, brought as by a preload.
pub(super) struct PreloadedDisk {
    read_path: ReadPath,
    disk: DiskId,
}

impl Disks for PreloadDisks {
    type Source = PreloadedDisk;

    fn has(&self, disk: &DiskId, what: u8) -> bool {
        part(what).is_some_and(|what| self.0.can_preload(disk, what))
    }

    fn open(&self, disk: DiskId, what: u8) -> OpenFuture<PreloadedDisk> {
        let read_path = self.0.clone();
        Box::pin(async move {
            let (what, of_disk) = (part(what)?, read_path.clone());
            let listing = tokio::task::spawn_blocking(move || of_disk.preload_chunks(&disk, what));
            match listing.await.ok()? {
                Ok(chunks) => Some((chunks, PreloadedDisk { read_path, disk })),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a disk cannot be sent by multicast");
                    None
                }
            }
        })
    }
}

impl ChunkSource for PreloadedDisk {
    fn load(&self, chunks: Vec<u64>) -> LoadFuture {
        let (read_path, disk) = (self.read_path.clone(), self.disk);
        Box::pin(async move {
            let mut loading = JoinSet::new();
            for index in chunks {
                let chunk = read_path.preload_chunk(disk, index);
                loading.spawn(async move { Some((index, chunk.await?)) });
            }
            let mut loaded: Vec<_> = loading.join_all().await.into_iter().flatten().collect();
            loaded.sort_by_key(|(index, _)| *index);
            loaded
        })
    }

    fn reads_wait(&self) -> bool {
        self.read_path.has_waiting_reads()
    }
}

/// The group of this host's preloads.
struct GroupFeed {
    host: String,
    rings: Arc<RingHandle>,
    peer_client: PeerClient,
    link_rates: Arc<LinkRates>,
    group: GroupConfig,
    chunk_size: ChunkSize,
    rate_max: u64,
    totals: Arc<Totals>,
}

impl GroupFeed {
    /// Returns the address of the host that sends a disk; `None` where that is this one, or nobody.
    fn sender(&self, disk: &DiskId) -> Option<String> {
        let rings = self.rings.load();
        let owner = rings.current.as_ref()?.owner(Oid::rendezvous(disk));
        (owner.name != self.host).then(|| owner.address.to_string())
    }
}

impl PreloadFeed for GroupFeed {
    fn feed(&self, request: FeedRequest, chunks: mpsc::Sender<FedChunk>) -> FeedFuture {
        let FeedRequest { disk, request, missing } = request;
        let rate = request.rate_bytes_per_s;
        // A session may send faster than such a preload may take.
        let is_too_slow = rate != 0 && rate < self.rate_max;
        let Some(address) = self.sender(&disk).filter(|_| !is_too_slow) else {
            return Box::pin(std::future::ready(()));
        };
        let (what, chunk_size, group) = (code(request.what), self.chunk_size, self.group.clone());
        let request = ListenRequest { disk, what, chunk_size, missing, group };
        let (peer_client, link_rates) = (self.peer_client.clone(), self.link_rates.clone());
        let link = Arc::new(PeerLink { peer_client, link_rates, address });
        let totals = self.totals.clone();
        Box::pin(async move {
            let finish = listen(link, request, &UdpNetwork, (chunks, &totals)).await;
            if let Some(finish) = finish {
                tracing::info!(%disk, finish = finish.as_str(), "a multicast session was heard");
            }
        })
    }
}

/// Way to the sender, over the connection of peers.
struct PeerLink {
    peer_client: PeerClient,
    link_rates: Arc<LinkRates>,
    address: String,
}

impl SenderLink for PeerLink {
    fn ask(&self, message: [u8; MESSAGE_LEN_MAX]) -> AnswerFuture {
        let (peer_client, address) = (self.peer_client.clone(), self.address.clone());
        let deadline = Instant::now() + REPORT_TIMEOUT;
        Box::pin(async move { peer_client.group(&address, &message, deadline).await.ok() })
    }

    /// All or nothing of it: the agent tells that nothing is free from nine tenths on, which is what a
    /// sender asks.
    fn link_used(&self) -> Option<f64> {
        self.link_rates.now().inwards.map(|free| if free == 0 { 1.0 } else { 0.0 })
    }
}

/// The read path, and the messages of groups beside it.
pub(super) struct GroupChunks {
    pub(super) read_path: ReadPath,
    pub(super) hub: Option<Arc<Hub<PreloadDisks, UdpNetwork>>>,
}

impl ChunkServer for GroupChunks {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        self.read_path.serve(request, class, deadline)
    }

    fn holds(&self, digests: &[Digest]) -> Vec<bool> {
        self.read_path.holds(digests)
    }

    fn join(&self, join: &Join) -> Result<Joined, PeerStatus> {
        self.read_path.join(join)
    }

    fn hint(&self, hints: &Hints) -> Result<u32, PeerStatus> {
        self.read_path.hint(hints)
    }

    fn group(
        &self,
        host: IpAddr,
        message: &[u8; GROUP_BODY_LEN],
    ) -> Result<[u8; GROUP_BODY_LEN], PeerStatus> {
        let hub = self.hub.as_ref().ok_or(PeerStatus::Unsupported)?;
        hub.answer(host, message).map_err(|refusal| match refusal {
            Refusal::Invalid => PeerStatus::Invalid,
            Refusal::NotFound => PeerStatus::NotFound,
            Refusal::Overloaded => PeerStatus::Overloaded,
        })
    }
}

#[cfg(test)]
mod tests;
