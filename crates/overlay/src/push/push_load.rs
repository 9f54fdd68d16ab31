//! Load of the push: what there is to push, and what that means for writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::limits;
use crate::log::LocalLog;
use crate::regions::durability::DurabilityClass;
use crate::segments::hold_back::{Held, HoldBack};

/// Content that was left to push at the last check, and the writers that are faster than the
/// origin.
pub(crate) struct PushLoad {
    pub hold_back: HoldBack,
    /// Most extents of the map.
    extents_max: AtomicUsize,
    is_map_full: AtomicBool,
    /// Bytes of the cuts that are under way and in no object yet.
    cut_left: AtomicU64,
    /// Bytes per second that a push may use at most.
    push_rate: Option<u64>,
}

impl PushLoad {
    pub(crate) fn new(push_rate: Option<u64>) -> PushLoad {
        PushLoad {
            hold_back: HoldBack::default(),
            extents_max: AtomicUsize::new(limits::EXTENTS_MAX),
            is_map_full: AtomicBool::new(false),
            cut_left: AtomicU64::new(0),
            push_rate,
        }
    }

    /// Notes how many bytes of the cuts under way are in no object yet.
    pub(crate) fn note_cut_left(&self, bytes: u64) {
        self.cut_left.store(bytes, Ordering::Relaxed);
    }

    /// Looks how much there is to push, and holds writers back accordingly; returns whether that has
    /// the push go on at once.
    #[must_use]
    pub(crate) fn look(&self, log: &LocalLog) -> bool {
        let backlogs = {
            let map = log.map();
            let is_full = map.extents.len() >= self.extents_max.load(Ordering::Relaxed);
            self.is_map_full.store(is_full, Ordering::Relaxed);
            map.backlogs(self.cut_left.load(Ordering::Relaxed))
        };
        self.hold_back.look(Instant::now(), &backlogs, self.push_rate)
    }

    /// Returns whether the map has as many extents as it may have; a fold makes it smaller.
    pub(crate) fn is_map_full(&self) -> bool {
        self.is_map_full.load(Ordering::Relaxed)
    }

    /// Returns whether so many extents are worth a fold.
    pub(crate) fn is_map_long(&self, extents: usize) -> bool {
        extents >= self.extents_max.load(Ordering::Relaxed) / 4
    }

    /// Returns what the answer to a write of `bytes` in a range of sectors is held back by, if anything.
    pub(crate) fn hold(&self, log: &LocalLog, start: u64, end: u64, bytes: u64) -> Option<Held> {
        let regions = Arc::clone(&log.map().regions);
        let is_pushed_later = regions.has_class(start, end, DurabilityClass::WriteBack);
        is_pushed_later.then(|| self.hold_back.hold(Instant::now(), bytes)).flatten()
    }

    /// Changes how many extents the map may have.
    #[cfg(test)]
    pub(crate) fn set_extents_max(&self, max: usize) {
        self.extents_max.store(max, Ordering::Relaxed);
    }
}
