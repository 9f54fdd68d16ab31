//! Opening, starting and stopping a data plane.

use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use acstor_fuse::{FileTable, FuseConfig, FuseError, FuseHooks, FuseServer};
use acstor_members::{MemberSettings, MembersSettings, MembersSource, calls_max};
use acstor_nbd::MemoryBudget;
use acstor_peer::{PeerClient, PeerConfig, PeerServer, Security, TlsConfig};
use acstor_readpath::{
    HostStore, Keep, Neighbourhood, Order, OriginSource, PlacementRule, PosixPackReader, Prefer,
    ReadPath, ReadPathConfig, Seams,
};
use acstor_ring::{Ring, RingHandle, Threshold};
use acstor_runclock::RunClock;
use acstor_store::{ChunkStore, StoreConfig};
use acstor_types::ChunkSize;
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;

use super::images::release_idle_manifests;
use super::links::{LinkRates, watch_compression};
use super::metrics::PartsCollector;
use super::multicast::{Around, GroupChunks, Multicast};
use super::pulse::Pulse;
use super::volume_metrics::VolumesCollector;
use super::{Host, HostError, HostState, Parts, Serving};
use crate::Settings;

/// Time above the read path's own deadline after which the front end gives a read up.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
/// Name of the file that says what was agreed on with the kernel.
const SESSION_FILE: &str = "fuse-session";
/// Connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 1024;
/// Memory for the payloads of all NBD clients together, bytes.
const NBD_MEMORY_BYTES: u64 = 256 << 20;
/// Recent chunks kept in memory where the prefetch window asks for no more, bytes.
const RECENT_BYTES_MIN: usize = 16 << 20;

/// The descriptor of the file system's connection.
#[derive(Debug)]
pub enum Connection {
    /// Of the process before, which has answered INIT.
    TakenOver(OwnedFd),
    /// Mounted for this process.
    New(OwnedFd),
}

impl Host {
    /// Checks the settings, opens the store, and starts the runtime's threads; serves nothing yet.
    ///
    /// # Errors
    /// [`HostError`] that names the setting or the file.
    pub fn open(
        settings: Settings,
        origin: Option<Arc<dyn OriginSource>>,
    ) -> Result<Host, HostError> {
        let origin = match (&settings.origin_posix_root, origin) {
            (Some(root), _) => Arc::new(PosixPackReader::new(root)) as Arc<dyn OriginSource>,
            (None, Some(origin)) => origin,
            (None, None) => {
                return Err(HostError::Setting {
                    name: "origin_posix_root",
                    value: "None".into(),
                    allowed: "a directory, or an origin object",
                });
            }
        };
        Host::open_with(settings, Registry::default(), origin, None)
    }

    /// As [`Host::open`], where the origin is made of several stores.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open_over_members(
        settings: Settings,
        members: Vec<MemberSettings>,
    ) -> Result<Host, HostError> {
        let read_config = read_path_config(&settings)?;
        let mut registry = Registry::default();
        let members = MembersSettings {
            members,
            deadline: read_config.origin_deadline,
            calls_max: calls_max(read_config.origin_threads),
            hedge_share_percent: match read_config.hedge_enabled {
                true => read_config.hedge_share_percent,
                false => 0,
            },
        };
        let members = Arc::new(MembersSource::start(members, &mut registry)?);
        Host::open_with(settings, registry, members.clone(), Some(members))
    }

    fn open_with(
        settings: Settings,
        mut registry: Registry,
        origin: Arc<dyn OriginSource>,
        members: Option<Arc<MembersSource>>,
    ) -> Result<Host, HostError> {
        let chunk_size = ChunkSize::new(settings.chunk_size).ok_or_else(|| HostError::Setting {
            name: "chunk_size",
            value: settings.chunk_size.to_string(),
            allowed: "a power of two from 4 KiB to 4 MiB",
        })?;
        let read_config = read_path_config(&settings)?;
        read_config.validate()?;
        let peer_config = peer_config(&settings);
        peer_config.validate()?;
        fuse_config(&settings).validate()?;
        let store = ChunkStore::open(&store_config(&settings, chunk_size)?)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(settings.runtime_threads)
            .thread_name("acstor-runtime")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let _inside = handle.enter();
        let rings = Arc::new(RingHandle::empty());
        let clock = RunClock::start(&handle);
        let peer_client = PeerClient::by(&peer_config, clock.clone())?;
        let seams = Seams {
            store: Arc::new(HostStore::new(store.clone(), chunk_size)),
            peers: Arc::new(peer_client.clone()),
            origin,
            rings: rings.clone(),
            clock,
        };
        let read_path = ReadPath::new(read_config, seams, &mut registry, handle.clone())?;
        let link_rates = Arc::new(LinkRates::default());
        let around = Around {
            read_path: &read_path,
            peer_client: &peer_client,
            rings: &rings,
            link_rates: &link_rates,
            runtime: &handle,
            chunk_size,
        };
        let multicast = Multicast::open(&settings, &around)?;
        let parts = Arc::new(Parts {
            chunk_size,
            store,
            members,
            rings,
            read_path,
            files: Arc::new(FileTable::new()),
            peer_client,
            multicast,
            image_changes: Mutex::default(),
            disk_changes: Mutex::default(),
            images: Mutex::default(),
            bases: Mutex::default(),
            volumes: RwLock::default(),
            nbd_memory: MemoryBudget::new(NBD_MEMORY_BYTES),
            serving: Mutex::default(),
            state: Mutex::new(HostState::Created),
            ring_changes: Mutex::default(),
            runtime_pulse: Pulse::new(),
            link_rates,
            is_draining: false.into(),
            settings,
        });
        registry.register_collector(Box::new(PartsCollector(parts.clone())));
        registry.register_collector(Box::new(VolumesCollector(parts.clone())));
        drop(_inside);
        Ok(Host { parts, registry, runtime: Mutex::new(Some(runtime)), handle })
    }

    /// Starts to serve FUSE requests and peers.
    ///
    /// # Errors
    /// [`HostError::Stale`] when `connection` is no longer connected, any other when binding or
    /// starting fails; the data plane is then stopped.
    pub fn start(
        &self,
        connection: Connection,
        listener: Option<TcpListener>,
    ) -> Result<(), HostError> {
        self.enter(HostState::Running)?;
        let mut serving = self.parts.serving.lock();
        let outcome = self.start_serving(&mut serving, connection, listener);
        drop(serving);
        if outcome.is_err() {
            self.stop(Duration::from_secs(1));
        }
        outcome
    }

    fn start_serving(
        &self,
        serving: &mut Serving,
        connection: Connection,
        listener: Option<TcpListener>,
    ) -> Result<(), HostError> {
        let parts = &self.parts;
        let listener = match listener {
            Some(listener) => listener,
            None => listen(&parts.settings)?,
        };
        serving.peer_listener = Some(listener.try_clone()?);
        serving.is_taken_over = matches!(connection, Connection::TakenOver(_));
        let config = fuse_config(&parts.settings);
        let server = match connection {
            Connection::TakenOver(fd) => FuseServer::take_over(config, fd),
            Connection::New(fd) => FuseServer::on_mounted(config, fd),
        };
        let server = server.map_err(|error| match error {
            FuseError::TakeOver(_) => HostError::Stale(error),
            other => other.into(),
        })?;
        serving.fuse_fd = Some(server.device().try_clone_to_owned()?);
        let (read_path, rate) = (parts.read_path.clone(), parts.settings.hint_preload_bytes_per_s);
        let hooks =
            FuseHooks::default().on_prefetch_hint(move |disk| read_path.preload_hint(disk, rate));
        let session = server.serve(parts.files.clone(), self.handle.clone(), hooks)?;
        serving.fuse = Some(session);
        parts.runtime_pulse.start(&self.handle);
        let _inside = self.handle.enter();
        let hub = parts.multicast.as_ref().map(|multicast| multicast.hub.clone());
        let chunks = Arc::new(GroupChunks { read_path: parts.read_path.clone(), hub });
        serving.tasks = vec![
            self.handle.spawn(parts.read_path.clone().deduplicate()),
            self.handle.spawn(parts.read_path.clone().complete_manifests()),
            self.handle.spawn(release_idle_manifests(parts.clone())),
            self.handle.spawn(watch_compression(parts.clone())),
        ];
        let clock = parts.read_path.clock();
        let peers = PeerServer::start_by(listener, chunks, &peer_config(&parts.settings), clock)?;
        if let Some(ring) = &parts.rings.load().current {
            peers.set_members(members(ring));
        }
        peers.tell_free_rate(parts.link_rates.now().outwards);
        serving.peers = Some(peers);
        Ok(())
    }

    /// Stops everything within about `timeout`; later calls do nothing. What is mounted then stays
    /// for the next process.
    pub fn stop(&self, timeout: Duration) {
        if self.enter(HostState::Stopped).is_err() {
            return;
        }
        // The next process does not go on with them; what they have in flight is kept.
        self.parts.read_path.stop_preloads();
        self.parts.multicast.iter().for_each(|multicast| multicast.hub.stop());
        let Serving { fuse, fuse_fd, peers, tasks, .. } =
            std::mem::take(&mut *self.parts.serving.lock());
        for task in tasks {
            task.abort();
            // They hold the store, which whoever comes next must find unlocked.
            let _ = self.handle.block_on(task);
        }
        // Guests are served until the last step but one: from then on they wait for the next
        // process, so nothing that takes time may come after it.
        if let Some(peers) = peers {
            self.handle.block_on(peers.drain(timeout / 4));
        }
        self.parts.read_path.flush_inserts(timeout / 4);
        self.stop_volumes(timeout / 4);
        if let Some(session) = fuse {
            session.shutdown();
        }
        drop(fuse_fd);
        self.parts.peer_client.shutdown();
        self.parts.read_path.stop(Duration::ZERO);
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }

    fn enter(&self, next: HostState) -> Result<(), HostError> {
        let mut state = self.parts.state.lock();
        if !state.may_become(next) {
            return Err(HostError::State(match *state {
                HostState::Created => "not started",
                HostState::Running => "running",
                HostState::Stopped => "stopped",
            }));
        }
        *state = next;
        Ok(())
    }

    /// The descriptors in use, for the supervisor: `/dev/fuse` and the listening socket.
    ///
    /// # Errors
    /// [`HostError::State`] unless it runs.
    pub fn descriptors(&self) -> Result<(i32, i32), HostError> {
        let serving = self.parts.serving.lock();
        match (&serving.fuse_fd, &serving.peer_listener) {
            (Some(fuse), Some(listener)) => {
                Ok((fuse.as_fd().as_raw_fd(), listener.as_fd().as_raw_fd()))
            }
            _ => Err(HostError::State("not running")),
        }
    }

    /// The address under which other hosts reach this one, `ip:port`.
    ///
    /// # Errors
    /// [`HostError::State`] unless it runs.
    pub fn peer_address(&self) -> Result<String, HostError> {
        let serving = self.parts.serving.lock();
        let listener = serving.peer_listener.as_ref().ok_or(HostError::State("not running"))?;
        let port = listener.local_addr()?.port();
        Ok(join_address(&self.parts.settings.peer_advertise_address, port))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(2));
        // A stopped host whose runtime is still there failed to open; it has no tasks.
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

fn join_address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn listen(settings: &Settings) -> Result<TcpListener, HostError> {
    let address = join_address(&settings.peer_listen_address, settings.peer_listen_port);
    let failed = |source| HostError::Listen { address: address.clone(), source };
    let resolved = address.to_socket_addrs().map_err(failed)?.next();
    let resolved = resolved.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let family = socket2::Domain::for_address(resolved);
    let socket = socket2::Socket::new(family, socket2::Type::STREAM, None).map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.bind(&resolved.into()).map_err(failed)?;
    socket.listen(LISTEN_BACKLOG).map_err(failed)?;
    Ok(socket.into())
}

fn store_config(settings: &Settings, chunk_size: ChunkSize) -> Result<StoreConfig, HostError> {
    Ok(StoreConfig {
        path: settings.store_path.clone(),
        capacity_bytes: settings.store_capacity_bytes,
        chunk_size,
        eviction: settings.store_eviction.parse().map_err(|_| HostError::Setting {
            name: "store_eviction",
            value: settings.store_eviction.clone(),
            allowed: "s3fifo, fifo, lru or lfu",
        })?,
    })
}

fn prefer(settings: &Settings) -> Result<Prefer, HostError> {
    match settings.prefer.as_str() {
        "origin-bytes" => Ok(Prefer::OriginBytes),
        "boot-time" => Ok(Prefer::BootTime),
        other => Err(HostError::Setting {
            name: "prefer",
            value: other.into(),
            allowed: "origin-bytes or boot-time",
        }),
    }
}

/// Returns the order in which hints are passed on; `None`: hosts tell each other nothing.
fn neighbourhood(settings: &Settings) -> Result<Option<Neighbourhood>, HostError> {
    if settings.exchange == "none" {
        return Ok(None);
    }
    let order = Order::from_name(&settings.exchange).ok_or_else(|| HostError::Setting {
        name: "exchange",
        value: settings.exchange.clone(),
        allowed: "none, ring, k-ring, tree or topology",
    })?;
    Ok(Some(Neighbourhood::new(order, settings.exchange_fan_out)))
}

fn read_path_config(settings: &Settings) -> Result<ReadPathConfig, HostError> {
    let placement = match settings.placement.as_str() {
        "oid" => PlacementRule::Oid { span_chunks: settings.placement_span_chunks.into() },
        "digest" => PlacementRule::Digest { span_chunks: settings.placement_span_chunks.into() },
        other => {
            return Err(HostError::Setting {
                name: "placement",
                value: other.into(),
                allowed: "oid or digest",
            });
        }
    };
    let keep = match settings.keep.as_str() {
        "never" => Keep::Never,
        "second-touch" => Keep::SecondTouch,
        "always" => Keep::Always,
        other => {
            return Err(HostError::Setting {
                name: "keep",
                value: other.into(),
                allowed: "never, second-touch or always",
            });
        }
    };
    let defaults = ReadPathConfig::default();
    let prefetch_max_bytes = settings.prefetch_max_bytes as usize;
    let read_deadline = Duration::from_millis(settings.read_deadline_ms);
    let hedge_min = Duration::from_millis(settings.hedge_min_ms);
    Ok(ReadPathConfig {
        host: settings.host.clone(),
        read_deadline,
        origin_deadline: Duration::from_millis(settings.origin_deadline_ms).min(read_deadline),
        peer_deadline: Duration::from_millis(settings.peer_deadline_ms).min(read_deadline),
        origin_threads: settings.origin_threads,
        placement,
        distance_threshold: threshold(settings.distance_threshold),
        keep,
        copies_max: settings.store_copies_max,
        load_aware: settings.load_aware,
        slow_fetch: Duration::from_millis(settings.slow_fetch_ms),
        compress_slow: settings.compress_slow,
        prefer: prefer(settings)?,
        hedge_enabled: settings.hedge_enabled,
        hedge_min,
        hedge_max: defaults.hedge_max.max(hedge_min),
        peer_inflight_max: settings.peer_inflight_max,
        prefetch_max_bytes,
        exchange: neighbourhood(settings)?,
        boot_window: Duration::from_millis(settings.boot_window_ms),
        recent_bytes: RECENT_BYTES_MIN.max(2 * prefetch_max_bytes),
        read_ahead_bytes: settings.read_ahead_budget_bytes as usize,
        manifest_cache_bytes: settings.manifest_cache_bytes as usize,
        ..defaults
    })
}

pub(super) fn threshold(hops: Option<u32>) -> Threshold {
    match hops {
        Some(hops) => Threshold(u8::try_from(hops).unwrap_or(u8::MAX)),
        None => Threshold::ANY,
    }
}

/// The hosts of a ring, as name and address.
pub(super) fn members(ring: &Ring) -> impl Iterator<Item = (&str, &str)> {
    ring.hosts().iter().map(|host| (host.name.as_str(), host.address.as_str()))
}

pub(super) fn peer_config(settings: &Settings) -> PeerConfig {
    let security = if settings.tls_enabled {
        Security::Tls(TlsConfig {
            ca_file: settings.tls_ca_file.clone(),
            cert_file: settings.tls_cert_file.clone(),
            key_file: settings.tls_key_file.clone(),
            crl_file: settings.tls_crl_file.clone(),
        })
    } else {
        Security::Plain
    };
    let mut config = PeerConfig::new(security);
    config.members_only = settings.peer_members_only;
    let idle = Duration::from_millis(settings.peer_idle_timeout_ms);
    config.server.connections_max = settings.peer_connections_max;
    config.server.requests_in_flight_max = settings.peer_requests_inflight_max;
    config.server.bytes_in_flight_max = settings.peer_bytes_inflight_max;
    config.server.idle_timeout = idle;
    config.client.connect_timeout = Duration::from_millis(settings.peer_connect_timeout_ms);
    // The client gives an idle connection up first, so that it never asks on one that is closing.
    config.client.idle_timeout = idle / 2;
    config.client.requests_in_flight_max = settings.peer_inflight_max;
    config
}

fn fuse_config(settings: &Settings) -> FuseConfig {
    let mut config = FuseConfig::new(&settings.mount_point);
    config.threads = settings.fuse_threads;
    config.read_ahead_kb = settings.read_ahead_kb;
    config.allow_other = settings.allow_other;
    config.reader_group = settings.image_group;
    config.answer_deadline = Duration::from_millis(settings.read_deadline_ms) + ANSWER_MARGIN;
    config.session_file = Some(settings.state_path.join(SESSION_FILE));
    config
}
