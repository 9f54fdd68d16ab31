//! Schedule of write-back pushes: their starts, and the spread of their objects over time.
//!
//! Source: Capo (FAST 2011) §4.3.1 and §5.4: what was written is on the origin at the latest one
//! period after the write. There everything is sent at the end of the period, and volumes that
//! were started together send together. Here the cut is made about half a period early and its
//! objects are sent one by one until the period is over: the promise is the same, the origin sees
//! no burst. The price is that overwrites are absorbed over half a period and not a whole one.
//! How early exactly is drawn from the volume's id, so that volumes drift apart.

use std::time::{Duration, Instant};

use acstor_types::{Digest, DiskId};

use crate::limits;
use crate::regions::durability::DurabilityClass;
use crate::segments::map_state::MapState;

/// Share of the period over which a push is spread: the origin sees no burst.
const SPREAD: f64 = 0.5;
/// Largest share of the period by which a cut is made earlier than half of it, by the volume's id:
/// volumes that were started together drift apart.
const JITTER: f64 = 0.125;
/// Share of the time that is left when a cut is made in which its objects are sent: the origin
/// takes its time for each of them.
const PACED: f64 = 0.9;

/// Schedule of the cuts of one volume's groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    /// Share of a period, from the volume's id.
    lead: f64,
}

impl Cadence {
    pub(crate) fn new(volume: DiskId) -> Cadence {
        Cadence { lead: SPREAD + JITTER * unit(volume) }
    }

    /// Returns the age of its oldest write at which a group is cut.
    pub(crate) fn cut_after(self, period: Duration) -> Duration {
        period.mul_f64(1.0 - self.lead)
    }
}

/// Thresholds of a fold: a share of what is configured, another one for each volume.
pub(crate) fn fold_share(volume: DiskId) -> f64 {
    1.0 - 0.25 * unit(volume)
}

/// A number from 0 to 1 that is a volume's own.
fn unit(volume: DiskId) -> f64 {
    let digest = Digest::of(volume.as_bytes());
    f64::from(u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]])) / 65535.0
}

/// Pace at which the parts of something are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    begun: Instant,
    length: Duration,
    total: u64,
    done: u64,
}

impl Pace {
    /// Spreads `total` bytes from `now` until shortly before `deadline`.
    pub(crate) fn until(now: Instant, deadline: Instant, total: u64) -> Pace {
        Pace::over(now, deadline.saturating_duration_since(now).mul_f64(PACED), total)
    }

    /// Spreads `total` bytes over a time.
    pub(crate) fn over(now: Instant, length: Duration, total: u64) -> Pace {
        Pace { begun: now, length, total: total.max(1), done: 0 }
    }

    /// Counts bytes that were sent.
    pub(crate) fn note(&mut self, bytes: u64) {
        self.done = (self.done + bytes).min(self.total);
    }

    /// Returns the time at which the next part is to be sent.
    pub(crate) fn next_at(&self) -> Instant {
        self.begun + self.length.mul_f64(self.done as f64 / self.total as f64)
    }

    /// Returns the size of an object such that the origin sees many small ones and no burst, and
    /// none smaller than a request is worth.
    pub(crate) fn object_bytes(&self) -> usize {
        let part = (self.total / limits::PACED_OBJECTS) as usize;
        part.clamp(limits::PACED_OBJECT_BYTES_MIN, limits::LOG_OBJECT_BYTES_MAX)
    }
}

/// Until when what is dirty of groups is to be on the origin; `None`: at once.
pub(crate) fn deadline(map: &MapState, is_chosen: impl Fn(u8) -> bool) -> Option<Instant> {
    let groups = map.regions.groups().iter().zip(&map.dirty).enumerate();
    let dirty =
        groups.filter(|(number, (_, dirty))| is_chosen(*number as u8) && !dirty.ranges.is_empty());
    let deadlines = dirty.map(|(_, (group, dirty))| match group.class {
        DurabilityClass::WriteBack => dirty.oldest.map(|oldest| oldest + group.period),
        _ => None,
    });
    deadlines.min().flatten()
}

/// Grants bytes at a rate, in bursts of a second.
#[derive(Debug)]
pub(crate) struct PushRate {
    bytes_per_s: Option<u64>,
    /// The bucket is empty until then.
    free_at: Option<Instant>,
}

impl PushRate {
    pub(crate) fn new(bytes_per_s: Option<u64>) -> PushRate {
        PushRate { bytes_per_s, free_at: None }
    }

    /// Counts bytes that were stored at `now`.
    pub(crate) fn note(&mut self, bytes: u64, now: Instant) {
        if let Some(rate) = self.bytes_per_s {
            let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            let from = self.free_at.map_or(now, |at| at.max(now));
            self.free_at = Some(from + cost);
        }
    }

    /// Returns the time that the next object must wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.free_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is cut and however much it is, the last object goes before the period is over.
        #[test]
        fn recovery_point_is_kept(
            id in any::<[u8; 16]>(),
            period_ms in 100..86_400_000_u64,
            parts in prop::collection::vec(1..1_u64 << 34, 1..40),
        ) {
            let (oldest, period) = (Instant::now(), Duration::from_millis(period_ms));
            let cut = oldest + Cadence::new(DiskId::from_bytes(id)).cut_after(period);
            prop_assert!(cut > oldest && cut + period.mul_f64(SPREAD) <= oldest + period);
            let mut pace = Pace::until(cut, oldest + period, parts.iter().sum());
            let mut last = cut;
            for part in parts {
                let at = pace.next_at();
                prop_assert!(last <= at && at < oldest + period);
                last = at;
                pace.note(part);
            }
            prop_assert!(pace.next_at() <= oldest + period);
        }
    }

    #[test]
    fn volumes_that_begin_together_do_not_push_together() {
        let cut = |byte| {
            let cadence = Cadence::new(DiskId::from_bytes([byte; 16]));
            cadence.cut_after(Duration::from_secs(600)).as_secs()
        };
        let cuts: std::collections::BTreeSet<u64> = (0..20).map(cut).collect();
        assert!(cuts.len() > 12, "{cuts:?}");
        assert_eq!(cut(1), cut(1), "the same after a restart");
    }

    #[test]
    fn objects_are_neither_tiny_nor_huge() {
        let object = |total| Pace::over(Instant::now(), Duration::ZERO, total).object_bytes();
        assert_eq!(object(1000), limits::PACED_OBJECT_BYTES_MIN);
        assert_eq!(object(32 << 20), 1 << 20);
        assert_eq!(object(1 << 40), limits::LOG_OBJECT_BYTES_MAX);
    }
}
