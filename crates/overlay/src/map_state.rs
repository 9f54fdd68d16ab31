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
    pub segments: HashMap<u32, Arc<Segment>>,
}

/// The extent map and what follows it.
#[derive(Debug)]
pub(crate) struct MapState {
    pub extents: ExtentMap,
    pub segments: HashMap<u32, Arc<Segment>>,
    pub regions: Arc<RegionMap>,
    pub dirty: Vec<GroupDirty>,
    pub cut: Option<CutState>,
}

impl MapState {
    pub(crate) fn new(regions: Arc<RegionMap>) -> MapState {
        let dirty = regions.groups().iter().map(|_| GroupDirty::default()).collect();
        let (extents, segments) = (ExtentMap::default(), HashMap::new());
        MapState { extents, segments, regions, dirty, cut: None }
    }

    /// Puts what a record says over what is there.
    pub(crate) fn apply(&mut self, extent: &Extent) {
        if let Some(cut) = &mut self.cut {
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

    /// Takes `start..end` out of the overlay where it is still in `place`.
    pub(crate) fn drop_extent(&mut self, extent: &Extent) {
        let same = |now: &Extent| {
            let (from, to) = (now.start.max(extent.start), now.end.min(extent.end));
            from < to && extent.place.advance(from - extent.start) == now.place
        };
        let unchanged: Vec<_> = self.extents.range(extent.start, extent.end).filter(same).collect();
        for extent in unchanged {
            if let Some(cut) = &mut self.cut {
                cut.resolve(extent.start, extent.end, &self.extents, &self.segments);
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
    pub(crate) fn begin_cut(&mut self, is_chosen: impl Fn(u8) -> bool) -> bool {
        debug_assert!(self.cut.is_none(), "one cut at a time");
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
        self.cut = Some(cut);
        true
    }

    /// Looks up to `count` further ranges of the cut up; true when that was all of it.
    pub(crate) fn resolve_some(&mut self, count: usize) -> bool {
        let Some(cut) = &mut self.cut else { return true };
        for _ in 0..count {
            let Some((start, end)) = cut.unresolved.take_first(u64::MAX) else { return true };
            cut.look_up(start, end, &self.extents, &self.segments);
        }
        cut.unresolved.is_empty()
    }

    /// Takes the extents of a cut that was looked up completely, in the order of the disk.
    pub(crate) fn take_resolved(&mut self) -> Vec<Extent> {
        let Some(cut) = &mut self.cut else { return Vec::new() };
        debug_assert!(cut.unresolved.is_empty());
        let mut extents = std::mem::take(&mut cut.resolved);
        extents.sort_unstable_by_key(|extent| extent.start);
        extents
    }

    /// Ends the cut: everything of it is on the origin.
    pub(crate) fn finish_cut(&mut self) {
        self.cut = None;
    }

    /// Gives the cut up: what it covers is dirty as before.
    pub(crate) fn abandon_cut(&mut self) {
        let Some(cut) = self.cut.take() else { return };
        let oldest = cut.oldest.unwrap_or_else(Instant::now);
        for (start, end) in cut.ranges.iter() {
            self.mark_dirty(start, end, || oldest);
        }
        for group in &mut self.dirty {
            group.oldest = group.oldest.map(|own| own.min(oldest));
        }
    }

    /// Everything that the origin does not have.
    pub(crate) fn all_dirty(&self) -> RangeSet {
        let mut all = self.cut.as_ref().map_or_else(RangeSet::default, |cut| cut.ranges.clone());
        self.dirty.iter().for_each(|group| all.extend(&group.ranges));
        all
    }

    /// Returns whether a sector of `start..end` is not on the origin, where it is to be.
    pub(crate) fn dirty_run(&self, start: u64, end: u64) -> (u64, bool) {
        let cut = self.cut.as_ref().map(|cut| &cut.ranges);
        let sets = self.dirty.iter().map(|group| &group.ranges).chain(cut);
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
        let cut = self.cut.as_ref().map_or(0, |cut| cut.ranges.sectors());
        cut + self.dirty.iter().map(|group| group.ranges.sectors()).sum::<u64>()
    }

    /// When the oldest write that the origin does not have was made.
    pub(crate) fn oldest_dirty(&self) -> Option<Instant> {
        let cut = self.cut.as_ref().and_then(|cut| cut.oldest);
        self.dirty.iter().map(|group| group.oldest).chain([cut]).flatten().min()
    }

    /// Takes other regions over; the next cut must be of all groups. What is dirty stays so where
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
        assert!(state.begin_cut(|_| true));
        write(&mut state, 4, 12, 16384);
        assert!(state.resolve_some(usize::MAX));
        let at =
            |start, end, offset| Extent { start, end, place: Place::Log { segment: 1, offset } };
        let expected = [(0, 4, 4096), (4, 8, 4096 + 2048), (8, 12, 8192), (12, 16, 8192 + 2048)];
        let mut resolved = state.take_resolved();
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
        state.finish_cut();
        assert_eq!(state.all_dirty().iter().collect::<Vec<_>>(), [(4, 12)]);
    }

    #[test]
    fn cut_that_is_given_up_is_dirty_again() {
        let mut state = state();
        write(&mut state, 0, 8, 4096);
        assert!(state.begin_cut(|_| true));
        write(&mut state, 20, 24, 8192);
        assert_eq!(state.dirty_sectors(), 12);
        state.abandon_cut();
        assert_eq!(state.all_dirty().iter().collect::<Vec<_>>(), [(0, 8), (20, 24)]);
        assert!(state.oldest_dirty().is_some());
        assert_eq!(state.dirty_run(0, 30), (8, true));
        assert_eq!(state.dirty_run(8, 30), (20, false));
    }
}
