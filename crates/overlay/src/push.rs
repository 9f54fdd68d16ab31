//! The push: what was written, carried to the origin as log objects, in order.
//!
//! Source: Capo (FAST 2011) §4.1: snapshot, push, clear. A cut takes what a set of groups has
//! written and the place of its content at one moment; objects are made from it while writes go
//! on; when the last object of the batch is stored, the cut is over. Sectors that were written
//! several times before a cut travel once.
//!
//! A batch counts when its last object is there, so a large one would make everybody wait. Those
//! who wait for other groups therefore get a *preempting* batch, between two of its objects and
//! marked as such. It is complete by itself: the two share no sector, so each group stays the state at one
//! moment, whichever of them ends. Nothing preempts the batch under way that it may have, too,
//! and a preempting batch is stored to its end before anything else is.
//!
//! Must never: put an object before what it holds is durable here (the origin would be ahead of a
//! host that lost power), put other bytes into a slot than were tried there before, or go on when
//! a slot holds what this owner did not put there.

pub(crate) mod cadence;
pub(crate) mod fetch_ahead;
pub(crate) mod origin;
pub(crate) mod origin_log;
pub(crate) mod origin_log_size;
pub(crate) mod origin_wait;
pub(crate) mod push_batch;
pub(crate) mod push_load;
pub(crate) mod push_queue;
pub(crate) mod release;
pub(crate) mod replay;
pub(crate) mod seal;
pub(crate) mod spool;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use acstor_types::DiskId;
use bytes::Bytes;

use crate::limits;
use crate::log::LocalLog;
use crate::push::cadence::{Pace, deadline};
use crate::push::origin_log::{LogObjectInfo, log_key, log_object_info};
use crate::push::push_batch::{Batch, BatchObject, record_bytes};
use crate::push::seal::{digest_of, first_free, object_at, open_batches};
use crate::segments::checked_read::CheckedReader;
use crate::segments::map_state::Stream;
use crate::segments::record::SECTOR;
use crate::{OriginSink, OverlayError};

/// Time for which reads of a batch have failed when it goes on without what they were to read: a
/// device that fails for a moment costs a moment, and no data.
const UNREADABLE_TIME: Duration = Duration::from_secs(5);
/// Ranges that a cut looks up per turn of the lock.
const RESOLVE_STEP: usize = 1024;

/// Groups to be pushed; a bit per group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Groups that somebody waits for.
    pub asked: u32,
    /// Groups whose time has come.
    pub due: u32,
    /// True if content that nobody waits for stays where it is: it has used its rate up.
    pub is_held: bool,
    /// All of `asked` is wanted as it is at one moment.
    pub is_whole: bool,
    /// The batch under way has sent its share of this time; nobody waits for it.
    pub is_paced: bool,
    /// Writers are held back: as much is sent at a time as an object takes.
    pub is_hurried: bool,
}

/// A push of one volume that is under way, and where the next one goes.
pub(crate) struct Pusher {
    volume: DiskId,
    epoch: u32,
    first: u64,
    sink: Arc<dyn OriginSink>,
    /// Next free slot; unknown until the origin was asked after a restart.
    next: Option<u64>,
    /// The first slot after a restart may hold what the process before put there.
    is_resumed: bool,
    main: Option<Batch>,
    /// A batch between the objects of another one; it is stored to its end without a break.
    preempting: Option<Batch>,
    /// The origin has the beginning of a batch of the process before: groups that the next batch
    /// must take over with it, since it may hold older content of them.
    must_resend: u32,
    /// As `must_resend`, for a preempting batch.
    must_resend_preempting: bool,
    /// The last batch that ended was a preempting one: the next slot is the other one's.
    was_preempting: bool,
    /// The last batch was begun for those who wait: it is the turn of what is due.
    was_asked: bool,
    /// Local sequence number up to which each group is on the origin.
    through: Vec<u64>,
    /// The last moment at which the origin had all groups as they were at one moment.
    whole: Option<Whole>,
    /// An object is closed when it has that many bytes; at most what the format allows.
    pub(crate) object_bytes: usize,
    /// For how long reads of a batch have failed when it goes on without what they were to read.
    pub(crate) unreadable_time: Duration,
    pub(crate) stored_bytes: u64,
    pub(crate) stored_objects: u64,
    /// Bytes of the batches' content that were stored, before compression.
    pub(crate) sent_bytes: u64,
}

/// A slot up to which the origin has all groups as they were at one moment, nothing left out. What is
/// stored after it, for some of them, does not change that.
#[derive(Clone, Copy)]
struct Whole {
    groups: u32,
    through: u64,
    slot: u64,
}

/// Reason for which a push stopped.
#[derive(Debug)]
pub(crate) enum PushError {
    /// Another host owns the volume.
    Fenced(String),
    /// It can be tried again; the same object goes to the same slot then.
    Retry(OverlayError),
    /// The local log failed.
    Local(String),
}

impl From<OverlayError> for PushError {
    fn from(error: OverlayError) -> PushError {
        PushError::Retry(error)
    }
}

impl Pusher {
    /// A pusher whose first slot is `first`; `is_resumed`: objects may be there already.
    pub(crate) fn new(
        volume: DiskId,
        epoch: u32,
        first: u64,
        is_resumed: bool,
        groups: usize,
        sink: Arc<dyn OriginSink>,
    ) -> Pusher {
        let next = (!is_resumed).then_some(first);
        Pusher {
            volume,
            epoch,
            first,
            sink,
            next,
            is_resumed,
            main: None,
            preempting: None,
            must_resend: 0,
            must_resend_preempting: false,
            was_preempting: false,
            was_asked: false,
            through: vec![0; groups],
            whole: None,
            object_bytes: limits::LOG_OBJECT_BYTES_MAX,
            unreadable_time: UNREADABLE_TIME,
            stored_bytes: 0,
            stored_objects: 0,
            sent_bytes: 0,
        }
    }

    /// Bytes of the batches under way that are in no object yet.
    pub(crate) fn left_bytes(&self) -> u64 {
        [&self.main, &self.preempting].into_iter().flatten().map(|batch| batch.left).sum()
    }

    /// Takes over that regions have changed.
    pub(crate) fn regions_changed(&mut self, groups: usize) {
        let least = self.through.iter().copied().min().unwrap_or(0);
        self.through = vec![least; groups];
        self.whole = None;
        if self.must_resend != 0 {
            self.must_resend = self.all();
        }
        // Their groups have other numbers now: what they store counts for none of them.
        for batch in [&mut self.main, &mut self.preempting].into_iter().flatten() {
            batch.groups = None;
            // Others would wait for it, whatever their period is.
            batch.pace = None;
        }
    }

    /// Bits of all groups.
    fn all(&self) -> u32 {
        (1 << self.through.len()) - 1
    }

    /// Local sequence number up to which group `group` is on the origin.
    pub(crate) fn through(&self, group: u8) -> u64 {
        // A group that is no more: whatever all have.
        let least = || self.through.iter().copied().min().unwrap_or(0);
        self.through.get(usize::from(group)).copied().unwrap_or_else(least)
    }

    /// Last slot that this owner has filled (one before its first: none), if that is known.
    pub(crate) fn last(&self) -> Option<u64> {
        self.next.map(|next| next - 1)
    }

    /// Last slot, if the origin has `groups` up to `target` and no part of a batch.
    pub(crate) fn settled(&self, groups: u32, target: u64) -> Option<u64> {
        let mut wanted = (0..32_u8).filter(|group| groups & 1 << group != 0);
        let is_there = wanted.all(|group| self.through(group) >= target);
        self.last().filter(|_| is_there && self.is_settled())
    }

    /// Last slot up to which the origin has all of `groups` as they were at one moment, if that was no
    /// earlier than `target`.
    pub(crate) fn whole(&self, groups: u32, target: u64) -> Option<u64> {
        let whole = self.whole.filter(|whole| groups & !whole.groups == 0);
        whole.filter(|whole| whole.through >= target).map(|whole| whole.slot)
    }

    /// First slot of this owner.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns whether a cut is on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.main.is_some() || self.preempting.is_some()
    }

    /// Returns until when the batch under way is to wait, and bits of the groups that can preempt it;
    /// `None`: nothing is to wait.
    pub(crate) fn paced(&self, now: Instant) -> Option<(Instant, u32)> {
        let main = self.main.as_ref().filter(|_| self.preempting.is_none())?;
        let next = main.pace.filter(|_| main.object.is_none())?.next_at();
        (next > now).then(|| (next, main.groups.map_or(0, |groups| self.all() & !groups)))
    }

    /// Returns whether the origin holds no part of a batch.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_under_way() && self.must_resend == 0 && !self.must_resend_preempting
    }

    /// Bits of the groups of which the origin holds a part of a batch.
    pub(crate) fn groups_under_way(&self) -> u32 {
        let groups = |batch: &Option<Batch>| {
            batch.as_ref().map_or(0, |batch| batch.groups.unwrap_or_else(|| self.all()))
        };
        let resent_preempting = if self.must_resend_preempting { self.all() } else { 0 };
        groups(&self.main) | groups(&self.preempting) | self.must_resend | resent_preempting
    }

    /// Asks the origin for the next free slot where that is not known.
    pub(crate) fn find_next(&mut self) -> Result<u64, PushError> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        let slot = first_free(&*self.sink, self.volume, self.epoch, self.first)?;
        let open = open_batches(&*self.sink, self.volume, self.epoch, self.first, slot)?;
        if open.is_sealed {
            return Err(fenced(slot - 1));
        }
        self.must_resend = if open.main.is_empty() { 0 } else { self.all() };
        self.must_resend_preempting = open.is_preempting;
        self.next = Some(slot);
        // What the process before has stored counts as well.
        self.stored_objects = self.stored_objects.max(slot - self.first);
        Ok(slot)
    }

    /// Stores one object of what is wanted or under way, beginning a cut where nothing is. Returns
    /// how many bytes it had, if nobody waits for them.
    pub(crate) fn step(
        &mut self,
        log: &LocalLog,
        wanted: Wanted,
        may_begin: &dyn Fn() -> bool,
    ) -> Result<u64, PushError> {
        self.find_next()?;
        let Some(stream) = self.choose(log, wanted, may_begin) else { return Ok(0) };
        let groups = self.batch(stream).as_ref().and_then(|batch| batch.groups);
        let is_asked = wanted.asked & groups.unwrap_or(u32::MAX) != 0;
        let before = self.stored_bytes;
        self.step_of(log, stream, wanted)?;
        Ok(if is_asked { 0 } else { self.stored_bytes - before })
    }

    /// Chooses the batch that goes on. Who waits overtakes a batch of other groups at the end of an
    /// object; after that, one object of the other goes, so that neither starves.
    fn choose(
        &mut self,
        log: &LocalLog,
        wanted: Wanted,
        may_begin: &dyn Fn() -> bool,
    ) -> Option<Stream> {
        let Wanted { asked, due, is_held, is_whole, is_paced, .. } = wanted;
        let due = if is_held { 0 } else { due };
        if self.must_resend_preempting && self.preempting.is_none() {
            // Nobody knows of which groups it is: it is of all now.
            return self.begin(log, Stream::Preempting, self.all(), true, may_begin);
        }
        if self.preempting.is_some() {
            return Some(Stream::Preempting);
        }
        if let Some(main) = &self.main {
            // Its next object may be stored already, and no other one can take that slot.
            let is_promised = main.object.is_some();
            let own = main.groups.unwrap_or(u32::MAX);
            // What is due would wait as long as a batch is spread, which is another one's period.
            let apart = if is_whole { 0 } else { (asked | due) & !own };
            let is_asked = is_whole || asked & own != 0;
            let is_held = is_held || is_paced;
            let is_turn = !self.was_preempting || is_held && !is_asked;
            if apart != 0
                && is_turn
                && !is_promised
                && let Some(stream) = self.begin(log, Stream::Preempting, apart, false, may_begin)
            {
                return Some(stream);
            }
            return (is_asked || !is_held || is_promised).then_some(Stream::Main);
        }
        if self.must_resend != 0 {
            if asked != 0
                && let Some(stream) = self.begin(log, Stream::Preempting, asked, false, may_begin)
            {
                return Some(stream);
            }
            let groups = if is_held { 0 } else { self.must_resend | due };
            if groups == 0 {
                return None;
            }
            return self.begin(log, Stream::Main, groups, false, may_begin);
        }
        let rest = due & !asked;
        self.was_asked = asked != 0 && (rest == 0 || !self.was_asked);
        let groups = if self.was_asked { asked } else { rest };
        self.begin(log, Stream::Main, groups, false, may_begin)
    }

    /// Begins a cut of `groups`; `None`: there is nothing to push, and it need not be said, or
    /// `may_begin` says no, which is asked while nothing comes into the map.
    fn begin(
        &mut self,
        log: &LocalLog,
        stream: Stream,
        groups: u32,
        is_needed: bool,
        may_begin: &dyn Fn() -> bool,
    ) -> Option<Stream> {
        let is_chosen = |group: u8| groups & 1 << group != 0;
        let (through, is_begun, deadline) = {
            let head = log.head();
            let mut map = log.map_mut();
            if !may_begin() {
                return None;
            }
            let deadline = deadline(&map, is_chosen);
            (head.next_sequence - 1, map.begin_cut(stream, is_chosen), deadline)
        };
        if !is_begun && !is_needed {
            self.covered(log, stream, groups, through);
            return None;
        }
        while !log.map_mut().resolve_some(stream, RESOLVE_STEP) {}
        let (mut extents, segments) = log.map_mut().take_resolved(stream);
        extents.sort_unstable_by_key(|extent| extent.start);
        let left = extents.iter().map(record_bytes).sum();
        let pace = deadline.map(|deadline| Pace::until(Instant::now(), deadline, left));
        let (groups, position, object) = (Some(groups), (0, 0), None);
        let (reader, failures, failing_since) = (CheckedReader::default(), 0, None);
        let batch = Batch {
            groups,
            through,
            extents,
            segments,
            position,
            object,
            pace,
            left,
            reader,
            failures,
            failing_since,
            left_out: Vec::new(),
        };
        *self.batch(stream) = Some(batch);
        Some(stream)
    }

    fn batch(&mut self, stream: Stream) -> &mut Option<Batch> {
        match stream {
            Stream::Main => &mut self.main,
            Stream::Preempting => &mut self.preempting,
        }
    }

    fn step_of(&mut self, log: &LocalLog, stream: Stream, wanted: Wanted) -> Result<(), PushError> {
        let (object_bytes_max, unreadable_time) = (self.object_bytes, self.unreadable_time);
        let is_hurried = wanted.is_hurried;
        let (volume, epoch, sequence) = (self.volume, self.epoch, self.find_next()?);
        let Some(batch) = self.batch(stream) else { return Ok(()) };
        // An origin that is ahead of a host which lost power would not be a prefix of anything.
        log.sync(batch.through).map_err(|error| PushError::Local(error.to_string()))?;
        let object = match batch.object.take() {
            Some(object) => object,
            None => {
                let pace = batch.pace.filter(|_| !is_hurried);
                let object_bytes = pace.map_or(object_bytes_max, |pace| pace.object_bytes());
                let (left, left_out) = (batch.left, batch.left_out.len());
                let object_bytes = object_bytes.min(object_bytes_max);
                let (body, is_last) = batch.next_body(object_bytes, unreadable_time)?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                let info = LogObjectInfo {
                    volume,
                    epoch,
                    sequence,
                    is_seal: false,
                    has_more: !is_last,
                    is_preempting: stream == Stream::Preempting,
                    record_count: 0,
                    log_id: log.id(),
                    through: batch.through,
                    created_ms: now.as_millis() as u64,
                    body_bytes: 0,
                };
                let skipped = batch.left_out[left_out..].iter().map(|(from, to)| to - from);
                let taken = left - batch.left;
                let content_bytes = taken.saturating_sub(skipped.sum::<u64>() * SECTOR);
                BatchObject { parts: body.finish(&info), is_last, content_bytes }
            }
        };
        if let Err(error) = self.put(&object) {
            if self.next.is_none() {
                // What is there now decides what must be cut.
                self.abandon(log);
            } else if let Some(batch) = self.batch(stream) {
                batch.object = Some(object);
            }
            return Err(error);
        }
        if stream == Stream::Main {
            self.was_preempting = false;
        }
        if object.is_last
            && let Some(batch) = self.batch(stream).take()
        {
            let done = {
                let mut map = log.map_mut();
                let done = map.finish_cut(stream);
                if !batch.left_out.is_empty() {
                    map.undeliver(&batch.left_out, Instant::now());
                }
                done
            };
            drop(done);
            self.was_preempting = stream == Stream::Preempting;
            self.covered(log, stream, batch.groups.unwrap_or(0), batch.through);
        }
        Ok(())
    }

    /// Takes over that a batch of `groups` has ended, with the last slot.
    fn covered(&mut self, log: &LocalLog, stream: Stream, groups: u32, through: u64) {
        for (number, own) in self.through.iter_mut().enumerate() {
            if groups & 1 << number != 0 {
                *own = (*own).max(through);
            }
        }
        match stream {
            Stream::Main => self.must_resend = 0,
            Stream::Preempting => {
                self.must_resend &= !groups;
                self.must_resend_preempting = false;
            }
        }
        let (pushed, is_whole) = {
            let map = log.map();
            let pushed = map.regions.pushed_groups();
            (pushed, pushed & !groups == 0 && map.undelivered().is_empty())
        };
        let own = self.through.iter().zip(0..);
        let least = own.filter(|(_, number)| pushed & 1 << number != 0).map(|(own, _)| *own).min();
        log.note_pushed(least.unwrap_or(0));
        if is_whole && self.is_settled() {
            self.whole = self.last().map(|slot| Whole { groups, through, slot });
        }
    }

    fn put(&mut self, object: &BatchObject) -> Result<(), PushError> {
        let parts = &object.parts[..];
        let slot = self.find_next()?;
        let key = log_key(self.volume, self.epoch, slot);
        if !self.sink.put_if_absent(&key, parts).map_err(OverlayError::from)? {
            self.check_own(&key, slot, parts)?;
        }
        self.is_resumed = false;
        self.next = Some(slot + 1);
        self.stored_objects += 1;
        self.stored_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.sent_bytes += object.content_bytes;
        Ok(())
    }

    /// A slot that is taken holds our own object, whose answer was lost, or somebody else's.
    fn check_own(&mut self, key: &str, slot: u64, parts: &[Bytes]) -> Result<(), PushError> {
        let there = object_at(&*self.sink, key)?;
        if digest_of(std::slice::from_ref(&there)) == digest_of(parts) {
            return Ok(());
        }
        let info = log_object_info(&there)
            .map_err(|error| OverlayError::Corrupt(format!("{key} in the origin: {error}")))?;
        if !self.is_resumed || info.is_seal || info.epoch != self.epoch {
            return Err(fenced(slot));
        }
        // Put by the process before this one, which knew no more of the volume than we do: what
        // it stored is part of what we store. The object to come names another slot.
        self.is_resumed = false;
        self.next = None;
        let cause = "an earlier process has stored an object here".to_owned();
        Err(PushError::Retry(OverlayError::Unavailable(cause)))
    }

    /// Gives up what is under way: the local log keeps it, and it is dirty as before.
    pub(crate) fn abandon(&mut self, log: &LocalLog) {
        (self.main, self.preempting) = (None, None);
        log.map_mut().abandon_cuts();
    }
}

fn fenced(slot: u64) -> PushError {
    PushError::Fenced(format!("slot {slot:016x} of the volume's log is not ours"))
}
