//! A network of read paths in memory, with faults per host.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use acstor_peer::exchange::{HintedFuture, Hints, Join, JoinFuture};
use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerError, PeerStatus, Told};
use acstor_runclock::RunClock;
use acstor_types::Digest;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::link::Link;
use crate::{HoldsFuture, PeerFuture, PeerSource, ReadPath};

/// Size of a compressed answer over the wire, in hundredths of the chunk: as of those of a boot.
const COMPRESSED_PERCENT: usize = 46;
/// Time limit for a connection, the default of `[peer] connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Fault mode of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerFaultMode {
    Well,
    /// Connections are refused.
    Dead,
    /// Attempts to connect are not answered, and given up.
    Gone,
    /// Requests are taken and never answered.
    Stalled,
    /// Wrong bytes.
    Lies,
    /// Too few bytes.
    ShortAnswers,
    /// This status.
    Refuses(PeerStatus),
    /// Right, but late.
    Slow(Duration),
}

/// One request that a host got.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) at: Duration,
    pub(super) to: String,
    pub(super) request: ChunkRequest,
}

pub(super) struct Network {
    hosts: Mutex<HashMap<String, ReadPath>>,
    fault_modes: Mutex<HashMap<String, PeerFaultMode>>,
    asked: Mutex<Vec<Asked>>,
    /// Links over which hosts send; a host without one has no bound.
    links: Mutex<HashMap<String, Link>>,
    /// Links over which hosts receive, from peers and the origin, by host.
    links_in: Mutex<HashMap<String, Link>>,
    /// Waits and free rates that hosts tell with their answers.
    told: Mutex<HashMap<String, (Duration, Option<u64>)>>,
    latency: Duration,
    started: Instant,
}

/// The network as one host sees it.
pub(super) struct NetworkPort {
    pub(super) host: String,
    pub(super) network: Arc<Network>,
}

impl Network {
    pub(super) fn new() -> Arc<Network> {
        Arc::new(Network {
            hosts: Mutex::default(),
            fault_modes: Mutex::default(),
            asked: Mutex::default(),
            links: Mutex::default(),
            links_in: Mutex::default(),
            told: Mutex::default(),
            latency: Duration::from_micros(200),
            started: Instant::now(),
        })
    }

    pub(super) fn address(host: &str) -> String {
        format!("10.0.0.{}:7420", host.as_bytes()[0])
    }

    pub(super) fn join(&self, host: &str, path: ReadPath) {
        self.hosts.lock().insert(Network::address(host), path);
    }

    fn clock(&self, host: &str) -> RunClock {
        let hosts = self.hosts.lock();
        hosts.get(&Network::address(host)).map_or_else(RunClock::unmeasured, ReadPath::clock)
    }

    pub(super) fn set(&self, host: &str, fault_mode: PeerFaultMode) {
        self.fault_modes.lock().insert(Network::address(host), fault_mode);
    }

    /// Has a host tell a load with its answers from now on.
    pub(super) fn tell(&self, host: &str, wait: Duration, free_rate: Option<u64>) {
        self.told.lock().insert(Network::address(host), (wait, free_rate));
    }

    pub(super) fn set_link(&self, host: &str, link: Link) {
        self.links.lock().insert(Network::address(host), link);
    }

    pub(super) fn set_load(&self, host: &str, load: f64) {
        self.links.lock().get_mut(&Network::address(host)).unwrap().set_load(load);
    }

    /// Lets the host receive over this link.
    pub(super) fn set_link_in(&self, host: &str, link: Link) {
        self.links_in.lock().insert(host.to_owned(), link);
    }

    /// Returns the time at which `bytes` that set out at `at` have reached the host.
    pub(super) fn receive(&self, host: &str, bytes: usize, at: Instant) -> Instant {
        let mut links = self.links_in.lock();
        links.get_mut(host).map_or(at, |link| link.carry(bytes, at))
    }

    /// Bytes that the host received over its link.
    pub(super) fn received(&self, host: &str) -> usize {
        self.links_in.lock().get(host).map_or(0, Link::carried)
    }

    pub(super) fn asked(&self, host: &str) -> Vec<Asked> {
        let address = Network::address(host);
        self.asked.lock().iter().filter(|asked| asked.to == address).cloned().collect()
    }

    /// Carries a message that is answered from memory, there and back.
    async fn carry<T>(
        self: Arc<Network>,
        address: String,
        deadline: Instant,
        answer: impl FnOnce(&ReadPath) -> Result<T, PeerStatus>,
    ) -> Result<T, PeerError> {
        let late = PeerError::Deadline { address: address.clone() };
        let asked = async {
            sleep(self.latency).await;
            let fault_modes = self.fault_modes.lock().clone();
            let path = self.hosts.lock().get(&address).cloned();
            match (fault_modes.get(&address), path) {
                (Some(PeerFaultMode::Stalled), _) => std::future::pending().await,
                (Some(PeerFaultMode::Dead), _) | (_, None) => {
                    Err(no_connection(address, io::ErrorKind::ConnectionRefused))
                }
                (_, Some(path)) => {
                    answer(&path).map_err(|status| PeerError::Refused { address, status })
                }
            }
        };
        timeout_at(deadline, asked).await.unwrap_or(Err(late))
    }

    pub(super) fn asked_count(&self) -> usize {
        self.asked.lock().len()
    }
}

impl PeerSource for NetworkPort {
    fn told(&self, address: &str) -> Option<Told> {
        let (wait, free_rate) = *self.network.told.lock().get(address)?;
        Some(Told { wait, free_rate, at: self.network.clock(&self.host).now() })
    }

    fn join(&self, address: &str, join: Join, deadline: Instant) -> JoinFuture {
        let network = self.network.clone();
        Box::pin(network.carry(address.to_owned(), deadline, move |path| path.join(&join)))
    }

    fn hint(&self, address: &str, hints: Hints, deadline: Instant) -> HintedFuture {
        let network = self.network.clone();
        Box::pin(network.carry(address.to_owned(), deadline, move |path| path.hint(&hints)))
    }

    fn holds(&self, address: &str, digests: Vec<Digest>, deadline: Instant) -> HoldsFuture {
        let (network, address) = (self.network.clone(), address.to_owned());
        Box::pin(async move {
            let late = PeerError::Deadline { address: address.clone() };
            let asked = async {
                sleep(network.latency).await;
                let fault_mode = network
                    .fault_modes
                    .lock()
                    .get(&address)
                    .copied()
                    .unwrap_or(PeerFaultMode::Well);
                if let PeerFaultMode::Slow(delay) = fault_mode {
                    sleep(delay).await;
                }
                let path = network.hosts.lock().get(&address).cloned();
                match (fault_mode, path) {
                    (PeerFaultMode::Stalled, _) => std::future::pending().await,
                    (PeerFaultMode::Gone, _) => Err(gone(address.clone()).await),
                    (PeerFaultMode::Dead, _) | (_, None) => {
                        Err(no_connection(address.clone(), io::ErrorKind::ConnectionRefused))
                    }
                    (_, Some(path)) => Ok(path.holds(&digests)),
                }
            };
            let held = timeout_at(deadline, asked).await.unwrap_or(Err(late));
            // The answer is on its way as well.
            sleep(network.latency).await;
            held
        })
    }

    fn fetch(
        &self,
        address: &str,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> PeerFuture {
        let network = self.network.clone();
        let address = address.to_owned();
        let at = network.started.elapsed();
        let to = self.host.clone();
        network.asked.lock().push(Asked { at, to: address.clone(), request });
        Box::pin(async move {
            // By the clock of the host that asks, as a client does.
            let clock = network.clock(&to);
            let late = PeerError::Deadline { address: address.clone() };
            let asked = answer(&network, (&to, address), request, class, deadline);
            clock.timeout_at(clock.from_wall(deadline), asked).await.unwrap_or(Err(late))
        })
    }
}

async fn answer(
    network: &Network,
    (to, address): (&str, String),
    request: ChunkRequest,
    class: ClassWatch,
    deadline: Instant,
) -> Result<bytes::Bytes, PeerError> {
    let has_link =
        network.links.lock().contains_key(&address) || network.links_in.lock().contains_key(to);
    if !has_link {
        sleep(network.latency).await;
    }
    let fault_mode =
        network.fault_modes.lock().get(&address).copied().unwrap_or(PeerFaultMode::Well);
    let path = network.hosts.lock().get(&address).cloned();
    let refused = |status| PeerError::Refused { address: address.clone(), status };
    let Some(path) = path.filter(|_| fault_mode != PeerFaultMode::Dead) else {
        return Err(no_connection(address, io::ErrorKind::ConnectionRefused));
    };
    match fault_mode {
        PeerFaultMode::Gone => return Err(gone(address).await),
        PeerFaultMode::Stalled => std::future::pending().await,
        PeerFaultMode::Refuses(status) => return Err(refused(status)),
        PeerFaultMode::Slow(delay) => sleep(delay).await,
        PeerFaultMode::Well
        | PeerFaultMode::Dead
        | PeerFaultMode::Lies
        | PeerFaultMode::ShortAnswers => {}
    }
    let bytes = path.serve(request, class, deadline).await.map_err(refused)?;
    if has_link {
        let now = Instant::now();
        let percent = if request.accepts_compressed { COMPRESSED_PERCENT } else { 100 };
        let on_wire = bytes.len() * percent / 100;
        let sent = network.links.lock().get_mut(&address).map(|link| link.carry(on_wire, now));
        let through = network.receive(to, on_wire, sent.unwrap_or(now));
        // One wait in place of two: those of paused time are whole milliseconds.
        sleep_until(through + network.latency).await;
    }
    Ok(match fault_mode {
        PeerFaultMode::Lies => {
            let mut wrong = bytes.to_vec();
            let middle = wrong.len() / 2;
            wrong[middle] ^= 0x10;
            wrong.into()
        }
        PeerFaultMode::ShortAnswers => bytes.slice(1..),
        _ => bytes,
    })
}

async fn gone(address: String) -> PeerError {
    sleep(CONNECT_TIMEOUT).await;
    no_connection(address, io::ErrorKind::TimedOut)
}

fn no_connection(address: String, kind: io::ErrorKind) -> PeerError {
    PeerError::Connect { address, cause: Arc::new(kind.into()) }
}
