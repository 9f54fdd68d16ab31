//! The peers that said HELLO, and which of them makes room.
//!
//! By design as many hosts as the ring has may want something of this one, and a connection that was used
//! a minute ago is only kept lest it be made again. So where all places are taken the connection that has
//! been idle for longest is told to go (its client makes another one when it needs it), and only where
//! none is idle a peer is refused.

use std::collections::HashMap;
use std::sync::Arc;

use acstor_net::Identity;
use acstor_runclock::RunInstant;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::admission::Budget;
use super::credentials::Credentials;

/// The connections that carry requests.
#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    members: HashMap<u64, Arc<Member>>,
    /// The members, and those that gave up their place and have not gone yet.
    connected: HashMap<u64, Arc<Member>>,
}

#[derive(Debug)]
struct Member {
    budget: Arc<Budget>,
    /// `None` where TLS is off.
    credentials: Option<Credentials>,
    heard: Mutex<RunInstant>,
    evicted: Notify,
    distrusted: Notify,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    member: Arc<Member>,
}

impl Places {
    pub(super) fn new(max: usize) -> Arc<Places> {
        Arc::new(Places { max, state: Mutex::default() })
    }

    /// Gives a connection a place, if need be that of the one that has been idle for longest; `None`
    /// where all are busy.
    pub(super) fn enter(
        self: &Arc<Self>,
        budget: Arc<Budget>,
        credentials: Option<Credentials>,
        now: RunInstant,
    ) -> Option<Place> {
        let member = Arc::new(Member {
            budget,
            credentials,
            heard: Mutex::new(now),
            evicted: Notify::new(),
            distrusted: Notify::new(),
        });
        let mut state = self.state.lock();
        if state.members.len() >= self.max {
            let idlest = state.idlest()?;
            if let Some(evicted) = state.members.remove(&idlest) {
                evicted.evicted.notify_one();
            }
        }
        let number = state.next;
        state.next += 1;
        state.members.insert(number, Arc::clone(&member));
        state.connected.insert(number, Arc::clone(&member));
        drop(state);
        Some(Place { places: Arc::clone(self), number, member })
    }

    /// Cuts off whoever would not be let in by `identity`. Takes a signature's time, 0.1 to 0.2 ms, per
    /// connection when it is a new one.
    pub(super) fn recheck(&self, identity: &Arc<Identity>) {
        let connected: Vec<Arc<Member>> = self.state.lock().connected.values().cloned().collect();
        for member in connected {
            let Some(credentials) = &member.credentials else { continue };
            if let Err(fault) = credentials.recheck(identity) {
                tracing::info!(?credentials, %fault, "a connected peer is cut off");
                member.distrusted.notify_one();
            }
        }
    }
}

impl State {
    fn idlest(&self) -> Option<u64> {
        let idle = self.members.iter().filter(|(_, member)| member.budget.requests() == 0);
        idle.min_by_key(|(_, member)| *member.heard.lock()).map(|(number, _)| *number)
    }
}

impl Place {
    /// Returns the budget of the connection's requests in flight.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.member.budget
    }

    /// Notes that the other side asked something.
    pub(super) fn heard(&self, now: RunInstant) {
        *self.member.heard.lock() = now;
    }

    /// Waits until the place is another connection's.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(super) fn evicted(&self) -> impl Future<Output = ()> + use<> {
        let member = Arc::clone(&self.member);
        async move { member.evicted.notified().await }
    }

    /// Waits until the other side is one that would not be let in any more.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(super) fn distrusted(&self) -> impl Future<Output = ()> + use<> {
        let member = Arc::clone(&self.member);
        async move { member.distrusted.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        state.members.remove(&self.number);
        state.connected.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use acstor_types::RequestClass;

    use super::super::admission::Permit;
    use super::*;

    fn is_evicted(place: &Place) -> bool {
        !place.places.state.lock().members.contains_key(&place.number)
    }

    #[test]
    fn test_enter_beyond_the_limit_takes_the_place_that_is_idle_for_longest() {
        let (places, now) = (Places::new(3), RunInstant::unmeasured());
        let second = Duration::from_secs(1);
        let enter = |at| places.enter(Budget::new(8, 800), None, at).unwrap();
        let taken: Vec<Place> = (0..3).map(|number| enter(now + number * second)).collect();
        let server = Budget::new(8, 800);
        let busy = Permit::take(&server, taken[0].budget(), 1, RequestClass::Demand).unwrap();
        taken[1].heard(now + 9 * second);
        let newcomer = enter(now + 10 * second);
        let evicted: Vec<bool> = taken.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, false, true], "the first is busy, the second was just heard");
        let _second = Permit::take(&server, taken[1].budget(), 1, RequestClass::Demand).unwrap();
        let _third = Permit::take(&server, newcomer.budget(), 1, RequestClass::Demand).unwrap();
        assert!(places.enter(Budget::new(8, 800), None, now).is_none(), "all are busy");
        drop(busy);
        assert!(places.enter(Budget::new(8, 800), None, now).is_some());
        drop(taken);
        assert!(places.enter(Budget::new(8, 800), None, now).is_some());
    }
}
