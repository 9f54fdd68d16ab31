//! Digests that must not be evicted: head and tail of the attached images.

use std::collections::HashMap;

use acstor_types::Digest;

use crate::limits;

/// Count of pins of each digest, whether or not the store holds it; bounded.
#[derive(Debug)]
pub(crate) struct Pins {
    counts: HashMap<Digest, u32>,
    limit: usize,
}

impl Pins {
    pub(crate) fn new(slot_count: u32) -> Pins {
        let limit = u64::from(slot_count) * u64::from(limits::PINNED_PERCENT_MAX) / 100;
        Pins { counts: HashMap::new(), limit: limit as usize }
    }

    /// Most digests that may be pinned.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Number of digests pinned.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(crate) fn contains(&self, digest: &Digest) -> bool {
        self.counts.contains_key(digest)
    }

    /// Adds a pin; returns whether it is the digest's first, or `None` when the limit is reached.
    pub(crate) fn add(&mut self, digest: &Digest) -> Option<bool> {
        if let Some(count) = self.counts.get_mut(digest) {
            *count = count.saturating_add(1);
            return Some(false);
        }
        if self.counts.len() >= self.limit {
            return None;
        }
        self.counts.insert(*digest, 1);
        Some(true)
    }

    /// Takes one pin back; returns whether it was the digest's last.
    pub(crate) fn take_back(&mut self, digest: &Digest) -> bool {
        let Some(count) = self.counts.get_mut(digest) else {
            return false;
        };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.counts.remove(digest);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::Digest;

    use super::Pins;

    #[test]
    fn pins_are_counted_per_digest_up_to_the_limit() {
        let mut pins = Pins::new(8);
        let [a, b, c] = [b"a", b"b", b"c"].map(|content| Digest::of(content));
        assert_eq!(
            (pins.add(&a), pins.add(&a), pins.add(&b)),
            (Some(true), Some(false), Some(true))
        );
        assert_eq!(pins.add(&c), None, "a quarter of 8");
        assert!(!pins.take_back(&a));
        assert!(pins.contains(&a));
        assert!(pins.take_back(&a));
        assert!(!pins.take_back(&a));
        assert_eq!(pins.add(&c), Some(true));
        assert_eq!(pins.len(), pins.limit());
    }
}
