//! Connections to peers that died, as `crates/peer` has them.
//!
//! A peer that died says nothing more: a connection that stands is given up after a while of
//! silence, and from then on only the fetch that is to make the next one waits, all others fail at
//! once.

use crate::random::Random;
use crate::rules::Rules;

/// Of a connection that owes answers: `probe_after` and `probe_timeout` of `crates/peer`, seconds.
const SILENCE_MAX: f64 = 3.0;
const RETRY_MIN: f64 = 0.1;
const RETRY_MAX: f64 = 10.0;

/// The connection to a peer that is dead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    failures: u32,
    until: f64,
}

impl Connection {
    /// Returns how long a fetch waits before it fails; `is_open`: a connection stands.
    pub(crate) fn silence(
        &mut self,
        rules: &Rules,
        is_open: bool,
        random: &mut Random,
        now: f64,
    ) -> f64 {
        if self.failures == 0 {
            if self.until == 0.0 {
                self.until = now + if is_open { SILENCE_MAX } else { rules.connect_timeout };
            }
            if now < self.until {
                return self.until - now;
            }
            self.failures = 1;
            self.until += random.backoff(0, RETRY_MIN, RETRY_MAX);
        }
        if now < self.until {
            return 0.0;
        }
        let again = random.backoff(self.failures, RETRY_MIN, RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.until = now + rules.connect_timeout + again;
        rules.connect_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::read(|name| Ok::<_, ()>(if name == "connect_timeout" { 1.0 } else { 0.0 })).unwrap()
    }

    #[test]
    fn connection_is_given_up_and_then_one_fetch_waits() {
        let (rules, mut random) = (rules(), Random::new(1));
        let mut connection = Connection::default();
        let mut silence = |now| connection.silence(&rules, true, &mut random, now);
        assert_eq!(silence(100.0), 3.0);
        assert_eq!(silence(102.0), 1.0, "the connection stands");
        assert_eq!(silence(103.0), 0.0, "given up");
        let mut now = 103.2;
        for number in 1..9 {
            assert_eq!(silence(now), 1.0, "the next one is made");
            assert_eq!(silence(now + 0.1), 0.0, "nobody else waits for it");
            let most = f64::from(1 << number) * RETRY_MIN;
            assert_eq!(silence(now + 0.9 + most.min(RETRY_MAX) / 2.0), 0.0, "nor soon after");
            now += 1.0 + most.min(RETRY_MAX);
        }
    }

    #[test]
    fn peer_without_a_connection_is_connected_to() {
        let mut connection = Connection::default();
        assert_eq!(connection.silence(&rules(), false, &mut Random::new(1), 5.0), 1.0);
    }
}
