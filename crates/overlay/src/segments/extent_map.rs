//! Map from written sectors to the places of their newest content in the local log.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::segments::record::SECTOR;

/// Offsets in a segment are kept in units of this many bytes; every payload starts at one.
pub(crate) const UNIT: u64 = 64;
const ZERO_SEGMENT: u32 = u32::MAX;

/// Place of an extent's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Every byte is zero; nothing is stored.
    Zero,
    /// In a segment of the local log.
    Log {
        /// Number of the segment.
        segment: u32,
        /// Offset of the first byte in the segment; a multiple of 64.
        offset: u64,
    },
}

impl Place {
    /// Returns the place of what lies `sectors` sectors further on in the same extent.
    pub(crate) fn advance(self, sectors: u64) -> Place {
        match self {
            Place::Zero => Place::Zero,
            Place::Log { segment, offset } => {
                Place::Log { segment, offset: offset + sectors * SECTOR }
            }
        }
    }

    /// Returns the place as the map and checkpoints keep it: segment and offset in units.
    pub(crate) fn pack(self) -> (u32, u32) {
        match self {
            Place::Zero => (ZERO_SEGMENT, 0),
            Place::Log { segment, offset } => (segment, (offset / UNIT) as u32),
        }
    }

    pub(crate) fn unpack(segment: u32, units: u32) -> Place {
        match segment {
            ZERO_SEGMENT => Place::Zero,
            _ => Place::Log { segment, offset: u64::from(units) * UNIT },
        }
    }
}

/// A run of sectors with content in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub end: u64,
    pub place: Place,
}

impl Extent {
    /// Number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.end - self.start) * SECTOR
    }

    /// Returns the part inside `start..end`, which the extent overlaps.
    pub(crate) fn clip(&self, start: u64, end: u64) -> Extent {
        let (from, to) = (self.start.max(start), self.end.min(end));
        Extent { start: from, end: to, place: self.place.advance(from - self.start) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end: u64,
    segment: u32,
    units: u32,
}

impl Entry {
    fn new(extent: &Extent) -> Entry {
        let (segment, units) = extent.place.pack();
        Entry { end: extent.end, segment, units }
    }

    fn extent(&self, start: u64) -> Extent {
        Extent { start, end: self.end, place: Place::unpack(self.segment, self.units) }
    }
}

/// Disjoint extents in the order of the disk.
#[derive(Debug, Default)]
pub(crate) struct ExtentMap {
    entries: BTreeMap<u64, Entry>,
}

impl ExtentMap {
    /// Number of extents.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts `extent` over what is there; `displaced` is called with each part that it replaces.
    pub(crate) fn insert(&mut self, extent: &Extent, mut displaced: impl FnMut(&Extent)) {
        let new = Entry::new(extent);
        match self.entries.range_mut(..extent.end).next_back() {
            // The same range again: the most frequent case of an overwrite.
            Some((&start, entry)) if start == extent.start && entry.end == extent.end => {
                displaced(&entry.extent(start));
                *entry = new;
                return;
            }
            Some((_, entry)) if entry.end > extent.start => {
                self.remove(extent.start, extent.end, displaced);
            }
            Some(_) | None => {}
        }
        self.entries.insert(extent.start, new);
    }

    /// Takes `start..end` out; `displaced` is called with each part that was there.
    pub(crate) fn remove(&mut self, start: u64, end: u64, mut displaced: impl FnMut(&Extent)) {
        while let Some((&other_start, entry)) = self.entries.range(..end).next_back() {
            let other = entry.extent(other_start);
            if other.end <= start {
                break;
            }
            self.entries.remove(&other.start);
            displaced(&other.clip(start, end));
            if other.end > end {
                self.put(&other.clip(end, other.end));
            }
            if other.start < start {
                self.put(&other.clip(other.start, start));
                break;
            }
        }
    }

    fn put(&mut self, extent: &Extent) {
        self.entries.insert(extent.start, Entry::new(extent));
    }

    /// Returns the extents in `start..end`, cut at its ends, in order.
    pub(crate) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = Extent> + '_ {
        let before = self.entries.range(..start).next_back();
        let first = before.filter(|(_, entry)| entry.end > start && start < end);
        let rest = self.entries.range(start..end.max(start));
        first.into_iter().chain(rest).map(move |(&at, entry)| entry.extent(at).clip(start, end))
    }

    /// Returns up to `count` extents that start after `after` (`None`: from the first one on).
    pub(crate) fn after(&self, after: Option<u64>, count: usize) -> Vec<Extent> {
        let from = after.map_or(Unbounded, Excluded);
        let entries = self.entries.range((from, Unbounded)).take(count);
        entries.map(|(&start, entry)| entry.extent(start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTORS: usize = 96;

    /// The map once more: one place per sector.
    #[derive(Default)]
    struct Model(Vec<Option<Place>>);

    impl Model {
        fn set(&mut self, start: u64, end: u64, place: Option<Place>) -> u64 {
            self.0.resize(SECTORS, None);
            let mut displaced = 0;
            for sector in start..end {
                let before = &mut self.0[sector as usize];
                displaced += u64::from(before.is_some());
                *before = place.map(|place| place.advance(sector - start));
            }
            displaced
        }
    }

    fn check(map: &ExtentMap, model: &Model, start: u64, end: u64) {
        let mut found = vec![None; (end - start) as usize];
        let mut previous_end = start;
        for extent in map.range(start, end) {
            assert!(extent.start >= previous_end && extent.end > extent.start && extent.end <= end);
            previous_end = extent.end;
            for sector in extent.start..extent.end {
                found[(sector - start) as usize] =
                    Some(extent.place.advance(sector - extent.start));
            }
        }
        assert_eq!(found, model.0[start as usize..end as usize]);
    }

    proptest! {
        #[test]
        fn is_a_place_for_each_sector(
            steps in prop::collection::vec((0..8u8, 0..80u64, 1..16u64), 1..120),
            window in (0..80u64, 0..16u64),
        ) {
            let mut map = ExtentMap::default();
            let mut model = Model::default();
            for (number, (what, start, len)) in steps.into_iter().enumerate() {
                let end = start + len;
                let mut displaced = 0;
                let note = |extent: &Extent| displaced += extent.end - extent.start;
                let expected = match what {
                    0 => {
                        map.remove(start, end, note);
                        model.set(start, end, None)
                    }
                    1 => {
                        map.insert(&Extent { start, end, place: Place::Zero }, note);
                        model.set(start, end, Some(Place::Zero))
                    }
                    _ => {
                        let offset = 4096 + number as u64 * 64 * 1024;
                        let place = Place::Log { segment: u32::from(what), offset };
                        map.insert(&Extent { start, end, place }, note);
                        model.set(start, end, Some(place))
                    }
                };
                prop_assert_eq!(displaced, expected);
                check(&map, &model, 0, SECTORS as u64);
                check(&map, &model, window.0, window.0 + window.1);
            }
            let mut listed = map.after(None, 3);
            while let Some(last) = listed.last() {
                let more = map.after(Some(last.start), 3);
                if more.is_empty() {
                    break;
                }
                listed.extend(more);
            }
            prop_assert_eq!(listed, map.range(0, SECTORS as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn places_survive_packing() {
        let log = Place::Log { segment: 7, offset: 4096 + 64 + 512 * 3 };
        for place in [Place::Zero, log, Place::Log { segment: 0, offset: (1 << 30) - 64 }] {
            let (segment, units) = place.pack();
            assert_eq!(Place::unpack(segment, units), place);
        }
    }
}
