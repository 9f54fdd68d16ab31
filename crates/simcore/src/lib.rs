//! The simulator's core: a data centre's hosts as events and flows under max-min fair sharing.
//!
//! A [`Simulation`] has a [`Tree`] of switches, extra traffic on it, machines with programs of
//! reads, hosts with chunk stores, and rings. Rates are computed exactly at the start of each
//! window of time; events are handled at their exact times within it. Times are seconds, amounts
//! bytes, rates bytes per second; hosts are numbered from 0, the origin is the number after the
//! last host.
//!
//! The ring, the eviction policies and the choice of sources are the data plane's own code. Nothing here does I/O, reads
//! a clock or starts a thread; equal inputs give equal runs.

mod choice;
mod connections;
mod events;
mod fairness;
mod left_share;
mod lines;
mod network;
mod origin_lane;
mod programs;
mod random;
mod rules;
mod sender;
mod simulation;
mod stores;
mod tree;

pub use acstor_selection::BootProfileError;
pub use left_share::LeftShare;
pub use lines::UnknownHostError;
pub use network::ExtraTraffic;
pub use programs::{MachineState, Programs};
pub use rules::Rules;
pub use simulation::{Counters, Machines, Reports, Samples, Simulation, Totals};
pub use tree::{Shape, ShapeError, Tree};
