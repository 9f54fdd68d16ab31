//! The sessions that a host sends, made by the first that wants to join and found by the others.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use acstor_types::{ChunkSize, DiskId};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::group_socket::GroupConfig;
use super::network::Network;
use super::sending::{ChunkSource, SharedSender, send};
use super::totals::Totals;
use crate::ShardLayout;
use crate::limits::{DEAF_PAUSE, ENDED_KEPT, JOIN_WINDOW, MESSAGE_LEN_MAX, SESSIONS_MAX};
use crate::sender::{Sender, SenderConfig, SessionEnd};
use crate::wire::{Grant, Message, SessionKey};

/// Chunks of a disk in the order in which they are sent, and the way to them; `None`: it is not here.
pub type OpenFuture<S> = Pin<Box<dyn Future<Output = Option<(Vec<u64>, S)>> + Send>>;

/// Disks of a host, as far as it sends them.
pub trait Disks: Send + Sync + 'static {
    /// Way to the chunks of one.
    type Source: ChunkSource;

    /// Returns whether a disk is here, and `what` is a part that a preload may bring; from memory.
    fn has(&self, disk: &DiskId, what: u8) -> bool;

    /// Opens a part of a disk.
    fn open(&self, disk: DiskId, what: u8) -> OpenFuture<Self::Source>;
}

/// Reason why a message is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is none that a sender takes.
    Invalid,
    /// No such disk, session or member; or multicast has been found not to work.
    NotFound,
    /// As many sessions or members as there may be.
    Overloaded,
}

/// Setting of a hub.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The group, and the way to it.
    pub group: GroupConfig,
    /// Size of this host's chunks.
    pub chunk_size: ChunkSize,
    /// Bytes per second of this host's link.
    pub link_bytes_per_s: u64,
    /// Most bytes per second of a session.
    pub rate_max: u64,
}

struct Session {
    disk: DiskId,
    what: u8,
    key: SessionKey,
    sender: Arc<SharedSender>,
    ended_at: Option<Duration>,
}

#[derive(Default)]
struct Sessions {
    by_name: HashMap<u64, Session>,
    deaf_at: Option<Duration>,
}

/// Sessions that a host sends.
pub struct Hub<D, N> {
    config: HubConfig,
    disks: D,
    network: N,
    runtime: Handle,
    zero: Instant,
    sessions: Mutex<Sessions>,
    totals: Arc<Totals>,
}

impl<D: Disks, N: Network> Hub<D, N> {
    /// Returns a hub without sessions; they run on `runtime`.
    pub fn new(
        config: HubConfig,
        (disks, network): (D, N),
        runtime: Handle,
        totals: Arc<Totals>,
    ) -> Arc<Hub<D, N>> {
        let (zero, sessions) = (Instant::now(), Mutex::default());
        Arc::new(Hub { config, disks, network, runtime, zero, sessions, totals })
    }

    /// Answers a message from a host, from memory.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn answer(
        self: &Arc<Self>,
        host: IpAddr,
        message: &[u8; MESSAGE_LEN_MAX],
    ) -> Result<[u8; MESSAGE_LEN_MAX], Refusal> {
        let answer = match Message::decode_filled(message).map_err(|_| Refusal::Invalid)? {
            Message::Join { disk, what, chunk_size } if chunk_size == self.config.chunk_size => {
                Message::Grant(Box::new(self.join(host, disk, what)?))
            }
            Message::Report { session, member, epoch, packets, link_used } => {
                let sender = self.sender(session)?;
                sender.with(|sender, _| {
                    sender.report((host, member), (epoch, packets), link_used);
                    let (news, epoch) = sender.news();
                    Message::News { news, epoch }
                })
            }
            Message::Leave { session, member } => {
                let sender = self.sender(session)?;
                sender.with(|sender, _| {
                    sender.leave(host, member);
                    let (news, epoch) = sender.news();
                    Message::News { news, epoch }
                })
            }
            Message::Join { .. } | Message::Grant(_) | Message::News { .. } => {
                return Err(Refusal::Invalid);
            }
        };
        Ok(answer.encode_filled())
    }

    /// Ends every session.
    pub fn stop(&self) {
        for session in self.sessions.lock().by_name.values() {
            session.sender.with(|sender, _| sender.stop(SessionEnd::Stopped));
        }
    }

    /// Number of sessions that have not ended.
    pub fn sessions(&self) -> usize {
        let sessions = self.sessions.lock();
        sessions.by_name.values().filter(|session| session.ended_at.is_none()).count()
    }

    fn sender(&self, session: u64) -> Result<Arc<SharedSender>, Refusal> {
        let sessions = self.sessions.lock();
        let session = sessions.by_name.get(&session).ok_or(Refusal::NotFound)?;
        Ok(session.sender.clone())
    }

    fn join(self: &Arc<Self>, host: IpAddr, disk: DiskId, what: u8) -> Result<Grant, Refusal> {
        if !self.disks.has(&disk, what) {
            return Err(Refusal::NotFound);
        }
        let now = self.zero.elapsed();
        let mut sessions = self.sessions.lock();
        sessions.by_name.retain(|_, session| {
            session.ended_at.is_none_or(|ended_at| now.saturating_sub(ended_at) < ENDED_KEPT)
        });
        if sessions.deaf_at.is_some_and(|deaf_at| now.saturating_sub(deaf_at) < DEAF_PAUSE) {
            return Err(Refusal::NotFound);
        }
        let joinable = |session: &&Session| {
            (session.disk, session.what) == (disk, what) && session.ended_at.is_none()
        };
        let known = sessions.by_name.iter().find(|(_, session)| joinable(session));
        let name = match known {
            Some((name, _)) => *name,
            None => self.begin(&mut sessions, disk, what, now)?,
        };
        let session = sessions.by_name.get(&name).ok_or(Refusal::NotFound)?;
        self.grant(name, session, host)
    }

    fn grant(&self, name: u64, session: &Session, host: IpAddr) -> Result<Grant, Refusal> {
        let joined = session
            .sender
            .with(|sender, now| Some((sender.join(host)?, sender.starts_at().saturating_sub(now))));
        let (member, starts_in) = joined.ok_or(Refusal::Overloaded)?;
        Ok(Grant {
            session: name,
            member,
            key: session.key.clone(),
            group: self.config.group.group,
            chunk_size: self.config.chunk_size,
            has_parity: true,
            starts_in,
        })
    }

    /// Makes a session and has it run; returns its name.
    fn begin(
        self: &Arc<Self>,
        sessions: &mut Sessions,
        disk: DiskId,
        what: u8,
        now: Duration,
    ) -> Result<u64, Refusal> {
        let running = sessions.by_name.values().filter(|session| session.ended_at.is_none());
        if running.count() >= SESSIONS_MAX {
            return Err(Refusal::Overloaded);
        }
        let (Some(name), Some(key)) = (draw_name(), SessionKey::draw()) else {
            return Err(Refusal::Overloaded);
        };
        let sender = Sender::new(SenderConfig {
            session: name,
            key: key.clone(),
            layout: ShardLayout::new(self.config.chunk_size, true),
            link_bytes_per_s: self.config.link_bytes_per_s,
            rate_max: self.config.rate_max,
            chunks: Vec::new(),
            starts_at: now + JOIN_WINDOW,
        });
        let sender = SharedSender::new(sender, self.zero);
        let session = Session { disk, what, key, sender: sender.clone(), ended_at: None };
        sessions.by_name.insert(name, session);
        let hub = self.clone();
        self.runtime.spawn(async move {
            let end = hub.run(disk, what, sender.clone()).await;
            hub.ended(name, &sender, end);
        });
        Ok(name)
    }

    async fn run(&self, disk: DiskId, what: u8, sender: Arc<SharedSender>) -> SessionEnd {
        let Some((chunks, source)) = self.disks.open(disk, what).await else {
            sender.with(|sender, _| sender.stop(SessionEnd::Stopped));
            return SessionEnd::Stopped;
        };
        sender.with(|sender, _| sender.set_chunks(chunks));
        match self.network.sender(&self.config.group) {
            Ok(socket) => send(sender, socket, source).await,
            Err(error) => {
                tracing::warn!(%error, "a multicast session cannot begin");
                sender.with(|sender, _| sender.stop(SessionEnd::Stopped));
                SessionEnd::Stopped
            }
        }
    }

    fn ended(&self, name: u64, sender: &SharedSender, end: SessionEnd) {
        let stats = sender.with(|sender, _| sender.stats());
        self.totals.ended(&stats, end);
        let (packets, chunks, members) = (stats.packets, stats.chunks, stats.members);
        tracing::info!(end = end.as_str(), packets, chunks, members, "a multicast session ended");
        let now = self.zero.elapsed();
        let mut sessions = self.sessions.lock();
        if end == SessionEnd::Deaf {
            sessions.deaf_at = Some(now);
        }
        if let Some(session) = sessions.by_name.get_mut(&name) {
            session.ended_at = Some(now);
        }
    }
}

impl<D, N> std::fmt::Debug for Hub<D, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("config", &self.config).finish_non_exhaustive()
    }
}

fn draw_name() -> Option<u64> {
    let mut name = [0; 8];
    SystemRandom::new().fill(&mut name).ok()?;
    Some(u64::from_le_bytes(name))
}
