//! Turns at the pages that are being fetched: one fetch at a time of the same ones.

use std::collections::HashMap;
use std::sync::Arc;

use acstor_types::Digest;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

/// Name of a manifest, and the first of the pages that are fetched together.
pub(crate) type Key = (Digest, u32);

/// The fetches that are under way or waited for.
#[derive(Debug, Default)]
pub(crate) struct PageTurns(Mutex<HashMap<Key, Arc<AsyncMutex<()>>>>);

/// A place among those who want the same pages, until it is dropped.
pub(crate) struct Place<'a> {
    turns: &'a PageTurns,
    key: Key,
    pub(crate) turn: Arc<AsyncMutex<()>>,
}

impl PageTurns {
    /// Takes a place.
    pub(crate) fn enter(&self, key: Key) -> Place<'_> {
        let turn = self.0.lock().entry(key).or_default().clone();
        Place { turns: self, key, turn }
    }

    /// Returns the number of fetches that are under way or waited for.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut turns = self.turns.0.lock();
        // The table's and this one: nobody else wants them.
        if Arc::strong_count(&self.turn) <= 2 {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_turn_is_shared_until_the_last_place_is_given_back() {
        let turns = PageTurns::default();
        let key = (Digest::of(b"manifest"), 16);
        let (one, other) = (turns.enter(key), turns.enter(key));
        let apart = turns.enter((Digest::of(b"manifest"), 32));
        assert!(Arc::ptr_eq(&one.turn, &other.turn));
        assert!(!Arc::ptr_eq(&one.turn, &apart.turn));
        drop((one, apart));
        assert_eq!(turns.len(), 1);
        drop(other);
        assert_eq!(turns.len(), 0);
    }
}
