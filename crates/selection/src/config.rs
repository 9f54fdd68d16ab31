//! Settings of the selection.

use std::time::Duration;

use crate::limits;

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
}

impl Default for SelectionConfig {
    fn default() -> SelectionConfig {
        SelectionConfig {
            load_aware: true,
            slow_fetch: limits::SLOW_FETCH,
            compress_slow: true,
            hedge_min: limits::HEDGE_MIN,
            hedge_max: limits::HEDGE_MAX,
        }
    }
}
