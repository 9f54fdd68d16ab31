//! Connections that have not said HELLO: few at a time, and none of them for long.
//!
//! Whoever reaches the port can connect and say nothing. Such connections have bounds of their own, so that
//! they take no place of a peer's, and the newest is let in: a peer says HELLO within milliseconds, so
//! the oldest one of the address that has most of them is hardly a peer's.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The connections before HELLO.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: usize,
    per_address_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    total: usize,
    /// Oldest first; no address without one.
    by_address: HashMap<IpAddr, VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// The place of one connection, until it said HELLO.
#[derive(Debug)]
pub(super) struct Handshake {
    table: Arc<Handshakes>,
    address: IpAddr,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl Handshakes {
    pub(super) fn new(max: usize, per_address_max: usize) -> Arc<Handshakes> {
        Arc::new(Handshakes { max, per_address_max, state: Mutex::default() })
    }

    /// Gives a connection from `address` a place; where there is none, that of an older one.
    pub(super) fn begin(self: &Arc<Self>, address: IpAddr) -> Handshake {
        let (kept, displaced) = oneshot::channel();
        let mut state = self.state.lock();
        let of_address = state.by_address.get(&address).map_or(0, VecDeque::len);
        if of_address >= self.per_address_max {
            state.displace(address);
        } else if state.total >= self.max
            && let Some(busiest) = state.busiest()
        {
            state.displace(busiest);
        }
        let number = state.next;
        state.next += 1;
        state.total += 1;
        state.by_address.entry(address).or_default().push_back((number, kept));
        drop(state);
        Handshake { table: Arc::clone(self), address, number, displaced }
    }
}

impl State {
    /// The address with most connections; of several the one whose oldest is the oldest.
    fn busiest(&self) -> Option<IpAddr> {
        let rank = |queue: &VecDeque<(u64, oneshot::Sender<()>)>| {
            let oldest = queue.front().map_or(0, |(number, _)| *number);
            (queue.len(), std::cmp::Reverse(oldest))
        };
        self.by_address.iter().max_by_key(|(_, queue)| rank(queue)).map(|(address, _)| *address)
    }

    /// Takes the place of the oldest connection of an address, which learns it at once.
    fn displace(&mut self, address: IpAddr) {
        let Some(queue) = self.by_address.get_mut(&address) else { return };
        self.total -= usize::from(queue.pop_front().is_some());
        if queue.is_empty() {
            self.by_address.remove(&address);
        }
    }
}

impl Handshake {
    /// Waits until the place was given to another connection.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub(super) async fn displaced(&mut self) {
        // The other end says nothing; it is dropped.
        let _ = (&mut self.displaced).await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        let Some(queue) = state.by_address.get_mut(&self.address) else { return };
        let before = queue.len();
        queue.retain(|(number, _)| *number != self.number);
        let (removed, is_empty) = (before - queue.len(), queue.is_empty());
        state.total -= removed;
        if is_empty {
            state.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Connections that have a place now.
    fn placed(table: &Handshakes) -> usize {
        table.state.lock().total
    }

    fn is_displaced(handshake: &mut Handshake) -> bool {
        handshake.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn test_begin_beyond_an_address_displaces_its_oldest_and_nobody_elses() {
        let table = Handshakes::new(10, 2);
        let mut other = table.begin(address(9));
        let mut own: Vec<_> = (0..3).map(|_| table.begin(address(1))).collect();
        let displaced: Vec<bool> = own.iter_mut().map(is_displaced).collect();
        assert_eq!(displaced, [true, false, false]);
        assert!(!is_displaced(&mut other));
        assert_eq!(placed(&table), 3);
        drop((own, other));
        assert_eq!((placed(&table), table.state.lock().by_address.len()), (0, 0));
    }

    #[test]
    fn test_begin_beyond_all_displaces_the_oldest_of_who_has_most() {
        let table = Handshakes::new(4, 3);
        let mut peer = table.begin(address(1));
        let mut strangers: Vec<_> = (0..3).map(|_| table.begin(address(2))).collect();
        let mut next = table.begin(address(3));
        let displaced: Vec<bool> = strangers.iter_mut().map(is_displaced).collect();
        assert_eq!(displaced, [true, false, false]);
        assert!(!is_displaced(&mut peer) && !is_displaced(&mut next));
        assert_eq!(placed(&table), 4);
    }

    proptest! {
        /// Whoever comes and goes: the bounds hold, the newest has a place, nothing leaks.
        #[test]
        fn proptest_bounds_hold(steps in prop::collection::vec((any::<bool>(), 0u8..4), 1..200)) {
            let table = Handshakes::new(5, 3);
            let mut held = Vec::new();
            for (is_new, last) in steps {
                if is_new {
                    let mut newest = table.begin(address(last));
                    prop_assert!(!is_displaced(&mut newest));
                    held.push(newest);
                } else if !held.is_empty() {
                    held.remove(usize::from(last) % held.len());
                }
                let count = held.iter_mut().filter_map(|one| (!is_displaced(one)).then_some(())).count();
                prop_assert_eq!(placed(&table), count);
                prop_assert!(count <= 5);
                for queue in table.state.lock().by_address.values() {
                    prop_assert!(!queue.is_empty() && queue.len() <= 3);
                }
            }
            drop(held);
            prop_assert_eq!(placed(&table), 0);
        }
    }
}
