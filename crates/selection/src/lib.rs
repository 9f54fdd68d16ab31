//! Choice of the source of a chunk, its hedges, and the overload of sources. Pure.
//!
//! Everything here is plain data and arithmetic: no I/O, no lock, no task, no clock and no random
//! number. Time comes in as a [`Moment`], randomness as a `unit` in [0, 1). The read path puts the
//! types behind its locks, and a simulator holds one [`Selector`] per host and one [`PeerHealth`] per
//! pair of hosts that met.
//!
//! One chunk, from a host's point of view:
//!
//! 1. [`Selector::overview`] says how all sources do together; where it is `None`, the caller gives
//!    [`Selector::refresh`] a [`Reading`] of each known peer.
//! 2. [`Selector::sample`] takes a [`PeerSample`] of each peer in line, and [`Selector::choose`] makes a
//!    [`Choice`] of them. The caller carries it out, since permits and lines are the caller's.
//! 3. [`PeerHealth::admit`] asks the circuit breaker, [`PeerHealth::begin`] notes the fetch,
//!    [`Selector::hedge_after`] says when it is late.
//! 4. [`PeerHealth::end`], then one of `answered`, `refused`, `corrupt`, `timed_out`, `unreachable`,
//!    `failed`, `overtaken`; after an answer [`Selector::keeps`]. The origin has [`Selector::begin_origin`]
//!    and [`Selector::end_origin`].
//!
//! What to fetch before it is asked for is a [`ReadAhead`]'s part: one per open of an image. Where nobody has
//! booted the image yet, hosts tell each other ([`exchange`]).
//!
//! `doc/source/contributor/selection.rst` has the rules and the table of [`limits`].
//!
//! Must never: read a clock, draw a random number, wait, or depend on another crate of ACStor.

mod backoff;
mod circuit_breaker;
mod compression_cost;
mod config;
pub mod exchange;
mod latency_histogram;
pub mod limits;
mod moment;
mod origin_share;
mod overview;
mod peer_health;
mod read_ahead;
mod selector;
mod slow_streak;
mod source_delay;
mod token_bucket;
mod told_load;

pub use backoff::Backoff;
pub use circuit_breaker::{
    Admission, BREAKER_TRANSITIONS, BreakerEvent, BreakerRules, BreakerState, CircuitBreaker,
    FailureWhileOpen, OverdueTrial,
};
pub use compression_cost::CompressionCost;
pub use config::{Prefer, SelectionConfig};
pub use latency_histogram::LatencyHistogram;
pub use moment::Moment;
pub use origin_share::OriginShare;
pub use overview::Overview;
pub use peer_health::{LatencySummary, PeerHealth, is_silence, peer_time};
pub use read_ahead::{
    AheadBalance, BootKind, BootProfile, BootProfileError, ReadAhead, Touch, in_flight_bytes,
};
pub use selector::{Choice, HedgeCase, Load, PeerSample, PeerSet, Selector};
pub use slow_streak::{OverloadTimes, SlowStreak};
pub use source_delay::{Current, Fetch, Reading, SourceDelay};
pub use token_bucket::TokenBucket;
pub use told_load::{ToldLoad, transfer_time};
