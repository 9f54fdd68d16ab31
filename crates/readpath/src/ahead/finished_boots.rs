//! Boots of one host: how many are recorded at a time, and those that wait to be told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use acstor_types::DiskId;
use parking_lot::Mutex;

use crate::fetch::outcome::BootOutcome;
use crate::limits;
use crate::observe::metrics::Metrics;

/// Order in which one boot read the chunks of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBoot {
    /// Number of the boot on this host; no two ever have the same.
    pub number: u64,
    /// The disk.
    pub disk: DiskId,
    /// Chunks of the disk.
    pub chunk_count: u64,
    /// Different chunks, in the order of first touch.
    pub order: Vec<u32>,
}

/// The boots of a host that were recorded and not yet acknowledged.
#[derive(Debug)]
pub(crate) struct FinishedBoots {
    recording: AtomicUsize,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of the next boot. Those of a process begin with the time of its start, so that no process
    /// is taken for one before it.
    next: u64,
    boots: VecDeque<RecordedBoot>,
    chunks: usize,
}

/// Right to record a boot.
#[derive(Debug)]
pub(crate) struct RecordingPermit(Arc<FinishedBoots>);

impl Drop for RecordingPermit {
    fn drop(&mut self) {
        self.0.recording.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FinishedBoots {
    pub(crate) fn new(metrics: Arc<Metrics>) -> FinishedBoots {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(since.as_micros()).unwrap_or(1).max(1);
        let state = Mutex::new(State { next, boots: VecDeque::new(), chunks: 0 });
        FinishedBoots { recording: AtomicUsize::new(0), metrics, state }
    }

    /// Returns the right to record a boot; `None` while as many are recorded as may be.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<RecordingPermit> {
        let more = |count| (count < limits::BOOTS_RECORDED_MAX).then_some(count + 1);
        if self.recording.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.metrics.preload.boot_order(BootOutcome::Refused);
            return None;
        }
        Some(RecordingPermit(self.clone()))
    }

    /// Keeps a boot that is over until it is acknowledged; `None`: it was none.
    pub(crate) fn finished(&self, disk: DiskId, chunk_count: u64, order: Option<Vec<u32>>) {
        let Some(order) = order else { return self.metrics.preload.boot_order(BootOutcome::Short) };
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.chunks += order.len();
        state.boots.push_back(RecordedBoot { number, disk, chunk_count, order });
        self.metrics.preload.boot_order(BootOutcome::Recorded);
        while state.boots.len() > limits::BOOTS_FINISHED_MAX
            || state.chunks > limits::BOOTS_FINISHED_CHUNKS_MAX
        {
            let Some(oldest) = state.boots.pop_front() else { return };
            state.chunks -= oldest.order.len();
            self.metrics.preload.boot_order(BootOutcome::Lost);
        }
    }

    /// Forgets the boots up to the number `acknowledged`, and returns the next ones. They stay until they
    /// are acknowledged themselves, so that a lost answer loses none.
    pub(crate) fn recorded(&self, acknowledged: u64) -> Vec<RecordedBoot> {
        let mut state = self.state.lock();
        while state.boots.front().is_some_and(|boot| boot.number <= acknowledged) {
            let told = state.boots.pop_front();
            state.chunks -= told.map_or(0, |boot| boot.order.len());
        }
        let mut chunks = 0;
        let fit = state.boots.iter().take_while(|boot| {
            let is_first = chunks == 0;
            chunks += boot.order.len();
            is_first || chunks <= limits::BOOTS_TOLD_CHUNKS_MAX
        });
        fit.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn boots() -> Arc<FinishedBoots> {
        Arc::new(FinishedBoots::new(Arc::new(Metrics::new(&mut Registry::default()))))
    }

    fn disk() -> DiskId {
        DiskId::from_bytes([7; 16])
    }

    fn finish(boots: &FinishedBoots, chunks: u32) {
        boots.finished(disk(), 1 << 20, Some((0..chunks).collect()));
    }

    #[test]
    fn test_boots_stay_until_they_are_acknowledged() {
        let boots = boots();
        assert_eq!(boots.recorded(0), []);
        (1..=3).for_each(|chunks| finish(&boots, chunks));
        let told = boots.recorded(0);
        assert_eq!(told.iter().map(|boot| boot.order.len()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(boots.recorded(0), told, "a lost answer loses nothing");
        finish(&boots, 4);
        let rest = boots.recorded(told[1].number);
        assert_eq!(rest.iter().map(|boot| boot.order.len()).collect::<Vec<_>>(), [3, 4]);
        assert!(rest[0].number < rest[1].number && rest[1].number < 1 << 53);
        assert_eq!(boots.recorded(u64::MAX), []);
    }

    #[test]
    fn test_number_of_a_process_before_acknowledges_nothing() {
        let before = boots();
        finish(&before, 1);
        let old = before.recorded(0)[0].number;
        std::thread::sleep(std::time::Duration::from_micros(10));
        let boots = boots();
        finish(&boots, 1);
        assert_eq!(boots.recorded(old).len(), 1);
    }

    #[test]
    fn test_boots_that_nobody_takes_are_bounded() {
        let boots = boots();
        (0..limits::BOOTS_FINISHED_MAX + 5).for_each(|_| finish(&boots, 1));
        assert_eq!(boots.recorded(0).len(), limits::BOOTS_FINISHED_MAX);
        (0..100).for_each(|_| finish(&boots, limits::BOOT_CHUNKS_MAX as u32));
        let state = boots.state.lock();
        assert_eq!(state.chunks, limits::BOOTS_FINISHED_CHUNKS_MAX);
        assert_eq!(state.boots.len(), limits::BOOTS_FINISHED_CHUNKS_MAX / limits::BOOT_CHUNKS_MAX);
    }

    #[test]
    fn test_answer_is_bounded_and_has_one_boot_at_least() {
        let boots = boots();
        (0..40).for_each(|_| finish(&boots, limits::BOOT_CHUNKS_MAX as u32));
        let told = boots.recorded(0);
        assert_eq!(told.len(), limits::BOOTS_TOLD_CHUNKS_MAX / limits::BOOT_CHUNKS_MAX);
        assert_eq!(boots.recorded(told[15].number).len(), 16);
    }

    #[test]
    fn test_no_more_are_recorded_at_a_time_than_allowed() {
        let boots = boots();
        let mut permits: Vec<_> =
            (0..limits::BOOTS_RECORDED_MAX).map(|_| boots.begin().unwrap()).collect();
        assert!(boots.begin().is_none());
        permits.pop();
        assert!(boots.begin().is_some());
    }
}
