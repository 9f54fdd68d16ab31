//! The order in which a host sends: few answers at a time, whole, demand before read-ahead.
//!
//! Each answer has a connection: to its receiver, one for what somebody waits for and one for what
//! is fetched ahead. A connection sends one answer after the other. An answer that has its turn is
//! not recalled, whatever comes: its turn ends when the rest of it fits into the socket, from where
//! nothing comes back either, or when its receiver has held it up for too long. It goes on without.

use std::collections::HashMap;

/// Class of a chunk's way: who waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Somebody waits for it.
    #[default]
    Demand,
    /// Somebody may soon ask for it.
    Ahead,
}

/// An answer that waits for its turn, or has it.
#[derive(Clone, Copy, Debug)]
struct Answer {
    attempt: u32,
    receiver: u32,
    class: Class,
    /// True until its turn ends; of one that waits without meaning.
    has_turn: bool,
}

impl Answer {
    fn shares_connection(&self, other: &Answer) -> bool {
        self.receiver == other.receiver && self.class == other.class
    }
}

/// The answers of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender {
    /// Those that wait, the oldest first.
    waiting: Vec<Answer>,
    /// Those that are being sent, with a turn or without.
    sending: Vec<Answer>,
    turns: u32,
    /// By receiver and class: the number of its last turn, lest one that asks for much keep others
    /// waiting.
    last_turn: HashMap<(u32, Class), u64>,
    turn: u64,
}

impl Sender {
    /// Adds an answer that is ready.
    pub(crate) fn add(&mut self, attempt: u32, receiver: u32, class: Class) {
        self.waiting.push(Answer { attempt, receiver, class, has_turn: false });
    }

    /// Gives a turn to the next answer, if less than `most` have one; returns its attempt.
    pub(crate) fn next(&mut self, most: u32) -> Option<u32> {
        if self.turns >= most {
            return None;
        }
        let is_free = |one: &Answer| !self.sending.iter().any(|other| one.shares_connection(other));
        let before =
            |one: &Answer| self.last_turn.get(&(one.receiver, one.class)).copied().unwrap_or(0);
        let waiting = self.waiting.iter().enumerate().filter(|(_, one)| is_free(one));
        let (at, _) = waiting.min_by_key(|(at, one)| (one.class, before(one), *at))?;
        let mut chosen = self.waiting.remove(at);
        chosen.has_turn = true;
        self.sending.push(chosen);
        self.turns += 1;
        self.turn += 1;
        self.last_turn.insert((chosen.receiver, chosen.class), self.turn);
        Some(chosen.attempt)
    }

    /// Returns the number of answers that somebody waits for and that have no turn yet.
    pub(crate) fn demand_waiting(&self) -> usize {
        self.waiting.iter().filter(|one| one.class == Class::Demand).count()
    }

    /// Returns whether an attempt has its turn.
    pub(crate) fn has_turn(&self, attempt: u32) -> bool {
        self.sending.iter().any(|one| one.attempt == attempt && one.has_turn)
    }

    /// Ends the turn of an attempt that goes on without; returns whether it had one.
    pub(crate) fn end_turn(&mut self, attempt: u32) -> bool {
        let mut having = self.sending.iter_mut().filter(|one| one.has_turn);
        let Some(found) = having.find(|one| one.attempt == attempt) else { return false };
        found.has_turn = false;
        self.turns -= 1;
        true
    }

    /// Forgets an attempt that has ended; returns whether it was here.
    pub(crate) fn remove(&mut self, attempt: u32) -> bool {
        let is_it = |one: &Answer| one.attempt == attempt;
        if let Some(at) = self.waiting.iter().position(is_it) {
            self.waiting.remove(at);
            return true;
        }
        let Some(at) = self.sending.iter().position(is_it) else { return false };
        self.turns -= u32::from(self.sending.swap_remove(at).has_turn);
        true
    }

    /// Makes a demand of an answer that waits; one that is being sent is beyond recall.
    pub(crate) fn promote(&mut self, attempt: u32) {
        if let Some(found) = self.waiting.iter_mut().find(|one| one.attempt == attempt) {
            found.class = Class::Demand;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempt `n` goes to receiver `n / 10`.
    fn sender(answers: &[(u32, Class)]) -> Sender {
        let mut made = Sender::default();
        for (attempt, class) in answers {
            made.add(*attempt, attempt / 10, *class);
        }
        made
    }

    fn turns(sender: &mut Sender, most: u32) -> Vec<u32> {
        std::iter::from_fn(|| sender.next(most)).collect()
    }

    use Class::{Ahead, Demand};

    #[test]
    fn demand_overtakes_what_waits_and_nothing_that_has_its_turn() {
        let mut made = sender(&[(10, Ahead), (20, Ahead), (30, Ahead)]);
        assert_eq!(turns(&mut made, 2), [10, 20]);
        made.add(40, 4, Demand);
        assert_eq!(turns(&mut made, 2), [] as [u32; 0]);
        assert!(made.end_turn(10) && !made.end_turn(10));
        assert_eq!(turns(&mut made, 2), [40]);
        assert!(made.remove(20));
        assert_eq!(turns(&mut made, 2), [30]);
        assert!(made.has_turn(30) && !made.has_turn(10));
    }

    #[test]
    fn connection_sends_one_answer_after_the_other() {
        let mut made = sender(&[(10, Ahead), (11, Ahead), (12, Demand)]);
        assert_eq!(turns(&mut made, 4), [12, 10], "demand has a connection of its own");
        assert!(made.end_turn(10));
        assert_eq!(turns(&mut made, 4), [] as [u32; 0], "its rest is in the socket");
        assert!(made.remove(10));
        assert_eq!(turns(&mut made, 4), [11]);
    }

    #[test]
    fn receivers_take_turns() {
        let mut made = sender(&[(10, Demand), (11, Demand), (12, Demand), (20, Demand)]);
        let mut order = Vec::new();
        while let Some(next) = made.next(1) {
            order.push(next);
            made.remove(next);
        }
        assert_eq!(order, [10, 20, 11, 12]);
    }

    #[test]
    fn what_was_fetched_ahead_costs_no_turn_of_a_demand() {
        let mut made = sender(&[(10, Ahead), (11, Ahead)]);
        assert_eq!(made.next(1), Some(10));
        made.add(20, 2, Demand);
        made.add(12, 1, Demand);
        made.remove(10);
        assert_eq!(made.next(1), Some(20));
        made.add(21, 2, Demand);
        made.remove(20);
        assert_eq!(made.next(1), Some(12), "it had no turn for what it waits for");
    }

    #[test]
    fn promoted_answer_goes_before_all_that_is_ahead() {
        let mut made = sender(&[(10, Ahead), (20, Ahead), (30, Ahead)]);
        made.promote(30);
        assert_eq!(turns(&mut made, 1), [30]);
        made.promote(30);
        assert!(!made.remove(99));
    }
}
