//! The preloads of one host: starting, changing and stopping them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use acstor_types::DiskId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::failure::PreloadFailure;
use super::feed::PreloadFeed;
use super::room::{Room, wanted};
use super::{Job, PreloadEstimate, PreloadRequest, PreloadState, PreloadStatus, PreloadWhat, run};
use crate::fetch::outcome::{PreloadEnd, PreloadHint};
use crate::fetch::sources::Sources;
use crate::view::attachment::Attachment;
use crate::view::attachments::Attachments;
use crate::{ReadPathError, limits};

/// The newest preload of each disk that had one.
pub(crate) struct Preloads {
    pub(super) sources: Arc<Sources>,
    pub(super) attachments: Arc<Attachments>,
    pub(super) room: Room,
    jobs: Mutex<HashMap<DiskId, Entry>>,
    /// One permit per preload that runs.
    pub(super) places: Arc<Semaphore>,
    /// Asked before anything is fetched; set once at the most.
    pub(crate) feed: OnceLock<Arc<dyn PreloadFeed>>,
}

#[derive(Debug)]
struct Entry {
    job: Arc<Job>,
    task: AbortHandle,
}

impl Preloads {
    pub(crate) fn new(
        sources: Arc<Sources>,
        attachments: Arc<Attachments>,
        room: Room,
    ) -> Preloads {
        let places = Arc::new(Semaphore::new(limits::PRELOAD_JOBS_MAX));
        let feed = OnceLock::new();
        Preloads { sources, attachments, room, jobs: Mutex::default(), places, feed }
    }

    /// Returns the number of preloads in each state, in the order of [`PreloadState::ALL`].
    pub(crate) fn counts(&self) -> [usize; PreloadState::ALL.len()] {
        let jobs = self.jobs.lock();
        PreloadState::ALL
            .map(|state| jobs.values().filter(|entry| entry.job.state() == state).count())
    }

    /// Bytes pinned for a disk, for its head and tail too.
    pub(crate) fn pinned_bytes(&self, disk_id: &DiskId) -> u64 {
        let chunk = self.sources.chunks.store.chunk_size().bytes() as u64;
        self.room.pinned_chunks(disk_id) as u64 * chunk
    }

    /// The bytes that a preload would bring, and the room there is for them. A look-up per chunk; blocks
    /// where the manifest is not in memory.
    pub(crate) fn estimate(
        &self,
        disk_id: &DiskId,
        what: PreloadWhat,
    ) -> Result<PreloadEstimate, ReadPathError> {
        let disk = self.attachments.read(disk_id)?;
        Ok(self.room.survey(&disk, &*wanted(&disk, what)?)?.estimate)
    }

    /// Starts to bring a disk, or what its boots read, into the chunk store; returns at once.
    ///
    /// One job per disk: a live one of the same `what` and `pin` gets the new rate, any other is
    /// replaced.
    pub(crate) fn start(
        self: &Arc<Self>,
        disk_id: &DiskId,
        request: PreloadRequest,
    ) -> Result<PreloadStatus, ReadPathError> {
        let disk = self.attachments.find(disk_id)?;
        if request.what == PreloadWhat::WorkingSet {
            if disk.records.working_set.load().is_none() {
                return Err(ReadPathError::NoWorkingSet(*disk_id));
            }
        } else if disk.shape.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            let (chunks, max) = (disk.shape.chunk_count, limits::WORKING_SET_CHUNKS_MAX);
            return Err(ReadPathError::TooManyChunks { disk: *disk_id, chunks, max });
        }
        let mut jobs = self.jobs.lock();
        if let Some(Entry { job, task }) = jobs.get(disk_id)
            && !job.state().has_ended()
        {
            let current = job.request();
            if (current.what, current.pin) == (request.what, request.pin) {
                job.set_rate(request.rate_bytes_per_s);
                job.adopt();
                return Ok(job.status());
            }
            self.end_task(job, task);
        }
        Ok(self.spawn(&mut jobs, disk, request, false).status())
    }

    fn spawn(
        self: &Arc<Self>,
        jobs: &mut HashMap<DiskId, Entry>,
        disk: Arc<Attachment>,
        request: PreloadRequest,
        is_hint: bool,
    ) -> Arc<Job> {
        let job = Arc::new(Job::new(disk.id(), request, is_hint));
        let run = run::run(self.clone(), disk, job.clone());
        let task = self.sources.runtime.spawn(run).abort_handle();
        jobs.insert(job.disk, Entry { job: job.clone(), task });
        job
    }

    /// The newest preload of each disk that had one, in the order of ids.
    pub(crate) fn status(&self) -> Vec<PreloadStatus> {
        let jobs = self.jobs.lock();
        let mut found: Vec<PreloadStatus> = jobs.values().map(|entry| entry.job.status()).collect();
        found.sort_by_key(|status| status.disk);
        found
    }

    /// Stops the preload of a disk; what it brought stays. Nothing happens where there is none.
    pub(crate) fn stop(&self, disk_id: &DiskId) -> Result<(), ReadPathError> {
        self.attachments.find(disk_id)?;
        if let Some(Entry { job, task }) = self.jobs.lock().get(disk_id) {
            self.end_task(job, task);
        }
        Ok(())
    }

    /// Stops every preload, for good.
    pub(crate) fn stop_all(&self) {
        self.places.close();
        for Entry { job, task } in self.jobs.lock().values() {
            self.end_task(job, task);
        }
    }

    /// Stops the preload of a disk that is detached, and takes back what was pinned by it.
    pub(crate) fn forget(&self, disk_id: &DiskId) {
        if let Some(Entry { job, task }) = self.jobs.lock().remove(disk_id) {
            self.end_task(&job, &task);
        }
        self.room.unpin(disk_id);
    }

    fn end_task(&self, job: &Job, task: &AbortHandle) {
        self.end(job, PreloadState::Stopped, None);
        task.abort();
    }

    pub(super) fn end(&self, job: &Job, state: PreloadState, failure: Option<PreloadFailure>) {
        let error = failure.map(|failure| failure.to_string());
        if let Some(error) = &error {
            tracing::warn!(disk = %job.disk, "preload failed: {error}");
        }
        let Some(ended) = job.end(state, error) else { return };
        self.sources.metrics.preload.ended(match ended {
            PreloadState::Failed => PreloadEnd::Failed,
            PreloadState::Stopped => PreloadEnd::Stopped,
            _ => PreloadEnd::Done,
        });
        let status = job.status();
        tracing::info!(
            disk = %job.disk, state = ended.as_str(), what = status.request.what.as_str(),
            fetched = status.fetched_bytes, "preload ended"
        );
    }

    /// Follows a hint that a disk is about to be booted: preloads its working set at a rate, bytes
    /// per second, where it has one that is not all here and nothing preloads the disk. Returns at
    /// once and never waits.
    pub(crate) fn hint(self: &Arc<Self>, disk_id: DiskId, rate: u64) {
        let preloads = self.clone();
        self.sources.runtime.spawn(async move {
            let outcome = preloads.follow_hint(&disk_id, rate);
            preloads.sources.metrics.preload.hint(outcome);
        });
    }

    fn follow_hint(self: &Arc<Self>, disk_id: &DiskId, rate: u64) -> PreloadHint {
        if rate == 0 {
            return PreloadHint::Off;
        }
        let Some(disk) = self.attachments.get(disk_id) else { return PreloadHint::Unknown };
        let working_set = disk.records.working_set.load_full();
        let Some(working_set) = working_set else { return PreloadHint::Unknown };
        let mut jobs = self.jobs.lock();
        if jobs.get(disk_id).is_some_and(|entry| !entry.job.state().has_ended()) {
            return PreloadHint::Busy;
        }
        let coverage = working_set.coverage(&*self.sources.chunks.store);
        if coverage.present_chunks >= coverage.wanted_chunks {
            return PreloadHint::Complete;
        }
        let what = PreloadWhat::WorkingSet;
        let request = PreloadRequest { what, rate_bytes_per_s: rate, pin: false };
        self.spawn(&mut jobs, disk, request, true);
        PreloadHint::Started
    }
}
