//! What one lock protects: where everything is, and what the origin does not have yet.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;

use crate::extent_map::{Extent, ExtentMap, Place};
use crate::range_set::RangeSet;
use crate::regions::RegionMap;
use crate::segment::Segment;

/// What was written to one group of regions since its last cut.
#[derive(Debug, Default)]
pub(crate) struct GroupDirty {
    pub ranges: RangeSet,
    /// When the oldest of it was written.
    pub oldest: Option<Instant>,
}

/// Batches that can be under way at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// One after the other.
    Main,
    /// Between the objects of another one.
    Aside,
}

/// What is on its way to the origin: the state of the disk at one sequence number.
///
/// The ranges are looked up a few at a time, so that a cut of any size stops no guest; a write
/// that would change the answer looks its own range up first.
#[derive(Debug, Default)]
pub(crate) struct CutState {
    /// Everything that the cut covers.
    pub ranges: RangeSet,
    pub oldest: Option<Instant>,
    unresolved: RangeSet,
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
}

impl MapState {
    pub(crate) fn new(regions: Arc<RegionMap>) -> MapState {
        let dirty = regions.groups().iter().map(|_| GroupDirty::default()).collect();
        let (extents, segments) = (ExtentMap::default(), HashMap::new());
        MapState { extents, segments, regions, dirty, cuts: [None, None] }
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
            let cuts = self.cuts.iter().flatten().map(|cut| &cut.ranges);
            let mut dirty = self.dirty.iter().map(|group| &group.ranges).chain(cuts);
            if dirty.any(|ranges| ranges.overlaps(extent.start, extent.end)) {
                continue;
            }
            let segments = &self.segments;
            self.extents.remove(extent.start, extent.end, |old| forget(segments, old));
        }
    }

    /// Notes that the origin does not have `start..end`, where it is to have it.
    pub(crate) fn mark_dirty(&mut self, start: u64, end: u64, now: impl Fn() -> Instant) {
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
        let mut cut = CutState::default();
        for (number, group) in self.dirty.iter_mut().enumerate() {
            if is_chosen(number as u8) && !group.ranges.is_empty() {
                let group = std::mem::take(group);
                cut.oldest = [cut.oldest, group.oldest].into_iter().flatten().min();
                match cut.ranges.is_empty() {
                    true => cut.ranges = group.ranges,
                    false => cut.ranges.extend(&group.ranges),
                }
            }
        }
        if cut.ranges.is_empty() {
            return false;
        }
        cut.unresolved = cut.ranges.clone();
        self.cuts[stream as usize] = Some(cut);
        true
    }

    /// Looks up to `count` further ranges of the cut up; true when that was all of it.
    pub(crate) fn resolve_some(&mut self, stream: Stream, count: usize) -> bool {
        let Some(cut) = &mut self.cuts[stream as usize] else { return true };
        for _ in 0..count {
            let Some((start, end)) = cut.unresolved.take_first(u64::MAX) else { return true };
            cut.look_up(start, end, &self.extents, &self.segments);
        }
        cut.unresolved.is_empty()
    }

    /// Takes the extents of a cut that was looked up completely, in the order of the disk, and the
    /// segments that they refer to.
    pub(crate) fn take_resolved(&mut self, stream: Stream) -> (Vec<Extent>, Segments) {
        let Some(cut) = &mut self.cuts[stream as usize] else { return Default::default() };
        debug_assert!(cut.unresolved.is_empty());
        let mut extents = std::mem::take(&mut cut.resolved);
        extents.sort_unstable_by_key(|extent| extent.start);
        (extents, std::mem::take(&mut cut.segments))
    }

    /// Ends the cut: everything of it is on the origin.
    pub(crate) fn finish_cut(&mut self, stream: Stream) {
        self.cuts[stream as usize] = None;
    }

    /// Gives the cuts up: what they cover is dirty as before.
    pub(crate) fn abandon_cuts(&mut self) {
        for cut in std::mem::take(&mut self.cuts).into_iter().flatten() {
            let oldest = cut.oldest.unwrap_or_else(Instant::now);
            for (start, end) in cut.ranges.iter() {
                self.mark_dirty(start, end, || oldest);
            }
            for group in &mut self.dirty {
                group.oldest = group.oldest.map(|own| own.min(oldest));
            }
        }
    }

    /// Everything that the origin does not have.
    pub(crate) fn all_dirty(&self) -> RangeSet {
        let mut all = RangeSet::default();
        self.cuts.iter().flatten().for_each(|cut| all.extend(&cut.ranges));
        self.dirty.iter().for_each(|group| all.extend(&group.ranges));
        all
    }

    /// Returns whether a sector of `start..end` is not on the origin, where it is to be.
    pub(crate) fn dirty_run(&self, start: u64, end: u64) -> (u64, bool) {
        let cuts = self.cuts.iter().flatten().map(|cut| &cut.ranges);
        let sets = self.dirty.iter().map(|group| &group.ranges).chain(cuts);
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
        let cuts = self.cuts.iter().flatten().map(|cut| cut.ranges.sectors()).sum::<u64>();
        cuts + self.dirty.iter().map(|group| group.ranges.sectors()).sum::<u64>()
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

    /// When the oldest write that the origin does not have was made.
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
            self.mark_dirty(start, end, || oldest);
        }
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
        if self.unresolved.overlaps(start, end) {
            for (from, to) in self.unresolved.take(start, end) {
                self.look_up(from, to, extents, segments);
            }
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
    use crate::durability::Durability;

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
        state.finish_cut(Stream::Main);
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
        state.finish_cut(Stream::Main);
        state.drop_extent(&zeros);
        assert_eq!(state.extents.len(), 0);
    }
}
