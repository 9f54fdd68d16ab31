//! Single-flight: one effort per digest, shared by the guests of this host and by its peers.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use acstor_peer::{ClassWatch, PeerStatus, Promoter};
use acstor_runclock::{RunClock, RunInstant};
use acstor_types::{Digest, ErrorKind, RequestClass};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fetch::sources::Want;
use crate::view::disk::Disk;
use crate::view::disk_map::MapFault;
use crate::{Tier, limits};

/// A chunk and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Obtained {
    /// Verified.
    pub(crate) bytes: Bytes,
    pub(crate) tier: Tier,
    /// Name of the peer.
    pub(crate) peer: Option<Arc<str>>,
}

/// Reason for which a flight brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightFailure {
    /// Its deadline passed.
    Deadline,
    /// Every source sent other content.
    Corrupt,
    /// The origin does not have it.
    Missing,
    /// No source answers.
    Unavailable,
    /// The sources refuse because of load.
    Overloaded,
    /// The read path is stopped.
    Stopped,
    /// A fault of this program.
    Internal,
}

impl FlightFailure {
    /// Returns whether another round may bring the chunk. Missing content may have moved: the
    /// manifest that says where to may come while the read waits. What is missing may have moved:
    /// the manifest that says where to may come while the read waits.
    pub(crate) fn may_pass(self) -> bool {
        self.is_absence() || self == FlightFailure::Missing
    }

    /// Returns whether the sources are away or refuse, for the time being.
    pub(crate) fn is_absence(self) -> bool {
        matches!(self, FlightFailure::Unavailable | FlightFailure::Overloaded)
    }

    /// Returns the status that a peer is told.
    pub(crate) fn status(self) -> PeerStatus {
        match self {
            FlightFailure::Deadline => PeerStatus::Expired,
            FlightFailure::Missing => PeerStatus::NotFound,
            FlightFailure::Stopped => PeerStatus::ShuttingDown,
            FlightFailure::Corrupt => ErrorKind::Corrupt.into(),
            FlightFailure::Unavailable => ErrorKind::Unavailable.into(),
            FlightFailure::Overloaded => ErrorKind::Overloaded.into(),
            FlightFailure::Internal => ErrorKind::Internal.into(),
        }
    }
}

/// Priority of a chunk: that of the most urgent requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// A preload. It decides itself whether to try again: one round, behind everybody else.
    Preload,
    /// A preload of a peer.
    PeerPreload,
    /// A guess that a sequential reader goes on: one attempt.
    Prefetch,
    /// Read-ahead along the profile of a boot: one attempt, with memory of its own.
    Ahead,
    /// Read-ahead of a peer.
    PeerAhead,
    /// A peer for which a guest waits. It decides itself what to do when this host fails: one round, no
    /// retries.
    Peer,
    /// A guest of this host: retries until the deadline.
    Guest,
}

impl Priority {
    /// Priority of a request of a peer.
    pub(crate) fn of_peer(class: RequestClass) -> Priority {
        match class {
            RequestClass::Demand => Priority::Peer,
            RequestClass::Ahead => Priority::PeerAhead,
            RequestClass::Preload => Priority::PeerPreload,
        }
    }

    /// Class in which other hosts are asked.
    pub(crate) fn class(self) -> RequestClass {
        match self {
            Priority::Preload | Priority::PeerPreload => RequestClass::Preload,
            Priority::Prefetch | Priority::Ahead | Priority::PeerAhead => RequestClass::Ahead,
            Priority::Peer | Priority::Guest => RequestClass::Demand,
        }
    }

    /// Returns whether somebody waits for the chunk this very moment.
    pub(crate) fn is_demand(self) -> bool {
        self >= Priority::Peer
    }

    /// Returns whether nobody but this host's own guess asks for the chunk.
    pub(crate) fn is_guess(self) -> bool {
        matches!(self, Priority::Prefetch | Priority::Ahead)
    }

    /// Returns whether a peer asks, which is never sent on to another.
    pub(crate) fn is_of_peer(self) -> bool {
        matches!(self, Priority::PeerPreload | Priority::PeerAhead | Priority::Peer)
    }

    /// Returns whether who asks may take it back before the chunk has come.
    fn is_revocable(self) -> bool {
        !self.is_demand() && self != Priority::Preload
    }
}

pub(crate) type Outcome = Result<Obtained, FlightFailure>;

/// One effort to obtain a chunk.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) digest: Digest,
    clock: RunClock,
    /// Class in which the sources are asked: it follows the priority while they are.
    class: Promoter,
    demand: Mutex<Demand>,
    places: Mutex<Vec<Place>>,
    /// Last answer of a source, where a deadline that passes should not hide it.
    verdict: Mutex<Option<FlightFailure>>,
    changed: Notify,
    demanded: Notify,
    outcome: OnceLock<(Instant, Outcome)>,
    done: Notify,
}

/// A chunk of an attached disk whose content a flight is after. The disk says at each moment where
/// in the origin it is.
#[derive(Clone, Debug)]
struct Place {
    disk: Arc<Disk>,
    /// As the manifest had it when it was last read.
    want: Want,
}

/// Demand of those who wait; only grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Time at which the last of them stops waiting.
    pub(crate) deadline: RunInstant,
    pub(crate) priority: Priority,
    /// A peer waits: the origin must be asked now even while another peer is being asked. Two
    /// hosts whose rings disagree would otherwise wait for each other.
    pub(crate) origin_now: bool,
    /// A preload of this host is among them.
    is_preloaded: bool,
    /// Those who may take it back, and have not.
    revocable: u32,
    /// Nobody waits and nobody will.
    pub(crate) is_cancelled: bool,
}

impl Demand {
    /// Returns whether somebody else than those who may take it back asks for the chunk.
    fn is_firm(&self) -> bool {
        self.priority.is_demand() || self.is_preloaded
    }
}

impl Flight {
    fn new(digest: Digest, clock: RunClock, priority: Priority, deadline: RunInstant) -> Flight {
        let demand = Demand {
            deadline,
            priority,
            origin_now: priority.is_of_peer(),
            is_preloaded: priority == Priority::Preload,
            revocable: u32::from(priority.is_revocable()),
            is_cancelled: false,
        };
        Flight {
            digest,
            clock,
            class: Promoter::new(priority.class()),
            demand: Mutex::new(demand),
            places: Mutex::default(),
            verdict: Mutex::default(),
            changed: Notify::new(),
            demanded: Notify::new(),
            outcome: OnceLock::new(),
            done: Notify::new(),
        }
    }

    fn join(&self, priority: Priority, deadline: RunInstant) {
        let mut demand = self.demand.lock();
        demand.revocable += u32::from(priority.is_revocable());
        demand.is_preloaded |= priority == Priority::Preload;
        self.raise(demand, priority, deadline);
    }

    /// Promotes somebody who waits already.
    pub(crate) fn promote(&self, priority: Priority, deadline: RunInstant) {
        self.raise(self.demand.lock(), priority, deadline);
    }

    fn raise(&self, mut demand: MutexGuard<'_, Demand>, priority: Priority, deadline: RunInstant) {
        demand.priority = demand.priority.max(priority);
        demand.deadline = demand.deadline.max(deadline);
        demand.origin_now |= priority.is_of_peer();
        demand.is_cancelled = false;
        drop(demand);
        self.class.promote(priority.class());
        self.changed.notify_one();
        if priority.is_demand() {
            self.demanded.notify_waiters();
        }
    }

    /// Takes back the wish of one who may; gives the flight up where nobody else wants the chunk.
    pub(crate) fn revoke(&self) {
        let mut demand = self.demand.lock();
        demand.revocable = demand.revocable.saturating_sub(1);
        if demand.revocable == 0 && !demand.is_firm() {
            demand.is_cancelled = true;
            drop(demand);
            self.changed.notify_one();
        }
    }

    /// The class in which the sources are asked, and its promotions from now on.
    pub(crate) fn class(&self) -> ClassWatch {
        self.class.watch()
    }

    /// Notes that a chunk of `disk` has this content too.
    pub(crate) fn add_place(&self, disk: &Arc<Disk>, want: &Want) {
        let mut places = self.places.lock();
        let is_known = places.iter().any(|place| Arc::ptr_eq(&place.disk, disk));
        if !is_known && places.len() < limits::FLIGHT_PLACES_MAX {
            places.push(Place { disk: disk.clone(), want: *want });
        }
    }

    /// Returns the places of which the manifests of this moment say nothing without this host's disk.
    pub(crate) fn unknown_places(&self) -> Vec<(Arc<Disk>, u64)> {
        let places = self.places.lock();
        let unknown = places.iter().filter(|place| {
            matches!(place.disk.want_at_hand(place.want.index), Err(MapFault::Missing))
        });
        unknown.map(|place| (place.disk.clone(), place.want.index)).collect()
    }

    /// Notes what the manifest of a place says now.
    pub(crate) fn renew_place(&self, disk: &Arc<Disk>, want: &Want) {
        let mut places = self.places.lock();
        let known = places.iter_mut().find(|place| Arc::ptr_eq(&place.disk, disk));
        known.into_iter().for_each(|place| place.want = *want);
    }

    /// Returns the chunk's places, as the manifests of this moment have them, or had them where their
    /// pages are not in memory.
    pub(crate) fn wants(&self) -> Vec<Want> {
        let places = self.places.lock();
        let wants = places.iter().filter_map(|place| {
            place.disk.want_at_hand(place.want.index).unwrap_or(Some(place.want))
        });
        wants.filter(|want| want.digest == self.digest).collect()
    }

    /// Notes what those are to be told who wait until their deadline.
    pub(crate) fn note_verdict(&self, verdict: Option<FlightFailure>) {
        *self.verdict.lock() = verdict;
    }

    /// Returns the reason for which those who waited until their deadline got nothing.
    pub(crate) fn verdict(&self) -> FlightFailure {
        self.verdict.lock().unwrap_or(FlightFailure::Deadline)
    }

    /// Returns the demand of those who wait now.
    pub(crate) fn demand(&self) -> Demand {
        *self.demand.lock()
    }

    /// Waits until the demand may have changed; for the one task that drives the flight.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until a guest or a peer waits for the chunk.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(crate) async fn demanded(&self) {
        let demanded = self.demanded.notified();
        tokio::pin!(demanded);
        demanded.as_mut().enable();
        if !self.demand().priority.is_demand() {
            demanded.await;
        }
    }

    /// Waits for the outcome, at most until `deadline`.
    ///
    /// # Cancel safety
    /// Dropping it abandons this wait only.
    pub(crate) async fn wait(&self, deadline: RunInstant) -> Outcome {
        let done = self.done.notified();
        tokio::pin!(done);
        done.as_mut().enable();
        if let Some((_, outcome)) = self.outcome.get() {
            return outcome.clone();
        }
        tokio::select! {
            () = &mut done => {}
            () = self.clock.sleep_until(deadline) => {}
        }
        // The outcome counts even where both happened at once.
        match self.outcome.get() {
            Some((_, outcome)) => outcome.clone(),
            None => Err(self.verdict()),
        }
    }

    /// Returns the time of the outcome; now where there is none.
    pub(crate) fn ended(&self) -> Instant {
        self.outcome.get().map_or_else(Instant::now, |(at, _)| *at)
    }
}

/// Result of [`FlightTable::join_or_start`].
#[derive(Debug)]
pub(crate) enum JoinOrStart {
    /// Somebody's effort is under way.
    Joined(Arc<Flight>),
    /// The caller must drive this one.
    Leader(Arc<Flight>),
}

const SHARDS: usize = 16;

/// The flights under way.
#[derive(Debug)]
pub(crate) struct FlightTable {
    shards: [Mutex<HashMap<Digest, Arc<Flight>>>; SHARDS],
    /// By which those who wait are late.
    clock: RunClock,
}

impl FlightTable {
    pub(crate) fn new(clock: RunClock) -> FlightTable {
        FlightTable { shards: std::array::from_fn(|_| Mutex::default()), clock }
    }

    fn shard(&self, digest: &Digest) -> &Mutex<HashMap<Digest, Arc<Flight>>> {
        &self.shards[digest.prefix_u64() as usize % SHARDS]
    }

    /// Joins the flight of a digest, or starts one.
    pub(crate) fn join_or_start(
        &self,
        digest: &Digest,
        priority: Priority,
        deadline: RunInstant,
    ) -> JoinOrStart {
        let mut shard = self.shard(digest).lock();
        if let Some(flight) = shard.get(digest) {
            flight.join(priority, deadline);
            return JoinOrStart::Joined(flight.clone());
        }
        let flight = Arc::new(Flight::new(*digest, self.clock.clone(), priority, deadline));
        shard.insert(*digest, flight.clone());
        JoinOrStart::Leader(flight)
    }

    /// Ends a flight.
    pub(crate) fn finish(&self, flight: &Flight, outcome: Outcome) {
        let mut shard = self.shard(&flight.digest).lock();
        shard.remove(&flight.digest);
        let _ = flight.outcome.set((Instant::now(), outcome));
        drop(shard);
        flight.done.notify_waiters();
    }

    /// Ends a flight with a failure unless `is_final` says otherwise of the demand of those who
    /// wait; nobody can join in between. Returns whether it ended.
    pub(crate) fn finish_if(
        &self,
        flight: &Flight,
        failure: FlightFailure,
        is_final: impl FnOnce(Demand) -> bool,
    ) -> bool {
        let mut shard = self.shard(&flight.digest).lock();
        if !is_final(flight.demand()) {
            return false;
        }
        shard.remove(&flight.digest);
        let _ = flight.outcome.set((Instant::now(), Err(failure)));
        drop(shard);
        flight.done.notify_waiters();
        true
    }

    /// Returns the number of flights under way.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Ends a flight as a fault if whoever drives it is gone.
#[derive(Debug)]
pub(crate) struct FlightGuard {
    pub(crate) table: Arc<FlightTable>,
    pub(crate) flight: Arc<Flight>,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        if self.flight.outcome.get().is_none() {
            self.table.finish(&self.flight, Err(FlightFailure::Internal));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn obtained() -> Obtained {
        Obtained { bytes: Bytes::from_static(b"x"), tier: Tier::Origin, peer: None }
    }

    #[tokio::test(start_paused = true)]
    async fn test_second_joins_and_both_get_the_outcome() {
        let table = FlightTable::new(RunClock::unmeasured());
        let digest = Digest::of(b"x");
        let soon = RunInstant::unmeasured() + Duration::from_secs(1);
        let JoinOrStart::Leader(lead) = table.join_or_start(&digest, Priority::Peer, soon) else {
            panic!()
        };
        let late = soon + Duration::from_secs(5);
        let JoinOrStart::Joined(joined) = table.join_or_start(&digest, Priority::Guest, late)
        else {
            panic!()
        };
        assert_eq!(lead.demand().deadline, late);
        assert_eq!(lead.demand().priority, Priority::Guest);
        table.finish(&lead, Ok(obtained()));
        assert!(lead.wait(soon).await.is_ok());
        assert!(joined.wait(late).await.is_ok());
        assert_eq!(table.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn test_wait_ends_at_its_own_deadline() {
        let table = FlightTable::new(RunClock::unmeasured());
        let start = RunInstant::unmeasured();
        let soon = start + Duration::from_secs(1);
        let JoinOrStart::Leader(flight) =
            table.join_or_start(&Digest::of(b"x"), Priority::Guest, soon)
        else {
            panic!()
        };
        assert_eq!(flight.wait(soon).await.unwrap_err(), FlightFailure::Deadline);
        assert_eq!(RunInstant::unmeasured() - start, Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn test_finish_if_respects_who_joined_meanwhile() {
        let table = FlightTable::new(RunClock::unmeasured());
        let digest = Digest::of(b"x");
        let soon = RunInstant::unmeasured() + Duration::from_secs(1);
        let JoinOrStart::Leader(flight) = table.join_or_start(&digest, Priority::Peer, soon) else {
            panic!()
        };
        table.join_or_start(&digest, Priority::Guest, soon);
        let peers_only = |demand: Demand| demand.priority != Priority::Guest;
        assert!(!table.finish_if(&flight, FlightFailure::Unavailable, peers_only));
        assert_eq!(table.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn test_guard_dropped_flight_fails_instead_of_hanging() {
        let table = Arc::new(FlightTable::new(RunClock::unmeasured()));
        let late = RunInstant::unmeasured() + Duration::from_secs(100);
        let JoinOrStart::Leader(flight) =
            table.join_or_start(&Digest::of(b"x"), Priority::Guest, late)
        else {
            panic!()
        };
        drop(FlightGuard { table: table.clone(), flight: flight.clone() });
        assert_eq!(flight.wait(late).await.unwrap_err(), FlightFailure::Internal);
    }

    fn lead(table: &FlightTable, priority: Priority) -> Arc<Flight> {
        let soon = RunInstant::unmeasured();
        match table.join_or_start(&Digest::of(b"x"), priority, soon) {
            JoinOrStart::Leader(flight) => flight,
            JoinOrStart::Joined(_) => panic!("it was under way"),
        }
    }

    #[test]
    fn test_revoke_spares_what_somebody_waits_for() {
        let table = FlightTable::new(RunClock::unmeasured());
        let flight = lead(&table, Priority::Prefetch);
        flight.revoke();
        assert!(flight.demand().is_cancelled);
        table.join_or_start(&flight.digest, Priority::Guest, RunInstant::unmeasured());
        assert!(!flight.demand().is_cancelled);
        flight.revoke();
        assert!(!flight.demand().is_cancelled);
    }

    #[test]
    fn test_revoke_of_one_of_several_leaves_it_to_the_others() {
        for other in [Priority::Prefetch, Priority::Ahead, Priority::PeerAhead, Priority::Preload] {
            let table = FlightTable::new(RunClock::unmeasured());
            let flight = lead(&table, Priority::Ahead);
            table.join_or_start(&flight.digest, other, RunInstant::unmeasured());
            flight.revoke();
            assert!(!flight.demand().is_cancelled, "{other:?}");
            flight.revoke();
            assert_eq!(flight.demand().is_cancelled, other != Priority::Preload, "{other:?}");
        }
    }

    #[test]
    fn test_join_promotes_the_class_in_which_the_sources_are_asked() {
        let table = FlightTable::new(RunClock::unmeasured());
        let flight = lead(&table, Priority::Preload);
        let now = RunInstant::unmeasured();
        assert_eq!(flight.class().current(), RequestClass::Preload);
        table.join_or_start(&flight.digest, Priority::Ahead, now);
        assert_eq!(flight.class().current(), RequestClass::Ahead);
        table.join_or_start(&flight.digest, Priority::PeerPreload, now);
        assert_eq!(flight.class().current(), RequestClass::Ahead);
        assert_eq!(flight.demand().priority, Priority::Ahead);
        assert!(flight.demand().origin_now, "a peer waits, however little it hurries");
        flight.promote(Priority::Peer, now);
        assert_eq!(flight.class().current(), RequestClass::Demand);
    }

    #[test]
    fn test_priority_demand_goes_before_read_ahead_and_that_before_preloads() {
        assert!(Priority::Peer > Priority::PeerAhead && Priority::Ahead > Priority::PeerPreload);
        for class in RequestClass::ALL {
            assert_eq!(Priority::of_peer(class).class(), class);
            assert_eq!(Priority::of_peer(class).is_demand(), class.is_demand());
        }
    }
}
