//! Liveness of the runtime: a task beats, and the age of its last beat can be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two beats.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The beats of one runtime.
#[derive(Debug)]
pub(super) struct Pulse {
    epoch: Instant,
    /// Milliseconds after the epoch.
    last_beat: AtomicU64,
}

impl Pulse {
    /// Returns one whose first beat is now.
    pub(super) fn new() -> Arc<Pulse> {
        Arc::new(Pulse { epoch: Instant::now(), last_beat: AtomicU64::new(0) })
    }

    /// Beats on `runtime` until the result of it is all that is left of the pulse.
    pub(super) fn start(self: &Arc<Self>, runtime: &tokio::runtime::Handle) {
        let pulse = Arc::downgrade(self);
        runtime.spawn(async move {
            while let Some(pulse) = pulse.upgrade() {
                pulse.beat(Instant::now());
                drop(pulse);
                tokio::time::sleep(BEAT_INTERVAL).await;
            }
        });
    }

    fn beat(&self, now: Instant) {
        self.last_beat.store(self.milliseconds(now), Ordering::Relaxed);
    }

    /// Returns the time by which the beat that is due is late.
    pub(super) fn late(&self, now: Instant) -> Duration {
        let last = self.last_beat.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.milliseconds(now).saturating_sub(last));
        since.saturating_sub(BEAT_INTERVAL)
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_runs_no_task_is_late_until_it_does() {
        let pulse = Pulse::new();
        let later = Instant::now() + Duration::from_secs(90);
        assert!(pulse.late(later) >= Duration::from_secs(88));
        pulse.beat(later);
        assert_eq!(pulse.late(later), Duration::ZERO);
    }
}
