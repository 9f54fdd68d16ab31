//! The queue in front of the origin: one entry per chunk, runs of neighbours, three lanes.
//!
//! Invariants: a digest is queued or under way at most once, whoever waits for it; a run holds
//! neighbouring chunks of one pack and one lane; a lane runs only when those before it are empty,
//! and all but the demand lane only on their share of the threads; what nobody waits for any more is
//! not read.

use std::collections::{BTreeMap, HashMap, VecDeque};

use acstor_types::{ChunkLocation, Digest, PackId};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::origin_health::{Admission, OriginHealth};
use crate::{OriginError, ReadPathConfig};

/// Why the origin did not give a chunk.
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

/// What a waiter gets.
pub(crate) type OriginAnswer = Result<Bytes, OriginFailure>;

/// Which queue a miss waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Somebody waits for the chunk.
    Demand,
    /// Somebody may soon ask for the chunk.
    Prefetch,
    /// A preload brings the chunk.
    Preload,
}

/// A chunk that is to be read.
#[derive(Debug)]
pub(crate) struct OriginMiss {
    pub(crate) digest: Digest,
    pub(crate) location: ChunkLocation,
    pub(crate) len: usize,
    pub(crate) lane: Lane,
    pub(crate) answer: oneshot::Sender<OriginAnswer>,
}

/// One call: neighbouring chunks of one pack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OriginRun {
    pub(crate) pack: PackId,
    /// In ascending order of offset, each where the one before ends.
    pub(crate) parts: Vec<RunPart>,
    pub(crate) lane: Lane,
}

/// One chunk of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPart {
    pub(crate) digest: Digest,
    pub(crate) offset: u32,
    pub(crate) len: usize,
}

#[derive(Debug)]
struct Entry {
    location: ChunkLocation,
    len: usize,
    lane: Lane,
    is_running: bool,
    waiters: Vec<oneshot::Sender<OriginAnswer>>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Digest, Entry>,
    /// Queued entries by place; an entry is missing here where another digest claims its place.
    places: BTreeMap<(PackId, u32), Digest>,
    demand: VecDeque<Digest>,
    prefetch: VecDeque<Digest>,
    preload: VecDeque<Digest>,
    queued: usize,
    /// Runs under way for which nobody waits.
    idle_running: usize,
    is_stopped: bool,
}

/// The queue. Workers take runs from it.
#[derive(Debug)]
pub(crate) struct OriginQueue {
    state: Mutex<State>,
    /// Wakes worker threads.
    available: Condvar,
    /// Wakes the workers of tests, which are tasks.
    #[cfg(test)]
    pub(crate) submitted: tokio::sync::Notify,
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
            submitted: tokio::sync::Notify::new(),
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
        drop(state);
        #[cfg(test)]
        (0..added).for_each(|_| self.submitted.notify_one());
        if added > 1 {
            self.available.notify_all();
        } else if added == 1 {
            self.available.notify_one();
        }
    }

    fn submit_one(&self, state: &mut State, miss: OriginMiss, now: Instant) -> bool {
        let refuse = |answer: oneshot::Sender<OriginAnswer>, why| {
            // A waiter that has gone needs no answer.
            let _ = answer.send(Err(why));
            false
        };
        if state.is_stopped {
            return refuse(miss.answer, OriginFailure::Stopped);
        }
        if let Some(entry) = state.entries.get_mut(&miss.digest) {
            entry.waiters.push(miss.answer);
            if miss.lane == Lane::Demand {
                Self::promote_entry(state, &miss.digest);
            }
            return false;
        }
        if state.queued >= self.queue_max {
            return refuse(miss.answer, OriginFailure::Full);
        }
        if let Admission::Wait(_) = self.health.admit(now) {
            return refuse(miss.answer, OriginFailure::Down);
        }
        let place = (miss.location.pack, miss.location.offset);
        state.places.entry(place).or_insert(miss.digest);
        match miss.lane {
            Lane::Demand => state.demand.push_back(miss.digest),
            Lane::Prefetch => state.prefetch.push_back(miss.digest),
            Lane::Preload => state.preload.push_back(miss.digest),
        }
        state.queued += 1;
        let entry = Entry {
            location: miss.location,
            len: miss.len,
            lane: miss.lane,
            is_running: false,
            waiters: vec![miss.answer],
        };
        state.entries.insert(miss.digest, entry);
        true
    }

    /// Moves a chunk that is queued in another lane to the demand lane.
    pub(crate) fn promote(&self, digest: &Digest) {
        let mut state = self.state.lock();
        if Self::promote_entry(&mut state, digest) {
            drop(state);
            self.available.notify_one();
        }
    }

    fn promote_entry(state: &mut State, digest: &Digest) -> bool {
        match state.entries.get_mut(digest) {
            Some(entry) if entry.lane != Lane::Demand && !entry.is_running => {
                entry.lane = Lane::Demand;
                // Its place in the other lane is skipped when its turn comes.
                state.demand.push_back(*digest);
                true
            }
            _ => false,
        }
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
            self.available.wait(&mut state);
        }
    }

    fn take_run_locked(&self, state: &mut State) -> Option<OriginRun> {
        if let Some(digest) = Self::pop(state, Lane::Demand) {
            return self.collect(state, digest, Lane::Demand);
        }
        let running = state.idle_running;
        if running < self.prefetch_workers_max
            && let Some(digest) = Self::pop(state, Lane::Prefetch)
        {
            return self.collect_idle(state, digest, Lane::Prefetch);
        }
        // A preload goes on even where there is only one thread.
        if running < self.prefetch_workers_max.max(1) {
            let digest = Self::pop(state, Lane::Preload)?;
            return self.collect_idle(state, digest, Lane::Preload);
        }
        None
    }

    fn collect_idle(&self, state: &mut State, digest: Digest, lane: Lane) -> Option<OriginRun> {
        let run = self.collect(state, digest, lane);
        state.idle_running += usize::from(run.is_some());
        run
    }

    /// Pops the oldest chunk of a lane that is still wanted.
    fn pop(state: &mut State, lane: Lane) -> Option<Digest> {
        loop {
            let digest = match lane {
                Lane::Demand => state.demand.pop_front()?,
                Lane::Prefetch => state.prefetch.pop_front()?,
                Lane::Preload => state.preload.pop_front()?,
            };
            let Some(entry) = state.entries.get(&digest) else { continue };
            if entry.is_running || entry.lane != lane {
                continue;
            }
            if entry.waiters.iter().all(oneshot::Sender::is_closed) {
                Self::forget(state, &digest);
                continue;
            }
            return Some(digest);
        }
    }

    fn forget(state: &mut State, digest: &Digest) {
        let Some(entry) = state.entries.remove(digest) else { return };
        if !entry.is_running {
            state.queued -= 1;
            Self::free_place(state, &entry.location, digest);
        }
    }

    fn free_place(state: &mut State, location: &ChunkLocation, digest: &Digest) {
        let place = (location.pack, location.offset);
        if state.places.get(&place) == Some(digest) {
            state.places.remove(&place);
        }
    }

    /// Marks a chunk as under way and returns it as a part.
    fn start(state: &mut State, digest: Digest) -> Option<RunPart> {
        let entry = state.entries.get_mut(&digest)?;
        entry.is_running = true;
        let (location, len) = (entry.location, entry.len);
        state.queued -= 1;
        Self::free_place(state, &location, &digest);
        Some(RunPart { digest, offset: location.offset, len })
    }

    /// Makes a run of a chunk and the queued neighbours of its lane on both sides.
    fn collect(&self, state: &mut State, digest: Digest, lane: Lane) -> Option<OriginRun> {
        let pack = state.entries.get(&digest)?.location.pack;
        let first = Self::start(state, digest)?;
        let mut bytes = first.len;
        let mut parts = VecDeque::from([first]);
        let mut end = u64::from(first.offset) + first.len as u64;
        while let Some(part) = self.start_neighbour(state, (pack, end), lane, bytes, None) {
            bytes += part.len;
            end += part.len as u64;
            parts.push_back(part);
        }
        let mut start = u64::from(first.offset);
        while let Some(before) = start.checked_sub(first.len as u64) {
            // Only a chunk of the same size ends where the run starts.
            let place = (pack, before);
            let Some(part) = self.start_neighbour(state, place, lane, bytes, Some(first.len))
            else {
                break;
            };
            bytes += part.len;
            start = before;
            parts.push_front(part);
        }
        Some(OriginRun { pack, parts: parts.into(), lane })
    }

    /// Starts the queued chunk of this lane at `place`, where it is still wanted and fits.
    fn start_neighbour(
        &self,
        state: &mut State,
        place: (PackId, u64),
        lane: Lane,
        bytes: usize,
        len: Option<usize>,
    ) -> Option<RunPart> {
        let digest = *state.places.get(&(place.0, u32::try_from(place.1).ok()?))?;
        let entry = state.entries.get(&digest)?;
        let is_wanted = entry.lane == lane
            && bytes + entry.len <= self.run_max_bytes
            && len.is_none_or(|len| len == entry.len)
            && !entry.waiters.iter().all(oneshot::Sender::is_closed);
        if is_wanted { Self::start(state, digest) } else { None }
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
            waiting.push(state.entries.remove(&part.digest).map(|entry| entry.waiters));
        }
        let was_idle = run.lane != Lane::Demand;
        if was_idle {
            state.idle_running -= 1;
        }
        drop(state);
        if was_idle {
            self.available.notify_one();
        }
        let mut orphans = Vec::new();
        for ((part, answer), waiters) in run.parts.iter().zip(answers).zip(waiting) {
            let mut is_delivered = false;
            for waiter in waiters.into_iter().flatten() {
                is_delivered |= waiter.send(answer.clone()).is_ok();
            }
            if let (false, Ok(bytes)) = (is_delivered, answer) {
                orphans.push((part.digest, bytes));
            }
        }
        orphans
    }

    /// How many chunks wait.
    pub(crate) fn depth(&self) -> usize {
        self.state.lock().queued
    }

    /// Refuses everything that waits and everything to come.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let digests: Vec<Digest> = state
            .entries
            .iter()
            .filter_map(|(digest, entry)| (!entry.is_running).then_some(*digest))
            .collect();
        for digest in digests {
            if let Some(entry) = state.entries.remove(&digest) {
                for waiter in entry.waiters {
                    let _ = waiter.send(Err(OriginFailure::Stopped));
                }
            }
        }
        state.places.clear();
        state.demand.clear();
        state.prefetch.clear();
        state.preload.clear();
        state.queued = 0;
        drop(state);
        self.available.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadPathConfig;

    const LEN: usize = 65_536;

    fn queue(threads: usize, queue_max: usize) -> OriginQueue {
        OriginQueue::new(&ReadPathConfig {
            host: "a".into(),
            origin_threads: threads,
            origin_queue_max: queue_max,
            origin_run_max_bytes: 4 * LEN,
            ..ReadPathConfig::default()
        })
    }

    fn pack(number: u8) -> PackId {
        PackId(Digest::of(&[number]))
    }

    fn miss(
        pack_number: u8,
        position: u32,
        lane: Lane,
    ) -> (OriginMiss, oneshot::Receiver<OriginAnswer>) {
        let (answer, receiver) = oneshot::channel();
        let offset = 4096 + position * LEN as u32;
        let digest = Digest::of(&[&[pack_number][..], &position.to_le_bytes()].concat());
        let location = ChunkLocation { pack: pack(pack_number), offset };
        (OriginMiss { digest, location, len: LEN, lane, answer }, receiver)
    }

    fn submit(
        queue: &OriginQueue,
        pack: u8,
        positions: &[u32],
        lane: Lane,
    ) -> Vec<oneshot::Receiver<OriginAnswer>> {
        let (misses, receivers) = positions.iter().map(|p| miss(pack, *p, lane)).unzip();
        queue.submit(misses, Instant::now());
        receivers
    }

    fn positions(run: &OriginRun) -> Vec<u32> {
        run.parts.iter().map(|part| (part.offset - 4096) / LEN as u32).collect()
    }

    #[test]
    fn test_take_run_merges_neighbours_up_to_the_limit() {
        let queue = queue(4, 100);
        let _waiting = submit(&queue, 1, &[2, 1, 3, 5, 4, 0], Lane::Demand);
        assert_eq!(positions(&queue.take_run().unwrap()), [2, 3, 4, 5]);
        assert_eq!(positions(&queue.take_run().unwrap()), [0, 1]);
        assert_eq!(queue.take_run(), None);
    }

    #[test]
    fn test_take_run_keeps_packs_apart() {
        let queue = queue(4, 100);
        let _one = submit(&queue, 1, &[0], Lane::Demand);
        let _two = submit(&queue, 2, &[1], Lane::Demand);
        let first = queue.take_run().unwrap();
        assert_eq!((first.pack, positions(&first)), (pack(1), vec![0]));
        assert_eq!(queue.take_run().unwrap().pack, pack(2));
    }

    #[test]
    fn test_submit_same_digest_twice_is_one_read_with_two_answers() {
        let queue = queue(4, 100);
        let mut one = submit(&queue, 1, &[0], Lane::Demand);
        let run = queue.take_run().unwrap();
        let mut two = submit(&queue, 1, &[0], Lane::Demand);
        assert_eq!(queue.take_run(), None, "it is under way");
        queue.complete(&run, vec![Ok(Bytes::from_static(b"x"))]);
        assert!(one[0].try_recv().unwrap().is_ok());
        assert!(two[0].try_recv().unwrap().is_ok());
    }

    #[test]
    fn test_submit_full_queue_refuses() {
        let queue = queue(4, 2);
        let mut waiting = submit(&queue, 1, &[0, 5, 9], Lane::Demand);
        assert_eq!(waiting[2].try_recv().unwrap(), Err(OriginFailure::Full));
        assert_eq!(queue.depth(), 2);
    }

    #[test]
    fn test_prefetch_waits_for_demand_on_its_share_of_the_threads() {
        let queue = queue(2, 100);
        let _ahead = submit(&queue, 1, &[0, 9], Lane::Prefetch);
        let _asked = submit(&queue, 1, &[20], Lane::Demand);
        assert_eq!(positions(&queue.take_run().unwrap()), [20]);
        let prefetch = queue.take_run().unwrap();
        assert_eq!(positions(&prefetch), [0]);
        assert_eq!(queue.take_run(), None, "one of two threads at a time");
        queue.complete(&prefetch, vec![Err(OriginFailure::Corrupt)]);
        assert_eq!(positions(&queue.take_run().unwrap()), [9]);
    }

    #[test]
    fn test_promote_moves_a_prefetch_to_the_demand_lane() {
        let queue = queue(2, 100);
        let _ahead = submit(&queue, 1, &[0, 9], Lane::Prefetch);
        let (asked, _receiver) = miss(1, 9, Lane::Demand);
        queue.submit(vec![asked], Instant::now());
        let run = queue.take_run().unwrap();
        assert_eq!((positions(&run), run.lane), (vec![9], Lane::Demand));
        assert_eq!(positions(&queue.take_run().unwrap()), [0]);
        assert_eq!(queue.take_run(), None);
    }

    #[test]
    fn test_take_run_skips_what_nobody_waits_for() {
        let queue = queue(4, 100);
        drop(submit(&queue, 1, &[0, 1], Lane::Demand));
        let _waiting = submit(&queue, 1, &[2], Lane::Demand);
        assert_eq!(positions(&queue.take_run().unwrap()), [2]);
        assert_eq!(queue.take_run(), None);
    }

    #[test]
    fn test_complete_returns_what_nobody_took() {
        let queue = queue(4, 100);
        let waiting = submit(&queue, 1, &[0], Lane::Demand);
        let run = queue.take_run().unwrap();
        drop(waiting);
        let orphans = queue.complete(&run, vec![Ok(Bytes::from_static(b"late"))]);
        assert_eq!(orphans, [(run.parts[0].digest, Bytes::from_static(b"late"))]);
    }

    #[test]
    fn test_stop_answers_everybody() {
        let queue = queue(4, 100);
        let mut waiting = submit(&queue, 1, &[0], Lane::Demand);
        queue.stop();
        assert_eq!(waiting[0].try_recv().unwrap(), Err(OriginFailure::Stopped));
        let mut late = submit(&queue, 1, &[1], Lane::Demand);
        assert_eq!(late[0].try_recv().unwrap(), Err(OriginFailure::Stopped));
        assert_eq!(queue.wait_run(), None);
    }
}
