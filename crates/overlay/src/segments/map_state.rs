//! State under one lock: the map of extents, and the content that the origin does not have yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::regions::RegionMap;
use crate::segments::extent_map::{Extent, ExtentMap, Place};
use crate::segments::hold_back::Backlog;
use crate::segments::range_set::RangeSet;
use crate::segments::segment::Segment;

/// Dirty ranges of one group of regions since its last cut.
#[derive(Debug, Default)]
pub(crate) struct GroupDirty {
    pub ranges: RangeSet,
    /// Sectors written with content, each as often as it was; zeros cost nothing to push.
    data_sectors: u64,
    /// Time at which the oldest of it was written.
    pub oldest: Option<Instant>,
}

/// Batches that can be under way at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// One after the other.
    Main,
    /// Between the objects of another one.
    Preempting,
}

/// Cut on its way to the origin: the state of the disk at one sequence number.
///
/// The ranges are looked up a few at a time, in the order of the disk, so that a cut of any size
/// stops no guest; a write that would change the answer looks its own range up first. Nothing here
/// takes time by the number of ranges while a lock is held.
#[derive(Debug, Default)]
pub(crate) struct CutState {
    /// Everything that the cut covers, by group.
    ranges: Vec<RangeSet>,
    pub oldest: Option<Instant>,
    /// Time at which the first of it is to be on the origin, of the content that nobody waits for.
    deadline: Option<Instant>,
    /// Up to this sector all of `ranges` was looked up.
    resolved_until: u64,
    /// Ranges that were looked up beyond it, since they were about to change.
    resolved_ahead: RangeSet,
    resolved: Vec<Extent>,
    /// Segments that `resolved` refers to.
    segments: Segments,
}

/// Segments by number.
pub(crate) type Segments = HashMap<u32, Arc<Segment>>;

/// The extent map and what follows it.
#[derive(Debug)]
pub(crate) struct MapState {
    pub extents: ExtentMap,
    pub segments: HashMap<u32, Arc<Segment>>,
    pub regions: Arc<RegionMap>,
    pub dirty: Vec<GroupDirty>,
    /// By stream.
    cuts: [Option<CutState>; 2],
    /// Ranges that a push left out, since they could not be read or were not what was written.
    undelivered: RangeSet,
    undelivered_since: Option<Instant>,
}

impl MapState {
    pub(crate) fn new(regions: Arc<RegionMap>) -> MapState {
        let dirty = regions.groups().iter().map(|_| GroupDirty::default()).collect();
        let (extents, segments) = (ExtentMap::default(), HashMap::new());
        let (undelivered, undelivered_since) = (RangeSet::default(), None);
        MapState {
            extents,
            segments,
            regions,
            dirty,
            cuts: [None, None],
            undelivered,
            undelivered_since,
        }
    }

    /// Puts what a record says over what is there.
    pub(crate) fn apply(&mut self, extent: &Extent) {
        for cut in self.cuts.iter_mut().flatten() {
            cut.resolve(extent.start, extent.end, &self.extents, &self.segments);
        }
        if let Place::Log { segment, .. } = extent.place
            && let Some(segment) = self.segments.get(&segment)
        {
            segment.add_live(extent.bytes());
            let dirty = &mut self.dirty;
            self.regions.split(extent.start, extent.end, |from, to, group| {
                dirty[usize::from(group)].data_sectors += to - from;
            });
        }
        let segments = &self.segments;
        self.extents.insert(extent, |old| forget(segments, old));
    }

    /// Takes `extent` out of the overlay where it is still in its place, and on the origin: zeros
    /// may be newer ones, and what is dirty must be there for a cut to find.
    pub(crate) fn drop_extent(&mut self, extent: &Extent) {
        let same = |now: &Extent| {
            let (from, to) = (now.start.max(extent.start), now.end.min(extent.end));
            from < to && extent.place.advance(from - extent.start) == now.place
        };
        let unchanged: Vec<_> = self.extents.range(extent.start, extent.end).filter(same).collect();
        for extent in unchanged {
            let cuts = self.cuts.iter().flatten().flat_map(|cut| &cut.ranges);
            let mut dirty =
                self.dirty.iter().map(|group| &group.ranges).chain(cuts).chain([&self.undelivered]);
            if dirty.any(|ranges| ranges.overlaps(extent.start, extent.end)) {
                continue;
            }
            let segments = &self.segments;
            self.extents.remove(extent.start, extent.end, |old| forget(segments, old));
        }
    }

    /// Notes that the origin does not have `start..end`, where it is to have it.
    pub(crate) fn mark_dirty(&mut self, start: u64, end: u64, now: impl Fn() -> Instant) {
        self.undelivered.remove(start, end);
        self.mark_again(start, end, now);
    }

    /// As [`MapState::mark_dirty`], of what was written before.
    fn mark_again(&mut self, start: u64, end: u64, now: impl Fn() -> Instant) {
        let dirty = &mut self.dirty;
        let regions = &self.regions;
        regions.split(start, end, |from, to, group| {
            if regions.is_pushed(group) {
                let group = &mut dirty[usize::from(group)];
                if group.oldest.is_none() {
                    group.oldest = Some(now());
                }
                group.ranges.insert(from, to);
            }
        });
    }

    /// Begins a cut of the groups that `is_chosen`; false: they have nothing to push.
    pub(crate) fn begin_cut(&mut self, stream: Stream, is_chosen: impl Fn(u8) -> bool) -> bool {
        debug_assert!(self.cuts[stream as usize].is_none(), "one cut of a stream at a time");
        let mut cut = CutState { deadline: self.deadline(&is_chosen), ..CutState::default() };
        for (number, group) in self.dirty.iter_mut().enumerate() {
            if is_chosen(number as u8) && !group.ranges.is_empty() {
                let group = std::mem::take(group);
                cut.oldest = [cut.oldest, group.oldest].into_iter().flatten().min();
                cut.ranges.push(group.ranges);
            }
        }
        if cut.ranges.is_empty() {
            return false;
        }
        self.cuts[stream as usize] = Some(cut);
        true
    }

    /// Until when what is dirty of write-back groups that are chosen is to be on the origin.
    fn deadline(&self, is_chosen: impl Fn(u8) -> bool) -> Option<Instant> {
        let groups = self.regions.groups().iter().zip(&self.dirty).enumerate();
        let chosen = groups.filter(|(number, _)| is_chosen(*number as u8));
        chosen.filter_map(|(_, (group, dirty))| group.deadline(dirty.oldest?)).min()
    }

    /// Returns what write-back has to push and until when, in that order; `under_way`: bytes that
    /// are missing of the cuts.
    pub(crate) fn backlogs(&self, under_way: u64) -> Vec<Backlog> {
        let cuts = self.cuts.iter().flatten().filter_map(|cut| Some((cut.deadline?, 0)));
        let groups = self.regions.groups().iter().zip(&self.dirty);
        let groups = groups
            .filter_map(|(group, dirty)| Some((group.deadline(dirty.oldest?)?, dirty.bytes())));
        let mut all: Vec<_> = cuts.chain(groups).collect();
        all.sort_unstable();
        let mut bytes = if self.cuts.iter().any(Option::is_some) { under_way } else { 0 };
        let add = |(deadline, more): (Instant, u64)| {
            bytes += more;
            Backlog { bytes, deadline }
        };
        all.into_iter().map(add).collect()
    }

    /// Bytes of content that is dirty and in no cut.
    pub(crate) fn uncut_bytes(&self) -> u64 {
        self.dirty.iter().map(GroupDirty::bytes).sum()
    }

    /// By how much the oldest write of write-back that the origin does not have is past its period.
    pub(crate) fn lateness(&self, now: Instant) -> Duration {
        let cuts = self.cuts.iter().flatten().filter_map(|cut| cut.deadline);
        let deadlines = self.deadline(|_| true).into_iter().chain(cuts);
        deadlines.map(|at| now.saturating_duration_since(at)).max().unwrap_or_default()
    }

    /// Looks up to `count` further ranges of the cut up; true when that was all of it.
    pub(crate) fn resolve_some(&mut self, stream: Stream, count: usize) -> bool {
        let Some(cut) = &mut self.cuts[stream as usize] else { return true };
        for _ in 0..count {
            let Some((start, end)) = cut.next_range() else { return true };
            cut.look_up_missing(start, end, &self.extents, &self.segments);
            cut.resolved_until = end;
        }
        cut.next_range().is_none()
    }

    /// Takes the extents of a cut that was looked up completely, and the segments that they refer
    /// to. Those that were about to change come before their order: sort them without the lock.
    pub(crate) fn take_resolved(&mut self, stream: Stream) -> (Vec<Extent>, Segments) {
        let Some(cut) = &mut self.cuts[stream as usize] else { return Default::default() };
        debug_assert!(cut.next_range().is_none());
        let extents = std::mem::take(&mut cut.resolved);
        (extents, std::mem::take(&mut cut.segments))
    }

    /// Ends the cut: everything of it is on the origin. Drop what is left of it without the lock.
    #[must_use]
    pub(crate) fn finish_cut(&mut self, stream: Stream) -> Option<CutState> {
        let cut = self.cuts[stream as usize].take();
        if !self.undelivered.is_empty() {
            let ranges = cut.iter().flat_map(|cut| &cut.ranges).flat_map(RangeSet::iter);
            ranges.for_each(|(start, end)| self.undelivered.remove(start, end));
        }
        cut
    }

    /// Notes ranges that a push had to leave out: the origin does not have them, and no cut will find
    /// them before [`MapState::retry_undelivered`]. What was written again meanwhile is dirty.
    pub(crate) fn undeliver(&mut self, ranges: &[(u64, u64)], now: Instant) {
        for &(start, end) in ranges {
            let mut at = start;
            while at < end {
                let (to, is_dirty) = self.dirty_run(at, end);
                if !is_dirty {
                    self.note_undelivered(at, to);
                }
                at = to;
            }
        }
        self.undelivered_since = Some(now);
    }

    /// Returns the ranges that pushes have left out.
    pub(crate) fn undelivered(&self) -> &RangeSet {
        &self.undelivered
    }

    /// Has a cut find again what was left out before `until`; false: there is nothing.
    pub(crate) fn retry_undelivered(&mut self, until: Instant) -> bool {
        let is_due = self.undelivered_since.is_some_and(|since| since <= until);
        if !is_due || self.undelivered.is_empty() {
            return false;
        }
        // They are undelivered until a cut has delivered them.
        let ranges: Vec<_> = self.undelivered.iter().collect();
        ranges.into_iter().for_each(|(start, end)| self.mark_again(start, end, Instant::now));
        self.undelivered_since = None;
        true
    }

    /// Gives the cuts up: what they cover is dirty as before.
    pub(crate) fn abandon_cuts(&mut self) {
        for cut in std::mem::take(&mut self.cuts).into_iter().flatten() {
            let oldest = cut.oldest.unwrap_or_else(Instant::now);
            for (start, end) in cut.ranges.iter().flat_map(RangeSet::iter) {
                self.mark_again(start, end, || oldest);
            }
            for group in &mut self.dirty {
                group.oldest = group.oldest.map(|own| own.min(oldest));
            }
        }
    }

    /// Returns up to `count` runs that the origin does not have, from a sector on, in order.
    pub(crate) fn dirty_from(&self, from: u64, count: usize) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut at = from;
        while runs.len() < count {
            let cuts = self.cuts.iter().flatten().flat_map(|cut| &cut.ranges);
            let sets =
                self.dirty.iter().map(|group| &group.ranges).chain(cuts).chain([&self.undelivered]);
            let Some((start, _)) = sets.filter_map(|set| set.next_from(at)).min() else { break };
            let (end, _) = self.dirty_run(start, u64::MAX);
            runs.push((start, end));
            at = end;
        }
        runs
    }

    /// Everything that the origin does not have; takes as long as there are ranges.
    #[cfg(test)]
    pub(crate) fn all_dirty(&self) -> RangeSet {
        let mut all = RangeSet::default();
        let cuts = self.cuts.iter().flatten().flat_map(|cut| &cut.ranges);
        cuts.for_each(|ranges| all.extend(ranges));
        self.dirty.iter().for_each(|group| all.extend(&group.ranges));
        all.extend(&self.undelivered);
        all
    }

    /// Returns whether a sector of `start..end` is not on the origin, where it is to be.
    pub(crate) fn dirty_run(&self, start: u64, end: u64) -> (u64, bool) {
        let cuts = self.cuts.iter().flatten().flat_map(|cut| &cut.ranges);
        let sets =
            self.dirty.iter().map(|group| &group.ranges).chain(cuts).chain([&self.undelivered]);
        let mut clean_end = end;
        let mut dirty_end = start;
        for set in sets {
            match set.run(start, end) {
                (run_end, true) => dirty_end = dirty_end.max(run_end),
                (run_end, false) => clean_end = clean_end.min(run_end),
            }
        }
        if dirty_end > start { (dirty_end, true) } else { (clean_end, false) }
    }

    /// Sectors that the origin does not have; those under way count once more where they were
    /// written again.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        let cuts = self
            .cuts
            .iter()
            .flatten()
            .flat_map(|cut| &cut.ranges)
            .map(RangeSet::sectors)
            .sum::<u64>();
        let dirty = self.dirty.iter().map(|group| group.ranges.sectors()).sum::<u64>();
        cuts + dirty + self.undelivered.sectors()
    }

    /// Bytes of content that is to be on the origin and is not known to be missing there.
    pub(crate) fn clean_bytes(&self) -> u64 {
        let mut sectors = 0;
        for extent in self.extents.range(0, u64::MAX).filter(|e| e.place != Place::Zero) {
            self.regions.split(extent.start, extent.end, |start, end, group| {
                if self.regions.is_pushed(group) {
                    sectors += end - start;
                }
            });
        }
        sectors.saturating_sub(self.dirty_sectors()) * crate::SECTOR_BYTES
    }

    /// Returns the time of the oldest write that the origin does not have.
    pub(crate) fn oldest_dirty(&self) -> Option<Instant> {
        let cuts = self.cuts.iter().flatten().map(|cut| cut.oldest);
        self.dirty.iter().map(|group| group.oldest).chain(cuts).flatten().min()
    }

    /// Takes other regions over. What is dirty stays so where
    /// it still is to travel, and what is to travel now and was not is dirty.
    pub(crate) fn set_regions(&mut self, regions: Arc<RegionMap>) {
        let mut carried = RangeSet::default();
        self.dirty.iter().for_each(|group| carried.extend(&group.ranges));
        let oldest = self.dirty.iter().filter_map(|group| group.oldest).min();
        let before = std::mem::replace(&mut self.regions, regions);
        self.dirty = self.regions.groups().iter().map(|_| GroupDirty::default()).collect();
        for extent in self.extents.range(0, u64::MAX) {
            before.split(extent.start, extent.end, |start, end, group| {
                if !before.is_pushed(group) {
                    carried.insert(start, end);
                }
            });
        }
        let oldest = oldest.unwrap_or_else(Instant::now);
        for (start, end) in carried.iter() {
            self.mark_again(start, end, || oldest);
        }
        // What the origin is not to have any more it does not lack.
        let undelivered = std::mem::take(&mut self.undelivered);
        undelivered.iter().for_each(|(start, end)| self.note_undelivered(start, end));
    }

    fn note_undelivered(&mut self, start: u64, end: u64) {
        let (regions, undelivered) = (&self.regions, &mut self.undelivered);
        regions.split(start, end, |start, end, group| {
            if regions.is_pushed(group) {
                undelivered.insert(start, end);
            }
        });
    }
}

impl GroupDirty {
    /// Bytes of content, at most.
    fn bytes(&self) -> u64 {
        self.ranges.sectors().min(self.data_sectors) * crate::SECTOR_BYTES
    }
}

impl CutState {
    fn resolve(
        &mut self,
        start: u64,
        end: u64,
        extents: &ExtentMap,
        segments: &HashMap<u32, Arc<Segment>>,
    ) {
        let from = start.max(self.resolved_until);
        if from >= end || !self.ranges.iter().any(|ranges| ranges.overlaps(from, end)) {
            return;
        }
        let covered = |ranges: &RangeSet| ranges.parts(from, end).collect::<Vec<_>>();
        let parts: Vec<_> = self.ranges.iter().flat_map(covered).collect();
        for (from, to) in parts {
            self.look_up_missing(from, to, extents, segments);
            self.resolved_ahead.insert(from, to);
        }
    }

    /// The next range that was not looked up in its order.
    fn next_range(&self) -> Option<(u64, u64)> {
        self.ranges.iter().filter_map(|ranges| ranges.next_from(self.resolved_until)).min()
    }

    /// Looks up what was not of a part of the cut.
    fn look_up_missing(
        &mut self,
        start: u64,
        end: u64,
        extents: &ExtentMap,
        segments: &HashMap<u32, Arc<Segment>>,
    ) {
        let mut at = start;
        while at < end {
            let (to, is_known) = self.resolved_ahead.run(at, end);
            if !is_known {
                self.look_up(at, to, extents, segments);
            }
            at = to;
        }
    }

    fn look_up(
        &mut self,
        start: u64,
        end: u64,
        extents: &ExtentMap,
        segments: &HashMap<u32, Arc<Segment>>,
    ) {
        for extent in extents.range(start, end) {
            if let Place::Log { segment: number, .. } = extent.place
                && !self.segments.contains_key(&number)
                && let Some(segment) = segments.get(&number)
            {
                self.segments.insert(number, Arc::clone(segment));
            }
            self.resolved.push(extent);
        }
    }
}

fn forget(segments: &HashMap<u32, Arc<Segment>>, extent: &Extent) {
    if let Place::Log { segment, .. } = extent.place
        && let Some(segment) = segments.get(&segment)
    {
        segment.sub_live(extent.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::durability::Durability;

    fn state() -> MapState {
        MapState::new(Arc::new(RegionMap::new(&Durability::default(), &[])))
    }

    fn write(state: &mut MapState, start: u64, end: u64, offset: u64) {
        state.apply(&Extent { start, end, place: Place::Log { segment: 1, offset } });
        state.mark_dirty(start, end, Instant::now);
    }

    #[test]
    fn cut_is_the_state_at_one_moment() {
        let mut state = state();
        write(&mut state, 0, 8, 4096);
        write(&mut state, 8, 16, 8192);
        assert!(state.begin_cut(Stream::Main, |_| true));
        write(&mut state, 4, 12, 16384);
        assert!(state.resolve_some(Stream::Main, usize::MAX));
        let at =
            |start, end, offset| Extent { start, end, place: Place::Log { segment: 1, offset } };
        let expected = [(0, 4, 4096), (4, 8, 4096 + 2048), (8, 12, 8192), (12, 16, 8192 + 2048)];
        let (mut resolved, _) = state.take_resolved(Stream::Main);
        resolved.sort_unstable_by_key(|extent| extent.start);
        resolved.dedup_by(|next, before| {
            let is_next = before.end == next.start
                && before.place.advance(before.end - before.start) == next.place;
            before.end = if is_next { next.end } else { before.end };
            is_next
        });
        let mut merged: Vec<Extent> = Vec::new();
        for (start, end, offset) in expected {
            let extent = at(start, end, offset);
            match merged.last_mut() {
                Some(last) if last.place.advance(last.end - last.start) == extent.place => {
                    last.end = end;
                }
                _ => merged.push(extent),
            }
        }
        assert_eq!(resolved, merged);
        drop(state.finish_cut(Stream::Main));
        assert_eq!(state.all_dirty().iter().collect::<Vec<_>>(), [(4, 12)]);
    }

    #[test]
    fn cut_that_is_given_up_is_dirty_again() {
        let mut state = state();
        write(&mut state, 0, 8, 4096);
        assert!(state.begin_cut(Stream::Main, |_| true));
        write(&mut state, 20, 24, 8192);
        assert_eq!(state.dirty_sectors(), 12);
        state.abandon_cuts();
        assert_eq!(state.all_dirty().iter().collect::<Vec<_>>(), [(0, 8), (20, 24)]);
        assert!(state.oldest_dirty().is_some());
        assert_eq!(state.dirty_run(0, 30), (8, true));
        assert_eq!(state.dirty_run(8, 30), (20, false));
    }

    #[test]
    fn what_is_dirty_stays_in_the_overlay() {
        let mut state = state();
        let zeros = Extent { start: 0, end: 8, place: Place::Zero };
        state.apply(&zeros);
        write(&mut state, 0, 8, 4096);
        // Zeros once more, and not those of before.
        state.apply(&zeros);
        state.mark_dirty(0, 8, Instant::now);
        state.drop_extent(&zeros);
        assert_eq!(state.extents.len(), 1);
        assert!(state.begin_cut(Stream::Main, |_| true));
        state.drop_extent(&zeros);
        while !state.resolve_some(Stream::Main, 1) {}
        assert_eq!(state.take_resolved(Stream::Main).0, [zeros]);
        state.drop_extent(&zeros);
        assert_eq!(state.extents.len(), 1, "the cut may be given up");
        drop(state.finish_cut(Stream::Main));
        state.drop_extent(&zeros);
        assert_eq!(state.extents.len(), 0);
    }

    proptest::proptest! {
        /// Writes that come while ranges are looked up, before and behind the place: the cut is what
        /// the disk was when it was made, each sector once.
        #[test]
        fn writes_in_between_change_nothing_of_a_cut(
            before in proptest::collection::vec((0..200_u64, 1..9_u64), 1..40),
            between in proptest::collection::vec((0..3_usize, 0..200_u64, 1..9_u64), 0..40),
        ) {
            let mut state = state();
            let mut number = 0_u64;
            let mut write = |state: &mut MapState, disk: &mut [u64], start: u64, len: u64| {
                number += 1;
                let offset = 4096 + number * 65536;
                self::write(state, start, start + len, offset);
                for sector in start..start + len {
                    disk[sector as usize] = offset + (sector - start) * 512;
                }
            };
            let mut disk = vec![0; 210];
            for (start, len) in before {
                write(&mut state, &mut disk, start, len);
            }
            let (dirty, expected) = (state.all_dirty(), disk.clone());
            let runs: Vec<_> = dirty.iter().collect();
            let mut listed = Vec::new();
            while let more @ [.., (_, end)] = &state.dirty_from(
                listed.last().map_or(0, |(_, end): &(u64, u64)| *end), 2)[..] {
                let _ = end;
                listed.extend_from_slice(more);
            }
            proptest::prop_assert_eq!(&listed, &runs);
            proptest::prop_assert!(state.begin_cut(Stream::Main, |_| true));
            for (count, start, len) in between {
                state.resolve_some(Stream::Main, count);
                write(&mut state, &mut disk, start, len);
            }
            while !state.resolve_some(Stream::Main, 3) {}
            let mut found = vec![0; 210];
            for extent in state.take_resolved(Stream::Main).0 {
                let Place::Log { offset, .. } = extent.place else { panic!("no zeros") };
                for sector in extent.start..extent.end {
                    proptest::prop_assert_eq!(found[sector as usize], 0, "twice");
                    found[sector as usize] = offset + (sector - extent.start) * 512;
                }
            }
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
