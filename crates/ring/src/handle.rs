//! The ring in use, swapped without a lock on the read path, fenced by generation.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::{Ring, RingError, limits};

/// The ring in use and those before it, whose owners are asked before the origin.
#[derive(Clone, Debug, Default)]
pub struct RingView {
    /// The ring in use; `None` until the first one arrives.
    pub current: Option<Arc<Ring>>,
    /// The rings that were in use before, newest first; at most [`limits::PREVIOUS_RINGS_MAX`]. A
    /// chunk that moved again before anybody asked its owner for it is still where it was.
    pub previous: Vec<Arc<Ring>>,
}

/// Result of [`RingHandle::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSet {
    /// The offered ring is in use now.
    Replaced,
    /// The very same ring was in use already.
    Unchanged,
}

/// Holds the ring in use; shared by reference between threads.
#[derive(Debug, Default)]
pub struct RingHandle(ArcSwap<RingView>);

impl RingHandle {
    /// Starts with `ring`.
    pub fn new(ring: Ring) -> RingHandle {
        let view = RingView { current: Some(Arc::new(ring)), previous: Vec::new() };
        RingHandle(ArcSwap::from_pointee(view))
    }

    /// Starts without a ring.
    pub fn empty() -> RingHandle {
        RingHandle::default()
    }

    /// Returns the rings in use. Wait-free; hold the guard only for a lookup.
    pub fn load(&self) -> Guard<Arc<RingView>> {
        self.0.load()
    }

    /// Returns the rings in use, to be held for as long as the caller likes.
    pub fn load_full(&self) -> Arc<RingView> {
        self.0.load_full()
    }

    /// Returns the generation in use, or 0 where there is none.
    pub fn generation(&self) -> u64 {
        self.load().current.as_ref().map_or(0, |ring| ring.generation())
    }

    /// Puts a newer ring to use. Setting the very same ring again is no error, so that an
    /// announcement may come twice.
    ///
    /// # Errors
    /// [`RingError::Fenced`] when the generation in use is higher, or equal with other content:
    /// then two builders believe they lead, and the caller must fetch the published ring again.
    pub fn set(&self, ring: Ring) -> Result<RingSet, RingError> {
        let ring = Arc::new(ring);
        loop {
            let seen = self.0.load_full();
            let Some(next) = seen.succeeded_by(&ring)? else { return Ok(RingSet::Unchanged) };
            if self.replace(&seen, next) {
                return Ok(RingSet::Replaced);
            }
        }
    }

    /// Puts `next` in the place of `seen`; returns false when another view has taken it already.
    fn replace(&self, seen: &Arc<RingView>, next: RingView) -> bool {
        let found = self.0.compare_and_swap(seen, Arc::new(next));
        Arc::ptr_eq(&found, seen)
    }
}

impl RingView {
    /// Returns the view with `ring` in use, or `None` where it is in use already.
    fn succeeded_by(&self, ring: &Arc<Ring>) -> Result<Option<RingView>, RingError> {
        if let Some(current) = &self.current {
            if current == ring {
                return Ok(None);
            }
            if ring.generation() <= current.generation() {
                return Err(RingError::Fenced {
                    offered: ring.generation(),
                    current: current.generation(),
                });
            }
        }
        let before = self.current.iter().chain(&self.previous);
        let previous = before.take(limits::PREVIOUS_RINGS_MAX).cloned().collect();
        Ok(Some(RingView { current: Some(ring.clone()), previous }))
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::ErrorKind;

    use super::*;
    use crate::{Host, RingBuilder};

    fn ring(generation: u64, seed: u64) -> Ring {
        let hosts = ["a", "b"].map(|name| Host::new(name, "10.0.0.1:7800", 1));
        RingBuilder::new(seed).vnodes(16).generation(generation).hosts(hosts).build().unwrap()
    }

    #[test]
    fn newer_ring_replaces_and_the_replaced_one_stays_visible() {
        let handle = RingHandle::empty();
        assert_eq!(handle.generation(), 0);
        assert_eq!(handle.set(ring(3, 1)), Ok(RingSet::Replaced));
        assert_eq!(handle.set(ring(7, 1)), Ok(RingSet::Replaced));
        let view = handle.load_full();
        assert_eq!(view.current.as_deref(), Some(&ring(7, 1)));
        assert_eq!(view.previous, [Arc::new(ring(3, 1))]);
    }

    #[test]
    fn replaced_rings_are_kept_newest_first_and_bounded() {
        let handle = RingHandle::empty();
        let last = limits::PREVIOUS_RINGS_MAX as u64 + 4;
        for generation in 1..=last {
            handle.set(ring(generation, 1)).unwrap();
        }
        let view = handle.load_full();
        let kept: Vec<u64> = view.previous.iter().map(|ring| ring.generation()).collect();
        let expected: Vec<u64> = (4..last).rev().collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn same_ring_again_changes_nothing() {
        let handle = RingHandle::new(ring(1, 1));
        handle.set(ring(2, 1)).unwrap();
        assert_eq!(handle.set(ring(2, 1)), Ok(RingSet::Unchanged));
        assert_eq!(handle.load().previous, [Arc::new(ring(1, 1))]);
    }

    #[test]
    fn older_or_conflicting_ring_is_fenced() {
        let handle = RingHandle::new(ring(5, 1));
        for refused in [ring(4, 1), ring(5, 2)] {
            let error = handle.set(refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced);
            assert_eq!(handle.load().current.as_deref(), Some(&ring(5, 1)));
        }
    }

    #[test]
    fn view_that_is_no_longer_current_is_not_replaced() {
        let handle = RingHandle::new(ring(1, 1));
        let seen = handle.load_full();
        handle.set(ring(3, 1)).unwrap();
        let next = seen.succeeded_by(&Arc::new(ring(2, 1))).unwrap().unwrap();
        assert!(!handle.replace(&seen, next));
        assert_eq!(handle.generation(), 3);
    }

    #[test]
    fn concurrent_setters_leave_the_highest_generation() {
        const ROUNDS: u64 = 1_000;
        let handle = RingHandle::empty();
        let rings: Vec<Ring> = (1..=2 * ROUNDS).map(|generation| ring(generation, 1)).collect();
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for setter in 0..2 {
                let (handle, rings, barrier) = (&handle, &rings, &barrier);
                scope.spawn(move || {
                    for pair in rings.chunks(2) {
                        let ring = pair[setter].clone();
                        barrier.wait();
                        let _ = handle.set(ring); // the lower one is fenced when it comes second
                        barrier.wait();
                        assert_eq!(handle.generation(), pair[1].generation());
                    }
                });
            }
        });
        let previous = handle.load_full().previous.first().map(|ring| ring.generation());
        assert!(previous < Some(2 * ROUNDS));
    }
}
