//! A set of sectors as disjoint, merged ranges.

use std::collections::BTreeMap;

/// Sectors, as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// First sector to first sector after the range.
    ranges: BTreeMap<u64, u64>,
    sectors: u64,
}

impl RangeSet {
    /// Number of sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds `start..end`.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut first, mut last) = (start, end);
        // Ranges that overlap or touch, from the last one backwards.
        while let Some((&other, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            if other <= start && other_end >= end {
                return;
            }
            first = first.min(other);
            last = last.max(other_end);
            self.ranges.remove(&other);
            self.sectors -= other_end - other;
        }
        self.ranges.insert(first, last);
        self.sectors += last - first;
    }

    /// Takes `start..end` out.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        while let Some((&other, &other_end)) = self.ranges.range(..end).next_back() {
            if other_end <= start || start >= end {
                return;
            }
            self.ranges.remove(&other);
            self.sectors -= other_end - other;
            self.insert(other, start.min(other_end));
            self.insert(end.max(other), other_end);
            if other <= start {
                return;
            }
        }
    }

    /// Returns whether a sector of `start..end` is in the set.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        let last = self.ranges.range(..end).next_back();
        start < end && last.is_some_and(|(_, other_end)| *other_end > start)
    }

    /// Returns the end of the run from `start` on of sectors that are all in the set or all not,
    /// cut at `end`, and whether they are.
    pub(crate) fn run(&self, start: u64, end: u64) -> (u64, bool) {
        if let Some((_, other_end)) = self.ranges.range(..=start).next_back()
            && *other_end > start
        {
            return ((*other_end).min(end), true);
        }
        let next = self.ranges.range(start..end).next();
        (next.map_or(end, |(other, _)| *other), false)
    }

    /// Returns the first range from a sector on, without what lies before it.
    pub(crate) fn next_from(&self, at: u64) -> Option<(u64, u64)> {
        if let Some((_, end)) = self.ranges.range(..=at).next_back()
            && *end > at
        {
            return Some((at, *end));
        }
        self.ranges.range(at..).next().map(|(start, end)| (*start, *end))
    }

    /// Returns the parts of `start..end` that are in the set.
    pub(crate) fn parts(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = start;
        std::iter::from_fn(move || {
            let (from, to) = self.next_from(at).filter(|(from, _)| *from < end)?;
            at = to.min(end);
            Some((from, at))
        })
    }

    /// Adds every range of `other`.
    pub(crate) fn extend(&mut self, other: &RangeSet) {
        other.iter().for_each(|(start, end)| self.insert(start, end));
    }

    /// Returns the ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(set: &RangeSet, model: &BTreeSet<u64>) {
        let sectors: BTreeSet<u64> = set.iter().flat_map(|(start, end)| start..end).collect();
        assert_eq!(&sectors, model);
        assert_eq!(set.sectors(), model.len() as u64);
        let ranges: Vec<_> = set.iter().collect();
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "merged: {ranges:?}");
        assert!(ranges.iter().all(|(start, end)| start < end), "{ranges:?}");
    }

    proptest! {
        #[test]
        fn is_a_set_of_sectors(
            steps in prop::collection::vec((0..4u8, 0..64u64, 0..12u64), 0..80),
        ) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (what, start, len) in steps {
                let end = start + len;
                prop_assert_eq!(set.overlaps(start, end), (start..end).any(|s| model.contains(&s)));
                if what < 2 {
                    set.insert(start, end);
                    model.extend(start..end);
                }
                if what == 3 {
                    set.remove(start, end);
                    model.retain(|sector| !(start..end).contains(sector));
                }
                let parts: Vec<u64> = set.parts(start, end).flat_map(|(a, b)| a..b).collect();
                let expected: Vec<u64> = model.range(start..end).copied().collect();
                prop_assert_eq!(parts, expected);
                let next = set.next_from(start).map(|(from, _)| from);
                prop_assert_eq!(next, model.range(start..).next().copied());
                check(&set, &model);
                if len > 0 {
                    let (run_end, is_in) = set.run(start, end);
                    prop_assert!(run_end > start && run_end <= end);
                    prop_assert!((start..run_end).all(|s| model.contains(&s) == is_in));
                    prop_assert!(run_end == end || model.contains(&run_end) != is_in);
                }
            }
        }
    }
}
