//! Load of a peer as it told it with an answer: a prior, where nothing newer was seen of it.
//!
//! Source: C3 (Suresh et al., NSDI 2015): servers tell their queue and their service time with each answer.
//! Differs: what is told counts only until an answer for which somebody waited was timed, and only against
//! the peer. It is bounded, since it may be a lie, and it fades and is forgotten, since who is passed over
//! for what it told is not heard again.

use std::time::Duration;

use crate::{Moment, limits};

/// Load of a peer at one moment, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldLoad {
    /// Time that a demand would wait for its turn.
    wait: Duration,
    /// Time of one chunk over what is free of the peer's link; zero where it does not know.
    sending: Duration,
    at: Moment,
}

/// Returns the time of one chunk over a link of which so many bytes per second are free, at most
/// [`limits::TOLD_TIME_MAX`].
pub fn transfer_time(chunk_bytes: u64, free_rate: u64) -> Duration {
    let seconds = chunk_bytes as f64 / free_rate.max(1) as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).min(limits::TOLD_TIME_MAX)
}

impl ToldLoad {
    /// A load that was told at `at`; `free_rate`: bytes per second that the peer's link has to spare, where
    /// it knows. What it tells beyond [`limits::TOLD_TIME_MAX`] counts as that.
    pub fn new(wait: Duration, free_rate: Option<u64>, chunk_bytes: u64, at: Moment) -> ToldLoad {
        ToldLoad {
            wait: wait.min(limits::TOLD_TIME_MAX),
            sending: free_rate.map_or(Duration::ZERO, |rate| transfer_time(chunk_bytes, rate)),
            at,
        }
    }

    /// Returns when it was told.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// Returns whether it is so old that it tells nothing any more.
    pub fn is_forgotten(&self, now: Moment) -> bool {
        now.since(self.at) >= limits::TOLD_AGE_MAX
    }

    /// Time that the peer makes a chunk wait and takes to send it; half of that after each
    /// [`limits::ESTIMATE_HALF_LIFE`].
    pub fn of_peer(&self, now: Moment) -> Duration {
        self.faded(self.wait + self.sending, now)
    }

    /// Time of one chunk from the peer: the way of one over idle links, the wait, and the slower of both
    /// links. `receiving`: time of one chunk over this host's own link.
    pub fn prior(&self, way: Duration, receiving: Duration, now: Moment) -> Duration {
        way + self.faded(self.wait.saturating_add(self.sending.max(receiving)), now)
    }

    /// Time of one chunk over the peer's link, as it fades.
    pub fn sending(&self, now: Moment) -> Duration {
        self.faded(self.sending, now)
    }

    fn faded(&self, time: Duration, now: Moment) -> Duration {
        let age = now.since(self.at).as_secs_f64();
        let left = (-age / limits::ESTIMATE_HALF_LIFE.as_secs_f64()).exp2();
        time.min(limits::TOLD_TIME_MAX).mul_f64(left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 65_536;
    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn test_prior_is_the_way_the_wait_and_the_slower_link() {
        let at = Moment::ZERO;
        let told = ToldLoad::new(3 * MILLI, Some(CHUNK * 500), CHUNK, at);
        assert_eq!(told.of_peer(at), 5 * MILLI);
        assert_eq!(told.prior(MILLI, Duration::ZERO, at), 6 * MILLI);
        assert_eq!(told.prior(MILLI, MILLI, at), 6 * MILLI);
        assert_eq!(told.prior(MILLI, 7 * MILLI, at), 11 * MILLI);
        let untold = ToldLoad::new(Duration::ZERO, None, CHUNK, at);
        assert_eq!(untold.prior(MILLI, Duration::ZERO, at), MILLI);
    }

    #[test]
    fn test_told_load_fades_and_is_forgotten() {
        let told = ToldLoad::new(8 * MILLI, None, CHUNK, Moment::ZERO);
        let later = |halves: u32| Moment::ZERO + limits::ESTIMATE_HALF_LIFE * halves;
        assert_eq!(told.of_peer(later(1)), 4 * MILLI);
        assert_eq!(told.of_peer(later(2)), 2 * MILLI);
        assert!(!told.is_forgotten(later(0)));
        assert!(told.is_forgotten(Moment::ZERO + limits::TOLD_AGE_MAX));
    }

    proptest! {
        /// Whatever is told, it counts for no more than a peer may take at all.
        #[test]
        fn proptest_lies_are_bounded(
            wait in any::<u32>(), rate in prop::option::of(any::<u64>()), age in 0_u64..1 << 40,
        ) {
            let told = ToldLoad::new(Duration::from_millis(wait.into()), rate, CHUNK, Moment::ZERO);
            let now = Moment::ZERO + Duration::from_nanos(age);
            prop_assert!(told.of_peer(now) <= limits::TOLD_TIME_MAX);
            prop_assert!(told.prior(MILLI, Duration::MAX, now) <= limits::TOLD_TIME_MAX + MILLI);
        }
    }
}
