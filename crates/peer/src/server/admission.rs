//! Admission control of a server: requests in flight against its limits. A refusal is immediate:
//! nothing queues here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use acstor_types::RequestClass;
use acstor_types::limits::CHUNK_SIZE_MAX;

/// Requests and bytes in flight, with their limits.
#[derive(Debug)]
struct Usage {
    requests: AtomicUsize,
    bytes: AtomicU64,
    requests_max: usize,
    bytes_max: u64,
}

/// Requests and bytes in flight, with their limits: of all, and of those that no guest waits for, which
/// may be half of all. So a guest is never refused because of them.
#[derive(Debug)]
pub(super) struct Budget {
    all: Usage,
    background: Usage,
}

/// A request's share of its connection's and the server's budget; freed when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    server: Arc<Budget>,
    connection: Arc<Budget>,
    bytes: u64,
    is_demand: bool,
}

impl Usage {
    fn new(requests_max: usize, bytes_max: u64) -> Usage {
        Usage { requests: AtomicUsize::new(0), bytes: AtomicU64::new(0), requests_max, bytes_max }
    }

    /// Takes a request's share, or nothing when a limit would be exceeded. Between the addition and
    /// its withdrawal others may be refused that would have fitted; nobody gets in beyond the limit.
    fn take(&self, bytes: u64) -> bool {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.requests_max {
            self.requests.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.bytes_max {
            self.give_back(bytes);
            return false;
        }
        true
    }

    fn give_back(&self, bytes: u64) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Budget {
    pub(super) fn new(requests_max: usize, bytes_max: u64) -> Arc<Budget> {
        // One request of any size always fits, whatever the limits.
        let half = (bytes_max / 2).max(bytes_max.min(CHUNK_SIZE_MAX.into()));
        Arc::new(Budget {
            all: Usage::new(requests_max, bytes_max),
            background: Usage::new(requests_max.div_ceil(2), half),
        })
    }

    pub(super) fn requests(&self) -> usize {
        self.all.requests.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.all.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64, is_demand: bool) -> bool {
        if !is_demand && !self.background.take(bytes) {
            return false;
        }
        let is_taken = self.all.take(bytes);
        if !is_taken && !is_demand {
            self.background.give_back(bytes);
        }
        is_taken
    }

    fn give_back(&self, bytes: u64, is_demand: bool) {
        self.all.give_back(bytes);
        if !is_demand {
            self.background.give_back(bytes);
        }
    }
}

impl Permit {
    /// Bytes of the chunk that was asked for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Admits a request for `bytes` bytes, or returns `None` when it must be refused.
    pub(super) fn take(
        server: &Arc<Budget>,
        connection: &Arc<Budget>,
        bytes: u64,
        class: RequestClass,
    ) -> Option<Permit> {
        let is_demand = class.is_demand();
        if !connection.take(bytes, is_demand) {
            return None;
        }
        if !server.take(bytes, is_demand) {
            connection.give_back(bytes, is_demand);
            return None;
        }
        let (server, connection) = (Arc::clone(server), Arc::clone(connection));
        Some(Permit { server, connection, bytes, is_demand })
    }

    /// Notes that a guest waits for it by now: it no longer counts among the others.
    pub(super) fn promote(&mut self) {
        if !std::mem::replace(&mut self.is_demand, true) {
            self.connection.background.give_back(self.bytes);
            self.server.background.give_back(self.bytes);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.connection.give_back(self.bytes, self.is_demand);
        self.server.give_back(self.bytes, self.is_demand);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn background(budget: &Budget) -> (usize, u64) {
        let Usage { requests, bytes, .. } = &budget.background;
        (requests.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    #[test]
    fn test_take_beyond_the_bytes_of_the_server_is_refused_whole() {
        let server = Budget::new(10, 100);
        let connection = Budget::new(10, 1000);
        let take = || Permit::take(&server, &connection, 60, RequestClass::Demand);
        let first = take().unwrap();
        assert!(take().is_none());
        assert_eq!((server.requests(), server.bytes()), (1, 60));
        assert_eq!((connection.requests(), connection.bytes()), (1, 60));
        drop(first);
        assert_eq!((server.requests(), server.bytes()), (0, 0));
    }

    #[test]
    fn test_take_what_no_guest_waits_for_has_half() {
        const CHUNK: u64 = CHUNK_SIZE_MAX as u64;
        let server = Budget::new(100, 100 * CHUNK);
        let connection = Budget::new(100, 4 * CHUNK);
        let take = |class| Permit::take(&server, &connection, CHUNK, class);
        let mut ahead = take(RequestClass::Ahead).unwrap();
        let preload = take(RequestClass::Preload).unwrap();
        assert!(take(RequestClass::Ahead).is_none());
        assert_eq!((connection.requests(), connection.bytes()), (2, 2 * CHUNK));
        let demand = take(RequestClass::Demand).unwrap();
        ahead.promote();
        ahead.promote();
        let again = take(RequestClass::Ahead).unwrap();
        assert!(take(RequestClass::Demand).is_none(), "nothing is left at all");
        drop((ahead, preload, demand, again));
        for budget in [&server, &connection] {
            assert_eq!((budget.requests(), budget.bytes()), (0, 0));
            assert_eq!(background(budget), (0, 0));
        }
    }

    proptest! {
        /// Whatever is taken, promoted and freed, the limits hold and nothing leaks.
        #[test]
        fn proptest_limits_hold(
            steps in prop::collection::vec((0..3_u8, any::<bool>(), 1_u64..50), 1..200),
        ) {
            let server = Budget::new(5, 120);
            let connection = Budget::new(4, 100);
            let mut held: Vec<Permit> = Vec::new();
            for (step, is_demand, bytes) in steps {
                match step {
                    0 | 1 => {
                        let class =
                            if is_demand { RequestClass::Demand } else { RequestClass::Ahead };
                        let sum: u64 = held.iter().map(|permit| permit.bytes).sum();
                        let others = held.iter().filter(|permit| !permit.is_demand).count();
                        let fits = held.len() < 4
                            && sum + bytes <= 100
                            && (is_demand || others < 2);
                        let permit = Permit::take(&server, &connection, bytes, class);
                        prop_assert_eq!(permit.is_some(), fits);
                        held.extend(permit);
                    }
                    _ if is_demand => held.iter_mut().for_each(Permit::promote),
                    _ => drop(held.pop()),
                }
                prop_assert_eq!(server.requests(), held.len());
            }
            drop(held);
            prop_assert_eq!((server.requests(), server.bytes()), (0, 0));
            prop_assert_eq!((connection.requests(), connection.bytes()), (0, 0));
            prop_assert_eq!((background(&server), background(&connection)), ((0, 0), (0, 0)));
        }
    }
}
