//! Read-ahead along the hints of others, of one image on one host.

use std::collections::{HashMap, VecDeque};

use super::bounds::{HINTS_MAX, READS_MAX, UNMATCHED_AGE_MAX, UNMATCHED_MAX};
use super::chunk_state::{ChunkEvent, ChunkState};
use crate::limits::READ_AHEAD_IN_ORDER;
use crate::read_ahead::mixed;
use crate::{Moment, Touch};

/// Fate of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintUse {
    /// The chunk will be fetched when there is room.
    New,
    /// The hint was heard before.
    Repeated,
    /// A guest has read the chunk, or it is on its way: the hint is late.
    Late,
    /// The image has no such chunk, or too many are known.
    Refused,
}

/// Knowledge of one chunk.
#[derive(Clone, Copy, Debug)]
struct Known {
    state: ChunkState,
    is_hinted: bool,
    /// Time at which it was ordered, while it is ordered and not read.
    ordered: Option<Moment>,
}

impl Known {
    const NOTHING: Known = Known { state: ChunkState::Remote, is_hinted: false, ordered: None };

    fn is_under_way(&self) -> bool {
        self.ordered.is_some() && self.state == ChunkState::Remote
    }
}

/// Orders of one host on the hints of others, and misses that it tells them.
///
/// It is told of each read of a guest, of each hint, and of what became of what it ordered. All guests of
/// the image on this host are one follower.
#[derive(Clone, Debug)]
pub struct Follower {
    chunk_count: u64,
    chunk_bytes: u64,
    budget_bytes: u64,
    seed: u64,
    chunks: HashMap<u32, Known>,
    /// Hinted and neither ordered nor read, in the order of the hints.
    queue: VecDeque<u32>,
    hints: usize,
    unmatched: u64,
    matched: u64,
    lost: u64,
}

impl Follower {
    /// The follower of an image that was opened just now.
    ///
    /// `budget_bytes`: most that may be ordered and unread. `seed`: the host, whose order differs from
    /// other hosts' so that a storm does not march in step.
    pub fn new(chunk_count: u64, chunk_bytes: u64, budget_bytes: u64, seed: u64) -> Follower {
        Follower {
            chunk_count,
            chunk_bytes: chunk_bytes.max(1),
            budget_bytes,
            seed: mixed(seed),
            chunks: HashMap::new(),
            queue: VecDeque::new(),
            hints: 0,
            unmatched: 0,
            matched: 0,
            lost: 0,
        }
    }

    fn known(&self, chunk: u32) -> Known {
        self.chunks.get(&chunk).copied().unwrap_or(Known::NOTHING)
    }

    /// State of a chunk.
    pub fn state(&self, chunk: u32) -> ChunkState {
        self.known(chunk).state
    }

    /// Takes a hint.
    pub fn hinted(&mut self, chunk: u32) -> HintUse {
        let mut known = self.known(chunk);
        if u64::from(chunk) >= self.chunk_count || (!known.is_hinted && self.hints >= HINTS_MAX) {
            return HintUse::Refused;
        }
        if known.is_hinted {
            return HintUse::Repeated;
        }
        known.is_hinted = true;
        self.hints += 1;
        self.chunks.insert(chunk, known);
        if known.state != ChunkState::Remote || known.ordered.is_some() {
            return HintUse::Late;
        }
        self.queue.push_back(chunk);
        HintUse::New
    }

    /// Notes a guest's read of a chunk. [`Touch::Strange`]: nobody has told of it, so that others are to be
    /// told where [`Follower::may_tell`]. Beyond [`READS_MAX`] chunks one of which nothing is known is not
    /// remembered, and is no news: [`Touch::Missed`].
    ///
    /// Source: algorithm 1 of the source. Differs: what is on its way counts as ordered, and a read of it
    /// is late; the source finds it out when the chunk comes.
    pub fn read(&mut self, chunk: u32) -> Touch {
        if self.chunks.len() >= READS_MAX && !self.chunks.contains_key(&chunk) {
            return Touch::Missed;
        }
        let mut known = self.known(chunk);
        let touch = match (known.state, known.ordered) {
            (ChunkState::Read | ChunkState::Written, _) => return Touch::Repeated,
            (ChunkState::Local, _) => Touch::Used,
            (ChunkState::Remote, Some(_)) => Touch::Late,
            (ChunkState::Remote, None) if known.is_hinted => Touch::Missed,
            (ChunkState::Remote, None) => Touch::Strange,
        };
        if known.ordered.take().is_some() {
            self.unmatched -= self.chunk_bytes;
            self.matched += self.chunk_bytes;
        }
        known.state = known.state.after(ChunkEvent::Read);
        self.chunks.insert(chunk, known);
        touch
    }

    /// Notes a guest's write of a chunk; none of it is told or fetched any more.
    ///
    /// Source: algorithm 2 of the source.
    pub fn written(&mut self, chunk: u32) {
        self.settle(chunk, ChunkEvent::Written);
    }

    /// Returns whether misses are told: as long as hints of others are not wasted here.
    pub fn may_tell(&self) -> bool {
        self.unmatched < UNMATCHED_MAX
    }

    /// The chunks to order now, each once: the next [`READ_AHEAD_IN_ORDER`] that were hinted, in their
    /// order, then others that there is room for in an order of this host. At most `room_bytes` of them.
    ///
    /// Source: algorithm 3 of the source, with the threshold of algorithm 1 on the side that fetches.
    pub fn next(&mut self, room_bytes: u64, now: Moment) -> Vec<u32> {
        let free = UNMATCHED_MAX.min(self.budget_bytes).saturating_sub(self.unmatched);
        let count = (free.min(room_bytes) / self.chunk_bytes) as usize;
        if count == 0 || self.queue.is_empty() {
            return Vec::new();
        }
        let chunks = &self.chunks;
        let is_idle = |chunk: &u32| {
            chunks
                .get(chunk)
                .is_some_and(|known| known.state == ChunkState::Remote && known.ordered.is_none())
        };
        self.queue.retain(is_idle);
        let window = ((free / self.chunk_bytes) as usize).min(self.queue.len());
        let mut window: Vec<u32> = self.queue.drain(..window).collect();
        let in_order = window.len().min(READ_AHEAD_IN_ORDER as usize);
        let seed = self.seed;
        window[in_order..].sort_by_cached_key(|chunk| mixed(seed ^ u64::from(*chunk)));
        for chunk in window.drain(count.min(window.len())..).rev() {
            self.queue.push_front(chunk);
        }
        for chunk in &window {
            if let Some(known) = self.chunks.get_mut(chunk) {
                known.ordered = Some(now);
                self.unmatched += self.chunk_bytes;
            }
        }
        window
    }

    /// Notes that an ordered chunk is here.
    pub fn fetched(&mut self, chunk: u32) {
        if let Some(known) = self.chunks.get_mut(&chunk).filter(|known| known.ordered.is_some()) {
            known.state = known.state.after(ChunkEvent::Arrived);
        }
    }

    /// Notes that an ordered chunk need not be fetched, or could not be had: it cost nothing, and is not
    /// ordered again.
    pub fn settled(&mut self, chunk: u32) {
        self.settle(chunk, ChunkEvent::Aged);
    }

    /// Takes back an order that was not carried out: the chunk may be ordered again.
    pub fn put_back(&mut self, chunk: u32) {
        if self.known(chunk).is_under_way() {
            self.settle(chunk, ChunkEvent::Aged);
            self.queue.push_front(chunk);
        }
    }

    /// Notes that an ordered chunk was dropped before it was read: it was in vain.
    pub fn gone(&mut self, chunk: u32) {
        if self.settle(chunk, ChunkEvent::Aged) {
            self.lost += self.chunk_bytes;
        }
    }

    /// Gives up what came long ago and was not read; returns the chunks.
    pub fn age(&mut self, now: Moment) -> Vec<u32> {
        let is_old = |known: &Known| {
            let since = known.ordered.filter(|_| known.state == ChunkState::Local);
            since.is_some_and(|since| now.since(since) >= UNMATCHED_AGE_MAX)
        };
        let old = self.chunks.iter().filter(|(_, known)| is_old(known));
        let old: Vec<u32> = old.map(|(chunk, _)| *chunk).collect();
        old.iter().for_each(|chunk| self.gone(*chunk));
        old
    }

    /// Bytes ordered that a guest read then, also where it came before they did.
    pub fn matched_bytes(&self) -> u64 {
        self.matched
    }

    /// Bytes ordered that are neither read nor given up.
    pub fn unmatched_bytes(&self) -> u64 {
        self.unmatched
    }

    /// Bytes ordered that no guest has read, those that were given up included.
    pub fn wasted_bytes(&self) -> u64 {
        self.unmatched + self.lost
    }

    /// Takes an order out of the count; `false`: the chunk is not ordered.
    fn settle(&mut self, chunk: u32, event: ChunkEvent) -> bool {
        let mut known = self.known(chunk);
        let was_ordered = known.ordered.take().is_some();
        if !was_ordered && event != ChunkEvent::Written {
            return false;
        }
        if was_ordered {
            self.unmatched -= self.chunk_bytes;
        }
        known.state = known.state.after(event);
        self.chunks.insert(chunk, known);
        was_ordered
    }
}

#[cfg(test)]
mod tests;
