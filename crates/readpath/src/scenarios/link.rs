//! A link that other traffic shares: what is left of it, first come, first served.

use std::time::Duration;

use tokio::time::Instant;

/// One direction of a host's link, or the origin's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    bytes_per_s: f64,
    /// Share that other traffic takes, 0 to below 1.
    load: f64,
    free_at: Option<Instant>,
    carried: usize,
}

impl Link {
    pub(super) fn new(bytes_per_s: f64, load: f64) -> Link {
        Link { bytes_per_s, load, free_at: None, carried: 0 }
    }

    pub(super) fn set_load(&mut self, load: f64) {
        self.load = load;
    }

    /// Takes the link for `bytes` behind whoever has it; returns when they are through.
    pub(super) fn carry(&mut self, bytes: usize, now: Instant) -> Instant {
        let rate = self.bytes_per_s * (1.0 - self.load);
        let start = self.free_at.map_or(now, |free_at| free_at.max(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / rate);
        self.free_at = Some(end);
        self.carried += bytes;
        end
    }

    /// Bytes so far.
    pub(super) fn carried(&self) -> usize {
        self.carried
    }
}
