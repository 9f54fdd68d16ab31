//! The part of a member: it tells what its guests miss first, and follows what others missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_peer::exchange::{HintRole, Hints, Join, JoinRole, Joined};
use acstor_peer::{PeerError, PeerStatus};
use acstor_runclock::RunClock;
use acstor_selection::exchange::bounds::{BATCH_HINTS, BATCH_WAIT, FRAME_HINTS_MAX, RENEW_AFTER};
use acstor_selection::exchange::{Follower, Hint, HintLog, HintUse, Holders, HostKey, less_loaded};
use acstor_selection::{Backoff, Moment, Touch};
use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::exchange::Exchange;
use crate::exchange::directory::Target;
use crate::exchange::relay::Relay;
use crate::exchange::rendezvous::subscribe;
use crate::fetch::outcome::HintFate;
use crate::fetch::sources::{Sources, Want};
use crate::observe::metrics::Metrics;
use crate::steering::placement::Candidate;
use crate::steering::{jitter, moment};
use crate::view::disk_shape::DiskShape;

/// Misses that wait to be told at most; those beyond are left out.
const MISSES_MAX: usize = 4 * FRAME_HINTS_MAX;
/// Wait after all candidates for the rendezvous host have failed, doubled with each round.
const RETRY: Backoff = Backoff { min: Duration::from_millis(250), max: Duration::from_secs(10) };

/// One image's exchange, at a member.
pub(crate) struct Membership {
    disk: DiskId,
    own: HostKey,
    clock: RunClock,
    follower: Mutex<Follower>,
    holders: Mutex<Holders>,
    learning: Mutex<Learning>,
    misses: Mutex<Misses>,
    /// Told of misses, and of the end.
    changed: Notify,
    /// Told of hints to pass on, and of hearers.
    relay_wake: Notify,
    /// Told of hints to follow.
    follow_wake: Arc<Notify>,
    is_over: AtomicBool,
}

/// The learning in which the member takes part.
#[derive(Debug, Default)]
struct Learning {
    /// 0: none yet.
    epoch: u64,
    log: HintLog,
}

/// Chunks that guests missed and nobody was told of.
#[derive(Debug, Default)]
struct Misses {
    chunks: Vec<u32>,
    since: Option<Instant>,
}

impl Misses {
    /// Time at which they are to be told; `None`: there are none.
    fn due(&self) -> Option<Instant> {
        let since = self.since?;
        Some(if self.chunks.len() < BATCH_HINTS { since + BATCH_WAIT } else { since })
    }
}

impl Membership {
    fn new(exchange: &Exchange, shape: &DiskShape, budget: u64, wake: Arc<Notify>) -> Membership {
        let chunk_bytes = shape.chunk_size.bytes() as u64;
        let follower = Follower::new(shape.chunk_count, chunk_bytes, budget, exchange.own.0);
        Membership {
            disk: shape.disk_id,
            own: exchange.own,
            clock: exchange.clock.clone(),
            follower: Mutex::new(follower),
            holders: Mutex::default(),
            learning: Mutex::default(),
            misses: Mutex::default(),
            changed: Notify::new(),
            relay_wake: Notify::new(),
            follow_wake: wake,
            is_over: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> Moment {
        moment(self.clock.now())
    }

    /// The follower: chunks ordered on hints, and read.
    pub(super) fn follower(&self) -> parking_lot::MutexGuard<'_, Follower> {
        self.follower.lock()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends it: nothing is told and followed any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        self.relay_wake.notify_one();
    }

    /// Notes a read of a guest; a miss of which nobody has told is told.
    pub(super) fn read(&self, chunk: u32) -> Touch {
        let mut follower = self.follower.lock();
        let touch = follower.read(chunk);
        let is_told = touch == Touch::Strange && follower.may_tell();
        drop(follower);
        if is_told {
            let mut misses = self.misses.lock();
            if misses.chunks.len() < MISSES_MAX {
                misses.chunks.push(chunk);
                misses.since.get_or_insert_with(Instant::now);
            }
            drop(misses);
            self.changed.notify_one();
        }
        touch
    }

    /// Takes a part of the order; returns the hints of it that are known now.
    fn take(
        &self,
        (epoch, first): (u64, u32),
        hints: &[Hint],
        sender: Option<HostKey>,
        metrics: &Metrics,
    ) -> Option<u32> {
        let now = self.now();
        let mut learning = self.learning.lock();
        if epoch != learning.epoch {
            return None;
        }
        let known = learning.log.len();
        // What is missing before is sent again.
        let repeated = known.checked_sub(first)? as usize;
        metrics.exchange.hints(HintFate::Repeated, repeated.min(hints.len()) as u64);
        let new = hints.get(repeated..).unwrap_or_default();
        let new: Vec<Hint> =
            new.iter().copied().take_while(|hint| learning.log.follow(*hint, now)).collect();
        let known = learning.log.len();
        drop(learning);
        self.follow(&new, sender, metrics);
        Some(known)
    }

    /// Follows hints, and passes them on.
    fn follow(&self, hints: &[Hint], sender: Option<HostKey>, metrics: &Metrics) {
        if hints.is_empty() {
            return;
        }
        let mut holders = self.holders.lock();
        let mut follower = self.follower.lock();
        for hint in hints {
            if hint.holder == self.own {
                follower.hinted(hint.chunk);
                continue;
            }
            let fate = match follower.hinted(hint.chunk) {
                HintUse::New => HintFate::New,
                HintUse::Repeated => HintFate::Repeated,
                HintUse::Late => HintFate::Late,
                HintUse::Refused => HintFate::Refused,
            };
            metrics.exchange.hints(fate, 1);
            if fate != HintFate::Refused {
                holders.note(hint.chunk, hint.holder);
                sender.into_iter().for_each(|sender| holders.note(hint.chunk, sender));
            }
        }
        drop((follower, holders));
        self.follow_wake.notify_one();
        self.relay_wake.notify_one();
    }

    /// Takes hints that were passed on to this host; `None`: of another learning.
    pub(super) fn heard(&self, hints: &Hints, _now: Moment, metrics: &Metrics) -> Option<u32> {
        let known = {
            let learning = self.learning.lock();
            (learning.epoch == hints.epoch).then(|| learning.log.len())?
        };
        if hints.first > known {
            return Some(known);
        }
        // Who passes it on has it, or will have it in a moment.
        let sender = Some(hints.sender).filter(|sender| *sender != self.own);
        self.take((hints.epoch, hints.first), &hints.hints, sender, metrics)
    }

    /// Passes the order on to a host from now on; `None`: it takes part in another learning.
    pub(super) fn subscribed(
        &self,
        join: &Join,
        now: Moment,
    ) -> Option<Result<Joined, PeerStatus>> {
        let mut learning = self.learning.lock();
        if learning.epoch != join.epoch || join.epoch == 0 || self.is_over() {
            return None;
        }
        let answer = subscribe(&mut learning.log, join, now);
        drop(learning);
        self.relay_wake.notify_one();
        Some(answer)
    }

    /// Takes the answer of a rendezvous host: where its learning is another one, all begins anew.
    fn joined(&self, joined: &Joined, metrics: &Metrics) {
        let mut learning = self.learning.lock();
        if learning.epoch != joined.epoch {
            *learning = Learning { epoch: joined.epoch, log: HintLog::default() };
        }
        drop(learning);
        self.take((joined.epoch, joined.first), &joined.hints, None, metrics);
    }

    /// The learning, and the hints of it that are known.
    fn progress(&self) -> (u64, u32) {
        let learning = self.learning.lock();
        (learning.epoch, learning.log.len())
    }

    /// Waits until misses are to be told, the end, or `until`; returns the misses.
    async fn misses(&self, until: Instant) -> Vec<u32> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let due = self.misses.lock().due();
            let now = Instant::now();
            if due.is_some_and(|due| due <= now) {
                let mut misses = self.misses.lock();
                let count = misses.chunks.len().min(FRAME_HINTS_MAX);
                let chunks = misses.chunks.drain(..count).collect();
                misses.since = (!misses.chunks.is_empty()).then_some(now);
                return chunks;
            }
            if self.is_over() || now >= until {
                return Vec::new();
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(due.map_or(until, |due| due.min(until))) => {}
            }
        }
    }
}

impl Relay for Membership {
    fn disk(&self) -> DiskId {
        self.disk
    }

    fn with_log<R>(&self, with: impl FnOnce(&mut HintLog) -> R) -> (u64, R) {
        let mut learning = self.learning.lock();
        (learning.epoch, with(&mut learning.log))
    }

    fn wake(&self) -> &Notify {
        &self.relay_wake
    }

    fn tend(&self, now: Moment) -> bool {
        self.learning.lock().log.expire(now);
        self.is_over()
    }
}

impl Exchange {
    /// Makes this host a member of the exchange of an image; `None` where there is none, or it is one.
    /// `budget`: bytes that may be ordered and unread. `wake` is told of hints.
    pub(crate) fn begin(
        self: &Arc<Self>,
        shape: &DiskShape,
        budget: u64,
        wake: Arc<Notify>,
    ) -> Option<Arc<Membership>> {
        let is_any = self.neighbourhood.is_some() && self.directory.len() > 1;
        if !is_any || shape.chunk_count > u64::from(u32::MAX) {
            return None;
        }
        let mut memberships = self.memberships.lock();
        if memberships.contains_key(&shape.disk_id) {
            return None;
        }
        let member = Arc::new(Membership::new(self, shape, budget, wake));
        memberships.insert(shape.disk_id, member.clone());
        self.membership_count.store(memberships.len(), Ordering::Relaxed);
        drop(memberships);
        let (exchange, relayed) = (self.clone(), member.clone());
        self.runtime.spawn(async move { exchange.relay(&relayed).await });
        let (exchange, taking) = (self.clone(), member.clone());
        self.runtime.spawn(async move { exchange.take_part(&taking).await });
        Some(member)
    }

    /// Takes part until it is over: joins at the first candidate that answers, tells it what is missed, and
    /// says from time to time that it still takes part.
    async fn take_part(self: &Arc<Self>, member: &Arc<Membership>) {
        let (mut candidate, mut failures) = (0, 0);
        while !member.is_over() {
            let candidates = self.directory.rendezvous(&member.disk);
            let told = match candidates.get(candidate) {
                Some(target) => match self.join_at(member, target).await {
                    Ok(()) => self.attend(member, target).await,
                    Err(error) => Err(error),
                },
                None => {
                    candidate = 0;
                    let wait = sleep(RETRY.delay(failures, jitter()));
                    failures += 1;
                    tokio::select! {
                        () = wait => {}
                        () = member.changed.notified() => {}
                    }
                    continue;
                }
            };
            match told {
                // All members come back to the first in line that answers.
                Ok(()) => (candidate, failures) = (0, 0),
                Err(error) => {
                    tracing::debug!(disk = %member.disk, %error, "a rendezvous host is left");
                    candidate += 1;
                }
            }
        }
        let mut memberships = self.memberships.lock();
        memberships.remove(&member.disk);
        self.membership_count.store(memberships.len(), Ordering::Relaxed);
    }

    /// Joins at a rendezvous host, learns the order so far, and hangs on the member that it names.
    async fn join_at(
        self: &Arc<Self>,
        member: &Membership,
        target: &Target,
    ) -> Result<(), PeerError> {
        let parent = loop {
            let (epoch, from) = member.progress();
            let role = JoinRole::Rendezvous;
            let join = Join { disk_id: member.disk, epoch, host: self.own, from, role };
            let joined = self.ask(target, join).await?;
            member.joined(&joined, &self.metrics);
            let is_behind = member.progress().1 < joined.total;
            if !is_behind || joined.hints.is_empty() || member.is_over() {
                break joined.parent;
            }
        };
        let Some(parent) = parent.filter(|parent| *parent != self.own) else { return Ok(()) };
        let (epoch, from) = member.progress();
        let role = JoinRole::Member;
        let join = Join { disk_id: member.disk, epoch, host: self.own, from, role };
        let asked = match self.directory.host(parent) {
            Some(above) => self.ask(&above, join).await.ok(),
            None => None,
        };
        let joined = match asked {
            Some(joined) => joined,
            // It has left, or has enough of them.
            None => self.ask(target, join).await?,
        };
        member.take((joined.epoch, joined.first), &joined.hints, None, &self.metrics);
        Ok(())
    }

    /// Tells a rendezvous host what is missed, until it is time to join again.
    async fn attend(
        self: &Arc<Self>,
        member: &Membership,
        target: &Target,
    ) -> Result<(), PeerError> {
        // With jitter, lest a storm renews in step.
        let until = Instant::now() + RENEW_AFTER.mul_f64(0.75 + jitter() / 4.0);
        loop {
            let chunks = member.misses(until).await;
            if chunks.is_empty() {
                return Ok(());
            }
            let hints = chunks.into_iter().map(|chunk| Hint { chunk, holder: self.own }).collect();
            let (epoch, _) = member.progress();
            let (disk_id, sender, role) = (member.disk, self.own, HintRole::Misses);
            let hints = Hints { disk_id, epoch, sender, first: 0, role, hints };
            self.tell(target, hints).await?;
        }
    }

    /// Returns a host that was told to have a chunk, where this host waits for less from it than from the
    /// owner: the better of two by what is outstanding, and the owner of equal ones.
    pub(crate) fn holder(
        &self,
        sources: &Sources,
        want: &Want,
        owner: &Candidate,
    ) -> Option<Candidate> {
        let member = self.membership(&want.disk)?;
        let chunk = u32::try_from(want.index).ok()?;
        let keys: Vec<HostKey> = member.holders.lock().of(chunk).collect();
        let peers = &sources.steering.peers;
        let outstanding = |candidate: &Candidate| {
            let max = sources.config.peer_inflight_max;
            max.saturating_sub(candidate.peer.permits.available_permits())
        };
        let is_other = |target: &Target| target.key != self.own && *target.name != *owner.peer.name;
        let holders: Vec<Candidate> = keys
            .into_iter()
            .filter_map(|key| self.directory.host(key))
            .filter(|target| is_other(target) && self.directory.is_near(target, sources))
            .map(|target| Candidate { peer: peers.get(&target.name), address: target.address })
            .collect();
        let loads: Vec<usize> = holders.iter().map(outstanding).collect();
        let holder = holders.get(less_loaded(&loads)?)?;
        let is_better = less_loaded(&[outstanding(owner), outstanding(holder)]) == Some(1);
        is_better.then(|| holder.clone())
    }
}
