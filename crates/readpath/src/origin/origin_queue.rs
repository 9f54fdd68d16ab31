//! The queue in front of the origin: one entry per chunk, runs of neighbours, three lanes.
//!
//! Invariants: a digest is queued at most once, whoever waits for it, and under way at most once per
//! place, so that a pack which hangs keeps nobody from another that has the chunk, too; a run holds
//! neighbouring chunks of one pack and one lane; a lane runs only when those before it are empty,
//! and all but the demand lane only on their share of the threads; within a lane disks take turns,
//! and one disk never has all threads; what nobody waits for any more is not read, but for the probe
//! of an origin that is down; whatever makes something ready to run wakes a thread.

use std::collections::{BTreeMap, HashMap, VecDeque};

use acstor_pack::Run;
use acstor_types::{Digest, DiskId, PackId};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::origin::origin_health::{OriginAdmission, OriginHealth};
use crate::origin::origin_lanes::FairLane;
use crate::origin::stored_place::StoredPlace;
use crate::{OriginError, ReadPathConfig};

/// Reason for which the origin did not give a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginFailure {
    /// The call failed.
    Source(OriginError),
    /// The content is not what the digest names.
    Corrupt,
    /// The origin is down and this is not the time to probe it.
    Down,
    /// The queue is full.
    Full,
    /// The read path was stopped.
    Stopped,
}

/// Answer that a waiter gets.
pub(crate) type OriginAnswer = Result<Bytes, OriginFailure>;

/// Queue in which a miss waits. The greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// A preload brings the chunk.
    Preload,
    /// Somebody may soon ask for the chunk.
    Prefetch,
    /// Somebody waits for the chunk.
    Demand,
}

/// A chunk that is to be read.
#[derive(Debug)]
pub(crate) struct OriginMiss {
    pub(crate) digest: Digest,
    pub(crate) place: StoredPlace,
    /// Bytes of the chunk as it is read.
    pub(crate) len: usize,
    /// For which disk.
    pub(crate) disk: DiskId,
    pub(crate) lane: Lane,
    pub(crate) answer: oneshot::Sender<OriginAnswer>,
}

/// One call: neighbouring chunks of one pack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OriginRun {
    pub(crate) pack: PackId,
    /// In ascending order of offset; gaps between them are read and thrown away.
    pub(crate) parts: Vec<RunPart>,
    pub(crate) lane: Lane,
    /// The disk whose turn it was.
    pub(crate) disk: DiskId,
}

/// One chunk of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPart {
    pub(crate) digest: Digest,
    pub(crate) place: StoredPlace,
    /// Bytes of the chunk as it is read.
    pub(crate) len: usize,
}

/// Side of a run on which another chunk is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}

/// Key by which queued chunks are found by their places.
fn key(place: &StoredPlace) -> (PackId, u32) {
    (place.location.pack, place.location.offset)
}

type Waiters = Vec<oneshot::Sender<OriginAnswer>>;

/// A chunk that is queued.
#[derive(Debug)]
struct Entry {
    place: StoredPlace,
    len: usize,
    disk: DiskId,
    lane: Lane,
    waiters: Waiters,
}

impl Entry {
    fn is_unwanted(&self) -> bool {
        self.waiters.iter().all(oneshot::Sender::is_closed)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Queued chunks.
    entries: HashMap<Digest, Entry>,
    /// Those who wait for what is under way, by what is read and where.
    underway: HashMap<(Digest, StoredPlace), Waiters>,
    /// Queued entries by place; an entry is missing here where another digest claims its place.
    places: BTreeMap<(PackId, u32), Digest>,
    demand: FairLane,
    prefetch: FairLane,
    preload: FairLane,
    /// The chunk that is to show whether the origin is back: read before all others, whoever waits.
    probe: Option<Digest>,
    /// Runs under way for which nobody waits.
    idle_running: usize,
    /// Runs under way of each disk that has any.
    running: HashMap<DiskId, usize>,
    /// Threads that wait for something to do.
    sleeping: usize,
    is_stopped: bool,
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut FairLane {
        match lane {
            Lane::Demand => &mut self.demand,
            Lane::Prefetch => &mut self.prefetch,
            Lane::Preload => &mut self.preload,
        }
    }
}

/// The queue. Workers take runs from it.
#[derive(Debug)]
pub(crate) struct OriginQueue {
    state: Mutex<State>,
    /// Wakes worker threads.
    available: Condvar,
    /// Wakes the workers of tests, which are tasks, whenever `available` wakes a thread.
    #[cfg(test)]
    woken: tokio::sync::Notify,
    disk_runs_max: usize,
    queue_max: usize,
    run_max_bytes: usize,
    prefetch_workers_max: usize,
    pub(crate) health: OriginHealth,
}

impl OriginQueue {
    pub(crate) fn new(config: &ReadPathConfig) -> OriginQueue {
        OriginQueue {
            state: Mutex::new(State::default()),
            available: Condvar::new(),
            #[cfg(test)]
            woken: tokio::sync::Notify::new(),
            disk_runs_max: config.origin_threads,
            queue_max: config.origin_queue_max,
            run_max_bytes: config.origin_run_max_bytes,
            // Half of the threads, rounded down, so that a demand read finds one free.
            prefetch_workers_max: config.origin_threads / 2,
            health: OriginHealth::new(config.origin_deadline),
        }
    }

    /// Takes misses in; each gets its answer, at once where it is refused.
    pub(crate) fn submit(&self, misses: Vec<OriginMiss>, now: Instant) {
        let mut state = self.state.lock();
        let mut added = 0;
        for miss in misses {
            added += usize::from(self.submit_one(&mut state, miss, now));
        }
        self.wake(&state, added);
    }

    /// Wakes threads for so many runs that may be ready. The one place that does, so that whatever
    /// puts something into a lane cannot forget some of them.
    fn wake(&self, state: &State, runs: usize) {
        for _ in 0..runs.min(state.sleeping) {
            self.available.notify_one();
            #[cfg(test)]
            self.woken.notify_one();
        }
    }

    /// Takes one miss in; returns whether there is something new to run.
    fn submit_one(&self, state: &mut State, miss: OriginMiss, now: Instant) -> bool {
        let refuse = |answer: oneshot::Sender<OriginAnswer>, why| {
            // A waiter that has gone needs no answer.
            let _ = answer.send(Err(why));
            false
        };
        if state.is_stopped {
            return refuse(miss.answer, OriginFailure::Stopped);
        }
        if let Some(waiters) = state.underway.get_mut(&(miss.digest, miss.place)) {
            waiters.push(miss.answer);
            return false;
        }
        Self::move_unwanted(state, &miss.digest, miss.place);
        if let Some(entry) = state.entries.get_mut(&miss.digest) {
            entry.waiters.push(miss.answer);
            return Self::promote_entry(state, &miss.digest, miss.lane, Some(miss.disk));
        }
        if state.entries.len() >= self.queue_max {
            return refuse(miss.answer, OriginFailure::Full);
        }
        let is_probe = match self.health.admit(now) {
            OriginAdmission::Wait(_) => return refuse(miss.answer, OriginFailure::Down),
            admission => admission == OriginAdmission::Trial,
        };
        state.places.entry(key(&miss.place)).or_insert(miss.digest);
        let lane = if is_probe { Lane::Demand } else { miss.lane };
        match lane {
            _ if is_probe => {
                // One before it that no thread was free for is overdue, and waits like any other.
                if let Some(overdue) = state.probe.replace(miss.digest)
                    && let Some(entry) = state.entries.get(&overdue)
                {
                    state.demand.push(entry.disk, overdue);
                }
            }
            lane => state.lane(lane).push(miss.disk, miss.digest),
        }
        let entry = Entry {
            place: miss.place,
            len: miss.len,
            disk: miss.disk,
            lane,
            waiters: vec![miss.answer],
        };
        state.entries.insert(miss.digest, entry);
        true
    }

    /// Has a queued chunk that nobody waits for any more read at `place`, for who comes to wait for
    /// it: what was asked before may be there no longer.
    fn move_unwanted(state: &mut State, digest: &Digest, place: StoredPlace) {
        let Some(entry) = state.entries.get_mut(digest) else { return };
        if entry.place == place || !entry.is_unwanted() {
            return;
        }
        let before = std::mem::replace(&mut entry.place, place);
        Self::free_place(state, &before, digest);
        state.places.entry(key(&place)).or_insert(*digest);
    }

    /// Moves a chunk that is queued in a lane behind `lane` there.
    pub(crate) fn promote(&self, digest: &Digest, lane: Lane) {
        let mut state = self.state.lock();
        let runs = usize::from(Self::promote_entry(&mut state, digest, lane, None));
        self.wake(&state, runs);
    }

    /// Moves a queued chunk to `lane` where that goes before its own; in the demand lane to the turns of
    /// `disk`, where that wants it too. Returns whether that changed anything. Its former place is
    /// skipped when its turn comes.
    fn promote_entry(state: &mut State, digest: &Digest, lane: Lane, disk: Option<DiskId>) -> bool {
        let Some(entry) = state.entries.get_mut(digest) else { return false };
        let disk = disk.unwrap_or(entry.disk);
        let is_other_turn = lane == Lane::Demand && entry.disk != disk;
        let is_new = lane > entry.lane || is_other_turn;
        if is_new {
            (entry.lane, entry.disk) = (lane, disk);
            state.lane(lane).push(disk, *digest);
        }
        is_new
    }

    /// Takes the next run, or `None` where there is nothing to do now.
    #[cfg(test)]
    pub(crate) fn take_run(&self) -> Option<OriginRun> {
        let mut state = self.state.lock();
        self.take_run_locked(&mut state)
    }

    /// Waits for the next run on a thread; `None` after [`OriginQueue::stop`].
    pub(crate) fn wait_run(&self) -> Option<OriginRun> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(run) = self.take_run_locked(&mut state) {
                return Some(run);
            }
            state.sleeping += 1;
            self.available.wait(&mut state);
            state.sleeping -= 1;
        }
    }

    /// As [`OriginQueue::wait_run`] for a task: sleeps until it is woken as a thread would be.
    #[cfg(test)]
    pub(crate) async fn next_run(&self) -> OriginRun {
        loop {
            let woken = self.woken.notified();
            tokio::pin!(woken);
            {
                let mut state = self.state.lock();
                if let Some(run) = self.take_run_locked(&mut state) {
                    return run;
                }
                state.sleeping += 1;
                woken.as_mut().enable();
            }
            woken.await;
            self.state.lock().sleeping -= 1;
        }
    }

    fn take_run_locked(&self, state: &mut State) -> Option<OriginRun> {
        if let Some(digest) = state.probe.take()
            && let Some(entry) = state.entries.get(&digest)
        {
            let turn = (entry.disk, digest);
            return self.collect(state, turn, Lane::Demand);
        }
        if let Some(turn) = self.pop(state, Lane::Demand) {
            return self.collect(state, turn, Lane::Demand);
        }
        let running = state.idle_running;
        if running < self.prefetch_workers_max
            && let Some(turn) = self.pop(state, Lane::Prefetch)
        {
            return self.collect(state, turn, Lane::Prefetch);
        }
        // A preload goes on even where there is only one thread.
        if running < self.prefetch_workers_max.max(1) {
            let turn = self.pop(state, Lane::Preload)?;
            return self.collect(state, turn, Lane::Preload);
        }
        None
    }

    /// Pops the chunk of a lane that is next and still wanted.
    fn pop(&self, state: &mut State, lane: Lane) -> Option<(DiskId, Digest)> {
        loop {
            let (running, max) = (&state.running, self.disk_runs_max);
            let may_run = |disk: &DiskId| running.get(disk).is_none_or(|runs| *runs < max);
            let queued = match lane {
                Lane::Demand => &mut state.demand,
                Lane::Prefetch => &mut state.prefetch,
                Lane::Preload => &mut state.preload,
            };
            let (disk, digest) = queued.pop(may_run)?;
            let Some(entry) = state.entries.get(&digest) else { continue };
            if entry.lane != lane {
                continue;
            }
            if entry.is_unwanted() {
                Self::forget(state, &digest);
                continue;
            }
            return Some((disk, digest));
        }
    }

    fn forget(state: &mut State, digest: &Digest) {
        if let Some(entry) = state.entries.remove(digest) {
            Self::free_place(state, &entry.place, digest);
        }
    }

    fn free_place(state: &mut State, place: &StoredPlace, digest: &Digest) {
        if state.places.get(&key(place)) == Some(digest) {
            state.places.remove(&key(place));
        }
    }

    /// Marks a chunk as under way and returns it as a part.
    fn start(state: &mut State, digest: Digest) -> Option<RunPart> {
        let Entry { place, len, waiters, .. } = state.entries.remove(&digest)?;
        Self::free_place(state, &place, &digest);
        state.underway.insert((digest, place), waiters);
        Some(RunPart { digest, place, len })
    }

    /// Makes a run of a chunk and the queued neighbours of its lane on both sides.
    fn collect(
        &self,
        state: &mut State,
        (disk, digest): (DiskId, Digest),
        lane: Lane,
    ) -> Option<OriginRun> {
        let first = Self::start(state, digest)?;
        let pack = first.place.location.pack;
        let mut run = first.place.run();
        let mut parts = VecDeque::from([first]);
        while let Some(part) = self.start_neighbour(state, pack, lane, Side::Behind, &mut run) {
            parts.push_back(part);
        }
        while let Some(part) = self.start_neighbour(state, pack, lane, Side::Before, &mut run) {
            parts.push_front(part);
        }
        *state.running.entry(disk).or_default() += 1;
        state.idle_running += usize::from(lane != Lane::Demand);
        Some(OriginRun { pack, parts: parts.into(), lane, disk })
    }

    /// Starts the queued chunk of this lane that is next to a run, where it is still wanted and may be
    /// read with the run; which has it from then on.
    fn start_neighbour(
        &self,
        state: &mut State,
        pack: PackId,
        lane: Lane,
        side: Side,
        run: &mut Run,
    ) -> Option<RunPart> {
        let (start, end) = (run.offset() as u32, u32::try_from(run.end()).ok());
        let (_, digest) = match side {
            Side::Behind => state.places.range((pack, end?)..=(pack, u32::MAX)).next()?,
            Side::Before => state.places.range((pack, 0)..(pack, start)).next_back()?,
        };
        let digest = *digest;
        let entry = state.entries.get(&digest)?;
        if entry.lane != lane || entry.is_unwanted() {
            return None;
        }
        *run = entry.place.join(run, self.run_max_bytes)?;
        Self::start(state, digest)
    }

    /// Hands the answers of a run out, one per part and in their order; returns the chunks that
    /// nobody waited for any more.
    pub(crate) fn complete(
        &self,
        run: &OriginRun,
        answers: Vec<OriginAnswer>,
    ) -> Vec<(Digest, Bytes)> {
        let mut waiting = Vec::with_capacity(run.parts.len());
        let mut state = self.state.lock();
        for part in &run.parts {
            waiting.push(state.underway.remove(&(part.digest, part.place)));
        }
        state.idle_running -= usize::from(run.lane != Lane::Demand);
        if let Some(runs) = state.running.get_mut(&run.disk) {
            *runs -= 1;
            if *runs == 0 {
                state.running.remove(&run.disk);
            }
        }
        // What was held back by the share of its lane or of its disk may run now.
        self.wake(&state, 1);
        drop(state);
        let mut late = Vec::new();
        for ((part, answer), waiters) in run.parts.iter().zip(answers).zip(waiting) {
            let mut is_delivered = false;
            for waiter in waiters.into_iter().flatten() {
                is_delivered |= waiter.send(answer.clone()).is_ok();
            }
            if let (false, Ok(bytes)) = (is_delivered, answer) {
                late.push((part.digest, bytes));
            }
        }
        late
    }

    /// Returns whether a call for the chunk is under way, there.
    pub(crate) fn is_underway(&self, digest: &Digest, place: StoredPlace) -> bool {
        self.state.lock().underway.contains_key(&(*digest, place))
    }

    /// Most bytes of one call.
    pub(crate) fn run_bytes_max(&self) -> usize {
        self.run_max_bytes
    }

    /// Returns the number of chunks that wait.
    pub(crate) fn depth(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Refuses everything that waits and everything to come.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        for (_, entry) in state.entries.drain() {
            for waiter in entry.waiters {
                let _ = waiter.send(Err(OriginFailure::Stopped));
            }
        }
        state.places.clear();
        state.demand.clear();
        state.prefetch.clear();
        state.preload.clear();
        state.probe = None;
        drop(state);
        self.available.notify_all();
    }
}

#[cfg(test)]
mod tests;
