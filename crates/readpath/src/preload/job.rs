//! One preload: what was asked for and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::recent_rate::RecentRate;
use super::{PreloadRequest, PreloadState, PreloadStatus};

/// One preload.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) disk: DiskId,
    request: PreloadRequest,
    is_hint: AtomicBool,
    rate: AtomicU64,
    pub(crate) rate_changed: Notify,
    started_at: SystemTime,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    state: PreloadState,
    total: u64,
    present: u64,
    fetched: u64,
    remaining: u64,
    recent: RecentRate,
    is_yielding: bool,
    /// Chunks that wait for the origin to come back.
    waiting: usize,
    error: Option<String>,
}

impl Progress {
    fn become_state(&mut self, next: PreloadState) {
        if self.state.may_become(next) {
            self.state = next;
        }
    }

    /// Brings the state in line with what the job does.
    fn settle(&mut self) {
        if !matches!(self.state, PreloadState::Queued) {
            self.become_state(if self.waiting > 0 {
                PreloadState::Waiting
            } else if self.is_yielding {
                PreloadState::Yielding
            } else {
                PreloadState::Running
            });
        }
    }
}

/// A chunk of a job that waits for the origin, until it is dropped.
#[derive(Debug)]
pub(crate) struct OriginWait<'a>(&'a Job);

/// A job that gives way to guests, until it is dropped.
#[derive(Debug)]
pub(crate) struct Yield<'a>(&'a Job);

impl Job {
    pub(crate) fn new(disk: DiskId, request: PreloadRequest, is_hint: bool) -> Job {
        Job {
            disk,
            request,
            is_hint: is_hint.into(),
            rate: request.rate_bytes_per_s.into(),
            rate_changed: Notify::new(),
            started_at: SystemTime::now(),
            progress: Mutex::new(Progress {
                state: PreloadState::Queued,
                total: 0,
                present: 0,
                fetched: 0,
                remaining: 0,
                recent: RecentRate::new(),
                is_yielding: false,
                waiting: 0,
                error: None,
            }),
        }
    }

    /// Returns the request, with the rate of now.
    pub(crate) fn request(&self) -> PreloadRequest {
        PreloadRequest { rate_bytes_per_s: self.rate(), ..self.request }
    }

    pub(crate) fn is_hint(&self) -> bool {
        self.is_hint.load(Ordering::Relaxed)
    }

    /// Bytes per second; 0: no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Acquire)
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Release);
        self.rate_changed.notify_waiters();
    }

    /// Makes somebody's own what a hint started.
    pub(crate) fn adopt(&self) {
        self.is_hint.store(false, Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> PreloadState {
        self.progress.lock().state
    }

    /// Its turn has come.
    pub(crate) fn begin(&self) {
        let mut progress = self.progress.lock();
        progress.become_state(PreloadState::Running);
        progress.recent = RecentRate::new();
    }

    /// Notes what a look at the chunk store found, bytes.
    pub(crate) fn surveyed(&self, total: u64, missing: u64) {
        let mut progress = self.progress.lock();
        progress.total = total;
        progress.remaining = missing;
        progress.present = (total - missing).saturating_sub(progress.fetched);
    }

    /// Notes a chunk that this job brought.
    pub(crate) fn fetched(&self, bytes: u64) {
        let mut progress = self.progress.lock();
        progress.fetched += bytes;
        progress.remaining = progress.remaining.saturating_sub(bytes);
        progress.recent.add(bytes);
    }

    /// Notes a chunk that somebody else brought.
    pub(crate) fn found(&self, bytes: u64) {
        let mut progress = self.progress.lock();
        progress.present += bytes;
        progress.remaining = progress.remaining.saturating_sub(bytes);
    }

    pub(crate) fn give_way(&self) -> Yield<'_> {
        let mut progress = self.progress.lock();
        progress.is_yielding = true;
        progress.settle();
        Yield(self)
    }

    pub(crate) fn wait_for_origin(&self) -> OriginWait<'_> {
        let mut progress = self.progress.lock();
        progress.waiting += 1;
        progress.settle();
        OriginWait(self)
    }

    /// Ends it; returns the state where it had not ended before.
    pub(crate) fn end(&self, state: PreloadState, error: Option<String>) -> Option<PreloadState> {
        let mut progress = self.progress.lock();
        if progress.state.has_ended() {
            return None;
        }
        if state == PreloadState::Done {
            (progress.is_yielding, progress.waiting) = (false, 0);
            progress.settle();
        }
        progress.become_state(state);
        progress.error = error;
        Some(progress.state)
    }

    pub(crate) fn status(&self) -> PreloadStatus {
        let mut progress = self.progress.lock();
        let has_ended = progress.state.has_ended();
        PreloadStatus {
            disk: self.disk,
            request: self.request(),
            is_hint: self.is_hint(),
            state: progress.state,
            total_bytes: progress.total,
            present_bytes: progress.present,
            fetched_bytes: progress.fetched,
            remaining_bytes: progress.remaining,
            recent_bytes_per_s: if has_ended { 0 } else { progress.recent.get() },
            started_at: self.started_at,
            error: progress.error.clone(),
        }
    }
}

impl Drop for OriginWait<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        progress.waiting = progress.waiting.saturating_sub(1);
        progress.settle();
    }
}

impl Drop for Yield<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        progress.is_yielding = false;
        progress.settle();
    }
}
