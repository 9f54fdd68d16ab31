//! The pace of packets at a rate that changes.

use std::time::Duration;

use crate::limits::{BURST, BURST_PACKETS_MIN};
use crate::wire::PACKET_LEN_MAX;

/// Pace of a session's packets.
///
/// Source: the virtual scheduling of GCRA (ITU-T I.371). What a burst may be is [`BURST`] of the rate, so that
/// the ticks of a timer cost nothing, and at least [`BURST_PACKETS_MIN`] packets.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    /// Time at which everything that was sent would have been, one packet after the other.
    paid_until: Duration,
}

impl Pacer {
    /// Returns the time from which the next packet may be sent.
    pub fn due(&self, rate: f64) -> Duration {
        self.paid_until.saturating_sub(burst(rate))
    }

    /// Notes a packet that is sent at `now`, at `rate` bytes per second.
    pub fn sent(&mut self, bytes: usize, rate: f64, now: Duration) {
        self.paid_until = self.paid_until.max(now) + time_for(bytes, rate);
    }
}

fn time_for(bytes: usize, rate: f64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1.0))
}

fn burst(rate: f64) -> Duration {
    BURST.max(time_for(PACKET_LEN_MAX * (BURST_PACKETS_MIN - 1), rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn test_due_any_window_holds_rate_and_burst(
            rate in 20_000.0_f64..2e9, pauses in prop::collection::vec(0_u64..50_000, 2..200),
        ) {
            let (mut pacer, mut now, mut log) = (Pacer::default(), Duration::ZERO, Vec::new());
            for pause in pauses {
                now = (now + Duration::from_micros(pause)).max(pacer.due(rate));
                pacer.sent(PACKET_LEN_MAX, rate, now);
                log.push(now);
            }
            for (first, from) in log.iter().enumerate() {
                for (last, until) in log.iter().enumerate().skip(first) {
                    let bytes = ((last - first + 1) * PACKET_LEN_MAX) as f64;
                    let time = *until - *from + burst(rate);
                    let most = time.as_secs_f64() * rate + PACKET_LEN_MAX as f64;
                    prop_assert!(bytes <= most * 1.001 + 1.0, "{bytes} in {time:?} at {rate}");
                }
            }
        }

        #[test]
        fn test_due_a_sender_that_always_has_packets_reaches_the_rate(rate in 50_000.0_f64..2e8) {
            let (mut pacer, mut now, mut packets) = (Pacer::default(), Duration::ZERO, 0_u64);
            while now < Duration::from_secs(2) {
                now = now.max(pacer.due(rate));
                pacer.sent(PACKET_LEN_MAX, rate, now);
                packets += 1;
            }
            let share = packets as f64 * PACKET_LEN_MAX as f64 / (2.0 * rate);
            prop_assert!((0.95..1.15).contains(&share), "{share}");
        }
    }
}
