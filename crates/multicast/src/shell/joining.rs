//! Joining a session, and listening to it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use acstor_types::{ChunkSize, Digest, DiskId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::group_socket::GroupConfig;
use super::network::Network;
use super::receiving::{Finish, Membership, ReportFuture, receive};
use super::totals::Totals;
use crate::ShardLayout;
use crate::limits::MESSAGE_LEN_MAX;
use crate::receiver::{DueReport, Receiver, ReceiverConfig};
use crate::wire::{Grant, Message};

/// Answer of a sender; `None`: it refuses, or cannot be reached.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Option<[u8; MESSAGE_LEN_MAX]>> + Send>>;

/// Way to the host that sends a session; the implementation bounds the time.
pub trait SenderLink: Send + Sync + 'static {
    /// Sends it a message.
    fn ask(&self, message: [u8; MESSAGE_LEN_MAX]) -> AnswerFuture;

    /// Returns the share of this host's link in use; `None` where it is not known.
    fn link_used(&self) -> Option<f64>;
}

/// A chunk that came: its index, its digest, its content.
pub type HeardChunk = (u64, Digest, Bytes);

/// Request of a host to hear a part of a disk.
#[derive(Debug)]
pub struct ListenRequest {
    /// The disk.
    pub disk: DiskId,
    /// Code of the part.
    pub what: u8,
    /// Size of this host's chunks.
    pub chunk_size: ChunkSize,
    /// Chunks that are missing here.
    pub missing: HashMap<u64, Digest>,
    /// The group that this host may listen to, and its way to it.
    pub group: GroupConfig,
}

/// Joins the session of the sender behind `link`, and passes its chunks on until nothing more is to be had.
///
/// Returns the reason, or `None` where there is no session to join. A chunk for which `chunks` has no room
/// is dropped, and fetched later.
pub async fn listen(
    link: Arc<impl SenderLink>,
    request: ListenRequest,
    network: &impl Network,
    (chunks, totals): (mpsc::Sender<HeardChunk>, &Totals),
) -> Option<Finish> {
    let ListenRequest { disk, what, chunk_size, missing, group } = request;
    let join = Message::Join { disk, what, chunk_size }.encode_filled();
    let answer = link.ask(join).await?;
    let Ok(Message::Grant(grant)) = Message::decode_filled(&answer) else { return None };
    // Not wherever another host says, but where the operator of this one lets it listen.
    if grant.chunk_size != chunk_size || grant.group != group.group {
        tracing::warn!(theirs = %grant.group, ours = %group.group, "another multicast group");
        return None;
    }
    let socket = match network.receiver(&group) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a multicast session cannot be heard");
            leave(&*link, &grant).await;
            return None;
        }
    };
    let zero = Instant::now();
    let receiver = receiver(&grant, missing);
    let (session, member) = (grant.session, grant.member);
    let membership = Joined { link: link.clone(), session, member, chunks };
    let stats = Mutex::default();
    let finish = receive(receiver, (socket, zero), membership, |now| *stats.lock() = now).await;
    totals.finished(&stats.into_inner(), finish);
    if !matches!(finish, Finish::Sent | Finish::Ended) {
        leave(&*link, &grant).await;
    }
    Some(finish)
}

fn receiver(grant: &Grant, missing: HashMap<u64, Digest>) -> Receiver {
    Receiver::new(ReceiverConfig {
        session: grant.session,
        member: grant.member,
        key: grant.key.clone(),
        layout: ShardLayout::new(grant.chunk_size, grant.has_parity),
        missing,
        starts_at: grant.starts_in.min(crate::limits::JOIN_WINDOW),
    })
}

async fn leave(link: &impl SenderLink, grant: &Grant) {
    let message = Message::Leave { session: grant.session, member: grant.member };
    let _ = link.ask(message.encode_filled()).await;
}

/// A host that has joined.
struct Joined<L> {
    link: Arc<L>,
    session: u64,
    member: u32,
    chunks: mpsc::Sender<HeardChunk>,
}

impl<L: SenderLink> Membership for Joined<L> {
    fn report(&self, report: DueReport) -> ReportFuture {
        let (DueReport { epoch, packets }, link_used) = (report, self.link.link_used());
        let Joined { session, member, .. } = *self;
        let report = Message::Report { session, member, epoch, packets, link_used };
        let answer = self.link.ask(report.encode_filled());
        Box::pin(async move {
            match Message::decode_filled(&answer.await?) {
                Ok(Message::News { news, .. }) => Some(news),
                _ => None,
            }
        })
    }

    fn keep(&self, index: u64, digest: Digest, bytes: Bytes) {
        // A full queue: it is fetched later.
        let _ = self.chunks.try_send((index, digest, bytes));
    }
}
