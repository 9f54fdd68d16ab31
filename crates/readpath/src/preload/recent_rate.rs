//! Recent rate of a quantity.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(250);

/// Bytes per second over the last seconds, in a bounded number of steps.
#[derive(Debug)]
pub(crate) struct RecentRate {
    started: Instant,
    steps: VecDeque<(Instant, u64)>,
}

impl RecentRate {
    pub(crate) fn new() -> RecentRate {
        RecentRate { started: Instant::now(), steps: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        let now = Instant::now();
        match self.steps.back_mut() {
            Some((at, sum)) if now < *at + STEP => *sum += bytes,
            _ => self.steps.push_back((now, bytes)),
        }
        self.forget(now);
    }

    /// Bytes per second.
    pub(crate) fn get(&mut self) -> u64 {
        let now = Instant::now();
        self.forget(now);
        let bytes: u64 = self.steps.iter().map(|(_, bytes)| bytes).sum();
        let time = (now - self.started).clamp(STEP, WINDOW);
        (bytes as f64 / time.as_secs_f64()) as u64
    }

    fn forget(&mut self, now: Instant) {
        while self.steps.front().is_some_and(|(at, _)| *at + WINDOW < now) {
            self.steps.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn test_get_follows_the_last_seconds() {
        let mut rate = RecentRate::new();
        for _ in 0..100 {
            rate.add(1000);
            advance(Duration::from_millis(100)).await;
        }
        assert!((9_000..=11_000).contains(&rate.get()), "{}", rate.get());
        assert!(rate.steps.len() <= 22);
        advance(WINDOW * 2).await;
        assert_eq!(rate.get(), 0);
    }
}
