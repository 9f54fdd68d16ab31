//! Durability by region of a disk, as a write looks it up.

pub(crate) mod durability;
pub(crate) mod gpt;
pub(crate) mod region_state;
pub(crate) mod table_seen;

use std::time::{Duration, Instant};

use crate::limits;
use crate::regions::durability::{Durability, DurabilityClass};
use crate::segments::record::SECTOR;

/// Regions of one class and period: they are pushed together, so the origin holds a consistent
/// prefix of each group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub class: DurabilityClass,
    pub period: Duration,
}

impl Group {
    /// Until when a write is to be on the origin, if nobody waits for that.
    pub(crate) fn deadline(&self, written_at: Instant) -> Option<Instant> {
        (self.class == DurabilityClass::WriteBack).then(|| written_at + self.period)
    }
}

/// A disk cut into runs of one group each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RegionMap {
    groups: Vec<Group>,
    /// First sector of each run and the run's group; the first run starts at 0.
    runs: Vec<(u64, u8)>,
}

/// A partition of a GPT: name, first sector, first sector after it.
pub(crate) type Partition = (String, u64, u64);

impl RegionMap {
    /// Resolves the regions of `durability`; a partition that the disk does not have is no region.
    pub(crate) fn new(durability: &Durability, partitions: &[Partition]) -> RegionMap {
        let period = Duration::from_secs_f64(durability.period_s);
        let default = Group { class: durability.default, period };
        let mut map = RegionMap { groups: vec![default], runs: vec![(0, 0)] };
        // First what a full table must not replace by another class: all others are write-back.
        for region in durability.regions.iter().filter(|r| r.class != DurabilityClass::WriteBack) {
            map.group_number(Group { class: region.class, period });
        }
        for region in &durability.regions {
            let period = region.period_s.map_or(period, Duration::from_secs_f64);
            let group = map.group_number(Group { class: region.class, period });
            match (region.first, region.last, &region.partition) {
                (Some(first), Some(last), _) => map.cover(first / SECTOR, last / SECTOR, group),
                (_, _, Some(name)) => {
                    let named = partitions.iter().filter(|(other, ..)| other == name);
                    named.for_each(|(_, start, end)| map.cover(*start, *end, group));
                }
                _ => {}
            }
        }
        map
    }

    fn group_number(&mut self, group: Group) -> u8 {
        // Only write-back has a period that matters.
        let is_same = |other: &Group| {
            other.class == group.class
                && (other.period == group.period || group.class != DurabilityClass::WriteBack)
        };
        match self.groups.iter().position(is_same) {
            Some(number) => number as u8,
            None if self.groups.len() < limits::GROUPS_MAX => {
                self.groups.push(group);
                (self.groups.len() - 1) as u8
            }
            // Rather with another period than not at all.
            None => self.groups.iter().position(|o| o.class == group.class).unwrap_or(0) as u8,
        }
    }

    fn cover(&mut self, start: u64, end: u64, group: u8) {
        if start >= end {
            return;
        }
        let after = self.group_of(end);
        let mut runs: Vec<_> = self.runs.iter().copied().filter(|(at, _)| *at < start).collect();
        runs.push((start, group));
        runs.push((end, after));
        runs.extend(self.runs.iter().copied().filter(|(at, _)| *at > end));
        runs.dedup_by_key(|(_, group)| *group);
        self.runs = runs;
    }

    /// Returns the number of the group of a sector.
    pub(crate) fn group_of(&self, sector: u64) -> u8 {
        let after = self.runs.partition_point(|(at, _)| *at <= sector);
        self.runs[after.saturating_sub(1)].1
    }

    /// Calls `visit` with each part of `start..end` that is in one group.
    pub(crate) fn split(&self, start: u64, end: u64, mut visit: impl FnMut(u64, u64, u8)) {
        let mut at = start;
        let mut next = self.runs.partition_point(|(run, _)| *run <= start);
        while at < end {
            let run_end = self.runs.get(next).map_or(end, |(run, _)| (*run).min(end));
            visit(at, run_end, self.runs[next - 1].1);
            at = run_end;
            next += 1;
        }
    }

    /// The groups; a group's number is its place.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns whether a sector of `start..end` is in a region of that class.
    pub(crate) fn has_class(&self, start: u64, end: u64, class: DurabilityClass) -> bool {
        let mut is_found = false;
        self.split(start, end, |_, _, group| is_found |= self.class(group) == class);
        is_found
    }

    /// Returns the class of group `number`.
    pub(crate) fn class(&self, number: u8) -> DurabilityClass {
        self.groups[usize::from(number)].class
    }

    /// Returns whether what is written to group `number` is pushed.
    pub(crate) fn is_pushed(&self, number: u8) -> bool {
        self.class(number) != DurabilityClass::None
    }

    /// Bits of the groups that are pushed.
    pub(crate) fn pushed_groups(&self) -> u32 {
        let numbers = 0..self.groups.len() as u8;
        numbers.filter(|group| self.is_pushed(*group)).map(|group| 1 << group).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::durability::RegionSpec;

    fn region(first: u64, last: u64, class: DurabilityClass) -> RegionSpec {
        let (first, last) = (Some(first * SECTOR), Some(last * SECTOR));
        RegionSpec { first, last, partition: None, class, period_s: None }
    }

    #[test]
    fn more_periods_than_groups_change_no_class() {
        use DurabilityClass::{None as Never, WriteBack, WriteThrough};
        let mut regions: Vec<_> = (0..limits::REGIONS_MAX as u64)
            .map(|number| RegionSpec {
                period_s: Some(number as f64 + 1.0),
                ..region(number * 10, number * 10 + 10, WriteBack)
            })
            .collect();
        regions[62].class = Never;
        regions[63].class = WriteThrough;
        let map = RegionMap::new(&Durability { regions, ..Durability::default() }, &[]);
        assert_eq!(map.groups().len(), limits::GROUPS_MAX, "a bit each in 32 bits");
        for (sector, expected) in
            [(0, WriteBack), (150, WriteBack), (619, WriteBack), (620, Never), (630, WriteThrough)]
        {
            assert_eq!(map.class(map.group_of(sector)), expected, "{sector}");
        }
        assert_eq!(map.groups()[usize::from(map.group_of(10))].period, Duration::from_secs(2));
    }

    #[test]
    fn later_regions_cover_earlier_ones() {
        use DurabilityClass::{None as Never, WriteBack, WriteThrough};
        let durability = Durability {
            regions: vec![
                region(10, 30, Never),
                region(20, 40, WriteThrough),
                region(25, 26, Never),
                RegionSpec { partition: Some("data".into()), ..region(0, 1, WriteThrough) },
            ],
            ..Durability::default()
        };
        let mut durability = durability;
        durability.regions[3].first = None;
        durability.regions[3].last = None;
        let map = RegionMap::new(&durability, &[("data".into(), 100, 110)]);
        let class = |sector| map.class(map.group_of(sector));
        for (sector, expected) in [
            (0, WriteBack),
            (9, WriteBack),
            (10, Never),
            (19, Never),
            (20, WriteThrough),
            (25, Never),
            (26, WriteThrough),
            (39, WriteThrough),
            (40, WriteBack),
            (100, WriteThrough),
            (110, WriteBack),
        ] {
            assert_eq!(class(sector), expected, "{sector}");
        }
        let mut parts = Vec::new();
        map.split(15, 27, |start, end, group| parts.push((start, end, map.class(group))));
        let expected =
            [(15, 20, Never), (20, 25, WriteThrough), (25, 26, Never), (26, 27, WriteThrough)];
        assert_eq!(parts, expected);
        assert!(map.has_class(0, 11, Never) && !map.has_class(0, 10, Never));
        assert!(map.is_pushed(map.group_of(0)) && !map.is_pushed(map.group_of(25)));
    }
}
