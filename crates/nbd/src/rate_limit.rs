//! An export's limits of requests and bytes per second.
//!
//! One large request is never refused, it makes the following ones wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_net::CellRate;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Burst after a pause, in time at the full rate.
const BURST: Duration = Duration::from_millis(100);
/// Longest debt that one request can make.
const DEBT_MAX: Duration = Duration::from_secs(60);

/// Limits of an export; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests per second, all connections.
    pub requests_per_s: Option<u64>,
    /// Bytes read and written per second, all connections; what a trim or zeroes cover is not moved.
    pub bytes_per_s: Option<u64>,
}

/// The meter of an export.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    is_limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limits: RateLimits,
    requests: Option<CellRate>,
    bytes: Option<CellRate>,
}

impl RateMeter {
    pub(crate) fn limits(&self) -> RateLimits {
        self.state.lock().limits
    }

    pub(crate) fn set_limits(&self, limits: RateLimits) {
        let mut state = self.state.lock();
        // A limit of 0 would stop the guest for ever: the lowest is 1.
        let at_least_one = |limit: Option<u64>| limit.map(|value| value.max(1));
        let limits = RateLimits {
            requests_per_s: at_least_one(limits.requests_per_s),
            bytes_per_s: at_least_one(limits.bytes_per_s),
        };
        // What was owed under the old limits is forgotten.
        *state = State { limits, requests: None, bytes: None };
        self.is_limited.store(limits != RateLimits::default(), Ordering::Release);
    }

    /// Counts a request of `bytes` bytes; returns when it may begin, `None` for now.
    pub(crate) fn charge(&self, now: Instant, bytes: u64) -> Option<Instant> {
        if !self.is_limited.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let limits = state.limits;
        let requests = advance(&mut state.requests, limits.requests_per_s, now, 1);
        let bytes = advance(&mut state.bytes, limits.bytes_per_s, now, bytes);
        let start = requests.max(bytes);
        (start > now).then_some(start)
    }
}

fn advance(rate: &mut Option<CellRate>, limit: Option<u64>, now: Instant, cost: u64) -> Instant {
    let Some(per_s) = limit else { return now };
    let rate = rate.get_or_insert_with(|| CellRate::saved(now, BURST));
    let due = rate.due(now, BURST);
    let debt = Duration::from_secs_f64((cost as f64 / per_s as f64).min(DEBT_MAX.as_secs_f64()));
    rate.take(due, debt);
    due.max(now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{RateLimits, RateMeter};

    /// Requests that begin within `span` when each is asked for as soon as the last one began.
    fn begun(meter: &RateMeter, bytes: u64, span: Duration) -> u64 {
        let start = Instant::now();
        let mut now = start;
        let mut count = 0;
        while now < start + span {
            now = meter.charge(now, bytes).unwrap_or(now);
            count += 1;
        }
        count
    }

    #[test]
    fn test_charge_without_limits_never_waits() {
        let meter = RateMeter::default();
        for _ in 0..1000 {
            assert_eq!(meter.charge(Instant::now(), 1 << 30), None);
        }
    }

    #[test]
    fn test_charge_keeps_the_rate_of_requests() {
        let meter = RateMeter::default();
        meter.set_limits(RateLimits { requests_per_s: Some(500), bytes_per_s: None });
        let count = begun(&meter, 4096, Duration::from_secs(10));
        assert!((5000..=5060).contains(&count), "{count}");
    }

    #[test]
    fn test_charge_keeps_the_rate_of_bytes() {
        let meter = RateMeter::default();
        meter.set_limits(RateLimits { requests_per_s: None, bytes_per_s: Some(1 << 20) });
        let count = begun(&meter, 64 << 10, Duration::from_secs(10));
        assert!((160..=163).contains(&count), "{count}");
    }

    #[test]
    fn test_charge_one_large_request_makes_the_next_ones_wait() {
        let meter = RateMeter::default();
        meter.set_limits(RateLimits { requests_per_s: None, bytes_per_s: Some(1 << 20) });
        let now = Instant::now();
        assert_eq!(meter.charge(now, 4 << 20), None);
        let start = meter.charge(now, 4096).unwrap();
        assert_eq!(start, now + Duration::from_millis(3900));
    }

    #[test]
    fn test_set_limits_forgets_debts() {
        let meter = RateMeter::default();
        meter.set_limits(RateLimits { requests_per_s: None, bytes_per_s: Some(1) });
        let now = Instant::now();
        assert_eq!(meter.charge(now, 1 << 20), None);
        assert!(meter.charge(now, 1).is_some());
        meter.set_limits(RateLimits::default());
        assert_eq!(meter.charge(now, 1), None);
    }
}
