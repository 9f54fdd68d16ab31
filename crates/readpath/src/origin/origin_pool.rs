//! The origin's workers: gathering, calling, verifying.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use acstor_pack::ChunkDecompressor;
use acstor_types::{Digest, PackId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fetch::sources::Want;
use crate::observe::metrics::Metrics;
use crate::origin::moved_packs::{MovedPacks, MovedRun};
use crate::origin::origin_queue::{
    Lane, OriginAnswer, OriginFailure, OriginMiss, OriginQueue, OriginRun, RunPart,
};
use crate::{OriginError, OriginRange, OriginSource, ReadPathError, StoredObject, limits};

/// Takes chunks that arrived after everybody stopped waiting for them.
pub(crate) type LateSink = Arc<dyn Fn(Vec<(Digest, Bytes)>) + Send + Sync>;

/// Workers and queue of the misses that only the origin can serve.
///
/// Misses that arrive together, from guests and from peers alike, are gathered before the first
/// of them is queued, so that neighbours leave the origin in one call: the gathering lets tasks run
/// that are ready now and never waits for time to pass. Whatever comes while the workers are
/// busy gathers in the queue itself.
#[derive(Debug)]
pub(crate) struct OriginPool {
    queue: Arc<OriginQueue>,
    staged: Mutex<Staged>,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Staged {
    misses: Vec<OriginMiss>,
    is_flush_due: bool,
}

impl OriginPool {
    pub(crate) fn new(queue: Arc<OriginQueue>, runtime: Handle) -> Arc<OriginPool> {
        Arc::new(OriginPool { queue, staged: Mutex::default(), runtime })
    }

    /// Asks for a chunk.
    pub(crate) fn request(
        self: &Arc<Self>,
        want: &Want,
        lane: Lane,
    ) -> oneshot::Receiver<OriginAnswer> {
        let (answer, receiver) = oneshot::channel();
        let mut staged = self.staged.lock();
        staged.misses.push(OriginMiss {
            digest: want.digest,
            place: want.place,
            len: want.chunk_size.bytes(),
            disk: want.disk,
            lane,
            answer,
        });
        if !staged.is_flush_due {
            staged.is_flush_due = true;
            let pool = self.clone();
            self.runtime.spawn(async move { pool.flush().await });
        }
        receiver
    }

    /// Queues what was staged once no more comes.
    async fn flush(&self) {
        let mut seen = 0;
        for _ in 0..limits::GATHER_ROUNDS_MAX {
            tokio::task::yield_now().await;
            let len = self.staged.lock().misses.len();
            if len == seen {
                break;
            }
            seen = len;
        }
        let misses = {
            let mut staged = self.staged.lock();
            staged.is_flush_due = false;
            std::mem::take(&mut staged.misses)
        };
        self.queue.submit(misses, Instant::now());
    }

    /// Says that a chunk that was asked for is more urgent now.
    pub(crate) fn promote(&self, digest: &Digest, lane: Lane) {
        let mut staged = self.staged.lock();
        for miss in staged.misses.iter_mut().filter(|miss| miss.digest == *digest) {
            miss.lane = miss.lane.max(lane);
        }
        drop(staged);
        self.queue.promote(digest, lane);
    }

    pub(crate) fn queue(&self) -> &OriginQueue {
        &self.queue
    }
}

/// Starts `threads` worker threads and one more, which only a second disk gets while one keeps all
/// others busy; they end after [`OriginQueue::stop`], at the latest when the call that
/// they wait for returns.
pub(crate) fn start_threads(
    queue: &Arc<OriginQueue>,
    source: &Arc<dyn OriginSource>,
    metrics: &Arc<Metrics>,
    late_sink: &LateSink,
    threads: usize,
) -> Result<(), ReadPathError> {
    let moved = Arc::new(MovedPacks::new(queue.run_bytes_max()));
    for number in 0..workers(threads) {
        let (queue, source, moved) = (queue.clone(), source.clone(), moved.clone());
        let (metrics, late_sink) = (metrics.clone(), late_sink.clone());
        let work = move || {
            let mut decompressor = ChunkDecompressor::new();
            while let Some(run) = queue.wait_run() {
                let started = Instant::now();
                let result = read_run(&*source, &moved, &run, &mut decompressor);
                finish_run(&queue, &metrics, &late_sink, &run, result, started);
            }
        };
        thread::Builder::new().name(format!("acstor-origin-{number}")).spawn(work).map_err(
            |error| ReadPathError::Thread { name: "acstor-origin", cause: error.to_string() },
        )?;
    }
    Ok(())
}

/// Workers for so many calls of one disk at a time.
pub(crate) fn workers(threads: usize) -> usize {
    threads + 1
}

/// Result of a run's calls.
pub(crate) struct RunResult {
    pub(crate) answers: Vec<OriginAnswer>,
    /// Error of the call; that of the last one where the run was split.
    pub(crate) error: Option<OriginError>,
    pub(crate) calls: u64,
}

/// Calls the source for a run and verifies every chunk.
///
/// A run that fails because the pack is damaged is read again chunk by chunk, so that a damaged
/// chunk takes no neighbour with it. One whose pack is missing is read where a compaction has put it.
pub(crate) fn read_run(
    source: &dyn OriginSource,
    moved: &MovedPacks,
    run: &OriginRun,
    decompressor: &mut ChunkDecompressor,
) -> RunResult {
    let mut reading = Reading { source, moved, decompressor, error: None, calls: 0 };
    let answers = reading.read(&run.pack, &run.parts, limits::MOVED_HOPS_MAX);
    RunResult { answers, error: reading.error, calls: reading.calls }
}

/// The reading of one run.
struct Reading<'a> {
    source: &'a dyn OriginSource,
    moved: &'a MovedPacks,
    decompressor: &'a mut ChunkDecompressor,
    error: Option<OriginError>,
    calls: u64,
}

impl Reading<'_> {
    /// Reads parts of a pack, which may have been moved up to `hops` times.
    fn read(&mut self, pack: &PackId, parts: &[RunPart], hops: u32) -> Vec<OriginAnswer> {
        if hops > 0
            && let Some(runs) = self.moved.known(pack, parts)
        {
            return self.read_moved(&runs, hops - 1);
        }
        self.calls += 1;
        let error = match read_parts(self.source, pack, parts, self.decompressor) {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        let is_several = parts.len() > 1;
        match &error {
            OriginError::ShortRead { .. } if is_several => self.read_singly(pack, parts, hops),
            OriginError::NotFound { .. } | OriginError::Undecided { .. } if hops > 0 => {
                match self.moved.look_up(self.source, pack, parts) {
                    Ok(Some(runs)) => self.read_moved(&runs, hops - 1),
                    // Some of them may have been moved all the same.
                    Ok(None) if is_several && is_missing(&error) => {
                        self.read_singly(pack, parts, hops)
                    }
                    Ok(None) => self.fail(error, parts),
                    // Whether it was moved, nobody knows who answers.
                    Err(OriginError::Undecided { .. }) => self.fail(error, parts),
                    Err(other) => self.fail(other, parts),
                }
            }
            _ => self.fail(error, parts),
        }
    }

    fn read_singly(&mut self, pack: &PackId, parts: &[RunPart], hops: u32) -> Vec<OriginAnswer> {
        parts.iter().flat_map(|part| self.read(pack, std::slice::from_ref(part), hops)).collect()
    }

    fn read_moved(&mut self, runs: &[MovedRun], hops: u32) -> Vec<OriginAnswer> {
        runs.iter().flat_map(|(pack, parts)| self.read(pack, parts, hops)).collect()
    }

    fn fail(&mut self, error: OriginError, parts: &[RunPart]) -> Vec<OriginAnswer> {
        let answer = Err(OriginFailure::Source(error.clone()));
        self.error = Some(error);
        vec![answer; parts.len()]
    }
}

fn is_missing(error: &OriginError) -> bool {
    matches!(error, OriginError::NotFound { .. })
}

/// The ranges of parts, and between them those of the gaps.
struct Ranges {
    ranges: Vec<OriginRange>,
    /// Positions of the ranges that are gaps, ascending.
    gaps: Vec<usize>,
}

impl Ranges {
    fn of(parts: &[RunPart]) -> Ranges {
        let mut found = Ranges { ranges: Vec::with_capacity(parts.len()), gaps: Vec::new() };
        let mut at = None;
        for part in parts {
            let range = part.place.range();
            if let Some(end) = at.filter(|end| *end < range.start) {
                found.gaps.push(found.ranges.len());
                found.ranges.push(OriginRange::new(end, (range.start - end) as usize));
            }
            found.ranges.push(OriginRange::new(range.start, (range.end - range.start) as usize));
            at = Some(range.end);
        }
        found
    }

    /// The ranges without the gaps: one per part.
    fn into_parts(self) -> impl Iterator<Item = OriginRange> {
        let gaps = self.gaps;
        let ranges = self.ranges.into_iter().enumerate();
        ranges.filter(move |(at, _)| gaps.binary_search(at).is_err()).map(|(_, range)| range)
    }
}

fn read_parts(
    source: &dyn OriginSource,
    pack: &PackId,
    parts: &[RunPart],
    decompressor: &mut ChunkDecompressor,
) -> Result<Vec<OriginAnswer>, OriginError> {
    let mut read = Ranges::of(parts);
    // A driver's panic must not take a worker with it: the pool would shrink unnoticed.
    let call = catch_unwind(AssertUnwindSafe(|| source.read(pack, &mut read.ranges)));
    call.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())))?;
    let decode = |(range, part): (OriginRange, &RunPart)| {
        let RunPart { digest, place, len } = part;
        let member = range.member;
        match place.decode(digest, range.buffer, *len, decompressor) {
            Some(chunk) => Ok(chunk),
            None => read_elsewhere(source, pack, part, member, decompressor),
        }
    };
    Ok(read.into_parts().zip(parts).map(decode).collect())
}

/// Reads a chunk that came damaged from a member of the origin from the others.
fn read_elsewhere(
    source: &dyn OriginSource,
    pack: &PackId,
    part: &RunPart,
    member: u8,
    decompressor: &mut ChunkDecompressor,
) -> OriginAnswer {
    let RunPart { digest, place, len } = part;
    let bounds = place.range();
    let mut range = OriginRange::new(bounds.start, (bounds.end - bounds.start) as usize);
    range.member = member;
    let mut chunk = None;
    let mut is_sound = |range: &mut OriginRange| {
        chunk = place.decode(digest, std::mem::take(&mut range.buffer), *len, decompressor);
        chunk.is_some()
    };
    let object = StoredObject::Pack(*pack);
    let read = AssertUnwindSafe(|| source.read_elsewhere(&object, &mut range, &mut is_sound));
    let outcome = catch_unwind(read);
    match outcome.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned()))) {
        Ok(_) => chunk.ok_or(OriginFailure::Corrupt),
        Err(error) => Err(OriginFailure::Source(error)),
    }
}

/// Counts a run, tells the breaker and hands the answers out.
pub(crate) fn finish_run(
    queue: &OriginQueue,
    metrics: &Metrics,
    late_sink: &LateSink,
    run: &OriginRun,
    result: RunResult,
    started: Instant,
) {
    metrics.origin_call(run, &result, started.elapsed());
    match &result.error {
        Some(
            OriginError::Unavailable { .. } | OriginError::Overloaded(_) | OriginError::Internal(_),
        ) => queue.health.failed(Instant::now()),
        // Whoever says that a pack is missing or short is there; so are some members, where others are not.
        _ => queue.health.succeeded(),
    }
    let late = queue.complete(run, result.answers);
    if !late.is_empty() {
        late_sink(late);
    }
}

#[cfg(test)]
mod tests;
