//! Collective content exchange: hints of what hosts that boot one image at once miss.
//!
//! The pieces are pure ([`acstor_selection::exchange`]); here are their locks, tasks and messages. A host
//! plays up to three parts for an image. As a *member* ([`membership`]) it tells its first misses and reads
//! ahead along what others missed. As a *relay* ([`relay`]) it passes the order on to those that hang on it.
//! As the *rendezvous host* ([`rendezvous`]) it makes the order. All of it is advice: no read waits for it,
//! and whatever fails is left to what a read does anyway.

mod directory;
pub(crate) mod hint_window;
pub(crate) mod membership;
mod relay;
mod rendezvous;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_peer::exchange::{HintRole, Hints, Join, JoinRole, Joined};
use acstor_peer::{PeerError, PeerStatus};
use acstor_ring::RingHandle;
use acstor_runclock::RunClock;
use acstor_selection::Moment;
use acstor_selection::exchange::{HostKey, Neighbourhood};
use acstor_types::{DiskId, Oid};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::exchange::directory::{Directory, Target};
use crate::exchange::membership::Membership;
use crate::exchange::rendezvous::Rendezvous;
use crate::fetch::outcome::{HintFate, JoinFate};
use crate::observe::metrics::Metrics;
use crate::steering::moment;
use crate::{PeerSource, ReadPathConfig, limits};

/// The part of one host in the exchanges of all images.
pub(crate) struct Exchange {
    own: HostKey,
    /// Order in which hints are passed on; `None`: this host takes part in no exchange.
    neighbourhood: Option<Neighbourhood>,
    directory: Directory,
    peers: Arc<dyn PeerSource>,
    clock: RunClock,
    runtime: Handle,
    metrics: Arc<Metrics>,
    memberships: Mutex<HashMap<DiskId, Arc<Membership>>>,
    /// Number of them: only where there are any does a fetch have to look.
    membership_count: AtomicUsize,
    meetings: Mutex<HashMap<DiskId, Arc<Rendezvous>>>,
}

impl Exchange {
    pub(crate) fn new(
        config: &ReadPathConfig,
        rings: Arc<RingHandle>,
        peers: Arc<dyn PeerSource>,
        clock: RunClock,
        runtime: Handle,
        metrics: Arc<Metrics>,
    ) -> Exchange {
        Exchange {
            own: HostKey(Oid::host_number(&config.host)),
            neighbourhood: config.exchange,
            directory: Directory::new(rings),
            peers,
            clock,
            runtime,
            metrics,
            memberships: Mutex::default(),
            membership_count: AtomicUsize::new(0),
            meetings: Mutex::default(),
        }
    }

    fn now(&self) -> Moment {
        moment(self.clock.now())
    }

    /// Returns the part of this host in the exchange of a disk, where it is a member. One relaxed load
    /// where it is none of any.
    pub(crate) fn membership(&self, disk: &DiskId) -> Option<Arc<Membership>> {
        if self.membership_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.memberships.lock().get(disk).cloned()
    }

    /// Exchanges in which this host is a member, and those of which it is the rendezvous host.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.memberships.lock().len(), self.meetings.lock().len())
    }

    /// Answers a host that wants to take part.
    ///
    /// # Errors
    /// The status with which it is refused.
    pub(crate) fn answer_join(self: &Arc<Self>, join: &Join) -> Result<Joined, PeerStatus> {
        let answer = self.joined(join);
        let fate = if answer.is_ok() { JoinFate::Served } else { JoinFate::Refused };
        self.metrics.exchange.joins(fate);
        answer
    }

    fn joined(self: &Arc<Self>, join: &Join) -> Result<Joined, PeerStatus> {
        let Some(neighbourhood) = self.neighbourhood else {
            return Err(PeerStatus::Unsupported);
        };
        let rack = self.directory.rack(join.host).ok_or(PeerStatus::Invalid)?;
        let now = self.now();
        if join.role == JoinRole::Member {
            if let Some(member) = self.membership(&join.disk_id)
                && let Some(answer) = member.subscribed(join, now)
            {
                return answer;
            }
            let meeting = self.meetings.lock().get(&join.disk_id).cloned();
            return meeting.ok_or(PeerStatus::NotFound)?.subscribed(join, now);
        }
        if !self.directory.is_rendezvous(&join.disk_id, self.own) {
            return Err(PeerStatus::NotFound);
        }
        self.meeting(join.disk_id, neighbourhood)?.joined(join, rack, now)
    }

    /// Returns the exchange of which this host is the rendezvous host, begun where there is none.
    fn meeting(
        self: &Arc<Self>,
        disk: DiskId,
        neighbourhood: Neighbourhood,
    ) -> Result<Arc<Rendezvous>, PeerStatus> {
        let mut meetings = self.meetings.lock();
        if let Some(meeting) = meetings.get(&disk) {
            return Ok(meeting.clone());
        }
        if meetings.len() >= limits::MEETINGS_MAX {
            return Err(PeerStatus::Overloaded);
        }
        let meeting = Arc::new(Rendezvous::new(disk, neighbourhood, self.now()));
        meetings.insert(disk, meeting.clone());
        drop(meetings);
        let (exchange, relayed) = (self.clone(), meeting.clone());
        self.runtime.spawn(async move {
            exchange.relay(&relayed).await;
            exchange.meetings.lock().remove(&disk);
        });
        Ok(meeting)
    }

    /// Takes hints of another host; returns the hints of the order that this host knows.
    ///
    /// # Errors
    /// The status with which they are refused.
    pub(crate) fn take_hints(&self, hints: &Hints) -> Result<u32, PeerStatus> {
        let now = self.now();
        let taken = match hints.role {
            HintRole::Misses => {
                let meeting = self.meetings.lock().get(&hints.disk_id).cloned();
                meeting.and_then(|meeting| meeting.learn(hints, now, &self.metrics))
            }
            HintRole::Order => self
                .membership(&hints.disk_id)
                .and_then(|member| member.heard(hints, now, &self.metrics)),
        };
        if taken.is_none() {
            self.metrics.exchange.hints(HintFate::Strange, hints.hints.len() as u64);
        }
        taken.ok_or(PeerStatus::NotFound)
    }

    /// Asks a host to have this one take part.
    async fn ask(self: &Arc<Self>, target: &Target, join: Join) -> Result<Joined, PeerError> {
        let answer = if target.key == self.own {
            self.answer_join(&join).map_err(|status| refused(target, status))
        } else {
            let deadline = Instant::now() + limits::EXCHANGE_ANSWER_MAX;
            self.peers.join(&target.address, join, deadline).await
        };
        let fate = if answer.is_ok() { JoinFate::Joined } else { JoinFate::Failed };
        self.metrics.exchange.joins(fate);
        answer
    }

    /// Sends hints to a host; returns the hints of the order that it knows.
    async fn tell(&self, target: &Target, hints: Hints) -> Result<u32, PeerError> {
        let count = hints.hints.len() as u64;
        let told = if target.key == self.own {
            self.take_hints(&hints).map_err(|status| refused(target, status))
        } else {
            let deadline = Instant::now() + limits::EXCHANGE_ANSWER_MAX;
            self.peers.hint(&target.address, hints, deadline).await
        };
        if told.is_ok() {
            self.metrics.exchange.hints(HintFate::Sent, count);
        }
        told
    }
}

fn refused(target: &Target, status: PeerStatus) -> PeerError {
    PeerError::Refused { address: target.address.to_string(), status }
}
