//! Doubly linked lists of slots in arrays: 9 bytes per slot, every step O(1).

use super::Reclaim;

/// Lists over one set of slots; a slot is on one list at most. The front is the newest end.
#[derive(Debug)]
pub(crate) struct Lists {
    /// Neighbour towards the front, plus one; 0 is none.
    newer: Vec<u32>,
    /// Neighbour towards the back, plus one; 0 is none.
    older: Vec<u32>,
    /// List that the slot is on, plus one; 0 is none.
    list: Vec<u8>,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    front: u32,
    back: u32,
    len: u32,
}

impl Lists {
    pub(crate) fn new(slot_count: u32, list_count: u8) -> Lists {
        let slots = slot_count as usize;
        Lists {
            newer: vec![0; slots],
            older: vec![0; slots],
            list: vec![0; slots],
            ends: vec![Ends::default(); list_count.into()],
        }
    }

    pub(crate) fn len(&self, list: u8) -> u32 {
        self.ends[usize::from(list)].len
    }

    /// Returns the oldest slot of `list`.
    pub(crate) fn back(&self, list: u8) -> Option<u32> {
        self.ends[usize::from(list)].back.checked_sub(1)
    }

    /// Returns the next newer slot of the same list.
    pub(crate) fn newer(&self, slot: u32) -> Option<u32> {
        self.newer[slot as usize].checked_sub(1)
    }

    /// Returns the list that `slot` is on.
    pub(crate) fn list_of(&self, slot: u32) -> Option<u8> {
        self.list[slot as usize].checked_sub(1)
    }

    /// Puts `slot` at the front of `list`, taking it off any list it is on.
    pub(crate) fn push_front(&mut self, list: u8, slot: u32) {
        self.remove(slot);
        let ends = &mut self.ends[usize::from(list)];
        self.older[slot as usize] = ends.front;
        self.newer[slot as usize] = 0;
        match ends.front.checked_sub(1) {
            Some(front) => self.newer[front as usize] = slot + 1,
            None => ends.back = slot + 1,
        }
        ends.front = slot + 1;
        ends.len += 1;
        self.list[slot as usize] = list + 1;
    }

    /// Takes `slot` off its list, if it is on one; returns which it was.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<u8> {
        let list = self.list_of(slot)?;
        let ends = &mut self.ends[usize::from(list)];
        let (newer, older) = (self.newer[slot as usize], self.older[slot as usize]);
        match newer.checked_sub(1) {
            Some(neighbour) => self.older[neighbour as usize] = older,
            None => ends.front = older,
        }
        match older.checked_sub(1) {
            Some(neighbour) => self.newer[neighbour as usize] = newer,
            None => ends.back = newer,
        }
        ends.len -= 1;
        self.list[slot as usize] = 0;
        Some(list)
    }

    /// Returns up to `count` slots of `list` from the oldest on, after `after` where that is on it.
    pub(crate) fn oldest(&self, list: u8, after: Option<u32>, count: usize) -> Vec<u32> {
        let first = match after.filter(|slot| self.list_of(*slot) == Some(list)) {
            Some(after) => self.newer(after),
            None => self.back(list),
        };
        std::iter::successors(first, |slot| self.newer(*slot)).take(count).collect()
    }

    /// Removes and returns the oldest slot of `list` that `reclaim` lets go.
    pub(crate) fn evict(&mut self, list: u8, reclaim: &mut Reclaim<'_>) -> Option<u32> {
        let mut candidate = self.back(list);
        while let Some(slot) = candidate {
            if reclaim(slot).is_some() {
                self.remove(slot);
                return Some(slot);
            }
            candidate = self.newer(slot);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::Lists;

    fn oldest_first(lists: &Lists, list: u8) -> Vec<u32> {
        std::iter::successors(lists.back(list), |slot| lists.newer(*slot)).collect()
    }

    proptest! {
        #[test]
        fn behaves_as_deques(steps in prop::collection::vec((0u8..3, 0u32..12), 1..200)) {
            let mut lists = Lists::new(12, 2);
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (step, slot) in steps {
                for deque in &mut model {
                    deque.retain(|other| *other != slot);
                }
                if step == 2 {
                    lists.remove(slot);
                } else {
                    lists.push_front(step, slot);
                    model[usize::from(step)].push_back(slot);
                }
                for list in 0..2 {
                    let deque = &model[usize::from(list)];
                    prop_assert!(oldest_first(&lists, list).iter().eq(deque));
                    prop_assert_eq!(lists.len(list) as usize, deque.len());
                }
            }
        }
    }
}
