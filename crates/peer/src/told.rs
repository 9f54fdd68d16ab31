//! The load that a peer told with its last answer.

use std::time::Duration;

use acstor_runclock::RunInstant;

use crate::frame::{FREE_RATE_LOG2_MAX, ToldLoad};

/// Load of a peer as it told it: a prior for what one has not seen oneself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Time that a demand would wait for its turn to be sent.
    pub wait: Duration,
    /// Bytes per second that the peer's link has to spare, at least; `None` where it does not know.
    pub free_rate: Option<u64>,
    /// Arrival of the answer, by the client's clock.
    pub at: RunInstant,
}

impl Told {
    pub(crate) fn new(load: ToldLoad, at: RunInstant) -> Told {
        let ToldLoad { wait_ms, free_rate_log2 } = load;
        let rate = 1_u64.checked_shl(free_rate_log2.into());
        Told {
            wait: Duration::from_millis(wait_ms.into()),
            free_rate: rate.filter(|_| free_rate_log2 > 0),
            at,
        }
    }
}

impl ToldLoad {
    /// Returns what is told of a wait and of a rate as [`free_rate_log2`] has it.
    pub(crate) fn new(wait: Duration, free_rate_log2: u8) -> ToldLoad {
        ToldLoad { wait_ms: u16::try_from(wait.as_millis()).unwrap_or(u16::MAX), free_rate_log2 }
    }
}

/// Returns the logarithm under which a rate is told: never 0, which is a rate that is not known. A link of
/// which nothing is free is told as the least.
pub(crate) fn free_rate_log2(bytes_per_second: u64) -> u8 {
    let log2 = bytes_per_second.checked_ilog2().unwrap_or(0).max(1);
    u8::try_from(log2).unwrap_or(FREE_RATE_LOG2_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_told_is_what_was_meant_rounded_down() {
        let at = RunInstant::unmeasured();
        for (rate, told) in [
            (None, None),
            (Some(0), Some(2)),
            (Some(1), Some(2)),
            (Some(3), Some(2)),
            (Some(125_000_000), Some(1 << 26)),
            (Some(u64::MAX), Some(1 << 63)),
        ] {
            let log2 = rate.map_or(0, free_rate_log2);
            let back = Told::new(ToldLoad::new(Duration::from_micros(1999), log2), at);
            assert_eq!((back.wait, back.free_rate), (Duration::from_millis(1), told), "{rate:?}");
        }
        assert_eq!(ToldLoad::new(Duration::from_secs(3600), 0).wait_ms, u16::MAX);
    }
}
