//! One host's data plane: chunk store, read path, peers and front ends, wired together.
//!
//! A [`Host`] opens the store, serves images and volumes, and answers peers, from its start to its stop.
//! Nothing here knows Python: the extension module's class is a thin one around it.

mod bases;
mod bounded_file;
mod discarding;
mod error;
mod failover_device;
mod head_reads;
mod images;
mod inherited_boots;
mod lifecycle;
mod links;
mod metrics;
mod multicast;
mod preloads;
mod pulse;
mod settings;
mod status;
mod volume_folds;
mod volume_heads;
mod volume_metrics;
mod volumes;

use std::collections::HashMap;
use std::sync::Arc;

use acstor_fuse::{FileTable, FuseSession, FuseStats};
use acstor_members::{MembersError, MembersSource};
use acstor_nbd::MemoryBudget;
use acstor_peer::{PeerClient, PeerServer, ServerStats, TlsStatus};
use acstor_readpath::ReadPath;
use acstor_ring::{Ring, RingHandle};
use acstor_store::ChunkStore;
use acstor_types::{ChunkSize, DiskId};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;

pub use bases::manifest_name;
pub use error::HostError;
pub use images::Withdrawal;
pub use lifecycle::Connection;
pub use links::FreeRates;
use links::LinkRates;
pub use preloads::parse_what;
use pulse::Pulse;
pub use settings::Settings;
pub use volumes::VolumeSpec;

/// State of a data plane; it only moves down this list, and from anywhere to the end.
///
/// ```text
/// Created --start--> Running --stop--> Stopped
///    `---------------stop-----------------^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// The store is open; images and the ring may be given; nothing is served.
    Created,
    /// FUSE requests and peers are being served.
    Running,
    /// Nothing runs any more.
    Stopped,
}

impl HostState {
    /// Returns whether `next` may follow.
    pub fn may_become(self, next: HostState) -> bool {
        matches!(
            (self, next),
            (HostState::Created, HostState::Running)
                | (HostState::Created | HostState::Running, HostState::Stopped)
        )
    }
}

/// Services that run between start and stop.
#[derive(Default)]
struct Serving {
    fuse: Option<FuseSession>,
    fuse_fd: Option<std::os::fd::OwnedFd>,
    peers: Option<PeerServer>,
    peer_listener: Option<std::net::TcpListener>,
    /// Tasks that run beside the reads.
    tasks: Vec<tokio::task::JoinHandle<()>>,
    is_taken_over: bool,
}

/// The parts that exist from the opening on.
pub struct Parts {
    settings: Settings,
    chunk_size: ChunkSize,
    store: ChunkStore,
    /// `None` where the origin is one store.
    members: Option<Arc<MembersSource>>,
    rings: Arc<RingHandle>,
    read_path: ReadPath,
    files: Arc<FileTable>,
    peer_client: PeerClient,
    /// `None` where it is off.
    multicast: Option<multicast::Multicast>,
    /// Held while an image is attached or detached, which may wait for the kernel; before `disk_changes`.
    image_changes: Mutex<()>,
    /// Held while a disk is attached to the read path or detached from it, which may wait for the local
    /// disk; before `images`, which nobody holds who waits: the watchdog is fed by one who looks there.
    disk_changes: Mutex<()>,
    images: Mutex<HashMap<DiskId, images::Attached>>,
    /// Number of volumes that have a disk as their base; locked after `images`.
    bases: Mutex<HashMap<DiskId, u32>>,
    volumes: RwLock<HashMap<DiskId, Arc<volumes::OpenVolume>>>,
    /// Memory that the payloads of all NBD clients may take together.
    nbd_memory: Arc<MemoryBudget>,
    serving: Mutex<Serving>,
    state: Mutex<HostState>,
    /// Held while the ring and what is known of its hosts change together.
    ring_changes: Mutex<()>,
    runtime_pulse: Arc<Pulse>,
    link_rates: Arc<LinkRates>,
    is_draining: std::sync::atomic::AtomicBool,
}

/// A data plane. Dropping it stops everything without unmounting.
pub struct Host {
    parts: Arc<Parts>,
    registry: Registry,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
}

impl Parts {
    fn fuse_stats(&self) -> FuseStats {
        self.serving.lock().fuse.as_ref().map(FuseSession::stats).unwrap_or_default()
    }

    fn peer_server_stats(&self) -> Option<ServerStats> {
        self.serving.lock().peers.as_ref().map(PeerServer::stats)
    }

    /// Returns the state of the files of TLS; `None` where it is off, and before the start.
    fn peer_tls_status(&self) -> Option<TlsStatus> {
        self.serving.lock().peers.as_ref().and_then(PeerServer::tls_status)
    }
}

impl Host {
    /// Puts a ring to use that `path` holds in binary form.
    ///
    /// # Errors
    /// [`HostError`]; the ring in use stays.
    pub fn set_ring(&self, path: &std::path::Path) -> Result<(), HostError> {
        let bytes = bounded_file::read(path, acstor_ring::limits::RING_LEN_MAX as u64)?;
        let ring = Ring::decode(&bytes)?;
        // Else the names of an older ring could come after those of a newer one.
        let _one_at_a_time = self.parts.ring_changes.lock();
        self.parts.rings.set(ring)?;
        if let Some(ring) = &self.parts.rings.load().current {
            self.parts.peer_client.set_hosts(lifecycle::members(ring));
            if let Some(peers) = &self.parts.serving.lock().peers {
                peers.set_members(lifecycle::members(ring));
            }
        }
        Ok(())
    }

    /// Changes from how many hops on other hosts are not asked; `None`: as configured.
    ///
    /// # Errors
    /// [`HostError::Setting`] above 255 hops.
    pub fn set_distance_threshold(&self, hops: Option<u32>) -> Result<(), HostError> {
        if let Some(hops) = hops.filter(|hops| *hops > u8::MAX.into()) {
            return Err(HostError::Setting {
                name: "distance threshold",
                value: hops.to_string(),
                allowed: "0 to 255 hops, or none",
            });
        }
        let hops = hops.or(self.parts.settings.distance_threshold);
        self.parts.read_path.set_distance_threshold(lifecycle::threshold(hops));
        Ok(())
    }

    /// Says which generation a member of the origin has to have from now on.
    ///
    /// # Errors
    /// [`HostError::Members`] where there is no such member, as where the origin is one store.
    pub fn set_member_generation(&self, member: &str, generation: u64) -> Result<(), HostError> {
        let unknown = || MembersError::Unknown(member.to_owned());
        let members = self.parts.members.as_ref().ok_or_else(unknown)?;
        Ok(members.set_generation(member, generation)?)
    }

    /// Refuses or takes requests of peers; reads of guests go on.
    pub fn set_drain(&self, on: bool) {
        self.parts.is_draining.store(on, std::sync::atomic::Ordering::Release);
        self.parts.read_path.set_drain(on);
    }

    /// Returns every metric in the Prometheus text format.
    pub fn metrics_text(&self) -> Result<String, HostError> {
        self.parts.read_path.refresh_gauges();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .map_err(|_| HostError::Internal("metrics could not be written"))?;
        Ok(text)
    }

    /// The read path, for its traces.
    pub fn read_path(&self) -> &ReadPath {
        &self.parts.read_path
    }
}
