//! The NBD server: how QEMU and every other NBD client reaches a volume.
//!
//! An [`NbdServer`] serves one [`Export`] (a [`acstor_overlay::BlockDevice`] under a name) on one
//! listening socket. A client goes through the [`protocol`]'s handshake (`handshake`), then a task of
//! its own carries its requests (`connection`): what the device has at hand is answered inline,
//! with `sendmsg` straight from the mapped pieces; what must wait is spawned. The device is called
//! in the order in which one connection's requests came, and a flush on one connection covers what
//! was acknowledged on every connection.
//!
//! Memory is bounded per connection and, through a [`MemoryBudget`] that servers share, per process: a
//! connection without room is not read from until there is some. Nothing is allocated for a length
//! that was not checked and counted.
//!
//! Planned and unplanned restarts look the same to a client: the connection closes, what was not
//! answered is asked again on the next one, whose transmission begins when the device has ended what
//! it was doing for the last. The listening socket outlives the process in the supervisor's
//! descriptor store.
//!
//! Described in `reference/protocols/nbd` and `reference/state-machines/nbd-connection`.

mod close_reason;
mod config;
mod connection;
mod connection_state;
mod error;
mod export;
mod export_token;
mod handshake;
mod late_responses;
mod listener;
mod memory;
mod page_reader;
pub mod protocol;
mod rate_limit;
mod refusals;
mod residency;
mod server;
mod stats;

pub use close_reason::CloseReason;
pub use config::{PAYLOAD_MAX, ServerConfig};
pub use connection_state::{ConnectionEvent, ConnectionState, InvalidTransition, TRANSITIONS};
pub use error::NbdError;
pub use export::Export;
pub use export_token::ExportToken;
pub use listener::{Listener, bind_unix};
pub use memory::MemoryBudget;
pub use rate_limit::RateLimits;
pub use server::NbdServer;
pub use stats::{CommandKind, CommandStats, LATENCY_BOUNDS_US, NbdStats};
