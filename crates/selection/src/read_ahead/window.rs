//! The window ahead of one open of an image.

use std::sync::Arc;

use super::boot_profile::BootProfile;
use crate::limits;

/// Place of a chunk of the profile in this open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Neither ordered nor read.
    Idle,
    /// Ordered, and not here yet.
    UnderWay,
    /// Ordered, here, and not read.
    Unread,
    /// Read, or not worth an order: it was here without one, or could not be had.
    Settled,
    /// Ordered, and dropped before it was read.
    Lost,
    /// Read before.
    Read,
}

/// Meaning of a read for the read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// No kind of boot names the chunk.
    Strange,
    /// The chunk was read before in this open.
    Repeated,
    /// A kind of boot names the chunk, and it was not ordered, or lost.
    Missed,
    /// The chunk was ordered and is still under way: the read waits for less.
    Late,
    /// The chunk was ordered and is here.
    Used,
}

/// One kind of boot in this open.
#[derive(Clone, Copy, Debug)]
struct KindProgress {
    /// Chunks of the kind that were read.
    hits: u32,
    /// Rank after that of the last read which the kind names.
    next: u32,
    /// Rank from which on no chunk is idle.
    end: u32,
}

/// Bytes that opens of an image ordered, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadBalance {
    /// They were read.
    pub right: u64,
    /// They were not, so far.
    pub in_vain: u64,
}

impl std::ops::AddAssign for AheadBalance {
    fn add_assign(&mut self, other: AheadBalance) {
        self.right += other.right;
        self.in_vain += other.in_vain;
    }
}

/// Read-ahead of one open of an image.
///
/// Reads move a cursor per kind of boot to the rank of the last chunk that was read for the first time.
/// Only what lies ahead of the cursor is ordered: what the guest jumped over would come too late. Where
/// several kinds fit equally well, only what all of them name is ordered, until one leads by
/// [`limits::READ_AHEAD_LEAD_HITS`].
#[derive(Clone, Debug)]
pub struct ReadAhead {
    profile: Arc<BootProfile>,
    chunk_bytes: u64,
    budget_bytes: u64,
    seed: u64,
    /// By the profile's number of the chunk.
    places: Box<[Place]>,
    kinds: Vec<KindProgress>,
    right: u64,
    lost: u64,
    unread: u64,
    under_way: u64,
}

impl ReadAhead {
    /// The read-ahead of a handle that was opened just now.
    ///
    /// `budget_bytes`: most that may be ordered and unread; none is ordered with less than a chunk.
    /// `seed`: the host, whose order differs from other hosts' so that a storm does not march in step.
    pub fn new(
        profile: Arc<BootProfile>,
        chunk_bytes: u64,
        budget_bytes: u64,
        seed: u64,
    ) -> ReadAhead {
        let progress =
            |kind: usize| KindProgress { hits: 0, next: 0, end: rank_count(&profile, kind) };
        ReadAhead {
            chunk_bytes: chunk_bytes.max(1),
            budget_bytes,
            seed: mixed(seed),
            places: vec![Place::Idle; profile.len()].into(),
            kinds: (0..profile.kind_count()).map(progress).collect(),
            right: 0,
            lost: 0,
            unread: 0,
            under_way: 0,
            profile,
        }
    }

    /// Notes a guest's read of a chunk.
    pub fn read(&mut self, chunk: u32) -> Touch {
        let Some(number) = self.profile.number(chunk) else { return Touch::Strange };
        let place = std::mem::replace(&mut self.places[number as usize], Place::Read);
        let touch = match place {
            Place::Read => return Touch::Repeated,
            Place::Idle | Place::Settled | Place::Lost => Touch::Missed,
            Place::UnderWay => {
                self.under_way -= self.chunk_bytes;
                Touch::Late
            }
            Place::Unread => Touch::Used,
        };
        if touch != Touch::Missed {
            self.unread -= self.chunk_bytes;
            self.right += self.chunk_bytes;
        }
        for (kind, progress) in self.profile.kinds.iter().zip(&mut self.kinds) {
            if let Some(rank) = kind.rank(number) {
                progress.hits += 1;
                progress.next = rank + 1;
            }
        }
        touch
    }

    /// The chunks to order now, each once: the next [`limits::READ_AHEAD_IN_ORDER`] of the boot in its
    /// order, then others of the window in an order of this host. At most `room_bytes` of them, which is
    /// what the link and the memory have room for. They count as under way from now on.
    pub fn next(&mut self, room_bytes: u64) -> Vec<u32> {
        self.next_beside(AheadBalance::default(), room_bytes)
    }

    /// As [`ReadAhead::next`], beside other opens of the same image on this host. What they got right speaks
    /// for the profile here too, and what they ordered in vain is not spent again.
    pub fn next_beside(&mut self, others: AheadBalance, room_bytes: u64) -> Vec<u32> {
        let free = self.free_bytes(others);
        let count = (free.min(room_bytes) / self.chunk_bytes) as usize;
        let Some(guide) = self.guide().filter(|_| count > 0) else { return Vec::new() };
        let mut found = self.window(guide, (free / self.chunk_bytes) as usize);
        let in_order = self.kinds[guide].next + limits::READ_AHEAD_IN_ORDER;
        found.sort_by_cached_key(|(rank, number)| match *rank < in_order {
            true => (false, u64::from(*rank)),
            false => (true, mixed(self.seed ^ u64::from(self.profile.chunk(*number)))),
        });
        found.truncate(count);
        let ordered = found.len() as u64 * self.chunk_bytes;
        self.unread += ordered;
        self.under_way += ordered;
        found.into_iter().map(|(_, number)| self.ordered(number)).collect()
    }

    /// Notes that an ordered chunk is here.
    pub fn fetched(&mut self, chunk: u32) {
        self.settle(chunk, Place::Unread);
    }

    /// Notes that a chunk need not be fetched: it was on this host without an order. Neither right nor
    /// wrong.
    pub fn present(&mut self, chunk: u32) {
        self.settle(chunk, Place::Settled);
    }

    /// Notes that an ordered chunk could not be had: it cost nothing, and is not ordered again.
    pub fn failed(&mut self, chunk: u32) {
        self.settle(chunk, Place::Settled);
    }

    /// Takes back an order that was not carried out: the chunk may be ordered again.
    pub fn put_back(&mut self, chunk: u32) {
        if self.settle(chunk, Place::Idle) {
            for (kind, progress) in (0..).zip(&mut self.kinds) {
                progress.end = rank_count(&self.profile, kind);
            }
        }
    }

    /// Notes that an ordered chunk was dropped before it was read: it was in vain.
    pub fn gone(&mut self, chunk: u32) {
        if self.settle(chunk, Place::Lost) {
            self.lost += self.chunk_bytes;
        }
    }

    /// Bytes ordered in this open that the guest read then.
    pub fn right_bytes(&self) -> u64 {
        self.right
    }

    /// Bytes ordered in this open that the guest has not read, dropped ones included: what was in vain,
    /// where the open ends now.
    pub fn wasted_bytes(&self) -> u64 {
        self.unread + self.lost
    }

    /// Both, for the window of another open of the image.
    pub fn balance(&self) -> AheadBalance {
        AheadBalance { right: self.right, in_vain: self.wasted_bytes() }
    }

    /// Bytes ordered that are neither read nor dropped.
    pub fn unread_bytes(&self) -> u64 {
        self.unread
    }

    /// Bytes ordered that are neither here nor failed.
    pub fn under_way_bytes(&self) -> u64 {
        self.under_way
    }

    /// Returns whether one kind of boot leads, so that all of its chunks are ordered.
    pub fn is_led(&self) -> bool {
        self.contenders().count() == 1
    }

    /// Returns whether nothing is left to order and nothing ordered is unread: reads need not be told any
    /// more.
    pub fn is_over(&self) -> bool {
        if self.unread > 0 {
            return false;
        }
        self.contenders().all(|kind| self.idle_ranks(kind).next().is_none())
    }

    fn free_bytes(&self, others: AheadBalance) -> u64 {
        let window = (self.right + others.right).max(limits::READ_AHEAD_FLOOR);
        let free = window.saturating_sub(self.unread + self.lost + others.in_vain);
        free.min(self.budget_bytes.saturating_sub(self.unread))
    }

    /// Kinds that no other one leads.
    fn contenders(&self) -> impl Iterator<Item = usize> + '_ {
        let best = self.kinds.iter().map(|kind| kind.hits).max().unwrap_or(0);
        let leads = limits::READ_AHEAD_LEAD_HITS;
        let fits = move |(_, kind): &(usize, &KindProgress)| kind.hits + leads > best;
        self.kinds.iter().enumerate().filter(fits).map(|(kind, _)| kind)
    }

    /// Kind whose order is followed: that of the most hits, of equal ones the heaviest.
    fn guide(&self) -> Option<usize> {
        let kinds = self.kinds.iter().enumerate();
        Some(kinds.rev().max_by_key(|(_, kind)| kind.hits)?.0)
    }

    /// Idle chunks of a kind ahead of its cursor, with their ranks.
    fn idle_ranks(&self, kind: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        let KindProgress { next, end, .. } = self.kinds[kind];
        let numbers = &self.profile.kinds[kind].numbers;
        let ahead = (next..end).filter_map(|rank| Some((rank, *numbers.get(rank as usize)?)));
        ahead.filter(|(_, number)| self.places[*number as usize] == Place::Idle)
    }

    /// The next `count` chunks of the guide that all contenders name, with their ranks.
    fn window(&mut self, guide: usize, count: usize) -> Vec<(u32, u32)> {
        let contenders: Vec<usize> = self.contenders().collect();
        let kinds = &self.profile.kinds;
        let is_shared = |number| contenders.iter().all(|kind| kinds[*kind].rank(number).is_some());
        let (mut found, mut end) = (Vec::new(), self.kinds[guide].next);
        for (rank, number) in self.idle_ranks(guide) {
            end = rank + 1;
            if is_shared(number) {
                found.push((rank, number));
            }
            if found.len() >= count {
                return found;
            }
        }
        // Seen to the end: no read need look there again. Behind the cursor nothing is known.
        self.kinds[guide].end = end;
        found
    }

    fn ordered(&mut self, number: u32) -> u32 {
        self.places[number as usize] = Place::UnderWay;
        self.profile.chunk(number)
    }

    /// Notes what became of a chunk that is ordered and unread; `false`: it is not.
    fn settle(&mut self, chunk: u32, place: Place) -> bool {
        let Some(number) = self.profile.number(chunk) else { return false };
        let before = &mut self.places[number as usize];
        match *before {
            Place::UnderWay => self.under_way -= self.chunk_bytes,
            Place::Unread if place != Place::Unread => {}
            _ => return false,
        }
        *before = place;
        if place != Place::Unread {
            self.unread -= self.chunk_bytes;
        }
        true
    }
}

fn rank_count(profile: &BootProfile, kind: usize) -> u32 {
    profile.kinds.get(kind).map_or(0, |kind| kind.numbers.len() as u32)
}

/// Bytes that a host may have ordered ahead and under way, over all its opens: what its link brings in
/// [`limits::READ_AHEAD_IN_FLIGHT`], so that a demand waits no longer behind them. `free_rate`: bytes per
/// second that are free on the link inwards, where they are told.
pub fn in_flight_bytes(free_rate: Option<u64>, chunk_bytes: u64) -> u64 {
    let least = limits::READ_AHEAD_IN_FLIGHT_MIN * chunk_bytes;
    let told = free_rate.map(|rate| {
        let millis = limits::READ_AHEAD_IN_FLIGHT.as_millis() as u64;
        rate / 1000 * millis
    });
    told.unwrap_or(limits::READ_AHEAD_IN_FLIGHT_UNTOLD).max(least)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): equal on every machine.
pub(crate) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
