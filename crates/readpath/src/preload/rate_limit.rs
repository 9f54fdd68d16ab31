//! A token bucket in bytes per second whose burst is one batch more than what is due, or what the
//! clock's ticks cost.

use std::time::Duration;

use acstor_net::CellRate;
use tokio::time::{Instant, sleep_until};

use super::Job;
use crate::limits;

/// Rate limit of one preload.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// `None`: all that was taken counts as paid.
    taken: Option<CellRate>,
}

/// Bytes to take at a time at a rate, 0 for no limit: whole chunks, at least one.
pub(crate) fn batch_bytes(rate: u64, chunk: usize) -> usize {
    let max = limits::PRELOAD_BATCH_BYTES_MAX.max(chunk);
    if rate == 0 {
        return max / chunk * chunk;
    }
    let share = usize::try_from(rate / limits::PRELOAD_BATCHES_PER_SECOND).unwrap_or(max);
    share.clamp(chunk, max) / chunk * chunk
}

fn time_for(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}

impl RateLimit {
    /// Waits until `bytes`, one batch at most, may be taken at the job's rate, and takes them.
    ///
    /// # Cancel safety
    /// Nothing is taken when dropped.
    pub(crate) async fn take(&mut self, job: &Job, bytes: usize) {
        loop {
            let changed = job.rate_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let rate = job.rate();
            if rate == 0 {
                self.taken = None;
                return;
            }
            let cost = time_for(bytes, rate);
            let now = Instant::now();
            let burst = cost.max(limits::PRELOAD_BURST_TIME);
            let mut taken = self.taken.unwrap_or_else(|| CellRate::new(now));
            let due = taken.due(now, burst);
            tokio::select! {
                () = sleep_until(due) => {
                    taken.take(due, cost);
                    self.taken = Some(taken);
                    return;
                }
                // What was taken at the former rate counts as paid.
                () = changed => self.taken = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::DiskId;
    use proptest::prelude::*;

    use super::*;
    use crate::preload::{PreloadRequest, PreloadWhat};

    const CHUNK: usize = 65_536;

    fn job(rate_bytes_per_s: u64) -> Job {
        let request = PreloadRequest { what: PreloadWhat::Full, rate_bytes_per_s, pin: false };
        Job::new(DiskId::from_bytes([1; 16]), request, false)
    }

    /// Takes batches for `time`; returns the bytes taken.
    async fn taken(limit: &mut RateLimit, job: &Job, time: Duration) -> u64 {
        let end = Instant::now() + time;
        let mut bytes = 0;
        loop {
            let batch = batch_bytes(job.rate(), CHUNK);
            match tokio::time::timeout_at(end, limit.take(job, batch)).await {
                Ok(()) => bytes += batch as u64,
                Err(_) => return bytes,
            }
        }
    }

    #[test]
    fn test_batch_bytes_is_a_quarter_of_a_second_in_whole_chunks() {
        assert_eq!(batch_bytes(0, CHUNK), 1 << 20);
        assert_eq!(batch_bytes(u64::MAX, CHUNK), 1 << 20);
        assert_eq!(batch_bytes(1, CHUNK), CHUNK);
        assert_eq!(batch_bytes(1_000_000, CHUNK), 3 * CHUNK);
        assert_eq!(batch_bytes(0, 4 << 20), 4 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn test_take_holds_the_rate_within_5_per_cent() {
        for rate in [100_000, 1_000_000, 50_000_000, 3_000_000_000] {
            let (mut limit, job) = (RateLimit::default(), job(rate));
            let seconds = 60;
            let bytes = taken(&mut limit, &job, Duration::from_secs(seconds)).await;
            let share = bytes as f64 / (rate * seconds) as f64;
            assert!((0.95..=1.05).contains(&share), "{rate}: {share}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn test_take_after_a_pause_lets_one_batch_more_through() {
        let (mut limit, job) = (RateLimit::default(), job(1_000_000));
        taken(&mut limit, &job, Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let bytes = taken(&mut limit, &job, Duration::from_secs(1)).await;
        assert!(bytes <= 1_000_000 + 2 * batch_bytes(1_000_000, CHUNK) as u64, "{bytes}");
    }

    #[tokio::test(start_paused = true)]
    async fn test_take_follows_a_change_of_the_rate_at_once() {
        let (mut limit, job) = (RateLimit::default(), std::sync::Arc::new(job(1)));
        limit.take(&job, CHUNK).await;
        let (start, other) = (Instant::now(), job.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            other.set_rate(0);
        });
        limit.take(&job, CHUNK).await;
        assert_eq!(start.elapsed().as_secs(), 3, "not 18 hours");
    }

    proptest! {
        #[test]
        fn test_take_never_exceeds_rate_and_burst_in_any_window(
            rate in 20_000_u64..200_000_000, pauses in prop::collection::vec(0_u64..3000, 1..40),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let (mut limit, job) = (RateLimit::default(), job(rate));
                let batch = batch_bytes(rate, CHUNK);
                let mut log = Vec::new();
                for pause in pauses {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    limit.take(&job, batch).await;
                    log.push(Instant::now());
                }
                for (first, from) in log.iter().enumerate() {
                    for (last, until) in log.iter().enumerate().skip(first) {
                        let bytes = ((last - first + 1) * batch) as f64;
                        let most = (*until - *from).as_secs_f64() * rate as f64;
                        // The clock of the runtime ticks in milliseconds.
                        assert!(bytes <= most * 1.01 + (2 * batch) as f64 + rate as f64 * 12e-3);
                    }
                }
            });
        }
    }
}
