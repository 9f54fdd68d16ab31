//! Admission control of a server: requests in flight against its limits. A refusal is immediate:
//! nothing queues here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Requests and bytes in flight, with their limits.
#[derive(Debug)]
pub(super) struct Budget {
    requests: AtomicUsize,
    bytes: AtomicU64,
    requests_max: usize,
    bytes_max: u64,
}

/// A request's share of its connection's and the server's budget; freed when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    server: Arc<Budget>,
    connection: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(requests_max: usize, bytes_max: u64) -> Arc<Budget> {
        Arc::new(Budget {
            requests: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            requests_max,
            bytes_max,
        })
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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
    ) -> Option<Permit> {
        if !connection.take(bytes) {
            return None;
        }
        if !server.take(bytes) {
            connection.give_back(bytes);
            return None;
        }
        Some(Permit { server: Arc::clone(server), connection: Arc::clone(connection), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.connection.give_back(self.bytes);
        self.server.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Budget, Permit};

    #[test]
    fn test_take_beyond_the_bytes_of_the_server_is_refused_whole() {
        let server = Budget::new(10, 100);
        let connection = Budget::new(10, 1000);
        let first = Permit::take(&server, &connection, 60).unwrap();
        assert!(Permit::take(&server, &connection, 60).is_none());
        assert_eq!((server.requests(), server.bytes()), (1, 60));
        assert_eq!((connection.requests(), connection.bytes()), (1, 60));
        drop(first);
        assert_eq!((server.requests(), server.bytes()), (0, 0));
    }

    proptest! {
        /// Whatever is taken and freed, the limits hold and nothing leaks.
        #[test]
        fn proptest_limits_hold(steps in prop::collection::vec((any::<bool>(), 1_u64..50), 1..200)) {
            let server = Budget::new(5, 120);
            let connection = Budget::new(4, 100);
            let mut held = Vec::new();
            for (take, bytes) in steps {
                if take {
                    let sum: u64 = held.iter().map(|permit: &Permit| permit.bytes).sum();
                    let fits = held.len() < 4 && sum + bytes <= 100;
                    let permit = Permit::take(&server, &connection, bytes);
                    prop_assert_eq!(permit.is_some(), fits);
                    held.extend(permit);
                } else {
                    held.pop();
                }
                prop_assert_eq!(server.requests(), held.len());
            }
            drop(held);
            prop_assert_eq!((server.requests(), server.bytes()), (0, 0));
            prop_assert_eq!((connection.requests(), connection.bytes()), (0, 0));
        }
    }
}
