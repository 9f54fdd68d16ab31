//! The rendezvous host of one image: it makes one order of what all members miss.

use acstor_peer::PeerStatus;
use acstor_peer::exchange::{Hints, Join, Joined};
use acstor_selection::Moment;
use acstor_selection::exchange::bounds::MEMBER_AGE_MAX;
use acstor_selection::exchange::{HintLog, HostKey, Meeting, Neighbourhood};
use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::exchange::relay::Relay;
use crate::fetch::outcome::HintFate;
use crate::observe::metrics::Metrics;

/// One image's exchange, at its rendezvous host.
pub(super) struct Rendezvous {
    disk: DiskId,
    begun: Moment,
    meeting: Mutex<Meeting>,
    wake: Notify,
}

impl Rendezvous {
    pub(super) fn new(disk: DiskId, neighbourhood: Neighbourhood, now: Moment) -> Rendezvous {
        let epoch = rand::random::<u64>().max(1);
        let meeting = Mutex::new(Meeting::new(epoch, neighbourhood));
        Rendezvous { disk, begun: now, meeting, wake: Notify::new() }
    }

    /// Makes a host a member, or has it go on being one.
    pub(super) fn joined(&self, join: &Join, rack: u64, now: Moment) -> Result<Joined, PeerStatus> {
        let mut meeting = self.meeting.lock();
        let parent = meeting.join(join.host, rack, now).map_err(|_| PeerStatus::Overloaded)?;
        let epoch = meeting.epoch();
        let joined = answer(&meeting.log, (epoch, join), parent);
        if parent.is_none() {
            let told = joined.first + joined.hints.len() as u32;
            if !meeting.log.subscribe(join.host, told, now) {
                return Err(PeerStatus::Overloaded);
            }
        } else {
            // Its place may have changed since it hung here.
            meeting.log.unsubscribe(join.host);
        }
        drop(meeting);
        self.wake.notify_one();
        Ok(joined)
    }

    /// Has a member be told here, since the one on which it hangs does not answer.
    pub(super) fn subscribed(&self, join: &Join, now: Moment) -> Result<Joined, PeerStatus> {
        let mut meeting = self.meeting.lock();
        if join.epoch != meeting.epoch() {
            return Err(PeerStatus::NotFound);
        }
        let joined = subscribe(&mut meeting.log, join, now)?;
        drop(meeting);
        self.wake.notify_one();
        Ok(joined)
    }

    /// Learns what a member misses; `None`: the learning is another one, or the host is no member.
    pub(super) fn learn(&self, hints: &Hints, now: Moment, metrics: &Metrics) -> Option<u32> {
        let mut meeting = self.meeting.lock();
        if hints.epoch != meeting.epoch() {
            return None;
        }
        let chunks: Vec<u32> = hints.hints.iter().map(|hint| hint.chunk).collect();
        let learnt = meeting.learn(hints.sender, &chunks, now)?;
        let known = meeting.log.len();
        drop(meeting);
        metrics.exchange.hints(HintFate::New, learnt.new.into());
        metrics.exchange.hints(HintFate::Repeated, learnt.repeated.into());
        metrics.exchange.hints(HintFate::Refused, learnt.refused.into());
        self.wake.notify_one();
        Some(known)
    }
}

/// Returns the answer to a JOIN out of an order: what the host does not know of it.
pub(super) fn answer(
    log: &HintLog,
    (epoch, join): (u64, &Join),
    parent: Option<HostKey>,
) -> Joined {
    let first = if join.epoch == epoch { join.from.min(log.len()) } else { 0 };
    Joined { epoch, parent, first, total: log.len(), hints: log.since(first).to_vec() }
}

/// Has a host be told an order from now on; answers what it does not know of it.
pub(super) fn subscribe(log: &mut HintLog, join: &Join, now: Moment) -> Result<Joined, PeerStatus> {
    let joined = answer(log, (join.epoch, join), None);
    let told = joined.first + joined.hints.len() as u32;
    if log.subscribe(join.host, told, now) { Ok(joined) } else { Err(PeerStatus::Overloaded) }
}

impl Relay for Rendezvous {
    fn disk(&self) -> DiskId {
        self.disk
    }

    fn with_log<R>(&self, with: impl FnOnce(&mut HintLog) -> R) -> (u64, R) {
        let mut meeting = self.meeting.lock();
        (meeting.epoch(), with(&mut meeting.log))
    }

    fn wake(&self) -> &Notify {
        &self.wake
    }

    fn tend(&self, now: Moment) -> bool {
        let has_members = self.meeting.lock().expire(now);
        !has_members && now.since(self.begun) >= MEMBER_AGE_MAX
    }
}
