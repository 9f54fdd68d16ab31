//! One read: one member after the other, until one has the object.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use acstor_readpath::{OriginError, OriginRange};

use crate::member::{Answer, Member};
use crate::search::{Search, Verdict};
use crate::source::HedgeBudget;
use crate::wanted::Wanted;

/// A member that was asked and has not answered.
#[derive(Debug)]
struct Asked {
    position: usize,
    /// Time at which another one is asked as well; `None`: it was.
    hedge_at: Option<Instant>,
    /// End of its time.
    late_at: Instant,
    is_late: bool,
}

/// The ranges of a read, and the memory for each call of it.
struct Ranges {
    /// Offsets and lengths.
    shape: Vec<(u64, usize)>,
    /// The caller's own, for the first call.
    lent: Option<Vec<OriginRange>>,
}

impl Ranges {
    fn of(ranges: &mut [OriginRange]) -> Ranges {
        let lend = |range: &mut OriginRange| OriginRange {
            offset: range.offset,
            buffer: std::mem::take(&mut range.buffer),
            member: 0,
        };
        let shape = ranges.iter().map(|range| (range.offset, range.buffer.len())).collect();
        Ranges { shape, lent: Some(ranges.iter_mut().map(lend).collect()) }
    }

    /// Returns memory that no other call has: a late one writes to its own.
    fn take(&mut self) -> Vec<OriginRange> {
        let make = |(offset, len): &(u64, usize)| OriginRange::new(*offset, *len);
        self.lent.take().unwrap_or_else(|| self.shape.iter().map(make).collect())
    }

    /// The place of what shows whether a member is back.
    fn first(&self) -> (u64, usize) {
        self.shape.first().copied().unwrap_or((0, 0))
    }
}

/// Verifier of the bytes that a member gave; it may take the buffers.
pub(crate) type Judge<'a> = &'a mut dyn FnMut(&Member, &mut [OriginRange]) -> bool;

/// One read of several members.
pub(crate) struct Reading<'a> {
    members: &'a [Arc<Member>],
    budget: &'a HedgeBudget,
    wanted: Wanted,
    ranges: Ranges,
    /// Positions of the members that may be asked, the next one first.
    candidates: VecDeque<usize>,
    asked: Vec<Asked>,
    search: Search,
    sender: Sender<Answer>,
    receiver: Receiver<Answer>,
    /// The end of the read's time.
    end: Instant,
}

impl<'a> Reading<'a> {
    /// Begins a read that ends after `deadline`; the buffers of `ranges` are taken away.
    pub(crate) fn new(
        members: &'a [Arc<Member>],
        budget: &'a HedgeBudget,
        wanted: Wanted,
        ranges: &mut [OriginRange],
        deadline: Duration,
    ) -> Reading<'a> {
        let (sender, receiver) = channel();
        Reading {
            members,
            budget,
            wanted,
            ranges: Ranges::of(ranges),
            candidates: VecDeque::new(),
            asked: Vec::new(),
            search: Search::new(wanted.name(), members.iter().map(|one| one.name.clone())),
            sender,
            receiver,
            end: Instant::now() + deadline,
        }
    }

    /// Notes what is known of a member already; it is not asked.
    pub(crate) fn note(&mut self, position: usize, verdict: Verdict) {
        self.search.note(position, verdict);
    }

    /// Says who may be asked, the first first.
    pub(crate) fn set_candidates(&mut self, positions: impl Iterator<Item = usize>) {
        self.candidates.extend(positions);
    }

    /// Has a member show whether it is back, beside the read.
    pub(crate) fn probe(&mut self, position: usize) {
        if let Some(member) = self.members.get(position) {
            member.probe(self.wanted, self.ranges.first(), self.end);
            self.search.note(position, Verdict::Failed("it failed, and is probed".to_owned()));
        }
    }

    /// Asks until a member gives bytes that `judge` accepts, and puts them into `ranges`.
    ///
    /// # Errors
    /// [`OriginError`], as [`Search::error`] says; the buffers are then empty.
    pub(crate) fn run(
        mut self,
        ranges: &mut [OriginRange],
        judge: Judge<'_>,
    ) -> Result<(), OriginError> {
        self.ask_next(Instant::now());
        while let Some(wake) = self.next_event() {
            match self.receiver.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(answer) => {
                    if let Some(found) = self.take(answer, judge) {
                        give_back(found, ranges);
                        self.probe_others();
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.note_time(Instant::now()),
                // Never: this read has a sender itself.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(self.search.error(ranges.len() > 1))
    }

    /// Sends the trials out that were to be this read, had nobody answered before them.
    fn probe_others(&mut self) {
        let now = Instant::now();
        for position in std::mem::take(&mut self.candidates) {
            if self.members.get(position).is_some_and(|one| !one.state(now).is_closed()) {
                self.probe(position);
            }
        }
    }

    /// Returns when something has to be done unless somebody answers; `None`: there is nobody to wait
    /// for.
    fn next_event(&self) -> Option<Instant> {
        let waited = self.asked.iter().filter(|one| !one.is_late);
        waited.map(|one| one.hedge_at.map_or(one.late_at, |at| at.min(one.late_at))).min()
    }

    /// Takes an answer; returns the bytes that are right.
    fn take(&mut self, answer: Answer, judge: Judge<'_>) -> Option<Vec<OriginRange>> {
        let Answer { position, outcome } = answer;
        self.asked.retain(|one| one.position != position);
        let member = self.members.get(position)?;
        match outcome {
            Ok(mut found) => {
                found.iter_mut().for_each(|range| range.member = position as u8);
                if judge(member, &mut found) {
                    return Some(found);
                }
                let object = self.wanted.name();
                let cause = format!("the member {} has other bytes", member.name);
                let error = OriginError::DamagedMove { pack: object, cause };
                self.search.note(position, Verdict::Damaged(error));
            }
            Err(error) => self.search.note(position, Verdict::of(error)),
        }
        if self.next_event().is_none() {
            self.ask_next(Instant::now());
        }
        None
    }

    /// Does what is due: asks another member as well, or gives up waiting for one.
    fn note_time(&mut self, now: Instant) {
        let mut is_hedge_due = false;
        for one in self.asked.iter_mut().filter(|one| !one.is_late) {
            let Some(member) = self.members.get(one.position) else { continue };
            if one.late_at <= now {
                one.is_late = true;
                // Judges it.
                drop(member.state(now));
                let verdict = Verdict::Failed("it did not answer in time".to_owned());
                self.search.note(one.position, verdict);
            } else if one.hedge_at.take_if(|at| *at <= now).is_some()
                && !self.candidates.is_empty()
                && self.budget.try_take(now)
            {
                member.metrics.hedge();
                is_hedge_due = true;
            }
        }
        if is_hedge_due || self.next_event().is_none() {
            self.ask_next(now);
        }
    }

    /// Asks the next member that can be asked.
    fn ask_next(&mut self, now: Instant) {
        while let Some(position) = self.candidates.pop_front() {
            let Some(member) = self.members.get(position) else { continue };
            if now >= self.end {
                let verdict = Verdict::Failed("there was no time to ask it".to_owned());
                self.search.note(position, verdict);
                continue;
            }
            // What is left of the time is for those that are left, too.
            let share = u32::try_from(self.candidates.len() + 1).unwrap_or(u32::MAX);
            let late_at = now + (self.end - now) / share;
            let hedge_at = now + member.state(now).hedge_after();
            let ranges = self.ranges.take();
            match member.ask(self.wanted, ranges, late_at, Some(self.sender.clone())) {
                Ok(()) => {
                    let hedge_at = Some(hedge_at);
                    self.asked.push(Asked { position, hedge_at, late_at, is_late: false });
                    return;
                }
                Err(cause) => self.search.note(position, Verdict::Failed(cause.to_owned())),
            }
        }
    }
}

fn give_back(found: Vec<OriginRange>, ranges: &mut [OriginRange]) {
    for (to, from) in ranges.iter_mut().zip(found) {
        *to = from;
    }
}
