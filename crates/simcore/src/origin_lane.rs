//! Reads of the origin that a host has under way: few at a time, demand before read-ahead.

use std::collections::VecDeque;

use crate::sender::Class;

/// The reads of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct OriginLane {
    demand: VecDeque<u32>,
    ahead: VecDeque<u32>,
    /// Attempts that are under way, and their classes when they began.
    reading: Vec<(u32, Class)>,
}

impl OriginLane {
    /// Adds a read that waits.
    pub(crate) fn add(&mut self, attempt: u32, class: Class) {
        match class {
            Class::Demand => self.demand.push_back(attempt),
            Class::Ahead => self.ahead.push_back(attempt),
        }
    }

    /// Begins the next read, if less than `most` are under way; returns its attempt.
    ///
    /// What is read ahead has a half of the places, as in the read path's queue.
    pub(crate) fn next(&mut self, most: u32) -> Option<u32> {
        let most = most as usize;
        if self.reading.len() >= most {
            return None;
        }
        if let Some(attempt) = self.demand.pop_front() {
            self.reading.push((attempt, Class::Demand));
            return Some(attempt);
        }
        let ahead = self.reading.iter().filter(|(_, class)| *class == Class::Ahead).count();
        if ahead >= (most / 2).max(1) {
            return None;
        }
        let attempt = self.ahead.pop_front()?;
        self.reading.push((attempt, Class::Ahead));
        Some(attempt)
    }

    /// Returns the number of reads before one that somebody waits for.
    pub(crate) fn before_demand(&self) -> usize {
        self.reading.len() + self.demand.len()
    }

    /// Forgets an attempt that has ended; returns whether it was under way.
    pub(crate) fn remove(&mut self, attempt: u32) -> bool {
        if let Some(at) = self.reading.iter().position(|(one, _)| *one == attempt) {
            self.reading.swap_remove(at);
            return true;
        }
        self.demand.retain(|one| *one != attempt);
        self.ahead.retain(|one| *one != attempt);
        false
    }

    /// Makes a demand of a read that waits.
    pub(crate) fn promote(&mut self, attempt: u32) {
        if let Some(at) = self.ahead.iter().position(|one| *one == attempt) {
            self.ahead.remove(at);
            self.demand.push_back(attempt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(lane: &mut OriginLane, most: u32) -> Vec<u32> {
        std::iter::from_fn(|| lane.next(most)).collect()
    }

    #[test]
    fn demand_is_read_first_and_ahead_has_a_half_of_the_places() {
        let mut lane = OriginLane::default();
        (0..4).for_each(|attempt| lane.add(attempt, Class::Ahead));
        (4..6).for_each(|attempt| lane.add(attempt, Class::Demand));
        assert_eq!(begun(&mut lane, 5), [4, 5, 0, 1]);
        assert!(lane.remove(0));
        assert_eq!(begun(&mut lane, 5), [2]);
        assert!(!lane.remove(3), "it was waiting");
        assert!(lane.remove(1));
        assert_eq!(begun(&mut lane, 5), [] as [u32; 0]);
    }

    #[test]
    fn ahead_has_a_place_where_there_is_only_one() {
        let mut lane = OriginLane::default();
        lane.add(7, Class::Ahead);
        assert_eq!(begun(&mut lane, 1), [7]);
    }

    #[test]
    fn promoted_read_needs_no_place_of_what_is_ahead() {
        let mut lane = OriginLane::default();
        (0..3).for_each(|attempt| lane.add(attempt, Class::Ahead));
        assert_eq!(begun(&mut lane, 2), [0]);
        lane.promote(2);
        lane.promote(9);
        assert_eq!(begun(&mut lane, 2), [2]);
    }
}
