//! Share of one host in what an origin has to spare.

use std::time::Duration;

use crate::{Moment, limits};

/// Reads of the origin in the place of peers that one host may have under way.
///
/// They grow by one with each round of answers that take what is typical for the origin, and halve when
/// answers take more. So hosts that read one origin come to equal shares of what it has to spare, and none
/// of them is told of another. All answers of the origin count, those to reads of this host's own chunks
/// too: a storm that fills the origin takes the share away before anybody asked for it.
///
/// Source: Chiu and Jain, *Analysis of the increase and decrease algorithms for congestion avoidance in
/// computer networks*, 1989, as TCP has it. Differs: the time of answers tells, not their loss.
#[derive(Clone, Copy, Debug)]
pub struct OriginShare {
    reads: f64,
    /// Time of the last halving.
    halved: Option<Moment>,
}

impl Default for OriginShare {
    fn default() -> OriginShare {
        OriginShare { reads: 1.0, halved: None }
    }
}

impl OriginShare {
    /// Notes an answer of the origin, which takes `time` for one chunk more. Answers to what was asked
    /// before a halving tell nothing new.
    pub fn note(&mut self, is_typical: bool, time: Duration, now: Moment) {
        if is_typical {
            let most = limits::ORIGIN_READS_MAX as f64;
            self.reads = (self.reads + 1.0 / self.reads.max(1.0)).min(most);
        } else if self.halved.is_none_or(|at| now.since(at) > time) {
            self.reads /= 2.0;
            self.halved = Some(now);
        }
    }

    /// Reads that may be under way.
    pub fn reads(&self) -> usize {
        self.reads as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn test_note_adds_one_read_for_a_round_of_answers_and_halves_once_for_a_slow_one() {
        let mut share = OriginShare::default();
        let mut now = Moment::ZERO;
        for expected in 2..=20 {
            for _ in 0..expected {
                share.note(true, MILLI, now);
            }
            assert!(share.reads() + 1 >= expected && share.reads() <= expected + 1, "{expected}");
        }
        let before = share.reads();
        share.note(false, 8 * MILLI, now);
        share.note(false, 8 * MILLI, now + 8 * MILLI);
        assert_eq!(share.reads(), before / 2, "what was under way says the same");
        for _ in 0..20 {
            now = now + 10 * MILLI;
            share.note(false, 8 * MILLI, now);
        }
        assert_eq!(share.reads(), 0);
        share.note(true, MILLI, now);
        assert_eq!(share.reads(), 1, "it has room again");
    }

    #[test]
    fn test_reads_are_bounded() {
        let mut share = OriginShare::default();
        (0..100_000).for_each(|_| share.note(true, MILLI, Moment::ZERO));
        assert_eq!(share.reads(), limits::ORIGIN_READS_MAX);
    }

    /// Two hosts that begin with unequal shares of an origin with room for 40 reads.
    #[test]
    fn test_two_hosts_come_to_equal_shares() {
        let mut shares = [OriginShare { reads: 38.0, halved: None }, OriginShare::default()];
        let mut now = Moment::ZERO;
        for _ in 0..400 {
            now = now + 10 * MILLI;
            let is_typical = shares.iter().map(OriginShare::reads).sum::<usize>() <= 40;
            for share in &mut shares {
                // A round: each read is answered.
                for _ in 0..share.reads().max(1) {
                    share.note(is_typical, 9 * MILLI, now);
                }
            }
        }
        let [one, other] = shares.map(|share| share.reads());
        assert!(one.abs_diff(other) <= 3, "{one} and {other}");
        assert!(one + other > 15, "{one} and {other}");
    }
}
