//! Packets that came already.

use crate::limits::SEEN_WINDOW;

/// Numbers of the packets that came, of the last [`SEEN_WINDOW`]: 8 KiB.
///
/// Source: the anti-replay window of ESP (RFC 4303, section 3.4.3). A network that doubles packets must not have
/// a receiver report more than was sent.
#[derive(Clone, Debug)]
pub struct SeenNumbers {
    /// One above the greatest number seen; 0 before the first.
    end: u64,
    bits: Box<[u64]>,
}

impl Default for SeenNumbers {
    fn default() -> SeenNumbers {
        SeenNumbers { end: 0, bits: vec![0; (SEEN_WINDOW / 64) as usize].into() }
    }
}

impl SeenNumbers {
    /// Notes a number; returns whether it is new. One too old to tell is not.
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.end {
            self.advance(number);
        } else if self.end - number > SEEN_WINDOW {
            return false;
        }
        let (word, bit) = place(number);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }

    fn advance(&mut self, number: u64) {
        if number - self.end >= SEEN_WINDOW {
            self.bits.fill(0);
        } else {
            for skipped in self.end..=number {
                let (word, bit) = place(skipped);
                self.bits[word] &= !bit;
            }
        }
        self.end = number.saturating_add(1);
    }
}

fn place(number: u64) -> (usize, u64) {
    let place = number % SEEN_WINDOW;
    ((place / 64) as usize, 1 << (place % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_insert_what_is_too_old_is_not_new() {
        let mut seen = SeenNumbers::default();
        assert!(seen.insert(SEEN_WINDOW + 5));
        assert!(!seen.insert(5));
        assert!(seen.insert(6));
        assert!(!seen.insert(6));
        assert!(seen.insert(1 << 40));
        assert!(!seen.insert(6));
    }

    proptest! {
        #[test]
        fn test_insert_any_order_within_the_window_tells_new_from_old(
            numbers in prop::collection::vec(0_u64..SEEN_WINDOW, 0..500),
        ) {
            let (mut seen, mut model) = (SeenNumbers::default(), HashSet::new());
            for number in numbers {
                prop_assert_eq!(seen.insert(number), model.insert(number));
            }
        }
    }
}
