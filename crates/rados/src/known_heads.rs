//! Heads of objects that were read.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::Head;
use crate::layout::Class;

/// Heads that are remembered: each is of an object of up to 64 MiB, so these are of 256 GiB of packs.
const HEADS_MAX: usize = 4096;

/// An object's head, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownHead {
    pub(crate) class: Class,
    pub(crate) head: Head,
}

/// Heads by key. An object never changes; it may be gone, and another head be in its place.
#[derive(Debug, Default)]
pub(crate) struct KnownHeads(Mutex<HashMap<String, KnownHead>>);

impl KnownHeads {
    pub(crate) fn get(&self, key: &str) -> Option<KnownHead> {
        self.0.lock().get(key).copied()
    }

    /// Remembers a head; any other one is forgotten for it where they are as many as may be.
    pub(crate) fn remember(&self, key: &str, known: KnownHead) {
        let mut heads = self.0.lock();
        if heads.len() >= HEADS_MAX
            && !heads.contains_key(key)
            && let Some(other) = heads.keys().next().cloned()
        {
            heads.remove(&other);
        }
        heads.insert(key.to_owned(), known);
    }

    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadKind, Nonce};

    #[test]
    fn test_heads_are_bounded() {
        let heads = KnownHeads::default();
        let head = Head { kind: HeadKind::Whole, size: 1, stripe_size: 1, nonce: Nonce([0; 16]) };
        let known = KnownHead { class: Class::Hosts, head };
        for number in 0..HEADS_MAX + 10 {
            heads.remember(&number.to_string(), known);
            assert_eq!(heads.get(&number.to_string()), Some(known));
        }
        assert_eq!(heads.0.lock().len(), HEADS_MAX);
        heads.remember("x", known);
        heads.remember("x", known);
        assert_eq!(heads.0.lock().len(), HEADS_MAX);
        heads.forget("x");
        assert_eq!(heads.get("x"), None);
        assert_eq!(heads.0.lock().len(), HEADS_MAX - 1);
    }
}
