//! Settings of the selection.

use std::time::Duration;

use crate::limits;

/// Preference where the two are at odds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// Each chunk leaves the origin about once: it is read in the place of peers only where all in line are
    /// overloaded for long.
    #[default]
    OriginBytes,
    /// The origin is a source like the others: it is asked first where it is faster, within the share that
    /// this host has of it ([`crate::OriginShare`]).
    BootTime,
}

/// Settings of a [`crate::Selector`]. The caller checks their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionConfig {
    /// True if overloaded peers are passed over.
    pub load_aware: bool,
    /// Least time of a chunk over a link that is full: some ten times that over a link that is not.
    pub slow_fetch: Duration,
    /// True if peers may compress their answers where links are slow.
    pub compress_slow: bool,
    /// Time before which a fetch is never hedged.
    pub hedge_min: Duration,
    /// Time after which a fetch is hedged whatever the peer's p99, where the share allows.
    pub hedge_max: Duration,
    /// Preference: the origin's bytes, or the time of those who wait.
    pub prefer: Prefer,
}

impl Default for SelectionConfig {
    fn default() -> SelectionConfig {
        SelectionConfig {
            load_aware: true,
            slow_fetch: limits::SLOW_FETCH,
            compress_slow: true,
            hedge_min: limits::HEDGE_MIN,
            hedge_max: limits::HEDGE_MAX,
            prefer: Prefer::default(),
        }
    }
}
